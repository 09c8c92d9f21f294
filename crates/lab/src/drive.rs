//! The generator as the lab uses it: four kinds of phase, each checked response by response. Failures are counted
//! ([`crate::outcome::Answers`]); a phase in which too much fails, or no response comes any more, ends early.
//!
//! The only file that configures lengths, rates and threads of `millpond_load`.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use millpond_io::DriverChoice;
use millpond_load::{
    LoadConfig, LoadError, LoadRecord, Mode, Observer, Progress, Script, ScriptConfig, Stop,
    TargetThreads, WarmUp, Workload,
};
use millpond_measure::record::Operation;

use crate::endpoint::Endpoint;
use crate::error::RunError;
use crate::outcome::{Answers, is_above};
use crate::placement::Placement;
use crate::rounds::nanoseconds;
use crate::target::Target;

/// A request without a response this long has failed; generous, because a slow response is a result
/// and only silence is a failure.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Once it is known how fast the target is, so long is enough: what hangs must not take the time of the others.
pub(crate) const SILENCE_MIN_DEFAULT: Duration = Duration::from_secs(10);
/// How many times as long as the mean response of the baseline a response may take.
const SLOWER_MAX: f64 = 50.0;
/// So much later than the timeout everything that timed out is counted as such.
const SWEEP: Duration = Duration::from_millis(500);
/// The share of requests that may fail by default: a single 500 among thousands ends nothing.
pub const ERRORS_ALLOWED_DEFAULT: f64 = 0.001;
/// Programs with a compiler inside spend their first seconds there compiling, a hundred times slower.
const EMULATED_ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The seed of keys and values: the same for all, so that all do the same work.
const WORKLOAD_SEED: u64 = 0x6d69_6c6c;

/// How much a phase does, and how fast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Load {
    /// Exactly this many requests, as fast as responses come: equal work.
    Work {
        /// How many.
        requests: u64,
    },
    /// The same of a target that an emulator executes, whose responses may take their time.
    EmulatedWork {
        /// How many.
        requests: u64,
    },
    /// As fast as responses come, for a time: to measure the capacity.
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
    /// As fast as responses come.
    Closed,
    /// The same for as long as a block is.
    Block,
    /// On a fixed grid.
    Rate {
        /// Requests per second.
        per_s: f64,
    },
}

/// The requests of a slice, and their rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SliceKind {
    pub(crate) operation: Operation,
    pub(crate) pace: Pace,
}

/// The results of a phase.
#[derive(Clone, Debug)]
pub(crate) struct PhaseLoad {
    /// Right responses.
    pub(crate) requests: u64,
    pub(crate) requests_per_s: f64,
    /// The outcomes of all requests.
    pub(crate) answers: Answers,
}

/// The results of a slice.
#[derive(Debug)]
pub(crate) struct SliceRecord {
    pub(crate) record: LoadRecord,
    pub(crate) answers: Answers,
}

impl AsRef<Answers> for PhaseLoad {
    fn as_ref(&self) -> &Answers {
        &self.answers
    }
}

impl AsRef<Answers> for SliceRecord {
    fn as_ref(&self) -> &Answers {
        &self.answers
    }
}

impl From<SliceRecord> for PhaseLoad {
    fn from(of: SliceRecord) -> Self {
        Self {
            requests: of.record.requests,
            requests_per_s: of.record.requests_per_s,
            answers: of.answers,
        }
    }
}

impl PhaseLoad {
    /// Work that nothing came of, not even a failure, is an error.
    fn of_work(self) -> Result<Self, RunError> {
        match self.answers.total() {
            0 => Err(RunError::Load("not one response came".to_owned())),
            _ => Ok(self),
        }
    }
}

/// Everything that stays the same over a comparison.
#[derive(Clone, Debug)]
pub(crate) struct Driver {
    pub(crate) target: Target,
    pub(crate) connections: usize,
    pub(crate) value_bytes: usize,
    /// The requests that replace those of the target.
    pub(crate) path: Option<String>,
    pub(crate) placement: Placement,
    /// The share of requests that may fail.
    pub(crate) errors_allowed: f64,
    /// A request without a response this long has failed.
    pub(crate) answer_timeout: Duration,
    /// That is never less than this.
    pub(crate) silence_min: Duration,
}

