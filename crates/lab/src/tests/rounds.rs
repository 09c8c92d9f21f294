use super::*;
use crate::allocator::Allocator;
use crate::matrix;
use crate::plan::Known;
use millpond_measure::record::{Measure, Operation, Quantity, RoundMeasures};

fn plan() -> Plan {
    Plan::make(&Known {
        candidates: 3,
        tail: Duration::ZERO,
        slowest_per_s: vec![50_000.0],
        warm_up_requests: vec![0],
        ..Known::example()
    })
}

/// Nothing ends it but its interim analyses.
fn course<'a>(candidates: &'a [Candidate], plan: &'a Plan) -> Course<'a> {
    static RUNNING: AtomicBool = AtomicBool::new(false);
    Course {
        candidates,
        plan,
        schedule: &[],
        is_fixed: false,
        margins: Margins::default(),
        fill_until: None,
        has_small_backlog: false,
        deadline: Instant::now(),
        stop: &RUNNING,
    }
}

/// glibc, itself again, and these.
fn candidates(names: &[&str]) -> Vec<Candidate> {
    let library = |name: &&str| Allocator::preloaded(name, format!("/lib/{name}.so").into());
    let mut found = vec![Allocator::native("glibc")];
    found.extend(names.iter().map(library));
    matrix::candidates(&found, &[])
}

/// Throughput of baseline, its double and one other candidate in so many rounds, the other one
/// `ratio` as fast, up to `spread` faster or slower from round to round.
fn after(begun: u32, candidates: &[Candidate], ratio: f64, spread: f64) -> Rounds {
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::create(directory.path()).unwrap();
    let mut rounds = Rounds::new(candidates, &plan(), journal);
    for round in 0..begun {
        for (index, ratio) in [1.0, 1.0, ratio].into_iter().enumerate() {
            let swing = spread * (f64::from(round * 7 % 11) / 5.0 - 1.0);
            let mut measures = RoundMeasures {
                round,
                ..RoundMeasures::default()
            };
            let value = 1e4 * ratio + if index == 2 { 1e4 * swing } else { 0.0 };
            let throughput = Measure::of(Operation::Request, Quantity::Throughput);
            measures.set(throughput, value + f64::from(round));
            rounds.collection.add(index, measures, &[]);
        }
    }
    rounds.begun = begun;
    rounds
}

/// Goal: a round in which all runs fail ends the comparison with the earlier measurements. It once threw all rounds
/// away; of the first one there is nothing to keep.
#[test]
fn a_failed_round_keeps_the_ones_before() {
    let candidates = candidates(&["x"]);
    let fail = |runs_done| {
        let mut rounds = after(6, &candidates, 1.1, 0.0);
        rounds.runs_done = runs_done;
        let earlier = "glibc, round 2: no answer".to_owned();
        rounds.failures = vec![earlier, "x, round 7: the disk is full".to_owned()];
        let mut notes = 0;
        let end = rounds.end_by_failure(7, 1, &mut |_| notes += 1);
        (
            end.map_err(|error| error.to_string()),
            rounds.stopped,
            notes,
        )
    };
    let words = "every run of round 7 failed; the first one: x, round 7: the disk is full";
    assert_eq!(fail(18), (Ok(()), words.to_owned(), 1));
    assert_eq!(fail(0), (Err(words.to_owned()), String::new(), 0));
}

/// One run of each candidate, of which those at `failed` crash.
fn crash(rounds: &mut Rounds, round: u32, failed: &[usize], course: &Course<'_>) {
    for index in 0..course.candidates.len() {
        let mut scored = ScoredRun::new(round, 0);
        if failed.contains(&index) {
            scored.measures.status = RoundStatus::Failed {
                reason: "it died".to_owned(),
                cause: Some(FailureCause::Crashed {
                    signal: Some(11),
                    exit_status: None,
                    last_lines: Vec::new(),
                }),
            };
        }
        rounds.note(index, scored, course, &mut |_| {}).unwrap();
    }
}

