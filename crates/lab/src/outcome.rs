//! From runs to the record that is analysed, written and shown.
//!
//! On the path: `compare` adds every run here, asks `millpond_measure` for the verdicts, and `finish`
//! writes `results.json` and `report.html`. No statistics and no words of judgement are
//! made here.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use millpond_measure::histogram::LatencyHistogram;
use millpond_measure::noise::flag_unlike_runs;
use millpond_measure::record::{
    CandidateRounds, ComparisonRecord, FoundLimit, HeapProfile, LatencyCurve, Library, Measure,
    Operation, PhaseHeap, Reach, Regression, RoundStatus, SteadyState,
};
use millpond_measure::regression;
use millpond_measure::slices;

use crate::allocator::{Allocator, NATIVE};
use crate::error::LabError;
use crate::matrix::Candidate;
use crate::repeat::Earlier;
use crate::scored::RunLatency;
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

/// What is collected of the candidates while rounds run.
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

    /// Whose memory was whose after each cycle of phases, by candidate.
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

    /// Notes what was found once, outside the rounds, in the candidate's first good round only: it
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

    /// The candidates that are compared, as they are now, for a look.
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
        // What was measured stands, whatever there is to compare it with.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix;
    use millpond_measure::record::{Quantity, RoundMeasures};

    fn collection() -> Collection {
        let plain = Allocator::native("glibc");
        let other = Allocator::preloaded("x", "/lib/libx.so.4.5".into());
        Collection::new(&matrix::candidates(&[plain, other], &[]))
    }

    fn run(round: u32, status: RoundStatus) -> RoundMeasures {
        RoundMeasures {
            round,
            status,
            ..RoundMeasures::default()
        }
    }

    /// Goal: a round counts only if every candidate ended in it.
    #[test]
    fn incomplete_rounds_do_not_count() {
        let mut collection = collection();
        let failed = RoundStatus::Failed {
            reason: "it died".to_owned(),
            cause: None,
        };
        for index in 0..3 {
            collection.add(index, run(0, RoundStatus::Done), &[]);
        }
        collection.add(0, run(1, RoundStatus::Done), &[]);
        collection.add(1, run(1, failed), &[]);
        collection.add(2, run(1, RoundStatus::Done), &[]);
        let none = vec![None; collection.candidates.len()];
        assert_eq!(collection.rounds_done(10, &none), 1);
        let candidates = collection.finish();
        assert_eq!(
            candidates[2].library.as_ref().unwrap().version.as_deref(),
            Some("4.5")
        );
    }

    /// Goal: a candidate that is left out is in no look and in no result, and the rounds of the others count without it.
    #[test]
    fn who_is_left_out_is_in_no_result() {
        let mut collection = collection();
        for index in 0..2 {
            collection.add(index, run(0, RoundStatus::Done), &[]);
        }
        let none = vec![None; collection.candidates.len()];
        assert_eq!(collection.rounds_done(1, &none), 0);
        assert_eq!(collection.leave_out(2), 0);
        assert_eq!(
            (collection.count_done(0), collection.rounds_done(1, &none)),
            (1, 1)
        );
        assert_eq!(collection.so_far().len(), 2);
        let names: Vec<String> = collection
            .finish()
            .into_iter()
            .map(|one| one.name)
            .collect();
        assert_eq!(names, ["glibc", "glibc (again)"]);
    }

    /// Goal: what was seen once appears once, and not in a run that failed.
    #[test]
    fn single_observations_stay_single() {
        let mut collection = collection();
        let failed = RoundStatus::Failed {
            reason: "it died".to_owned(),
            cause: None,
        };
        collection.add(0, run(0, failed), &[]);
        collection.add(0, run(1, RoundStatus::Done), &[]);
        collection.add(0, run(2, RoundStatus::Done), &[]);
        let measure = Measure::of(Operation::Put, Quantity::HeapCalls);
        collection.add_once(0, &[(measure, 7.0)]);
        let candidates = collection.finish();
        assert_eq!(candidates[0].values(measure), [7.0]);
        assert_eq!(candidates[0].value(1, measure), Some(7.0));
    }

    /// Goal: curves hold the samples of every good run and of no failed one.
    #[test]
    fn curves_merge_good_runs() {
        let mut collection = collection();
        let mut histogram = LatencyHistogram::new();
        histogram.record_many(1_000, 10);
        let latency = || {
            let (response, service) = (histogram.clone(), histogram.clone());
            [RunLatency {
                operation: Operation::Get,
                response,
                service,
            }]
        };
        let failed = RoundStatus::Failed {
            reason: "it died".to_owned(),
            cause: None,
        };
        collection.add(0, run(0, RoundStatus::Done), &latency());
        collection.add(0, run(1, RoundStatus::Interrupted), &latency());
        collection.add(0, run(2, failed), &latency());
        let candidates = collection.finish();
        let counts: Vec<_> = candidates[0]
            .curves
            .iter()
            .map(|curve| (curve.clock.as_str(), curve.count))
            .collect();
        assert_eq!(counts, [("response", 20), ("service", 20)]);
    }
}
