use super::*;
use crate::matrix;
use millpond_measure::record::{Quantity, RoundMeasures};

fn collection() -> Collection {
    let plain = Allocator::native("glibc");
    let other = Allocator::preloaded("x", "/lib/libx.so.4.5".into());
    Collection::new(&matrix::candidates(&[plain, other], &[]))
}

fn run(round: u32, status: RoundStatus) -> RoundMeasures {
    RoundMeasures {
        round,
        status,
        ..RoundMeasures::default()
    }
}

/// Goal: a round counts only if every candidate ended in it.
#[test]
fn incomplete_rounds_do_not_count() {
    let mut collection = collection();
    let failed = RoundStatus::Failed {
        reason: "it died".to_owned(),
        cause: None,
    };
    for index in 0..3 {
        collection.add(index, run(0, RoundStatus::Done), &[]);
    }
    collection.add(0, run(1, RoundStatus::Done), &[]);
    collection.add(1, run(1, failed), &[]);
    collection.add(2, run(1, RoundStatus::Done), &[]);
    let none = vec![None; collection.candidates.len()];
    assert_eq!(collection.rounds_done(10, &none), 1);
    let candidates = collection.finish();
    assert_eq!(
        candidates[2].library.as_ref().unwrap().version.as_deref(),
        Some("4.5")
    );
}

/// Goal: a candidate that is left out is in no analysis and in no result, and the rounds of the others count without it.
#[test]
fn who_is_left_out_is_in_no_result() {
    let mut collection = collection();
    for index in 0..2 {
        collection.add(index, run(0, RoundStatus::Done), &[]);
    }
    let none = vec![None; collection.candidates.len()];
    assert_eq!(collection.rounds_done(1, &none), 0);
    assert_eq!(collection.leave_out(2), 0);
    assert_eq!(
        (collection.count_done(0), collection.rounds_done(1, &none)),
        (1, 1)
    );
    assert_eq!(collection.so_far().len(), 2);
    let names: Vec<String> = collection
        .finish()
        .into_iter()
        .map(|one| one.name)
        .collect();
    assert_eq!(names, ["glibc", "glibc (again)"]);
}

/// Goal: single findings appear once, and not in a run that failed.
#[test]
fn single_observations_stay_single() {
    let mut collection = collection();
    let failed = RoundStatus::Failed {
        reason: "it died".to_owned(),
        cause: None,
    };
    collection.add(0, run(0, failed), &[]);
    collection.add(0, run(1, RoundStatus::Done), &[]);
    collection.add(0, run(2, RoundStatus::Done), &[]);
    let measure = Measure::of(Operation::Put, Quantity::HeapCalls);
    collection.add_once(0, &[(measure, 7.0)]);
    let candidates = collection.finish();
    assert_eq!(candidates[0].values(measure), [7.0]);
    assert_eq!(candidates[0].value(1, measure), Some(7.0));
}

/// Goal: curves hold the samples of every good run and of no failed one.
#[test]
fn curves_merge_good_runs() {
    let mut collection = collection();
    let mut histogram = LatencyHistogram::new();
    histogram.record_many(1_000, 10);
    let latency = || {
        let (response, service) = (histogram.clone(), histogram.clone());
        [RunLatency {
            operation: Operation::Get,
            response,
            service,
        }]
    };
    let failed = RoundStatus::Failed {
        reason: "it died".to_owned(),
        cause: None,
    };
    collection.add(0, run(0, RoundStatus::Done), &latency());
    collection.add(0, run(1, RoundStatus::Interrupted), &latency());
    collection.add(0, run(2, failed), &latency());
    let candidates = collection.finish();
    let counts: Vec<_> = candidates[0]
        .curves
        .iter()
        .map(|curve| (curve.clock.as_str(), curve.count))
        .collect();
    assert_eq!(counts, [("response", 20), ("service", 20)]);
}