/// The settings of a slice.
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
    /// Takes less time for a dead target, now that the baseline is known to give so many responses per second.
    pub(crate) fn adjust_timeout(&mut self, slowest_per_s: f64) {
        let mean_s = self.connections as f64 / slowest_per_s.max(f64::MIN_POSITIVE);
        let enough_s = (mean_s * SLOWER_MAX).min(ANSWER_TIMEOUT.as_secs_f64());
        self.answer_timeout = Duration::from_secs_f64(enough_s).max(self.silence_min);
    }

    /// Runs one phase. Whether too many of its requests failed is the session's to judge
    /// ([`crate::started_candidate::StartedCandidate::account`]).
    pub(crate) fn run(
        &self,
        endpoint: &Endpoint,
        operation: Operation,
        keys: u64,
        load: Load,
        stop: &AtomicBool,
    ) -> Result<PhaseLoad, RunError> {
        let config = self.config(endpoint, operation, keys, load);
        let phase = self.watched(endpoint, &config, &Unobserved, stop)?;
        match load {
            Load::Burst { .. } => Ok(phase.into()),
            _ => PhaseLoad::from(phase).of_work(),
        }
    }

    /// Sends `requests` as fast as the responses come; `observer` sees the target with all its connections open, after
    /// the last response.
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
        let mut config = self.config(endpoint, operation, keys, load);
        config.holds_connections = true;
        let phase = self.watched(endpoint, &config, observer, stop)?;
        PhaseLoad::from(phase).of_work()
    }

    /// Loads the target for `settle` and then for `window`, on connections of its own; only what happens in the window
    /// counts, and `observer` is called at its ends.
    pub(crate) fn slice(
        &self,
        endpoint: &Endpoint,
        slice: SliceLoad,
        target_threads: Option<TargetThreads>,
        observer: &dyn Observer,
        stop: &AtomicBool,
    ) -> Result<SliceRecord, RunError> {
        let (operation, duration) = (slice.kind.operation, slice.window);
        let load = match slice.kind.pace {
            Pace::Rate { per_s } => Load::Rate { per_s, duration },
            Pace::Closed | Pace::Block => Load::Burst { duration },
        };
        let mut config = self.config(endpoint, operation, slice.keys, load);
        config.warm_up = WarmUp::Lasting {
            duration_ns: nanoseconds(slice.settle),
        };
        config.target_threads = target_threads.map(Arc::new);
        self.watched(endpoint, &config, observer, stop)
    }

    /// Runs `config` to its end, or until it cannot become a result any more.
    fn watched(
        &self,
        endpoint: &Endpoint,
        config: &LoadConfig,
        observer: &dyn Observer,
        stop: &AtomicBool,
    ) -> Result<SliceRecord, RunError> {
        let watch = Watch::new(observer, config, self.errors_allowed);
        let script = self.target.script(endpoint);
        let record = endpoint.within(|| match &script {
            None => millpond_load::run_observed(config, &watch, stop).map_err(Into::into),
            Some(script) => run_scripted(config, script, &watch, stop),
        })?;
        if stop.load(Ordering::Relaxed) {
            return Err(RunError::Interrupted);
        }
        let record = record.map_err(|error| match error {
            Failure::Load(LoadError::Unreachable { cause, .. }) => RunError::Unreachable {
                cause,
                connections: self.connections,
            },
            Failure::Load(error) => RunError::Load(error.to_string()),
            Failure::Script(sentence) => RunError::Load(sentence),
        })?;
        let silence = watch.silence(&record);
        let answers = Answers::of(&record, silence, &config.validation.statuses);
        Ok(SliceRecord { record, answers })
    }

    /// The requests, at the generator's own pace.
    fn requests(&self, endpoint: &Endpoint, operation: Operation, keys: u64) -> LoadConfig {
        if let Target::Command { requests, .. } = &self.target {
            return requests.config(endpoint);
        }
        let (value_bytes, seed) = (self.value_bytes, WORKLOAD_SEED);
        let target = millpond_load::Target {
            addresses: Arc::clone(&endpoint.addresses),
            host: endpoint.first(),
            path: "/v0/entity".to_owned(),
        };
        let workload = match operation {
            Operation::Put => Workload::EntityPut {
                keys,
                value_bytes,
                seed,
            },
            Operation::Get | Operation::Request => Workload::EntityGet {
                keys,
                value_bytes,
                seed,
            },
        };
        LoadConfig::new(target, workload)
    }

    fn config(
        &self,
        endpoint: &Endpoint,
        operation: Operation,
        keys: u64,
        load: Load,
    ) -> LoadConfig {
        let mut config = self.requests(endpoint, operation, keys);
        if let Some(path) = &self.path {
            config.target.path.clone_from(path);
        }
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
            _ => self.answer_timeout,
        });
        let generator = &self.placement.generator;
        config.cpus = (!generator.is_empty()).then(|| generator.clone());
        config
    }
}

