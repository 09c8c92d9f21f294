//! The analysis of awkward comparisons: what is missing, failed, disturbed or cut short makes the
//! answer weaker and is reported; it never makes it wrong or makes it fail.

mod synthetic;

use millpond_measure::analysis::analyse;
use millpond_measure::record::{
    CandidateRounds, ComparisonRecord, Measure, NoiseFlag, NoiseKind, Operation, PoolSetting,
    Quantity, Role, RoundMeasures, RoundStatus,
};
use millpond_measure::statistics::{Comparison, Verdict};
use synthetic::{Plan, candidates, nine_plans};

const THROUGHPUT: Measure = Measure::of(Operation::Put, Quantity::Throughput);
const BEST: &str = "mimalloc with pools";

fn nine() -> Vec<CandidateRounds> {
    candidates(&nine_plans(), 10, 0.02, 42)
}

fn of<'a>(comparisons: &'a [Comparison], name: &str) -> &'a Comparison {
    comparisons
        .iter()
        .find(|one| one.candidate == name)
        .expect("the candidate was compared")
}

fn flag(candidates: &mut [CandidateRounds], rounds: usize, kind: NoiseKind, phase: Option<&str>) {
    for candidate in candidates {
        for round in candidate.rounds.iter_mut().take(rounds) {
            let phase = phase.map(str::to_owned);
            round.noise.push(NoiseFlag {
                kind,
                value: 0.34,
                limit: 0.05,
                phase,
            });
        }
    }
}

/// Goal: the ordinary case: three trusted answers, each question's comparisons complete, the A/A
/// candidate among them and never best.
#[test]
fn the_ordinary_case() {
    let analysis = analyse(&nine());
    let verdicts = &analysis.verdicts;
    for question in [&verdicts.throughput, &verdicts.latency, &verdicts.memory] {
        assert!(question.trusted, "{}", question.sentence);
        assert_eq!(question.comparisons.len(), 8);
        assert!(!question.best.is_empty());
        assert!(!question.best.iter().any(|name| name.ends_with("(again)")));
        assert!(
            !of(&question.comparisons, "glibc with pools (again)")
                .verdict
                .is_difference()
        );
    }
    assert_eq!(verdicts.throughput.best, [BEST]);
    assert!(
        verdicts
            .throughput
            .sentence
            .contains("mimalloc with pools gives the most: 1.1")
    );
    assert_eq!(
        of(&verdicts.memory.comparisons, "tcmalloc with pools").verdict,
        Verdict::Worse
    );
    assert_eq!(analysis.warnings, Vec::<String>::new());
    let check = &analysis.self_check;
    assert!(
        check.starts_with("Self-check: glibc with pools run twice is not called different: thr")
    );
    assert_eq!(analysis.pools_effect.len(), 4);
}

/// Goal: without a PMU there are no instruction measures, and nothing else changes.
#[test]
fn no_pmu() {
    let with = analyse(&nine());
    let mut without = nine();
    let counted =
        |measure: &Measure| matches!(measure.quantity, Quantity::Instructions | Quantity::Cycles);
    for round in without.iter_mut().flat_map(|one| &mut one.rounds) {
        round.measures.retain(|measure, _| !counted(measure));
    }
    let without = analyse(&without);
    assert_eq!(with.verdicts, without.verdicts);
    assert!(
        !without
            .details
            .iter()
            .any(|detail| counted(&detail.measure))
    );
}

/// Goal: a candidate that always fails is not judged, costs the others nothing, and its reason is
/// reported; one failed run of ten is left out and warned of.
#[test]
fn failed_runs() {
    let mut all = nine();
    let failed = || RoundStatus::Failed {
        reason: "the server died".to_owned(),
        cause: None,
    };
    all[3]
        .rounds
        .iter_mut()
        .for_each(|round| round.status = failed());
    all[7].rounds[4].status = failed();
    let analysis = analyse(&all);
    let throughput = &analysis.verdicts.throughput;
    let dead = of(&throughput.comparisons, "jemalloc with pools");
    assert!(matches!(&dead.verdict, Verdict::NotTrusted { reason }
        if reason == "10 of 10 runs of jemalloc with pools failed: the server died"));
    assert_eq!((dead.ratio, dead.rounds), (None, 0));
    assert_eq!(throughput.best, [BEST]);
    assert_eq!(of(&throughput.comparisons, BEST).rounds, 9);
    assert!(
        analysis
            .warnings
            .iter()
            .any(|w| w.contains("1 of 10 runs failed: the server died"))
    );
}

