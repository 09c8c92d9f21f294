//! The generator as the lab uses it: four kinds of phase, each checked answer by answer.
//!
//! The only file that configures `millpond_load`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millpond_http::Method;
use millpond_io::{Address, DriverChoice};
use millpond_load::{
    LoadConfig, LoadRecord, Mode, Observer, Stop, TargetThreads, WarmUp, Workload,
};
use millpond_measure::record::Operation;

use crate::endpoint::Endpoint;
use crate::error::RunError;
use crate::placement::Placement;
use crate::rounds::nanoseconds;
use crate::target::Target;

/// A request without an answer this long has failed; generous, because a slow answer is a result
/// and only silence is a failure.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Programs with a compiler inside spend their first seconds there compiling, a hundred times slower.
const EMULATED_ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The seed of keys and values: the same for all, so that all do the same work.
const WORKLOAD_SEED: u64 = 0x6d69_6c6c;

/// How much a phase does, and how fast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Load {
    /// Exactly this many requests, as fast as answers come: equal work.
    Work {
        /// How many.
        requests: u64,
    },
    /// The same of a target that an emulator executes, whose answers may take their time.
    EmulatedWork {
        /// How many.
        requests: u64,
    },
    /// As fast as answers come, for a time: to learn the capacity.
    Burst {
        /// How long.
        duration: Duration,
    },
    /// On a fixed grid: latency at the same rate for all.
    Rate {
        /// Requests per second.
        per_s: f64,
        /// How long.
        duration: Duration,
    },
}

/// How fast a slice asks, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// As fast as answers come.
    Closed,
    /// The same for as long as a block is.
    Block,
    /// On a fixed grid.
    Rate {
        /// Requests per second.
        per_s: f64,
    },
}

/// What a slice asks for, and how fast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SliceKind {
    pub(crate) operation: Operation,
    pub(crate) pace: Pace,
}

/// What a phase measured.
#[derive(Clone, Debug)]
pub(crate) struct PhaseLoad {
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) requests_per_s: f64,
}

impl PhaseLoad {
    fn of(record: &LoadRecord) -> Self {
        Self {
            requests: record.requests,
            errors: record.errors.total(),
            requests_per_s: record.requests_per_s,
        }
    }

    /// Work that nothing came of is an error.
    fn of_work(record: &LoadRecord) -> Result<Self, RunError> {
        match record.requests {
            0 => Err(RunError::Load("not one answer came".to_owned())),
            _ => Ok(Self::of(record)),
        }
    }
}

/// Everything that stays the same over a comparison.
#[derive(Clone, Debug)]
pub(crate) struct Driver {
    pub(crate) target: Target,
    pub(crate) connections: usize,
    pub(crate) value_bytes: usize,
    pub(crate) placement: Placement,
}

/// What a slice is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SliceLoad {
    pub(crate) kind: SliceKind,
    /// Of the entity server: 0 to this.
    pub(crate) keys: u64,
    /// Before it counts.
    pub(crate) settle: Duration,
    pub(crate) window: Duration,
}

impl Driver {
    /// Runs one phase. Wrong answers are an error: what answers wrongly must not be timed.
    pub(crate) fn run(
        &self,
        endpoint: &Endpoint,
        operation: Operation,
        keys: u64,
        load: Load,
        stop: &AtomicBool,
    ) -> Result<PhaseLoad, RunError> {
        let config = self.config(endpoint.address, operation, keys, load);
        let record = endpoint.within(|| all_right(&config, operation, &Unobserved, stop))??;
        match load {
            Load::Burst { .. } => Ok(PhaseLoad::of(&record)),
            _ => PhaseLoad::of_work(&record),
        }
    }

    /// Answers `requests` as fast as it can; `observer` sees it with all its connections open, after the last answer.
    pub(crate) fn work(
        &self,
        endpoint: &Endpoint,
        operation: Operation,
        keys: u64,
        requests: u64,
        observer: &dyn Observer,
        stop: &AtomicBool,
    ) -> Result<PhaseLoad, RunError> {
        let load = Load::Work { requests };
        let mut config = self.config(endpoint.address, operation, keys, load);
        config.holds_connections = true;
        let record = endpoint.within(|| all_right(&config, operation, observer, stop))??;
        PhaseLoad::of_work(&record)
    }

