//! How memory changes with work: leaks, fragmentation and caches that fill show as a slope.
//!
//! Of each memory phase the first third is left out, in which heaps and caches fill. The slope of what remains
//! is the median of the slopes between all pairs of samples (Theil 1950, Sen 1968), which a single garbage
//! collection does not move; divided by the rate of the phase it is bytes per request. Samples of one phase
//! depend on each other, so the interval is the exact signed-rank interval of the rounds' slopes.

use crate::record::{CandidateRounds, CoursePhase, MemoryGrowth, Operation, RoundStatus};
use crate::series::Series;
use crate::statistics::{hodges_lehmann, median, signed_rank_interval};
use crate::units::{format_bytes, format_three_digits};

/// The part of a phase that is left out at its beginning.
const LEFT_OUT_SHARE: f64 = 1.0 / 3.0;
/// Fewer samples say nothing of a slope.
const SAMPLES_MIN: usize = 8;
/// All pairs of more would take long.
const SAMPLES_MAX: usize = 200;
const CONFIDENCE: f64 = 0.95;
/// In sentences growth is of so many requests.
const REQUESTS_IN_SENTENCES: f64 = 1_000.0;

/// The slope of `memory` in bytes over `phase`, which had `requests`; `None` of a phase with too few samples.
#[must_use]
pub fn bytes_per_request(memory: &Series, phase: &CoursePhase, requests: u64) -> Option<f64> {
    let length_ns = phase.to_ns.checked_sub(phase.from_ns)? as f64;
    let from_ns = phase.from_ns as f64 + length_ns * LEFT_OUT_SHARE;
    let points: Vec<(f64, f64)> = memory
        .points
        .iter()
        .map(|point| (point.at_ns as f64, point.value))
        .filter(|&(at_ns, _)| at_ns >= from_ns && at_ns <= phase.to_ns as f64)
        .collect();
    if points.len() < SAMPLES_MIN || requests == 0 {
        return None;
    }
    let step = points.len().div_ceil(SAMPLES_MAX);
    let points: Vec<(f64, f64)> = points.into_iter().step_by(step).collect();
    let mut slopes = Vec::with_capacity(points.len() * (points.len() - 1) / 2);
    for (index, early) in points.iter().enumerate() {
        let later = points.iter().skip(index + 1);
        slopes.extend(later.map(|late| (late.1 - early.1) / (late.0 - early.0)));
    }
    slopes.retain(|slope| slope.is_finite());
    Some(median(&mut slopes)? * length_ns / requests as f64)
}

/// The growth of every candidate and operation that has one, over its rounds.
#[must_use]
pub(crate) fn of_all(candidates: &[CandidateRounds]) -> Vec<MemoryGrowth> {
    let mut all = Vec::new();
    for operation in Operation::ALL {
        all.extend(candidates.iter().filter_map(|one| of_one(one, operation)));
    }
    all
}

fn of_one(candidate: &CandidateRounds, operation: Operation) -> Option<MemoryGrowth> {
    let counted = candidate
        .rounds
        .iter()
        .filter(|round| !matches!(round.status, RoundStatus::Failed { .. }));
    let slopes: Vec<f64> = counted
        .filter_map(|round| round.growth.get(operation.key()).copied())
        .filter(|slope| slope.is_finite())
        .collect();
    let interval = signed_rank_interval(&slopes, CONFIDENCE)?;
    let (low, high) = (interval.low, interval.high);
    let is_certain = interval.confidence >= CONFIDENCE;
    let bytes_per_request = hodges_lehmann(&slopes)?;
    let of_thousand = |bytes: f64| format_bytes(bytes * REQUESTS_IN_SENTENCES);
    let name = &candidate.name;
    let what = match operation {
        Operation::Request => "requests".to_owned(),
        other => other.label().to_owned(),
    };
    let figures = format!(
        "{} [{}, {}] per {} {what}",
        of_thousand(bytes_per_request),
        of_thousand(low),
        of_thousand(high),
        format_three_digits(REQUESTS_IN_SENTENCES),
    );
    let sentence = match (low > 0.0, high < 0.0) {
        _ if !is_certain => format!(
            "{name}: memory changes by {figures}; {} too few to be sure",
            match slopes.len() {
                1 => "1 round is".to_owned(),
                rounds => format!("{rounds} rounds are"),
            }
        ),
        (true, _) => format!("{name}: memory grows by {figures}"),
        (_, true) => format!("{name}: memory shrinks by {figures}"),
        _ => format!("{name}: no significant growth: {figures}"),
    };
    Some(MemoryGrowth {
        candidate: name.clone(),
        operation,
        bytes_per_request,
        low,
        high,
        confidence: interval.confidence,
        rounds: u32::try_from(slopes.len()).unwrap_or(u32::MAX),
        sentence,
    })
}

#[cfg(test)]
#[path = "tests/growth.rs"]
mod tests;
