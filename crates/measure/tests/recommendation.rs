//! The advice over comparisons with planted true values: it names the right candidate, its costs
//! and the reason, and says nothing where the numbers decide nothing.

mod synthetic;

use millpond_measure::analysis::analyse;
use millpond_measure::record::{
    Advice, CandidateRounds, Held, Holder, Measure, NoiseFlag, NoiseKind, Operation, PhaseHeap,
    PoolSetting, Quantity, Recommendation, Role,
};
use millpond_measure::report::terminal;
use proptest::prelude::*;
use synthetic::{Plan, candidates, nine_plans, record};

/// glibc twice, and `others` as (name, throughput, latency, memory).
fn field(others: &[(&'static str, f64, f64, f64)], sigma: f64) -> Vec<CandidateRounds> {
    let glibc = |role| Plan {
        role,
        pools: None,
        ..Plan::new("glibc", PoolSetting::On)
    };
    let mut plans = vec![glibc(Role::Baseline), glibc(Role::BaselineAgain)];
    plans.extend(
        others
            .iter()
            .map(|&(name, throughput, latency, memory)| Plan {
                pools: None,
                throughput,
                latency,
                memory,
                work: 1.0 / throughput,
                ..Plan::new(name, PoolSetting::On)
            }),
    );
    candidates(&plans, 12, sigma, 42)
}

fn without(all: &mut [CandidateRounds], unwanted: &[Quantity]) {
    for round in all.iter_mut().flat_map(|one| &mut one.rounds) {
        round
            .measures
            .retain(|measure, _| !unwanted.contains(&measure.quantity));
    }
}

const COUNTED: [Quantity; 4] = [
    Quantity::Instructions,
    Quantity::Cycles,
    Quantity::KernelInstructions,
    Quantity::KernelCycles,
];

/// Sets `quantity` in every round: the baseline's value, and the factor for each later candidate.
fn plant(all: &mut [CandidateRounds], quantity: Quantity, baseline: f64, factors: &[f64]) {
    for (index, candidate) in all.iter_mut().enumerate() {
        let factor = if index < 2 {
            1.0
        } else {
            factors.get(index - 2).copied().unwrap_or(1.0)
        };
        for round in &mut candidate.rounds {
            round.measures.remove(&Measure::whole(quantity));
            // A little noise that differs from run to run, and is the same in every test.
            let run = f64::from(round.round * 7 + index as u32 * 3 % 11);
            let jitter = 1.0 + 0.002 * (run.sin());
            for operation in [Operation::Put, Operation::Get] {
                let measure = Measure::of(operation, quantity);
                round.set(measure, baseline * factor * jitter);
            }
        }
    }
}

fn advice(all: &[CandidateRounds]) -> Recommendation {
    let recommendation = analyse(all).recommendation;
    for text in [
        &recommendation.sentence,
        &recommendation.reason,
        &recommendation.caution,
    ] {
        assert!(text.is_empty() || text.ends_with('.'), "{text}");
        assert!(!text.contains("..") && !text.contains("  "), "{text}");
    }
    recommendation
}

fn choices(recommendation: &Recommendation) -> Vec<(&str, &str)> {
    let all = recommendation.choices.iter();
    all.map(|one| (one.question.as_str(), one.candidate.as_str()))
        .collect()
}

/// Goal: a candidate that wins and loses nowhere is recommended, with what the cycles say; the parts
/// of the difference add up to the whole, and the whole is what was planted.
#[test]
fn a_clear_winner() {
    let mut all = field(
        &[("mimalloc", 1.12, 0.7, 1.0), ("tbb", 1.0, 1.0, 1.0)],
        0.005,
    );
    plant(&mut all, Quantity::Cycles, 10_000.0, &[0.88]);
    plant(&mut all, Quantity::Instructions, 20_000.0, &[0.95]);
    plant(&mut all, Quantity::KernelCycles, 10_000.0, &[0.96]);
    plant(&mut all, Quantity::PageFaults, 0.5, &[0.2]);
    plant(&mut all, Quantity::DtlbMisses, 9.0, &[0.5]);
    let found = advice(&all);
    assert_eq!(found.advice, Advice::Switch, "{found:?}");
    let text = &found.sentence;
    assert!(
        text.starts_with("Use mimalloc for throughput and p99 latency (1.12x ["),
        "{text}"
    );
    assert!(text.contains("] the throughput and 0.70x ["), "{text}");
    assert!(
        text.contains(", with the same memory (within 5 %)"),
        "{text}"
    );
    let text = &found.reason;
    assert!(
        text.contains("Why mimalloc: it needs 8 % fewer cycles per request"),
        "{text}"
    );
    assert!(text.contains("dTLB misses 0.50x"), "{text}");
    assert!(text.contains("in the kernel (page faults 0.20x"), "{text}");
    assert!(
        found.caution.starts_with("Do not switch"),
        "{}",
        found.caution
    );
    assert_eq!(
        choices(&found),
        [
            ("throughput", "mimalloc"),
            ("latency", "mimalloc"),
            ("memory", "glibc")
        ]
    );
    let difference = &found.differences[0];
    let sum: f64 = difference.parts.iter().map(|part| part.change).sum();
    assert!((sum - difference.change).abs() < 1e-12);
    // (0.88 + 0.96) / 2 of the whole, 0.05 of the half in user mode by instructions.
    assert!((difference.change + 0.08).abs() < 0.002, "{difference:?}");
    assert!(
        (difference.parts[0].change + 0.025).abs() < 0.002,
        "{difference:?}"
    );
    assert!(difference.parts.iter().all(|part| part.decided));
}

/// Goal: speed that costs memory is called a trade, with the price in bytes.
#[test]
fn a_trade_off_names_its_price() {
    let all = field(
        &[("tcmalloc", 1.10, 1.0, 1.5), ("jemalloc", 1.0, 1.0, 0.8)],
        0.005,
    );
    let found = advice(&all);
    assert_eq!(found.advice, Advice::TradeOff);
    let text = &found.sentence;
    assert!(
        text.starts_with("For throughput: tcmalloc (1.10x ["),
        "{text}"
    );
    assert!(
        text.contains("), which costs 1.50x [1.50, 1.50] memory."),
        "{text}"
    );
    assert!(text.contains(" For memory: jemalloc (0.80x ["), "{text}");
    let caution = &found.caution;
    assert!(
        caution.starts_with("Stay with glibc where memory counts more ("),
        "{caution}"
    );
    assert!(caution.contains("MiB with tcmalloc, not "), "{caution}");
    assert_eq!(
        choices(&found),
        [
            ("throughput", "tcmalloc"),
            ("latency", "glibc"),
            ("memory", "jemalloc")
        ]
    );
}

/// Goal: the nine candidates of the usual comparison: the best in time is the dearer in memory.
#[test]
fn the_usual_comparison() {
    let found = advice(&candidates(&nine_plans(), 10, 0.01, 42));
    assert_eq!(found.advice, Advice::TradeOff);
    assert!(
        found
            .sentence
            .starts_with("For throughput and p99 latency: mimalloc with pools (1.1")
    );
    assert!(
        found
            .sentence
            .ends_with("For memory: glibc with pools itself, no candidate needs less."),
        "{}",
        found.sentence
    );
    assert!(
        found
            .caution
            .contains("glibc with pools where memory counts more")
    );
}

#[test]
fn all_equivalent() {
    let mut all = field(
        &[("mimalloc", 1.0, 1.0, 1.0), ("tbb", 1.0, 1.0, 1.0)],
        0.002,
    );
    let found = advice(&all);
    assert_eq!(found.advice, Advice::Stay, "{found:?}");
    assert!(
        found
            .sentence
            .starts_with("Stay with glibc: all 2 others are the same within")
    );
    assert!(found.caution.starts_with("Do not switch"));
    assert!(found.differences.is_empty());
    all.remove(3);
    let found = advice(&all);
    assert!(
        found
            .sentence
            .contains("mimalloc is the same within 5 % (throughput)")
    );
}

/// Goal: where the others are worse the baseline stays, and it is said by how much.
#[test]
fn the_baseline_is_best() {
    let found = advice(&field(&[("slow", 0.8, 1.5, 1.3)], 0.005));
    assert_eq!(found.advice, Advice::Stay);
    assert!(
        found.sentence.starts_with(
            "Stay with glibc: nothing is better than it. Throughput: worse (slow 0.80x ["
        ),
        "{}",
        found.sentence
    );
    assert!(
        found.caution.contains("slow has throughput 0.80x ["),
        "{}",
        found.caution
    );
}

/// Goal: too much scatter for the difference: no advice, and the rounds it would take.
#[test]
fn undecided() {
    let found = advice(&field(&[("mimalloc", 1.03, 0.97, 1.03)], 0.2));
    assert_eq!(found.advice, Advice::Undecided, "{found:?}");
    assert!(
        found
            .sentence
            .contains("ing is proved better than glibc. Throughput: undecided; "),
        "{}",
        found.sentence
    );
    assert!(
        found
            .caution
            .starts_with("Do not switch yet: the hardest case needs")
    );
    assert!(!found.sentence.contains("Use ") && !found.sentence.contains("For "));
}

/// All of throughput, memory and CPU was decided, none of it for a change, and the advice was "do not switch yet".
///
/// Goal: an open p99 alone prevents no answer, and is named with its interval.
#[test]
fn an_open_p99_is_no_reason_to_wait() {
    let mut all = field(
        &[("mimalloc", 1.0, 1.0, 1.0), ("tbb", 1.0, 1.0, 1.3)],
        0.002,
    );
    for (index, candidate) in all.iter_mut().enumerate() {
        for round in &mut candidate.rounds {
            let run = f64::from(round.round * 5 + index as u32 * 3);
            for operation in [Operation::Put, Operation::Get] {
                let p99 = 1e6 * (0.6 * (run * 1.7).sin()).exp();
                round.set(Measure::of(operation, Quantity::ResponseP99), p99);
            }
        }
    }
    let found = advice(&all);
    assert_eq!(found.advice, Advice::Stay, "{found:?}");
    assert!(
        found.sentence.starts_with(
            "Stay with glibc: nothing is proved better than it. Throughput: all the same"
        ),
        "{}",
        found.sentence
    );
    assert!(
        found
            .caution
            .starts_with("Do not switch: tbb has memory 1.3"),
        "{}",
        found.caution
    );
    assert!(
        found
            .caution
            .contains(". Open is the p99 latency of mimalloc ("),
        "{}",
        found.caution
    );
}

/// Goal: a disturbed machine: what the clock says is not used; what noise cannot touch still is, and
/// the rest is named as open.
#[test]
fn not_trusted() {
    let mut all = field(&[("mimalloc", 1.3, 0.6, 1.0)], 0.005);
    let with_cpu = all.clone();
    without(&mut all, &[Quantity::CpuTime]);
    for round in all.iter_mut().flat_map(|one| &mut one.rounds) {
        round.noise.push(NoiseFlag {
            kind: NoiseKind::ForeignCpu,
            value: 0.4,
            limit: 0.05,
            phase: None,
        });
    }
    let found = advice(&all);
    assert_eq!(found.advice, Advice::Undecided);
    assert!(
        found.sentence.contains("not to be trusted"),
        "{}",
        found.sentence
    );
    assert!(
        found
            .sentence
            .ends_with("p99 latency: not to be trusted; memory: the same within 5 %."),
        "{}",
        found.sentence
    );
    assert!(found.caution.contains("quiet machine"));
    let mut lean = field(&[("mimalloc", 1.3, 0.6, 0.7)], 0.005);
    without(&mut lean, &[Quantity::CpuTime]);
    for (clean, dirty) in lean.iter_mut().zip(&all) {
        for (round, noisy) in clean.rounds.iter_mut().zip(&dirty.rounds) {
            round.noise.clone_from(&noisy.noise);
        }
    }
    let found = advice(&lean);
    assert_eq!(choices(&found), [("memory", "mimalloc")]);
    assert!(
        found
            .caution
            .contains("throughput of mimalloc is not to be trusted (other programs")
    );
    // CPU per request replaces an untrusted throughput.
    let mut cheap = with_cpu;
    for (clean, dirty) in cheap.iter_mut().zip(&all) {
        for (round, noisy) in clean.rounds.iter_mut().zip(&dirty.rounds) {
            round.noise.clone_from(&noisy.noise);
        }
    }
    let found = advice(&cheap);
    assert_eq!(choices(&found), [("memory", "glibc"), ("cpu", "mimalloc")]);
    assert!(
        found
            .sentence
            .starts_with("Use mimalloc for CPU per request (0.77x [")
    );
    without(
        &mut all,
        &[
            Quantity::MemoryAfterWork,
            Quantity::RssAfterWork,
            Quantity::PeakRss,
        ],
    );
    let found = advice(&all);
    assert_eq!(found.advice, Advice::NotTrusted, "{found:?}");
    assert!(found.sentence.contains("other programs used the CPUs"));
    assert!(found.caution.contains("stay with glibc"));
}

/// Goal: without a PMU the reason is CPU time in user mode and kernel, with the limits of that;
/// without any cost there is no reason at all.
#[test]
fn no_pmu() {
    let mut all = field(&[("mimalloc", 1.2, 0.7, 1.0)], 0.005);
    without(&mut all, &COUNTED);
    plant(&mut all, Quantity::CpuTime, 10_000.0, &[0.84]);
    plant(&mut all, Quantity::UserCpu, 8_000.0, &[0.85]);
    plant(&mut all, Quantity::SystemCpu, 2_000.0, &[0.8]);
    plant(&mut all, Quantity::PageFaults, 0.5, &[0.1]);
    let found = advice(&all);
    let text = &found.reason;
    assert!(
        text.contains("16 % less CPU time per request: 12 % less in user mode"),
        "{text}"
    );
    assert!(
        text.contains("4 % less in the kernel (page faults 0.10x"),
        "{text}"
    );
    assert!(text.contains("without hardware counters"), "{text}");
    assert!(!text.contains("stalls") && !text.contains("TLB"), "{text}");
    without(
        &mut all,
        &[Quantity::CpuTime, Quantity::UserCpu, Quantity::SystemCpu],
    );
    let found = advice(&all);
    assert_eq!(found.advice, Advice::Switch);
    assert_eq!(found.reason, "Why mimalloc: no measure explains it.");
    assert!(found.differences.is_empty());
}

/// Goal: instructions counted by valgrind replace a part of hidden counters: they show that there are fewer, or that
/// the difference lies elsewhere.
#[test]
fn emulated_instructions_stand_in() {
    let mut all = field(&[("mimalloc", 1.2, 0.7, 1.0)], 0.005);
    without(&mut all, &COUNTED);
    plant(&mut all, Quantity::CpuTime, 10_000.0, &[0.84]);
    plant(&mut all, Quantity::EmulatedInstructions, 5_000.0, &[0.9]);
    let fewer = advice(&all).reason;
    assert!(
        fewer.contains("instructions in user mode (by valgrind) there are 0.90x"),
        "{fewer}"
    );
    assert!(fewer.contains("what caches add is unknown"), "{fewer}");
    plant(&mut all, Quantity::EmulatedInstructions, 5_000.0, &[1.0]);
    let equal = advice(&all).reason;
    assert!(
        equal.contains("as many instructions in user mode"),
        "{equal}"
    );
    assert!(
        equal.contains("the difference lies in caches or in the kernel"),
        "{equal}"
    );
}

/// Goal: a faster candidate whose requests cost the same is not explained by their cost.
#[test]
fn equal_costs_explain_nothing() {
    let mut all = field(&[("mimalloc", 1.2, 1.0, 1.0)], 0.005);
    for quantity in [Quantity::Cycles, Quantity::Instructions] {
        plant(&mut all, quantity, 10_000.0, &[1.0]);
    }
    let found = advice(&all);
    assert!(
        found.reason.contains("Why mimalloc: unknown"),
        "{}",
        found.reason
    );
}

/// Goal: more cost is no reason for more speed. An allocator that waits less for locks serves more
/// requests with more CPU for each; it was once recommended "because it needs 10 % more cycles".
#[test]
fn a_dearer_request_is_no_reason() {
    let mut all = field(&[("mimalloc", 1.2, 1.0, 1.0)], 0.005);
    plant(&mut all, Quantity::Cycles, 10_000.0, &[1.1]);
    plant(&mut all, Quantity::Instructions, 10_000.0, &[1.1]);
    let text = advice(&all).reason;
    assert!(!text.contains("Why"), "{text}");
    assert!(
        text.contains("mimalloc is better although it needs 10 % more cycles per request"),
        "{text}"
    );
    without(&mut all, &COUNTED);
    plant(&mut all, Quantity::CpuTime, 10_000.0, &[1.1]);
    let found = advice(&all);
    assert_eq!(found.advice, Advice::TradeOff, "the price is said");
    assert!(
        found.sentence.contains(", which costs 1.10x ["),
        "{found:?}"
    );
    let text = advice(&all).reason;
    assert!(
        text.contains("mimalloc is better although it needs 10 % more CPU time per request"),
        "{text}"
    );
}

/// Goal: the cost of a request is user mode and kernel together. Page faults that a candidate spares are
/// its reason though nothing changes in user mode; and fewer cycles there are none, if the kernel's
/// eat them up again.
#[test]
fn the_kernel_is_a_reason_too() {
    let mut all = field(&[("mimalloc", 1.2, 1.0, 1.0)], 0.005);
    plant(&mut all, Quantity::Cycles, 10_000.0, &[1.0]);
    plant(&mut all, Quantity::Instructions, 10_000.0, &[1.0]);
    plant(&mut all, Quantity::KernelCycles, 10_000.0, &[0.6]);
    let text = advice(&all).reason;
    assert!(
        text.contains(
            "Why mimalloc: it needs 20 % fewer cycles per request: 20 % less in the kernel"
        ),
        "{text}"
    );
    plant(&mut all, Quantity::Cycles, 10_000.0, &[0.9]);
    plant(&mut all, Quantity::Instructions, 10_000.0, &[0.9]);
    plant(&mut all, Quantity::KernelCycles, 10_000.0, &[1.1]);
    let text = advice(&all).reason;
    assert!(text.contains("Why mimalloc: unknown"), "{text}");
}

/// Goal: a gain in memory is explained by fragmentation, once counted, and by nothing before.
#[test]
fn memory_has_its_own_reason() {
    let mut all = field(&[("mimalloc", 1.0, 1.0, 0.6)], 0.003);
    assert!(advice(&all).reason == "Why mimalloc: not measured.");
    for (index, candidate) in all.iter_mut().enumerate() {
        let ratio = if index < 2 { 2.1 } else { 1.25 };
        candidate.rounds[0].set(Measure::whole(Quantity::Fragmentation), ratio);
    }
    let text = advice(&all).reason;
    assert!(
        text.contains("each byte that lives takes 1.25x, not 2.10x (counted once)"),
        "{text}"
    );
}

/// redis kept 0.47 times the memory under mimalloc, "because each byte that lives takes 1.59x, not 1.58x".
///
/// Goal: a figure that says the opposite of the gain is no reason; after phases, what malloc retains is one.
#[test]
fn a_reason_points_the_way_of_the_gain() {
    let mut all = field(&[("mimalloc", 1.0, 1.0, 0.6)], 0.003);
    for (index, candidate) in all.iter_mut().enumerate() {
        let ratio = if index < 2 { 1.58 } else { 1.59 };
        candidate.rounds[0].set(Measure::whole(Quantity::Fragmentation), ratio);
    }
    let text = advice(&all).reason;
    assert_eq!(text, "Why mimalloc: no measure explains it.");
    for (index, candidate) in all.iter_mut().enumerate() {
        let mib = if index < 2 { 16 } else { 3 };
        candidate.phase_heaps = vec![PhaseHeap {
            cycle: 0,
            live_bytes: Some(1 << 20),
            held: vec![Held {
                holder: Holder::Malloc,
                bytes: mib << 20,
            }],
        }];
    }
    let text = advice(&all).reason;
    assert!(
        text.contains("it keeps 2.00 MiB that the program has given back, not 15.0 MiB"),
        "{text}"
    );
}

#[test]
fn nothing_to_compare() {
    let mut all = field(&[], 0.01);
    assert_eq!(advice(&all).advice, Advice::None);
    all.truncate(1);
    assert!(
        advice(&all)
            .sentence
            .contains("nothing was compared with glibc")
    );
}

/// Goal: the advice stands in results.json and on the terminal, where it fits.
#[test]
fn it_is_written_and_printed() {
    let record = record(&nine_plans(), 10, 0.01, 42);
    let json: serde_json::Value = serde_json::from_str(&record.to_json().unwrap()).unwrap();
    assert_eq!(json["recommendation"]["advice"], "trade_off");
    let sentence = json["recommendation"]["sentence"].as_str().unwrap();
    let text = terminal::render(&record, &terminal::TerminalOptions::default());
    let printed = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(printed.contains(sentence), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100));
}

/// Goal: a value whose counter was shared is marked wherever it stands in the table, and only that.
#[test]
fn scaled_values_are_marked() {
    let mut record = record(&nine_plans(), 10, 0.01, 42);
    let marked = |record: &_| {
        terminal::render(record, &terminal::TerminalOptions::default())
            .matches('~')
            .count()
    };
    assert_eq!(marked(&record), 0);
    // Of the columns that always fit.
    let measure = Measure::of(Operation::Put, Quantity::Throughput);
    record.candidates[3].rounds[5].scaled.insert(measure);
    let json = record.to_json().unwrap();
    let back: millpond_measure::record::ComparisonRecord = serde_json::from_str(&json).unwrap();
    assert!(back == record);
    // And once in the legend.
    assert_eq!(marked(&record), 2);
}

/// Sets the CPU time of each later candidate.
fn cpu(all: &mut [CandidateRounds], factors: &[f64]) {
    without(all, &COUNTED);
    plant(all, Quantity::CpuTime, 10_000.0, factors);
}

/// Goal: less memory for more CPU is a choice: both ends of the front are named, each with its price. A candidate that
/// needed 40 % more CPU was once recommended without mentioning it.
#[test]
fn both_ends_of_the_front() {
    let mut all = field(&[("jemalloc", 1.0, 1.0, 0.62)], 0.003);
    cpu(&mut all, &[1.4]);
    let found = advice(&all);
    assert_eq!(found.advice, Advice::TradeOff);
    let text = &found.sentence;
    assert!(
        text.starts_with(
            "For memory: jemalloc (0.62x [0.62, 0.62] the memory of glibc), which costs 1.40x ["
        ),
        "{text}"
    );
    assert!(text.contains("] CPU per request. "), "{text}");
    assert!(
        text.ends_with("For throughput: glibc itself, no candidate is faster."),
        "{text}"
    );
    let front: Vec<&str> = found
        .front
        .iter()
        .map(|one| one.candidate.as_str())
        .collect();
    assert_eq!(front, ["glibc", "jemalloc"]);
    assert_eq!(found.front[1].comparisons["cpu"].verdict.label(), "worse");
}

/// Goal: a candidate that is proved no better than another in anything, and worse in something, is named nowhere; gains
/// without a price are named beside those with one.
#[test]
fn dominated_candidates_are_not_named() {
    let mut all = field(
        &[
            ("lean", 1.0, 1.0, 0.6),
            ("dear", 1.0, 1.0, 0.6),
            ("free", 1.0, 1.0, 0.8),
        ],
        0.003,
    );
    cpu(&mut all, &[1.2, 1.6, 1.0]);
    let found = advice(&all);
    let text = &found.sentence;
    assert!(text.starts_with("For memory: lean (0.60x ["), "{text}");
    assert!(
        text.contains(" With nothing proved worse: free (memory 0.80x ["),
        "{text}"
    );
    assert!(!text.contains("dear"), "{text}");
    let named = |entry: &millpond_measure::record::FrontEntry| entry.candidate == "dear";
    assert!(!found.front.iter().any(named), "{:?}", found.front);
}

/// Goal: a p99 that is worse with proof stands in the sentence that names the candidate.
#[test]
fn a_worse_p99_is_said_at_once() {
    let found = advice(&field(&[("mimalloc", 1.2, 1.6, 1.0)], 0.003));
    let text = &found.sentence;
    let (first, _) = text.split_once("]) ").unwrap_or((text, ""));
    assert!(
        first.starts_with("For throughput: mimalloc (1.20x ["),
        "{text}"
    );
    assert!(
        text.contains("p99 latency. For memory: glibc itself"),
        "{text}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Goal: whatever is planted, a candidate is recommended for a question only if its verdict there is "better",
    /// every "worse" of a recommended one is reported, and parts add up.
    #[test]
    fn it_never_claims_more_than_the_verdicts(
        throughput in 0.8_f64..1.25,
        latency in 0.6_f64..1.6,
        memory in 0.7_f64..1.4,
        second in 0.9_f64..1.1,
        sigma in 0.002_f64..0.1,
    ) {
        let all = field(&[("one", throughput, latency, memory), ("two", second, 1.0, second)], sigma);
        let analysis = analyse(&all);
        let advice = &analysis.recommendation;
        let verdicts = &analysis.verdicts;
        let questions = [
            ("throughput", &verdicts.throughput),
            ("latency", &verdicts.latency),
            ("memory", &verdicts.memory),
        ];
        for (key, question) in questions {
            let choice = advice.choices.iter().find(|one| one.question == key);
            let better = |name: &str| {
                let found = question.comparisons.iter().find(|one| one.candidate == name);
                found.is_some_and(|one| one.verdict.label() == "better")
            };
            if let Some(choice) = choice.filter(|one| one.candidate != "glibc") {
                prop_assert!(question.trusted && better(&choice.candidate));
            }
            for comparison in &question.comparisons {
                let recommended = advice.choices.iter().any(|one| one.candidate == comparison.candidate);
                if recommended && question.trusted && comparison.verdict.label() == "worse" {
                    prop_assert_eq!(advice.advice, Advice::TradeOff);
                    prop_assert!(advice.sentence.contains(&comparison.ratio_text()));
                }
            }
        }
        for difference in &advice.differences {
            let sum: f64 = difference.parts.iter().map(|part| part.change).sum();
            prop_assert!((sum - difference.change).abs() < 1e-9);
        }
        let recommends = matches!(advice.advice, Advice::Switch | Advice::TradeOff);
        let begins = |word: &str| advice.sentence.starts_with(word);
        prop_assert_eq!(recommends, begins("Use ") || begins("For "));
    }
}
