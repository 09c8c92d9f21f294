//! The user's settings of a comparison, and the defaults with their reasons.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use millpond_measure::record::{Margins, PhaseKind, PhasePlan, PoolSetting, Role, Settings};

use crate::allocator::{Allocator, GLIBC, NATIVE};
use crate::drive::{ERRORS_ALLOWED_DEFAULT, SILENCE_MIN_DEFAULT};
use crate::error::LabError;
use crate::limit_pass::LimitTrials;
use crate::load_command::LoadCommand;
use crate::matrix::Candidate;
use crate::metric::{Meaning, Metric};
use crate::options::SubjectOptions;
use crate::plan::Lengths;
use crate::repeat::Earlier;
use crate::subject::Launcher;
use crate::target::Target;
use crate::variant::Variant;
use crate::{allocator, matrix, plan, suitability};

/// Ten rounds until the first interim analysis: the exact signed-rank interval of 10 pairs has 95 % coverage and, for effects as large
/// as allocators show, 80 % power at 2 %.
pub const ROUNDS_DEFAULT: u32 = 10;
/// Half a minute of it goes to trying out the candidates.
pub const TIME_BUDGET_DEFAULT: Duration = Duration::from_secs(300);
/// Enough connections that group commit has something to group.
pub const CONNECTIONS_DEFAULT: usize = 64;
/// Enough for what is given back at once, and little of the budget.
pub const IDLE_DEFAULT: Duration = Duration::from_millis(250);
/// Slices and blocks count at least so long.
const COUNTED_MIN: Duration = Duration::from_millis(20);
/// The part of the time budget that flame graphs may take.
const PROFILE_SHARE: u32 = 5;
/// The part of the time budget that counting instructions may take.
const COUNTING_SHARE: u32 = 10;
/// Where most requests fail, the others say nothing of the server.
const ERRORS_ALLOWED_MAX: f64 = 0.5;
/// More phases or cycles are a day's work.
const PHASES_MAX: usize = 16;
const CYCLES_MAX: u32 = 100;
/// Memory is sampled ten to twenty times a second.
const PHASE_MIN: Duration = Duration::from_millis(500);
/// The size of one value: a small document.
pub const VALUE_BYTES_DEFAULT: usize = 1024;

/// One comparison.
#[derive(Clone, Debug)]
pub struct CompareConfig {
    /// The server.
    pub target: Target,
    /// Names for `--allocators`; `None` takes every allocator found.
    pub allocators: Option<Vec<String>>,
    /// Compare this allocator with its settings that matter (`--settings`), instead of `allocators`.
    pub settings_of: Option<String>,
    /// Candidates that are no allocators: the server in another environment, or another command.
    pub variants: Vec<Variant>,
    /// Whether each of them is run under every allocator too.
    pub is_crossed: bool,
    /// Allocators that size themselves by the number of CPUs do so as on a machine of so many; `None`: of this one.
    pub as_cpus: Option<u32>,
    /// How the user's server is started, asked and stopped.
    pub options: SubjectOptions,
    /// The user's own load program; `None`: our generator.
    pub load_command: Option<LoadCommand>,
    /// Settings of our pools, each with every allocator; `None`: off with every allocator, and on with the baseline's.
    /// Ignored for a third-party server.
    pub pools: Option<Vec<PoolSetting>>,
    /// Rounds; `None`: as many as the verdicts take, within the time budget.
    pub rounds: Option<u32>,
    /// Up to which difference two candidates count as the same.
    pub margins: Margins,
    /// Bound on the whole comparison, preflight included.
    pub time_budget: Duration,
    /// Connections of the generator.
    pub connections: usize,
    /// The share of requests that may fail before a candidate does.
    pub errors_allowed: f64,
    /// A candidate without any response for so long hangs; more where the baseline is slow.
    pub silence_min: Duration,
    /// Requests per second of the latency phases; `None` takes 0.4 of what the slowest can do.
    pub rate_per_s: Option<f64>,
    /// Size of the values written to our server.
    pub value_bytes: usize,
    /// Rates and work that are given and not found; those of `earlier` come first.
    pub work: Option<Settings>,
    /// An earlier record of the same question to check against.
    pub earlier: Option<Earlier>,
    /// Whether to search for the smallest memory limit that each candidate survives, and how often it has to.
    pub limit_trials: Option<LimitTrials>,
    /// Phases in each run (`--phases`) instead of equal work and slices.
    pub phases: Option<PhasePlan>,
    /// Between the end of the work and the reading of what was retained.
    pub idle: Duration,
    /// Lengths of phases and slices that are given and not found.
    pub lengths: Lengths,
    /// How often each candidate's instructions are counted under an emulator; `None`: where the
    /// processor's counters are hidden, as often as a tenth of the time budget pays.
    pub emulated_counts: Option<u32>,
    /// Flame graphs of the candidates of interest in the report, for a part of the time budget.
    pub profile: bool,
    /// The file that keeps two comparisons on one machine apart; `None`: nothing does.
    pub lock: Option<PathBuf>,
    /// Where report, results, records and logs go.
    pub out: PathBuf,
    /// Where the data of our server lie; `None`: in memory if there is room, else in `out`.
    pub data: Option<PathBuf>,
    /// Seed of all random choices; `None` draws one, and the record says which.
    pub seed: Option<u64>,
    /// How long a target may take until it serves.
    pub ready_bound: Duration,
    /// The program that has the `launch` and `serve` subcommands.
    pub launcher: Launcher,
    /// Version for the record.
    pub version: String,
    /// Commit for the record, if known.
    pub commit: Option<String>,
    /// The command line that repeats this comparison.
    pub command: Vec<String>,
}

