//! The whole comparison, top down: try, count, plan, run the rounds, judge, write.
//!
//! `cli` calls `compare` with what the user asked and shows the events and the outcome. Ctrl-C
//! arrives as a flag: the run in hand ends at once, what was measured is analysed as usual.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use millpond_measure::environment::Environment;
use millpond_measure::noise;
use millpond_measure::record::{
    Coexistence, ComparisonRecord, FoundLimit, InterimSettings, Operation, PhaseHeap, Reach, Role,
    RoundStatus, Settings, Subject as SubjectRecord,
};
use millpond_measure::regression::check_circumstances;
use millpond_measure::statistics::InterimAnalyses;
use millpond_measure::units::format_duration_ns;

use crate::allocator;
use crate::cgroup::CgroupRoot;
use crate::cgroup::MemoryGroupRoot;
use crate::churn;
use crate::config;
use crate::config::CompareConfig;
use crate::drive::{ANSWER_TIMEOUT, Driver};
use crate::embedded::PrivateDirectory;
use crate::error::{LabError, RunError};
use crate::event::LabEvent;
use crate::generation::Generation;
use crate::heap_pass::{self, HeapCosts};
use crate::instruction_pass::{self, InstructionCounts, Occasion};
use crate::isolation::Awake;
use crate::isolation::Disturbances;
use crate::limit_pass::{self, LimitSearch};
use crate::lock;
use crate::lock::MachineLock;
use crate::matrix::{self, Candidate};
use crate::outcome::{self, Collection, CompareOutcome};
use crate::output_directory::DataPlace;
use crate::output_directory::Journal;
use crate::output_directory::OutputDirectory;
use crate::placement::CoreDistance;
use crate::placement::Placement;
use crate::plan::Reserve;
use crate::plan::{Known, Plan, REPORT_RESERVE};
use crate::preflight::{self, Findings};
use crate::profile::{FLAMES_DIRECTORY, ProfileRequest, after_rounds};
use crate::repeat;
use crate::rounds::{Course, Rounds, nanoseconds};
use crate::started_candidate::RunContext;
use crate::target::Target;

/// How far beyond its budget a comparison may drift before it drops rounds.
const BUDGET_TOLERANCE: f64 = 1.05;
/// The fewest rounds that can give a verdict may take so many times the budget; with more the user is asked.
const OVER_BUDGET_MAX: u32 = 3;
/// The part of the time budget that finding every candidate's steady state may take.
const STEADYING_SHARE: u32 = 20;
/// An idle time from which on every allocator here has shown what it gives back.
const IDLE_LONG: Duration = Duration::from_secs(11);

/// Compares `config.target` under every allocator. `events` receives progress; raising `stop` ends
/// the comparison within a second or so, with what was measured until then.
pub fn compare(
    config: &CompareConfig,
    events: &mut dyn FnMut(&LabEvent),
    stop: &AtomicBool,
) -> Result<CompareOutcome, LabError> {
    let mut lab = Lab::new(config, stop)?;
    let result = lab.run(events);
    lab.workshop.tidy();
    result
}

struct Lab<'a> {
    config: &'a CompareConfig,
    stop: &'a AtomicBool,
    began: Instant,
    started_unix_s: u64,
    seed: u64,
    workshop: RunContext,
    candidates: Vec<Candidate>,
    warnings: Vec<String>,
    /// As it was when the comparison began.
    environment: Environment,
    /// Held to the end.
    _lock: Option<MachineLock>,
    /// The same.
    _awake: Option<Awake>,
}

