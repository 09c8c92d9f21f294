//! Rounds that end when the result is known, against a known true value: thousands of invented comparisons, seeded,
//! each analysed as the lab analyses its own.

mod synthetic;

use millpond_measure::analysis::{Design, analyse_by, expected_widths, open_verdicts};
use millpond_measure::record::{Analysis, CandidateRounds, PoolSetting, QuestionVerdict, Role};
use millpond_measure::statistics::{
    Comparison, Direction, InterimAnalyses, PairedRounds, RoundPair, Rule, Verdict, compare_all,
    interim_rounds,
};
use synthetic::{Noise, Plan, candidates};

const SIGMA: f64 = 0.03;

fn rule(margin: f64, looks: InterimAnalyses) -> Rule {
    Rule {
        label: "throughput".to_owned(),
        direction: Direction::HigherIsBetter,
        margin,
        looks,
    }
}

/// `family` candidates that share one baseline's noise, with the same true effect.
fn family(noise: &mut Noise, family: usize, rounds: u32, effect: f64) -> Vec<PairedRounds> {
    let draw = |noise: &mut Noise| {
        if noise.0.bool() {
            SIGMA * noise.normal()
        } else {
            noise.contaminated(SIGMA)
        }
    };
    let baseline: Vec<f64> = (0..rounds).map(|_| draw(noise).exp()).collect();
    (0..family)
        .map(|_| PairedRounds {
            candidate: "candidate".to_owned(),
            baseline: "baseline".to_owned(),
            pairs: baseline
                .iter()
                .map(|&baseline| RoundPair {
                    candidate: (effect + draw(noise)).exp(),
                    baseline,
                })
                .collect(),
            trouble: None,
        })
        .collect()
}

/// Analyses after each of `rounds` until nothing is undecided; what the last analysis said, and after which.
fn until_decided(
    all: &[PairedRounds],
    rounds: &[u32],
    margin: f64,
    looks: InterimAnalyses,
) -> (Vec<Comparison>, u32) {
    let mut last = (Vec::new(), 0);
    for &count in rounds {
        let mut so_far = all.to_vec();
        so_far
            .iter_mut()
            .for_each(|one| one.pairs.truncate(count as usize));
        last = (compare_all(&so_far, &rule(margin, looks)), count);
        let is_open = |one: &Comparison| matches!(one.verdict, Verdict::Undecided { .. });
        if !last.0.iter().any(is_open) {
            break;
        }
    }
    last
}

/// The most successes out of `trials` that a true rate of `rate` shows with 99.9 %.
fn upper_bound(trials: u32, rate: f64) -> f64 {
    let trials = f64::from(trials);
    trials * rate + 3.1 * (trials * rate * (1.0 - rate)).sqrt()
}

/// Goal: of equal candidates, any at all is called different in at most 5 % of comparisons, whatever the number of
/// analyses and candidates, even if every difference would count (margin 0). As many analyses with all of the 5 % each
/// time would fail: the correction is for this.
#[test]
fn looking_often_makes_no_false_claims() {
    let trials = 1_000;
    let mut naive_claims = 0;
    for (size, rounds) in [
        (1, vec![10, 20, 40]),
        (1, interim_rounds(10, 60, 1)),
        (4, interim_rounds(10, 33, 4)),
        (9, vec![11, 16]),
    ] {
        let mut noise = Noise(fastrand::Rng::with_seed(size as u64 + rounds.len() as u64));
        let mut claims = 0;
        for _ in 0..trials {
            let all = family(&mut noise, size, *rounds.last().unwrap(), 0.0);
            let claim = |looks| {
                let (comparisons, _) = until_decided(&all, &rounds, 0.0, looks);
                comparisons.iter().any(|one| one.verdict.is_difference())
            };
            claims += u32::from(claim(InterimAnalyses::planned(rounds.len())));
            if rounds.len() == 4 {
                naive_claims += u32::from(claim(InterimAnalyses::ONE));
            }
        }
        let bound = upper_bound(trials, 0.05);
        assert!(f64::from(claims) <= bound, "{size} {rounds:?}: {claims}");
        // Not because nothing is ever claimed.
        assert!(claims > trials / 100, "{size} {rounds:?}: {claims}");
    }
    let bound = upper_bound(trials, 0.05);
    assert!(f64::from(naive_claims) > bound, "{naive_claims}");
}

