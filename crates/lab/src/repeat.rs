//! A comparison that is to be checked against an earlier one: the same work and the same rates as then.
//!
//! `compare` refuses another question before anything is started, takes the plan's work from the
//! earlier record, and puts the result into the new one. Newly found rates and request counts would
//! differ each time, and latency and memory with them.

use std::time::Duration;

use millpond_measure::record::{ComparisonRecord, Operation, Settings};
use millpond_measure::regression::RegressionRule;

use crate::plan::Plan;

/// The record to check against, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Earlier {
    /// The record of then.
    pub record: ComparisonRecord,
    /// The compared values.
    pub rule: RegressionRule,
}

/// Takes over what `then` had its generator do; what is not in it stays as planned.
pub(crate) fn take_over(plan: &mut Plan, operations: &[Operation], then: &Settings) {
    let rates: Option<Vec<f64>> = operations
        .iter()
        .map(|operation| then.rate_per_s.get(operation.key()).copied())
        .collect();
    // A load program of the user's brings its own work.
    let (Some(rates), Some(requests)) = (rates, requests_of(operations, then)) else {
        return;
    };
    let count = u32::try_from(operations.len()).unwrap_or(1);
    let fixed = plan.run.saturating_sub(plan.phases() + plan.idle);
    plan.rate_per_s = rates;
    plan.keys = then.keys.or(requests.first().copied()).unwrap_or(1);
    plan.requests = requests;
    plan.missed_floor = None;
    plan.throughput_phase = Duration::from_nanos(then.throughput_phase_ns);
    plan.work = plan.throughput_phase * count;
    plan.latency_phase = Duration::from_nanos(then.latency_phase_ns);
    // Records from before there were slices have none.
    if then.cycles > 0 {
        plan.cycles = then.cycles;
        plan.paced = then.paced;
        plan.settle = Duration::from_nanos(then.settle_ns);
        plan.slice = Duration::from_nanos(then.slice_ns);
        plan.block = Duration::from_nanos(then.block_ns);
        plan.write_slice = Duration::from_nanos(then.write_slice_ns);
        plan.write_latency_phase = Duration::from_nanos(then.write_latency_phase_ns);
    }
    // Records from before there was a warm-up or a choice of idle time have neither.
    if then.idle_ns > 0 {
        plan.idle = Duration::from_nanos(then.idle_ns);
        let warm_up = |operation: &Operation| then.warm_up_requests.get(operation.key());
        plan.warm_up_requests = operations
            .iter()
            .map(|operation| warm_up(operation).copied().unwrap_or(0))
            .collect();
    }
    plan.run = fixed + plan.phases() + plan.idle;
    // The earlier session wants as many rounds as there is time for, whatever this one's verdicts are.
    plan.looks = vec![plan.rounds];
}

/// Per operation. Older records have the sum, and the first operation's part as the number of keys.
fn requests_of(operations: &[Operation], then: &Settings) -> Option<Vec<u64>> {
    let of = |operation: &Operation| then.work_requests.get(operation.key()).copied();
    if let Some(requests) = operations.iter().map(of).collect() {
        return Some(requests);
    }
    let all = then.memory_requests;
    match operations.len() {
        1 if all > 0 => Some(vec![all]),
        2 => {
            let first = then.keys.filter(|&keys| keys > 0 && keys < all)?;
            Some(vec![first, all - first])
        }
        _ => None,
    }
}

#[cfg(test)]
#[path = "tests/repeat.rs"]
mod tests;
