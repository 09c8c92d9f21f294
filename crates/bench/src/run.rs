//! The benchmark: every program on every candidate, in shuffled order, again and again.
//!
//! `cli` calls [`run`] with what the user wants and shows the events; the record it returns is what
//! `report` prints and `--json` writes. A repetition runs every candidate once, each in a fresh
//! process, so that what disturbs the machine for a while disturbs them all, and pairs of one
//! repetition can be compared.

use crate::candidate::{Candidate, POOL, candidates, of_program};
use crate::child;
use crate::child::ChildSpec;
use crate::counters;
use crate::error::{BenchError, RunError};
use crate::flamegraph;
use crate::memory::Watch;
use crate::program::{MemoryKind, Program};
use crate::record::{BenchRecord, ProgramRecord, ProgramRuns};
use crate::subject::{Launch, Preload, Subject};
use fastrand::Rng;
use millpond_lab::allocator::GLIBC;
use millpond_measure::environment::Environment;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// The settings of the measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct BenchConfig {
    /// The program that has `bench-child`: this one, but in tests.
    pub launcher: PathBuf,
    /// Which programs, in this order.
    pub programs: Vec<Program>,
    /// Which allocators; `None` means all that are installed.
    pub allocators: Option<Vec<String>>,
    /// Iterations of every program.
    pub iterations: u64,
    /// How often each candidate runs each program.
    pub repetitions: u32,
    /// Longest time for memory to go back to the system.
    pub idle_seconds: u64,
    /// Random choices follow from it.
    pub seed: u64,
    /// Where to draw a flame graph, if anywhere.
    pub flamegraph: Option<PathBuf>,
    /// The command line, for the record.
    pub command: Vec<String>,
}

impl BenchConfig {
    /// The earlier program's numbers, for all programs.
    #[must_use]
    pub fn new(launcher: PathBuf) -> Self {
        Self {
            launcher,
            programs: Program::ALL.to_vec(),
            allocators: None,
            iterations: 100_000,
            repetitions: 5,
            idle_seconds: 10,
            seed: fastrand::u64(..),
            flamegraph: None,
            command: Vec::new(),
        }
    }

    /// A fifth of the work and of the idleness, three times: some seconds for each program.
    #[must_use]
    pub fn quick(self) -> Self {
        Self {
            iterations: self.iterations / 5,
            repetitions: 3,
            idle_seconds: self.idle_seconds / 2,
            ..self
        }
    }

    /// Memory hardly varies from run to run, and idleness takes time.
    fn repetitions_of(&self, program: Program) -> u32 {
        if program.is_about_memory() {
            self.repetitions.div_ceil(5)
        } else {
            self.repetitions
        }
    }
}

/// How far it is.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum BenchEvent {
    /// A line for the user.
    Note(String),
    /// A run begins.
    Run {
        /// The program.
        program: Program,
        /// The candidate.
        candidate: String,
        /// Which of all runs, from 1.
        run: usize,
        /// All runs.
        runs: usize,
    },
    /// Children idle, to see what goes back to the system.
    Idle {
        /// After what.
        program: Program,
    },
    /// Heap calls are being counted.
    HeapCalls {
        /// The program.
        program: Program,
    },
    /// perf is recording.
    Flamegraph {
        /// The program.
        program: Program,
    },
}

/// The record and how it ended.
#[derive(Clone, Debug)]
pub struct BenchOutcome {
    /// All that was measured.
    pub record: BenchRecord,
    /// Sentences about runs that failed.
    pub failures: Vec<String>,
    /// Whether it was ended early.
    pub interrupted: bool,
}

/// Measures. Ends early, with what there is, once `stop` is raised.
pub fn run(
    config: &BenchConfig,
    on_event: &mut dyn FnMut(&BenchEvent),
    stop: &AtomicBool,
) -> Result<BenchOutcome, BenchError> {
    let candidates = candidates(config.allocators.as_deref())?;
    if let Some(path) = &config.flamegraph {
        flamegraph::available(path)?;
    }
    let counters_missing = counters::available().err();
    if let Some(sentence) = &counters_missing {
        on_event(&BenchEvent::Note(sentence.clone()));
    }
    let environment = Environment::capture();
    let watch = Watch::start();
    let mut session = PoolSession::new(config, candidates, on_event, stop);
    for &program in &config.programs {
        session.measure(program);
    }
    let noise = watch.noise();
    session.count_heap_calls()?;
    if let Some(path) = &config.flamegraph
        && !session.is_stopped()
    {
        session.draw(path)?;
    }
    session.close(environment, counters_missing, noise)
}

/// The runs so far, and what is needed for the next.
struct PoolSession<'a> {
    config: &'a BenchConfig,
    candidates: Vec<Candidate>,
    on_event: &'a mut dyn FnMut(&BenchEvent),
    stop: &'a AtomicBool,
    rng: Rng,
    run: usize,
    runs: usize,
    programs: Vec<ProgramRuns>,
    failures: Vec<String>,
}