/// Three candidates beside the baseline, whose throughput differs from its by these factors, each with a
/// scatter of its own.
fn scattered(of_each: [(f64, f64); 3], seed: u64) -> Vec<CandidateRounds> {
    let mut random = fastrand::Rng::with_seed(seed);
    let names = ["glibc", "mimalloc", "jemalloc", "tcmalloc"];
    let candidate = |(name, (factor, scatter)): (&str, (f64, f64))| {
        let run = |round| {
            let jitter = (scatter * (2.0 * random.f64() - 1.0)).exp();
            let mut run = RoundMeasures {
                round,
                ..RoundMeasures::default()
            };
            let measure = Measure::of(Operation::Request, Quantity::Throughput);
            run.set(measure, 1_000.0 * factor * jitter);
            run
        };
        CandidateRounds {
            name: name.to_owned(),
            allocator: name.to_owned(),
            role: match name {
                "glibc" => Role::Baseline,
                _ => Role::Candidate,
            },
            rounds: (0..10).map(run).collect(),
            ..CandidateRounds::default()
        }
    };
    let factors = std::iter::once((1.0, 0.0)).chain(of_each);
    names.into_iter().zip(factors).map(candidate).collect()
}

/// Goal: no answer contradicts a comparison with the baseline that it rests on. Where the candidate with the best
/// estimate scattered much, others that were proved faster than the baseline, or slower, did not change the answer: "no
/// difference that 10 rounds can show", with all of them among the best.
#[test]
fn an_answer_contradicts_no_comparison() {
    let beaten = [(1.13, 0.25), (1.10, 0.01), (1.10, 0.01)];
    let slower = [(1.01, 0.3), (0.9, 0.01), (1.0, 0.01)];
    let mut scattering_leads = 0;
    for (field, seed) in [beaten, slower]
        .into_iter()
        .flat_map(|field| (0..40).map(move |seed| (field, seed)))
    {
        let found = analyse(&scattered(field, seed)).verdicts.throughput;
        let said = format!("{seed}: {} {:?}", found.sentence, found.best);
        let is = |one: &Comparison, verdict| one.verdict == verdict;
        let mut proved = found.comparisons.iter();
        if proved.any(|one| is(one, Verdict::Better)) {
            assert!(!found.best.contains(&"glibc".to_owned()), "{said}");
        }
        for one in &found.comparisons {
            let is_best = found.best.contains(&one.candidate);
            assert!(!(is(one, Verdict::Worse) && is_best), "{said}");
            assert!(!(one.verdict.is_difference() && said.contains("no difference")));
        }
        let leads = found.best.first().is_some_and(|name| name == "mimalloc");
        scattering_leads += u32::from(leads);
    }
    assert!(scattering_leads > 20, "{scattering_leads}");
}

/// Goal: a candidate that died at once is not among "all the same", and the rounds of the others are not called too few
/// because of it.
#[test]
fn who_was_not_judged_is_left_out_by_name() {
    let mut all = scattered([(1.001, 0.005), (1.0, 0.005), (1.2, 0.01)], 7);
    for round in &mut all[3].rounds {
        round.measures.clear();
        round.status = RoundStatus::Failed {
            reason: "the server died".to_owned(),
            cause: None,
        };
    }
    let same = analyse(&all);
    assert_eq!(
        same.verdicts.throughput.sentence,
        "Throughput: all the same within 5 %; tcmalloc could not be judged."
    );
    let few = |warning: &String| warning.contains("no difference can be claimed");
    assert!(!same.warnings.iter().any(few), "{:?}", same.warnings);
    all.iter_mut().for_each(|one| one.rounds.truncate(3));
    let warnings = analyse(&all).warnings;
    assert!(
        warnings
            .iter()
            .any(|text| text.starts_with("3 rounds of 4 candidates")),
        "{warnings:?}"
    );
}

