//! The supervising thread's view of a run: when it begins, how far it is, and what ends it.
//!
//! `run` has started the workers and waits here until they are done, or until the caller, a
//! condition or a dead target ends the run.
use super::PATIENCE;
use super::WarmUpWatch;
use super::{Connecting, Observer, Progress, WorkerHandle};
use crate::config::{LoadConfig, WarmUp};
use crate::error::{ConnectFailure, LoadError};
use crate::outcome::add_errors;
use crate::record::Ended;
use crate::schedule::Schedule;
use crate::shared::AbortWatch;
use crate::shared::{ConnectStatistics, Shared};
use crate::timeline::Timeline;
use millpond_io::monotonic_ns;
use millpond_measure::histogram::LatencyHistogram;
use millpond_measure::noise::{CpuTimes, MachineNoise};
use millpond_measure::record::{LoadErrors, LoadWarmUp};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

/// How often the supervising thread checks flags; bounds how late Ctrl-C is noticed.
const WATCH: Duration = Duration::from_millis(10);
/// Between two calls of the progress function.
const PROGRESS_NS: u64 = 250_000_000;
/// From setting the schedule to its start: long enough for every thread to see it.
const START_DELAY_NS: u64 = 10_000_000;

/// How the watch ended.
pub(super) struct Watched {
    pub(super) ended: Ended,
    pub(super) aborted: Option<String>,
    /// When all threads were done, or had the order to stop.
    pub(super) end_ns: u64,
    pub(super) steal_share: Option<f64>,
    pub(super) warm_up: Option<LoadWarmUp>,
    pub(super) started: Option<SystemTime>,
    pub(super) thread_rates: LatencyHistogram,
}

/// The supervising thread's view of a run.
pub(super) struct Watch<'run, 'scope> {
    shared: &'run Shared<'run>,
    workers: &'run [WorkerHandle<'scope>],
    observer: &'run dyn Observer,
    stop: &'run AtomicBool,
    has_script: bool,
}

