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

/// Goal: a rise in the first third is no growth; a slope behind it is, in bytes per request; a collection that gives
/// back everything for a moment does not hide it; few samples are no slope.
#[test]
fn the_slope_is_per_request() {
    let filled = series(|at_s| 1e6 * at_s.min(1.9));
    assert_eq!(bytes_per_request(&filled, &phase(), 3_000), Some(0.0));
    let leaking = series(|at_s| 5e7 + 4e6 * at_s);
    let found = bytes_per_request(&leaking, &phase(), 3_000).unwrap();
    // 12 MB in 3,000 requests.
    assert!((found - 4_000.0).abs() < 1.0, "{found}");
    let dips = series(|at_s| 5e7 + 4e6 * at_s - if (3.0..3.2).contains(&at_s) { 4e7 } else { 0.0 });
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
    assert!(wavers.contains("no significant growth"), "{wavers}");
    let few = sentence(&[10.0, 11.0, 12.0]);
    assert!(few.contains("3 rounds are too few"), "{few}");
    let shrinks = sentence(&[-10.0, -11.0, -9.0, -10.5, -9.5, -10.2]);
    assert!(shrinks.contains("shrinks by -"), "{shrinks}");
    assert!(of_all(&[candidate(&[])]).is_empty());
}