/// Goal: Ctrl-C after one round: figures are shown, nothing is claimed, and it is said how many
/// rounds it takes.
#[test]
fn one_round_only() {
    let mut all = nine();
    all.iter_mut().for_each(|one| one.rounds.truncate(1));
    // The last candidate was in the middle of its run: GET and memory are missing.
    let last = &mut all[8].rounds[0];
    last.status = RoundStatus::Interrupted;
    last.measures
        .retain(|measure, _| measure.operation == Some(Operation::Put));
    let analysis = analyse(&all);
    for detail in &analysis.details {
        for comparison in &detail.comparisons {
            let silent = matches!(
                comparison.verdict,
                Verdict::Undecided { .. } | Verdict::NotTrusted { .. }
            );
            assert!(silent, "{}", comparison.sentence);
        }
    }
    let throughput = &analysis.verdicts.throughput;
    let sentence = &throughput.sentence;
    assert!(
        sentence.contains("no answer yet: 1 round is too few, at least 9 are needed"),
        "{sentence}"
    );
    assert!(
        throughput
            .comparisons
            .iter()
            .all(|one| one.detectable.is_none())
    );
    let other = of(&throughput.comparisons, BEST);
    assert!(other.ratio.is_some() && other.confidence == 0.0);
    assert!(matches!(other.verdict, Verdict::Undecided { rounds_needed } if rounds_needed >= 8));
    let put = analysis
        .details
        .iter()
        .find(|detail| detail.measure == THROUGHPUT)
        .unwrap();
    assert!(
        of(&put.comparisons, "mimalloc without pools")
            .ratio
            .is_some()
    );
    assert!(
        analysis
            .warnings
            .iter()
            .any(|w| w.contains("1 round of 9 candidates"))
    );
}

/// Goal: nothing at all, no baseline's rounds, a single candidate: words, not failures.
#[test]
fn next_to_nothing() {
    assert_eq!(
        analyse(&[]).warnings,
        ["there is no baseline: nothing can be compared"]
    );
    let mut all = nine();
    all.iter_mut().for_each(|one| one.rounds.clear());
    let analysis = analyse(&all);
    assert_eq!(
        analysis.verdicts.throughput.sentence,
        "Throughput: not measured."
    );
    assert!(analysis.details.is_empty());
    let alone = analyse(&nine()[..1]);
    assert_eq!(
        alone.verdicts.memory.sentence,
        "Memory: only glibc with pools was measured."
    );
    assert!(alone.verdicts.memory.comparisons.is_empty());
}

/// Goal: a busy machine takes away every answer that depends on time, and only those; the sentence
/// says why and what work per request shows instead.
#[test]
fn a_busy_machine() {
    let mut all = nine();
    flag(&mut all, 6, NoiseKind::ForeignCpu, None);
    let analysis = analyse(&all);
    let throughput = &analysis.verdicts.throughput;
    assert!(!throughput.trusted && throughput.best.is_empty());
    assert!(
        throughput.sentence.starts_with(
            "Throughput: not to be trusted: other programs used the CPUs (up to 34 %) in 6 of 10 \
             rounds. Work per request instead: mimalloc with pools and mimalloc without pools need the \
             least cycles per request, the same within 5 % ("
        ),
        "{}",
        throughput.sentence
    );
    assert!(!analysis.verdicts.latency.trusted);
    assert_eq!(analysis.verdicts.memory, analyse(&nine()).verdicts.memory);
    assert!(
        analysis.pools_effect[0]
            .sentence
            .contains("throughput is not to be trusted")
    );
    // Two disturbed rounds of ten are borne.
    let mut few = nine();
    flag(&mut few, 2, NoiseKind::ForeignCpu, None);
    assert!(analyse(&few).verdicts.throughput.trusted);
}

/// Goal: a flag touches the measures of its kind and phase and no others.
#[test]
fn flags_touch_what_they_can_have_changed() {
    let trusted = |kind, phase| {
        let mut all = nine();
        flag(&mut all, 10, kind, phase);
        let analysis = analyse(&all);
        let of_measure = |measure: Measure| {
            let detail = analysis
                .details
                .iter()
                .find(|detail| detail.measure == measure)
                .unwrap();
            !matches!(
                of(&detail.comparisons, BEST).verdict,
                Verdict::NotTrusted { .. }
            )
        };
        [
            of_measure(THROUGHPUT),
            of_measure(Measure::of(Operation::Get, Quantity::Throughput)),
            of_measure(Measure::of(Operation::Put, Quantity::ResponseP99)),
            of_measure(Measure::whole(Quantity::MemoryAfterWork)),
        ]
    };
    assert_eq!(
        trusted(NoiseKind::GeneratorCpu, None),
        [false, false, true, true]
    );
    assert_eq!(
        trusted(NoiseKind::LateSends, None),
        [true, true, false, true]
    );
    assert_eq!(
        trusted(NoiseKind::Steal, Some("put throughput")),
        [false, true, true, true]
    );
    assert_eq!(
        trusted(NoiseKind::Steal, Some("memory")),
        [true, true, true, true]
    );
    assert_eq!(
        trusted(NoiseKind::GeneratorInvalid, Some("put")),
        [false, true, false, true]
    );
}

