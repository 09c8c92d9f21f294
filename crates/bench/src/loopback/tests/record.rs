use super::*;

fn run(requests_per_s: f64) -> Option<PairSample> {
    Some(PairSample {
        requests: 100,
        requests_per_s,
        cpu_ns: 700,
        ..PairSample::default()
    })
}

/// Goal: a candidate is set beside the first one's runs of the same repetitions, whichever are
/// missing, and the first beside none.
#[test]
fn ratios_are_those_of_pairs() {
    let allocator = Allocator::native("glibc");
    let of = |samples: Vec<Option<PairSample>>, baseline: &[Option<PairSample>]| {
        CandidateRecord::of(
            "x".to_owned(),
            &allocator,
            PoolSetting::On,
            samples,
            baseline,
            None,
        )
    };
    let baseline = vec![run(100.0), None, run(300.0)];
    let first = of(baseline.clone(), &baseline).unwrap();
    assert_eq!((first.times_the_first, first.runs.len()), (None, 2));
    assert!((first.requests_per_s.median - 200.0).abs() < 1e-9);
    assert!((first.cpu_ns_per_transaction - 7.0).abs() < 1e-9);
    let second = of(vec![run(200.0), run(999.0), run(600.0)], &baseline).unwrap();
    let ratio = second.times_the_first.unwrap();
    assert_eq!(ratio.pairs, 2);
    assert!((ratio.ratio - 2.0).abs() < 1e-9, "{ratio:?}");
    assert!(of(vec![None], &baseline).is_none());
}
