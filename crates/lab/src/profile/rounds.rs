//! The arms of a profile, run: the same work under every profiler and without one, round by round.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use millpond_measure::record::{CandidateRounds, Operation, Role};

use super::cost::Work;
use super::maps::{Maps, Place};
use super::outcome::{self, Gathered};
use super::perf::{Perf, Recording, program_of};
use super::sampler::{Sample, Sampler};
use super::symbols::Symbols;
use super::{ProfileConfig, ProfileOutcome};
use crate::allocator::Allocator;
use crate::cgroup::CgroupRoot;
use crate::drive::{Driver, Load};
use crate::error::{LabError, RunError};
use crate::event::LabEvent;
use crate::matrix::{self, Candidate};
use crate::preflight;
use crate::session::{Session, Workshop};
use crate::suitability;
use crate::target::Target;

/// So much of the work is done before anything is sampled; our own server's keys all have to be there.
const WARM_UP_SHARE: f64 = 0.25;
/// Fewer requests than that are no load.
const REQUESTS_MIN: u64 = 20;

/// What stands between a run and its work.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Arm {
    /// Nothing.
    Without,
    /// perf.
    Cpu,
    /// The sampler of heap calls.
    Allocations,
}

impl Arm {
    fn label(self) -> &'static str {
        match self {
            Self::Without => "without",
            Self::Cpu => "cpu",
            Self::Allocations => "allocations",
        }
    }
}

/// Profiles `config.target` under load. `events` hears of progress; raising `stop` ends it within a
/// second or so, with what was sampled until then.
pub fn profile(
    config: &ProfileConfig,
    events: &mut dyn FnMut(&LabEvent),
    stop: &AtomicBool,
) -> Result<ProfileOutcome, LabError> {
    let mut studio = Studio::new(config, stop)?;
    let result = studio.run(events);
    studio.workshop.tidy();
    result
}

struct Studio<'a> {
    config: &'a ProfileConfig,
    stop: &'a AtomicBool,
    started_unix_ns: u64,
    workshop: Workshop,
    candidates: Vec<Candidate>,
    gathered: Vec<Gathered>,
    perf: Option<Perf>,
    allocations: bool,
    notes: Vec<String>,
    symbols: Symbols,
    seed: u64,
}

impl<'a> Studio<'a> {
    /// Everything that can be refused without starting a target.
    fn new(config: &'a ProfileConfig, stop: &'a AtomicBool) -> Result<Self, LabError> {
        config.check()?;
        let candidates = candidates(&config.chosen_allocators()?, config);
        let mut notes = Vec::new();
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
        if perf.is_none() && !allocations {
            return Err(LabError::Setting(notes.join("; ")));
        }
        let failed = |error| LabError::Output {
            path: config.out.clone(),
            error,
        };
        fs::create_dir_all(&config.out).map_err(failed)?;
        let out = fs::canonicalize(&config.out).map_err(failed)?;
        let seed = config.seed.unwrap_or_else(|| fastrand::u64(..));
        let workshop = Workshop {
            driver: Driver {
                target: config.target.clone(),
                connections: config.connections,
                value_bytes: config.value_bytes,
                placement: config.options.placement(),
            },
            launcher: config.launcher.clone(),
            options: config.options.clone(),
            load_command: config.load_command.clone(),
            cgroups: CgroupRoot::find().ok(),
            ready_bound: config.ready_bound,
            out,
            random: fastrand::Rng::with_seed(seed),
        };
        workshop.prepare()?;
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        Ok(Self {
            config,
            stop,
            started_unix_ns: since_epoch.map_or(0, |it| u64::try_from(it.as_nanos()).unwrap_or(0)),
            workshop,
            gathered: vec![Gathered::default(); candidates.len()],
            candidates,
            perf,
            allocations,
            notes,
            symbols: Symbols::new(),
            seed,
        })
    }