impl<'a> Lab<'a> {
    /// Everything that can be refused without starting a target.
    fn new(config: &'a CompareConfig, stop: &'a AtomicBool) -> Result<Self, LabError> {
        config.check()?;
        let mut warnings = Vec::new();
        let lock = MachineLock::take_or_warn(config.lock.as_deref(), &mut warnings)?;
        let (environment, awake) = capture(config)?;
        warnings.extend(config.options.inherited.lines());
        let allocators = config.chosen_allocators(&mut warnings)?;
        let mut candidates = config.candidates(&allocators)?;
        if let Some(cpus) = config.as_cpus {
            let given = config.options.given();
            warnings.extend(config::apply(&mut candidates, cpus, &given));
        }
        config.check_time(candidates.len())?;
        let out = OutputDirectory::claim(&config.out)?;
        let mut target = config.target.clone();
        let data = DataPlace::choose(config.data.as_deref(), &out, &target, candidates.len())?;
        if data.is_disk_for_want_of_memory() {
            target = target.without_syncs();
        }
        warnings.extend(data.note.clone());
        let seed = config.seed.unwrap_or_else(|| fastrand::u64(..));
        let placement = config.options.placement();
        let cgroups = CgroupRoot::find();
        warnings.extend(cgroups.as_ref().err().map(|reason| {
            format!("{reason}: CPU time and memory are the sums over the processes that live")
        }));
        if placement.server.is_empty() && placement.unpinned == 0 {
            warnings.push(
                "server and generator share one CPU: throughput and latency include the \
                 generator's own work"
                    .to_owned(),
            );
        }
        let coexistence = lock::untried(&target, &config.options.environment);
        let workshop = RunContext {
            driver: driver(config, target, placement),
            launcher: config.launcher.clone(),
            options: config.options.clone(),
            load_command: config.load_command.clone(),
            memory_groups: memory_groups(cgroups.as_ref().ok()),
            cgroups: cgroups.ok(),
            ready_bound: config.ready_bound,
            out,
            data,
            random: fastrand::Rng::with_seed(seed),
            coexistence,
            disturbances: Disturbances::default(),
            nearest: CoreDistance::default(),
            reserve: Reserve::default(),
            address_space_bytes: Cell::new(None),
        };
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        let lab = Self {
            config,
            stop,
            began: Instant::now(),
            started_unix_s: since_epoch.map_or(0, |duration| duration.as_secs()),
            seed,
            workshop,
            candidates,
            warnings,
            environment,
            _lock: lock,
            _awake: awake,
        };
        lab.refuse_another_question()?;
        lab.workshop.prepare()?;
        // Drawings of an earlier comparison do not belong to this one.
        lab.workshop.out.remove_folder(FLAMES_DIRECTORY)?;
        Ok(lab)
    }

    /// With an earlier record: what is known before anything is started has to be as it was then.
    fn refuse_another_question(&self) -> Result<(), LabError> {
        let Some(earlier) = &self.config.earlier else {
            return Ok(());
        };
        let mut now = ComparisonRecord::new(&self.config.version);
        now.subject = self.subject_record(&Findings::default());
        now.settings = self.load_settings();
        now.environment.clone_from(&self.environment);
        Ok(check_circumstances(&now, &earlier.record)?)
    }

    /// Limits that cannot be set.
    fn refuse_limits(&self) -> Result<(), LabError> {
        let options = &self.config.options;
        let is_limited = self.config.limit_trials.is_some() || options.memory_limit_bytes.is_some();
        match limit_pass::obstacle(&self.workshop).filter(|_| is_limited) {
            Some(sentence) => Err(LabError::Setting(sentence)),
            None => Ok(()),
        }
    }

