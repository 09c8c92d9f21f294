use super::*;
use crate::arrivals::{Profile, Spacing};

fn open(arrivals: Arrivals) -> Pace {
    Pace::Open(Arc::new(arrivals))
}

/// All that one thread can claim of an open loop.
fn claim_all(schedule: &Schedule) -> Vec<Arrival> {
    let Pace::Open(arrivals) = schedule.pace() else {
        unreachable!("the schedule is of an open loop")
    };
    let mut cursor = arrivals.cursor();
    std::iter::from_fn(|| schedule.claim(0, Some(&mut cursor))).collect()
}

fn constant(per_s: f64, warm_up_ns: u64, duration_ns: Option<u64>, max: Option<u64>) -> Schedule {
    let rate = Rate::from_per_s(per_s).unwrap();
    Schedule::new(
        open(Arrivals::constant(rate)),
        1_000,
        warm_up_ns,
        duration_ns,
        max,
    )
}

/// Goal: threads share one process: every index once, none lost, none twice, the grid intact.
#[test]
fn threads_claim_each_arrival_exactly_once() {
    let schedule = constant(1e6, 0, None, Some(40_000));
    let mut claimed: Vec<Arrival> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| claim_all(&schedule)))
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    claimed.sort_by_key(|arrival| arrival.number);
    assert_eq!(claimed.len(), 40_000);
    for (number, arrival) in claimed.iter().enumerate() {
        assert_eq!(arrival.number, number as u64);
        assert_eq!(arrival.intended_ns, 1_000 + 1_000 * number as u64);
    }
    assert!(claim_all(&schedule).is_empty());
}

/// Goal: warm-up arrivals come before the window, and the window's own grid begins at its start.
#[test]
fn warm_up_precedes_the_window() {
    let schedule = constant(10.0, SECOND_NS, Some(SECOND_NS), None);
    let all: Vec<Arrival> = claim_all(&schedule);
    let (warm, counted): (Vec<Arrival>, Vec<Arrival>) =
        all.into_iter().partition(|arrival| !arrival.counted);
    assert_eq!((warm.len(), counted.len()), (10, 10));
    assert!(
        warm.iter()
            .all(|arrival| arrival.intended_ns < schedule.window_start_ns())
    );
    assert_eq!(counted[0].number, 0);
    assert_eq!(counted[0].intended_ns, schedule.window_start_ns());
    assert_eq!(schedule.offered_until(u64::MAX), Some(10));
}

/// Goal: whichever of duration and count comes first ends the run.
#[test]
fn the_first_limit_ends_the_run() {
    let by_count = constant(10.0, 0, Some(100 * SECOND_NS), Some(3));
    assert_eq!(claim_all(&by_count).len(), 3);
    let by_time = constant(10.0, 0, Some(SECOND_NS / 2), Some(1_000));
    assert_eq!(claim_all(&by_time).len(), 5);
}

/// Goal: arrivals that were due but never taken are known with their intended starts.
#[test]
fn unclaimed_arrivals_are_the_rest_of_the_grid() {
    let schedule = constant(10.0, SECOND_NS, Some(SECOND_NS), None);
    let rate = Rate::from_per_s(10.0).unwrap();
    let arrivals = Arrivals::constant(rate);
    let mut cursor = arrivals.cursor();
    for _ in 0..14 {
        schedule.claim(0, Some(&mut cursor)).unwrap();
    }
    let mut rest = Vec::new();
    schedule.visit_unclaimed_of(10, |place, intended_ns| rest.push((place, intended_ns)));
    assert_eq!(rest.len() as u64, schedule.unclaimed_of(10));
    assert_eq!(rest.len(), 6);
    let first_ns = schedule.window_start_ns() + 4 * SECOND_NS / 10;
    assert_eq!(rest[0], (0, first_ns));
    let soon = schedule.window_start_ns() + SECOND_NS / 2;
    assert_eq!(
        schedule.unclaimed_of(schedule.offered_until(soon).unwrap()),
        1
    );
}

