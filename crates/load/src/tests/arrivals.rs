//! Each spacing and each profile against what mathematics says of it.
use super::*;
use proptest::prelude::*;

const SECOND_NS: u64 = 1_000_000_000;
/// The limit of the Kolmogorov-Smirnov statistic times the root of the count, for p = 0.01.
const KS_LIMIT: f64 = 1.628;

fn rate(per_s: f64) -> Profile {
    Profile::Constant(Rate::from_per_s(per_s).unwrap())
}

fn process(profile: Profile, spacing: Spacing, seed: u64) -> Arrivals {
    let arrivals = Arrivals {
        profile,
        spacing,
        seed,
    };
    arrivals.check().unwrap();
    arrivals
}

fn segment(from_per_s: f64, to_per_s: f64, duration_s: u64) -> Segment {
    Segment {
        from_per_s,
        to_per_s,
        duration_ns: Some(duration_s * SECOND_NS),
    }
}

fn segments(segments: &[Segment]) -> Profile {
    Profile::Segments {
        segments: segments.to_vec(),
        is_cyclic: false,
    }
}

/// All moments, up to so many.
fn offsets(arrivals: &Arrivals, count_max: u64) -> Vec<u64> {
    let mut cursor = arrivals.cursor();
    (0..count_max)
        .map_while(|number| cursor.offset_ns(number))
        .collect()
}

/// The largest distance between the samples' distribution and `cumulative`, times the root of n.
fn kolmogorov_smirnov(mut samples: Vec<f64>, cumulative: impl Fn(f64) -> f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    let count = samples.len() as f64;
    let distances = samples.iter().enumerate().map(|(index, &sample)| {
        let expected = cumulative(sample);
        let (below, above) = (index as f64 / count, (index + 1) as f64 / count);
        (expected - below).abs().max((above - expected).abs())
    });
    distances.fold(0.0, f64::max) * count.sqrt()
}

/// Goal: a million gaps are exponentially distributed, with the mean asked for, and independent of
/// the gap before.
#[test]
fn poisson_gaps_are_exponential() {
    let per_s = 1_000.0;
    for seed in [1, 2, 3] {
        let arrivals = process(rate(per_s), Spacing::Poisson, seed);
        let all = offsets(&arrivals, 1_000_001);
        let gaps: Vec<f64> = all
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as f64 / 1e9)
            .collect();
        let statistic = kolmogorov_smirnov(gaps.clone(), |gap_s| 1.0 - (-gap_s * per_s).exp());
        assert!(statistic < KS_LIMIT, "seed {seed}: {statistic}");
        let mean_s = gaps.iter().sum::<f64>() / gaps.len() as f64;
        // Four standard errors of the mean of a million.
        assert!((mean_s * per_s - 1.0).abs() < 0.004, "{mean_s}");
        let products = gaps
            .windows(2)
            .map(|pair| (pair[0] * per_s - 1.0) * (pair[1] * per_s - 1.0));
        let correlation = products.sum::<f64>() / gaps.len() as f64;
        assert!(correlation.abs() < 0.005, "{correlation}");
    }
}

/// Goal: the test above can fail: evenly spaced and jittered gaps are no exponential ones.
#[test]
fn other_gaps_do_not_pass_for_exponential() {
    for spacing in [Spacing::Even, Spacing::Jitter { share: 1.0 }] {
        let all = offsets(&process(rate(1_000.0), spacing, 1), 10_001);
        let gaps = all.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e9);
        let statistic = kolmogorov_smirnov(gaps.collect(), |gap_s| 1.0 - (-gap_s * 1e3).exp());
        assert!(statistic > 10.0 * KS_LIMIT, "{spacing}: {statistic}");
    }
}

/// Goal: jitter moves each arrival within its place on the grid, uniformly, and no further.
#[test]
fn jitter_is_uniform_within_its_share() {
    let arrivals = process(rate(1_000.0), Spacing::Jitter { share: 0.5 }, 9);
    let all = offsets(&arrivals, 100_000);
    let places = all.iter().enumerate();
    let places: Vec<f64> = places
        .map(|(index, &offset_ns)| (offset_ns as f64 / 1e6 - index as f64) / 0.5)
        .collect();
    assert!(places.iter().all(|place| (-1e-5..1.0).contains(place)));
    let statistic = kolmogorov_smirnov(places, |place| place.clamp(0.0, 1.0));
    assert!(statistic < KS_LIMIT, "{statistic}");
}

