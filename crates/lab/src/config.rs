//! What the user wants compared, and the defaults with their reasons.

use std::path::{Path, PathBuf};
use std::time::Duration;

use millpond_measure::record::{Margins, PhaseKind, PhasePlan, PoolSetting, Settings};

use crate::allocator::{self, Allocator, GLIBC, NATIVE};
use crate::drive::{ERRORS_ALLOWED_DEFAULT, SILENCE_MIN_DEFAULT};
use crate::error::LabError;
use crate::limit_pass::LimitTrials;
use crate::load_command::LoadCommand;
use crate::matrix::{self, Candidate};
use crate::metric::{Meaning, Metric};
use crate::options::SubjectOptions;
use crate::plan::{self, Lengths};
use crate::repeat::Earlier;
use crate::subject::Launcher;
use crate::suitability;
use crate::target::Target;
use crate::variant::Variant;

/// Ten rounds until the first look: the exact signed-rank interval of 10 pairs has 95 % coverage and, for effects as large
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
    /// Settings of our pools, each with every allocator; `None`: off with every allocator, and on with the
    /// baseline's. Ignored for somebody else's server.
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
    /// Without any answer for so long a candidate hangs; more where the baseline is slow.
    pub silence_min: Duration,
    /// Requests per second of the latency phases; `None` takes 0.4 of what the slowest can do.
    pub rate_per_s: Option<f64>,
    /// Size of the values written to our server.
    pub value_bytes: usize,
    /// Rates and work that are given and not found; those of `earlier` come first.
    pub work: Option<Settings>,
    /// An earlier record of the same question to check against.
    pub earlier: Option<Earlier>,
    /// Whether the smallest memory limit is looked for that each candidate survives, and how often it has to.
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
                // A file that cannot be read may still run; its processes are looked at then.
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

    /// What counting instructions may take of the time budget, unless it was asked for.
    pub(crate) fn counting_allowance(&self) -> Duration {
        self.time_budget / COUNTING_SHARE
    }

    /// What the flame graphs may take of the time budget.
    pub(crate) fn profile_allowance(&self) -> Duration {
        match self.profile {
            true => self.time_budget / PROFILE_SHARE,
            false => Duration::ZERO,
        }
    }

    /// Who is compared, if these allocators are.
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

    /// The allocators to compare; known ones that are not here, extra ones that nobody named, and settings
    /// without effect are named in `warnings`.
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
                    // Nobody asked for this one.
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

    /// The allocator as it is, then with each of its settings. What it does not take is named in `warnings`, and so is what
    /// is known to have no effect.
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

    /// Refuses a time that is over before so many candidates are tried out, the second baseline
    /// included, which is not. Who names a number of rounds waits for them.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> Vec<Allocator> {
        let library = |name: &str| Allocator::preloaded(name, format!("/lib/{name}.so").into());
        let names = ["jemalloc", "tcmalloc", "mimalloc", "mempool", "snmalloc"];
        let built = ["mimalloc2", "mimalloc3", "rpmalloc"];
        let mut found = vec![Allocator::native(allocator::GLIBC)];
        found.extend(names.into_iter().chain(built).map(library));
        found
    }

    /// Goal: a budget in which nothing can be measured is refused with one that is enough, before
    /// anything is started; a number of rounds that was asked for takes its time.
    #[test]
    fn a_budget_without_room_for_a_round_is_refused() {
        let launcher = Launcher {
            program: PathBuf::from("/bin/true"),
        };
        let mut config = CompareConfig::new(Target::Entity { extra: Vec::new() }, launcher);
        assert!(config.check_time(11).is_ok());
        config.time_budget = Duration::from_secs(1);
        let told = config.check_time(11).unwrap_err().to_string();
        for part in [
            "--time-budget 1s",
            "10 candidates",
            "about 25 s",
            "--allocators",
        ] {
            assert!(told.contains(part), "{told}");
        }
        let minutes = told.split_once("give it ").unwrap().1;
        let minutes: u64 = minutes.split_once('m').unwrap().0.parse().unwrap();
        config.time_budget = Duration::from_secs(minutes * 60);
        assert!(config.shortest(11) <= config.time_budget);
        config.time_budget = Duration::from_secs(1);
        config.rounds = Some(2);
        assert!(config.check_time(11).is_ok());
    }

    #[test]
    fn a_load_program_of_the_users_is_refused() {
        let launcher = Launcher {
            program: PathBuf::from("/bin/true"),
        };
        let mut config = CompareConfig::new(Target::Entity { extra: Vec::new() }, launcher);
        config.load_command = Some(LoadCommand {
            line: "true".to_owned(),
            metrics: Vec::new(),
            timeout: Duration::from_secs(1),
            warm_ups: 0,
        });
        let mut check = |wanted| {
            config.emulated_counts = wanted;
            config.check_counts()
        };
        let error = check(Some(3)).unwrap_err().to_string();
        assert!(error.contains("--load-cmd"), "{error}");
        assert!(check(Some(0)).is_ok());
        assert!(check(None).is_ok());
    }

    /// Goal: a server that no allocator can be given is compared in its variants if these are all; otherwise the
    /// refusal says so.
    #[test]
    fn variants_need_no_malloc_of_ours() {
        let launcher = Launcher {
            program: PathBuf::from("/bin/true"),
        };
        let mut config = CompareConfig::new(Target::Entity { extra: Vec::new() }, launcher);
        config.allocators = Some(vec!["glibc".to_owned()]);
        assert!(!config.preloads_nothing());
        config.variants = vec![Variant::parse("gc=env:GOGC=50").unwrap()];
        assert!(config.preloads_nothing());
        let list = config.candidates(&found()[..1]).unwrap();
        assert_eq!(list.last().unwrap().name, "gc without pools");
        config.variants.push(config.variants[0].clone());
        let told = config.candidates(&found()[..1]).unwrap_err().to_string();
        assert!(told.contains("two candidates are called gc"), "{told}");
        config.allocators = Some(vec!["glibc".to_owned(), "jemalloc".to_owned()]);
        assert!(!config.preloads_nothing());
    }

    /// Goal: settings of one allocator have it as it is for their baseline, pools off with our own server; what the version
    /// does not take is said, and what has no list is refused before anything starts.
    #[test]
    fn settings_are_compared_with_their_default() {
        let launcher = Launcher {
            program: PathBuf::from("/bin/true"),
        };
        let mut config = CompareConfig::new(Target::Entity { extra: Vec::new() }, launcher);
        config.settings_of = Some("glibc".to_owned());
        let chosen = config.chosen_allocators(&mut Vec::new()).unwrap();
        let list = config.candidates(&chosen).unwrap();
        assert_eq!(list.len(), chosen.len() + 1, "the baseline twice");
        assert_eq!(list[0].name, "glibc without pools");
        assert!(list.iter().all(|one| one.pools == Some(PoolSetting::Off)));
        assert!(
            list[2..]
                .iter()
                .all(|one| !one.allocator.changes.is_empty())
        );
        assert!(list[..2].iter().all(|one| one.allocator.changes.is_empty()));
        let mut warnings = Vec::new();
        if let Ok(list) = allocator::settings_of("mimalloc") {
            config.settings_of = Some("mimalloc".to_owned());
            config.chosen_allocators(&mut warnings).unwrap();
            let is_said = |setting: &&str| {
                let setting = setting.trim_start_matches(':');
                let mut lines = warnings.iter();
                lines.any(|line| line.contains("not compared") && line.contains(setting))
            };
            assert!(list.left_out.iter().all(is_said), "{warnings:?}");
        }
        config.settings_of = Some("mempool".to_owned());
        let told = config.chosen_allocators(&mut warnings).unwrap_err();
        assert!(told.to_string().contains("--settings mempool"), "{told}");
    }

    /// Goal: without names the usual five are compared, however many are installed; the others are named.
    #[test]
    fn extra_allocators_are_compared_if_named() {
        let mut warnings = Vec::new();
        let names = usual(found(), &mut warnings)
            .into_iter()
            .map(|one| one.name);
        assert_eq!(
            names.collect::<Vec<_>>(),
            ["glibc", "jemalloc", "tcmalloc", "mimalloc", "mempool"]
        );
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("snmalloc, mimalloc2, mimalloc3, rpmalloc"));
        assert_eq!(usual(found()[..2].to_vec(), &mut warnings), found()[..2]);
        assert_eq!(warnings.len(), 1);
    }
}