/// Goal: if the baseline differs from itself, no difference of that measure is trusted, but "the
/// same" still is, and the A/A line shows the false alarm.
#[test]
fn a_baseline_unlike_itself() {
    let mut all = nine();
    for round in &mut all[1].rounds {
        let value = round.get(THROUGHPUT).unwrap();
        round.set(THROUGHPUT, value * 1.5);
    }
    let analysis = analyse(&all);
    assert!(
        analysis.self_check.starts_with("Self-check FAILED"),
        "{}",
        analysis.self_check
    );
    assert!(!analysis.verdicts.throughput.trusted);
    let put = analysis
        .details
        .iter()
        .find(|detail| detail.measure == THROUGHPUT)
        .unwrap();
    assert_eq!(
        of(&put.comparisons, "glibc with pools (again)").verdict,
        Verdict::Better
    );
    assert!(
        put.comparisons
            .iter()
            .all(|one| { one.candidate.ends_with("(again)") || !one.verdict.is_difference() })
    );
    let reason = &of(&put.comparisons, BEST).sentence;
    assert!(
        reason.contains("the baseline run twice differs from itself"),
        "{reason}"
    );
    assert!(
        analysis
            .warnings
            .iter()
            .any(|w| w.starts_with("PUT throughput: the baseline run twice"))
    );
    let pools = analysis.pools_effect[2]
        .throughput
        .as_ref()
        .expect("tcmalloc ran both ways");
    assert!(
        matches!(pools.verdict, Verdict::NotTrusted { .. }),
        "{}",
        pools.sentence
    );
    // Memory was not touched.
    assert_eq!(analysis.verdicts.memory, analyse(&nine()).verdicts.memory);
}

/// Goal: heap calls that pools remove altogether: zero against something is a certain difference
/// without a ratio, zero against zero is equality.
#[test]
fn zeros() {
    let mut all = nine();
    let calls = Measure::of(Operation::Get, Quantity::HeapCalls);
    for candidate in &mut all {
        let value = if candidate.pools == Some(PoolSetting::On) {
            0.0
        } else {
            11.0
        };
        candidate
            .rounds
            .iter_mut()
            .for_each(|round| round.set(calls, value));
    }
    let analysis = analyse(&all);
    let detail = analysis
        .details
        .iter()
        .find(|detail| detail.measure == calls)
        .unwrap();
    let off = of(&detail.comparisons, "jemalloc without pools");
    assert_eq!((off.verdict.clone(), off.ratio), (Verdict::Worse, None));
    assert!(off.sentence.ends_with("11.0 against 0"), "{}", off.sentence);
    let on = of(&detail.comparisons, "jemalloc with pools");
    assert_eq!(
        (on.verdict.clone(), on.ratio),
        (Verdict::Equivalent, Some(1.0))
    );
    let pools = &analysis.pools_effect[0].details;
    let pools = &pools
        .iter()
        .find(|detail| detail.measure == calls)
        .unwrap()
        .comparisons[0];
    assert_eq!(
        (pools.verdict.clone(), pools.ratio),
        (Verdict::Better, Some(0.0))
    );
}

/// Goal: a third-party server has one kind of request and no pools; nothing is said about them.
#[test]
fn somebody_elses_server() {
    let plans: Vec<Plan> = nine_plans()
        .into_iter()
        .filter(|plan| plan.pools == Some(PoolSetting::On))
        .map(|plan| Plan {
            pools: None,
            ..plan
        })
        .collect();
    let mut all = candidates(&plans, 10, 0.02, 3);
    for round in all.iter_mut().flat_map(|one| &mut one.rounds) {
        let old = std::mem::take(&mut round.measures);
        for (measure, value) in old {
            match measure.operation {
                Some(Operation::Get) => {
                    round.set(Measure::of(Operation::Request, measure.quantity), value);
                }
                Some(_) => {}
                None => round.set(measure, value),
            }
        }
    }
    let analysis = analyse(&all);
    assert!(analysis.pools_effect.is_empty());
    assert_eq!(analysis.verdicts.throughput.measures.len(), 1);
    assert_eq!(analysis.verdicts.throughput.best, ["mimalloc"]);
    assert!(
        analysis.verdicts.throughput.comparisons[1]
            .sentence
            .contains(": throughput ")
    );
}

