use super::*;
use proptest::prelude::*;

const SECOND_NS: u64 = 1_000_000_000;

fn policy() -> EjectionPolicy {
    EjectionPolicy {
        failures_max: 3,
        base_ns: SECOND_NS,
        longest_ns: 10 * SECOND_NS,
    }
}

/// Goal: as many failures in a row as the policy says, then twice as long each time, up to the
/// limit; on probation one failure is enough, and success makes the next ejection shorter.
#[test]
fn ejections_grow_and_are_forgiven() {
    let (policy, mut health, mut now_ns) = (policy(), Health::default(), 0);
    assert!(!health.failed(now_ns, &policy) && !health.failed(now_ns, &policy));
    health.succeeded();
    assert!(!health.failed(now_ns, &policy) && !health.failed(now_ns, &policy));
    assert!(health.failed(now_ns, &policy));
    for seconds in [1, 2, 4, 8, 10, 10] {
        let until_ns = health.eject(now_ns, &policy);
        assert_eq!(until_ns - now_ns, seconds * SECOND_NS);
        assert!(!health.is_usable(until_ns - 1) && health.is_usable(until_ns));
        now_ns = until_ns;
        assert!(health.failed(now_ns, &policy), "on probation");
    }
    health.succeeded();
    assert!(!health.failed(now_ns, &policy), "its probation is over");
    assert_eq!(
        health.eject(0, &policy),
        8 * SECOND_NS,
        "6 ejections became 3"
    );
    let never = EjectionPolicy {
        failures_max: 0,
        ..policy
    };
    assert!((0..100).all(|_| !health.failed(now_ns, &never)));
}

/// An upstream that broke a hundred requests at once was ejected for each of them but the first few, twice as long each
/// time: for a minute, instead of a second. Goal: requests under way when it was ejected count as one failure together,
/// and the first request of its probation for the next.
#[test]
fn one_outage_is_one_ejection() {
    let (policy, mut health) = (policy(), Health::default());
    let mut until_ns = 0;
    for _ in 0..100 {
        if health.failed(0, &policy) {
            until_ns = health.eject(0, &policy);
        }
    }
    assert_eq!(until_ns, SECOND_NS);
    assert!(health.failed(until_ns, &policy), "on probation");
    assert_eq!(health.eject(until_ns, &policy) - until_ns, 2 * SECOND_NS);
}

/// Goal: probes need their number in a row in both directions, and a return clears an ejection.
#[test]
fn probes_change_their_mind_slowly() {
    let (probes, policy) = (ProbePolicy::new("/"), policy());
    let mut health = Health::default();
    for (is_success, is_change, is_down) in [
        (false, false, false),
        (false, false, false),
        (true, false, false),
        (false, false, false),
        (false, false, false),
        (false, true, true),
        (true, false, true),
        (false, false, true),
        (true, false, true),
    ] {
        assert_eq!(health.probed(is_success, &probes), is_change);
        assert_eq!(health.is_down(), is_down);
    }
    health.eject(0, &policy);
    assert!(health.probed(true, &probes));
    assert!(health.is_usable(1));
}

proptest! {
    /// Goal: whatever happens in whatever order, no ejection is shorter than the base or longer
    /// than the limit, and one that is not down is usable when its ejection is over.
    #[test]
    fn ejections_stay_in_bounds(steps in proptest::collection::vec((0..4_u8, 0..20_u64), 0..200)) {
        let (policy, probes) = (policy(), ProbePolicy::new("/"));
        let (mut health, mut now_ns) = (Health::default(), 0);
        for (step, seconds) in steps {
            now_ns += seconds * SECOND_NS / 4;
            match step {
                0 => health.succeeded(),
                1 => {
                    if health.failed(now_ns, &policy) {
                        let length_ns = health.eject(now_ns, &policy) - now_ns;
                        prop_assert!((policy.base_ns..=policy.longest_ns).contains(&length_ns));
                    }
                }
                step => {
                    health.probed(step == 2, &probes);
                }
            }
            prop_assert_eq!(health.is_usable(health.ejected_until_ns), !health.is_down());
        }
    }
}
