//! From runs to the record that is analysed, written and shown.
//!
//! `compare` adds every run here, asks `millpond_measure` for the verdicts, and `finish` writes
//! `results.json` and `report.html`. No statistics and no words of judgement are made here.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fmt, fs, thread};

use millpond_load::{LoadRecord, StatusSet};
use millpond_measure::histogram::LatencyHistogram;
use millpond_measure::noise::flag_unlike_runs;
use millpond_measure::record::{
    CandidateRounds, ComparisonRecord, FailureCause, FoundLimit, HeapProfile, LatencyCurve,
    Library, LoadErrors, Measure, MemoryCourse, MemorySeries, Operation, PhaseHeap, Reach,
    Regression, RoundMeasures, RoundStatus, SteadyState,
};
use millpond_measure::{regression, slices};

use crate::allocator::{Allocator, NATIVE};
use crate::cgroup;
use crate::cgroup::{Cgroup, MemoryGroup};
use crate::error::{LabError, RunError};
use crate::isolation::{HostNoise, WeatherSum};
use crate::load_command::LoadCommand;
use crate::matrix::Candidate;
use crate::repeat::Earlier;
use crate::sampler::{EdgeMemory, PhaseMarks};
use crate::started_candidate::{RunContext, StartedCandidate};
use crate::subject::{Exit, LastWords, SIGKILL, SubjectError};
use crate::usage::Edge;
use crate::variant::Variant;

/// Points per halving of the distance to 100 % in a percentile curve.
const CURVE_TICKS: u32 = 5;

/// A finished comparison.
#[derive(Debug)]
pub struct CompareOutcome {
    /// Everything, as in `results.json`.
    pub record: ComparisonRecord,
    /// Where `results.json` is.
    pub results: PathBuf,
    /// Where `report.html` is.
    pub report: PathBuf,
    /// True if Ctrl-C ended it early; the record holds what was measured until then.
    pub interrupted: bool,
    /// One sentence per run that failed.
    pub failures: Vec<String>,
}

/// The collected values of the candidates while rounds run.
#[derive(Debug)]
pub(crate) struct Collection {
    candidates: Vec<CandidateRounds>,
    merged: Vec<BTreeMap<(Operation, &'static str), LatencyHistogram>>,
    /// Those that failed too often to be compared.
    is_left_out: Vec<bool>,
}

impl Collection {
    pub(crate) fn new(candidates: &[Candidate]) -> Self {
        let entry = |candidate: &Candidate| CandidateRounds {
            name: candidate.name.clone(),
            allocator: candidate.allocator.name.clone(),
            pools: candidate.pools,
            role: candidate.role,
            library: library(&candidate.allocator),
            allocator_version: version(candidate),
            environment: variables(candidate),
            what_it_changes: candidate.allocator.changes.to_owned(),
            command: candidate.variant.as_ref().map_or_else(Vec::new, command),
            ..CandidateRounds::default()
        };
        Self {
            candidates: candidates.iter().map(entry).collect(),
            merged: vec![BTreeMap::new(); candidates.len()],
            is_left_out: vec![false; candidates.len()],
        }
    }

    /// Takes the candidate at `index` out of all that is compared: one that crashes now and then is no choice, however
    /// fast it is until then. How many rounds it has ended well.
    pub(crate) fn leave_out(&mut self, index: usize) -> u32 {
        if let Some(is_left_out) = self.is_left_out.get_mut(index) {
            *is_left_out = true;
        }
        self.count_done(index)
    }

    /// Rounds that the candidate at `index` has ended well.
    pub(crate) fn count_done(&self, index: usize) -> u32 {
        let rounds = self
            .candidates
            .get(index)
            .map(|candidate| &candidate.rounds);
        let done = rounds.into_iter().flatten();
        let done = done.filter(|run| run.status == RoundStatus::Done);
        u32::try_from(done.count()).unwrap_or(u32::MAX)
    }

    /// The owners of memory after each cycle of phases, by candidate.
    pub(crate) fn add_phase_heaps(&mut self, heaps: Vec<(usize, Vec<PhaseHeap>)>) {
        for (index, heaps) in heaps {
            if let Some(candidate) = self.candidates.get_mut(index) {
                candidate.phase_heaps = heaps;
            }
        }
    }