/// Goal: a process whose end only walking finds ends for every thread alike, and none of what it
/// offered is lost or sent twice.
#[test]
fn random_arrivals_end_with_the_window() {
    let arrivals = Arrivals {
        profile: Profile::Constant(Rate::from_per_s(10_000.0).unwrap()),
        spacing: Spacing::Poisson,
        seed: 5,
    };
    let schedule = Schedule::new(open(arrivals), 0, SECOND_NS / 10, Some(SECOND_NS), None);
    let mut claimed: Vec<Arrival> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| claim_all(&schedule)))
            .collect();
        let ends = threads.into_iter().map(|thread| thread.join().unwrap());
        ends.flatten().collect()
    });
    let end_ns = schedule.window_end_ns().unwrap();
    assert!(
        !schedule.is_exhausted(end_ns - 1),
        "the run lasts as long as its window"
    );
    assert!(schedule.is_exhausted(end_ns));
    claimed.retain(|arrival| arrival.counted);
    claimed.sort_by_key(|arrival| arrival.number);
    let numbers = claimed.iter().map(|arrival| arrival.number);
    assert!(numbers.eq(0..claimed.len() as u64));
    assert!(claimed.is_sorted_by_key(|arrival| arrival.intended_ns));
    assert_eq!(schedule.offered_until(u64::MAX), Some(claimed.len() as u64));
    assert_eq!(schedule.unclaimed_of(claimed.len() as u64), 0);
    // Six standard deviations around the mean.
    assert!(
        (9_400..10_600).contains(&claimed.len()),
        "{}",
        claimed.len()
    );
}

/// Goal: schedules one behind the other give every arrival of the process once, at its moment, whether time or
/// a count ends each.
#[test]
fn schedules_behind_one_another_are_one_process() {
    let rate = Rate::from_per_s(1_000.0).unwrap();
    for spacing in [Spacing::Even, Spacing::Poisson] {
        let arrivals = Arrivals {
            profile: Profile::Constant(rate),
            spacing,
            seed: 3,
        };
        let whole = Schedule::new(open(arrivals.clone()), 0, 0, Some(SECOND_NS), None);
        let expected = claim_all(&whole);
        for limits in [(Some(SECOND_NS / 4), None), (Some(SECOND_NS), Some(70))] {
            let mut origin = Origin::default();
            let mut found = Vec::new();
            while origin.time_ns < SECOND_NS {
                let left_ns = SECOND_NS - origin.time_ns;
                let duration_ns = limits.0.map(|ns| ns.min(left_ns));
                let set = Schedule::new(open(arrivals.clone()), 0, 0, duration_ns, limits.1);
                let set = set.behind(origin);
                let claimed = claim_all(&set);
                assert_eq!(set.offered_until(u64::MAX), Some(claimed.len() as u64));
                found.extend(claimed.into_iter().map(|arrival| Arrival {
                    intended_ns: arrival.intended_ns + origin.time_ns,
                    ..arrival
                }));
                origin.requests = found.len() as u64;
                origin.time_ns += set.process_time_ns().unwrap();
            }
            assert_eq!(found, expected, "{spacing:?} {limits:?}");
        }
    }
}

/// Goal: the rate's window ends when a connection finds nothing to send, at the time of the first that did; in an
/// open loop when the first arrival behind the last would be due; and with time alone never.
#[test]
fn the_rate_ends_when_nothing_is_left() {
    let closed = Schedule::new(Pace::Closed, 0, 0, None, Some(2));
    closed.found_none(|| 5);
    assert_eq!(closed.rate_end_ns(), u64::MAX, "two are left");
    assert!(closed.claim(1, None).is_some() && closed.claim(2, None).is_some());
    closed.found_none(|| 70);
    closed.found_none(|| 60);
    assert_eq!(closed.rate_end_ns(), 70);
    assert!(closed.is_before_rate_end(69) && !closed.is_before_rate_end(70));
    let by_time = Schedule::new(Pace::Closed, 0, 0, Some(10), None);
    by_time.found_none(|| 11);
    assert_eq!(by_time.rate_end_ns(), u64::MAX);
    let by_rate = constant(10.0, 0, None, Some(3));
    claim_all(&by_rate);
    by_rate.found_none(|| 7);
    assert_eq!(by_rate.rate_end_ns(), 1_000 + 3 * SECOND_NS / 10);
    let cut = constant(10.0, 0, Some(SECOND_NS / 5), Some(3));
    claim_all(&cut);
    assert_eq!(cut.rate_end_ns(), u64::MAX, "time ends it before");
}

/// Goal: a closed loop counts warm-up and window apart and stops by time or by exact count.
#[test]
fn closed_loop_counts_exactly() {
    let schedule = Schedule::new(Pace::Closed, 100, 50, Some(1_000), Some(5));
    assert!(!schedule.claim(100, None).unwrap().counted);
    assert!(!schedule.claim(149, None).unwrap().counted);
    let numbers: Vec<u64> = std::iter::from_fn(|| schedule.claim(150, None))
        .map(|arrival| arrival.number)
        .collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4]);
    let by_time = Schedule::new(Pace::Closed, 100, 0, Some(1_000), None);
    assert!(by_time.claim(1_099, None).is_some());
    assert_eq!(by_time.claim(1_100, None), None);
    assert_eq!(by_time.offered_until(2_000), None);
}
