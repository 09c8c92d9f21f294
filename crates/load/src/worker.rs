//! One thread of the generator: an io shard that gives arrivals to its free connections.
//!
//! Per tick: events are taken in (answers free connections), then due arrivals are spread over the
//! free connections, then each connection that got some sends them in one call, stamped just before
//! it. Between ticks the thread sleeps until its next arrival (see `pacing`).
//! A thread with a free connection holds at most one arrival that is not due yet, so an arrival
//! wakes one thread and not all of them.
//! Absent on purpose: timers per request. Timeouts are found by a sweep: late by a sixteenth of
//! the timeout at most, for nothing per request.
mod connections;
mod housekeeping;
mod listening;
mod scripted;
#[cfg(test)]
mod simulated;

use crate::arrivals::Cursor;
use crate::cookies::Cookies;
use crate::cpu_share::CpuShare;
use crate::error::{ConnectFailure, LoadError};
use crate::free::FreeSessions;
use crate::listener::Listener;
use crate::outcome::{InFlight, Outcome, Phase};
use crate::pacing::SpinWindow;
use crate::schedule::{Arrival, Pace, Schedule};
use crate::script::Runner;
use crate::session::{Desk, Session, State};
use crate::shared::Shared;
use crate::timeline::Seconds;
use crate::wake::Sampling;
use millpond_http::{ClientError, LastHead};
use millpond_io::{
    Driver, Errno, Event, IoError, Protocol, SendOutcome, ShardContext, SocketId, WaitPlan,
};
use std::collections::VecDeque;

/// How often flags are looked at and totals published.
const HOUSEKEEPING_NS: u64 = 20_000_000;
/// The same while the run has not begun, so that it begins on time.
const HOUSEKEEPING_NS_BEFORE_START: u64 = 1_000_000;
/// How often memory is given back that nobody used in between.
const TRIM_NS: u64 = 1_000_000_000;
/// Connections being opened at once: more would overflow a listener's queue and wait a second.
const CONNECTING_MAX: usize = 128;
/// No slot of the driver belongs to this session index.
const NOBODY: u32 = u32::MAX;

/// A request to write: new, or again because its connection was closed under it by announcement.
#[derive(Clone, Copy, Debug)]
struct Owed {
    arrival: Arrival,
    is_repeat: bool,
}

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
    had_events: bool,
    /// The clock when it was last looked at.
    now_ns: u64,
    next_housekeeping_ns: u64,
    next_sweep_ns: u64,
    next_trim_ns: u64,
    cpu: CpuShare,
    /// What the last answer of each class looked like, which the next one mostly does too.
    last_heads: Box<[LastHead]>,
    /// `None`: receives are not stamped.
    stamps: Option<Sampling>,
    is_done: bool,
    /// Where the requests come from, if not from the workload. On the heap: most runs have none.
    pub(crate) script: Option<Box<Runner>>,
    /// What each connection keeps of what the server sets; `None`: nothing.
    pub(crate) cookies: Option<Box<Cookies>>,
    /// Whether anybody but the clocks looks at answers.
    has_listener: bool,
    /// The arrivals of the string of requests in hand.
    batch: Vec<Arrival>,
    /// Why the run cannot go on.
    pub(crate) failure: Option<LoadError>,
}

