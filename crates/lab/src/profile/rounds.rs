//! The arms of a profile, run: the same work under every profiler and without one, round by round.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use millpond_measure::environment::Environment;
use millpond_measure::record::{
    CandidateRounds, ComparisonRecord, FlameGraph, FlameKind, Operation, Role,
};
use millpond_measure::units::{format_bytes, format_duration_ns};

use crate::allocator::Allocator;
use crate::cgroup::CgroupRoot;
use crate::drive::{ANSWER_TIMEOUT, Driver, ERRORS_ALLOWED_DEFAULT, Load, SILENCE_MIN_DEFAULT};
use crate::error::{LabError, RunError};
use crate::event::LabEvent;
use crate::isolation::Awake;
use crate::isolation::Disturbances;
use crate::matrix::Candidate;
use crate::output_directory::DataPlace;
use crate::output_directory::OutputDirectory;
use crate::placement::CoreDistance;
use crate::plan::Reserve;
use crate::started_candidate::{RunContext, file_name};
use crate::target::Target;
use crate::{lock, matrix, preflight};

use super::files::Files;
use super::instrumented_run::{Arm, Instruments, Task, equal_work};
use super::outcome::{Gathered, Side};
use super::perf::Perf;
use super::{ProfileConfig, ProfileOutcome, outcome};

/// Profiles `config.target` under load. `events` receives progress; raising `stop` ends it within a
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
    workshop: RunContext,
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
        let workshop = RunContext {
            coexistence: lock::untried(&config.target, &config.options.environment),
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

// The flame graphs of a comparison: the candidates of interest, once more after the rounds, under perf
// and under the sampler.

/// Where the files go, in the directory of the report.
pub(crate) const FLAMES_DIRECTORY: &str = "flamegraphs";
/// The baseline and the best for two of the three questions; more would fill the page.
const CANDIDATES_MAX: usize = 3;
/// Denser than usual: the runs are short and what they cost is not measured.
const SAMPLE_BYTES: u64 = 64 * 1024;
/// The part of its share of the time that a run spends under load; the rest is starting, warming up and
/// reading the samples.
const LOAD_SHARE: f64 = 0.4;
const LOAD_MIN: Duration = Duration::from_millis(500);
const LOAD_MAX: Duration = Duration::from_secs(5);

/// The comparison's knowledge and wishes for the profile.
pub(crate) struct ProfileRequest<'a> {
    /// All that were compared.
    pub(crate) candidates: &'a [Candidate],
    /// With its verdicts.
    pub(crate) record: &'a ComparisonRecord,
    /// Closed loop throughput of the slowest, per operation.
    pub(crate) slowest_per_s: &'a [f64],
    /// The time of the user's own load program.
    pub(crate) load_command: Option<Duration>,
    /// From the start of a run to its first request, and from its last request to its end.
    pub(crate) overhead: Duration,
    /// For all of it.
    pub(crate) allowance: Duration,
    pub(crate) stop: &'a AtomicBool,
}

/// Graphs for the record, the baseline's first, with their files written; and notes on them for the reader.
pub(crate) fn after_rounds(
    workshop: &mut RunContext,
    wanted: &ProfileRequest<'_>,
    events: &mut dyn FnMut(&LabEvent),
) -> Result<(Vec<FlameGraph>, Vec<String>), LabError> {
    let names = of_interest(wanted.record);
    let named = |name: &String| wanted.candidates.iter().find(|one| one.name == *name);
    let candidates: Vec<Candidate> = names.iter().filter_map(named).cloned().collect();
    let mut config = ProfileConfig::new(workshop.driver.target.clone(), workshop.launcher.clone());
    config.sample_bytes = SAMPLE_BYTES;
    config.rounds = 1;
    config.command.clone_from(&wanted.record.command);
    let mut sitting = Sitting::new(wanted, config, candidates);
    sitting.run(workshop, events);
    sitting.finish(workshop)
}

impl ProfileRequest<'_> {
    /// Of one of `runs` that have `time` together.
    fn load_duration(&self, time: Duration, runs: usize) -> Duration {
        let runs = u32::try_from(runs.max(1)).unwrap_or(u32::MAX);
        let each = (time / runs).saturating_sub(self.overhead);
        each.mul_f64(LOAD_SHARE).clamp(LOAD_MIN, LOAD_MAX)
    }

    /// The expected time of a run, before the first one: its work comes twice, the first time to warm up.
    fn guess(&self, load: Duration) -> Duration {
        self.overhead + self.load_command.unwrap_or(load) * 2
    }
}