impl CompareConfig {
    /// The defaults for `target`, run by `launcher`.
    #[must_use]
    pub fn new(target: Target, launcher: Launcher) -> Self {
        Self {
            target,
            allocators: None,
            settings_of: None,
            variants: Vec::new(),
            is_crossed: false,
            as_cpus: None,
            options: SubjectOptions::default(),
            load_command: None,
            pools: None,
            rounds: None,
            margins: Margins::default(),
            time_budget: TIME_BUDGET_DEFAULT,
            connections: CONNECTIONS_DEFAULT,
            errors_allowed: ERRORS_ALLOWED_DEFAULT,
            silence_min: SILENCE_MIN_DEFAULT,
            rate_per_s: None,
            value_bytes: VALUE_BYTES_DEFAULT,
            work: None,
            earlier: None,
            limit_trials: None,
            phases: None,
            idle: IDLE_DEFAULT,
            lengths: Lengths::default(),
            emulated_counts: None,
            profile: false,
            lock: None,
            out: PathBuf::from("millpond-report"),
            data: None,
            seed: None,
            ready_bound: Duration::from_secs(20),
            launcher,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: None,
            command: Vec::new(),
        }
    }

    /// Refuses what can be refused without starting anything.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        let refuse = |sentence: &str| Err(LabError::Setting(sentence.to_owned()));
        if self.connections == 0 {
            return refuse("--connections 0 would send nothing; give at least 1");
        }
        if !(0.0..=ERRORS_ALLOWED_MAX).contains(&self.errors_allowed) {
            return refuse("--errors-allowed has to be between 0% and 50%");
        }
        if self.rounds == Some(0) {
            return refuse("--rounds 0 would measure nothing; leave it out for the usual ten");
        }
        if self
            .rate_per_s
            .is_some_and(|rate| !rate.is_finite() || rate <= 0.0)
        {
            return refuse("--rate needs a number of requests per second above 0");
        }
        let counted = [
            ("--slice", self.lengths.slice),
            ("--block", self.lengths.block),
        ];
        for (flag, length) in counted {
            if length.is_some_and(|length| length < COUNTED_MIN) {
                return refuse(&format!(
                    "{flag} has to be {} ms or more: readings at both ends take their time",
                    COUNTED_MIN.as_millis()
                ));
            }
        }
        self.check_phases()?;
        self.check_limits()?;
        self.options.check()?;
        for variant in &self.variants {
            variant.check(&self.target, &self.options.environment)?;
        }
        self.check_counts()?;
        self.check_load_command()?;
        match &self.target {
            Target::Entity { .. } if self.pools.as_ref().is_some_and(Vec::is_empty) => {
                refuse("--pools needs on, off, or both")
            }
            Target::Entity { .. } => Ok(()),
            Target::Command { words, requests } => {
                requests.check()?;
                let Some(program) = words.first() else {
                    return refuse("no command after --: nothing to start under each allocator");
                };
                let Some(file) = on_path(Path::new(program)) else {
                    return refuse(&format!("the command {} was not found", program.display()));
                };
                // A file that cannot be read may still run; its processes are checked then.
                match suitability::of_program(&file) {
                    Ok(Some(reason)) if !self.preloads_nothing() => {
                        let program = program.display();
                        let others = match self.variants.is_empty() {
                            true => "",
                            false => "; --allocators glibc compares what --candidate names alone",
                        };
                        refuse(&format!(
                            "allocators cannot be compared under {program}: it {reason}{others}"
                        ))
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    /// A load program that says nothing is not compared by.
    fn check_load_command(&self) -> Result<(), LabError> {
        if let Some(load) = &self.load_command {
            let is_measure = |metric: &Metric| metric.meaning != Meaning::Requests;
            if !load.metrics.iter().any(is_measure) {
                return Err(LabError::Setting(
                    "--load-cmd needs a --load-metric: what its output says that is to be compared, \
                     as in 'throughput=regex:([0-9.]+) requests per second'"
                        .to_owned(),
                ));
            }
        }
        Ok(())
    }

    /// A search for limits needs load of ours, and no limit of the user's.
    fn check_limits(&self) -> Result<(), LabError> {
        let refuse = |sentence: &str| Err(LabError::Setting(sentence.to_owned()));
        match (self.limit_trials, &self.load_command) {
            (Some(_), Some(_)) => {
                refuse("--find-limit needs the lab's own load, and no --load-cmd")
            }
            (Some(_), None) if self.options.memory_limit_bytes.is_some() => refuse(
                "--find-limit looks for the limit that --memory-limit names: give one of them",
            ),
            _ => Ok(()),
        }
    }

    /// Phases that show no floor are refused, and what has phases of its own.
    fn check_phases(&self) -> Result<(), LabError> {
        let Some(plan) = &self.phases else {
            return Ok(());
        };
        let refuse = |sentence: String| Err(LabError::Setting(sentence));
        if self.earlier.is_some() {
            return refuse(
                "--phases is not compared with earlier records (--baseline) yet".to_owned(),
            );
        }
        if !(1..=PHASES_MAX).contains(&plan.phases.len())
            || !(1..=CYCLES_MAX).contains(&plan.cycles)
        {
            return refuse(format!(
                "--phases takes 1 to {PHASES_MAX} phases, and --cycles 1 to {CYCLES_MAX}"
            ));
        }
        let shortest = plan.phases.iter().map(|spec| spec.duration_ns).min();
        if shortest.is_some_and(|shortest| Duration::from_nanos(shortest) < PHASE_MIN) {
            return refuse(format!(
                "--phases: each has to last {} ms or more, or there are too few samples of memory in it",
                PHASE_MIN.as_millis()
            ));
        }
        let behind = plan.last_burst().map(|place| plan.phases.len() - place - 1);
        if behind == Some(0) || behind.is_none() && !plan.has_churn() {
            return refuse(
                "--phases needs a burst and a phase behind it, in which memory can come back, as in \
                 steady:20s,burst:5s,idle:15s, or a churn between two steady phases"
                    .to_owned(),
            );
        }
        let mut steady =
            (0..plan.phases.len()).filter(|&place| plan.phases[place].kind == PhaseKind::Steady);
        if plan.has_churn() {
            let fresh = steady.any(|place| !plan.is_aged(0, place));
            let aged = plan.cycles > 1 || steady.any(|place| plan.is_aged(0, place));
            if !(fresh && aged) {
                return refuse(
                    "--phases: a churn needs a steady phase before it and one behind it, in its cycle or the next, as in \
                     steady:10s,churn:5s,steady:10s"
                        .to_owned(),
                );
            }
        }
        Ok(())
    }

    /// True if the server is compared in its variants alone: then it needs no malloc that can be replaced.
    fn preloads_nothing(&self) -> bool {
        let is_native = |name: &String| [GLIBC, NATIVE, "malloc"].contains(&name.as_str());
        let names = self.allocators.as_ref();
        !self.variants.is_empty() && names.is_some_and(|names| names.iter().all(is_native))
    }

    /// Instructions that cannot be counted are not asked for.
    fn check_counts(&self) -> Result<(), LabError> {
        let refuse = |sentence: &str| Err(LabError::Setting(sentence.to_owned()));
        match self.emulated_counts {
            None | Some(0) => Ok(()),
            Some(_) if self.load_command.is_some() => refuse(
                "--emulated-counts needs the lab's own load: a program of yours (--load-cmd) would \
                 take fifty times as long against an emulated server",
            ),
            Some(_) if valgrind().is_none() => refuse(
                "--emulated-counts needs valgrind, which is not here: install the package valgrind",
            ),
            Some(_) => Ok(()),
        }
    }

    /// The share of the time budget for counting instructions, unless it was requested.
    pub(crate) fn counting_allowance(&self) -> Duration {
        self.time_budget / COUNTING_SHARE
    }

    /// The share of the time budget for the flame graphs.
    pub(crate) fn profile_allowance(&self) -> Duration {
        match self.profile {
            true => self.time_budget / PROFILE_SHARE,
            false => Duration::ZERO,
        }
    }

    /// The candidates, if these allocators are compared.
    pub(crate) fn candidates(&self, allocators: &[Allocator]) -> Result<Vec<Candidate>, LabError> {
        let mut list = match (&self.target, &self.pools) {
            (Target::Command { .. }, _) => matrix::candidates(allocators, &[]),
            // Pools are another question.
            (Target::Entity { .. }, None) if self.settings_of.is_some() => {
                matrix::candidates(allocators, &[PoolSetting::Off])
            }
            (Target::Entity { .. }, None) => matrix::usual_candidates(allocators),
            (Target::Entity { .. }, Some(pools)) => matrix::candidates(allocators, pools),
        };
        matrix::add_variants(&mut list, &self.variants, self.is_crossed);
        match matrix::name_given_twice(&list) {
            None => Ok(list),
            Some(name) => Err(LabError::Setting(format!(
                "two candidates are called {name}: give what --candidate names a name of its own"
            ))),
        }
    }

    /// The allocators to compare; known ones that are not here, extra ones that were not named, and settings without
    /// effect are named in `warnings`.
    pub(crate) fn chosen_allocators(
        &self,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<Allocator>, LabError> {
        if let Some(name) = &self.settings_of {
            return self.chosen_settings(name, warnings);
        }
        if let Some(names) = &self.allocators {
            if names.is_empty() {
                return Err(LabError::Setting(
                    "--allocators needs at least one name".to_owned(),
                ));
            }
            let mut chosen = Vec::new();
            for mut one in allocator::select_with_settings(names)? {
                match one.prove_kind(&self.launcher) {
                    Ok(()) => {}
                    // Not named by the user.
                    Err(reason) if names.iter().any(|name| name == allocator::ALL) => {
                        warnings.push(format!("not compared: {reason}"));
                        continue;
                    }
                    Err(reason) => return Err(LabError::Setting(reason)),
                }
                warnings.extend(one.without_effect(&self.launcher));
                warnings.extend(one.public_reports());
                warnings.extend(one.frozen_threshold());
                chosen.push(one);
            }
            return Ok(chosen);
        }
        let missing = allocator::missing();
        warnings.extend(
            missing
                .iter()
                .map(|one| format!("not installed, hence not compared: {one}")),
        );
        Ok(usual(allocator::discover(), warnings))
    }

    /// The allocator as it is, then with each of its settings. Refused settings are named in `warnings`, and so are
    /// those known to have no effect.
    fn chosen_settings(
        &self,
        name: &str,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<Allocator>, LabError> {
        let list = allocator::settings_of(name)?;
        if !list.left_out.is_empty() {
            let settings: Vec<&str> = list
                .left_out
                .iter()
                .map(|setting| setting.trim_start_matches(':'))
                .collect();
            warnings.push(format!(
                "settings that this version of {name} does not take are not compared: {}",
                settings.join("; ")
            ));
        }
        for one in &list.allocators {
            warnings.extend(one.without_effect(&self.launcher));
        }
        warnings.extend(list.allocators.first().and_then(Allocator::public_reports));
        Ok(list.allocators)
    }

    /// The shortest comparison of so many candidates that can give a verdict, the second baseline
    /// included.
    fn shortest(&self, candidates: usize) -> Duration {
        // A load program of the user's is one phase.
        let operations = match self.load_command {
            Some(_) => 1,
            None => self.target.operations().len(),
        };
        plan::shortest(
            narrow(candidates),
            narrow(operations),
            self.rounds,
            self.idle,
        )
    }

    /// Refuses a time that is shorter than trying out so many candidates, including the second
    /// baseline, which is not tried. With a given number of rounds all are made.
    pub(crate) fn check_time(&self, candidates: usize) -> Result<(), LabError> {
        let tried = candidates.saturating_sub(1);
        let trying = plan::tried_out(narrow(tried));
        if self.rounds.is_some() || trying <= self.time_budget {
            return Ok(());
        }
        let minutes = self.shortest(candidates).as_secs().div_ceil(60);
        Err(LabError::Setting(format!(
            "--time-budget {:?} is over before {tried} candidates are tried out, which takes about {} s: \
             give it {minutes}m, which is enough for a verdict, or compare fewer (--allocators, --pools)",
            self.time_budget,
            trying.as_secs_f64().ceil(),
        )))
    }
}

/// The usual allocators of `found`. Each candidate more makes every interval wider in the same time, so the
/// others take part only if they are named.
fn usual(found: Vec<Allocator>, warnings: &mut Vec<String>) -> Vec<Allocator> {
    let (extra, usual): (Vec<_>, Vec<_>) = found.into_iter().partition(Allocator::is_extra);
    if !extra.is_empty() {
        let names: Vec<&str> = extra.iter().map(|one| one.name.as_str()).collect();
        warnings.push(format!(
            "installed, but compared only if named: {}; --allocators all compares all that are installed, \
             which takes a longer --time-budget for the same precision",
            names.join(", ")
        ));
    }
    usual
}

fn narrow(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Where valgrind is, if it is anywhere.
pub(crate) fn valgrind() -> Option<PathBuf> {
    on_path(Path::new("valgrind"))
}

/// The file that a shell would run.
pub(crate) fn on_path(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
}

// `--as-cpus N`: allocators that size themselves by the number of CPUs get the setting that N CPUs would give them.
//
// glibc's malloc makes up to 8 arenas per CPU (`malloc/arena.c`, NARENAS_FROM_NCORES on 64 bit), jemalloc 4 (`opt_narenas`
// in `src/jemalloc.c`); one CPU is 1 arena of jemalloc's. The other known allocators have a heap or a cache per thread,
// or a number that is compiled in, so there is nothing to set. Only what arenas change is seen then: memory, mostly.
// Locks that many CPUs contend for, cache lines that move between them and their TLBs are not.

/// The settings that a candidate derives from CPUs, as decided.
enum Outcome {
    /// `arena_max=512`.
    Set(String),
    /// The user has decided it.
    GivenBy(String),
    /// Nothing depends on the number of CPUs.
    Nothing,
}

/// Gives each candidate the settings of `cpus` CPUs, unless the user decided them, by a setting of the candidate or by a
/// variable of `given`, which every candidate gets. Returns the sentences that say so.
pub(crate) fn apply(
    candidates: &mut [Candidate],
    cpus: u32,
    given: &[(OsString, OsString)],
) -> Vec<String> {
    let (mut set, mut kept, mut nothing) = (Vec::new(), Vec::new(), Vec::new());
    for candidate in candidates {
        let outcome = settle(candidate, cpus, given);
        if candidate.role == Role::BaselineAgain {
            continue;
        }
        let name = &candidate.name;
        match outcome {
            Outcome::Set(setting) => set.push(format!("{name} gets {setting}")),
            Outcome::GivenBy(what) => kept.push(format!("{name} keeps {what}")),
            Outcome::Nothing => nothing.push(name.clone()),
        }
    }
    let mut lines = Vec::new();
    set.append(&mut kept);
    if !set.is_empty() {
        lines.push(format!("--as-cpus {cpus}: {}", set.join("; ")));
    }
    if !nothing.is_empty() {
        lines.push(format!(
            "--as-cpus {cpus} changes nothing in {}: no setting of theirs follows from the number of CPUs",
            nothing.join(", ")
        ));
    }
    lines.push(format!(
        "--as-cpus {cpus} shows what the arenas of {cpus} CPUs cost; waiting for locks, cache lines that move between \
         CPUs and TLB misses on such a machine are not shown, and a runtime (JVM, Go, node) sees the CPUs that are here"
    ));
    lines
}

fn settle(candidate: &mut Candidate, cpus: u32, given: &[(OsString, OsString)]) -> Outcome {
    let own = candidate.variant.iter().flat_map(Variant::variables);
    let variables: Vec<&OsStr> = own.chain(given).map(|(name, _)| name.as_ref()).collect();
    let Some(setting) = candidate.allocator.setting_for_cpus(cpus) else {
        return Outcome::Nothing;
    };
    if let Some(value) = candidate.allocator.setting(setting.key) {
        return Outcome::GivenBy(format!("{}={value}", setting.key));
    }
    if let Some(name) = setting
        .read_from
        .iter()
        .find(|name| variables.contains(&OsStr::new(name)))
    {
        return Outcome::GivenBy((*name).to_owned());
    }
    let text = format!("{}={}", setting.key, setting.value);
    candidate.allocator.add_cpu_setting(&setting);
    Outcome::Set(text)
}

#[cfg(test)]
#[path = "tests/config.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/as_cpus.rs"]
mod as_cpus_tests;