impl<'run> Worker<'run> {
    /// A worker with `connections` sessions of its own.
    pub(crate) fn new(shared: &'run Shared<'run>, board_index: usize, connections: usize) -> Self {
        let pipeline = shared.config.pipeline;
        let requests_max = shared.config.plan.requests_max.unwrap_or(u64::MAX);
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
            sessions: (0..connections)
                .map(|_| Session::new(pipeline, requests_max))
                .collect(),
            by_slot: Vec::with_capacity(connections),
            free: FreeSessions::new(connections),
            dirty: Vec::with_capacity(connections),
            closed: (0..connections as u32).collect(),
            has_ramp_ahead: false,
            connecting: 0,
            cursor,
            held: None,
            leftover: None,
            repeats: VecDeque::new(),
            in_flight: 0,
            spin: SpinWindow::new(gap_ns),
            sleep_until_ns: None,
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
            script: None,
            cookies: None,
            has_listener: false,
            batch: Vec::new(),
            failure: None,
        };
        worker.hold_back_for_ramp();
        worker.give_cookies();
        worker
    }

    /// CPU this thread used inside the window, as a share of one CPU.
    pub(crate) fn cpu_share(&self) -> f64 {
        self.cpu.share()
    }

    /// Feeds a session; afterwards it is free, still waiting, or over.
    fn feed<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        index: u32,
        socket: SocketId,
        input: Input<'_>,
    ) {
        let (now_ns, in_window) = (shard.now_ns, self.is_in_window(shard.now_ns));
        if now_ns >= self.seconds.next_ns {
            self.turn_second(now_ns);
        }
        let stamped = self.stamped(shard.driver, index);
        let listener = self.has_listener.then(|| Listener {
            index,
            script: self
                .script
                .as_deref_mut()
                .filter(|runner| runner.wants_answers()),
            cookies: self.cookies.as_deref_mut(),
        });
        let session = &mut self.sessions[index as usize];
        let before = session.in_flight_len();
        let mut desk = Desk {
            requests: &self.shared.requests,
            validators: &self.shared.validators,
            outcome: &mut self.outcome,
            now_ns,
            in_window,
            listener,
        };
        let result: Result<(), ClientError> = match input {
            Input::Bytes(bytes) => {
                let heads = &mut self.last_heads[..];
                session.receive(bytes, &shard.pools.blocks, heads, &mut desk)
            }
            Input::End => session.peer_finished(&mut desk),
        };
        let answers = before - session.in_flight_len();
        self.in_flight -= answers;
        if let Some(stamped) = stamped {
            stamped.note(&mut self.outcome, answers, now_ns);
        }
        if let Input::Bytes(bytes) = input
            && in_window
        {
            self.outcome.received_bytes += bytes.len() as u64;
        }
        let is_over = result.is_err()
            || session.is_last
            || session.is_used_up()
            || matches!(input, Input::End);
        if is_over {
            shard.driver.close(socket);
            self.lost(index, Phase::Read, now_ns);
        } else {
            self.offer(index);
        }
    }

    /// What a receive that was stamped found waiting for its answer.
    fn stamped<D: Driver>(&self, driver: &D, index: u32) -> Option<Stamped> {
        let stamp_ns = driver.received_at_ns()?;
        Some(Stamped {
            stamp_ns,
            request: self.sessions[index as usize].oldest()?,
            right_before: self.outcome.requests(),
        })
    }

    /// A second is over. Called for events too, so that each is counted in its own.
    #[cold]
    fn turn_second(&mut self, now_ns: u64) {
        let shared = self.shared;
        if let Some(schedule) = shared.schedule.get() {
            self.seconds
                .turn(now_ns, schedule, &shared.exchange, &mut self.outcome);
        }
    }

    /// The thread has ended: hands over what is left of its last second.
    pub(crate) fn end_seconds(&mut self) {
        let exchange = &self.shared.exchange;
        self.seconds.end(self.now_ns, exchange, &mut self.outcome);
    }

    fn is_in_window(&self, now_ns: u64) -> bool {
        self.shared
            .schedule
            .get()
            .is_some_and(|schedule| schedule.is_in_window(now_ns))
    }

    /// The next request that is due, if any.
    fn next_due(&mut self, schedule: &Schedule, now_ns: u64) -> Option<Owed> {
        if let Some(arrival) = self.repeats.pop_front() {
            return Some(Owed {
                arrival,
                is_repeat: true,
            });
        }
        let deadline_ns = self.shared.config.deadline_ns.unwrap_or(u64::MAX);
        loop {
            if self.held.is_none() {
                self.held = schedule.claim(now_ns, self.cursor.as_mut());
            }
            let arrival = self.held.take_if(|arrival| arrival.intended_ns <= now_ns)?;
            // A closed loop has no intended start, and no deadline.
            if now_ns.saturating_sub(arrival.intended_ns) <= deadline_ns {
                return Some(Owed {
                    arrival,
                    is_repeat: false,
                });
            }
            self.outcome.shed(&arrival, now_ns);
        }
    }

    /// Spreads due requests over free connections, the longest free first.
    fn dispatch<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, schedule: &Schedule) {
        let is_closed_loop = self.shared.pace == Pace::Closed;
        let window_end_ns = schedule.window_end_ns().unwrap_or(u64::MAX);
        while let Some(free) = self.free.first(&mut self.sessions) {
            let Some(owed) = self.next_due(schedule, self.now_ns) else {
                break;
            };
            self.free.take_first(&mut self.sessions, free);
            let index = free.index;
            let session = &mut self.sessions[index as usize];
            let pool = &shard.pools.blocks;
            let (arrival, requests) = (&owed.arrival, &self.shared.requests);
            let taken = match &mut self.cookies {
                None => session.take(arrival, requests, pool, is_closed_loop),
                Some(cookies) => cookies.take(session, index, arrival, requests, pool, self.now_ns),
            };
            match taken {
                Ok(true) => self.dirty.push(index),
                Ok(false) => {}
                Err(error) => {
                    // Without memory nothing can be measured; the arrival ends as cut off.
                    self.fail(error.into());
                    return;
                }
            }
            self.in_flight += 1;
            if owed.is_repeat {
                self.outcome.resent += 1;
            } else if owed.arrival.counted {
                self.outcome.sent += 1;
                self.outcome.sent_late += u64::from(self.now_ns >= window_end_ns);
            }
            self.offer(index);
        }
    }

    /// One send per connection with a batch, stamped just before.
    fn flush<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>) {
        let is_closed_loop = self.shared.pace == Pace::Closed;
        for position in 0..self.dirty.len() {
            let index = self.dirty[position] as usize;
            let session = &mut self.sessions[index];
            let State::Open { socket } = session.state else {
                continue;
            };
            self.now_ns = shard.driver.clock_ns();
            let (now_ns, free_since_ns) = (self.now_ns, session.free_since_ns);
            let Outcome {
                lateness, blocked, ..
            } = &mut self.outcome;
            let batch = session.written(now_ns, is_closed_loop, |request| {
                if request.counted && !is_closed_loop {
                    let intended_ns = request.intended_ns;
                    lateness.record(now_ns - intended_ns.max(free_since_ns));
                    blocked.record(free_since_ns.saturating_sub(intended_ns));
                }
            });
            if shard.driver.send(socket, batch) == SendOutcome::Blocked {
                session.is_blocked = true;
            }
        }
        self.dirty.clear();
    }
}