/// Goal: without p99 (too few requests) the median decides, and the sentence says so.
#[test]
fn too_few_requests_for_a_p99() {
    let mut all = nine();
    for round in all.iter_mut().flat_map(|one| &mut one.rounds) {
        round
            .measures
            .retain(|measure, _| measure.quantity != Quantity::ResponseP99);
    }
    let latency = analyse(&all).verdicts.latency;
    assert!(
        latency.sentence.contains("too few requests for a p99"),
        "{}",
        latency.sentence
    );
}

/// Goal: the order of rounds and candidates in the record decides nothing.
#[test]
fn order_does_not_matter() {
    let plain = analyse(&nine());
    let mut shuffled = nine();
    shuffled.iter_mut().for_each(|one| one.rounds.reverse());
    shuffled.reverse();
    let other = analyse(&shuffled);
    assert_eq!(
        plain.verdicts.throughput.best,
        other.verdicts.throughput.best
    );
    for comparison in &plain.verdicts.throughput.comparisons {
        let same = of(
            &other.verdicts.throughput.comparisons,
            &comparison.candidate,
        );
        assert_eq!(comparison.verdict, same.verdict);
    }
    let unmarked: Vec<CandidateRounds> = nine()
        .into_iter()
        .filter(|one| one.role != Role::BaselineAgain)
        .collect();
    let warnings = analyse(&unmarked).warnings;
    assert!(
        warnings
            .iter()
            .any(|w| w.contains("the baseline was not run twice")),
        "{warnings:?}"
    );
}

/// Goal: when most are level, the sentence names the few that are not, and how many are level.
#[test]
fn the_shorter_side_is_named() {
    let mut plans = nine_plans();
    for plan in &mut plans {
        let is_tcmalloc = plan.allocator == "tcmalloc";
        plan.memory = if is_tcmalloc { 1.3 } else { 1.0 };
    }
    let memory = analyse(&candidates(&plans, 10, 0.002, 7)).verdicts.memory;
    assert_eq!(memory.best.len(), 6, "{}", memory.sentence);
    assert!(
        memory
            .sentence
            .starts_with("Memory: 5 of 7 are the same as glibc with pools within 5 %: mimalloc"),
        "{}",
        memory.sentence
    );
    let worse = "; worse: tcmalloc with";
    assert!(memory.sentence.contains(worse), "{}", memory.sentence);
    assert_eq!(memory.headline, "glibc with pools: nothing is better");
}

/// Goal: a pair has one verdict in the whole report. The effect of pools under the baseline's allocator was once
/// corrected for four allocators, and the same pair in the table for eight candidates.
#[test]
fn pools_have_the_verdicts_of_the_table() {
    let mut plans = nine_plans();
    plans[2].throughput = 0.95;
    for seed in 0..30 {
        let analysis = analyse(&candidates(&plans, 10, 0.05, seed));
        let table = &analysis.verdicts.throughput.comparisons;
        let off = of(table, "glibc without pools");
        let glibc = analysis.pools_effect[0].throughput.as_ref().unwrap();
        assert_eq!(glibc.p_adjusted, off.p_adjusted, "{seed}");
        assert_eq!(glibc.verdict.is_difference(), off.verdict.is_difference());
        assert!((glibc.ratio.unwrap() * off.ratio.unwrap() - 1.0).abs() < 1e-12);
    }
}

/// `nine` with memory on all CPUs: `factor` times the bound one, by candidate and round.
fn nine_on_all_cpus(factor: impl Fn(usize, u32) -> f64) -> Vec<CandidateRounds> {
    let mut all = nine();
    for (index, candidate) in all.iter_mut().enumerate() {
        for round in &mut candidate.rounds {
            let pinned = round
                .get(Measure::whole(Quantity::MemoryAfterWork))
                .expect("memory of every round");
            let unpinned = factor(index, round.round) * pinned;
            round.set(Measure::whole(Quantity::UnpinnedMemory), unpinned);
        }
    }
    all
}