    fn run(&mut self, events: &mut dyn FnMut(&LabEvent)) -> Result<CompareOutcome, LabError> {
        self.refuse_limits()?;
        for warning in &self.warnings {
            events(&LabEvent::Note(warning.clone()));
        }
        let findings = self.try_out(events)?;
        let mut journal = Journal::create(&self.workshop.raw())?;
        let heap = self.heap_passes(&findings.slowest_per_s, &mut journal, events)?;
        refuse_out_of_reach(&heap)?;
        let counts = self.instruction_passes(&findings, &mut journal, events)?;
        let (mut plan, known) = self.plan(&findings);
        let then = self.config.earlier.as_ref().map(|it| &it.record.settings);
        if let Some(work) = then.or(self.config.work.as_ref()) {
            repeat::take_over(&mut plan, self.config.target.operations(), work);
        }
        let count = u32::try_from(self.candidates.len()).unwrap_or(u32::MAX);
        self.refuse_far_too_long(&plan, count, &findings)?;
        events(&LabEvent::Planned {
            rounds: plan.rounds,
            runs: plan.rounds * count,
            lines: plan.describe(&self.operation_labels(), count, &known),
            eta_ns: nanoseconds(plan.duration(count)),
        });
        let phase_heaps = self.trace_phases(&plan, events)?;
        let limits = self.find_limits(&plan, events)?;
        let schedule = matrix::schedule(self.candidates.len(), plan.rounds, self.seed);
        let mut rounds = Rounds::new(&self.candidates, &plan, journal);
        let course = Course {
            candidates: &self.candidates,
            plan: &plan,
            schedule: &schedule,
            is_fixed: self.config.rounds.is_some(),
            margins: self.config.margins,
            fill_until: self.fill_until(),
            has_small_backlog: findings.small_backlog.is_some(),
            deadline: self.end_after(self.config.time_budget.mul_f64(BUDGET_TOLERANCE)),
            stop: self.stop,
        };
        rounds.run(&course, &mut self.workshop, events)?;
        events(&LabEvent::Analysing);
        self.add_passes(&mut rounds.collection, &findings, &heap, &counts);
        rounds.collection.add_phase_heaps(phase_heaps);
        rounds.collection.add_limits(limits);
        let mut record = self.record(&findings, &plan, &schedule);
        if let Some(description) = &counts.description {
            record.counters = format!("{}; {description}", record.counters);
        }
        record.settings.schedule.truncate(rounds.begun as usize);
        record.settings.looks.done = rounds.analysed_after;
        record.settings.looks.stopped = rounds.stopped;
        record.settings.rounds_done = rounds
            .collection
            .rounds_done(plan.rounds, &rounds.left_after);
        record.left_out.extend(rounds.left_out);
        record.candidates = rounds.collection.finish();
        record.interrupted = self.stop.load(Ordering::Relaxed);
        record.analyse();
        let not_aged = churn::warnings(&record.candidates);
        record.analysis.warnings.extend(not_aged);
        self.draw_flame_graphs(&mut record, &findings, events)?;
        record.duration_ns = nanoseconds(self.began.elapsed());
        let earlier = self.config.earlier.as_ref();
        let mut outcome =
            outcome::finish(record, earlier, self.workshop.out.path(), rounds.failures)?;
        // After the rounds, too: what was asked for is not all there.
        outcome.interrupted |= self.stop.load(Ordering::Relaxed);
        Ok(outcome)
    }

    /// Says it now, and in the report.
    fn warn(&mut self, note: String, events: &mut dyn FnMut(&LabEvent)) {
        events(&LabEvent::Note(note.clone()));
        self.warnings.push(note);
    }

    /// A comparison drifts a little beyond its budget where a verdict takes it, not by a multiple.
    fn refuse_far_too_long(
        &self,
        plan: &Plan,
        candidates: u32,
        findings: &Findings,
    ) -> Result<(), LabError> {
        let needed = self.began.elapsed() + plan.duration(candidates);
        let is_given = self.config.rounds.is_some()
            || self.config.earlier.is_some()
            || self.config.work.is_some();
        if is_given || needed <= self.config.time_budget * OVER_BUDGET_MAX {
            return Ok(());
        }
        Err(LabError::FarTooLong {
            needed,
            budget: self.config.time_budget,
            rounds: plan.rounds,
            candidates,
            connections: self.config.connections,
            backlog: findings.small_backlog,
        })
    }

