//! From slices at the constant rate to the percentiles of a round.
//!
//! The 99th percentile is that of all answers of a round together: a pause that falls into one slice of several belongs
//! to a server's p99, and a mean or a median of slices' own would hide it. The median is compared within cycles, whose
//! slices follow each other at once and, as far as the lab can tell, at one distance of the CPUs of server and
//! generator: a round's ratio is the mean of the cycles' log ratios, trimmed by a tenth at each end and by one value at
//! least. Where answers come in two groups, the median of all together jumps from one to the other.
//!
//! While the CPUs are far apart, a p99 is several times as large and varies by several times from slice to slice.
//! Whether they are is nobody's doing, so where enough rounds have cycles measured near, only those count.

use std::collections::BTreeMap;

use crate::record::{
    CORE_DISTANCE_CHANGE_MIN, CandidateRounds, Measure, Operation, PacedColumns, Quantity, Role,
    RoundMeasures,
};
use crate::slices::{differences, rounds_with, trimmed_mean};
use crate::statistics::smallest_rounds;

/// With fewer answers in a slice, the median is that of all slices together.
const ANSWERS_MIN: u64 = 40;

/// The medians, and where each is in the columns.
type Median = (Quantity, fn(&PacedColumns) -> &Vec<u64>);
const MEDIANS: [Median; 2] = [
    (Quantity::ResponseP50, |columns| &columns.p50_ns),
    (Quantity::ServiceP50, |columns| &columns.service_p50_ns),
];
const TAILS: [Quantity; 2] = [Quantity::ResponseP99, Quantity::ServiceP99];

/// Works out the medians of every round that has slices at the constant rate, from those of the baseline and the
/// cycles that both have, and takes the percentiles away from rounds that do not count.
pub(crate) fn work_out(candidates: &mut [CandidateRounds]) {
    let others = candidates.len().saturating_sub(1);
    for operation in Operation::ALL {
        let baseline = candidates.iter().find(|one| one.role == Role::Baseline);
        let baseline: BTreeMap<u32, PacedColumns> = baseline
            .into_iter()
            .flat_map(|one| columns_of(one, operation))
            .map(|(entry, columns)| (entry.round, columns.clone()))
            .collect();
        let chosen = choose(&baseline, smallest_rounds(others));
        // Decided for all at once: a median of single slices is not to be compared with one of all together.
        let fewest = candidates
            .iter()
            .flat_map(|one| columns_of(one, operation))
            .flat_map(|(_, columns)| &columns.requests)
            .min();
        let is_enough = fewest.is_some_and(|&fewest| fewest >= ANSWERS_MIN);
        for candidate in candidates.iter_mut() {
            for entry in &mut candidate.rounds {
                let pair = baseline.get(&entry.round).zip(chosen.get(&entry.round));
                if let Some((baseline, cycles)) = pair {
                    note_medians(entry, operation, is_enough, baseline, cycles);
                }
            }
        }
    }
}

/// The rounds that count, with their slices.
fn columns_of(
    candidate: &CandidateRounds,
    operation: Operation,
) -> impl Iterator<Item = (&RoundMeasures, &PacedColumns)> {
    rounds_with(candidate, move |entry| {
        let columns = entry.paced.get(operation.key())?;
        columns.is_whole().then_some(columns)
    })
}

/// The cycles that count, by round: those measured near if `rounds_min` rounds have one, else all.
fn choose(baseline: &BTreeMap<u32, PacedColumns>, rounds_min: usize) -> BTreeMap<u32, Vec<u32>> {
    let distances = baseline
        .values()
        .flat_map(|columns| &columns.core_distance_ns);
    let known = distances.copied().filter(|&ns| ns > 0.0);
    let nearest = known.reduce(f64::min);
    let is_near = |ns: f64| match nearest {
        Some(nearest) if ns > 0.0 => (ns / nearest).ln() <= CORE_DISTANCE_CHANGE_MIN,
        _ => true,
    };
    let near: BTreeMap<u32, Vec<u32>> = baseline
        .iter()
        .map(|(&round, columns)| {
            let all = columns.cycle.iter().zip(&columns.core_distance_ns);
            let near = all.filter(|&(_, &ns)| is_near(ns));
            (round, near.map(|(&cycle, _)| cycle).collect())
        })
        .collect();
    if near.values().filter(|cycles| !cycles.is_empty()).count() >= rounds_min {
        return near;
    }
    let all = baseline.iter();
    all.map(|(&round, columns)| (round, columns.cycle.clone()))
        .collect()
}