    /// The smallest memory limit of each candidate.
    pub(crate) fn add_limits(&mut self, limits: Vec<Option<FoundLimit>>) {
        for (candidate, limit) in self.candidates.iter_mut().zip(limits) {
            candidate.limit = limit;
        }
    }

    /// Adds one run of the candidate at `index`.
    pub(crate) fn add(
        &mut self,
        index: usize,
        measures: millpond_measure::record::RoundMeasures,
        latencies: &[RunLatency],
    ) {
        let counts = !matches!(measures.status, RoundStatus::Failed { .. });
        if let Some(candidate) = self.candidates.get_mut(index) {
            candidate.rounds.push(measures);
        }
        let Some(merged) = self.merged.get_mut(index).filter(|_| counts) else {
            return;
        };
        for one in latencies {
            for (clock, histogram) in [("response", &one.response), ("service", &one.service)] {
                merged
                    .entry((one.operation, clock))
                    .or_default()
                    .merge(histogram);
            }
        }
    }

    /// Stores what was found once, outside the rounds, in the candidate's first good round only: it
    /// is one observation and must not look like ten.
    pub(crate) fn add_once(&mut self, index: usize, values: &[(Measure, f64)]) {
        let Some(candidate) = self.candidates.get_mut(index) else {
            return;
        };
        let first = candidate
            .rounds
            .iter_mut()
            .find(|run| run.status == RoundStatus::Done);
        if let Some(run) = first {
            for &(measure, value) in values {
                run.set(measure, value);
            }
        }
    }

    /// Notes what was counted outside the rounds, once for each: the first with the first.
    pub(crate) fn add_counts(&mut self, index: usize, counts: &[Vec<(Measure, f64)>]) {
        let Some(candidate) = self.candidates.get_mut(index) else {
            return;
        };
        for (round, values) in (0_u32..).zip(counts) {
            let mut runs = candidate.rounds.iter_mut();
            let run = runs.find(|run| run.round == round && run.status == RoundStatus::Done);
            if let Some(run) = run {
                for &(measure, value) in values {
                    run.set(measure, value);
                }
            }
        }
    }

    /// Notes what malloc is to a candidate.
    pub(crate) fn add_reach(&mut self, index: usize, reach: &Reach) {
        if let Some(candidate) = self.candidates.get_mut(index) {
            candidate.reach = (*reach != Reach::default()).then(|| reach.clone());
        }
    }

    /// Notes what a candidate asks of the heap.
    pub(crate) fn add_heap(&mut self, index: usize, profile: Option<&HeapProfile>) {
        if let Some(candidate) = self.candidates.get_mut(index) {
            candidate.heap = profile.cloned();
        }
    }

    /// Rounds in which every candidate ended that had not left before.
    pub(crate) fn rounds_done(&self, planned: u32, left_after: &[Option<u32>]) -> u32 {
        let complete = |round: &u32| {
            let all = self.candidates.iter().zip(left_after);
            let mut all = all.zip(&self.is_left_out);
            all.all(|((candidate, left_after), &is_left_out)| {
                let mut rounds = candidate.rounds.iter();
                is_left_out
                    || left_after.is_some_and(|left_after| left_after <= *round)
                    || rounds.any(|run| run.round == *round && run.status == RoundStatus::Done)
            })
        };
        u32::try_from((0..planned).filter(complete).count()).unwrap_or(0)
    }

    /// Notes how the candidate at `index` warmed up.
    pub(crate) fn note_steady_state(&mut self, index: usize, steady_state: SteadyState) {
        if let Some(candidate) = self.candidates.get_mut(index) {
            candidate.steady_state = Some(steady_state);
        }
    }

    /// The candidates that are compared, as they are now, for an interim analysis.
    pub(crate) fn so_far(&self) -> Vec<CandidateRounds> {
        let all = self.candidates.iter().zip(&self.is_left_out);
        let compared = all.filter(|&(_, &is_left_out)| !is_left_out);
        let mut candidates: Vec<CandidateRounds> =
            compared.map(|(candidate, _)| candidate.clone()).collect();
        slices::work_out(&mut candidates);
        flag_unlike_runs(&mut candidates);
        candidates
    }

