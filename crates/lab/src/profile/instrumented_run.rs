//! One run of the work under one instrument, or under none.
//!
//! `rounds` repeats it for `millpond profile`, [`super::after_rounds`] runs each once for a comparison. A
//! run has its own process; start-up and warm-up are not sampled.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use millpond_measure::record::Operation;

use super::ProfileConfig;
use super::Unwind;
use super::files::Maps;
use super::files::Reader;
use super::outcome::Gathered;
use super::perf::{Perf, Recording, program_of};
use super::sampler::Sampler;
use super::sampler::Work;
use super::symbols::{self, Symbols};
use crate::drive::Load;
use crate::error::RunError;
use crate::matrix::Candidate;
use crate::started_candidate::{RunContext, StartedCandidate};
use crate::suitability;
use crate::target::Target;

/// So much of the work is done before anything is sampled; our own server's keys all have to be there.
const WARM_UP_SHARE: f64 = 0.25;

/// Fewer requests than that are no load.
const REQUESTS_MIN: u64 = 20;

/// The instrument of a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Arm {
    /// Nothing.
    Without,
    /// perf.
    Cpu,
    /// The sampler of heap calls.
    Allocations,
}

impl Arm {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Without => "without",
            Self::Cpu => "cpu",
            Self::Allocations => "allocations",
        }
    }
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task<'a> {
    pub(super) candidate: &'a Candidate,
    pub(super) round: u32,
    pub(super) arm: Arm,
    /// Per operation in order.
    pub(super) work: &'a [(Operation, Load)],
}

impl Task<'_> {
    fn label(&self) -> String {
        format!("{}-{}", self.arm.label(), self.round)
    }
}

/// The instruments, as they are here.
pub(super) struct Instruments {
    pub(super) perf: Option<Perf>,
    pub(super) allocations: bool,
    symbols: Symbols,
    unwind: Unwind,
    samples_per_s: u32,
    sample_bytes: u64,
}

impl Instruments {
    /// Those that are requested and possible; `notes` say why one is not.
    pub(super) fn find(config: &ProfileConfig, notes: &mut Vec<String>) -> Self {
        let perf = match config.cpu.then(Perf::find) {
            None => None,
            Some(Ok(perf)) => Some(perf),
            Some(Err(reason)) => {
                notes.push(format!("no CPU graph: {reason}"));
                None
            }
        };
        let mut allocations = config.allocations;
        if let (true, Some(reason)) = (allocations, unsuitable(&config.target)) {
            notes.push(format!("no allocation graphs: {reason}"));
            allocations = false;
        }
        notes.extend(symbols::LIMIT.filter(|_| allocations).map(str::to_owned));
        Self {
            perf,
            allocations,
            symbols: Symbols::new(),
            unwind: config.unwind,
            samples_per_s: config.samples_per_s,
            sample_bytes: config.sample_bytes,
        }
    }

    /// The arms of those that are there.
    pub(super) fn arms(&self) -> Vec<Arm> {
        let cpu = self.perf.is_some().then_some(Arm::Cpu);
        let allocations = self.allocations.then_some(Arm::Allocations);
        cpu.into_iter().chain(allocations).collect()
    }

    /// Runs `task` once and adds what was seen to `gathered`.
    pub(super) fn run(
        &mut self,
        workshop: &mut RunContext,
        task: &Task<'_>,
        gathered: &mut Gathered,
        stop: &AtomicBool,
    ) -> Result<(), RunError> {
        let sampler = match task.arm {
            Arm::Allocations => Some(self.sampler(workshop)?),
            Arm::Without | Arm::Cpu => None,
        };
        let front = sampler.as_ref().map(Sampler::front);
        let label = task.label();
        let mut session =
            StartedCandidate::start_behind(workshop, task.candidate, &label, front, stop)?;
        warm_up(workshop, &mut session, task.work, stop)?;
        let mut maps = Maps::default();
        maps.capture(&session.tree.members());
        let recording = match task.arm {
            Arm::Cpu => self.record(workshop, &session, gathered)?,
            Arm::Without | Arm::Allocations => None,
        };
        activate(sampler.as_ref(), true)?;
        let done = drive(workshop, &mut session, task, stop);
        activate(sampler.as_ref(), false)?;
        maps.capture(&session.tree.members());
        let cpu = recording.map(Recording::end).transpose();
        session.stop()?;
        let done = done?;
        let harvest = sampler.as_ref().map(Sampler::harvest).transpose();
        let harvest = harvest.map_err(|error| RunError::Figures(error.to_string()))?;
        gathered.add_work(
            task.round,
            task.arm == Arm::Without,
            task.arm == Arm::Cpu,
            done,
        );
        if let Some(samples) = cpu? {
            gathered.add_cpu(&samples);
        }
        if let (Some(harvest), Some(sampler)) = (harvest, sampler) {
            gathered.dropped += harvest.dropped;
            gathered.bare += harvest.bare;
            gathered.programs = gathered.programs.max(harvest.programs);
            let mut reader = Reader {
                maps: &maps,
                symbols: &mut self.symbols,
                own: sampler.object(),
            };
            reader.read(&harvest.samples, self.sample_bytes, gathered);
        }
        Ok(())
    }

