//! The check against an earlier record, on SYNTHETIC sessions with planted changes.

mod synthetic;

use millpond_measure::record::{
    ComparisonRecord, Measure, NoiseFlag, NoiseKind, Operation, Quantity, Regression, RegressionBy,
};
use millpond_measure::regression::{Incomparable, RegressionRule, check};
use millpond_measure::statistics::Verdict;
use synthetic::{Plan, candidates, nine_plans, record};

const SIGMA: f64 = 0.01;

/// A session without curves, which cost time and decide nothing.
fn session(plans: &[Plan], rounds: u32, seed: u64) -> ComparisonRecord {
    let mut session = template().clone();
    session.candidates = candidates(plans, rounds, SIGMA, seed);
    session
}

fn template() -> &'static ComparisonRecord {
    static TEMPLATE: std::sync::OnceLock<ComparisonRecord> = std::sync::OnceLock::new();
    TEMPLATE.get_or_init(|| record(&nine_plans(), 6, SIGMA, 1))
}

fn by_ratio(now: &ComparisonRecord, earlier: &ComparisonRecord) -> Regression {
    check(now, earlier, RegressionRule::default()).expect("comparable")
}

fn verdict(regression: &Regression, question: &str, candidate: &str) -> Verdict {
    let mut questions = regression.questions.iter();
    let question = questions.find(|one| one.name == question).expect("asked");
    let mut comparisons = question.comparisons.iter();
    let comparison = comparisons.find(|one| one.candidate == candidate);
    comparison.expect("judged").verdict.clone()
}

/// Scales one measure of every run of the candidates that `who` selects.
fn scale(
    record: &mut ComparisonRecord,
    who: impl Fn(&str) -> bool,
    quantity: Quantity,
    factor: f64,
) {
    for candidate in record.candidates.iter_mut().filter(|one| who(&one.name)) {
        for round in &mut candidate.rounds {
            for (measure, value) in &mut round.measures {
                if measure.quantity == quantity {
                    *value *= factor;
                }
            }
        }
    }
}

/// Goal: two sessions of the same, each with weather of its own, are called a regression in at most
/// 5 % of checks, over all candidates and questions together.
#[test]
fn the_same_again_is_no_regression() {
    let plans = nine_plans();
    let trials = 200;
    let alarms = (0..trials)
        .filter(|seed| {
            let (now, earlier) = (
                session(&plans, 10, seed * 2),
                session(&plans, 10, seed * 2 + 1),
            );
            by_ratio(&now, &earlier).regressed
        })
        .count();
    // 5 % of 200, and three standard deviations of that.
    assert!(alarms <= 19, "{alarms} of {trials}");
}

/// Goal: each planted regression is found where it was planted and nowhere else, and the same change
/// the other way is no regression.
#[test]
fn planted_changes_are_found() {
    let plans = nine_plans();
    let name = "mimalloc with pools";
    for (question, quantity, factor) in [
        ("throughput", Quantity::Throughput, 0.94),
        ("latency", Quantity::ResponseP99, 1.30),
        ("memory", Quantity::MemoryAfterWork, 1.10),
        ("work", Quantity::Instructions, 1.03),
    ] {
        let earlier = session(&plans, 10, 11);
        let mut now = session(&plans, 10, 12);
        scale(&mut now, |one| one == name, quantity, factor);
        let found = by_ratio(&now, &earlier);
        assert_eq!(
            verdict(&found, question, name),
            Verdict::Worse,
            "{}",
            found.sentence
        );
        assert!(
            found.regressed && found.sentence.contains(name),
            "{}",
            found.sentence
        );
        let others = found.questions.iter().flat_map(|one| &one.comparisons);
        let worse = others.filter(|one| one.verdict == Verdict::Worse).count();
        assert_eq!(worse, 1, "{}", found.sentence);
        let back = by_ratio(&earlier, &now);
        assert_eq!(
            verdict(&back, question, name),
            Verdict::Better,
            "{}",
            back.sentence
        );
        assert!(!back.regressed, "{}", back.sentence);
    }
}

/// Goal: a machine that became slower for all is no regression by ratio, but is reported; by value it is one. Memory
/// that grew for all is one either way.
#[test]
fn drift_cancels_and_is_told() {
    let plans = nine_plans();
    let earlier = session(&plans, 10, 21);
    let mut now = session(&plans, 10, 22);
    scale(&mut now, |_| true, Quantity::Throughput, 0.5);
    let found = by_ratio(&now, &earlier);
    assert!(!found.regressed, "{}", found.sentence);
    let told = |line: &String| line.contains("throughput of glibc with pools itself is 0.5");
    assert!(found.warnings.iter().any(told), "{:?}", found.warnings);
    let rule = RegressionRule { by_value: true };
    let found = check(&now, &earlier, rule).unwrap();
    assert_eq!(
        verdict(&found, "throughput", "glibc with pools"),
        Verdict::Worse
    );
    assert!(
        found
            .questions
            .iter()
            .all(|one| one.by == RegressionBy::Value)
    );

    let mut now = session(&plans, 10, 23);
    scale(&mut now, |_| true, Quantity::MemoryAfterWork, 1.2);
    let found = by_ratio(&now, &earlier);
    assert_eq!(
        verdict(&found, "memory", "glibc with pools"),
        Verdict::Worse
    );
}