impl<'a> PoolSession<'a> {
    fn new(
        config: &'a BenchConfig,
        candidates: Vec<Candidate>,
        on_event: &'a mut dyn FnMut(&BenchEvent),
        stop: &'a AtomicBool,
    ) -> Self {
        let runs_of = |&program: &Program| {
            of_program(&candidates, program).len() * config.repetitions_of(program) as usize
        };
        Self {
            runs: config.programs.iter().map(runs_of).sum(),
            config,
            candidates,
            on_event,
            stop,
            rng: Rng::with_seed(config.seed),
            run: 0,
            programs: Vec::new(),
            failures: Vec::new(),
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn measure(&mut self, program: Program) {
        let contestants = of_program(&self.candidates, program);
        let mut runs = ProgramRuns::new(program, contestants);
        for _ in 0..self.config.repetitions_of(program) {
            if self.is_stopped() {
                break;
            }
            self.repeat(&mut runs);
        }
        self.programs.push(runs);
    }

    /// Every candidate once. Those that idle at the end do so while others work.
    fn repeat(&mut self, runs: &mut ProgramRuns) {
        let mut order: Vec<usize> = (0..runs.candidates.len()).collect();
        self.rng.shuffle(&mut order);
        let repetition = runs.begin_repetition();
        let mut idling = Vec::new();
        for index in order {
            if self.is_stopped() {
                break;
            }
            let candidate = runs.candidates[index].clone();
            self.run += 1;
            if runs.has_failed(index) {
                continue;
            }
            (self.on_event)(&BenchEvent::Run {
                program: runs.program,
                candidate: candidate.name.clone(),
                run: self.run,
                runs: self.runs,
            });
            let spec = self.spec(runs.program, &candidate);
            let environment = candidate.environment();
            let launch = plain(&self.config.launcher, &environment);
            let started = Subject::start(&launch, &spec).and_then(|mut subject| {
                subject.until_idle(self.stop)?;
                Ok(subject)
            });
            match started {
                Ok(subject) => idling.push((index, subject)),
                Err(error) => self.note_failure(runs, index, &error),
            }
        }
        if !idling.is_empty() && runs.program.is_about_memory() {
            let program = runs.program;
            (self.on_event)(&BenchEvent::Idle { program });
        }
        for (index, subject) in idling {
            let found = subject
                .finish(self.stop)
                .and_then(|sample| runs.add(repetition, index, sample));
            if let Err(error) = found {
                self.note_failure(runs, index, &error);
            }
        }
    }

    fn spec(&self, program: Program, candidate: &Candidate) -> ChildSpec {
        ChildSpec {
            program,
            memory: candidate.memory,
            iterations: program.iterations_of(self.config.iterations),
            seed: self.config.seed,
            idle_seconds: self.config.idle_seconds,
            library: candidate.library.clone(),
            front: None,
        }
    }

    /// A candidate that fails once is left out of the program from then on.
    fn note_failure(&mut self, runs: &mut ProgramRuns, index: usize, error: &RunError) {
        if *error == RunError::Interrupted {
            return;
        }
        runs.fail(index);
        let sentence = format!(
            "{} on {}: {error}",
            runs.program, runs.candidates[index].name
        );
        (self.on_event)(&BenchEvent::Note(sentence.clone()));
        self.failures.push(sentence);
    }

    fn count_heap_calls(&mut self) -> Result<(), BenchError> {
        for runs in &mut self.programs {
            let program = runs.program;
            (self.on_event)(&BenchEvent::HeapCalls { program });
            for memory in [MemoryKind::Pool, MemoryKind::Malloc, MemoryKind::Placed] {
                let is_wanted = runs.candidates.iter().any(|it| it.memory == memory);
                if is_wanted && !self.stop.load(Ordering::Relaxed) {
                    let launcher = &self.config.launcher;
                    let calls = child::per_operation(launcher, program, memory, self.stop)?;
                    runs.heap_calls.insert(memory, calls);
                }
            }
        }
        Ok(())
    }

    fn draw(&mut self, path: &Path) -> Result<(), BenchError> {
        let mut stacks = flamegraph::Stacks::default();
        // Those that were asked for; without a wish, the two that everything is compared with.
        let is_drawn = |candidate: &&Candidate| {
            self.config.allocators.is_some() || [POOL, GLIBC].contains(&candidate.name.as_str())
        };
        let drawn: Vec<Candidate> = self.candidates.iter().filter(is_drawn).cloned().collect();
        for &program in &self.config.programs {
            (self.on_event)(&BenchEvent::Flamegraph { program });
            for candidate in &drawn {
                if self.stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let mut spec = self.spec(program, candidate);
                spec.idle_seconds = 0;
                let title = format!("{};{}", candidate.name, program.name());
                let launcher = &self.config.launcher;
                stacks.record(launcher, &spec, &candidate.environment(), &title, self.stop)?;
            }
        }
        stacks.draw(path)?;
        let sentence = format!("flame graph: {}", path.display());
        (self.on_event)(&BenchEvent::Note(sentence));
        Ok(())
    }

    fn close(
        self,
        environment: Environment,
        counters_missing: Option<String>,
        noise: Option<millpond_measure::noise::MachineNoise>,
    ) -> Result<BenchOutcome, BenchError> {
        let interrupted = self.is_stopped();
        let programs: Vec<ProgramRecord> = self
            .programs
            .iter()
            .filter_map(|runs| runs.record(runs.program.iterations_of(self.config.iterations)))
            .collect();
        if programs.is_empty() {
            return Err(match self.failures.into_iter().next() {
                Some(first) => BenchError::NothingMeasured(first),
                None => BenchError::InterruptedEarly,
            });
        }
        let record = BenchRecord::new(
            self.config,
            self.candidates,
            environment,
            counters_missing,
            noise,
            programs,
            interrupted,
        );
        Ok(BenchOutcome {
            record,
            failures: self.failures,
            interrupted,
        })
    }
}

/// A child as it is measured: nothing before it and nothing around it.
fn plain<'a>(program: &'a Path, environment: &'a [(OsString, OsString)]) -> Launch<'a> {
    Launch {
        program,
        wrapper: &[],
        preload: Preload::Allocator,
        environment,
    }
}