/// Goal: a candidate that crashes twice, with a good round in between, is left out with its cause and not tried
/// again, and nothing waits for a verdict on it; failures of the machine count only in a row.
#[test]
fn who_crashes_twice_is_left_out() {
    let (candidates, plan) = (candidates(&["x", "y"]), plan());
    let course = course(&candidates, &plan);
    let directory = tempfile::tempdir().unwrap();
    let journal = Journal::create(directory.path()).unwrap();
    let mut rounds = Rounds::new(&candidates, &plan, journal);
    for (round, failed) in [(0, &[2][..]), (1, &[][..]), (2, &[2][..])] {
        assert!(rounds.is_tried(2) && rounds.left_out.is_empty());
        crash(&mut rounds, round, failed, &course);
        rounds.end_without_others(&course, &mut |_| {}).unwrap();
    }
    assert!(!rounds.is_tried(2) && rounds.is_tried(3) && rounds.stopped.is_empty());
    let [left_out] = &rounds.left_out[..] else {
        panic!("{:?}", rounds.left_out)
    };
    assert_eq!(left_out.label(), "crashed (SIGSEGV) in round 3");
    assert_eq!(
        (left_out.candidate.as_str(), left_out.rounds_done),
        ("x", 1)
    );
    let names: Vec<String> = rounds
        .collection
        .so_far()
        .into_iter()
        .map(|one| one.name)
        .collect();
    assert_eq!(names, ["glibc", "glibc (again)", "y"]);
    let mut of_machine = FailedRuns::default();
    for failure in [Some(FailureCause::Other), None, Some(FailureCause::Other)] {
        of_machine.add(failure.as_ref());
        assert!(!of_machine.is_out());
    }
    of_machine.add(Some(&FailureCause::Other));
    assert!(of_machine.is_out());
}

/// Goal: when all others are left out that is the result, with their causes; when the baseline is, the rounds end, with
/// its earlier values if there are any.
#[test]
fn nobody_is_compared_with_nobody() {
    let (candidates, plan) = (candidates(&["x"]), plan());
    let course = course(&candidates, &plan);
    let end = |failed: [&[usize]; 3]| {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::create(directory.path()).unwrap();
        let mut rounds = Rounds::new(&candidates, &plan, journal);
        for (round, failed) in (0..).zip(failed) {
            crash(&mut rounds, round, failed, &course);
        }
        let end = rounds.end_without_others(&course, &mut |_| {});
        (end.map_err(|error| error.to_string()), rounds.stopped)
    };
    let words = "nothing to compare with glibc: x in round 2: it died";
    assert_eq!(end([&[2], &[2], &[]]).0, Err(words.to_owned()));
    let words = "glibc: round 3: it died";
    assert_eq!(end([&[0], &[0], &[0]]).0, Err(words.to_owned()));
    let stopped = "stopped because the baseline failed: round 3: it died";
    assert_eq!(end([&[], &[0], &[0]]), (Ok(()), stopped.to_owned()));
    assert_eq!(end([&[], &[], &[]]), (Ok(()), String::new()));
}

/// Goal: an interim analysis ends the rounds when the result is known and not before, whatever the
/// plan; and every end has a reason.
#[test]
fn a_look_ends_what_is_decided() {
    let candidates = candidates(&["x"]);
    let plan = plan();
    let (first, last) = (plan.looks[0], plan.rounds);
    assert!(plan.looks.len() > 1);
    let look = |begun, ratio, spread, is_fixed| {
        let mut rounds = after(begun, &candidates, ratio, spread);
        let course = Course {
            is_fixed,
            ..course(&candidates, &plan)
        };
        let mut notes = Vec::new();
        let is_over = rounds.is_answered(&course, &mut |event| notes.push(event.clone()));
        assert_eq!(rounds.analysed_after, [begun]);
        assert_eq!(rounds.stopped.is_empty(), !is_over, "{}", rounds.stopped);
        (is_over, rounds.stopped, notes)
    };
    let (is_over, why, _) = look(first, 1.3, 0.001, false);
    assert!(
        is_over && why.contains(": no verdict is undecided"),
        "{why}"
    );
    let (is_over, _, notes) = look(first, 1.01, 0.2, false);
    assert!(!is_over);
    let LabEvent::Note(note) = &notes[0] else {
        unreachable!()
    };
    assert!(
        note.contains("1 verdict is undecided: throughput of x; going on to"),
        "{note}"
    );
    let (is_over, why, _) = look(last, 1.01, 0.2, false);
    assert!(is_over && why.contains("no room for more rounds"), "{why}");
    let (is_over, why, notes) = look(last, 1.01, 0.2, true);
    assert!(
        is_over && notes.is_empty() && why.contains("asked for"),
        "{why}"
    );
}