/// As a version wrote it that knew RSS alone.
fn without_private_memory(record: &mut ComparisonRecord) {
    let is_new = |measure: &Measure| {
        matches!(
            measure.quantity,
            Quantity::MemoryAfterWork
                | Quantity::MemoryAfterIdle
                | Quantity::PeakMemory
                | Quantity::MeanMemory
        )
    };
    for candidate in &mut record.candidates {
        for round in &mut candidate.rounds {
            round.measures.retain(|measure, _| !is_new(measure));
        }
    }
    record.analyse();
}

/// Goal: an earlier record that knows RSS alone is compared by RSS, which both have, and still gives an answer, with a
/// note that it is of RSS.
#[test]
fn a_record_with_rss_alone_is_compared() {
    let plans = nine_plans();
    let name = "mimalloc with pools";
    let (mut earlier, mut now) = (session(&plans, 10, 11), session(&plans, 10, 12));
    without_private_memory(&mut earlier);
    now.analyse();
    scale(&mut now, |one| one == name, Quantity::RssAfterWork, 1.10);
    let found = by_ratio(&now, &earlier);
    assert_eq!(verdict(&found, "memory", name), Verdict::Worse);
    let mut questions = found.questions.iter();
    let memory = questions.find(|one| one.name == "memory").unwrap();
    assert_eq!(memory.measures, [Measure::whole(Quantity::RssAfterWork)]);
    let of_old = &earlier.analysis.verdicts.memory;
    let of_new = &now.analysis.verdicts.memory;
    assert!(of_old.sentence.starts_with("Memory (RSS): "), "{of_old:?}");
    assert!(of_new.sentence.starts_with("Memory: "), "{of_new:?}");
    assert_eq!(of_old.best, of_new.best);
}

/// Goal: untrusted data proves nothing: a disturbed session, and one whose baseline differs from itself; memory, which
/// neither affects, is still judged.
#[test]
fn a_session_in_trouble_convicts_nobody() {
    let plans = nine_plans();
    let name = "mimalloc with pools";
    let earlier = session(&plans, 10, 31);
    let mut disturbed = session(&plans, 10, 32);
    scale(&mut disturbed, |one| one == name, Quantity::Throughput, 0.8);
    scale(
        &mut disturbed,
        |one| one == name,
        Quantity::MemoryAfterWork,
        1.2,
    );
    for candidate in &mut disturbed.candidates {
        for round in &mut candidate.rounds {
            round.noise.push(NoiseFlag {
                kind: NoiseKind::ForeignCpu,
                value: 0.5,
                limit: 0.05,
                phase: None,
            });
        }
    }
    for (now, before, words) in [
        (&disturbed, &earlier, "other programs"),
        (&earlier, &disturbed, "in the earlier record other programs"),
    ] {
        let found = by_ratio(now, before);
        let Verdict::NotTrusted { reason } = verdict(&found, "throughput", name) else {
            panic!("{}", found.sentence)
        };
        assert!(reason.starts_with(words), "{reason}");
        assert!(verdict(&found, "memory", name).is_difference());
    }
    let mut unlike = session(&plans, 10, 33);
    scale(
        &mut unlike,
        |one| one.ends_with("(again)"),
        Quantity::Throughput,
        0.8,
    );
    scale(&mut unlike, |one| one == name, Quantity::Throughput, 0.8);
    let found = by_ratio(&unlike, &earlier);
    let Verdict::NotTrusted { reason } = verdict(&found, "throughput", name) else {
        panic!("{}", found.sentence)
    };
    assert!(reason.contains("differs from itself"), "{reason}");
}

/// Goal: too few rounds cannot prove a loss, and the sentence says how many it takes; if nothing was measured in both,
/// nothing is judged.
#[test]
fn few_rounds_are_undecided() {
    let plans = nine_plans();
    let earlier = session(&plans, 3, 41);
    let mut now = session(&plans, 3, 42);
    scale(
        &mut now,
        |one| one.starts_with("mimalloc"),
        Quantity::Throughput,
        0.5,
    );
    let found = by_ratio(&now, &earlier);
    assert!(!found.regressed);
    let verdict = verdict(&found, "throughput", "mimalloc with pools");
    assert!(
        matches!(verdict, Verdict::Undecided { rounds_needed } if rounds_needed >= 3),
        "{verdict:?}"
    );
    let question = &found.questions[0].comparisons;
    assert!(question.iter().all(|one| one.detectable.is_none()));
}

