//! The data shared by the threads of a run: read-only plans, one schedule, and a few counters.
//!
//! `run` makes it, every `worker` reads it. A request touches only the schedule's index; boards are
//! written fifty times a second.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;

use millpond_measure::histogram::LatencyHistogram;
use millpond_measure::record::{LoadErrors, RunPart};
use millpond_measure::slo::{Slo, SloFacts};

use crate::config::{LoadConfig, Workload};
use crate::error::ConnectFailure;
use crate::outages::Outages;
use crate::outcome::{InFlight, Outcome};
use crate::schedule::{Origin, Pace, Schedule};
use crate::timeline::{Clocks, Exchange, Second};
use crate::validation::Validator;
use crate::workload::Requests;

/// Everything shared.
pub(crate) struct Shared<'run> {
    pub(crate) config: &'run LoadConfig,
    pub(crate) pace: Pace,
    /// The work of earlier sets of connections.
    pub(crate) origin: Origin,
    pub(crate) requests: Requests,
    /// By class.
    pub(crate) validators: Box<[Validator]>,
    /// Of every response nothing but its status matters.
    pub(crate) is_status_only: bool,
    /// Set once every connection has been tried; requests leave from its start on.
    pub(crate) schedule: OnceLock<Schedule>,
    /// Ends every thread at its next housekeeping.
    pub(crate) cut_off: AtomicBool,
    pub(crate) doors: ConnectStatistics,
    /// `None`: the run ends with its target.
    pub(crate) outages: Option<Outages>,
    /// Connections that each of several addresses took; empty where there is one.
    pub(crate) address_uses: Box<[AtomicU64]>,
    pub(crate) boards: Vec<ThreadStatistics>,
    pub(crate) exchange: Exchange,
    /// Only waited at if the configuration says so.
    pub(crate) gate: Gate,
}

impl<'run> Shared<'run> {
    pub(crate) fn new(
        config: &'run LoadConfig,
        pace: Pace,
        requests: Requests,
        threads: usize,
    ) -> Self {
        let validators = validators_of(config);
        Self {
            config,
            pace,
            origin: Origin::default(),
            requests,
            is_status_only: validators.iter().all(Validator::is_status_only),
            validators,
            schedule: OnceLock::new(),
            cut_off: AtomicBool::new(false),
            doors: ConnectStatistics::default(),
            outages: config.keeps_going.then(Outages::default),
            address_uses: match &config.target.addresses[..] {
                [_] => Box::default(),
                several => several.iter().map(|_| AtomicU64::new(0)).collect(),
            },
            boards: (0..threads).map(|_| ThreadStatistics::default()).collect(),
            exchange: Exchange::new(threads),
            gate: Gate::of_this_thread(),
        }
    }
}

impl Shared<'_> {
    /// Requests that can be on their way at once, of all threads.
    pub(crate) fn places(&self) -> u64 {
        (self.config.connections * self.config.pipeline) as u64
    }

    /// Classes that are counted apart; 0: there is only one.
    pub(crate) fn classes(&self) -> usize {
        let classes = self.validators.len();
        if classes > 1 { classes } else { 0 }
    }
}

/// The expected responses of each class.
fn validators_of(config: &LoadConfig) -> Box<[Validator]> {
    match &config.workload {
        Workload::Mix(mix) => {
            let classes = mix.classes.iter();
            classes
                .map(|class| Validator::new(class.validation))
                .collect()
        }
        _ => [Validator::new(config.validation)].into(),
    }
}

/// How the connections of all threads fare.
#[derive(Debug, Default)]
pub(crate) struct ConnectStatistics {
    /// Connections whose first attempt has ended.
    pub(crate) settled: AtomicUsize,
    /// Connections up now.
    pub(crate) open: AtomicUsize,
    /// Sessions that have had a connection, each counted once.
    pub(crate) reached: AtomicUsize,
    /// The wait for connections has ended and some are missing: they are abandoned.
    pub(crate) is_short: AtomicBool,
    /// Connections that were open when their threads read that sending begins.
    pub(crate) open_at_start: AtomicUsize,
    /// Connections that ever came up: distinguishes a dead target from one that closes after each response.
    pub(crate) opened: AtomicU64,
    last_failure: Mutex<Option<ConnectFailure>>,
}

impl ConnectStatistics {
    /// A connection did not come up.
    pub(crate) fn failed(&self, failure: ConnectFailure) {
        *self
            .last_failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(failure);
    }