    /// The candidates that are compared, with their curves.
    pub(crate) fn finish(mut self) -> Vec<CandidateRounds> {
        for (candidate, merged) in self.candidates.iter_mut().zip(self.merged) {
            candidate.curves = merged
                .into_iter()
                .map(|((operation, clock), histogram)| LatencyCurve {
                    operation,
                    clock: clock.to_owned(),
                    count: histogram.count(),
                    points: histogram.spectrum(CURVE_TICKS),
                })
                .collect();
        }
        let mut is_left_out = self.is_left_out.into_iter();
        self.candidates.retain(|_| is_left_out.next() != Some(true));
        slices::work_out(&mut self.candidates);
        flag_unlike_runs(&mut self.candidates);
        self.candidates
    }
}

/// The version of what a candidate is named after; of a variant on the server as it is, and of what the target
/// brings along, none is known.
fn version(candidate: &Candidate) -> Option<String> {
    let allocator = &candidate.allocator;
    let is_the_c_librarys = candidate.variant.is_none() && !allocator.name.starts_with(NATIVE);
    let is_known = allocator.library.is_some() || is_the_c_librarys;
    allocator.version().filter(|_| is_known)
}

fn variables(candidate: &Candidate) -> Vec<String> {
    let text =
        |(name, value): (OsString, OsString)| format!("{}={}", name.display(), value.display());
    candidate.variables().into_iter().map(text).collect()
}

fn command(variant: &Variant) -> Vec<String> {
    let words = variant.command().unwrap_or_default().iter();
    words.map(|word| word.display().to_string()).collect()
}

fn library(allocator: &Allocator) -> Option<Library> {
    let path = allocator.library.as_deref()?;
    Some(Library {
        path: allocator.library_title()?,
        sha256: None,
        size_bytes: fs::metadata(path).map_or(0, |metadata| metadata.len()),
        version: allocator.version(),
    })
}

/// Checks an analysed record against an earlier one, and writes both files.
pub(crate) fn finish(
    mut record: ComparisonRecord,
    earlier: Option<&Earlier>,
    out: &Path,
    failures: Vec<String>,
) -> Result<CompareOutcome, LabError> {
    if let Some(earlier) = earlier {
        // Measured values stay, whether or not there is anything to compare them with.
        let found = regression::check(&record, &earlier.record, earlier.rule);
        record.regression = Some(found.unwrap_or_else(|reason| Regression::not_made(&reason)));
    }
    let results = out.join("results.json");
    let report = out.join("report.html");
    let json = record.to_json().map_err(|error| LabError::Output {
        path: results.clone(),
        error: error.into(),
    })?;
    let write = |path: &Path, text: &str| {
        fs::write(path, text).map_err(|error| LabError::Output {
            path: path.to_owned(),
            error,
        })
    };
    write(&results, &json)?;
    write(&report, &millpond_measure::report::html::render(&record))?;
    Ok(CompareOutcome {
        interrupted: record.interrupted,
        record,
        results,
        report,
        failures,
    })
}

// The results of one candidate in one round; and a run under a load program of the user's, which has no slices:
//
// ```text
// start -> the program's warm-ups -> the program -> memory -> idle -> memory -> stop
// ```

/// Latencies of one run, for the merged curves of the report.
#[derive(Debug)]
pub(crate) struct RunLatency {
    pub(crate) operation: Operation,
    pub(crate) response: LatencyHistogram,
    pub(crate) service: LatencyHistogram,
}

/// Everything one run gave.
#[derive(Debug)]
pub(crate) struct ScoredRun {
    pub(crate) measures: RoundMeasures,
    pub(crate) latencies: Vec<RunLatency>,
    pub(crate) memory: MemorySeries,
    /// Of a run of phases that was traced.
    pub(crate) phase_heaps: Vec<PhaseHeap>,
    pub(crate) start_duration: Duration,
    pub(crate) stop_duration: Option<Duration>,
}

impl ScoredRun {
    pub(crate) fn new(round: u32, position: u32) -> Self {
        Self {
            measures: RoundMeasures {
                round,
                position,
                ..RoundMeasures::default()
            },
            latencies: Vec::new(),
            memory: MemorySeries::default(),
            phase_heaps: Vec::new(),
            start_duration: Duration::ZERO,
            stop_duration: None,
        }
    }
}

/// Runs `candidate` once under `command`. A failure is part of the result, with what was measured before it.
pub(crate) fn run(
    workshop: &mut RunContext,
    candidate: &Candidate,
    command: &LoadCommand,
    idle: Duration,
    mut scored: ScoredRun,
    stop: &AtomicBool,
) -> ScoredRun {
    match try_run(workshop, candidate, command, idle, stop, &mut scored) {
        Ok(()) => {}
        Err(error) => scored.measures.status = error.into(),
    }
    scored
}

fn try_run(
    workshop: &mut RunContext,
    candidate: &Candidate,
    command: &LoadCommand,
    idle: Duration,
    stop: &AtomicBool,
    scored: &mut ScoredRun,
) -> Result<(), RunError> {
    let label = format!("round{}", scored.measures.round + 1);
    let mut session = StartedCandidate::start(workshop, candidate, &label, None, stop)?;
    scored.start_duration = session.start_duration;
    let sampler = session.sampler();
    let mut stage = Stage {
        workshop,
        session: &mut session,
        stop,
        marks: PhaseMarks::new(sampler.began()),
        edges: EdgeMemory::default(),
    };
    let result = stage.load(command, &mut scored.measures);
    let result = result.and_then(|()| stage.rest(idle, &mut scored.measures));
    let (phases, mut edges) = (stage.marks.finish(), stage.edges);
    scored.memory = edges.finish(sampler);
    edges.note(&scored.memory, &phases, &mut scored.measures);
    scored.measures.memory_course = MemoryCourse::thinned(&scored.memory);
    if let Some(course) = &mut scored.measures.memory_course {
        course.phases = phases;
    }
    session.explain(result)?;
    scored.stop_duration = Some(session.stop()?.duration);
    Ok(())
}

/// The common settings of one run's phases.
struct Stage<'a> {
    workshop: &'a RunContext,
    session: &'a mut StartedCandidate,
    stop: &'a AtomicBool,
    marks: PhaseMarks,
    edges: EdgeMemory,
}

