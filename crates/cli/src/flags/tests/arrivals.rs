use super::*;

const SECOND_NS: u64 = 1_000_000_000;

fn step(from_per_s: f64, to_per_s: f64, duration_ns: Option<u64>) -> Segment {
    Segment {
        from_per_s,
        to_per_s,
        duration_ns,
    }
}

/// Goal: rates mean what a person means by them, down to one in minutes.
#[test]
fn rates_come_in_many_units() {
    for (text, per_s) in [
        ("2000", 2000.0),
        ("20k", 20_000.0),
        ("1.5M", 1_500_000.0),
        ("0.01", 0.01),
        ("0.01/s", 0.01),
        ("120/m", 2.0),
        ("36/h", 0.01),
        ("2k/s", 2000.0),
    ] {
        assert_eq!(parse_rate(text), Ok(per_s), "{text}");
    }
    for text in [
        "", "fast", "-1", "1e9", "nan", "inf", "5/day", "k", "1..2", "+5",
    ] {
        assert!(parse_rate(text).is_err(), "{text}");
    }
}

/// Goal: steps and ramps are read as they are written.
#[test]
fn steps_and_ramps_are_read() {
    let steps = parse_rate_steps("1k@10s,1k..5k@30s,500").unwrap();
    let expected = [
        step(1e3, 1e3, Some(10 * SECOND_NS)),
        step(1e3, 5e3, Some(30 * SECOND_NS)),
        step(500.0, 500.0, None),
    ];
    assert_eq!(steps.0[..], expected);
    for text in ["1k@", "1k@0s", "1..", "..1", "1,,2", "1k@10s@3s"] {
        assert!(parse_rate_steps(text).is_err(), "{text}");
    }
}

/// Goal: one rate stays exact, a ramp takes the run's length, and contradictions are named.
#[test]
fn rates_become_profiles() {
    let profile = |text: &str, duration_ns, bursts| {
        let steps = parse_rate_steps(text).unwrap();
        steps
            .profile(duration_ns, bursts)
            .map_err(|failure| match failure {
                Failure::Usage(sentence) | Failure::Failed(sentence) => sentence,
            })
    };
    let exact = Rate::from_per_s(2_000.0).unwrap();
    assert_eq!(profile("2k", None, None), Ok(Profile::Constant(exact)));
    let ramp = Profile::Segments {
        segments: vec![step(1.0, 5.0, Some(SECOND_NS))],
        is_cyclic: false,
    };
    assert_eq!(profile("1..5", Some(SECOND_NS), None), Ok(ramp));
    let bursts = Profile::bursts(10.0, 1, 2);
    assert_eq!(profile("10", None, Some((1, 2))), Ok(bursts));
    for (text, bursts, part) in [
        ("1..5", None, "needs --duration"),
        ("0", None, "above 0"),
        ("1..5", Some((1, 2)), "not with a ramp"),
        ("1@1s,2", Some((1, 2)), "not with steps"),
    ] {
        let error = profile(text, None, bursts).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}

/// Goal: a trace is seconds, and a wrong line is named.
#[test]
fn traces_are_read_line_by_line() {
    let text = "# made by hand\n0\n0.5  # half\n\n0.500000001\n12\n";
    let expected = vec![0, SECOND_NS / 2, SECOND_NS / 2 + 1, 12 * SECOND_NS];
    assert_eq!(parse_trace(text), Ok(expected));
    for (text, part) in [
        ("1\nsoon\n", "line 2"),
        ("1\n0.5\n", "line 2: 0.5 is before"),
        ("-1\n", "line 1"),
        ("# nothing\n", "no time"),
    ] {
        let error = parse_trace(text).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn spacings_are_read() {
    assert_eq!(parse_spacing("poisson"), Ok(Spacing::Poisson));
    assert_eq!(
        parse_spacing("jitter:0.25"),
        Ok(Spacing::Jitter { share: 0.25 })
    );
    for text in ["", "uniform", "jitter:2", "jitter:", "poisson:1"] {
        assert!(parse_spacing(text).is_err(), "{text}");
    }
}
