use super::*;
use crate::plan::Known;

fn step(cycle: u32, pace: Pace) -> Step {
    let operation = Operation::Request;
    Step {
        cycle,
        place: 0,
        kind: SliceKind { operation, pace },
    }
}

/// Flushes that PUTs had left behind made p99 of GET 0.1 ms in some rounds and 3 ms in others.
///
/// Goal: all slices of reads precede those of writes.
#[test]
fn reads_come_first() {
    let plan = Plan::make(&Known {
        candidates: 3,
        slowest_per_s: vec![40_000.0, 90_000.0],
        writes: vec![true, false],
        ..Known::example()
    });
    let steps = by_operation(&plan, &[Operation::Put, Operation::Get]);
    let [reads, writes] = &steps[..] else {
        panic!("{steps:?}")
    };
    for (steps, operation, place) in [(reads, Operation::Get, 1), (writes, Operation::Put, 0)] {
        let count = plan.counts(place).iter().sum::<u32>() as usize;
        assert_eq!(steps.len(), count);
        let is_right = |step: &Step| step.kind.operation == operation && step.place == place;
        assert!(steps.iter().all(is_right), "{steps:?}");
        let rate = plan.rate_per_s[place];
        assert!(
            steps
                .iter()
                .any(|step| step.kind.pace == Pace::Rate { per_s: rate })
        );
        let has_block = steps[count - 1].kind.pace == Pace::Block;
        assert_eq!(has_block, operation == Operation::Get);
    }
}

/// Goal: every step is taken once, and what is sensitive to the distance of the CPUs comes first while they are
/// near, and last while they are not.
#[test]
fn latency_is_measured_while_the_cpus_are_near() {
    let rate = Pace::Rate { per_s: 10.0 };
    let mut steps = vec![
        step(0, Pace::Closed),
        step(0, rate),
        step(1, rate),
        step(2, rate),
        step(0, Pace::Block),
    ];
    let mut taken = Vec::new();
    for are_far in [false, true, false, true, true] {
        assert_eq!(are_paced_left(&steps), steps.iter().any(is_paced));
        taken.push(take(&mut steps, are_far));
    }
    let expected = [
        step(0, rate),
        step(0, Pace::Closed),
        step(1, rate),
        step(0, Pace::Block),
        step(2, rate),
    ];
    assert_eq!(taken, expected);
    assert!(steps.is_empty() && !are_paced_left(&steps));
    assert!(are_only_paced_left(&expected[2..3]) && !are_only_paced_left(&expected));
}
