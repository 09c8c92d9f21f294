//! What one step says about the target: that the rate holds, that it does not, or nothing.
//!
//! On the path: `search` asks after each run. A step that keeps its objectives counts even if the
//! generator was busy, since lateness of its own is inside the response time. One that misses them
//! counts against the target only if the generator had room to spare.
use crate::record::LoadRecord;
use crate::verdict::{CPU_SHARE_MAX, STEAL_SHARE_INVALID, facts_of};
use millpond_measure::record::StepOutcome;
use millpond_measure::slo::Slo;
use millpond_measure::units::{format_duration_ns, format_percent};

/// Share of the offered requests that may leave after the window before the rate counts as missed:
/// a target that keeps up leaves none behind, save for a stall at the very end.
const LATE_SHARE_MAX: f64 = 0.01;

/// Judges a finished step.
pub(super) fn judge(record: &LoadRecord, slo: &Slo) -> (StepOutcome, Vec<String>) {
    let mut reasons: Vec<String> = slo
        .judge(&facts_of(record))
        .into_iter()
        .filter(|outcome| !outcome.is_met)
        .map(|outcome| format!("{}: {}", outcome.objective, outcome.measured))
        .collect();
    reasons.extend(missed_rate(record));
    if reasons.is_empty() {
        return (StepOutcome::Met, reasons);
    }
    match own_limit(record) {
        Some(reason) => (StepOutcome::Rejected, vec![reason]),
        None => (StepOutcome::Missed, reasons),
    }
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

/// Why a miss may not be the target's.
fn own_limit(record: &LoadRecord) -> Option<String> {
    if record.generator_cpu_share > CPU_SHARE_MAX {
        let share = format_percent(record.generator_cpu_share);
        return Some(format!("a generator thread used {share} of its CPU"));
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    const MS_NS: u64 = 1_000_000;

    /// A thousand requests at 3 ms, sent on time by an idle generator.
    fn good() -> LoadRecord {
        let mut record = LoadRecord {
            rate_per_s: Some(1_000.0),
            requests: 1_000,
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
        let (outcome, reasons) = judge(&record, &slo.parse().unwrap());
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

    /// Goal: what the generator or the machine may have caused is not held against the target, and
    /// what was kept in spite of it stands.
    #[test]
    fn a_miss_at_the_generators_limit_is_rejected() {
        let busy = |record: &mut LoadRecord| record.generator_cpu_share = 0.97;
        let (rejected, reason) = outcome("p99<2ms", busy);
        assert_eq!(rejected, StepOutcome::Rejected);
        assert!(reason.contains("97 %"), "{reason}");
        assert_eq!(outcome("p99<5ms", busy).0, StepOutcome::Met);
        let late = |record: &mut LoadRecord| record.lateness.record_many(2 * MS_NS, 100);
        assert_eq!(outcome("p99<2ms", late).0, StepOutcome::Rejected);
        let stolen = |record: &mut LoadRecord| record.steal_share = Some(0.2);
        assert_eq!(outcome("p99<2ms", stolen).0, StepOutcome::Rejected);
    }
}