    /// Loads the target for `settle` and then for `window`, on connections of its own; only what happens in
    /// the window counts, and `observer` is told of its ends.
    pub(crate) fn slice(
        &self,
        endpoint: &Endpoint,
        slice: SliceLoad,
        target_threads: Option<TargetThreads>,
        observer: &dyn Observer,
        stop: &AtomicBool,
    ) -> Result<LoadRecord, RunError> {
        let (operation, duration) = (slice.kind.operation, slice.window);
        let load = match slice.kind.pace {
            Pace::Rate { per_s } => Load::Rate { per_s, duration },
            Pace::Closed | Pace::Block => Load::Burst { duration },
        };
        let mut config = self.config(endpoint.address, operation, slice.keys, load);
        config.warm_up = WarmUp::Lasting {
            duration_ns: nanoseconds(slice.settle),
        };
        config.target_threads = target_threads.map(Arc::new);
        endpoint.within(|| all_right(&config, operation, observer, stop))?
    }

    fn config(
        &self,
        address: SocketAddr,
        operation: Operation,
        keys: u64,
        load: Load,
    ) -> LoadConfig {
        let value_bytes = self.value_bytes;
        let host = self.target.host(address);
        let path = match &self.target {
            Target::Entity { .. } => "/v0/entity".to_owned(),
            Target::Command { url, .. } => url.path.clone(),
        };
        let workload = match operation {
            Operation::Put => Workload::EntityPut {
                keys,
                value_bytes,
                seed: WORKLOAD_SEED,
            },
            Operation::Get => Workload::EntityGet {
                keys,
                value_bytes,
                seed: WORKLOAD_SEED,
            },
            Operation::Request => Workload::Static {
                method: Method::Get,
                fields: Vec::new(),
                body: Vec::new(),
            },
        };
        let target = millpond_load::Target {
            address: Address::Inet(address),
            host,
            path,
        };
        let mut config = LoadConfig::new(target, workload);
        (config.mode, config.stop) = match load {
            Load::Work { requests } | Load::EmulatedWork { requests } => {
                (Mode::ClosedLoop, Stop::after_requests(requests))
            }
            Load::Burst { duration } => (
                Mode::ClosedLoop,
                Stop::after_ns(nanoseconds(duration).max(1)),
            ),
            Load::Rate { per_s, duration } => (
                Mode::ConstantRate { per_s },
                Stop::after_ns(nanoseconds(duration).max(1)),
            ),
        };
        // In the closed loop nothing depends on the moment at which a request leaves, and the generator must
        // not be the limit.
        config.driver = match config.mode {
            Mode::ClosedLoop => DriverChoice::Auto,
            _ => DriverChoice::Epoll,
        };
        // On a CPU of both, a stall of the generator is the server at work.
        let is_paced = matches!(load, Load::Rate { .. });
        config.watch_stalls = is_paced && self.placement.is_apart();
        config.raises_priority = self.placement.is_raised;
        config.connections = self.connections;
        config.threads = self.placement.generator_threads().min(self.connections);
        config.timeout_ns = nanoseconds(match load {
            Load::EmulatedWork { .. } => EMULATED_ANSWER_TIMEOUT,
            _ => ANSWER_TIMEOUT,
        });
        let generator = &self.placement.generator;
        config.cpus = (!generator.is_empty()).then(|| generator.clone());
        config
    }
}

struct Unobserved;

impl Observer for Unobserved {}

/// Runs `config`; one wrong answer makes it an error.
fn all_right(
    config: &LoadConfig,
    operation: Operation,
    observer: &dyn Observer,
    stop: &AtomicBool,
) -> Result<LoadRecord, RunError> {
    let record = millpond_load::run_observed(config, observer, stop)
        .map_err(|error| RunError::Load(error.to_string()))?;
    if stop.load(Ordering::Relaxed) {
        return Err(RunError::Interrupted);
    }
    let failed = record.errors.total();
    if failed > 0 {
        return Err(RunError::WrongAnswers {
            operation: operation.label(),
            failed,
            requests: record.requests + failed,
            detail: failures(&record),
        });
    }
    Ok(record)
}

fn failures(record: &LoadRecord) -> String {
    let errors = &record.errors;
    let kinds = [
        ("connect", errors.connect),
        ("read", errors.read),
        ("write", errors.write),
        ("timeout", errors.timeout),
        ("status", errors.status),
        ("content", errors.validation),
    ];
    let parts: Vec<String> = kinds
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(kind, count)| format!("{kind} {count}"))
        .collect();
    parts.join(", ")
}