    fn run(&mut self, events: &mut dyn FnMut(&LabEvent)) -> Result<ProfileOutcome, LabError> {
        for note in &self.notes {
            events(&LabEvent::Note(note.clone()));
        }
        let (workshop, candidates) = (&mut self.workshop, &mut self.candidates);
        let findings = preflight::run(
            workshop,
            candidates,
            self.config.duration,
            events,
            self.stop,
        )?;
        if let Some(native) = &findings.native {
            matrix::name_native(&mut self.candidates, native);
        }
        let work = self.work(&findings.slowest_per_s);
        let schedule = self.schedule();
        let runs = u32::try_from(schedule.len()).unwrap_or(u32::MAX);
        let began = Instant::now();
        for (run, (round, index, arm)) in (0_u32..).zip(schedule) {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let Some(candidate) = self.candidates.get(index).cloned() else {
                continue;
            };
            let each = began.elapsed().checked_div(run).unwrap_or_default();
            events(&LabEvent::RunStarted {
                candidate: format!("{}, {}", candidate.name, arm.label()),
                round: round + 1,
                run: run + 1,
                runs,
                eta_ns: u64::try_from((each * (runs - run)).as_nanos()).unwrap_or(u64::MAX),
            });
            match self.one_run(&candidate, index, round, arm, &work) {
                Ok(()) => {}
                Err(RunError::Interrupted) => break,
                Err(reason) => {
                    let (name, arm) = (&candidate.name, arm.label());
                    let note = format!("{name}, {arm}, round {}: {reason}", round + 1);
                    events(&LabEvent::Note(note.clone()));
                    self.notes.push(note);
                }
            }
        }
        events(&LabEvent::Analysing);
        let interrupted = self.stop.load(Ordering::Relaxed);
        if self.gathered.iter().all(Gathered::is_empty) {
            return Err(if interrupted {
                LabError::InterruptedEarly
            } else {
                LabError::Setting(self.nothing())
            });
        }
        self.finish(interrupted)
    }

    fn nothing(&self) -> String {
        let mut why = vec!["not one sample was taken".to_owned()];
        why.extend(self.notes.iter().cloned());
        why.join("; ")
    }

    fn finish(&mut self, interrupted: bool) -> Result<ProfileOutcome, LabError> {
        let names = self.candidates.iter().map(|one| one.name.clone());
        let event = self.perf.as_ref().map(Perf::event);
        outcome::finish(
            self.config,
            names.zip(&self.gathered).collect(),
            outcome::Circumstances {
                subject: self.config.target.title(),
                out: self.workshop.out.clone(),
                seed: self.seed,
                event,
                notes: std::mem::take(&mut self.notes),
                started_unix_ns: self.started_unix_ns,
                interrupted,
            },
        )
    }

    /// Every round runs every arm of every candidate once, in an order drawn anew.
    fn schedule(&mut self) -> Vec<(u32, usize, Arm)> {
        let mut arms = Vec::new();
        if self.config.cost {
            arms.push(Arm::Without);
        }
        if self.perf.is_some() {
            arms.push(Arm::Cpu);
        }
        if self.allocations {
            arms.push(Arm::Allocations);
        }
        let mut schedule = Vec::new();
        for round in 0..self.config.rounds {
            let mut all: Vec<(u32, usize, Arm)> = (0..self.candidates.len())
                .flat_map(|index| arms.iter().map(move |&arm| (round, index, arm)))
                .collect();
            self.workshop.random.shuffle(&mut all);
            schedule.extend(all);
        }
        schedule
    }

    /// The load of one run, per operation in order.
    fn work(&self, slowest_per_s: &[f64]) -> Vec<(Operation, Load)> {
        let operations = self.config.target.operations();
        let parts = self.config.rounds * u32::try_from(operations.len()).unwrap_or(1);
        let duration = self.config.duration / parts.max(1);
        let loads = operations.iter().enumerate().map(|(index, &operation)| {
            let load = match self.config.rate_per_s {
                Some(per_s) => Load::Rate { per_s, duration },
                None => {
                    let per_s = slowest_per_s.get(index).copied().unwrap_or(0.0);
                    let requests = (per_s * duration.as_secs_f64()) as u64;
                    Load::Work {
                        requests: requests.max(REQUESTS_MIN),
                    }
                }
            };
            (operation, load)
        });
        loads.collect()
    }

