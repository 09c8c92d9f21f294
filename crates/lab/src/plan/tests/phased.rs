use super::*;

fn phases() -> PhasePlan {
    let phase = |kind, seconds: u64| PhaseSpec {
        kind,
        duration_ns: seconds * 1_000_000_000,
        ..PhaseSpec::default()
    };
    PhasePlan {
        phases: vec![
            phase(PhaseKind::Steady, 2),
            phase(PhaseKind::Burst, 2),
            phase(PhaseKind::Idle, 6),
        ],
        cycles: 3,
    }
}

/// Goal: idle phases of several candidates pass at the same time, so that a round of five takes little more than the
/// load of five; one at a time takes all of it. The round that traces heaps is in the budget.
#[test]
fn idle_phases_pass_together() {
    let known = Known {
        candidates: 5,
        left: Duration::from_secs(900),
        slowest_per_s: vec![10_000.0],
        warm_up_requests: vec![0],
        phases: Some(phases()),
        ..Known::example()
    };
    let plan = Plan::make(&known);
    let round = plan.run * 5;
    assert!(
        round > Duration::from_secs(66) && round < Duration::from_secs(75),
        "{round:?}"
    );
    assert!(plan.duration(5) + round <= known.left, "{plan:?}");
    assert!(plan.rounds >= plan.rounds_min && !plan.over_budget);
    assert_eq!(plan.rate_per_s, [4_000.0]);
    let alone = Plan::make(&Known {
        is_one_at_a_time: true,
        ..known.clone()
    });
    assert!(alone.run > Duration::from_secs(30), "{:?}", alone.run);
    // 64 connections, each of whose last responses takes its turn, in two phases of three cycles.
    let slow = Plan::make(&Known {
        slowest_per_s: vec![100.0],
        ..known.clone()
    });
    let longer = (slow.run - plan.run) * 5;
    assert!(longer > Duration::from_secs(15), "{longer:?}");
    let lines = plan.describe(&["request"], 5, &Known::example());
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("3 cycles in each round: steady 2.00 s with 64")),
        "{lines:?}"
    );
}
