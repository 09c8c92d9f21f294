use super::*;

const MS_NS: u64 = 1_000_000;

/// A thousand requests at 3 ms, sent on time by an idle generator.
fn good() -> LoadRecord {
    let mut record = LoadRecord {
        rate_per_s: Some(1_000.0),
        requests: 1_000,
        answered_in_window: 997,
        offered: Some(1_000),
        requests_per_s: 1_000.0,
        ..LoadRecord::default()
    };
    record.response.record_many(3 * MS_NS, 1_000);
    record.service.record_many(3 * MS_NS, 1_000);
    record.slip.record_many(0, 1_000);
    record.lateness.record_many(1_000, 1_000);
    record
}

fn outcome(slo: &str, change: impl FnOnce(&mut LoadRecord)) -> (StepOutcome, String) {
    let mut record = good();
    change(&mut record);
    let (outcome, reasons) = judge(&record, &slo.parse().unwrap(), 100 * MS_NS);
    (outcome, reasons.join("; "))
}

#[test]
fn objectives_decide_a_step() {
    let nothing = |_: &mut LoadRecord| {};
    assert_eq!(
        outcome("p99<5ms", nothing),
        (StepOutcome::Met, String::new())
    );
    let (missed, reason) = outcome("p99<2ms", nothing);
    assert_eq!(missed, StepOutcome::Missed);
    assert!(reason.starts_with("p99 < 2.00 ms: 3.00 ms"), "{reason}");
}

/// Goal: an objective that says nothing of time does not hold at a rate that leaves a backlog.
#[test]
fn a_backlog_is_a_miss() {
    let (missed, reason) = outcome("errors<1%", |record| record.sent_late = 20);
    assert_eq!(missed, StepOutcome::Missed);
    assert!(reason.contains("2 % of the requests"), "{reason}");
    let (met, _) = outcome("errors<1%", |record| record.sent_late = 10);
    assert_eq!(met, StepOutcome::Met);
}

/// Goal: a rate whose latencies still hold, but not for longer, is a miss; what is on its way
/// because responses take longer than the warm-up, or at one moment by chance, is none.
#[test]
fn a_growing_backlog_is_a_miss() {
    let left =
        |count: u64| move |record: &mut LoadRecord| record.answered_in_window = 1_000 - count;
    let (missed, reason) = outcome("p99<5ms", left(6));
    assert_eq!(missed, StepOutcome::Missed);
    assert!(
        reason.contains("6 more requests were on their way"),
        "{reason}"
    );
    assert_eq!(outcome("p99<5ms", left(5)).0, StepOutcome::Met);
    // 200 on their way at a usual moment, 100 of them since the warm-up.
    let slow = |left: u64| {
        move |record: &mut LoadRecord| {
            record.response.clear();
            record.response.record_many(200 * MS_NS, 1_000);
            record.answered_in_window = 1_000 - left;
        }
    };
    assert_eq!(outcome("p99<500ms", slow(138)).0, StepOutcome::Met);
    assert_eq!(outcome("p99<500ms", slow(142)).0, StepOutcome::Missed);
    // Responses that failed are no backlog.
    let failed = |record: &mut LoadRecord| {
        record.answered_in_window = 900;
        record.errors.status = 97;
    };
    assert_eq!(outcome("p90<5ms,errors<10%", failed).0, StepOutcome::Met);
}

/// Goal: a rate at which a target refuses a tenth at once does not hold, unless the user permits so
/// many failures.
#[test]
fn refusals_are_a_miss() {
    let refused = |count: u64| {
        move |record: &mut LoadRecord| {
            record.requests = 1_000 - count;
            record.answered_in_window = 1_000 - count;
            record.errors.status = count;
        }
    };
    let (missed, reason) = outcome("p90<5ms", refused(100));
    assert_eq!(missed, StepOutcome::Missed);
    assert!(reason.contains("10 % of the requests failed"), "{reason}");
    assert_eq!(outcome("p90<5ms", refused(50)).0, StepOutcome::Met);
    assert_eq!(
        outcome("p90<5ms,errors<20%", refused(100)).0,
        StepOutcome::Met
    );
    // A refusal is slower than any objective.
    let (missed, reason) = outcome("p99<5ms,errors<20%", refused(100));
    assert_eq!(missed, StepOutcome::Missed);
    assert!(reason.contains("a failed request"), "{reason}");
    assert_eq!(
        outcome("p90<5ms,errors<9%", refused(100)).0,
        StepOutcome::Missed
    );
}

/// Goal: delays that the generator or the machine may have caused are not counted against the
/// target, and objectives met in spite of them stand.
#[test]
fn a_miss_at_the_generators_limit_is_rejected() {
    let late = |record: &mut LoadRecord| record.lateness.record_many(2 * MS_NS, 100);
    assert_eq!(outcome("p99<2ms", late).0, StepOutcome::Rejected);
    let stolen = |record: &mut LoadRecord| record.steal_share = Some(0.2);
    assert_eq!(outcome("p99<2ms", stolen).0, StepOutcome::Rejected);
}

/// A thread that spins until the next request is due uses all of its CPU: every miss of a target was rejected then.
///
/// Goal: a busy thread that sends on time is a note beside the miss; one that sends late still decides.
#[test]
fn a_busy_thread_is_a_note() {
    let busy = |record: &mut LoadRecord| record.generator_cpu_share = 0.97;
    let (missed, reason) = outcome("p99<2ms", busy);
    assert_eq!(missed, StepOutcome::Missed);
    assert!(reason.contains("used 97 % of its CPU"), "{reason}");
    assert_eq!(outcome("p99<5ms", busy), (StepOutcome::Met, String::new()));
    let late = |record: &mut LoadRecord| {
        busy(record);
        record.lateness.record_many(2 * MS_NS, 100);
    };
    assert_eq!(outcome("p99<2ms", late).0, StepOutcome::Rejected);
}
