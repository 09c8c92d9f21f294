//! Which rounds count for percentiles: those measured while the CPUs of server and generator were near each other.
//!
//! A round's percentiles are those of all its answers at the constant rate together, of the cycles that were measured
//! near where there are such: a pause that falls into one slice of several belongs to a server's p99, and a mean or a
//! median of slices' own percentiles would hide it.
//!
//! While the CPUs are far apart, a p99 is several times as large and varies by several times from slice to slice.
//! Whether they are is nobody's doing, so where enough rounds were measured near, the others have no percentiles.

use std::collections::BTreeSet;

use crate::record::{
    CORE_DISTANCE_CHANGE_MIN, CandidateRounds, Measure, Operation, PacedColumns, Quantity, Role,
};
use crate::slices::rounds_with;
use crate::statistics::smallest_rounds;

const PERCENTILES: [Quantity; 4] = [
    Quantity::ResponseP50,
    Quantity::ResponseP99,
    Quantity::ServiceP50,
    Quantity::ServiceP99,
];

/// Takes the percentiles away from the rounds measured far, if enough others are left; decided by the baseline's.
pub(crate) fn leave_out_far_rounds(candidates: &mut [CandidateRounds]) {
    let rounds_min = smallest_rounds(candidates.len().saturating_sub(1));
    for operation in Operation::ALL {
        let baseline = candidates.iter().find(|one| one.role == Role::Baseline);
        let far = baseline.map_or_else(BTreeSet::new, |one| far_rounds(one, operation, rounds_min));
        let rounds = candidates.iter_mut().flat_map(|one| &mut one.rounds);
        for entry in rounds.filter(|entry| far.contains(&entry.round)) {
            for quantity in PERCENTILES {
                entry.measures.remove(&Measure::of(operation, quantity));
            }
        }
    }
}

/// The rounds in which no cycle was measured near; none if fewer than `rounds_min` others would be left.
fn far_rounds(
    candidate: &CandidateRounds,
    operation: Operation,
    rounds_min: usize,
) -> BTreeSet<u32> {
    let columns = rounds_with(candidate, |entry| {
        let columns = entry.paced.get(operation.key())?;
        columns.is_whole().then_some(columns)
    });
    let nearest_of_each: Vec<(u32, Option<f64>)> = columns
        .map(|(entry, columns)| (entry.round, nearest(columns)))
        .collect();
    let nearest = nearest_of_each
        .iter()
        .filter_map(|&(_, ns)| ns)
        .reduce(f64::min);
    let is_far = |ns: Option<f64>| match (nearest, ns) {
        (Some(nearest), Some(ns)) => (ns / nearest).ln() > CORE_DISTANCE_CHANGE_MIN,
        _ => false,
    };
    let (far, near): (Vec<_>, Vec<_>) =
        nearest_of_each.into_iter().partition(|&(_, ns)| is_far(ns));
    if near.len() < rounds_min {
        return BTreeSet::new();
    }
    far.into_iter().map(|(round, _)| round).collect()
}

/// The least distance of its slices; `None` if it was not measured.
fn nearest(columns: &PacedColumns) -> Option<f64> {
    let known = columns
        .core_distance_ns
        .iter()
        .copied()
        .filter(|&ns| ns > 0.0);
    known.reduce(f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RoundMeasures;

    const P99: Measure = Measure::of(Operation::Get, Quantity::ResponseP99);

    /// A round whose slices were measured at these distances.
    fn round(number: u32, distances_ns: &[f64]) -> RoundMeasures {
        let count = distances_ns.len();
        let columns = PacedColumns {
            cycle: (0..).take(count).collect(),
            requests: vec![9_000; count],
            p50_ns: vec![30_000; count],
            p99_ns: vec![60_000; count],
            service_p50_ns: vec![20_000; count],
            service_p99_ns: vec![50_000; count],
            cpu_ns: vec![0.0; count],
            core_distance_ns: distances_ns.to_vec(),
            left_out_share: Vec::new(),
        };
        let mut entry = RoundMeasures {
            round: number,
            ..RoundMeasures::default()
        };
        entry.set(P99, 60_000.0);
        entry.paced.insert("get".to_owned(), columns);
        entry
    }

    /// How many rounds of each have a p99 afterwards.
    fn left(rounds: [Vec<RoundMeasures>; 2]) -> [usize; 2] {
        let [baseline, own] = rounds;
        let mut candidates =
            [(Role::Baseline, baseline), (Role::Candidate, own)].map(|(role, rounds)| {
                CandidateRounds {
                    role,
                    rounds,
                    ..CandidateRounds::default()
                }
            });
        leave_out_far_rounds(&mut candidates);
        candidates.map(|one| {
            let rounds = one.rounds.iter();
            rounds.filter(|entry| entry.get(P99).is_some()).count()
        })
    }

    /// Goal: rounds measured while the CPUs were far apart count where there is nothing else, and not where enough
    /// rounds were measured near.
    #[test]
    fn near_rounds_count_if_there_are_enough() {
        let near = |number| round(number, &[64.0, 300.0]);
        let side = |count: u32| -> Vec<RoundMeasures> {
            (0..count)
                .map(near)
                .chain([round(count, &[300.0])])
                .collect()
        };
        let enough = u32::try_from(smallest_rounds(1)).unwrap();
        assert_eq!(left([side(enough), side(enough)]), [enough as usize; 2]);
        // One too few.
        assert_eq!(
            left([side(enough - 1), side(enough - 1)]),
            [enough as usize; 2]
        );
        // Where the distance cannot be measured, all count.
        let unknown = || (0..enough).map(|number| round(number, &[0.0])).collect();
        assert_eq!(left([unknown(), unknown()]), [enough as usize; 2]);
        // Columns that somebody cut are not looked at.
        let mut cut = side(enough);
        cut[enough as usize]
            .paced
            .get_mut("get")
            .unwrap()
            .p99_ns
            .clear();
        assert_eq!(left([cut.clone(), cut]), [enough as usize + 1; 2]);
    }
}
