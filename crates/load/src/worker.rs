//! One thread of the generator: an io shard that gives arrivals to its free connections.
//!
//! Per tick: events are taken in (responses free connections), then due arrivals are spread over the free connections,
//! then each connection that got some sends them in one call, stamped just before it. Between ticks the thread sleeps
//! until its next arrival (see `schedule`). A thread with a free connection holds at most one arrival that is not due
//! yet, so an arrival wakes one thread and not all of them. Requests without a response are found by a sweep, late by
//! up to a sixteenth of the timeout and one housekeeping period; a response that comes in between is still too late.
mod connections;
mod sending;
#[cfg(test)]
#[path = "tests/worker_simulated.rs"]
mod simulated;

use self::sending::Input;
use crate::arrivals::Cursor;
use crate::config::LoadConfig;
use crate::connection::{BACKOFF_NS_MAX_OF_OUTAGES, Session};
use crate::connection_plan::ConnectionUse;
use crate::connection_plan::Openings;
use crate::connection_plan::TargetWatch;
use crate::cookies::Cookies;
use crate::error::{ConnectFailure, LoadError};
use crate::outages::CpuShare;
use crate::outages::StallWatch;
use crate::outcome::{Outcome, Phase};
use crate::samples::Batches;
use crate::samples::Samples;
use crate::schedule::FreeSessions;
use crate::schedule::SpinWindow;
use crate::schedule::{Arrival, Pace, Schedule};
use crate::script::Runner;
use crate::shared::Sampling;
use crate::shared::Shared;
use crate::timeline::Seconds;
use millpond_http::LastHead;
use millpond_io::connection_pool::HandshakeError;
use millpond_io::{Driver, Errno, Event, IoError, Protocol, ShardContext, WaitPlan};
use millpond_measure::record::LoadFailureKind;
use std::collections::VecDeque;

/// How often flags are read and totals published.
const HOUSEKEEPING_NS: u64 = 20_000_000;
/// The same while the run has not begun, so that it begins on time.
const HOUSEKEEPING_NS_BEFORE_START: u64 = 1_000_000;
/// How often memory is given back that was not used in between.
const TRIM_NS: u64 = 1_000_000_000;
/// Connections being opened at once: more would overflow a listener's queue and wait a second.
const CONNECTING_MAX: usize = 128;
/// No slot of the driver belongs to this session index.
const NOBODY: u32 = u32::MAX;

/// One thread's connections and counts.
pub(crate) struct Worker<'run> {
    shared: &'run Shared<'run>,
    board_index: usize,
    pub(crate) outcome: Outcome,
    seconds: Seconds,
    sessions: Vec<Session>,
    /// Which session a socket belongs to, by the socket's slot.
    by_slot: Vec<u32>,
    /// Sessions with room for a request.
    free: FreeSessions,
    /// Sessions with a batch to send in this tick.
    dirty: Vec<u32>,
    /// Sessions to connect.
    closed: VecDeque<u32>,
    /// Some of them wait until it is known when sending begins.
    has_ramp_ahead: bool,
    /// It is known when sending begins.
    has_begun: bool,
    connecting: usize,
    /// This thread's walk along the arrival process; `None` in a closed loop.
    cursor: Option<Cursor<'run>>,
    /// An arrival claimed but not due yet.
    held: Option<Arrival>,
    /// An arrival claimed and never written, once the worker has ended.
    pub(crate) leftover: Option<Arrival>,
    /// Requests to write again, before all others.
    repeats: VecDeque<Arrival>,
    in_flight: usize,
    spin: SpinWindow,
    /// When the current sleep should end; `None` while polling.
    sleep_until_ns: Option<u64>,
    /// When the wait before this tick was to end at the latest.
    wait_until_ns: Option<u64>,
    had_events: bool,
    /// The last reading of the clock.
    now_ns: u64,
    next_housekeeping_ns: u64,
    next_sweep_ns: u64,
    next_trim_ns: u64,
    cpu: CpuShare,
    /// The last response of each class, which the next one mostly equals.
    last_heads: Box<[LastHead]>,
    /// `None`: receives are not stamped.
    stamps: Option<Sampling>,
    is_done: bool,
    is_closed_loop: bool,
    /// Responses need only a comparison with the last one, if there is no listener and no script made their requests:
    /// only their status matters, and connections are not closed after a number of them.
    takes_alike: bool,
    /// A closed loop whose requests differ in nothing but their numbers, without script and cookies.
    has_equal_requests: bool,
    /// Where the requests come from, if not from the workload. On the heap: most runs have none.
    pub(crate) script: Option<Box<Runner>>,
    /// The server's cookies of each connection; `None`: nothing.
    pub(crate) cookies: Option<Box<Cookies>>,
    /// The clock of whole batches, if requested.
    pub(crate) batches: Option<Box<Batches>>,
    /// Single requests, if requested.
    pub(crate) samples: Option<Box<Samples>>,
    /// Parts of opening connections; empty in plaintext.
    pub(crate) openings: Openings,
    /// Connections that have ended.
    pub(crate) connection_use: ConnectionUse,
    /// Whether anything but the clocks reads responses.
    has_listener: bool,
    /// The arrivals of the string of requests in hand.
    batch: Vec<Arrival>,
    /// Why the run cannot continue.
    pub(crate) failure: Option<LoadError>,
}