    /// How candidates live at the same time, and what trying each of them out found.
    fn try_out(&mut self, events: &mut dyn FnMut(&LabEvent)) -> Result<Findings, LabError> {
        let coexistence = self.find_coexistence()?;
        let patience = self.config.time_budget / STEADYING_SHARE;
        let findings = preflight::run(
            &mut self.workshop,
            &mut self.candidates,
            patience,
            events,
            self.stop,
        )?;
        self.settle_coexistence(coexistence, &findings, events);
        let without_effect = findings.without_effect.iter().cloned();
        without_effect.for_each(|line| events(&LabEvent::Note(line)));
        if let Some(backlog) = findings
            .small_backlog
            .filter(|_| self.config.load_command.is_none())
        {
            let note = format!(
                "the server lets {backlog} connections wait to be accepted (its listen backlog), and {} come at once: \
                 some may be answered only after a second or more, or never; --connections {backlog} shows what it does \
                 without that",
                self.config.connections
            );
            self.warn(note, events);
        }
        if let Some(status) = findings.redirect {
            let note = format!(
                "the server answers with status {status}, which points to another URL: what is measured is that answer, \
                 not the page that it points to; name its URL (--url)"
            );
            self.warn(note, events);
        }
        if let Some(native) = &findings.native {
            matrix::name_native(&mut self.candidates, native);
            let note = format!("the target brings its own allocator: the baseline is {native}");
            events(&LabEvent::Note(note));
            if self.config.as_cpus.is_some() {
                let note = format!(
                    "--as-cpus does not reach {native}: it is sized by the CPUs that are here"
                );
                self.warn(note, events);
            }
        }
        Ok(findings)
    }

    /// The end of the time that rounds may have; `None` where a user or an earlier record says what they are made of.
    fn fill_until(&self) -> Option<Instant> {
        let is_given = self.config.rounds.is_some()
            || self.config.earlier.is_some()
            || self.config.work.is_some()
            || self.config.phases.is_some()
            || self.config.load_command.is_some();
        (!is_given).then(|| self.end_after(self.config.time_budget.saturating_sub(REPORT_RESERVE)))
    }

    /// When rounds end that have so much time in all, what profiles take after them included.
    fn end_after(&self, time: Duration) -> Instant {
        self.began + time.saturating_sub(self.config.profile_allowance())
    }

    /// How candidates live at the same time, tried with the baseline.
    fn find_coexistence(&mut self) -> Result<lock::Found, LabError> {
        let Some(baseline) = self.candidates.first().cloned() else {
            return Err(LabError::Setting("there is no candidate".to_owned()));
        };
        lock::find(&mut self.workshop, &baseline, self.stop).map_err(|error| match error {
            RunError::Interrupted => LabError::InterruptedEarly,
            reason => LabError::Baseline {
                candidate: baseline.name,
                reason: reason.to_string(),
            },
        })
    }

    /// Unless memory is short, as it was found.
    fn settle_coexistence(
        &mut self,
        found: lock::Found,
        findings: &Findings,
        events: &mut dyn FnMut(&LabEvent),
    ) {
        // A load program of the user's measures one candidate after the other anyway.
        if self.config.load_command.is_some() {
            return;
        }
        let found = found.within_memory(findings.resident_bytes, self.candidates.len());
        self.workshop.coexistence = found.way;
        let Some(note) = found.note() else {
            return;
        };
        events(&LabEvent::Note(note.clone()));
        if found.way == Coexistence::OneAtATime {
            self.warnings.push(note);
        }
    }

    /// Findings from outside the rounds.
    fn add_passes(
        &self,
        collection: &mut Collection,
        findings: &Findings,
        heap: &[HeapCosts],
        counts: &InstructionCounts,
    ) {
        for (index, steady_state) in findings.steady_states(&self.candidates) {
            collection.note_steady_state(index, steady_state);
        }
        for (index, costs) in heap.iter().enumerate() {
            collection.add_once(index, costs);
            collection.add_heap(index, costs.profile.as_ref());
            collection.add_reach(index, &costs.reach);
        }
        for (index, counts) in counts.of_candidates.iter().enumerate() {
            collection.add_counts(index, counts);
        }
    }

