use super::*;

fn distance(ns: f64) -> CoreDistance {
    CoreDistance { ns: Some(ns) }
}

/// Goal: near and far are distinguished whatever the machine's distances are, and what is not known is neither.
#[test]
fn distances_are_compared() {
    let (near, far, none) = (distance(55.0), distance(300.0), CoreDistance::default());
    assert!(near.differs(far) && far.differs(near) && !near.differs(distance(64.0)));
    assert!(far.is_beyond(near) && !near.is_beyond(far) && !near.is_beyond(near));
    assert!(!none.differs(near) && !near.differs(none) && !near.is_beyond(none));
    let mut nearest = none;
    for (seen, expected) in [
        (none, none),
        (far, far),
        (near, near),
        (far, near),
        (none, near),
    ] {
        assert_eq!(nearest.lower_to(seen), expected);
    }
    assert_eq!((near.or(far), none.or(far)), (near, far));
    assert_eq!((none.ns(), near.mean(near).ns().round()), (0.0, 55.0));
}

/// Goal: a number between two CPUs, or none where one of them cannot be had; never a wait without end.
#[test]
fn a_round_trip_takes_time() {
    let cpus = millpond_io::allowed_cpus().unwrap();
    assert_eq!(round_trip_ns(cpus[0], cpus[0]), None);
    assert_eq!(round_trip_ns(cpus[0], 1_000), None);
    if let [one, other, ..] = cpus[..] {
        // A busy machine may have no time for it.
        assert!(round_trip_ns(one, other).is_none_or(|ns| ns > 1.0));
    }
}
