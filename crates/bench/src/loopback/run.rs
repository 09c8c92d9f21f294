//! The benchmark from the parent's side: every combination of allocator and pools, run after run.
//!
//! The command line calls [`run`] and shows its events. Each repetition runs every combination once
//! in a fresh process, in shuffled order, so that what disturbs the machine for a while disturbs
//! them all, and pairs of one repetition can be compared. Two pairs would share the processors.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use fastrand::Rng;
use millpond_io::{DriverChoice, DriverKind};
use millpond_lab::allocator;
use millpond_lab::allocator::{Allocator, GLIBC};
use millpond_measure::environment::Environment;
use millpond_measure::record::{LoadSecond, PoolSetting};
use serde::{Deserialize, Serialize};

use crate::child;
use crate::error::{BenchError, RunError};
use crate::memory::Watch;
use crate::subject::{Launch, Preload, Subject};

use super::pair::{PairSample, PairSpec};
use super::record::{CandidateRecord, LoopbackRecord};
use super::{pair, report};

/// The settings of the measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct LoopbackConfig {
    /// The program that has `bench-child`: this one, but in tests.
    pub launcher: PathBuf,
    /// Connections of all threads together.
    pub connections: u64,
    /// Requests on each of them, on average: the next request goes to any free one.
    pub iterations: u64,
    /// Threads of the client, and as many of the server.
    pub threads: u64,
    /// Length of a request's body.
    pub request_bytes: u64,
    /// Length of a response's body.
    pub response_bytes: u64,
    /// With memory pools, without, or both.
    pub pools: Vec<PoolSetting>,
    /// Which allocators; `None`: the C library's.
    pub allocators: Option<Vec<String>>,
    /// Kernel interface of the server.
    pub server_driver: DriverChoice,
    /// Kernel interface of the client.
    pub client_driver: DriverChoice,
    /// How often each combination runs.
    pub repetitions: u32,
    /// The order follows from it.
    pub seed: u64,
    /// The command line, for the record.
    pub command: Vec<String>,
}

impl LoopbackConfig {
    /// The earlier workload, one thread on each side.
    #[must_use]
    pub fn new(launcher: PathBuf) -> Self {
        Self {
            launcher,
            connections: 500,
            iterations: 5_000,
            threads: 1,
            request_bytes: 1_024,
            response_bytes: 740,
            pools: vec![PoolSetting::Off, PoolSetting::On],
            allocators: None,
            server_driver: DriverChoice::Auto,
            client_driver: DriverChoice::Epoll,
            repetitions: 3,
            seed: fastrand::u64(..),
            command: Vec::new(),
        }
    }
}

/// How far it is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum LoopbackEvent {
    /// A line for the user.
    Note(String),
    /// A run begins.
    Run {
        /// The candidate.
        candidate: String,
        /// Which of all runs, from 1.
        run: usize,
        /// All runs.
        runs: usize,
    },
    /// A second of it has ended.
    Second(Box<LoadSecond>),
    /// Heap calls are being counted.
    HeapCalls {
        /// With which setting.
        pools: PoolSetting,
    },
}

/// The record and how it ended.
#[derive(Clone, Debug)]
pub struct LoopbackOutcome {
    /// All that was measured.
    pub record: LoopbackRecord,
    /// Sentences about runs that failed.
    pub failures: Vec<String>,
    /// Whether it was ended early.
    pub interrupted: bool,
}

/// An allocator, with pools or without.
struct Candidate {
    name: String,
    allocator: Allocator,
    pools: PoolSetting,
    has_failed: bool,
    /// By repetition.
    samples: Vec<Option<PairSample>>,
}

/// Measures. Ends early, with what there is, once `stop` is raised.
pub fn run(
    config: &LoopbackConfig,
    on_event: &mut dyn FnMut(&LoopbackEvent),
    stop: &AtomicBool,
) -> Result<LoopbackOutcome, BenchError> {
    let mut session = LoopbackSession::new(config, on_event, stop)?;
    let environment = Environment::capture();
    let watch = Watch::start();
    for repetition in 0..config.repetitions {
        session.repeat(repetition as usize);
    }
    let noise = watch.noise();
    let heap_calls = session.count_heap_calls()?;
    let interrupted = session.is_stopped();
    let LoopbackSession {
        candidates,
        drivers,
        failures,
        ..
    } = session;
    let candidates = measured(candidates, &heap_calls);
    if candidates.is_empty() {
        return Err(match failures.into_iter().next() {
            Some(first) => BenchError::NothingMeasured(first),
            None => BenchError::InterruptedEarly,
        });
    }
    let record = LoopbackRecord::new(config, drivers, environment, noise, candidates, interrupted);
    Ok(LoopbackOutcome {
        record,
        failures,
        interrupted,
    })
}