    /// On request, once the verdicts say which candidates are worth it.
    fn draw_flame_graphs(
        &mut self,
        record: &mut ComparisonRecord,
        findings: &Findings,
        events: &mut dyn FnMut(&LabEvent),
    ) -> Result<(), LabError> {
        if !self.config.profile || record.interrupted {
            return Ok(());
        }
        let commission = ProfileRequest {
            candidates: &self.candidates,
            record,
            slowest_per_s: &findings.slowest_per_s,
            load_command: findings.load_command,
            overhead: findings.overhead,
            allowance: self.config.profile_allowance(),
            stop: self.stop,
        };
        let (graphs, notes) = after_rounds(&mut self.workshop, &commission, events)?;
        record.flame_graphs = graphs;
        for note in &notes {
            events(&LabEvent::Note(note.clone()));
        }
        record.analysis.warnings.extend(notes);
        Ok(())
    }

    fn operation_labels(&self) -> Vec<&'static str> {
        self.config
            .target
            .operations()
            .iter()
            .map(|operation| operation.label())
            .collect()
    }

    /// Heap costs per candidate, in their order; the second baseline shares the first one's.
    fn heap_passes(
        &mut self,
        slowest_per_s: &[f64],
        journal: &mut Journal,
        events: &mut dyn FnMut(&LabEvent),
    ) -> Result<Vec<HeapCosts>, LabError> {
        let mut all = vec![HeapCosts::new(); self.candidates.len()];
        let directory = PrivateDirectory::create().map_err(|error| LabError::System {
            what: "create a private temporary directory",
            error,
        })?;
        let candidates = self.candidates.clone();
        for (index, candidate) in candidates.iter().enumerate() {
            if candidate.role == Role::BaselineAgain {
                continue;
            }
            events(&LabEvent::HeapPass {
                candidate: candidate.name.clone(),
                number: index + 1,
                of: candidates.len(),
            });
            let workshop = &mut self.workshop;
            match heap_pass::run(workshop, candidate, &directory, slowest_per_s, self.stop) {
                Ok(costs) => {
                    journal.write_heap(&candidate.name, &costs)?;
                    if let Some(slot) = all.get_mut(index) {
                        *slot = costs;
                    }
                }
                Err(RunError::Interrupted) => return Err(LabError::InterruptedEarly),
                Err(error) => {
                    let note = format!("no heap calls for {}: {error}", candidate.name);
                    self.warn(note, events);
                }
            }
        }
        Ok(all)
    }

    /// With `--find-limit`: the smallest memory limit that each candidate survives; `None` of candidates that failed otherwise.
    fn find_limits(
        &mut self,
        plan: &Plan,
        events: &mut dyn FnMut(&LabEvent),
    ) -> Result<Vec<Option<FoundLimit>>, LabError> {
        let Some(trials) = self.config.limit_trials else {
            return Ok(Vec::new());
        };
        let mut all = vec![None; self.candidates.len()];
        for (index, slot) in all.iter_mut().enumerate() {
            let candidate = &self.candidates[index];
            if candidate.role == Role::BaselineAgain {
                continue;
            }
            let name = candidate.name.clone();
            events(&LabEvent::LimitSearch {
                candidate: name.clone(),
                number: index + 1,
                of: self.candidates.len(),
            });
            let mut search = LimitSearch {
                workshop: &mut self.workshop,
                candidates: &self.candidates,
                index,
                plan,
                trials,
                stop: self.stop,
            };
            match search.run() {
                Ok(found) => *slot = Some(found),
                Err(RunError::Interrupted) => return Err(LabError::InterruptedEarly),
                Err(error) => {
                    let note = format!("no smallest memory limit of {name}: {error}");
                    self.warn(note, events);
                }
            }
        }
        Ok(all)
    }

    /// With phases: every candidate goes through them once with its heap traced, so that growth can be attributed to
    /// the program or its allocator. It has no effect on the scores; a candidate that fails here has no such result.
    fn trace_phases(
        &mut self,
        plan: &Plan,
        events: &mut dyn FnMut(&LabEvent),
    ) -> Result<Vec<(usize, Vec<PhaseHeap>)>, LabError> {
        let Some(phased) = &plan.phased else {
            return Ok(Vec::new());
        };
        let places = 0..self.candidates.len();
        let once = places.filter(|&index| self.candidates[index].role != Role::BaselineAgain);
        let order: Vec<(u32, usize)> = (0..).zip(once).collect();
        let candidates = &self.candidates;
        let mut number = 0;
        let mut begins = |index: usize| {
            number += 1;
            events(&LabEvent::PhaseTrace {
                candidate: candidates
                    .get(index)
                    .map_or_else(String::new, |one| one.name.clone()),
                number,
                of: order.len(),
            });
        };
        let mut generation = Generation {
            workshop: &mut self.workshop,
            candidates,
            plan,
            round: 0,
            stop: self.stop,
        };
        let runs = generation.run_phases(&order, phased, true, &mut begins);
        if self.stop.load(Ordering::Relaxed) {
            return Err(LabError::InterruptedEarly);
        }
        let mut heaps = Vec::new();
        for (index, run) in runs {
            if let RoundStatus::Failed { reason, .. } = &run.measures.status {
                let name = &self.candidates[index].name;
                let note = format!("whose memory {name} holds is not known: {reason}");
                self.warn(note, events);
            }
            heaps.push((index, run.phase_heaps));
        }
        Ok(heaps)
    }

    /// Instructions per candidate, where nothing else counts them.
    fn instruction_passes(
        &mut self,
        findings: &Findings,
        journal: &mut Journal,
        events: &mut dyn FnMut(&LabEvent),
    ) -> Result<InstructionCounts, LabError> {
        let occasion = Occasion {
            // Phases are for memory over time: no time goes to instructions unless the user asks for it.
            wanted: match (&self.config.phases, self.config.emulated_counts) {
                (Some(_), None) => Some(0),
                (_, wanted) => wanted,
            },
            rounds: self.config.rounds,
            has_counters: findings.has_instructions,
            has_load_command: self.config.load_command.is_some(),
            allowance: self.config.counting_allowance(),
            overhead: findings.overhead,
            operations: self.config.target.operations().len(),
            candidates: self.candidates.len(),
        };
        let counts = instruction_pass::run(
            &mut self.workshop,
            &self.candidates,
            &occasion,
            &findings.slowest_per_s,
            journal,
            events,
            self.stop,
        )?;
        self.warnings.extend(counts.notes.iter().cloned());
        Ok(counts)
    }

    fn plan(&self, findings: &Findings) -> (Plan, Known) {
        let known = Known {
            candidates: u32::try_from(self.candidates.len()).unwrap_or(u32::MAX),
            left: self
                .end_after(self.config.time_budget)
                .saturating_duration_since(Instant::now()),
            overhead: findings.overhead,
            tail: findings.tail,
            slowest_per_s: findings.slowest_per_s.clone(),
            connections: self.config.connections,
            rounds: self.config.rounds,
            rate_per_s: self.config.rate_per_s,
            load_command: findings.load_command,
            warm_up_requests: findings.warm_up_requests.clone(),
            idle: self.config.idle,
            lengths: self.config.lengths,
            writes: self
                .config
                .target
                .operations()
                .iter()
                .map(|operation| operation.is_write())
                .collect(),
            is_pinned: self.workshop.driver.placement.is_apart(),
            phases: self.config.phases.clone(),
            is_one_at_a_time: self.workshop.coexistence == Coexistence::OneAtATime
                || self.config.load_command.is_some(),
        };
        (Plan::make(&known), known)
    }

    fn record(
        &self,
        findings: &Findings,
        plan: &Plan,
        schedule: &[Vec<usize>],
    ) -> ComparisonRecord {
        let mut record = ComparisonRecord::new(&self.config.version);
        record.commit.clone_from(&self.config.commit);
        record.command.clone_from(&self.config.command);
        record.started_unix_s = self.started_unix_s;
        record.subject = self.subject_record(findings);
        record.settings = self.settings(plan, schedule);
        record.environment.clone_from(&self.environment);
        record.counters.clone_from(&findings.counters);
        record.analysis.warnings.clone_from(&self.warnings);
        record.left_out.clone_from(&findings.left_out);
        record.counters += &self.ended_processes();
        if plan.idle < IDLE_LONG && plan.phased.is_none() {
            record.analysis.warnings.push(format!(
                "memory after idle was read {} after the work; what allocators return later is not seen \
                 there. A longer --idle alone does not show it: jemalloc returns memory while its program \
                 works, or by a thread of its own (jemalloc:background_thread=true, with --idle 12s, for it \
                 takes 10 s); mimalloc when the thread that owns the memory works again",
                format_duration_ns(plan.idle.as_nanos() as f64)
            ));
        }
        let more = findings.without_effect.iter().cloned();
        record.analysis.warnings.extend(more);
        record.analysis.warnings.extend(findings.unsteady_warning());
        record.analysis.warnings.extend(noise::unwatched());
        record
    }

    /// The known facts about ended processes, for the line of counters.
    fn ended_processes(&self) -> String {
        let (groups, memory) = (&self.workshop.cgroups, &self.workshop.memory_groups);
        let mut text = String::new();
        if let Some(groups) = groups {
            text += &format!("; {}", groups.describe());
        }
        match (groups, memory) {
            (Some(groups), _) if groups.has_memory() => {}
            (_, Some(_)) => text += "; cgroup version 1: peak memory of all processes",
            _ => text += "; what processes held that have ended is in no figure of memory",
        }
        text
    }

    fn subject_record(&self, findings: &Findings) -> SubjectRecord {
        let target = &self.workshop.driver.target;
        let command: Vec<String> = match target {
            Target::Entity { extra } => {
                let words =
                    "millpond serve entity --listen 127.0.0.1:PORT --data DIR --pools on|off";
                let words = words.split(' ').map(str::to_owned);
                words
                    .chain(extra.iter().map(|word| word.display().to_string()))
                    .collect()
            }
            Target::Command { words, .. } => words
                .iter()
                .map(|word| word.display().to_string())
                .collect(),
        };
        SubjectRecord {
            title: target.title(),
            command,
            url: match target {
                Target::Entity { .. } => None,
                Target::Command { requests, .. } => Some(requests.text.clone()),
            },
            requests: match target {
                Target::Command { requests, .. } if self.workshop.load_command.is_none() => {
                    Some(requests.plan.sent(findings.tls_version))
                }
                _ => None,
            },
            driver: findings.server.driver.clone(),
            engine: findings.server.engine.clone(),
            native_allocator: findings.native.clone(),
        }
    }

    /// The known facts about the load before it is planned.
    fn load_settings(&self) -> Settings {
        let driver = &self.workshop.driver;
        let load = self.config.load_command.as_ref();
        let own = matches!(self.config.target, Target::Entity { .. });
        let narrow = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Settings {
            connections: narrow(driver.connections).saturating_mul(u32::from(load.is_none())),
            threads: narrow(driver.placement.generator_threads().min(driver.connections)),
            load_command: load.map(|load| load.line.clone()),
            load_warm_ups: load.map_or(0, |load| load.warm_ups),
            value_bytes: own.then_some(driver.value_bytes as u64),
            // A load program of the user's counts its failures itself.
            errors_allowed: load.is_none().then_some(driver.errors_allowed),
            placement: Some(driver.placement.describe()),
            as_cpus: self.config.as_cpus,
            memory_limit_bytes: self.config.options.memory_limit_bytes,
            huge_pages: self.config.options.huge_pages,
            coexistence: Some(self.workshop.coexistence),
            seed: self.seed,
            ..Settings::default()
        }
    }

    fn settings(&self, plan: &Plan, schedule: &[Vec<usize>]) -> Settings {
        let own = matches!(self.config.target, Target::Entity { .. });
        let operations = self.config.target.operations();
        let keys = |operations: &'static [Operation]| {
            operations
                .iter()
                .map(|operation| operation.key().to_owned())
        };
        let rates = keys(operations);
        let name = |&index: &usize| {
            self.candidates
                .get(index)
                .map(|one| one.name.clone())
                .unwrap_or_default()
        };
        Settings {
            rounds_planned: plan.rounds,
            rate_per_s: rates.zip(plan.rate_per_s.iter().copied()).collect(),
            memory_requests: plan.requests.iter().sum(),
            work_requests: keys(operations)
                .zip(plan.requests.iter().copied())
                .collect(),
            throughput_phase_ns: nanoseconds(plan.throughput_phase),
            latency_phase_ns: nanoseconds(plan.latency_phase),
            cycles: plan.cycles,
            paced: plan.paced,
            slice_ns: nanoseconds(plan.slice),
            block_ns: nanoseconds(plan.block),
            write_slice_ns: nanoseconds(plan.write_slice),
            write_latency_phase_ns: nanoseconds(plan.write_latency_phase),
            settle_ns: nanoseconds(plan.settle),
            keys: Some(plan.keys).filter(|_| own),
            schedule: schedule
                .iter()
                .map(|order| order.iter().map(name).collect())
                .collect(),
            margins: self.config.margins,
            looks: InterimSettings {
                planned: plan.looks.clone(),
                significance: InterimAnalyses::planned(plan.looks.len()).significance(),
                ..InterimSettings::default()
            },
            idle_ns: nanoseconds(plan.idle),
            warm_up_requests: keys(operations)
                .zip(plan.warm_up_requests.iter().copied())
                .collect(),
            phases: plan.phased.as_ref().map(|phased| phased.plan.clone()),
            ..self.load_settings()
        }
    }
}