impl<'run, 'scope> Watch<'run, 'scope> {
    pub(super) fn new(
        shared: &'run Shared<'run>,
        workers: &'run [WorkerHandle<'scope>],
        observer: &'run dyn Observer,
        stop: &'run AtomicBool,
    ) -> Self {
        Self {
            shared,
            workers,
            observer,
            stop,
            has_script: false,
        }
    }

    /// Threads with scripts may not return: the run is still over then.
    pub(super) fn over_scripts(self, has_script: bool) -> Self {
        Self { has_script, ..self }
    }

    /// Whether threads should have ended long ago.
    fn is_overdue(&self, schedule: &Schedule, now_ns: u64) -> bool {
        let patience_ns = self.shared.config.timeout_ns + PATIENCE.as_nanos() as u64;
        let end_ns = schedule.window_end_ns();
        self.has_script && end_ns.is_some_and(|end_ns| now_ns > end_ns.saturating_add(patience_ns))
    }

    /// `abort` may have seen the seconds of earlier sets of connections.
    pub(super) fn to_the_end(
        &self,
        timeline: &mut Timeline<'_>,
        abort: &mut AbortWatch<'_>,
    ) -> Result<Watched, LoadError> {
        self.wait_for_connections()?;
        let Some(schedule) = self.start() else {
            let end_ns = monotonic_ns();
            return Ok(Watched {
                ended: Ended::Interrupted,
                aborted: None,
                end_ns,
                steal_share: None,
                warm_up: None,
                started: None,
                thread_rates: LatencyHistogram::new(),
            });
        };
        let ahead_ns = schedule.start_ns().saturating_sub(monotonic_ns());
        let started = SystemTime::now() + Duration::from_nanos(ahead_ns);
        self.observer.started(started);
        let mut gone = GoneWatch::default();
        let mut reporter = Reporter::new(schedule.window_start_ns(), self.workers.len());
        let mut steal = StealWatch::default();
        let mut warm_up = WarmUpWatch::new(self.shared.config.warm_up);
        let mut ended = Ended::Complete;
        let mut edges = WindowEdges::default();
        while !self.all_done() && !self.is_overdue(schedule, monotonic_ns()) {
            std::thread::park_timeout(edges.wait(schedule, monotonic_ns()));
            edges.announce(schedule, monotonic_ns(), self.observer);
            let now_ns = monotonic_ns();
            steal.look(schedule, now_ns);
            if self.is_stopped() {
                ended = Ended::Interrupted;
                break;
            }
            if !self.shared.config.keeps_going && gone.is_gone(self.shared, now_ns) {
                ended = Ended::TargetGone;
                break;
            }
            if let Some(news) = reporter.due(self.shared, schedule, now_ns) {
                self.observer.progress(&news);
                if self.observer.has_seen_enough() {
                    ended = Ended::Aborted;
                    break;
                }
            }
            timeline.collect(schedule.start_ns(), &mut |second| {
                self.observer.second(second);
                abort.second(second);
            });
            // The window has to begin ahead of every thread: the observer's time has passed by now.
            warm_up.look(schedule, &timeline.steadiness, monotonic_ns());
            if abort.reason.is_some() {
                ended = Ended::Aborted;
                break;
            }
        }
        if ended == Ended::Complete {
            edges.close(self.observer);
            self.observer.connections_held();
        }
        let end_ns = monotonic_ns();
        Ok(Watched {
            ended,
            aborted: abort.reason.clone(),
            end_ns,
            steal_share: steal.share(),
            warm_up: warm_up.outcome(schedule, end_ns),
            started: Some(started),
            thread_rates: reporter.thread_rates,
        })
    }

    /// Until all connections are open that are to be, or their time is up; at least one must be.
    fn wait_for_connections(&self) -> Result<(), LoadError> {
        let (config, doors) = (self.shared.config, &self.shared.doors);
        let mut opening = Opening::new(config, monotonic_ns());
        while !self.is_stopped() && !self.all_done() {
            let now_ns = monotonic_ns();
            match opening.step(doors, now_ns) {
                Opened::All => break,
                Opened::NotAll => {
                    doors.is_short.store(true, Ordering::Release);
                    break;
                }
                Opened::None => {
                    let timed_out = ConnectFailure::TimedOut {
                        timeout_ns: opening.first_within_ns,
                    };
                    return Err(LoadError::Unreachable {
                        addresses: config.target.addresses.clone(),
                        cause: doors.last_failure().unwrap_or(timed_out),
                    });
                }
                Opened::NotYet => {}
            }
            if let Some(news) = opening.news(doors, now_ns) {
                self.observer.connecting(&news);
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Sets the schedule, unless the run was stopped before.
    fn start(&self) -> Option<&'run Schedule> {
        if self.is_stopped() {
            return None;
        }
        let Shared {
            config,
            pace,
            schedule,
            ..
        } = self.shared;
        Some(schedule.get_or_init(|| {
            let start_ns = monotonic_ns() + START_DELAY_NS;
            let stop = config.stop;
            let schedule = Schedule::new(
                pace.clone(),
                start_ns,
                config.warm_up.known_ns(),
                stop.duration_ns,
                stop.requests,
            )
            .behind(self.shared.origin);
            match config.warm_up {
                WarmUp::Lasting { .. } => schedule,
                WarmUp::UntilSteady { .. } => schedule.warming_up(),
            }
        }))
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Every thread has ended, or waits for the others to be done.
    fn all_done(&self) -> bool {
        let waiting = self.shared.gate.waiting();
        let ended = self.workers.iter().filter(|worker| worker.is_finished());
        ended.count() + waiting >= self.workers.len()
    }
}

/// How far the opening of connections is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Opened {
    NotYet,
    All,
    /// Some are missing, and it is not to be waited for them.
    NotAll,
    /// Not one came up.
    None,
}

/// The wait for all connections to be open.
struct Opening {
    due: usize,
    /// All of the generator's, with those that a ramp holds back.
    connections: usize,
    began_ns: u64,
    within_ns: u64,
    /// How long the first of them may take.
    first_within_ns: u64,
    /// Since when each has been open at least once.
    reached_ns: Option<u64>,
    next_news_ns: u64,
}

/// A target that closes connections again may never have all of them at once: so much longer is waited for that once
/// each has been open.
const TOGETHER_WITHIN_NS: u64 = 1_000_000_000;

/// As long as an address takes to time out, for each of them, and a moment between two.
fn first_within_ns(config: &LoadConfig) -> u64 {
    let addresses = config.target.addresses.len() as u64;
    config.timeout_ns.saturating_mul(2 * addresses - 1)
}

impl Opening {
    fn new(config: &LoadConfig, now_ns: u64) -> Self {
        Self {
            due: config.connections_due_at_start(),
            connections: config.connections,
            began_ns: now_ns,
            within_ns: config.connect_within_ns,
            first_within_ns: config.connect_within_ns.min(first_within_ns(config)),
            reached_ns: None,
            next_news_ns: now_ns + PROGRESS_NS,
        }
    }

    fn step(&mut self, doors: &ConnectStatistics, now_ns: u64) -> Opened {
        let waited_ns = now_ns.saturating_sub(self.began_ns);
        let has_settled = doors.settled.load(Ordering::Acquire) >= self.connections;
        if doors.open.load(Ordering::Relaxed) >= self.due {
            return Opened::All;
        }
        let reached = doors.reached.load(Ordering::Relaxed);
        if reached == 0 {
            let is_over = has_settled || waited_ns >= self.first_within_ns;
            return if is_over {
                Opened::None
            } else {
                Opened::NotYet
            };
        }
        if reached >= self.due {
            self.reached_ns = self.reached_ns.or(Some(now_ns));
        }
        let together_ns = self
            .reached_ns
            .map_or(0, |since_ns| now_ns.saturating_sub(since_ns));
        if waited_ns >= self.within_ns || together_ns >= TOGETHER_WITHIN_NS {
            Opened::NotAll
        } else {
            Opened::NotYet
        }
    }

    fn news(&mut self, doors: &ConnectStatistics, now_ns: u64) -> Option<Connecting> {
        if now_ns < self.next_news_ns {
            return None;
        }
        self.next_news_ns = now_ns + PROGRESS_NS;
        Some(Connecting {
            open: doors.open.load(Ordering::Relaxed) as u64,
            asked: self.due as u64,
            elapsed_ns: now_ns.saturating_sub(self.began_ns),
            last_failure: doors.last_failure(),
        })
    }
}

/// Notices that a target is gone: no connection is up and none has come up for a while. Both
/// conditions together distinguish it from a server that closes every connection after its
/// response.
#[derive(Default)]
struct GoneWatch {
    opened: u64,
    since_ns: Option<u64>,
}

impl GoneWatch {
    fn is_gone(&mut self, shared: &Shared<'_>, now_ns: u64) -> bool {
        let doors = &shared.doors;
        let opened = doors.opened.load(Ordering::Relaxed);
        if doors.open.load(Ordering::Relaxed) > 0 || opened != self.opened {
            self.opened = opened;
            self.since_ns = None;
            return false;
        }
        now_ns - *self.since_ns.get_or_insert(now_ns) >= shared.config.gone_after_ns
    }
}

/// Calls the observer at the window's beginning and end, once each.
#[derive(Default)]
struct WindowEdges {
    has_begun: bool,
    has_ended: bool,
}

impl WindowEdges {
    /// The time of the next edge; `None` if there is none, or if it is not known yet.
    fn next_ns(&self, schedule: &Schedule) -> Option<u64> {
        match (self.has_begun, self.has_ended) {
            (false, _) => Some(schedule.window_start_ns()).filter(|&start_ns| start_ns != u64::MAX),
            (true, false) => schedule.window_end_ns(),
            (true, true) => None,
        }
    }

    /// How long the supervising thread may sleep.
    fn wait(&self, schedule: &Schedule, now_ns: u64) -> Duration {
        let left_ns = self
            .next_ns(schedule)
            .map(|at_ns| at_ns.saturating_sub(now_ns));
        left_ns.map_or(WATCH, |left_ns| WATCH.min(Duration::from_nanos(left_ns)))
    }

    fn announce(&mut self, schedule: &Schedule, now_ns: u64, observer: &dyn Observer) {
        if self.next_ns(schedule).is_none_or(|at_ns| now_ns < at_ns) {
            return;
        }
        match self.has_begun {
            false => observer.window_began(),
            true => observer.window_ended(),
        }
        self.has_ended = self.has_begun;
        self.has_begun = true;
    }

    /// The threads are done. At a constant rate they are so with the last response, a moment before the window
    /// ends.
    fn close(&mut self, observer: &dyn Observer) {
        if !self.has_begun {
            observer.window_began();
        }
        if !self.has_ended {
            observer.window_ended();
        }
        (self.has_begun, self.has_ended) = (true, true);
    }
}

/// The hypervisor's share of the machine during the window.
#[derive(Default)]
struct StealWatch {
    first: Option<CpuTimes>,
    last: Option<CpuTimes>,
    next_ns: u64,
}

impl StealWatch {
    fn look(&mut self, schedule: &Schedule, now_ns: u64) {
        // The kernel's own resolution is 10 ms per CPU; reading it often would only cost.
        if schedule.is_in_window(now_ns) && now_ns >= self.next_ns {
            self.next_ns = now_ns + PROGRESS_NS;
            self.last = CpuTimes::read();
            self.first = self.first.or(self.last);
        }
    }

    fn share(&self) -> Option<f64> {
        let (first, last) = (self.first?, self.last?);
        (last.total_ns > first.total_ns)
            .then(|| MachineNoise::between(&first, &last, 0).steal_share)
    }
}

/// Shows the seconds that are complete.
pub(super) fn show_seconds(
    shared: &Shared<'_>,
    observer: &dyn Observer,
    timeline: &mut Timeline<'_>,
) {
    if let Some(schedule) = shared.schedule.get() {
        timeline.collect(schedule.start_ns(), &mut |second| observer.second(second));
    }
}

/// Turns boards into progress.
struct Reporter {
    last_ns: u64,
    last_completed: u64,
    completed_by: Vec<u64>,
    thread_rates: LatencyHistogram,
}

impl Reporter {
    fn new(window_start_ns: u64, threads: usize) -> Self {
        Self {
            last_ns: monotonic_ns().min(window_start_ns),
            last_completed: 0,
            completed_by: vec![0; threads],
            thread_rates: LatencyHistogram::new(),
        }
    }

    fn due(&mut self, shared: &Shared<'_>, schedule: &Schedule, now_ns: u64) -> Option<Progress> {
        let since_ns = now_ns.saturating_sub(self.last_ns);
        if since_ns < PROGRESS_NS {
            return None;
        }
        let (mut completed, mut errors) = (0, LoadErrors::default());
        let is_warm_up = now_ns < schedule.window_start_ns();
        for (board, before) in shared.boards.iter().zip(&mut self.completed_by) {
            let (part, failed) = board.read();
            completed += part;
            // As wrk counts: wrong responses too.
            let answers = part + failed.status + failed.validation;
            if !is_warm_up {
                let fresh = answers.saturating_sub(*before);
                let per_s = u128::from(fresh) * 1_000_000_000 / u128::from(since_ns);
                self.thread_rates.record(per_s as u64);
            }
            *before = answers;
            add_errors(&mut errors, &failed);
        }
        let fresh = completed.saturating_sub(self.last_completed);
        let rate_per_s = fresh as f64 * 1e9 / since_ns as f64;
        let by_time = schedule
            .window_end_ns()
            .map(|end_ns| end_ns.saturating_sub(now_ns));
        let by_count = schedule
            .requests_max()
            .filter(|_| rate_per_s > 0.0)
            .map(|requests_max| {
                let left = requests_max.saturating_sub(completed + errors.total());
                (left as f64 / rate_per_s * 1e9) as u64
            });
        self.last_ns = now_ns;
        self.last_completed = completed;
        Some(Progress {
            is_warm_up,
            completed,
            errors,
            rate_per_s,
            elapsed_ns: now_ns.saturating_sub(schedule.start_ns()),
            remaining_ns: by_time.into_iter().chain(by_count).min(),
        })
    }
}

#[cfg(test)]
#[path = "tests/watch.rs"]
mod tests;