/// The runs so far, and what is needed for the next.
struct LoopbackSession<'a> {
    config: &'a LoopbackConfig,
    candidates: Vec<Candidate>,
    /// Of the server, and of the client.
    drivers: [DriverKind; 2],
    on_event: &'a mut dyn FnMut(&LoopbackEvent),
    stop: &'a AtomicBool,
    rng: Rng,
    run: usize,
    failures: Vec<String>,
}

impl<'a> LoopbackSession<'a> {
    fn new(
        config: &'a LoopbackConfig,
        on_event: &'a mut dyn FnMut(&LoopbackEvent),
        stop: &'a AtomicBool,
    ) -> Result<Self, BenchError> {
        let choose = |choice: DriverChoice| choice.choose().map(|chosen| chosen.kind);
        Ok(Self {
            candidates: candidates(config)?,
            drivers: [choose(config.server_driver)?, choose(config.client_driver)?],
            config,
            on_event,
            stop,
            rng: Rng::with_seed(config.seed),
            run: 0,
            failures: Vec::new(),
        })
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Every candidate once.
    fn repeat(&mut self, repetition: usize) {
        let mut order: Vec<usize> = (0..self.candidates.len()).collect();
        self.rng.shuffle(&mut order);
        for index in order {
            if self.is_stopped() {
                return;
            }
            self.run += 1;
            let candidate = &self.candidates[index];
            if candidate.has_failed {
                continue;
            }
            (self.on_event)(&LoopbackEvent::Run {
                candidate: candidate.name.clone(),
                run: self.run,
                runs: self.candidates.len() * self.config.repetitions as usize,
            });
            match self.run_once(index) {
                Ok(sample) => {
                    let samples = &mut self.candidates[index].samples;
                    samples.resize(repetition, None);
                    samples.push(Some(sample));
                }
                Err(RunError::Interrupted) => {}
                Err(error) => self.note_failure(index, &error),
            }
        }
    }

    fn run_once(&mut self, index: usize) -> Result<PairSample, RunError> {
        let candidate = &self.candidates[index];
        let library = candidate.allocator.library.clone();
        let spec = ChildSpec {
            pair: self.pair(candidate.pools),
            library: library.clone(),
            front: None,
            tells_seconds: true,
        };
        let environment = candidate.allocator.variables();
        let launch = Launch {
            program: &self.config.launcher,
            wrapper: &[],
            preload: Preload::Allocator,
            environment: &environment,
        };
        let words = spec.to_arguments().map_err(|reason| RunError::Unreadable {
            line: format!("{spec:?}"),
            reason,
        })?;
        let mut subject = Subject::start_with(&launch, &words, library.as_deref())?;
        let sample = loop {
            match subject.next(self.stop)? {
                Line::Second(second) => {
                    (self.on_event)(&LoopbackEvent::Second(second));
                }
                Line::End(sample) => break sample,
            }
        };
        subject.succeeded()?;
        Ok(*sample)
    }

    fn pair(&self, pools: PoolSetting) -> PairSpec {
        let config = self.config;
        let [server_driver, client_driver] = self.drivers.map(|driver| driver.name().to_owned());
        PairSpec {
            connections: config.connections as usize,
            requests: config.connections.saturating_mul(config.iterations),
            threads: config.threads as usize,
            request_bytes: config.request_bytes as usize,
            response_bytes: config.response_bytes as usize,
            pools,
            server_driver,
            client_driver,
        }
    }

    /// A candidate that fails once is left out from then on.
    fn note_failure(&mut self, index: usize, error: &RunError) {
        let candidate = &mut self.candidates[index];
        candidate.has_failed = true;
        let sentence = format!("{}: {error}", candidate.name);
        (self.on_event)(&LoopbackEvent::Note(sentence.clone()));
        self.failures.push(sentence);
    }

    fn count_heap_calls(&mut self) -> Result<BTreeMap<bool, Option<f64>>, BenchError> {
        let mut found = BTreeMap::new();
        for &pools in &self.config.pools {
            if self.is_stopped() {
                break;
            }
            (self.on_event)(&LoopbackEvent::HeapCalls { pools });
            let launcher = &self.config.launcher;
            let calls = report::per_transaction(launcher, &self.pair(pools), self.stop)?;
            found.insert(pools == PoolSetting::On, calls);
        }
        Ok(found)
    }
}

/// Every allocator with every setting of the pools. The first is the reference for the others: the C library's malloc
/// without pools, if that takes part.
fn candidates(config: &LoopbackConfig) -> Result<Vec<Candidate>, BenchError> {
    let allocators = match &config.allocators {
        Some(wanted) => allocator::select(wanted)?,
        None => vec![Allocator::native(GLIBC)],
    };
    let mut candidates = Vec::new();
    let mut settings = config.pools.clone();
    settings.sort_by_key(|&pools| pools == PoolSetting::On);
    for allocator in &allocators {
        for &pools in &settings {
            candidates.push(Candidate {
                name: name(&allocator.name, pools),
                allocator: allocator.clone(),
                pools,
                has_failed: false,
                samples: Vec::new(),
            });
        }
    }
    // The others stay in the order they were asked for in.
    candidates.sort_by_key(|it| it.allocator.name != GLIBC);
    Ok(candidates)
}

/// As it is shown.
pub(super) fn name(allocator: &str, pools: PoolSetting) -> String {
    match pools {
        PoolSetting::On => format!("{allocator}, pools"),
        PoolSetting::Off => format!("{allocator}, no pools"),
    }
}

/// Those that gave a figure.
fn measured(
    candidates: Vec<Candidate>,
    heap_calls: &BTreeMap<bool, Option<f64>>,
) -> Vec<CandidateRecord> {
    let baseline: Vec<Option<PairSample>> = candidates
        .iter()
        .find(|it| it.samples.iter().any(Option::is_some))
        .map_or_else(Vec::new, |it| it.samples.clone());
    let of = |candidate: Candidate| {
        let calls = heap_calls.get(&(candidate.pools == PoolSetting::On));
        CandidateRecord::of(
            candidate.name,
            &candidate.allocator,
            candidate.pools,
            candidate.samples,
            &baseline,
            calls.copied().flatten(),
        )
    };
    candidates.into_iter().filter_map(of).collect()
}

// The child's side of `bench loopback`: one pair in a process of its own, under the allocator that was
// preloaded.

/// The first word for such a child.
pub(crate) const WORD: &str = "loopback";

/// The program to run, and its allocator.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct ChildSpec {
    pub(super) pair: PairSpec,
    /// The allocator's library, which has to be mapped; `None`: no allocator but the C library's
    /// may be.
    pub(super) library: Option<PathBuf>,
    /// The object in front of the allocator: the counter of heap calls.
    pub(super) front: Option<PathBuf>,
    /// Whether each second is reported when it is over.
    pub(super) tells_seconds: bool,
}

