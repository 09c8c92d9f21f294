use super::*;
use crate::listener::Flight;
use crate::outcome::InFlight;
use crate::schedule::Pace;
use crate::validation::Judgement;
use proptest::prelude::*;

const MS_NS: u64 = 1_000_000;

fn schedule(warm_up_ms: u64, duration_ms: Option<u64>) -> Schedule {
    let duration_ns = duration_ms.map(|ms| ms * MS_NS);
    Schedule::new(Pace::Closed, 5_000, warm_up_ms * MS_NS, duration_ns, None)
}

/// Goal: each part's seconds count from its beginning, ends cut them, and indices have no gap.
#[test]
fn parts_are_cut_into_seconds() {
    let schedule = schedule(1_500, Some(2_250));
    let mut at_ns = 0;
    let mut spans = Vec::new();
    while spans.len() < 7 {
        let span = Span::at(&schedule, at_ns);
        assert_eq!(span.index, spans.len() as u64);
        assert_eq!(
            Span::at(&schedule, span.end_ns - 1),
            span,
            "its last moment"
        );
        at_ns = span.end_ns;
        spans.push(span);
    }
    let lengths: Vec<(RunPart, u64)> = spans
        .iter()
        .map(|span| (span.part, (span.end_ns - span.start_ns) / MS_NS))
        .collect();
    use RunPart::{Drain, WarmUp, Window};
    assert_eq!(
        lengths,
        [
            (WarmUp, 1_000),
            (WarmUp, 500),
            (Window, 1_000),
            (Window, 1_000),
            (Window, 250),
            (Drain, 1_000),
            (Drain, 1_000),
        ]
    );
}

/// One thread with responses at these moments after the start; true: the request counts.
fn work(worker: usize, answers_ms: &[u64], schedule: &Schedule, exchange: &Exchange) -> Outcome {
    let mut outcome = Outcome::new();
    let mut seconds = Seconds::new(worker);
    let mut now_ns = schedule.start_ns();
    seconds.turn(now_ns, schedule, exchange, &mut outcome);
    for at_ms in answers_ms {
        now_ns = schedule.start_ns() + at_ms * MS_NS;
        if now_ns >= seconds.next_ns {
            seconds.turn(now_ns, schedule, exchange, &mut outcome);
        }
        let written_ns = now_ns - 1_000 * (at_ms % 700 + 1);
        let request = InFlight {
            intended_ns: written_ns - 500,
            written_ns,
            counted: written_ns >= schedule.window_start_ns() + 500,
            ..InFlight::default()
        };
        outcome.answered(&Flight::one(request), 200, Judgement::Right, now_ns, true);
    }
    seconds.end(now_ns, exchange, &mut outcome);
    outcome
}

proptest! {
    /// Goal: whatever the threads do when, no sample is lost, none counts twice, none stands in
    /// another second than its own, and the window's seconds add up to the whole.
    #[test]
    fn seconds_add_up_to_the_run(
        mut threads in prop::collection::vec(prop::collection::vec(2_u64..9_000, 0..80), 1..4),
    ) {
        let schedule = schedule(1_500, Some(4_000));
        let exchange = Exchange::new(threads.len());
        let mut whole = Clocks::default();
        for (worker, answers_ms) in threads.iter_mut().enumerate() {
            answers_ms.sort_unstable();
            work(worker, answers_ms, &schedule, &exchange);
            // The same without hand-over.
            let quiet = Exchange::new(1);
            let mut alone = Outcome::new();
            for at_ms in answers_ms.iter() {
                let now_ns = schedule.start_ns() + at_ms * MS_NS;
                let written_ns = now_ns - 1_000 * (at_ms % 700 + 1);
                if written_ns >= schedule.window_start_ns() + 500 {
                    alone.response.record(now_ns - written_ns + 500);
                    alone.service.record(now_ns - written_ns);
                    alone.slip.record(500);
                }
            }
            let (clocks, _) = alone.change(quiet.empty_clocks());
            whole.merge(&clocks);
        }
        let mut timeline = Timeline::new(&exchange, threads.len());
        let mut seen = Clocks::default();
        timeline.collect(schedule.start_ns(), &mut |second| {
            if second.figures.part != RunPart::WarmUp {
                seen.merge(second.clocks);
            }
        });
        prop_assert!(timeline.rows.is_empty());
        prop_assert_eq!(&timeline.totals.response, &whole.response);
        prop_assert_eq!(&timeline.totals.service, &whole.service);
        prop_assert_eq!(&timeline.totals.slip, &whole.slip);
        prop_assert_eq!(&seen.response, &whole.response);
        for second in timeline.seconds.iter().filter(|one| one.part == RunPart::Window) {
            let from_ms = second.start_ns / MS_NS;
            let counted = threads.iter().flatten().filter(|&&at_ms| {
                let written_us = at_ms * 1_000 - (at_ms % 700 + 1);
                (from_ms..from_ms + 1_000).contains(&at_ms) && written_us > 1_500_000
            });
            prop_assert_eq!(second.requests, counted.count() as u64, "from {} ms", from_ms);
        }
    }
}