/// Sets the medians of a round; where none of its cycles counts, it has no percentiles.
fn note_medians(
    entry: &mut RoundMeasures,
    operation: Operation,
    is_enough: bool,
    baseline: &PacedColumns,
    cycles: &[u32],
) {
    let own = entry.paced.get(operation.key());
    let Some(own) = own.filter(|own| own.is_whole()).cloned() else {
        return;
    };
    if cycles.is_empty() {
        let medians = MEDIANS.into_iter().map(|(quantity, _)| quantity);
        for quantity in medians.chain(TAILS) {
            entry.measures.remove(&Measure::of(operation, quantity));
        }
        return;
    }
    for (quantity, of) in MEDIANS {
        let by_cycle = |columns: &PacedColumns| -> BTreeMap<u32, f64> {
            let all = columns.cycle.iter().zip(of(columns));
            let counted = all.filter(|&(cycle, &ns)| cycles.contains(cycle) && ns > 0);
            counted
                .map(|(&cycle, &ns)| (cycle, (ns as f64).ln()))
                .collect()
        };
        let of_baseline = by_cycle(baseline);
        let ratio = trimmed_mean(differences(&by_cycle(&own), &of_baseline));
        let level = trimmed_mean(of_baseline.into_values().collect());
        let measure = Measure::of(operation, quantity);
        if let Some((ratio, level)) = ratio.zip(level)
            && is_enough
            && entry.measures.contains_key(&measure)
        {
            entry.set(measure, (level + ratio).exp());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P50: Measure = Measure::of(Operation::Get, Quantity::ResponseP50);
    const P99: Measure = Measure::of(Operation::Get, Quantity::ResponseP99);

    /// Slices as (cycle, median, distance) with so many answers each, beside percentiles of all together.
    fn round(number: u32, answers: u64, slices: &[(u32, u64, f64)]) -> RoundMeasures {
        let mut columns = PacedColumns::default();
        for &(cycle, p50_ns, distance_ns) in slices {
            columns.cycle.push(cycle);
            columns.requests.push(answers);
            columns.p50_ns.push(p50_ns);
            columns.p99_ns.push(9 * p50_ns);
            columns.service_p50_ns.push(p50_ns / 3);
            columns.service_p99_ns.push(9 * p50_ns);
            columns.cpu_ns.push(0.0);
            columns.core_distance_ns.push(distance_ns);
        }
        let mut entry = RoundMeasures {
            round: number,
            ..RoundMeasures::default()
        };
        entry.set(P50, 777.0);
        entry.set(P99, 9_000_000.0);
        entry.paced.insert("get".to_owned(), columns);
        entry
    }

    fn found(rounds: [Vec<RoundMeasures>; 2]) -> Vec<[Option<f64>; 2]> {
        let roles = [Role::Baseline, Role::Candidate];
        let mut number = 0;
        let mut candidates = rounds.map(|rounds| {
            number += 1;
            CandidateRounds {
                role: roles[number - 1],
                rounds,
                ..CandidateRounds::default()
            }
        });
        work_out(&mut candidates);
        let count = candidates[0].rounds.len();
        let value = |index: usize, round: usize| {
            let round = &candidates[index].rounds[round];
            // A tail is left as it is, or goes with the median.
            let tail = round.get(P50).map(|_| 9_000_000.0);
            assert_eq!(round.get(P99), tail);
            round.get(P50)
        };
        (0..count)
            .map(|round| [value(0, round), value(1, round)])
            .collect()
    }

    /// Goal: one slice in another state does not decide the median, and a cycle that the baseline lacks is not paired;
    /// the tail of all answers stays.
    #[test]
    fn one_slice_does_not_decide_the_median() {
        let baseline = [(0, 50_000, 64.0), (1, 50_000, 64.0), (2, 900_000, 64.0)];
        let own = [
            (0, 55_000, 64.0),
            (1, 55_000, 64.0),
            (2, 990_000, 64.0),
            (3, 4_000_000, 64.0),
        ];
        let all = found([
            vec![round(0, 9_000, &baseline)],
            vec![round(0, 9_000, &own)],
        ]);
        let [Some(baseline), Some(own)] = all[0] else {
            panic!("{all:?}")
        };
        assert!(
            (own / baseline - 1.1).abs() < 1e-9 && (baseline - 50_000.0).abs() < 1.0,
            "{all:?}"
        );
    }

    /// Goal: cycles measured while the CPUs were far apart count where there is nothing else, and not where enough
    /// rounds were measured near; a round that has only far ones has no percentiles then.
    #[test]
    fn near_cycles_count_if_there_are_enough() {
        let near = |number| round(number, 9_000, &[(0, 60_000, 64.0), (1, 400_000, 300.0)]);
        let far = |number| round(number, 9_000, &[(0, 400_000, 300.0)]);
        let side = |count: u32| -> Vec<RoundMeasures> {
            (0..count).map(near).chain([far(count)]).collect()
        };
        let enough = u32::try_from(smallest_rounds(1)).unwrap();
        let all = found([side(enough), side(enough)]);
        assert!(
            all[..enough as usize]
                .iter()
                .all(|pair| pair[0].is_some_and(|ns| ns < 61_000.0))
        );
        assert_eq!(all[enough as usize], [None, None]);
        let all = found([side(enough - 1), side(enough - 1)]);
        assert!(all.iter().flatten().all(Option::is_some), "{all:?}");
        assert!(all[0][0] > Some(61_000.0));
    }

    /// Goal: a median of few answers is that of all slices together, and columns that somebody cut change nothing.
    #[test]
    fn few_answers_are_taken_together() {
        let slices = [(0, 60_000, 64.0), (1, 60_000, 64.0)];
        let few = || vec![round(0, 39, &slices)];
        assert_eq!(found([few(), few()]), [[Some(777.0); 2]]);
        // One too few of one candidate: the other's is not taken from single slices either.
        let nearly = found([vec![round(0, 40, &slices)], vec![round(0, 39, &slices)]]);
        assert_eq!(nearly, [[Some(777.0); 2]]);
        let mut cut = round(0, 9_000, &slices);
        cut.paced.get_mut("get").unwrap().p99_ns.clear();
        assert_eq!(found([vec![cut.clone()], vec![cut]]), [[Some(777.0); 2]]);
    }
}
