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
        _ => format!("{name}: no growth that can be told from none: {figures}"),
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
mod tests {
    use super::*;
    use crate::record::RoundMeasures;

    fn phase() -> CoursePhase {
        CoursePhase {
            name: "get throughput".to_owned(),
            from_ns: 1_000_000_000,
            to_ns: 4_000_000_000,
        }
    }

    /// Samples each 50 ms from before the phase to behind it.
    fn series(value: impl Fn(f64) -> f64) -> Series {
        let mut series = Series::default();
        for step in 0_u32..100 {
            let at_ns = u64::from(step) * 50_000_000;
            series.push(at_ns, value(at_ns as f64 / 1e9));
        }
        series
    }

    /// Goal: what fills in the first third is no growth; a slope behind it is, in bytes per request; a collection
    /// that gives back everything for a moment does not hide it; few samples are no slope.
    #[test]
    fn the_slope_is_per_request() {
        let filled = series(|at_s| 1e6 * at_s.min(1.9));
        assert_eq!(bytes_per_request(&filled, &phase(), 3_000), Some(0.0));
        let leaking = series(|at_s| 5e7 + 4e6 * at_s);
        let found = bytes_per_request(&leaking, &phase(), 3_000).unwrap();
        // 12 MB in 3,000 requests.
        assert!((found - 4_000.0).abs() < 1.0, "{found}");
        let dips =
            series(|at_s| 5e7 + 4e6 * at_s - if (3.0..3.2).contains(&at_s) { 4e7 } else { 0.0 });
        let found = bytes_per_request(&dips, &phase(), 3_000).unwrap();
        assert!((found - 4_000.0).abs() < 400.0, "{found}");
        let mut short = phase();
        short.to_ns = short.from_ns + 300_000_000;
        assert_eq!(bytes_per_request(&leaking, &short, 3_000), None);
        assert_eq!(bytes_per_request(&leaking, &phase(), 0), None);
    }

    fn candidate(slopes: &[f64]) -> CandidateRounds {
        let rounds = slopes.iter().map(|&slope| RoundMeasures {
            growth: [("get".to_owned(), slope)].into(),
            ..RoundMeasures::default()
        });
        CandidateRounds {
            name: "x".to_owned(),
            rounds: rounds.collect(),
            ..CandidateRounds::default()
        }
    }

    /// Goal: growth is claimed where the interval of the rounds lies above zero, and only there.
    #[test]
    fn rounds_decide() {
        let sentence = |slopes: &[f64]| of_all(&[candidate(slopes)]).remove(0).sentence;
        let grows = sentence(&[10.0, 11.0, 9.0, 10.5, 9.5, 10.2]);
        assert!(
            grows.starts_with("x: memory grows by 9.77 KiB ["),
            "{grows}"
        );
        assert!(grows.ends_with("per 1000 GET"), "{grows}");
        let wavers = sentence(&[10.0, -11.0, 9.0, -10.5, 9.5, -10.2]);
        assert!(wavers.contains("no growth that can be told"), "{wavers}");
        let few = sentence(&[10.0, 11.0, 12.0]);
        assert!(few.contains("3 rounds are too few"), "{few}");
        let shrinks = sentence(&[-10.0, -11.0, -9.0, -10.5, -9.5, -10.2]);
        assert!(shrinks.contains("shrinks by -"), "{shrinks}");
        assert!(of_all(&[candidate(&[])]).is_empty());
    }
}