impl Stage<'_> {
    /// The load program, and memory after it.
    fn load(
        &mut self,
        command: &LoadCommand,
        measures: &mut RoundMeasures,
    ) -> Result<(), RunError> {
        let operation = Operation::Request;
        if command.warm_ups > 0 {
            self.marks.enter("warm-up");
            command.warm_up(self.workshop, self.session, self.stop)?;
        }
        let before = Edge::read(self.session)?;
        self.edges.add(&before);
        self.marks.enter("load");
        let mut sum = WeatherSum::default();
        let is_raised = self.workshop.driver.placement.is_raised;
        let weather = HostNoise::before(!is_raised);
        let load = command.run(self.workshop, self.session, "load", self.stop)?;
        weather.add_to(&mut sum);
        sum.note("load", measures);
        let after = Edge::read(self.session)?;
        self.edges.add(&after);
        for &(quantity, value) in &load.values {
            measures.set(Measure::of(operation, quantity), value);
        }
        if let Some(requests) = load.requests {
            measures.requests += requests;
            after.note_costs(&before, operation, requests, measures);
        }
        measures
            .noise
            .extend(after.noise_since(&before, "load", load.cpu_ns));
        after.note_memory(measures);
        Ok(())
    }

    /// Nothing to do, and what is left of the memory after it.
    fn rest(&mut self, idle: Duration, measures: &mut RoundMeasures) -> Result<(), RunError> {
        self.marks.enter("idle");
        sleep_unless_stopped(idle, self.stop)?;
        let edge = Edge::read(self.session)?;
        self.edges.add(&edge);
        edge.note_idle_memory(measures);
        Ok(())
    }
}