/// So many connections, none of them open.
fn sessions_of(config: &LoadConfig, connections: usize) -> Vec<Session> {
    let requests_max = config.plan.requests_max.unwrap_or(u64::MAX);
    let limits = config.response_limits();
    let sessions = (0..connections).map(|_| {
        let session = Session::new(config.pipeline, requests_max, limits);
        match config.keeps_going {
            true => session.with_backoff_max(BACKOFF_NS_MAX_OF_OUTAGES),
            false => session,
        }
    });
    sessions.collect()
}

impl<'run> Worker<'run> {
    /// A worker with `connections` sessions of its own.
    pub(crate) fn new(shared: &'run Shared<'run>, board_index: usize, connections: usize) -> Self {
        let (gap_ns, cursor) = match &shared.pace {
            Pace::Closed => (0, None),
            Pace::Open(arrivals) => {
                let gap_s = shared.boards.len() as f64 / arrivals.peak_per_s();
                ((gap_s * 1e9) as u64, Some(arrivals.cursor()))
            }
        };
        let mut worker = Self {
            shared,
            board_index,
            outcome: Outcome::with_classes(shared.classes()),
            seconds: Seconds::new(board_index),
            sessions: sessions_of(shared.config, connections),
            by_slot: Vec::with_capacity(connections),
            free: FreeSessions::new(connections),
            dirty: Vec::with_capacity(connections),
            closed: (0..connections as u32).collect(),
            has_ramp_ahead: false,
            has_begun: false,
            connecting: 0,
            cursor,
            held: None,
            leftover: None,
            repeats: VecDeque::new(),
            in_flight: 0,
            spin: SpinWindow::new(gap_ns),
            sleep_until_ns: None,
            wait_until_ns: None,
            had_events: false,
            now_ns: 0,
            next_housekeeping_ns: 0,
            next_sweep_ns: 0,
            next_trim_ns: 0,
            cpu: CpuShare::default(),
            last_heads: shared
                .validators
                .iter()
                .map(|_| LastHead::default())
                .collect(),
            stamps: None,
            is_done: false,
            takes_alike: shared.is_status_only && shared.config.plan.requests_max.is_none(),
            is_closed_loop: shared.pace == Pace::Closed,
            has_equal_requests: shared.pace == Pace::Closed && shared.requests.fixed().is_some(),
            script: None,
            cookies: None,
            batches: None,
            samples: None,
            openings: Openings::default(),
            connection_use: ConnectionUse::default(),
            has_listener: false,
            batch: Vec::new(),
            failure: None,
        };
        if shared.config.watch_stalls {
            let target = shared.config.target_threads.as_ref();
            let watch = StallWatch::of_target(target.map(TargetWatch::new));
            worker.outcome.stalls = Some(Box::new(watch));
        }
        worker.hold_back_for_ramp();
        worker.give_listeners();
        worker
    }

