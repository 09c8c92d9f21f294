use super::*;
use millpond_measure::record::LoadRateWindow;
use proptest::prelude::*;
use std::cell::RefCell;

fn config(stop: Stop, reconnect: Option<Reconnect>) -> LoadConfig {
    let mut config = LoadConfig::for_tests();
    config.stop = stop;
    config.warm_up = WarmUp::Lasting { duration_ns: 7 };
    config.plan.reconnect = reconnect;
    config
}

/// The result of a set that gets `per_ns` responses in a nanosecond until one of its limits.
fn end_of(config: &LoadConfig, per_ns: u64) -> PartEnd {
    let by_count = config.stop.requests.unwrap_or(u64::MAX);
    let by_time = config.stop.duration_ns.unwrap_or(u64::MAX);
    let time_ns = by_time.min(by_count.div_ceil(per_ns));
    let requests = by_count.min(time_ns.saturating_mul(per_ns));
    PartEnd {
        record: LoadRecord {
            requests,
            sent: requests,
            started_unix_ns: 1,
            rate_window: LoadRateWindow {
                duration_ns: time_ns,
                answers: requests,
                ..LoadRateWindow::default()
            },
            ..LoadRecord::default()
        },
        took: Origin { requests, time_ns },
    }
}

proptest! {
    /// Goal: whatever replaces the connections and however fast the target is, the sets together do exactly what
    /// was asked, each no more than one set may, with one warm-up before all.
    #[test]
    fn sets_add_up_to_the_run(
        requests in prop::option::of(1_u64..3_000),
        duration_ns in 1_u64..3_000,
        every in 1_u64..500,
        by_time in any::<bool>(),
        per_ns in 1_u64..20,
    ) {
        let stop = Stop { duration_ns: Some(duration_ns), requests };
        let reconnect = match by_time {
            true => Reconnect::EveryNs(every),
            false => Reconnect::EveryRequests(every),
        };
        let config = config(stop, Some(reconnect));
        let mut course = Course::new(&config);
        let mut sets = Sets::default();
        let mut wholes = 0;
        while let Some(part) = course.next(0) {
            let is_first = sets.opened == 0;
            prop_assert_eq!(part.warm_up.known_ns() == 7, is_first);
            let end = end_of(&part, per_ns);
            match by_time {
                true => prop_assert!(end.took.time_ns <= every),
                false => prop_assert!(end.took.requests <= every),
            }
            let is_whole = course.takes(&end);
            wholes += usize::from(is_whole);
            sets.take(end.record, 0, is_whole);
        }
        let all = end_of(&config, per_ns);
        let record = sets.judged(&config).unwrap();
        let sum = record.connection_sets.unwrap();
        prop_assert_eq!(sum.sets.len(), wholes);
        prop_assert!(sum.opened as usize - wholes <= 1, "the rest is one set");
        prop_assert_eq!(record.requests, record.sent);
        if by_time {
            prop_assert_eq!(record.requests, all.took.requests);
        }
        let is_out_of_time = course.done.time_ns >= duration_ns;
        prop_assert!(is_out_of_time || Some(record.requests) == requests);
    }
}

/// The last call of an observer.
#[derive(Default)]
struct Told(RefCell<Progress>);

impl Observer for Told {
    fn progress(&self, now: &Progress) {
        *self.0.borrow_mut() = *now;
    }
}

/// Goal: progress is that of the whole run: what earlier sets did is in it, and all that is left in its rest.
#[test]
fn progress_is_of_all_sets() {
    let config = config(
        Stop::after_requests(100),
        Some(Reconnect::EveryRequests(40)),
    );
    let mut course = Course::new(&config);
    let mut sets = Sets::default();
    let first = course.next(0).unwrap();
    let end = end_of(&first, 1);
    let is_whole = course.takes(&end);
    sets.take(end.record, 0, is_whole);
    let told = Told::default();
    let observer = SetObserver::new(&told, &sets, course.left(1));
    observer.progress(&Progress {
        completed: 10,
        rate_per_s: 1e9,
        ..Progress::default()
    });
    let now = *told.0.borrow();
    assert_eq!(now.completed, 50);
    // Fifty of this repetition, and a hundred of the next.
    assert_eq!(now.remaining_ns, Some(150));
}