/// Why a phase has no result.
enum Failure {
    Load(LoadError),
    /// The script failed while it ran, as a sentence.
    Script(String),
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        Self::Load(error)
    }
}

/// A phase whose requests `script` makes, which begins anew: each phase has fresh Lua states. An error of the script is
/// no response of the server, and fails the phase.
fn run_scripted(
    config: &LoadConfig,
    script: &ScriptConfig,
    observer: &dyn Observer,
    stop: &AtomicBool,
) -> Result<LoadRecord, Failure> {
    let mut loaded = Script::load(script, config)?;
    let record = millpond_load::run_script(config, &mut loaded, observer, stop)?;
    let errors = loaded.errors();
    match &errors.first {
        None => Ok(record),
        Some(first) => Err(Failure::Script(format!(
            "the script {} failed {} times, first {first}",
            script.file.display(),
            errors.count
        ))),
    }
}

struct Unobserved;

impl Observer for Unobserved {}

/// Passes the generator's progress on, and ends a phase that cannot become a result: too much of it fails, or no
/// response has come within the time that one may take.
struct Watch<'a> {
    observer: &'a dyn Observer,
    errors_allowed: f64,
    connections: u64,
    /// How long it may be until the next response.
    patience: Duration,
    /// Responses so far, right or wrong, and when the last one came.
    seen: Cell<(u64, Instant)>,
    has_seen_enough: Cell<bool>,
}

impl<'a> Watch<'a> {
    fn new(observer: &'a dyn Observer, config: &LoadConfig, errors_allowed: f64) -> Self {
        let timeout = Duration::from_nanos(config.timeout_ns);
        let between_requests = match config.mode {
            Mode::ConstantRate { per_s } => Duration::from_secs_f64((1.0 / per_s).min(3_600.0)),
            _ => Duration::ZERO,
        };
        Self {
            observer,
            errors_allowed,
            connections: config.connections as u64,
            patience: timeout + between_requests,
            seen: Cell::new((0, Instant::now())),
            has_seen_enough: Cell::new(false),
        }
    }

    /// How long the target has not responded, if every connection waits without a response. If only some of them time
    /// out, it serves fewer connections than there are, and does not hang.
    fn silence(&self, record: &LoadRecord) -> Option<Duration> {
        let (answers, at) = self.seen.get();
        let in_all = record.requests + record.errors.status + record.errors.validation;
        // A response since the last progress ended the silence before it.
        let silence = at.elapsed();
        let is_silent = record.errors.timeout >= self.connections
            && silence * 2 >= self.patience
            && answers == in_all;
        is_silent.then_some(silence)
    }
}

impl Observer for Watch<'_> {
    fn started(&self, at: SystemTime) {
        self.observer.started(at);
    }

    fn window_began(&self) {
        self.observer.window_began();
    }

    fn window_ended(&self) {
        self.observer.window_ended();
    }

    fn connections_held(&self) {
        self.observer.connections_held();
    }

    fn progress(&self, now: &Progress) {
        self.observer.progress(now);
        let answers = now.completed + now.errors.status + now.errors.validation;
        let (before, since) = self.seen.get();
        if answers != before {
            self.seen.set((answers, Instant::now()));
        }
        let is_silent = answers == before && since.elapsed() > self.patience + SWEEP;
        let failed = now.errors.total();
        let fails_too_often = is_above(failed, failed + now.completed, self.errors_allowed);
        self.has_seen_enough.set(is_silent || fails_too_often);
    }

    fn has_seen_enough(&self) -> bool {
        self.has_seen_enough.get()
    }
}

#[cfg(test)]
#[path = "tests/drive.rs"]
mod tests;
