//! What the threads of a run share: read-only plans, one schedule, and a few counters.
//!
//! On the path: `run` makes it, every `worker` reads it. Absent on purpose: locks on the way of a
//! request. A request touches only the schedule's index; boards are written fifty times a second.
use crate::config::{LoadConfig, Workload};
use crate::error::ConnectFailure;
use crate::gate::Gate;
use crate::outages::Outages;
use crate::outcome::Outcome;
use crate::schedule::{Origin, Pace, Schedule};
use crate::timeline::Exchange;
use crate::validation::Validator;
use crate::workload::Requests;
use millpond_measure::record::LoadErrors;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Everything shared.
pub(crate) struct Shared<'run> {
    pub(crate) config: &'run LoadConfig,
    pub(crate) pace: Pace,
    /// What earlier sets of connections have done.
    pub(crate) origin: Origin,
    pub(crate) requests: Requests,
    /// By class.
    pub(crate) validators: Box<[Validator]>,
    /// Of every answer nothing but its status matters.
    pub(crate) is_status_only: bool,
    /// Set once every connection has been tried; requests leave from its start on.
    pub(crate) schedule: OnceLock<Schedule>,
    /// Ends every thread at its next housekeeping.
    pub(crate) cut_off: AtomicBool,
    pub(crate) doors: Doors,
    /// `None`: the run ends with its target.
    pub(crate) outages: Option<Outages>,
    /// Connections that each of several addresses took; empty where there is one.
    pub(crate) address_uses: Box<[AtomicU64]>,
    pub(crate) boards: Vec<Board>,
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
            doors: Doors::default(),
            outages: config.keeps_going.then(Outages::default),
            address_uses: match &config.target.addresses[..] {
                [_] => Box::default(),
                several => several.iter().map(|_| AtomicU64::new(0)).collect(),
            },
            boards: (0..threads).map(|_| Board::default()).collect(),
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

/// What each class's answers are held to.
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
pub(crate) struct Doors {
    /// Connections whose first attempt has ended.
    pub(crate) settled: AtomicUsize,
    /// Connections up now.
    pub(crate) open: AtomicUsize,
    /// Sessions that have had a connection, each counted once.
    pub(crate) reached: AtomicUsize,
    /// The wait for connections is over and some are missing: they are given up.
    pub(crate) is_short: AtomicBool,
    /// Connections that were open when their threads learned that sending begins.
    pub(crate) open_at_start: AtomicUsize,
    /// Connections that ever came up: tells a dead target from one that closes after each answer.
    pub(crate) opened: AtomicU64,
    last_failure: Mutex<Option<ConnectFailure>>,
}

impl Doors {
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
pub(crate) struct Board {
    completed: AtomicU64,
    errors: [AtomicU64; 6],
}

impl Board {
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

    /// Right answers and failures so far.
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