/// The generator as the user wants it.
fn driver(config: &CompareConfig, target: Target, placement: Placement) -> Driver {
    Driver {
        target,
        connections: config.connections,
        value_bytes: config.value_bytes,
        path: None,
        placement,
        errors_allowed: config.errors_allowed,
        answer_timeout: ANSWER_TIMEOUT,
        silence_min: config.silence_min,
    }
}

/// Groups of version 1 that count memory, where those of version 2 do not.
fn memory_groups(groups: Option<&CgroupRoot>) -> Option<MemoryGroupRoot> {
    match groups.is_some_and(CgroupRoot::has_memory) {
        true => None,
        false => MemoryGroupRoot::find(),
    }
}

/// The machine as it is before anything runs, and what keeps its processors awake from then on.
fn capture(config: &CompareConfig) -> Result<(Environment, Option<Awake>), LabError> {
    let mut environment = Environment::capture();
    let awake = Awake::hold(config.options.idle_cpus, &environment)?;
    environment.idle_cpus_awake = Some(awake.is_some());
    environment.c_library = allocator::c_library_version();
    environment.inherited_variables = Some(config.options.inherited.record());
    Ok((environment, awake))
}

/// A server whose heap never gets to malloc has nothing to compare, unless one of the candidates changes that.
fn refuse_out_of_reach(heap: &[HeapCosts]) -> Result<(), LabError> {
    let all = heap.iter().map(|costs| &costs.reach);
    let known: Vec<&Reach> = all.filter(|reach| !reach.per_request.is_empty()).collect();
    match known.first() {
        Some(first) if known.iter().all(|reach| reach.is_elsewhere()) => {
            Err(LabError::OutOfReach(first.refusal()))
        }
        _ => Ok(()),
    }
}