    fn sampler(&self, workshop: &mut RunContext) -> Result<Sampler, RunError> {
        let seed = workshop.random.u64(..);
        Sampler::create(self.sample_bytes, seed).map_err(|error| RunError::Prepare {
            path: std::env::temp_dir(),
            error,
        })
    }

    /// perf on every process of the server.
    fn record(
        &self,
        workshop: &RunContext,
        session: &StartedCandidate,
        gathered: &mut Gathered,
    ) -> Result<Option<Recording>, RunError> {
        let Some(perf) = &self.perf else {
            return Ok(None);
        };
        let serving = session.presence.pids.first().copied();
        let pid = serving.unwrap_or_else(|| session.subject.pid());
        let program = program_of(u32::try_from(pid).unwrap_or(0));
        let (unwind, why) = self.unwind.choose(&program);
        gathered.unwind = why;
        let cpus = &workshop.driver.placement.generator;
        let pids = session.tree.members();
        perf.begin(&pids, unwind, self.samples_per_s, cpus)
            .map(Some)
    }
}

/// Start-up, first touches and empty stores are not what a server does all day.
fn warm_up(
    workshop: &RunContext,
    session: &mut StartedCandidate,
    work: &[(Operation, Load)],
    stop: &AtomicBool,
) -> Result<(), RunError> {
    if let Some(command) = workshop.load_command.clone() {
        command.run(workshop, session, "first", stop)?;
        return Ok(());
    }
    let keys = keys_of(work);
    for &(operation, load) in work {
        let requests = requests_of(load);
        let share = match operation {
            Operation::Put => 1.0,
            _ => WARM_UP_SHARE,
        };
        let load = Load::Work {
            requests: ((requests as f64 * share) as u64).max(1),
        };
        phase(workshop, session, (operation, keys), load, stop)?;
    }
    Ok(())
}

/// The work itself, with what it took.
fn drive(
    workshop: &RunContext,
    session: &mut StartedCandidate,
    task: &Task<'_>,
    stop: &AtomicBool,
) -> Result<Work, RunError> {
    let cpu = |session: &StartedCandidate| session.tree.sample().map_or(0, |it| it.total.cpu_ns());
    let before = cpu(session);
    let began = Instant::now();
    if let Some(command) = workshop.load_command.clone() {
        command.run(workshop, session, &task.label(), stop)?;
    } else {
        let keys = keys_of(task.work);
        for &(operation, load) in task.work {
            phase(workshop, session, (operation, keys), load, stop)?;
        }
    }
    Ok(Work {
        duration_ns: u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX),
        cpu_ns: cpu(session).saturating_sub(before),
    })
}

fn phase(
    workshop: &RunContext,
    session: &mut StartedCandidate,
    (operation, keys): (Operation, u64),
    load: Load,
    stop: &AtomicBool,
) -> Result<(), RunError> {
    let phase = workshop
        .driver
        .run(&session.endpoint, operation, keys, load, stop);
    session.account(phase).map(|_| ())
}

/// As many requests of each operation as the slowest candidate serves in `duration`.
pub(super) fn equal_work(
    operations: &[Operation],
    slowest_per_s: &[f64],
    duration: Duration,
) -> Vec<(Operation, Load)> {
    let load = |index: usize| {
        let per_s = slowest_per_s.get(index).copied().unwrap_or(0.0);
        let requests = (per_s * duration.as_secs_f64()) as u64;
        Load::Work {
            requests: requests.max(REQUESTS_MIN),
        }
    };
    let operations = operations.iter().enumerate();
    operations
        .map(|(index, &operation)| (operation, load(index)))
        .collect()
}

fn activate(sampler: Option<&Sampler>, is_active: bool) -> Result<(), RunError> {
    match sampler.map(|sampler| sampler.activate(is_active)) {
        Some(Err(error)) => Err(RunError::Figures(error.to_string())),
        _ => Ok(()),
    }
}

/// The read values have to equal the written ones.
fn keys_of(work: &[(Operation, Load)]) -> u64 {
    work.first().map_or(1, |&(_, load)| requests_of(load))
}

fn requests_of(load: Load) -> u64 {
    match load {
        Load::Work { requests } | Load::EmulatedWork { requests } => requests,
        Load::Rate { per_s, duration } => (per_s * duration.as_secs_f64()).max(1.0) as u64,
        Load::Burst { .. } => 1,
    }
}

/// Why the sampler cannot be preloaded, if the program's file shows that.
fn unsuitable(target: &Target) -> Option<String> {
    let Target::Command { words, .. } = target else {
        return None;
    };
    let program = words.first()?;
    let file = crate::config::on_path(Path::new(program))?;
    let reason = suitability::of_program(&file).ok().flatten()?;
    Some(format!("{} {reason}", program.display()))
}