/// All runs, and what they gave.
struct Sitting<'a> {
    wanted: &'a ProfileRequest<'a>,
    config: ProfileConfig,
    candidates: Vec<Candidate>,
    gathered: Vec<Gathered>,
    instruments: Instruments,
    notes: Vec<String>,
    left_out: Vec<String>,
    began: Instant,
    /// The longest run so far under this instrument, or its estimate, which decides whether another one fits.
    longest: Duration,
    /// How many times its guess the slowest run took, at least 1: reading symbols, a busy machine.
    slowness: f64,
}

impl<'a> Sitting<'a> {
    fn new(
        wanted: &'a ProfileRequest<'a>,
        config: ProfileConfig,
        candidates: Vec<Candidate>,
    ) -> Self {
        let mut notes = Vec::new();
        Self {
            wanted,
            instruments: Instruments::find(&config, &mut notes),
            longest: Duration::ZERO,
            slowness: 1.0,
            config,
            gathered: vec![Gathered::default(); candidates.len()],
            candidates,
            notes,
            left_out: Vec::new(),
            began: Instant::now(),
        }
    }

    /// CPU time of all candidates first, then their heap calls; as far as time goes.
    fn run(&mut self, workshop: &mut RunContext, events: &mut dyn FnMut(&LabEvent)) {
        let arms = self.instruments.arms();
        let of = arms.len() * self.candidates.len();
        let mut number = 0;
        for arm in arms {
            self.share(of - number);
            for index in 0..self.candidates.len() {
                if self.wanted.stop.load(Ordering::Relaxed) {
                    return;
                }
                number += 1;
                self.one(workshop, arm, index, &mut |candidate| {
                    events(&LabEvent::FlameGraph {
                        candidate: candidate.to_owned(),
                        number,
                        of,
                    });
                });
            }
        }
        if !self.left_out.is_empty() {
            self.notes.push(format!(
                "no flame graphs of {}: the part of the time budget that is theirs ({}) was used up; a \
                 longer --time-budget has more",
                self.left_out.join(", "),
                format_duration_ns(self.wanted.allowance.as_nanos() as f64)
            ));
        }
    }

    /// Before an instrument's first run: what time is left is divided among the `runs` that are, so that
    /// an instrument that took long shortens the next one's graphs instead of costing the last of them.
    /// Never between the runs of one instrument: they do equal work.
    fn share(&mut self, runs: usize) {
        let left = self.wanted.allowance.saturating_sub(self.began.elapsed());
        let time = left.div_f64(self.slowness);
        self.config.duration = self.wanted.load_duration(time, runs);
        let guess = self.wanted.guess(self.config.duration);
        self.longest = guess.mul_f64(self.slowness);
    }

    fn one(
        &mut self,
        workshop: &mut RunContext,
        arm: Arm,
        index: usize,
        tell: &mut dyn FnMut(&str),
    ) {
        let place = self.candidates.get(index).zip(self.gathered.get_mut(index));
        let Some((candidate, gathered)) = place else {
            return;
        };
        let name = &candidate.name;
        if self.began.elapsed() + self.longest > self.wanted.allowance {
            self.left_out.push(format!("{name} ({})", arm.label()));
            return;
        }
        tell(name);
        let operations = workshop.driver.target.operations();
        let parts = u32::try_from(operations.len()).unwrap_or(1).max(1);
        let duration = self.config.duration / parts;
        let work = equal_work(operations, self.wanted.slowest_per_s, duration);
        let task = Task {
            candidate,
            round: 0,
            arm,
            work: &work,
        };
        let start = Instant::now();
        let stop = self.wanted.stop;
        match self.instruments.run(workshop, &task, gathered, stop) {
            Ok(()) | Err(RunError::Interrupted) => {}
            Err(reason) => {
                let note = format!("no flame graph of {name} ({}): {reason}", arm.label());
                self.notes.push(note);
            }
        }
        let took = start.elapsed();
        let guess = self.wanted.guess(self.config.duration).as_secs_f64();
        self.longest = self.longest.max(took);
        self.slowness = self.slowness.max(took.as_secs_f64() / guess);
    }