/// Sleeps for `duration`; Ctrl-C ends it.
pub(crate) fn sleep_unless_stopped(duration: Duration, stop: &AtomicBool) -> Result<(), RunError> {
    let deadline = Instant::now() + duration;
    while Instant::now() < deadline {
        if stop.load(Ordering::Relaxed) {
            return Err(RunError::Interrupted);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        thread::sleep(left.min(Duration::from_millis(20)));
    }
    Ok(())
}

// Why a target ended, by more than its exit: the kernel's counts, limits, and hints in its output.
//
// `started_candidate` asks when a run fails, while the control groups of the run are there.

/// Messages in a log when the kernel gives no more memory: of the C library, the dynamic linker, C++, Rust, and the
/// allocators.
const WORDS_OF_NO_MEMORY: [&str; 11] = [
    "cannot allocate memory",
    "out of memory",
    "bad_alloc",
    "memory allocation of",
    "memoryerror",
    "mmap failed",
    "map failure",
    "unable to allocate",
    "failed to reserve",
    "failed to initialise snmalloc",
    "failed to map segment",
];
/// The message of the C library's `free` about foreign memory.
const WORDS_OF_FOREIGN_MEMORY: [&str; 3] = [
    "free(): invalid pointer",
    "free(): invalid size",
    "munmap_chunk(): invalid pointer",
];

/// The known facts about a target beside its end.
pub(crate) struct Evidence<'a> {
    pub(crate) cgroup: Option<&'a Cgroup>,
    pub(crate) memory_group: Option<&'a MemoryGroup>,
    /// The command's short name.
    pub(crate) title: &'a str,
    pub(crate) log: &'a Path,
    /// The address space that its processes may have, as far as that was seen.
    pub(crate) address_space_bytes: Option<u64>,
    /// The memory that all its processes may hold, if the user limits it.
    pub(crate) memory_limit_bytes: Option<u64>,
    /// Whether an allocator is preloaded into it.
    pub(crate) has_library: bool,
}

impl Evidence<'_> {
    /// `error` with the reason that is known of it.
    pub(crate) fn explain(&self, error: RunError) -> RunError {
        if matches!(error, RunError::Interrupted) {
            return error;
        }
        let killed = self.killed_for_memory();
        if let Some(killed) = killed.filter(|&killed| killed > 0) {
            return RunError::KilledForMemory {
                title: self.title.to_owned(),
                killed,
                limit_bytes: self.memory_limit_bytes.or_else(cgroup::memory_bytes),
                last_words: Box::new(LastWords::read(self.log)),
            };
        }
        let RunError::Subject(SubjectError::Ended {
            exit, last_words, ..
        }) = &error
        else {
            return error;
        };
        if last_words.mention(&WORDS_OF_NO_MEMORY) {
            return RunError::NoAddressSpace {
                limit_bytes: self.address_space_bytes,
                last_lines: last_words.lines.clone(),
                reason: error.to_string(),
            };
        }
        if self.has_library && last_words.mention(&WORDS_OF_FOREIGN_MEMORY) {
            return RunError::TwoAllocators {
                exit: *exit,
                last_lines: last_words.lines.clone(),
                reason: error.to_string(),
            };
        }
        match (exit, killed) {
            (Exit::Signal(SIGKILL), Some(_)) => RunError::KilledByAnother {
                last_lines: last_words.lines.clone(),
                reason: error.to_string(),
            },
            _ => error,
        }
    }

    /// `None` where the kernel does not count.
    fn killed_for_memory(&self) -> Option<u64> {
        let newer = self.cgroup.and_then(Cgroup::killed_for_memory);
        newer.or_else(|| self.memory_group.and_then(MemoryGroup::killed_for_memory))
    }
}

// The outcomes of a session's requests, and whether more of them failed than are allowed.
//
// `drive` counts a phase and ends it early if it cannot become a result; `started_candidate` adds up the phases of a
// process and judges them together. A failed request is never a response: it is in no throughput and no latency.

/// Statuses from here to failures point to another URL: a 304 does not, and is not asked for.
const STATUS_REDIRECT_MIN: u16 = 300;
/// Statuses from here on are failures of a request.
const STATUS_FAILED_MIN: u16 = 400;
/// So unlikely is a number of failures that counts as too many, as the logarithm of 1 to 10,000: by chance alone one
/// server in many thousand phases with just the share that is allowed is called worse.
const UNLIKELY: f64 = 9.2;
/// More phases of a process with timed-out requests are too many, however many others succeeded: each of them waits for
/// as long as a response may take.
const TIMED_OUT_PHASES_MAX: u32 = 2;