/// Goal: "equivalent" is claimed of a difference on the very edge of the margin in at most 5 % too, and the interval of
/// the analysis at which it stopped contains the true value with 95 %.
#[test]
fn stopping_early_keeps_equivalence_and_intervals_honest() {
    let margin: f64 = 0.05;
    let rounds = interim_rounds(10, 40, 1);
    let looks = InterimAnalyses::planned(rounds.len());
    let trials = 1_500;
    for effect in [margin.ln_1p(), 0.0, 0.08] {
        let mut noise = Noise(fastrand::Rng::with_seed((effect * 1e4) as u64 + 17));
        let (mut equivalent, mut missed, mut early) = (0, 0, 0);
        for _ in 0..trials {
            let all = family(&mut noise, 1, 40, effect);
            let (comparisons, stopped) = until_decided(&all, &rounds, margin, looks);
            let one = &comparisons[0];
            equivalent += u32::from(one.verdict == Verdict::Equivalent);
            let estimate = one.estimate().unwrap();
            let truth = effect.exp();
            missed += u32::from(truth < estimate.low || truth > estimate.high);
            early += u32::from(stopped < 40);
        }
        let bound = upper_bound(trials, 0.05);
        assert!(f64::from(missed) <= bound, "{effect}: {missed} missed");
        if effect == margin.ln_1p() {
            assert!(f64::from(equivalent) <= bound, "{effect}: {equivalent}");
        } else {
            assert!(early > trials / 2, "{effect}: only {early} stopped early");
        }
    }
}

/// Goal: an effect well beyond the margin is found in at least 95 % of comparisons, most of them before
/// the last analysis.
#[test]
fn planted_effects_are_found_and_early() {
    let rounds = interim_rounds(10, 33, 2);
    assert_eq!(rounds, [10, 18, 33]);
    let looks = InterimAnalyses::planned(rounds.len());
    let trials = 600;
    let mut noise = Noise(fastrand::Rng::with_seed(4));
    let (mut found, mut spent) = (0, 0);
    for _ in 0..trials {
        let all = family(&mut noise, 2, 33, 0.07);
        let (comparisons, stopped) = until_decided(&all, &rounds, 0.02, looks);
        found += u32::from(comparisons.iter().all(|one| one.verdict == Verdict::Better));
        spent += stopped;
    }
    assert!(found >= trials * 95 / 100, "{found} of {trials}");
    assert!(
        spent < trials * 26,
        "{spent} rounds in {trials} comparisons"
    );
}

fn planned(looks: usize) -> Design {
    Design {
        looks: InterimAnalyses::planned(looks),
        ..Design::default()
    }
}

fn whole(plans: &[Plan], seed: u64, rounds: &[u32]) -> (Analysis, u32) {
    let design = planned(rounds.len());
    let last = *rounds.last().expect("a plan has looks");
    let all = candidates(plans, last, SIGMA, seed);
    for &count in rounds {
        let mut so_far: Vec<CandidateRounds> = all.clone();
        so_far
            .iter_mut()
            .for_each(|one| one.rounds.truncate(count as usize));
        if open_verdicts(&so_far, design).is_empty() || count == last {
            return (analyse_by(&so_far, design), count);
        }
    }
    unreachable!("the last analysis ends it")
}

fn questions(analysis: &Analysis) -> [&QuestionVerdict; 3] {
    let verdicts = &analysis.verdicts;
    [&verdicts.throughput, &verdicts.latency, &verdicts.memory]
}

fn equal_plans() -> Vec<Plan> {
    let plan = |allocator, role| Plan {
        role,
        ..Plan::new(allocator, PoolSetting::On)
    };
    vec![
        plan("glibc", Role::Baseline),
        plan("glibc", Role::BaselineAgain),
        plan("copy", Role::Candidate),
    ]
}

