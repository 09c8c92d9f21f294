use super::*;
use crate::plan::Known;

fn plan(operations: usize) -> Plan {
    Plan::make(&Known {
        candidates: 3,
        left: Duration::from_secs(100),
        overhead: Duration::from_millis(100),
        tail: Duration::ZERO,
        slowest_per_s: vec![1_000.0; operations],
        rounds: Some(6),
        warm_up_requests: vec![0; operations],
        ..Known::example()
    })
}

/// Goal: rates, requests and lengths are those of then, and the estimate of a run follows them.
#[test]
fn the_work_is_that_of_then() {
    let then = Settings {
        rate_per_s: [("put".to_owned(), 70.0), ("get".to_owned(), 90.0)].into(),
        memory_requests: 500,
        keys: Some(200),
        throughput_phase_ns: 2_000_000_000,
        idle_ns: 3_000_000_000,
        warm_up_requests: [("get".to_owned(), 77)].into(),
        latency_phase_ns: 300_000_000,
        cycles: 4,
        slice_ns: 200_000_000,
        paced: 2,
        block_ns: 900_000_000,
        settle_ns: 75_000_000,
        ..Settings::default()
    };
    let mut repeated = plan(2);
    let fixed = repeated.run - repeated.phases() - repeated.idle;
    take_over(&mut repeated, &[Operation::Put, Operation::Get], &then);
    assert_eq!(repeated.rate_per_s, [70.0, 90.0]);
    assert_eq!(repeated.requests, [200, 300]);
    // 2 s of memory phase, four slices of 200 ms, two of 300, one block of 900, 100 ms more for each and a
    // fifth more of all for those that are repeated, for each operation; 3 s idle.
    let slices = 4 * (200 + 100) + 2 * (300 + 100) + 900 + 100;
    let phases = Duration::from_millis(2 * (2_000 + slices + slices / 5));
    assert_eq!(repeated.run, fixed + phases + Duration::from_secs(3));
    assert_eq!(repeated.warm_up_requests, [0, 77]);
    assert_eq!(repeated.looks, [repeated.rounds]);
}

/// Goal: a record without them leaves the plan alone.
#[test]
fn nothing_is_made_up() {
    let mut repeated = plan(1);
    take_over(&mut repeated, &[Operation::Request], &Settings::default());
    assert_eq!(repeated, plan(1));
}
