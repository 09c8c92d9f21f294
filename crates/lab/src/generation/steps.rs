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

/// Whether the next step is at the constant rate.
pub(super) fn are_paced_next(steps: &[Step]) -> bool {
    steps.first().is_some_and(is_paced)
}

/// Takes the next step out; if the CPUs of server and generator are far apart, one that is not at the constant
/// rate, as long as there is one: throughput can be adjusted for the distance, a p99 cannot.
pub(super) fn take(steps: &mut Vec<Step>, are_far: bool) -> Step {
    let next = match are_far {
        true => steps.iter().position(|step| !is_paced(step)).unwrap_or(0),
        false => 0,
    };
    steps.remove(next)
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

    /// Goal: every step is taken once, and what is sensitive to the distance of the CPUs waits as long as there is
    /// something else to do.
    #[test]
    fn latency_waits_for_near_cpus() {
        let rate = Pace::Rate { per_s: 10.0 };
        let mut steps = vec![
            step(0, rate),
            step(0, Pace::Closed),
            step(1, rate),
            step(0, Pace::Block),
        ];
        let mut taken = Vec::new();
        for are_far in [true, true, false, true] {
            assert_eq!(are_paced_next(&steps), steps[0].kind.pace == rate);
            taken.push(take(&mut steps, are_far));
        }
        let expected = [
            step(0, Pace::Closed),
            step(0, Pace::Block),
            step(0, rate),
            step(1, rate),
        ];
        assert_eq!(taken, expected);
        assert!(steps.is_empty() && !are_paced_next(&steps));
    }
}
