//! The printed power, against independent data: the difference that rounds are said to find is found as often as is
//! said, and the rounds that are advised decide.

mod synthetic;

use millpond_measure::statistics::{
    Comparison, Direction, InterimAnalyses, PairedRounds, RoundPair, Rule, Verdict, compare_all,
};
use synthetic::Noise;

const SIGMA: f64 = 0.03;

/// Rounds, comparisons, analyses, margin.
type Design = (usize, usize, usize, f64);

fn rule((_, _, looks, margin): Design) -> Rule {
    Rule {
        label: "throughput".to_owned(),
        direction: Direction::HigherIsBetter,
        margin,
        looks: InterimAnalyses::planned(looks),
    }
}

/// `comparisons` candidates with independent noise, the first one with an effect.
fn family(draw: &mut impl FnMut() -> f64, rounds: usize, comparisons: usize) -> Vec<PairedRounds> {
    let one = |draw: &mut dyn FnMut() -> f64| PairedRounds {
        candidate: "candidate".to_owned(),
        baseline: "baseline".to_owned(),
        pairs: (0..rounds)
            .map(|_| RoundPair {
                candidate: draw().exp(),
                baseline: 1.0,
            })
            .collect(),
        trouble: None,
    };
    (0..comparisons).map(|_| one(draw)).collect()
}

fn shift(rounds: &mut PairedRounds, effect: f64) {
    for pair in &mut rounds.pairs {
        pair.candidate *= effect.exp();
    }
}

fn first(family: &[PairedRounds], design: Design) -> Comparison {
    compare_all(family, &rule(design)).swap_remove(0)
}

/// How often independent rounds find the difference that the first ones report as detectable.
fn found_share(draw: &mut impl FnMut() -> f64, design: Design, trials: u32) -> f64 {
    let (rounds, comparisons, ..) = design;
    let mut found = 0;
    for _ in 0..trials {
        let claim = first(&family(draw, rounds, comparisons), design);
        let effect = claim.detectable.expect("rounds enough").ln_1p();
        let mut later = family(draw, rounds, comparisons);
        shift(&mut later[0], effect);
        found += u32::from(first(&later, design).verdict == Verdict::Better);
    }
    f64::from(found) / f64::from(trials)
}

/// Of comparisons that were undecided, which share the advised rounds decide; how many those were; and the
/// median advice.
fn decided_share(
    draw: &mut impl FnMut() -> f64,
    design: Design,
    effect: f64,
    trials: u32,
) -> (f64, usize, u32) {
    let (rounds, comparisons, ..) = design;
    let (mut decided, mut advice) = (0, vec![]);
    for _ in 0..trials {
        let mut all = family(draw, rounds, comparisons);
        shift(&mut all[0], effect);
        let Verdict::Undecided { rounds_needed } = first(&all, design).verdict else {
            continue;
        };
        advice.push(rounds_needed);
        let mut more = family(draw, rounds_needed as usize, comparisons);
        shift(&mut more[0], effect);
        for (old, new) in all.iter_mut().zip(more) {
            old.pairs.extend(new.pairs);
        }
        let is_open = matches!(first(&all, design).verdict, Verdict::Undecided { .. });
        decided += u32::from(!is_open);
    }
    advice.sort_unstable();
    let asked = advice.len();
    (
        f64::from(decided) / asked as f64,
        asked,
        advice.get(asked / 2).copied().unwrap_or(0),
    )
}

/// Goal: the difference that rounds are said to find with a chance of 80 % is found in 75 to 90 % of
/// comparisons, whatever the rounds, comparisons and analyses, and beside a margin that is narrow, wide or as
/// wide as what is found. By formula it was 23 to 57 %. With heavy tails the claim may be too bold, but not by
/// far.
#[test]
fn what_is_said_to_be_found_is_found() {
    let trials = 600;
    for design in [
        (6, 1, 1, 0.005),
        (8, 4, 1, 0.05),
        (10, 1, 1, 0.1),
        (10, 8, 1, 0.005),
        (16, 7, 3, 0.05),
        (30, 4, 1, 0.005),
    ] {
        let mut noise = Noise(fastrand::Rng::with_seed(1));
        let found = found_share(&mut || SIGMA * noise.normal(), design, trials);
        assert!((0.75..=0.90).contains(&found), "{design:?}: {found}");
    }
    let mut noise = Noise(fastrand::Rng::with_seed(2));
    let found = found_share(&mut || noise.contaminated(SIGMA), (12, 4, 1, 0.05), trials);
    assert!((0.55..=0.90).contains(&found), "heavy tails: {found}");
}

/// Goal: of comparisons that were left undecided, the rounds that are advised decide at least 80 %, without
/// an effect, with one, and with one on the edge of the margin, where only a difference can be proved.
#[test]
fn advised_rounds_decide() {
    let trials = 300;
    for (design, effect) in [
        ((6, 1, 1, 0.05), 0.0),
        ((8, 4, 1, 0.05), 0.05_f64.ln_1p()),
        ((10, 4, 1, 0.05), 0.03),
        ((10, 8, 1, 0.05), 0.04),
        ((12, 7, 3, 0.05), 0.02),
    ] {
        let mut noise = Noise(fastrand::Rng::with_seed(3));
        let (decided, asked, median) =
            decided_share(&mut || SIGMA * noise.normal(), design, effect, trials);
        assert!(asked >= 20, "{design:?} {effect}: {asked}");
        assert!(decided >= 0.80, "{design:?} {effect}: {decided} of {asked}");
        // Not by advising without measure.
        assert!(median <= 40, "{design:?} {effect}: {median} rounds");
    }
    let mut noise = Noise(fastrand::Rng::with_seed(4));
    let draw = &mut || noise.contaminated(SIGMA);
    let (decided, asked, _) = decided_share(draw, (10, 4, 1, 0.05), 0.0, trials);
    assert!(
        decided >= 0.80 && asked >= 20,
        "heavy tails: {decided} of {asked}"
    );
}

/// The table behind the figures above, over more designs.
#[test]
#[ignore = "a minute or more: a table for people"]
fn table() {
    for rounds in [6, 8, 10, 16, 30] {
        for (comparisons, looks) in [(1, 1), (4, 1), (8, 1), (7, 3)] {
            for margin in [0.005, 0.05] {
                let design = (rounds, comparisons, looks, margin);
                let mut noise = Noise(fastrand::Rng::with_seed(1));
                let claim = family(&mut || SIGMA * noise.normal(), rounds, comparisons);
                let Some(detectable) = first(&claim, design).detectable else {
                    continue;
                };
                let found = found_share(&mut || SIGMA * noise.normal(), design, 400);
                let heavy = found_share(&mut || noise.contaminated(SIGMA), design, 400);
                let decided = decided_share(&mut || SIGMA * noise.normal(), design, 0.04, 200);
                println!(
                    "{design:?} {detectable:.3}: found {found:.3}, heavy tails {heavy:.3}, decided {decided:?}"
                );
            }
        }
    }
}