    /// Writes the files.
    fn finish(mut self, workshop: &RunContext) -> Result<(Vec<FlameGraph>, Vec<String>), LabError> {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let mut files = Files {
            out: workshop.out.path().to_owned(),
            written: Vec::new(),
            title: workshop.driver.target.title(),
            started_unix_ns: since_epoch.map_or(0, |it| u64::try_from(it.as_nanos()).unwrap_or(0)),
        };
        let event = self.instruments.perf.as_ref().map(Perf::event);
        let all = self.candidates.iter().zip(&self.gathered);
        let sides: Vec<Side> = all
            .map(|(one, gathered)| Side::of(one.name.clone(), gathered, &self.config, event))
            .collect();
        let mut graphs = Vec::new();
        for side in &sides {
            side.note_losses(&mut self.notes);
            let directory = directory_of(side);
            files.write_side(side, &directory, &self.config)?;
            graphs.extend(graphs_of(side, &directory));
        }
        if let Some((baseline, others)) = sides.split_first() {
            for other in others {
                files.write_differences(baseline, other, &directory_of(other))?;
            }
        }
        Ok((graphs, self.notes))
    }
}

fn directory_of(side: &Side) -> PathBuf {
    Path::new(FLAMES_DIRECTORY).join(file_name(&side.figures.name))
}

/// The page's data of a candidate.
fn graphs_of(side: &Side, directory: &Path) -> Vec<FlameGraph> {
    let mut graphs = Vec::new();
    let mut add = |kind, stacks, samples, note| {
        graphs.push(FlameGraph {
            candidate: side.figures.name.clone(),
            samples,
            note,
            directory: directory.display().to_string(),
            ..FlameGraph::of(kind, stacks)
        });
    };
    if let Some(cpu) = &side.figures.cpu {
        let note = format!("{} at {} Hz; {}", cpu.event, cpu.samples_per_s, cpu.unwind);
        add(FlameKind::CpuTime, &side.cpu, cpu.samples, note);
    }
    let allocations = side.figures.allocations.as_ref();
    if let Some(found) = allocations.filter(|it| it.samples > 0) {
        let every = format_bytes(found.sample_bytes as f64);
        let note = format!("one in {every} asked for, each weighed by the chance it had");
        let samples = found.samples;
        add(FlameKind::AllocatedBytes, &side.bytes, samples, note);
    }
    graphs
}

/// The baseline, what is recommended, and what is best in each question; without any of these the one with the most
/// throughput, so that there is a difference to show.
fn of_interest(record: &ComparisonRecord) -> Vec<String> {
    let is_other = |name: &str| {
        let found = record.candidates.iter().find(|one| one.name == name);
        found.is_some_and(|one| one.role == Role::Candidate)
    };
    let analysis = &record.analysis;
    let verdicts = &analysis.verdicts;
    let questions = [&verdicts.throughput, &verdicts.latency, &verdicts.memory];
    let recommended = analysis.recommendation.choices.iter();
    let recommended = recommended.map(|choice| choice.candidate.as_str());
    let best = questions
        .iter()
        .filter_map(|question| question.best.first());
    let fastest = verdicts
        .throughput
        .comparisons
        .iter()
        .filter(|one| is_other(&one.candidate) && one.ratio.is_some())
        .max_by(|one, other| {
            one.ratio
                .unwrap_or(0.0)
                .total_cmp(&other.ratio.unwrap_or(0.0))
        })
        .map(|one| one.candidate.as_str());
    let any = record.candidates.iter().find(|one| is_other(&one.name));
    let mut others: Vec<&str> = Vec::new();
    for name in recommended.chain(best.map(String::as_str)) {
        if is_other(name) && !others.contains(&name) {
            others.push(name);
        }
    }
    if others.is_empty() {
        others.extend(fastest.or(any.map(|one| one.name.as_str())));
    }
    let baseline = record.candidates.iter();
    let baseline = baseline.filter(|one| one.role == Role::Baseline);
    baseline
        .map(|one| one.name.as_str())
        .chain(others)
        .take(CANDIDATES_MAX)
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
#[path = "tests/after_rounds.rs"]
mod after_rounds_tests;
