//! Whether slices tell what uninterrupted blocks tell.
//!
//! While one candidate is measured in slices the others stand still, but the clock runs on: what a server or an
//! allocator does every second of it comes several times as often per unit of work. So each round has one block
//! of each candidate beside the slices, several times as long and uninterrupted. Per round the candidate's ratio
//! to the baseline in blocks is divided by its ratio in slices; if that differs from 1 (exact sign-flip test,
//! Holm over all candidates and both measures of an operation, 5 %), the candidate's figures come from blocks
//! alone; else the block counts as one more slice.
//! Minor faults and calls of `madvise` per request are noted for both; nothing is decided by them.

use crate::record::{BlockCheck, CandidateRounds, Operation};
use crate::slices::RoundFigures;
use crate::statistics::{
    Estimate, SIGNIFICANCE, hodges_lehmann, holm, sign_flip_p, signed_rank_interval,
};

/// Fewer rounds have no interval of 95 %.
const ROUNDS_MIN: usize = 6;
const CONFIDENCE: f64 = 1.0 - SIGNIFICANCE;

/// One check for each candidate, whose figures by round are in `found`; `None` for one that has no block beside
/// the baseline's, and for the baseline, which does not differ from itself.
pub(crate) fn check(found: &[Vec<RoundFigures>], operation: Operation) -> Vec<Option<BlockCheck>> {
    let differences: Vec<[Vec<f64>; 2]> =
        found.iter().map(|rounds| disagreements(rounds)).collect();
    let varies = |values: &Vec<f64>| values.iter().any(|&value| value != 0.0);
    let tested = |values: &Vec<f64>| values.len() >= ROUNDS_MIN && varies(values);
    let all = || differences.iter().flatten();
    let p_values: Vec<f64> = all()
        .filter(|values| tested(values))
        .map(|values| sign_flip_p(values))
        .collect();
    let mut adjusted = holm(&p_values).into_iter();
    let differs: Vec<bool> = all()
        .map(|values| {
            tested(values)
                && adjusted.next().is_some_and(|p| p <= SIGNIFICANCE)
                && signed_rank_interval(values, CONFIDENCE)
                    .is_some_and(|interval| !interval.contains(0.0))
        })
        .collect();
    let pairs = found.iter().zip(&differences).zip(differs.chunks(2));
    pairs
        .map(|((rounds, differences), differs)| {
            let [throughput, cpu_time] = differences;
            if !varies(throughput) && !varies(cpu_time) {
                return None;
            }
            let mean_of = |of: fn(&RoundFigures) -> Option<f64>| {
                let values: Vec<f64> = rounds.iter().filter_map(of).collect();
                (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
            };
            Some(BlockCheck {
                operation,
                rounds: u32::try_from(throughput.len()).unwrap_or(u32::MAX),
                throughput: estimate(throughput),
                cpu_time: estimate(cpu_time),
                minor_faults_in_slices: mean_of(|one| one.minor_faults.0),
                minor_faults_in_blocks: mean_of(|one| one.minor_faults.1),
                madvise_calls_in_slices: mean_of(|one| one.madvise_calls.0),
                madvise_calls_in_blocks: mean_of(|one| one.madvise_calls.1),
                is_used: differs.contains(&true),
            })
        })
        .collect()
}

/// For the list of warnings: whose figures come from blocks, and why.
pub(crate) fn warnings(candidates: &[CandidateRounds]) -> Vec<String> {
    let used = candidates.iter().flat_map(|one| {
        let checks = one.block_checks.iter().filter(|check| check.is_used);
        checks.map(move |check| (&one.name, check))
    });
    used.map(|(name, check)| {
        let figures = check.throughput.map_or_else(String::new, |found| {
            format!(
                ": against the baseline it does {:.3}x [{:.3}, {:.3}] of what slices show",
                found.ratio, found.low, found.high
            )
        });
        format!(
            "{name}: {} throughput and CPU time come from uninterrupted blocks, since slices differ from \
             them{figures}",
            check.operation.label()
        )
    })
    .collect()
}

/// Of throughput and of CPU time, by round.
fn disagreements(rounds: &[RoundFigures]) -> [Vec<f64>; 2] {
    let each = || rounds.iter().map(RoundFigures::disagreement);
    [
        each().filter_map(|one| one.throughput).collect(),
        each().filter_map(|one| one.cpu_ns).collect(),
    ]
}

/// `None` of too few rounds.
fn estimate(differences: &[f64]) -> Option<Estimate> {
    if differences.len() < ROUNDS_MIN {
        return None;
    }
    let interval = signed_rank_interval(differences, CONFIDENCE)?;
    Some(Estimate {
        ratio: hodges_lehmann(differences)?.exp(),
        low: interval.low.exp(),
        high: interval.high.exp(),
    })
}

#[cfg(test)]
mod tests {
    use crate::record::{
        CandidateRounds, Measure, Operation, Quantity, Role, RoundMeasures, SliceColumns,
    };
    use crate::slices::work_out;

    const ROUNDS: u32 = 10;

    /// Slices of this rate, and one block of that rate; its CPU time is all of the time.
    fn round(number: u32, slices: &[f64], block: Option<f64>) -> RoundMeasures {
        let columns = |rates: &[f64]| SliceColumns {
            cycle: (0..).take(rates.len()).collect(),
            requests: vec![1_000; rates.len()],
            per_s: rates.to_vec(),
            cpu_ns: rates.iter().map(|per_s| 1e9 / per_s).collect(),
            server_call_ns: vec![0.0; rates.len()],
            generator_call_ns: vec![0.0; rates.len()],
            minor_faults: vec![0.25; rates.len()],
            madvise_calls: vec![0.5; rates.len()],
            core_distance_ns: vec![0.0; rates.len()],
        };
        let mut measures = RoundMeasures {
            round: number,
            ..RoundMeasures::default()
        };
        measures.slices.insert("get".to_owned(), columns(slices));
        if let Some(block) = block {
            measures.blocks.insert("get".to_owned(), columns(&[block]));
        }
        measures
    }

    /// A baseline, and a candidate `in_slices` times as fast there and `in_blocks` times in blocks, each value
    /// with some noise. The third entry is the baseline again.
    fn candidates(in_slices: f64, in_blocks: f64, seed: u64) -> [CandidateRounds; 3] {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut noisy = |rate: f64| rate * (0.01 * (random.f64() - 0.5)).exp();
        let mut of = |role, in_slices: f64, in_blocks: f64| {
            let rounds = (0..ROUNDS).map(|number| {
                let slices = [(); 5].map(|()| noisy(1e4 * in_slices));
                round(number, &slices, Some(noisy(1.2e4 * in_blocks)))
            });
            CandidateRounds {
                role,
                rounds: rounds.collect(),
                ..CandidateRounds::default()
            }
        };
        [
            of(Role::Baseline, 1.0, 1.0),
            of(Role::Candidate, in_slices, in_blocks),
            of(Role::BaselineAgain, 1.0, 1.0),
        ]
    }

    fn ratio(candidates: &[CandidateRounds], quantity: Quantity) -> f64 {
        let measure = Measure::of(Operation::Get, quantity);
        candidates[1].median(measure).unwrap() / candidates[0].median(measure).unwrap()
    }

    /// Goal: a candidate that slices show at 0.90 and blocks at 0.97 gets the answer of the blocks, and the record
    /// says so; that all are faster in blocks is no disagreement, and the others keep their slices.
    #[test]
    fn blocks_win_where_slices_differ_from_them() {
        let mut all = candidates(0.90, 0.97, 7);
        work_out(&mut all);
        let throughput = ratio(&all, Quantity::Throughput);
        assert!((throughput - 0.97).abs() < 0.006, "{throughput}");
        let cpu = ratio(&all, Quantity::CpuTime);
        assert!((cpu - 1.0 / 0.97).abs() < 0.006, "{cpu}");
        let warnings = super::warnings(&all);
        assert!(warnings.len() == 1 && warnings[0].contains("come from uninterrupted blocks"));
        let check = &all[1].block_checks[0];
        let found = check.throughput.unwrap();
        assert!(
            check.is_used && found.low > 1.06 && found.high < 1.09,
            "{check:?}"
        );
        assert_eq!(
            (check.rounds, check.minor_faults_in_blocks),
            (ROUNDS, Some(0.25))
        );
        assert!(all[0].block_checks.is_empty() && !all[2].block_checks[0].is_used);
        // Once more over the same rounds: nothing piles up.
        let once = all.clone();
        work_out(&mut all);
        assert_eq!(all, once);
    }

    /// Goal: slices that agree stay; the chance that noise alone sends a comparison to its blocks is at most 5 %.
    #[test]
    fn slices_stay_where_blocks_agree() {
        let is_used = |seed| {
            let mut all = candidates(0.9, 0.9, seed);
            work_out(&mut all);
            all.iter()
                .flat_map(|one| &one.block_checks)
                .any(|check| check.is_used)
        };
        let used = (0..400).filter(|&seed| is_used(seed)).count();
        // 20 expected at most; 31 would be a chance of 1 in 100 even then.
        assert!(used <= 30, "{used} of 400");
        let mut all = candidates(0.9, 0.9, 3);
        work_out(&mut all);
        assert!((ratio(&all, Quantity::Throughput) - 0.9).abs() < 0.004);
    }

    /// Goal: a round whose block failed gives nothing once blocks are what counts; too few blocks decide nothing.
    #[test]
    fn rounds_without_a_block() {
        let measure = Measure::of(Operation::Get, Quantity::Throughput);
        let mut all = candidates(0.90, 0.97, 7);
        all[1].rounds[4].blocks.clear();
        work_out(&mut all);
        assert_eq!(all[1].values(measure).len(), ROUNDS as usize - 1);
        let mut few = candidates(0.90, 0.97, 7);
        few[1]
            .rounds
            .iter_mut()
            .skip(5)
            .for_each(|one| one.blocks.clear());
        work_out(&mut few);
        let check = &few[1].block_checks[0];
        assert!(!check.is_used && check.throughput.is_none() && check.rounds == 5);
        assert_eq!(few[1].values(measure).len(), ROUNDS as usize);
    }
}