    pub(crate) fn last_failure(&self) -> Option<ConnectFailure> {
        *self
            .last_failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// One thread's running totals, for progress. Alone on its cache lines, so that writing it does
/// not slow another thread.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct ThreadStatistics {
    completed: AtomicU64,
    errors: [AtomicU64; 6],
}

impl ThreadStatistics {
    pub(crate) fn publish(&self, outcome: &Outcome) {
        let LoadErrors {
            connect,
            read,
            write,
            timeout,
            status,
            validation,
        } = outcome.errors;
        let completed = outcome.requests_so_far();
        self.completed.store(completed, Ordering::Relaxed);
        for (slot, count) in self
            .errors
            .iter()
            .zip([connect, read, write, timeout, status, validation])
        {
            slot.store(count, Ordering::Relaxed);
        }
    }

    /// Right responses and failures so far.
    pub(crate) fn read(&self) -> (u64, LoadErrors) {
        let [connect, read, write, timeout, status, validation] =
            std::array::from_fn(|index| self.errors[index].load(Ordering::Relaxed));
        let errors = LoadErrors {
            connect,
            read,
            write,
            timeout,
            status,
            validation,
        };
        (self.completed.load(Ordering::Relaxed), errors)
    }
}

// Where finished threads wait, their connections open, until the supervising thread has examined the target.
//
// A server's memory for its connections (buffers, threads with arenas of their own) is gone a moment after they close,
// so its memory has to be read before.

/// Closed at first; opened once.
#[derive(Debug)]
pub(crate) struct Gate {
    state: Mutex<GateState>,
    opened: Condvar,
    supervisor: Thread,
}

#[derive(Debug, Default)]
struct GateState {
    waiting: usize,
    is_open: bool,
}

impl Gate {
    /// Of this thread, which is woken when another one waits.
    pub(crate) fn of_this_thread() -> Self {
        Self {
            state: Mutex::default(),
            opened: Condvar::new(),
            supervisor: std::thread::current(),
        }
    }

    /// Waits until it is open.
    pub(crate) fn wait(&self) {
        let mut state = self.state();
        state.waiting += 1;
        self.supervisor.unpark();
        while !state.is_open {
            let woken = self.opened.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= 1;
    }

    /// Threads that wait now.
    pub(crate) fn waiting(&self) -> usize {
        self.state().waiting
    }

    fn open(&self) {
        self.state().is_open = true;
        self.opened.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens the gate when it is dropped, in whatever way: no thread waits for one that has panicked.
#[derive(Debug)]
pub(crate) struct Opener<'a>(pub(crate) &'a Gate);

impl Drop for Opener<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

// How much of service time is this machine's own: from a response's arrival in the kernel, which
// stamps it, to the moment its thread was awake for it.
//
// ```text
// written ------ kernel service ------ stamp ------ wake delay ------ awake
//     \---------------------------- service -----------------------------/
// ```

/// Stamps of a thread with more responses: about a thousand a second.
const NS_PER_STAMP: u64 = 1_000_000;
/// One receive in so many until the rate is known: a fast thread must not take most of its sample in the first moment.
const EVERY_AT_FIRST: u32 = 16;

/// The two parts of service time, of the responses that were sampled.
#[derive(Debug, Default)]
pub(crate) struct WakeDelays {
    /// From the stamp to the thread being awake.
    pub(crate) delay: LatencyHistogram,
    /// From the write to the stamp.
    pub(crate) kernel_service: LatencyHistogram,
    /// Both together: service time of the same responses.
    pub(crate) service: LatencyHistogram,
}

impl WakeDelays {
    /// A right response to `request` was stamped by the kernel and taken in at `awake_ns`; its kernel
    /// service time in nanoseconds.
    pub(crate) fn record(&mut self, request: &InFlight, stamp_ns: u64, awake_ns: u64) -> u64 {
        let stamp_ns = stamp_ns.clamp(request.written_ns, awake_ns.max(request.written_ns));
        let kernel_service_ns = stamp_ns - request.written_ns;
        self.kernel_service.record(kernel_service_ns);
        self.delay.record(awake_ns.saturating_sub(stamp_ns));
        self.service
            .record(awake_ns.saturating_sub(request.written_ns));
        kernel_service_ns
    }

    /// Adds the results of another thread.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.delay.merge(&other.delay);
        self.kernel_service.merge(&other.kernel_service);
        self.service.merge(&other.service);
    }
}

/// Which receives are stamped: one in so many that a fast thread takes as many as a slow one, by how many there were
/// since sending began. A number of the last moments would follow the stalls: few receives come in a stall, and then
/// each of them would be taken.
#[derive(Debug, Default)]
pub(crate) struct Sampling {
    /// When sending begins, and the receives until then.
    began: Option<(u64, u64)>,
}

impl Sampling {
    /// One receive in so many from now on; there were `receives` until `now_ns`.
    pub(crate) fn every(&mut self, receives: u64, start_ns: u64, now_ns: u64) -> u32 {
        let (start_ns, before) = *self.began.get_or_insert((start_ns, receives));
        let stamps = now_ns.saturating_sub(start_ns) / NS_PER_STAMP;
        if stamps == 0 {
            return EVERY_AT_FIRST;
        }
        let every = receives.saturating_sub(before) / stamps;
        u32::try_from(every.max(1)).unwrap_or(u32::MAX)
    }
}

// When a run is to be ended: too many failures, or responses far too late.

const SECOND_NS: u64 = 1_000_000_000;

/// Ends a run early.
#[derive(Clone, Debug, PartialEq)]
pub struct AbortRule {
    /// Any of these coming true ends it: `errors > 5 %`, `p99 > 1 s`.
    pub when: Slo,
    /// How many seconds are judged together; a shorter run is not judged.
    pub seconds: usize,
}

/// One second as far as conditions ask.
struct Kept {
    clocks: Clocks,
    /// Requests that timed out, which is less than they would have taken.
    timeouts: u64,
    failed: u64,
    requests: u64,
    duration_ns: u64,
}

/// The last seconds of a run.
pub(crate) struct AbortWatch<'run> {
    rule: Option<&'run AbortRule>,
    timeout_ns: u64,
    kept: VecDeque<Kept>,
    /// Which condition came true, and what was measured.
    pub(crate) reason: Option<String>,
}

impl<'run> AbortWatch<'run> {
    pub(crate) fn new(rule: Option<&'run AbortRule>, timeout_ns: u64) -> Self {
        Self {
            rule,
            timeout_ns,
            kept: VecDeque::new(),
            reason: None,
        }
    }