    fn one_run(
        &mut self,
        candidate: &Candidate,
        index: usize,
        round: u32,
        arm: Arm,
        work: &[(Operation, Load)],
    ) -> Result<(), RunError> {
        let sampler = match arm {
            Arm::Allocations => Some(self.sampler()?),
            Arm::Without | Arm::Cpu => None,
        };
        let front = sampler.as_ref().map(Sampler::front);
        let label = format!("{}-{round}", arm.label());
        let mut session =
            Session::start_behind(&mut self.workshop, candidate, &label, front, self.stop)?;
        self.warm_up(&mut session, work)?;
        let mut maps = Maps::default();
        maps.capture(&session.tree.members());
        let recording = match arm {
            Arm::Cpu => self.record(&session, index)?,
            Arm::Without | Arm::Allocations => None,
        };
        activate(sampler.as_ref(), true)?;
        let done = self.drive(&mut session, work, &label);
        activate(sampler.as_ref(), false)?;
        maps.capture(&session.tree.members());
        let cpu = recording.map(Recording::end).transpose();
        session.stop()?;
        let done = done?;
        let harvest = sampler.as_ref().map(Sampler::harvest).transpose();
        let harvest = harvest.map_err(|error| RunError::Figures(error.to_string()))?;
        let Some(gathered) = self.gathered.get_mut(index) else {
            return Ok(());
        };
        gathered.add_work(round, arm == Arm::Without, arm == Arm::Cpu, done);
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
            reader.read(&harvest.samples, self.config.sample_bytes, gathered);
        }
        Ok(())
    }

    fn sampler(&mut self) -> Result<Sampler, RunError> {
        let seed = self.workshop.random.u64(..);
        Sampler::create(self.config.sample_bytes, seed).map_err(|error| RunError::Prepare {
            path: std::env::temp_dir(),
            error,
        })
    }

    /// perf on every process of the server.
    fn record(&mut self, session: &Session, index: usize) -> Result<Option<Recording>, RunError> {
        let Some(perf) = &self.perf else {
            return Ok(None);
        };
        let serving = session.presence.pids.first().copied();
        let pid = serving.unwrap_or_else(|| session.subject.pid());
        let program = program_of(u32::try_from(pid).unwrap_or(0));
        let (unwind, why) = self.config.unwind.choose(&program);
        if let Some(gathered) = self.gathered.get_mut(index) {
            gathered.unwind = why;
        }
        let cpus = &self.workshop.driver.placement.generator;
        let pids = session.tree.members();
        perf.begin(&pids, unwind, self.config.samples_per_s, cpus)
            .map(Some)
    }

    /// Start-up, first touches and empty stores are not what a server does all day.
    fn warm_up(
        &mut self,
        session: &mut Session,
        work: &[(Operation, Load)],
    ) -> Result<(), RunError> {
        if let Some(command) = self.workshop.load_command.clone() {
            command.run(&self.workshop, session, "first", self.stop)?;
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
            self.phase(session, operation, keys, load)?;
        }
        Ok(())
    }

    /// The work itself, with what it took.
    fn drive(
        &mut self,
        session: &mut Session,
        work: &[(Operation, Load)],
        label: &str,
    ) -> Result<Work, RunError> {
        let cpu = |session: &Session| session.tree.sample().map_or(0, |it| it.total.cpu_ns());
        let before = cpu(session);
        let began = Instant::now();
        if let Some(command) = self.workshop.load_command.clone() {
            command.run(&self.workshop, session, label, self.stop)?;
        } else {
            for &(operation, load) in work {
                self.phase(session, operation, keys_of(work), load)?;
            }
        }
        Ok(Work {
            duration_ns: u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX),
            cpu_ns: cpu(session).saturating_sub(before),
        })
    }

    fn phase(
        &self,
        session: &mut Session,
        operation: Operation,
        keys: u64,
        load: Load,
    ) -> Result<(), RunError> {
        let driver = &self.workshop.driver;
        let phase = driver.run(session.address, operation, keys, load, self.stop);
        session.explain(phase).map(|_| ())
    }
}