/// Goal: an evenly spaced ramp has the area of a trapezium, and each arrival where the area says.
#[test]
fn a_ramp_is_where_its_area_says() {
    let arrivals = process(segments(&[segment(100.0, 300.0, 10)]), Spacing::Even, 0);
    let all = offsets(&arrivals, u64::MAX);
    assert_eq!(all.len(), 2_000);
    for (number, &offset_ns) in all.iter().enumerate() {
        let time_s = offset_ns as f64 / 1e9;
        let area = 100.0 * time_s + 10.0 * time_s * time_s;
        assert!((area - number as f64).abs() < 1e-5, "{number}: {area}");
    }
    let down = process(segments(&[segment(300.0, 0.0, 10)]), Spacing::Even, 0);
    let all = offsets(&down, u64::MAX);
    assert_eq!(all.len(), 1_500);
    assert!(all.iter().all(|&offset_ns| offset_ns < 10 * SECOND_NS));
}

/// Goal: steps follow each other without losing an arrival, and a silent one has none.
#[test]
fn steps_have_their_arrivals_and_silence_has_none() {
    let profile = segments(&[
        segment(10.0, 10.0, 2),
        segment(0.0, 0.0, 3),
        segment(40.0, 40.0, 1),
    ]);
    let arrivals = process(profile, Spacing::Even, 0);
    assert_eq!(arrivals.span_ns(), Some(6 * SECOND_NS));
    let all = offsets(&arrivals, u64::MAX);
    let within = |from_s: u64, to_s: u64| {
        let range = from_s * SECOND_NS..to_s * SECOND_NS;
        all.iter()
            .filter(|offset_ns| range.contains(offset_ns))
            .count()
    };
    assert_eq!((within(0, 2), within(2, 5), within(5, 6)), (20, 0, 40));
    assert_eq!(all.len(), 60);
}

/// Goal: bursts come again and again, on the same grid each time.
#[test]
fn bursts_repeat() {
    let profile = Profile::bursts(100.0, SECOND_NS / 2, SECOND_NS);
    let arrivals = process(profile, Spacing::Even, 0);
    assert_eq!(arrivals.span_ns(), None);
    let all = offsets(&arrivals, 50_000);
    for (number, &offset_ns) in all.iter().enumerate() {
        let cycle = number as u64 / 50;
        let expected_ns = cycle * SECOND_NS * 3 / 2 + (number as u64 % 50) * SECOND_NS / 100;
        assert!(
            offset_ns.abs_diff(expected_ns) <= 1,
            "{number}: {offset_ns}"
        );
    }
    assert_eq!(arrivals.count_before(SECOND_NS, u64::MAX), 50);
}

/// Goal: a Poisson process with a changing rate has the expected numbers where the rate is high and
/// where it is low.
#[test]
fn spacing_and_profile_go_together() {
    let profile = segments(&[segment(1_000.0, 1_000.0, 10), segment(9_000.0, 9_000.0, 10)]);
    let all = offsets(&process(profile, Spacing::Poisson, 4), u64::MAX);
    let early = all.iter().filter(|&&at_ns| at_ns < 10 * SECOND_NS).count() as f64;
    let late = all.len() as f64 - early;
    // Five standard deviations.
    assert!((early - 10_000.0).abs() < 500.0, "{early}");
    assert!((late - 90_000.0).abs() < 1_500.0, "{late}");
}

/// Goal: a trace is played as it is and then over.
#[test]
fn a_trace_is_played_once() {
    let moments = [0, 5, 5, 1_000];
    let arrivals = process(Profile::Trace(moments.into()), Spacing::Even, 0);
    assert_eq!(offsets(&arrivals, 100), moments);
    assert_eq!(arrivals.span_ns(), Some(1_001));
    assert_eq!(arrivals.count_before(1_000, u64::MAX), 3);
    assert_eq!(arrivals.first_rate(), None);
}