/// The requests of a phase, or of the phases of a session so far.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Answers {
    /// Right responses.
    pub(crate) right: u64,
    /// Requests that failed, and connections.
    pub(crate) failed: LoadErrors,
    /// Responses with a wrong status, which are among the failed.
    statuses: BTreeMap<u16, u64>,
    /// Responses that point to another URL, and the status of one of them; they count as right.
    redirects: (u64, u16),
    /// How long no response came on any connection at the end of a phase, if that is as long as one may take.
    pub(crate) silence: Option<Duration>,
    /// Phases with requests that got no response.
    timed_out_phases: u32,
}

impl Answers {
    /// `right`: the statuses of right responses.
    pub(crate) fn of(record: &LoadRecord, silence: Option<Duration>, right: &StatusSet) -> Self {
        let statuses = record.statuses.iter();
        let is_redirect = |&(&status, _): &(&u16, &u64)| {
            // Where 200 is wrong, they are what is asked for.
            (STATUS_REDIRECT_MIN..STATUS_FAILED_MIN).contains(&status)
                && right.contains(status)
                && right.contains(200)
        };
        let redirects = statuses.clone().filter(is_redirect);
        let redirects = redirects.fold((0, 0), |(sum, _), (&status, &count)| (sum + count, status));
        let failed = statuses.filter(|&(&status, &count)| !right.contains(status) && count > 0);
        Self {
            right: record.requests,
            failed: record.errors,
            statuses: failed.map(|(&status, &count)| (status, count)).collect(),
            redirects,
            silence,
            timed_out_phases: u32::from(record.errors.timeout > 0),
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.right += other.right;
        self.failed = self.failed.plus(&other.failed);
        for (&status, &count) in &other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        if other.redirects.0 > 0 {
            self.redirects = (self.redirects.0 + other.redirects.0, other.redirects.1);
        }
        self.silence = other.silence;
        self.timed_out_phases += other.timed_out_phases;
    }

    /// All requests, and connections that failed.
    pub(crate) fn total(&self) -> u64 {
        self.right + self.failed.total()
    }

    /// The status of redirects, if at least half of the responses are some.
    pub(crate) fn redirected(&self) -> Option<u16> {
        let (count, status) = self.redirects;
        (count > 0 && count * 2 >= self.total()).then_some(status)
    }

    /// Whether these are too many failures, with `phase` as the last phase of them.
    pub(crate) fn are_too_bad(&self, phase: &Self, allowed: f64) -> bool {
        let has_only_failures = phase.right == 0 && phase.failed.total() > 0;
        has_only_failures
            || self.timed_out_phases > TIMED_OUT_PHASES_MAX
            || is_above(self.failed.total(), self.total(), allowed)
    }
}

/// Whether `failed` of `all` requests are more than a server has by chance that fails the share `allowed`: one failure
/// among a few dozen requests says nothing of a share of 0.1 %, three do. The chance is bounded after Chernoff.
pub(crate) fn is_above(failed: u64, all: u64, allowed: f64) -> bool {
    let (failed, expected) = (failed as f64, allowed * all as f64);
    failed > expected && failed * (failed / expected).ln() - failed + expected > UNLIKELY
}

/// More requests failed than are allowed. As text it says what happened and what to do.
#[derive(Clone, Debug, PartialEq)]
pub struct FailedRequests {
    /// How many failed, connections included.
    pub failed: u64,
    /// Of how many.
    pub requests: u64,
    /// By kind.
    pub kinds: LoadErrors,
    /// Responses with a wrong status, by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Where they went.
    pub url: String,
    /// Over how many connections.
    pub connections: usize,
    /// How many connections may wait at the server to be accepted, if known.
    pub backlog: Option<u32>,
    /// The share that may fail.
    pub allowed: f64,
}

impl FailedRequests {
    pub(crate) fn of(answers: &Answers, url: &str, connections: usize, allowed: f64) -> Self {
        Self {
            failed: answers.failed.total(),
            requests: answers.total(),
            kinds: answers.failed,
            statuses: answers.statuses.clone(),
            url: url.to_owned(),
            connections,
            backlog: None,
            allowed,
        }
    }