/// Goal: 200 whole A/A comparisons, through the sequential analysis as the lab does it, three questions
/// each: at most 5 % claim a difference anywhere.
#[test]
fn two_hundred_whole_comparisons_of_equals() {
    let plans = equal_plans();
    let rounds = interim_rounds(10, 33, plans.len() - 1);
    let (mut with_a_claim, mut stopped_early) = (0, 0);
    for seed in 0..200 {
        let (analysis, stopped) = whole(&plans, 10_000 + seed, &rounds);
        let claims = questions(&analysis)
            .iter()
            .flat_map(|question| &question.comparisons)
            .any(|one| one.verdict.is_difference());
        with_a_claim += u32::from(claims);
        stopped_early += u32::from(stopped < 33);
    }
    assert!(with_a_claim <= 10, "{with_a_claim} of 200");
    assert!(stopped_early > 0, "no comparison ended early");
}

/// Goal: an open comparison is named until it is decided; the double of the baseline and untrusted comparisons do not
/// prolong the rounds; and each trusted question says what its rounds could show.
#[test]
fn open_verdicts_are_named() {
    let mut plans = equal_plans();
    plans[2].memory = 2.0;
    let few = candidates(&plans, 4, SIGMA, 1);
    let looks = planned(2);
    let named = [
        "throughput of copy with pools",
        "latency of copy with pools",
        "memory of copy with pools",
    ];
    let names = |candidates: &[CandidateRounds]| -> Vec<String> {
        let open = open_verdicts(candidates, looks);
        open.iter().map(ToString::to_string).collect()
    };
    assert_eq!(names(&few), named);
    let mut enough = candidates(&plans, 12, SIGMA, 1);
    let open = names(&enough);
    assert!(!open.contains(&named[2].to_owned()), "{open:?}");
    let analysis = analyse_by(&enough, looks);
    let memory = &analysis.verdicts.memory;
    assert!(
        memory
            .resolution
            .starts_with("12 rounds find differences of "),
        "{memory:?}"
    );
    assert!(
        memory.resolution.contains("up to 5 % counts as the same"),
        "{memory:?}"
    );
    for question in questions(&analysis) {
        let undecided = question.comparisons.iter().any(|one| {
            !one.candidate.ends_with("(again)") && matches!(one.verdict, Verdict::Undecided { .. })
        });
        assert_eq!(
            question.resolution.contains("needs "),
            undecided,
            "{question:?}"
        );
    }
    // The copy always fails: nothing about it is open any more.
    for round in &mut enough[2].rounds {
        round.status = millpond_measure::record::RoundStatus::Failed {
            reason: "it died".to_owned(),
            cause: None,
        };
    }
    assert_eq!(open_verdicts(&enough, looks), []);
    assert_eq!(open_verdicts(&[], looks), []);
    // Alone with its double, the double is the question.
    assert_eq!(open_verdicts(&few[..2], looks).len(), 3);
}

/// Goal: the width of intervals is predicted from six rounds to within a fifth, on the average of many comparisons.
#[test]
fn widths_are_foretold() {
    let plans = equal_plans();
    let design = planned(1);
    let (mut foretold, mut found) = (0.0, 0.0);
    for seed in 0..25 {
        let all = candidates(&plans, 20, SIGMA, 20_000 + seed);
        let mut few = all.clone();
        few.iter_mut().for_each(|one| one.rounds.truncate(6));
        let typical = |rounds: &[CandidateRounds]| {
            let expected = expected_widths(rounds, design, 20);
            assert_eq!(expected.len(), 3);
            assert_eq!(expected[0].question, "throughput");
            expected[0].typical
        };
        foretold += typical(&few);
        found += typical(&all);
    }
    let ratio: f64 = foretold / found;
    assert!((0.8..1.25).contains(&ratio), "{ratio}");
    assert_eq!(expected_widths(&[], design, 20), []);
}
