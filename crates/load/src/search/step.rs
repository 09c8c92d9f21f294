//! What one step says about the target: that the rate holds, that it does not, or nothing.
//!
//! `search` asks after each run. A step that keeps its objectives counts even if the generator sent late, since that is
//! inside the response time. One that misses them counts against the target only if the generator sent on time. How
//! busy its threads were decides nothing: one that spins for its schedule is busy at any rate.
use crate::record::LoadRecord;
use crate::verdict::{CPU_SHARE_MAX, ERROR_SHARE_INVALID, STEAL_SHARE_INVALID, facts_of};
use millpond_measure::record::StepOutcome;
use millpond_measure::slo::Slo;
use millpond_measure::units::{format_duration_ns, format_percent};

/// Share of the offered requests that may leave after the window before the rate counts as missed:
/// a target that keeps up leaves none behind, save for a stall at the very end.
const LATE_SHARE_MAX: f64 = 0.01;
/// Share of the offered requests by which those on their way may have become more in the window.
const GROWTH_SHARE_MAX: f64 = 0.005;
/// What is on its way at one moment varies by its root; by so many times that, it does by chance.
const GROWTH_ROOTS: f64 = 2.0;

/// Judges a finished step, before whose window the rate was offered for `warm_up_ns`.
pub(super) fn judge(record: &LoadRecord, slo: &Slo, warm_up_ns: u64) -> (StepOutcome, Vec<String>) {
    let mut reasons: Vec<String> = slo
        .judge(&facts_of(record))
        .into_iter()
        .filter(|outcome| !outcome.is_met)
        .map(|outcome| format!("{}: {}", outcome.objective, outcome.measured))
        .collect();
    reasons.extend(failures(record, slo));
    reasons.extend(missed_rate(record).or_else(|| growing_backlog(record, warm_up_ns)));
    if reasons.is_empty() {
        return (StepOutcome::Met, reasons);
    }
    match own_limit(record) {
        Some(reason) => (StepOutcome::Rejected, vec![reason]),
        None => {
            reasons.extend(busy_thread(record));
            (StepOutcome::Missed, reasons)
        }
    }
}

/// Without this, objectives about time alone would hold at any rate at which a target refuses what it
/// has no time for: a refusal is no answer, and has no latency.
fn failures(record: &LoadRecord, slo: &Slo) -> Option<String> {
    let failed = record.errors.total();
    let share = failed as f64 / (record.requests + failed).max(1) as f64;
    (share > ERROR_SHARE_INVALID && !slo.limits_errors()).then(|| {
        format!(
            "{} of the requests failed; how many may is said with errors<SHARE",
            format_percent(share)
        )
    })
}

/// Without this, objectives about errors alone would hold at any rate: a backlog is no error.
fn missed_rate(record: &LoadRecord) -> Option<String> {
    let offered = record.offered.filter(|&offered| offered > 0)?;
    let late = record.sent_late + record.unsent;
    let share = late as f64 / offered as f64;
    (share > LATE_SHARE_MAX).then(|| {
        format!(
            "the rate was not kept: {} of the requests found no connection in time",
            format_percent(share)
        )
    })
}

/// A target that cannot keep up falls behind a little more every moment, and it takes until the end of
/// a long step for that to show in the latencies: the looser the objective and the shorter the step,
/// the further above the limit a rate would hold.
///
/// What came in and did not go out is the growth. By Little's law, rate times mean response time is
/// what is on its way at a usual moment; as far as the warm-up was too short for that to build up, the
/// window has to.
fn growing_backlog(record: &LoadRecord, warm_up_ns: u64) -> Option<String> {
    let offered = record.offered.filter(|&offered| offered > 0)? as f64;
    let errors = &record.errors;
    let failed = errors.read + errors.write + errors.status + errors.validation;
    let gone = record.answered_in_window + failed + record.shed;
    let (per_ns, mean_ns) = (record.rate_per_s? / 1e9, record.response.mean());
    let (usual, built_up) = (per_ns * mean_ns, per_ns * warm_up_ns as f64);
    let growth = offered - gone as f64 - (usual - built_up).max(0.0);
    // At both ends of the window.
    let by_chance = GROWTH_ROOTS * (2.0 * usual + 1.0).sqrt();
    (growth > by_chance.max(GROWTH_SHARE_MAX * offered)).then(|| {
        format!(
            "the rate was not kept: {growth:.0} more requests were on their way at the end than at \
             the beginning"
        )
    })
}

/// Why a miss may not be the target's.
fn own_limit(record: &LoadRecord) -> Option<String> {
    let lateness = record.lateness.percentile(99.0);
    let response = record.response.percentile(99.0);
    if lateness > response / 2 && lateness > 0 {
        return Some(format!(
            "the generator sent late: p99 of its lateness is {}",
            format_duration_ns(lateness as f64)
        ));
    }
    let steal = record.steal_share?;
    (steal > STEAL_SHARE_INVALID).then(|| {
        format!(
            "the hypervisor withheld {} of the CPU time",
            format_percent(steal)
        )
    })
}

/// A note beside a miss.
fn busy_thread(record: &LoadRecord) -> Option<String> {
    (record.generator_cpu_share > CPU_SHARE_MAX).then(|| {
        format!(
            "a generator thread used {} of its CPU and sent on time all the same",
            format_percent(record.generator_cpu_share)
        )
    })
}

#[cfg(test)]
mod tests {
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
    /// because answers take longer than the warm-up, or at one moment by chance, is none.
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
        // Answers that failed are no backlog.
        let failed = |record: &mut LoadRecord| {
            record.answered_in_window = 900;
            record.errors.status = 97;
        };
        assert_eq!(outcome("p90<5ms,errors<10%", failed).0, StepOutcome::Met);
    }

    /// Goal: a rate at which a target answers a tenth with a refusal, at once, does not hold, unless
    /// the user has said how many may fail.
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

    /// Goal: what the generator or the machine may have caused is not held against the target, and
    /// what was kept in spite of it stands.
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
}
