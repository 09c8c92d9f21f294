use super::Experience;
use super::*;

fn pair(steal_share_beside: f64) -> Pair {
    let turn = || Turn {
        standing: Experience {
            requests: 1,
            errors: 0,
            kernel_p50_ns: 1.0,
            kernel_p99_ns: 1.0,
            exchanges: Vec::new(),
        },
        newcomers: None,
        crowd: None,
    };
    Pair {
        alone: turn(),
        beside: turn(),
        stalls: Stalls::default(),
        steal_share_beside,
        stood_beside: Stood::default(),
    }
}

fn judged(pairs: Pairs) -> (bool, Value) {
    let holdings = || Holdings {
        resident_bytes: 1,
        descriptors: 1,
    };
    let (_, detail) = pairs.summary(["an attack", "a driver"], [holdings(), holdings()]);
    (detail["is_judged"] == true, detail["pairs"].clone())
}

/// Goal: a pair from which the hypervisor took time is taken again, and what is judged is without it.
#[test]
fn a_noisy_pair_is_taken_again() {
    let mut pairs = Pairs::new(2, 4);
    for steal_share in [0.0, 0.3, 0.005] {
        assert!(pairs.wants_more());
        pairs.push(pair(steal_share));
    }
    assert!(!pairs.wants_more());
    assert_eq!(judged(pairs), (true, 2.into()));
}

/// Goal: where the machine is never quiet it ends, everything is shown, and nothing is judged.
#[test]
fn patience_ends_and_all_is_shown() {
    let mut pairs = Pairs::new(2, 4);
    for steal_share in [0.3, 0.0, 0.3, 0.3] {
        assert!(pairs.wants_more());
        pairs.push(pair(steal_share));
    }
    assert!(!pairs.wants_more());
    assert_eq!(judged(pairs), (false, 4.into()));
}