/// Goal: the sentence claims no more than the data can show. For rounds that can prove nothing it once said "no
/// regression", and for a session with untrusted half that a regression "would have shown everywhere".
#[test]
fn the_sentence_claims_no_sight_it_has_not() {
    let plans = nine_plans();
    // Three rounds can call something the same, and nothing different.
    let rough = |seed| {
        let mut session = session(&plans, 3, seed);
        session.candidates = candidates(&plans, 3, 3.0 * SIGMA, seed);
        session
    };
    let some = by_ratio(&rough(41), &rough(42)).sentence;
    assert!(some.contains("of them have too few rounds"), "{some}");
    let found = by_ratio(&session(&plans, 2, 41), &session(&plans, 2, 42));
    assert!(!found.regressed && !found.is_judged(), "{}", found.sentence);
    assert!(
        found.sentence.starts_with("Regression check: no answer: ")
            && found.sentence.contains("too few rounds"),
        "{}",
        found.sentence
    );
    let (earlier, mut now) = (session(&plans, 10, 61), session(&plans, 10, 62));
    let sees = by_ratio(&now, &earlier).sentence;
    assert!(sees.contains("would have shown everywhere"), "{sees}");
    for round in now.candidates.iter_mut().flat_map(|one| &mut one.rounds) {
        round.noise.push(NoiseFlag {
            kind: NoiseKind::ForeignCpu,
            value: 0.5,
            limit: 0.05,
            phase: None,
        });
    }
    let sees = by_ratio(&now, &earlier).sentence;
    assert!(!sees.contains("everywhere"), "{sees}");
    assert!(sees.contains("in those that could be judged"), "{sees}");
}

/// Goal: records of another subject, machine, layout or load are refused with what differs; what may
/// have changed is a warning; candidates that are missing are named.
#[test]
fn other_questions_are_refused() {
    let earlier = template().clone();
    type Change = fn(&mut ComparisonRecord);
    let refused: [(Change, &str); 9] = [
        (|now| now.format_version = 2, "layout 1 and this one 2"),
        (
            |now| now.subject.command[0] = "nginx".to_owned(),
            "the command was millpond",
        ),
        (
            |now| now.subject.url = Some("http://x/".to_owned()),
            "the URL was none",
        ),
        (
            |now| now.environment.cpu_model = Some("Other CPU".to_owned()),
            "another machine: the processor",
        ),
        (
            |now| now.environment.memory_bytes = Some(4 << 30),
            "its memory was 8",
        ),
        (
            |now| now.settings.connections = 1,
            "connections was 64, and is 1",
        ),
        (
            |now| {
                now.settings.rate_per_s.insert("put".to_owned(), 1.0);
            },
            "rate of the latency phase",
        ),
        (
            |now| now.settings.memory_requests = 5,
            "number of requests was 20000",
        ),
        (
            |now| {
                for candidate in &mut now.candidates {
                    candidate.name.push('x');
                }
            },
            "no candidate is in both",
        ),
    ];
    for (change, part) in refused {
        let mut now = earlier.clone();
        change(&mut now);
        let error: Incomparable = check(&now, &earlier, RegressionRule::default()).unwrap_err();
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    let mut now = earlier.clone();
    now.environment.kernel = "6.18".to_owned();
    now.candidates[8].name = "newcomer".to_owned();
    let found = by_ratio(&now, &earlier);
    let warnings = found.warnings.join("\n");
    for part in [
        "the kernel was 6.1.0-synthetic, and is 6.18",
        "newcomer is not in the earlier record",
        "mimalloc without pools is in the earlier record only",
    ] {
        assert!(warnings.contains(part), "{warnings}");
    }
}

/// Goal: without hardware counters CPU time stands in, by ratio, because frequencies drift.
#[test]
fn cpu_time_stands_in_for_instructions() {
    let strip = |mut record: ComparisonRecord| {
        for candidate in &mut record.candidates {
            for round in &mut candidate.rounds {
                let is_kept = |measure: &Measure| measure.quantity != Quantity::Instructions;
                round.measures.retain(|measure, _| is_kept(measure));
            }
        }
        record
    };
    let plans = nine_plans();
    let found = by_ratio(
        &strip(session(&plans, 10, 51)),
        &strip(session(&plans, 10, 52)),
    );
    let work = found
        .questions
        .iter()
        .find(|one| one.name == "work")
        .unwrap();
    assert_eq!(work.by, RegressionBy::Ratio);
    assert_eq!(
        work.measures[0],
        Measure::of(Operation::Put, Quantity::CpuTime)
    );
}