    /// Whether some got no response at all.
    pub(crate) const fn has_unanswered(&self) -> bool {
        self.kinds.connect + self.kinds.read + self.kinds.write + self.kinds.timeout > 0
    }

    /// Whether more connections come at once than may wait at the server: no allocator is the reason then.
    pub(crate) fn is_of_backlog(&self) -> bool {
        let is_small = self
            .backlog
            .is_some_and(|backlog| (backlog as usize) < self.connections);
        is_small && self.has_unanswered()
    }

    /// The same for the record.
    pub(crate) fn cause(&self) -> FailureCause {
        let statuses = self.statuses.iter();
        FailureCause::FailedRequests {
            failed: self.failed,
            requests: self.requests,
            statuses: statuses
                .map(|(status, &count)| (status.to_string(), count))
                .collect(),
            timeouts: self.kinds.timeout,
            connects: self.kinds.connect,
        }
    }

    /// The failures, by kind, the statuses one by one: `status 500: 12, timeout: 2`.
    fn details(&self) -> String {
        let statuses = self.statuses.iter();
        let mut parts: Vec<String> = statuses
            .map(|(status, count)| format!("status {status}: {count}"))
            .collect();
        let kinds = [
            ("no connection", self.kinds.connect),
            ("connection lost", self.kinds.read),
            ("not sent", self.kinds.write),
            ("timeout", self.kinds.timeout),
            ("wrong content", self.kinds.validation),
        ];
        let seen = kinds.iter().filter(|(_, count)| *count > 0);
        parts.extend(seen.map(|(kind, count)| format!("{kind}: {count}")));
        parts.join(", ")
    }

    /// The remedy.
    fn remedy(&self) -> String {
        let of_status: u64 = self.statuses.values().sum();
        if of_status * 2 < self.failed {
            return self.remedy_of_unanswered();
        }
        let most = self.statuses.iter().max_by_key(|&(_, count)| *count);
        let url = &self.url;
        match most.map_or(0, |(&status, _)| status) {
            401 | 403 | 407 => format!(
                "does {url} need credentials? Give them in the URL (http://USER:PASSWORD@HOST/) or with --header"
            ),
            404 | 410 | 421 => format!("is {url} the right URL (--url)?"),
            405 => format!("does {url} take another method (--method)?"),
            429 | 503 => {
                format!(
                    "the server turns requests away: fewer {}",
                    self.fewer_connections()
                )
            }
            400..500 => {
                format!("{url} does not take these requests: look at --method, --header and --body")
            }
            _ => format!("requests went to {url}; its log may say why"),
        }
    }

    fn remedy_of_unanswered(&self) -> String {
        if !self.has_unanswered() {
            return format!("requests went to {}", self.url);
        }
        let why = match self.backlog {
            Some(backlog) if (backlog as usize) < self.connections => format!(
                "it lets {backlog} connections wait to be accepted (its listen backlog), and {} come at once",
                self.connections
            ),
            _ => format!(
                "it may not serve {} connections at once, or let so many wait (its listen backlog)",
                self.connections
            ),
        };
        format!("{why}: fewer {}", self.fewer_connections())
    }

    fn fewer_connections(&self) -> String {
        let of_backlog = self.backlog.map(|backlog| backlog as usize);
        let fewer = of_backlog.unwrap_or(usize::MAX).min(self.connections / 4);
        format!("with --connections {}", fewer.max(1))
    }
}

impl fmt::Display for FailedRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (failed, requests) = (self.failed, self.requests);
        let mut statuses = self.statuses.iter();
        match (statuses.next(), statuses.next()) {
            // One status alone.
            (Some((status, &count)), None) if count == failed => {
                write!(f, "{failed} of {requests} responses had status {status}")?;
            }
            _ => write!(
                f,
                "{failed} of {requests} requests failed ({})",
                self.details()
            )?,
        }
        // A share is as it was typed, not as binary has it.
        let percent = (self.allowed * 1e8).round() / 1e6;
        write!(
            f,
            ": {}; {percent} % may fail (--errors-allowed)",
            self.remedy()
        )
    }
}

#[cfg(test)]
#[path = "tests/outcome.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/failure_evidence.rs"]
mod failure_evidence_tests;

#[cfg(test)]
#[path = "tests/answers.rs"]
mod answers_tests;