/// Goal: after six rounds it is said how wide intervals will be, narrower than now, and which question that leaves
/// open.
#[test]
fn widths_are_foretold() {
    let candidates = candidates(&["x"]);
    let plan = plan();
    let foretold = |spread| {
        let rounds = after(FORECAST_AFTER, &candidates, 1.0, spread);
        let course = course(&candidates, &plan);
        let mut notes = Vec::new();
        rounds.forecast(&course, &mut |event| notes.push(event.clone()));
        let [LabEvent::Note(note)] = &notes[..] else {
            panic!("{notes:?}")
        };
        note.clone()
    };
    let narrow = foretold(0.01);
    let words = format!(
        "intervals of {} rounds will be about: throughput +-",
        plan.rounds
    );
    assert!(
        narrow.starts_with(&words) && !narrow.contains("margin"),
        "{narrow}"
    );
    assert!(foretold(0.2).contains("half of the margin of 5 %"));
}

/// Goal: a candidate that is decided at an analysis that ends nothing takes no part in later rounds, baseline and its
/// double do; the remaining ones get its time as more slices, and the number of rounds stays.
#[test]
fn the_decided_leave() {
    let candidates = candidates(&["x", "y"]);
    let plan = plan();
    // The last one is missing: nothing is known of it.
    let mut rounds = after(plan.looks[0], &candidates, 1.3, 0.001);
    let course = course(&candidates, &plan);
    let open = [OpenVerdict {
        question: "memory",
        candidate: "y".to_owned(),
    }];
    let mut notes = Vec::new();
    rounds.let_decided_leave(&open, &course, &mut |event| notes.push(event.clone()));
    assert_eq!(rounds.left_after, [None, None, Some(plan.looks[0]), None]);
    assert_eq!(notes.len(), 1);
    assert_eq!(rounds.count_tried(), 3);
    assert!(
        rounds
            .left_text(&candidates)
            .contains("; x was decided after 10 rounds")
    );
    // No candidate is left to drop at the next analysis.
    rounds.let_decided_leave(&open, &course, &mut |event| notes.push(event.clone()));
    assert_eq!(notes.len(), 1);
}

/// A comparison of the entity store took 214 s of its 270: a fifth of every round was kept back for slices that have
/// to be repeated, and on a quiet machine none had to.
///
/// Goal: time that rounds did not need, and that of candidates that left, becomes slices of later rounds, as many
/// rounds as were planned, and never more than what is left pays for.
#[test]
fn time_left_becomes_slices() {
    let candidates = candidates(&["x", "y"]);
    let plan = plan();
    let mut rounds = after(plan.rounds - 4, &candidates, 1.0, 0.01);
    let mut fill = |left: Duration| {
        let mut reserve = Reserve::default();
        reserve.add(left);
        rounds.fill(left, &plan, &mut reserve);
        assert!(!reserve.exceeds(Duration::ZERO));
        let filled = rounds.plan.clone();
        assert_eq!(
            (filled.rounds, &filled.requests),
            (plan.rounds, &plan.requests)
        );
        filled
    };
    let five_rounds = plan.run * 4 * 5;
    assert_eq!(fill(five_rounds), plan);
    assert_eq!(fill(five_rounds / 2), plan);
    let more = fill(five_rounds.mul_f64(1.4));
    assert!(
        more.cycles + more.paced > plan.cycles + plan.paced,
        "{more:?}"
    );
    assert!(
        more.run > plan.run && more.run * 4 * 5 <= five_rounds.mul_f64(1.4),
        "{more:?}"
    );
    rounds.left_after[2] = Some(plan.looks[0]);
    let mut reserve = Reserve::default();
    rounds.fill(five_rounds, &plan, &mut reserve);
    assert!(rounds.plan.run > plan.run && rounds.plan.run * 3 * 5 <= five_rounds);
}

/// One candidate with one bad round of six had been announced as the width of all: 49 %, and 4.5 % came.
#[test]
fn the_typical_width_is_foretold_beside_the_widest() {
    let expected = |widest| ExpectedWidth {
        question: "latency",
        typical: 0.06,
        widest,
        margin: 0.15,
    };
    assert_eq!(forecast_text(&[expected(0.07)]), "latency +-6 %");
    let wide = forecast_text(&[expected(0.49)]);
    assert!(
        wide.starts_with("latency +-6 % (one +-49 %; more than half of the margin of 15 %"),
        "{wide}"
    );
}

#[test]
fn open_verdicts_are_counted_and_a_few_named() {
    let open: Vec<OpenVerdict> = ["a", "b", "c", "d"]
        .map(|name| OpenVerdict {
            question: "memory",
            candidate: name.to_owned(),
        })
        .to_vec();
    assert_eq!(open_text(&open[..1]), "1 verdict is undecided: memory of a");
    assert_eq!(
        open_text(&open),
        "4 verdicts are undecided: memory of a, memory of b, memory of c and 1 more"
    );
}
