//! What is measured of every candidate of a generation, one step after the other.

use millpond_measure::record::Operation;

use crate::drive::{Pace, SliceKind};
use crate::plan::Plan;

/// One slice, or one block, of every candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Step {
    /// Counted from 0; blocks have but one.
    pub(super) cycle: u32,
    /// Of the operation.
    pub(super) place: usize,
    pub(super) kind: SliceKind,
}

/// The steps of each operation: cycles, in each of them the closed loop and the constant rate; then the block. What only
/// reads comes first: flushes and compactions that writes leave behind would fall into some reads and not into others.
pub(super) fn by_operation(plan: &Plan, operations: &[Operation]) -> Vec<Vec<Step>> {
    let mut places: Vec<(usize, Operation)> = operations.iter().copied().enumerate().collect();
    places.sort_by_key(|&(_, operation)| operation.is_write());
    let steps = places
        .into_iter()
        .map(|(place, operation)| of_operation(plan, place, operation));
    steps.collect()
}

fn of_operation(plan: &Plan, place: usize, operation: Operation) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut add = |cycle, pace| {
        let kind = SliceKind { operation, pace };
        steps.push(Step { cycle, place, kind });
    };
    let [closed, paced, blocks] = plan.counts(place);
    for cycle in 0..closed.max(paced) {
        if cycle < closed {
            add(cycle, Pace::Closed);
        }
        if cycle < paced {
            let per_s = plan.rate_per_s.get(place).copied().unwrap_or(1.0);
            add(cycle, Pace::Rate { per_s });
        }
    }
    // Records from before there were blocks are repeated without.
    if blocks > 0 {
        add(0, Pace::Block);
    }
    steps
}

/// Whether a step at the constant rate is left.
pub(super) fn are_paced_left(steps: &[Step]) -> bool {
    steps.iter().any(is_paced)
}

/// Whether steps at the constant rate are all that is left.
pub(super) fn are_only_paced_left(steps: &[Step]) -> bool {
    steps.iter().all(is_paced)
}

/// Takes the next step out: while the CPUs of server and generator are near each other one at the constant rate,
/// while they are far apart one of the others, as long as there are such. Throughput can be adjusted for the
/// distance, a p99 cannot.
pub(super) fn take(steps: &mut Vec<Step>, are_far: bool) -> Step {
    let next = steps.iter().position(|step| is_paced(step) != are_far);
    steps.remove(next.unwrap_or(0))
}

fn is_paced(step: &Step) -> bool {
    matches!(step.kind.pace, Pace::Rate { .. })
}

#[cfg(test)]
mod tests {
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
}