/// The output of a child.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    Second(Box<LoadSecond>),
    End(Box<PairSample>),
}

impl ChildSpec {
    /// The words that [`main`] is given back.
    pub(super) fn to_arguments(&self) -> Result<[OsString; 2], String> {
        let text = serde_json::to_string(self).map_err(|error| error.to_string())?;
        Ok([WORD.into(), text.into()])
    }

    fn parse(word: Option<OsString>) -> Result<Self, String> {
        let word = word.ok_or("what to run is missing")?;
        let text = word.to_str().ok_or("what to run is not text")?;
        serde_json::from_str(text).map_err(|error| format!("what to run cannot be read: {error}"))
    }
}

/// The arguments after `bench-child loopback`.
pub(crate) fn main(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    child::end(ChildSpec::parse(words.next()).and_then(|spec| child_run(&spec)))
}

fn child_run(spec: &ChildSpec) -> Result<(), String> {
    child::die_with_parent()?;
    pair::check(&spec.pair)?;
    let sample = pair::run(&spec.pair, &|second| {
        if spec.tells_seconds {
            // A parent that is gone ends this process anyway.
            let _ = say(&Line::Second(second.clone().into()));
        }
    })?;
    child::prove(spec.library.as_deref(), spec.front.as_deref())?;
    say(&Line::End(sample.into()))
}

fn say(line: &Line) -> Result<(), String> {
    let text = serde_json::to_string(line).map_err(|error| error.to_string())?;
    child::say(&text).map_err(|error| error.to_string())
}

#[cfg(test)]
#[path = "tests/run.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/child.rs"]
mod child_tests;