    /// A second has ended.
    pub(crate) fn second(&mut self, second: &Second<'_>) {
        let Some(rule) = self.rule else { return };
        let figures = second.figures;
        if figures.part == RunPart::Drain || self.reason.is_some() {
            return;
        }
        self.kept.push_back(Kept {
            clocks: second.clocks.clone(),
            timeouts: figures.errors.timeout,
            failed: figures.errors.total() + figures.shed,
            requests: figures.requests,
            duration_ns: figures.duration_ns,
        });
        // Where a part of the run or a set of connections ends, seconds are shorter.
        let wanted_ns = rule.seconds as u64 * SECOND_NS;
        let mut span_ns: u64 = self.kept.iter().map(|kept| kept.duration_ns).sum();
        while let Some(oldest) = self.kept.front()
            && span_ns - oldest.duration_ns >= wanted_ns
        {
            span_ns -= oldest.duration_ns;
            self.kept.pop_front();
        }
        if span_ns >= wanted_ns {
            self.reason = self.judge(&rule.when, span_ns);
        }
    }

    fn judge(&self, when: &Slo, span_ns: u64) -> Option<String> {
        let mut clocks = Clocks::default();
        let mut unanswered = LatencyHistogram::new();
        let (mut failed, mut requests) = (0, 0);
        for kept in &self.kept {
            clocks.merge(&kept.clocks);
            unanswered.record_many(self.timeout_ns, kept.timeouts);
            failed += kept.failed;
            requests += kept.requests;
        }
        let outcomes = when.judge(&SloFacts {
            response: &clocks.response,
            service: &clocks.service,
            slip: &clocks.slip,
            unanswered: &unanswered,
            failed,
            requests_per_s: requests as f64 * 1e9 / span_ns.max(1) as f64,
        });
        let true_one = outcomes.into_iter().find(|outcome| outcome.is_met)?;
        Some(format!(
            "{}: {} over {} s",
            true_one.objective,
            true_one.measured,
            span_ns.div_ceil(SECOND_NS)
        ))
    }
}

#[cfg(test)]
#[path = "tests/wake.rs"]
mod wake_tests;

#[cfg(test)]
#[path = "tests/abort.rs"]
mod abort_tests;
