//! The arms of a profile, run: the same work under every profiler and without one, round by round.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use millpond_measure::environment::Environment;
use millpond_measure::record::{CandidateRounds, Operation, Role};

use super::arm::{Arm, Instruments, Task, equal_work};
use super::outcome::{self, Gathered};
use super::perf::Perf;
use super::{ProfileConfig, ProfileOutcome};
use crate::allocator::Allocator;
use crate::awake::Awake;
use crate::cgroup::CgroupRoot;
use crate::coexistence;
use crate::core_distance::CoreDistance;
use crate::data_place::DataPlace;
use crate::disturbances::Disturbances;
use crate::drive::{ANSWER_TIMEOUT, Driver, ERRORS_ALLOWED_DEFAULT, Load, SILENCE_MIN_DEFAULT};
use crate::error::{LabError, RunError};
use crate::event::LabEvent;
use crate::matrix::{self, Candidate};
use crate::output_directory::OutputDirectory;
use crate::preflight;
use crate::reserve::Reserve;
use crate::session::Workshop;
use crate::target::Target;

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
    instruments: Instruments,
    notes: Vec<String>,
    seed: u64,
    _awake: Option<Awake>,
}

impl<'a> Studio<'a> {
    /// Everything that can be refused without starting a target.
    fn new(config: &'a ProfileConfig, stop: &'a AtomicBool) -> Result<Self, LabError> {
        config.check()?;
        let candidates = candidates(&config.chosen_allocators()?, config);
        let mut notes = config.options.inherited.lines();
        let instruments = Instruments::find(config, &mut notes);
        if instruments.arms().is_empty() {
            return Err(LabError::Setting(notes.join("; ")));
        }
        let out = OutputDirectory::claim(&config.out)?;
        let seed = config.seed.unwrap_or_else(|| fastrand::u64(..));
        let workshop = Workshop {
            coexistence: coexistence::untried(&config.target, &config.options.environment),
            driver: Driver {
                target: config.target.clone(),
                connections: config.connections,
                value_bytes: config.value_bytes,
                path: None,
                placement: config.options.placement(),
                errors_allowed: ERRORS_ALLOWED_DEFAULT,
                answer_timeout: ANSWER_TIMEOUT,
                silence_min: SILENCE_MIN_DEFAULT,
            },
            launcher: config.launcher.clone(),
            options: config.options.clone(),
            load_command: config.load_command.clone(),
            cgroups: CgroupRoot::find().ok(),
            // No memory is scored here.
            memory_groups: None,
            ready_bound: config.ready_bound,
            data: DataPlace::on_disk(out.clone(), None)?,
            out,
            random: fastrand::Rng::with_seed(seed),
            disturbances: Disturbances::default(),
            nearest: CoreDistance::default(),
            reserve: Reserve::default(),
            address_space_bytes: Cell::new(None),
        };
        workshop.prepare()?;
        let awake = Awake::hold(config.options.idle_cpus, &Environment::capture())?;
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        Ok(Self {
            config,
            stop,
            started_unix_ns: since_epoch.map_or(0, |it| u64::try_from(it.as_nanos()).unwrap_or(0)),
            workshop,
            gathered: vec![Gathered::default(); candidates.len()],
            candidates,
            instruments,
            notes,
            seed,
            _awake: awake,
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
            let task = Task {
                candidate: &candidate,
                round,
                arm,
                work: &work,
            };
            let Some(gathered) = self.gathered.get_mut(index) else {
                continue;
            };
            let (workshop, stop) = (&mut self.workshop, self.stop);
            match self.instruments.run(workshop, &task, gathered, stop) {
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
        let event = self.instruments.perf.as_ref().map(Perf::event);
        outcome::finish(
            self.config,
            names.zip(&self.gathered).collect(),
            outcome::Circumstances {
                subject: self.config.target.title(),
                out: self.workshop.out.path().to_owned(),
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
        let without = self.config.cost.then_some(Arm::Without);
        let arms: Vec<Arm> = without.into_iter().chain(self.instruments.arms()).collect();
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
        match self.config.rate_per_s {
            Some(per_s) => operations
                .iter()
                .map(|&operation| (operation, Load::Rate { per_s, duration }))
                .collect(),
            None => equal_work(operations, slowest_per_s, duration),
        }
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
            variant: None,
        });
        role = Role::Candidate;
    }
    list
}