    /// A wait has ended.
    #[inline]
    fn note_wake(&mut self, has_events: bool, now_ns: u64) {
        if let Some(watch) = &mut self.outcome.stalls {
            watch.woke(self.wait_until_ns, has_events, now_ns);
        }
    }

    /// The clock was read.
    #[inline]
    fn look_for_stall(&mut self) {
        if let Some(watch) = &mut self.outcome.stalls {
            watch.look(self.now_ns);
        }
    }

    /// CPU this thread used inside the window, as a share of one CPU.
    pub(crate) fn cpu_share(&self) -> f64 {
        self.cpu.share()
    }

    /// The thread has ended, and with it the connections that are left.
    pub(crate) fn end_connections(&mut self) {
        for session in self.sessions.iter().filter(|session| session.is_open()) {
            self.connection_use.note(session.answered_count());
        }
    }

    /// A second has ended. Called for events too, so that each is counted in its own.
    #[cold]
    fn turn_second(&mut self, now_ns: u64) {
        let shared = self.shared;
        if let Some(schedule) = shared.schedule.get() {
            self.seconds
                .turn(now_ns, schedule, &shared.exchange, &mut self.outcome);
        }
    }

    /// The thread has ended: hands over what is left of its last second. If that is because no more requests come
    /// due, the second lasts as long as the window: that nothing was due in the rest of it is a part of the figure.
    pub(crate) fn end_seconds(&mut self) {
        let shared = self.shared;
        let exhausted = shared
            .schedule
            .get()
            .filter(|schedule| schedule.is_exhausted(self.now_ns));
        let window_end_ns = exhausted.and_then(Schedule::process_end_ns);
        let end_ns = window_end_ns.map_or(self.now_ns, |end_ns| end_ns.max(self.now_ns));
        self.seconds
            .end(end_ns, &shared.exchange, &mut self.outcome);
    }
}

