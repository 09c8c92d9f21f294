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

/// Goal: a candidate that slices show at 0.90 and blocks at 0.97 gets the result of the blocks, and the record says so;
/// that all are faster in blocks is no disagreement, and the others keep their slices.
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