/// A receive with the kernel's stamp, before its bytes are looked at.
struct Stamped {
    stamp_ns: u64,
    /// The request whose answer may be in it.
    request: InFlight,
    /// Right answers until then.
    right_before: u64,
}

impl Stamped {
    /// The stamp is that of the last byte: of several answers, the first ones came earlier.
    fn note(self, outcome: &mut Outcome, answers: usize, now_ns: u64) {
        let is_right = outcome.requests() == self.right_before + 1;
        if answers == 1 && is_right && self.request.counted {
            outcome.wake.record(&self.request, self.stamp_ns, now_ns);
        }
    }
}

/// What a session is fed with.
#[derive(Clone, Copy)]
enum Input<'a> {
    Bytes(&'a [u8]),
    End,
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
        self.had_events = true;
        let now_ns = shard.now_ns;
        self.now_ns = now_ns;
        match event {
            Event::Connected { socket } => {
                if let Some(index) = self.session_of(socket) {
                    self.connected(index, socket, now_ns);
                }
                if !self.closed.is_empty()
                    && let Err(error) = self.open_due(shard.driver, now_ns)
                {
                    self.cannot_connect(error);
                }
            }
            Event::Received { socket, bytes } => {
                if let Some(index) = self.session_of(socket) {
                    self.feed(shard, index, socket, Input::Bytes(bytes));
                }
            }
            Event::PeerFinished { socket } => {
                if let Some(index) = self.session_of(socket) {
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
                    self.lost(index, phase, now_ns);
                } else {
                    let is_handshake = self.shared.config.tls.is_some() && error == Errno::PROTO;
                    let failure = if is_handshake {
                        ConnectFailure::Handshake
                    } else {
                        ConnectFailure::Refused(error)
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
        self.had_events = false;
        self.now_ns = shard.driver.clock_ns();
        if self.now_ns >= self.seconds.next_ns {
            self.turn_second(self.now_ns);
        }
        if self.now_ns >= self.next_housekeeping_ns {
            self.keep_house(shard);
        }
        let shared = self.shared;
        if let Some(schedule) = shared.schedule.get()
            && !self.is_done
            && self.now_ns >= schedule.start_ns()
        {
            if self.script.is_some() {
                self.dispatch_scripted(shard, schedule);
            } else {
                self.dispatch(shard, schedule);
            }
            self.flush(shard);
            // Lets the last answer end the run at once instead of at the next housekeeping.
            if self.in_flight == 0 && self.held.is_none() {
                self.next_housekeeping_ns = self
                    .next_housekeeping_ns
                    .min(self.now_ns + HOUSEKEEPING_NS_BEFORE_START);
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
        let start_ns = self.shared.schedule.get().map(Schedule::start_ns);
        let due_ns = match (start_ns, self.held) {
            (Some(start_ns), _) if self.now_ns < start_ns => Some(start_ns),
            (_, Some(arrival)) if !self.free.is_empty() => Some(arrival.intended_ns),
            _ => None,
        };
        let pause_end_ns = match (&self.script, start_ns) {
            (Some(script), Some(start_ns)) if self.now_ns >= start_ns => {
                script.pauses.next_end_ns()
            }
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
