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

/// All steps: cycles, in each of them every operation in the closed loop and at the constant rate; then blocks.
pub(super) fn all(plan: &Plan, operations: &[Operation]) -> Vec<Step> {
    let mut steps = Vec::new();
    for cycle in 0..plan.cycles.max(plan.paced) {
        for (place, &operation) in operations.iter().enumerate() {
            let mut add = |pace| {
                let kind = SliceKind { operation, pace };
                steps.push(Step { cycle, place, kind });
            };
            if cycle < plan.cycles {
                add(Pace::Closed);
            }
            if cycle < plan.paced {
                let per_s = plan.rate_per_s.get(place).copied().unwrap_or(1.0);
                add(Pace::Rate { per_s });
            }
        }
    }
    // Records from before there were blocks are repeated without.
    if plan.block.is_zero() {
        return steps;
    }
    let blocks = operations.iter().enumerate().map(|(place, &operation)| {
        let pace = Pace::Block;
        let kind = SliceKind { operation, pace };
        Step {
            cycle: 0,
            place,
            kind,
        }
    });
    steps.extend(blocks);
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

    fn step(cycle: u32, pace: Pace) -> Step {
        let operation = Operation::Request;
        Step {
            cycle,
            place: 0,
            kind: SliceKind { operation, pace },
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