impl<D: Driver> Protocol<D> for Worker<'_> {
    fn started(&mut self, shard: &mut ShardContext<'_, D>) -> Result<(), IoError> {
        let wants_stamps = self.shared.config.receive_stamps;
        if wants_stamps && shard.driver.stamp_receives(1) {
            self.stamps = Some(Sampling::default());
        }
        self.open_due(shard.driver, shard.now_ns)
    }

    fn event(&mut self, shard: &mut ShardContext<'_, D>, event: Event<'_>) {
        if !self.had_events {
            self.note_wake(true, shard.now_ns);
        }
        self.had_events = true;
        let now_ns = shard.now_ns;
        self.now_ns = now_ns;
        match event {
            Event::Connected { socket } => {
                if let Some(index) = self.session_of(socket) {
                    self.note_handshake(shard.driver, index, socket, now_ns);
                    self.connected(index, socket, now_ns);
                }
                if !self.closed.is_empty()
                    && let Err(error) = self.open_due(shard.driver, now_ns)
                {
                    self.cannot_connect(error);
                }
            }
            Event::Received { socket, bytes } => self.received(shard, socket, bytes),
            Event::PeerFinished { socket } => {
                if let Some(index) = self.session_of(socket) {
                    if now_ns >= self.seconds.next_ns {
                        self.turn_second(now_ns);
                    }
                    self.feed(shard, index, socket, Input::End);
                }
            }
            Event::Failed { socket, error } => {
                let Some(index) = self.session_of(socket) else {
                    return;
                };
                if self.sessions[index as usize].is_open() {
                    let phase = if error == Errno::PIPE {
                        Phase::Write
                    } else {
                        Phase::Read
                    };
                    let kind = match phase {
                        Phase::Write => LoadFailureKind::Write,
                        _ => LoadFailureKind::Read,
                    };
                    let place = self.place_of(index);
                    let what = || format!("the connection broke: {error}");
                    if self.sessions[index as usize].in_flight_len() > 0 {
                        self.outcome.causes.note(kind, now_ns, place, what, b"");
                    }
                    self.lost(index, phase, now_ns);
                } else {
                    let failure = match shard.driver.tls_failure(socket) {
                        None => ConnectFailure::Refused(error),
                        tls => ConnectFailure::Handshake(HandshakeError::new(tls, error)),
                    };
                    self.connect_failed(index, failure, now_ns);
                }
            }
            Event::SendBlocked { socket } => {
                if let Some(index) = self.session_of(socket) {
                    self.sessions[index as usize].is_blocked = true;
                }
            }
            Event::SendDrained { socket } => {
                if let Some(index) = self.session_of(socket) {
                    self.sessions[index as usize].drained(now_ns);
                    self.offer(index);
                }
            }
            _ => {}
        }
    }

    fn tick_ended(&mut self, shard: &mut ShardContext<'_, D>) {
        if let Some(sleep_until_ns) = self.sleep_until_ns.take()
            && !self.had_events
            && shard.now_ns >= sleep_until_ns
        {
            self.spin.observe(shard.now_ns - sleep_until_ns);
        }
        if !self.had_events {
            self.note_wake(false, shard.now_ns);
        }
        self.had_events = false;
        self.now_ns = shard.driver.clock_ns();
        self.look_for_stall();
        if self.now_ns >= self.seconds.next_ns {
            self.turn_second(self.now_ns);
        }
        if self.now_ns >= self.next_housekeeping_ns {
            self.run_periodic(shard);
        }
        let shared = self.shared;
        if let Some(schedule) = shared.schedule.get()
            && !self.is_done
            && self.now_ns >= schedule.start_ns()
        {
            self.send_due(shard, schedule);
            // Lets the last response end the run at once instead of at the next housekeeping.
            if self.in_flight == 0 && self.held.is_none() {
                let soon_ns = self.now_ns + HOUSEKEEPING_NS_BEFORE_START;
                let quiet_until_ns = schedule.quiet_until_ns().unwrap_or(0);
                let look_ns = soon_ns.max(quiet_until_ns);
                self.next_housekeeping_ns = self.next_housekeeping_ns.min(look_ns);
            }
        }
    }

    fn stop_requested(&mut self, shard: &mut ShardContext<'_, D>) {
        self.cut_off(shard);
    }

    fn finished(&self) -> bool {
        self.is_done
    }

    fn wait_plan(&mut self, _now_ns: u64) -> WaitPlan {
        let plan = self.next_wait();
        self.wait_until_ns = plan.deadline_ns;
        plan
    }
}

impl Worker<'_> {
    /// How long to wait for events: until the next arrival is due, or until the next housekeeping.
    fn next_wait(&mut self) -> WaitPlan {
        let start_ns = self.shared.schedule.get().map(Schedule::start_ns);
        let due_ns = match (start_ns, self.held) {
            (Some(start_ns), _) if self.now_ns < start_ns => Some(start_ns),
            (_, Some(arrival)) if !self.free.is_empty() => Some(arrival.intended_ns),
            _ => None,
        };
        let pause_end_ns = match (&self.script, start_ns) {
            (Some(script), Some(start_ns)) if self.now_ns >= start_ns => script.next_pause_end_ns(),
            _ => None,
        };
        let due_ns = due_ns.into_iter().chain(pause_end_ns).min();
        let Some(due_ns) = due_ns.filter(|&due_ns| due_ns < self.next_housekeeping_ns) else {
            return WaitPlan {
                deadline_ns: Some(self.next_housekeeping_ns),
                spin_ns: 0,
            };
        };
        let spin_ns = self.spin.width_ns();
        let sleep_until_ns = due_ns.saturating_sub(spin_ns);
        self.sleep_until_ns = (sleep_until_ns > self.now_ns).then_some(sleep_until_ns);
        WaitPlan {
            deadline_ns: Some(due_ns),
            spin_ns,
        }
    }
}