fn activate(sampler: Option<&Sampler>, is_active: bool) -> Result<(), RunError> {
    match sampler.map(|sampler| sampler.activate(is_active)) {
        Some(Err(error)) => Err(RunError::Figures(error.to_string())),
        _ => Ok(()),
    }
}

/// What is read has to be what was written.
fn keys_of(work: &[(Operation, Load)]) -> u64 {
    work.first().map_or(1, |&(_, load)| requests_of(load))
}

fn requests_of(load: Load) -> u64 {
    match load {
        Load::Work { requests } => requests,
        Load::Rate { per_s, duration } => (per_s * duration.as_secs_f64()).max(1.0) as u64,
        Load::Burst { .. } => 1,
    }
}

/// The candidates in the user's order: the first is what the second is compared with.
fn candidates(allocators: &[Allocator], config: &ProfileConfig) -> Vec<Candidate> {
    let pools = matches!(config.target, Target::Entity { .. }).then_some(config.pools);
    let mut role = Role::Baseline;
    let mut list = Vec::new();
    for allocator in allocators {
        list.push(Candidate {
            name: CandidateRounds::standard_name(&allocator.name, pools, Role::Candidate),
            allocator: allocator.clone(),
            pools,
            role,
        });
        role = Role::Candidate;
    }
    list
}

/// Why the sampler cannot be preloaded, if that can be told from the program's file.
fn unsuitable(target: &Target) -> Option<String> {
    let Target::Command { words, .. } = target else {
        return None;
    };
    let program = words.first()?;
    let file = crate::config::on_path(Path::new(program))?;
    let reason = suitability::of_program(&file).ok().flatten()?;
    Some(format!("{} {reason}", program.display()))
}

/// Turns samples into stacks.
struct Reader<'a> {
    maps: &'a Maps,
    symbols: &'a mut Symbols,
    /// The sampler's own object, whose frames nobody asked for.
    own: &'a Path,
}

impl Reader<'_> {
    fn read(&mut self, samples: &[Sample], mean_bytes: u64, gathered: &mut Gathered) {
        let mut relatives: HashMap<u32, Vec<u32>> = HashMap::new();
        for sample in samples {
            let pids = relatives
                .entry(sample.program)
                .or_insert_with(|| vec![sample.program]);
            if !pids.contains(&sample.pid) {
                pids.push(sample.pid);
            }
        }
        let related = |sample: &Sample| relatives.get(&sample.program).map_or(&[][..], |it| it);
        let mut wanted: HashMap<&Path, HashSet<u64>> = HashMap::new();
        for sample in samples {
            for &address in &sample.frames {
                let place = self
                    .maps
                    .place(sample.pid, related(sample), call_of(address));
                if let Place::File(file, offset) = place {
                    wanted.entry(file).or_default().insert(offset);
                }
            }
        }
        self.symbols.prepare(wanted);
        for sample in samples {
            let frames = self.frames(sample, related(sample));
            gathered.add_allocation(sample, mean_bytes, &frames);
        }
    }

    /// Innermost first, the process last.
    fn frames(&self, sample: &Sample, relatives: &[u32]) -> Vec<String> {
        let mut frames: Vec<String> = Vec::new();
        for &address in &sample.frames {
            match self.maps.place(sample.pid, relatives, call_of(address)) {
                Place::File(file, _) if file == self.own => {}
                Place::File(file, offset) => {
                    frames.extend(self.symbols.names(file, offset).iter().cloned());
                }
                Place::Generated => frames.push("[generated code]".to_owned()),
                // A chain that leads out of the code was none from here on.
                Place::Nowhere => break,
            }
        }
        frames.dedup_by(|one, other| one == other && one.starts_with('['));
        if sample.is_cut {
            frames.push("[deeper than recorded]".to_owned());
        }
        if frames.is_empty() {
            frames.push("[no stack]".to_owned());
        }
        frames.push(self.maps.name(sample.pid, relatives).to_owned());
        frames
    }
}

/// A return address is behind the call, which may be its function's last instruction.
fn call_of(address: u64) -> u64 {
    address.saturating_sub(1)
}
