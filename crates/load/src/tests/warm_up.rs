use super::*;
use crate::outages::SLICE_NS;
use crate::schedule::Pace;
use crate::timeline::Clocks;

const SECOND_NS: u64 = 1_000_000_000;
const START_NS: u64 = 77;

fn schedule() -> Schedule {
    Schedule::new(Pace::Closed, START_NS, 0, Some(SECOND_NS), None).warming_up()
}

fn steady(slices: usize) -> Steadiness {
    let mut clocks = Clocks::default();
    clocks.response.record_many(1_000_000, 100);
    let mut steadiness = Steadiness::default();
    (0..slices).for_each(|_| steadiness.quarter(SLICE_NS, &clocks));
    steadiness
}

/// Goal: the window begins once, at a slice's end, with notice; nothing later moves it.
#[test]
fn the_window_begins_when_it_is_steady() {
    let schedule = schedule();
    let limit_ns = 30 * SECOND_NS;
    let mut watch = WarmUpWatch::new(WarmUp::UntilSteady { limit_ns });
    watch.look(&schedule, &steady(18), START_NS + SECOND_NS);
    assert_eq!(schedule.window_start_ns(), u64::MAX);
    let now_ns = START_NS + 3 * SECOND_NS + 10;
    watch.look(&schedule, &steady(19), now_ns);
    let window_start_ns = START_NS + 13 * SLICE_NS;
    assert_eq!(schedule.window_start_ns(), window_start_ns);
    watch.look(&schedule, &steady(40), now_ns + 20 * SECOND_NS);
    assert_eq!(schedule.window_start_ns(), window_start_ns);
    assert_eq!(schedule.window_end_ns(), Some(window_start_ns + SECOND_NS));
    let outcome = watch.outcome(&schedule, u64::MAX).unwrap();
    let decided = outcome.until_steady.unwrap();
    assert_eq!(outcome.duration_ns, 13 * SLICE_NS);
    assert_eq!((decided.became_steady, decided.slices), (true, 19));
    assert_eq!(decided.transient_ns, Some(0));
}

/// Goal: at the limit it still ends, and reports that; a run that ends before reports that too.
#[test]
fn the_limit_ends_it() {
    let schedule = schedule();
    let limit_ns = SECOND_NS;
    let mut watch = WarmUpWatch::new(WarmUp::UntilSteady { limit_ns });
    let before_ns = START_NS + limit_ns - NOTICE_NS - 1;
    watch.look(&schedule, &steady(0), before_ns);
    assert_eq!(schedule.window_start_ns(), u64::MAX);
    let cut_short = watch.outcome(&schedule, START_NS + 9).unwrap();
    assert_eq!(cut_short.duration_ns, 9);
    assert!(!cut_short.until_steady.unwrap().became_steady);
    watch.look(&schedule, &steady(0), before_ns + 1);
    assert_eq!(schedule.window_start_ns(), START_NS + limit_ns);
    let outcome = watch.outcome(&schedule, u64::MAX).unwrap();
    assert_eq!(outcome.duration_ns, limit_ns);
    assert!(!outcome.until_steady.unwrap().became_steady);
}

#[test]
fn a_given_length_is_kept() {
    let schedule = Schedule::new(Pace::Closed, START_NS, 5, Some(SECOND_NS), None);
    let mut watch = WarmUpWatch::new(WarmUp::Lasting { duration_ns: 5 });
    watch.look(&schedule, &steady(40), START_NS);
    assert_eq!(schedule.window_start_ns(), START_NS + 5);
    let outcome = watch.outcome(&schedule, u64::MAX).unwrap();
    assert_eq!((outcome.duration_ns, outcome.until_steady), (5, None));
    let none = WarmUpWatch::new(WarmUp::Lasting { duration_ns: 0 });
    assert_eq!(none.outcome(&schedule, u64::MAX), None);
}