/// The last response came at the very beginning of a second, which then had no length and was left out, and its sample
/// with it. Goal: it is a second, without a rate.
#[test]
fn a_moment_with_an_answer_is_a_second() {
    let schedule = schedule(1_500, Some(4_000));
    let exchange = Exchange::new(1);
    work(0, &[6_500], &schedule, &exchange);
    let mut timeline = Timeline::new(&exchange, 1);
    let mut shown = Vec::new();
    timeline.collect(schedule.start_ns(), &mut |second| {
        shown.push((second.figures.requests, second.figures.requests_per_s));
    });
    assert_eq!(shown.last(), Some(&(1, 0.0)), "{shown:?}");
}

/// Goal: a second is shown once every thread has left it, and not before.
#[test]
fn a_second_waits_for_the_slowest_thread() {
    let schedule = schedule(0, None);
    let exchange = Exchange::new(2);
    let mut timeline = Timeline::new(&exchange, 2);
    let mut outcomes = [Outcome::new(), Outcome::new()];
    let mut threads = [Seconds::new(0), Seconds::new(1)];
    let start_ns = schedule.start_ns();
    for (thread, outcome) in threads.iter_mut().zip(&mut outcomes) {
        thread.turn(start_ns, &schedule, &exchange, outcome);
        outcome.response.record(7);
        outcome.errors.read += 1;
    }
    let shown = |timeline: &mut Timeline<'_>| {
        let mut shown = Vec::new();
        timeline.collect(start_ns, &mut |second| shown.push(second.figures.clone()));
        shown
    };
    threads[0].turn(
        start_ns + 2 * SECOND_NS,
        &schedule,
        &exchange,
        &mut outcomes[0],
    );
    assert!(shown(&mut timeline).is_empty());
    threads[1].turn(start_ns + SECOND_NS, &schedule, &exchange, &mut outcomes[1]);
    let seconds = shown(&mut timeline);
    assert_eq!(seconds.len(), 1);
    assert_eq!((seconds[0].requests, seconds[0].errors.read), (2, 2));
    assert_eq!(seconds[0].duration_ns, SECOND_NS);
    for (thread, outcome) in threads.iter_mut().zip(&mut outcomes) {
        thread.end(start_ns + 5 * SECOND_NS / 2, &exchange, outcome);
    }
    let seconds = shown(&mut timeline);
    let lengths: Vec<u64> = seconds.iter().map(|one| one.duration_ns / MS_NS).collect();
    assert_eq!(lengths, [1_000, 500], "the last one ends with the run");
    assert_eq!(seconds[0].errors.total(), 0, "errors are told once");
}

/// Goal: warm-up is shown as such and is not counted.
#[test]
fn warm_up_is_kept_apart() {
    let schedule = schedule(2_000, Some(1_000));
    let exchange = Exchange::new(1);
    work(0, &[100, 1_900, 2_001, 2_900], &schedule, &exchange);
    let mut timeline = Timeline::new(&exchange, 1);
    timeline.collect(schedule.start_ns(), &mut |_| {});
    let rows: Vec<(RunPart, u64)> = timeline
        .seconds
        .iter()
        .map(|second| (second.part, second.requests))
        .collect();
    use RunPart::{WarmUp, Window};
    assert_eq!(rows, [(WarmUp, 1), (WarmUp, 1), (Window, 2)]);
    assert_eq!(timeline.totals.response.count(), 2);
}

/// A request of the warm-up that failed in the window's first moments stood among the window's errors,
/// second by second, and in the record nowhere. Goal: like a right response, it is in neither.
#[test]
fn what_the_warm_up_leaves_behind_is_not_the_window_s() {
    let schedule = schedule(1_500, Some(4_000));
    let exchange = Exchange::new(1);
    let mut outcome = Outcome::new();
    let mut seconds = Seconds::new(0);
    let start_ns = schedule.start_ns();
    seconds.turn(start_ns, &schedule, &exchange, &mut outcome);
    let of_warm_up = InFlight {
        intended_ns: start_ns,
        written_ns: start_ns,
        ..InFlight::default()
    };
    for at_ms in [1_400, 1_600] {
        let now_ns = start_ns + at_ms * MS_NS;
        if now_ns >= seconds.next_ns {
            seconds.turn(now_ns, &schedule, &exchange, &mut outcome);
        }
        let flight = Flight::one(of_warm_up);
        outcome.answered(&flight, 500, Judgement::WrongStatus, now_ns, false);
        outcome.failed(&of_warm_up, crate::outcome::Phase::Read, now_ns);
    }
    seconds.end(start_ns + 2_000 * MS_NS, &exchange, &mut outcome);
    let mut timeline = Timeline::new(&exchange, 1);
    let mut errors = Vec::new();
    timeline.collect(start_ns, &mut |second| {
        errors.push((second.figures.part, second.figures.errors.total()));
    });
    assert!(errors.contains(&(RunPart::WarmUp, 2)), "{errors:?}");
    assert!(errors.contains(&(RunPart::Window, 0)), "{errors:?}");
}