/// Medians of a noisy server differed by 13 %, and the report said so below "memory: not to be trusted".
///
/// Goal: where one candidate is proved to need another amount of memory on all CPUs, all are shown both ways with
/// intervals; a difference of medians alone is none.
#[test]
fn memory_without_pinning_is_told_where_it_differs() {
    let all = nine_on_all_cpus(|index, _| if index == 2 { 2.0 } else { 1.01 });
    let found = analyse(&all).unpinned;
    assert_eq!(found.len(), all.len() - 1, "all but the baseline again");
    let one = found
        .iter()
        .find(|one| one.candidate == all[2].name)
        .unwrap();
    assert!(
        one.unpinned_bytes.abs_diff(2 * one.pinned_bytes) <= 1,
        "{one:?}"
    );
    for part in [
        "where it may use all CPUs, ",
        "bound to the server's: 2.00x [1.99, 2.01] (more)",
        "; against glibc with pools there",
        "(worse).",
    ] {
        assert!(one.sentence.contains(part), "{part}: {}", one.sentence);
    }
    // Four rounds of ten are enough, since processes are compared and not rounds; one is not.
    let with_rounds = |count: u32| {
        let mut all = nine_on_all_cpus(|index, _| if index == 2 { 2.0 } else { 1.01 });
        let rounds = all.iter_mut().flat_map(|one| &mut one.rounds);
        for round in rounds.filter(|round| round.round >= count) {
            round
                .measures
                .remove(&Measure::whole(Quantity::UnpinnedMemory));
        }
        analyse(&all).unpinned
    };
    assert_eq!(
        (with_rounds(4).len(), with_rounds(1).len()),
        (all.len() - 1, 0)
    );
    let noisy = nine_on_all_cpus(|_, round| [0.6, 1.3, 1.3, 1.4][round as usize % 4]);
    assert_eq!(analyse(&noisy).unpinned, []);
    assert!(analyse(&nine()).unpinned.is_empty());
}

/// Goal: a record is judged by its own margins, each by that of its quantity, and the answer says which.
#[test]
fn a_record_has_its_own_margins() {
    let mut record = synthetic::record(&nine_plans(), 10, 0.01, 7);
    let verdict = |record: &ComparisonRecord| {
        let verdicts = &record.analysis.verdicts;
        of(&verdicts.throughput.comparisons, BEST).verdict.clone()
    };
    assert_eq!(verdict(&record), Verdict::Better);
    record.settings.margins = "30%,p99=40%".parse().unwrap();
    let text = record.to_json().unwrap();
    let mut back = ComparisonRecord::from_text(&text).unwrap();
    back.analyse();
    assert_eq!(verdict(&back), Verdict::Equivalent);
    let verdicts = &back.analysis.verdicts;
    let throughput = &verdicts.throughput.resolution;
    assert!(
        throughput.contains("up to 30 % counts as the same"),
        "{throughput}"
    );
    let latency = &verdicts.latency.resolution;
    assert!(
        latency.contains("up to 40 % counts as the same"),
        "{latency}"
    );
    // One of an earlier version has none, and is judged by the usual ones.
    let mut old: serde_json::Value = serde_json::from_str(&text).unwrap();
    old["settings"].as_object_mut().unwrap().remove("margins");
    let mut old: ComparisonRecord = serde_json::from_value(old).unwrap();
    old.analyse();
    assert_eq!(verdict(&old), Verdict::Better);
}

/// Goal: a machine too noisy for any result is described in words that give the size of the noise.
#[test]
fn hopeless_noise_is_said_plainly() {
    let mut plans = nine_plans();
    for plan in &mut plans {
        plan.throughput = 1.0;
    }
    let throughput = analyse(&candidates(&plans, 10, 1.5, 7)).verdicts.throughput;
    let said = &throughput.sentence;
    assert!(
        said.contains("(only ") && said.contains("x would have shown)"),
        "{said}"
    );
    assert!(said.contains("or a quieter machine"), "{said}");
    assert_eq!(throughput.headline, "Undecided");
}

/// Goal: disturbances that hit all equally are the machine's and give no warning; those of one candidate are named.
#[test]
fn a_candidate_that_disturbs_itself_is_named() {
    let mut all = nine();
    for round in all.iter_mut().flat_map(|one| &mut one.rounds) {
        round.disturbed_slices = 1;
    }
    assert_eq!(analyse(&all).warnings, Vec::<String>::new());
    for round in &mut all[3].rounds {
        round.disturbed_slices = 5;
    }
    let warnings = analyse(&all).warnings;
    let expected = format!("{}: 50 of all 130 disturbed slices", all[3].name);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].starts_with(&expected), "{warnings:?}");
}