/// Goal: arrivals that could never be played are refused with a sentence that says why.
#[test]
fn impossible_processes_are_refused() {
    let endless = |per_s| Segment {
        from_per_s: per_s,
        to_per_s: per_s,
        duration_ns: None,
    };
    let ramp = Segment {
        to_per_s: 5.0,
        ..endless(1.0)
    };
    let cyclic = Profile::Segments {
        segments: vec![endless(1.0)],
        is_cyclic: true,
    };
    for (profile, part) in [
        (segments(&[]), "at least one step"),
        (segments(&[segment(-1.0, 1.0, 1)]), "not a rate"),
        (segments(&[segment(1.0, 2e9, 1)]), "not a rate"),
        (segments(&[segment(1.0, 1.0, 0)]), "give it a time"),
        (segments(&[ramp]), "how long it takes"),
        (
            segments(&[endless(1.0), segment(1.0, 1.0, 1)]),
            "only the last",
        ),
        (segments(&[segment(0.0, 0.0, 1)]), "all rates are 0"),
        (Profile::bursts(0.0, 1, 1), "all rates are 0"),
        (cyclic, "has to end"),
        (Profile::Trace([].into()), "no arrivals"),
        (Profile::Trace([3, 2].into()), "arrival 2 of the trace"),
    ] {
        let arrivals = Arrivals {
            profile,
            spacing: Spacing::Even,
            seed: 0,
        };
        let problem = arrivals.check().unwrap_err();
        assert!(problem.contains(part), "{problem}");
    }
    for share in [0.0, -0.1, 1.1, f64::NAN] {
        let spacing = Spacing::Jitter { share };
        let arrivals = Arrivals {
            spacing,
            ..Arrivals::constant(Rate::from_per_s(1.0).unwrap())
        };
        assert!(arrivals.check().unwrap_err().contains("jitter"));
    }
    let shaken = Arrivals {
        profile: Profile::Trace([1].into()),
        spacing: Spacing::Poisson,
        seed: 0,
    };
    assert!(shaken.check().unwrap_err().contains("no spacing"));
}

/// Goal: a person reads what was asked for.
#[test]
fn processes_describe_themselves() {
    let constant = Arrivals::constant(Rate::from_per_s(2_000.0).unwrap());
    assert_eq!(constant.to_string(), "2000/s");
    let profile = segments(&[segment(100.0, 300.0, 10), segment(50.0, 50.0, 1)]);
    assert_eq!(
        process(profile, Spacing::Poisson, 7).to_string(),
        "100..300/s for 10 s, 50/s for 1 s, Poisson, seed 7"
    );
    let bursts = Profile::bursts(10.0, SECOND_NS, SECOND_NS / 2);
    let expected = "10/s for 1 s, 0/s for 0.5 s, and again, jitter 0.1, seed 3";
    let shaken = process(bursts, Spacing::Jitter { share: 0.1 }, 3);
    assert_eq!(shaken.to_string(), expected);
    let trace = process(Profile::Trace([1, 2].into()), Spacing::Even, 0);
    assert_eq!(trace.to_string(), "a trace of 2 arrivals");
}

proptest! {
    /// Goal: whatever the process, moments ascend, any two walks agree however they skip, and
    /// counting agrees with walking.
    #[test]
    fn walks_agree(
        parts in prop::collection::vec((0.0f64..5e3, 0.0f64..5e3, 1u64..3), 1..4),
        is_cyclic: bool,
        kind in 0usize..3,
        seed: u64,
        skips in prop::collection::vec(0u64..50, 1..50),
    ) {
        let parts: Vec<Segment> = parts.iter().map(|&(a, b, s)| segment(a, b + 0.1, s)).collect();
        let spacing = [Spacing::Even, Spacing::Poisson, Spacing::Jitter { share: 0.7 }][kind];
        let profile = Profile::Segments { segments: parts, is_cyclic };
        let arrivals = process(profile, spacing, seed);
        let all = offsets(&arrivals, 3_000);
        prop_assert!(all.is_sorted());
        let mut cursor = arrivals.cursor();
        let mut number = 0;
        for skip in skips {
            number += skip;
            let expected = all.get(number as usize).copied();
            if number < 3_000 {
                prop_assert_eq!(cursor.offset_ns(number), expected);
            }
        }
        if let Some(&last_ns) = all.last() {
            let before = all.iter().filter(|&&offset_ns| offset_ns < last_ns).count();
            prop_assert_eq!(arrivals.count_before(last_ns, u64::MAX), before as u64);
        }
    }
}
