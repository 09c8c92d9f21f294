//! Slices: short stretches of load on fresh connections, and the combined results of one generation.
//!
//! Which connections a run happens to get moves its throughput by 3 to 5 % for as long as it keeps them, and
//! the machine drifts over seconds. So no slice is long, each has connections of its own, and those of one
//! cycle, one slice of every candidate, follow each other at once. What is counted of a slice begins when
//! its connections have settled.
//!
//! Throughput, CPU time and percentiles are worked out from the slices of all candidates together
//! (`millpond_measure::slices`).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use millpond_load::{LoadRecord, Observer, TargetThreads, Undisturbed};
use millpond_measure::histogram::LatencyHistogram;
use millpond_measure::record::{
    LoadStatus, Operation, PacedColumns, Quantity, RoundMeasures, SliceColumns,
};

use crate::drive::{Driver, Pace, SliceLoad, SliceRecord};
use crate::error::RunError;
use crate::isolation::WaitTimes;
use crate::placement::CoreDistance;
use crate::placement::Placement;
use crate::placement::system_call_ns;
use crate::started_candidate::StartedCandidate;
use crate::usage::{Costs, Usage};
use crate::usage::{Edge, MachineUse};

/// A generator that had its CPU sends no request later than this after it was due.
const LATE_NS_MAX: u64 = 2_000_000;
/// The share of its window that a server may wait for a CPU that another program has.
const WAITED_SHARE_MAX: f64 = 0.01;
/// A slice whose latency leaves out more of its responses is repeated.
const LEFT_OUT_SHARE_MAX: f64 = 0.3;
/// The part of its window that the readings of a slice have to cover.
const READ_SHARE_MIN: f64 = 0.5;
/// The state of a CPU has changed between two readings that differ by more than this.
const STATE_CHANGE_MIN: f64 = 0.08;

/// The results of a slice.
#[derive(Debug)]
pub(crate) struct Slice {
    /// Right responses in the window.
    pub(crate) requests: u64,
    /// Requests that failed; they are in no other figure.
    errors: u64,
    pub(crate) requests_per_s: f64,
    /// Of the server, in the window; `None` if it was read too late.
    pub(crate) costs: Option<Costs>,
    pub(crate) response: LatencyHistogram,
    pub(crate) service: LatencyHistogram,
    pub(crate) lateness: LatencyHistogram,
    /// The part of the responses that latency leaves out, because they met a stall of the generator.
    pub(crate) left_out_share: f64,
    pub(crate) generator_cpu_share: f64,
    pub(crate) status: LoadStatus,
    /// The part of its CPUs' time in which the target was ready and others ran.
    waited_share: f64,
    /// By something outside of the candidates.
    pub(crate) is_disturbed: bool,
    /// Around it.
    pub(crate) state: CpuState,
}

/// The time of a system call on the CPUs of server and generator, 0 where that cannot be measured, and of a cache line
/// between them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CpuState {
    server_ns: f64,
    generator_ns: f64,
    pub(crate) distance: CoreDistance,
}

impl CpuState {
    fn now(placement: &Placement) -> Self {
        let of = |cpus| system_call_ns(cpus).unwrap_or(0.0);
        Self {
            server_ns: of(&placement.server),
            generator_ns: of(&placement.generator),
            distance: CoreDistance::now(placement),
        }
    }

    fn mean(self, other: Self) -> Self {
        Self {
            server_ns: (self.server_ns * other.server_ns).sqrt(),
            generator_ns: (self.generator_ns * other.generator_ns).sqrt(),
            distance: self.distance.mean(other.distance),
        }
    }

    /// Whether a CPU was in another state at the other time.
    fn differs(self, other: Self) -> bool {
        let pairs = [
            (self.server_ns, other.server_ns),
            (self.generator_ns, other.generator_ns),
        ];
        let has_changed = |(one, two): &(f64, f64)| {
            *one > 0.0 && *two > 0.0 && (two / one).ln().abs() > STATE_CHANGE_MIN
        };
        pairs.iter().any(has_changed) || self.distance.differs(other.distance)
    }
}

/// Loads the running target of `started_candidate`. `machine_use` gets what all programs used of the machine.
pub(crate) fn run(
    driver: &Driver,
    session: &mut StartedCandidate,
    load: SliceLoad,
    machine_use: &mut MachineUse,
    stop: &AtomicBool,
) -> Result<Slice, RunError> {
    let pids = session.members();
    let state_before = CpuState::now(&driver.placement);
    let before = Edge::read_quickly(session, &pids);
    let endpoint = session.endpoint.clone();
    let is_paced = matches!(load.kind.pace, Pace::Rate { .. });
    let target_threads = (is_paced && driver.placement.is_apart())
        .then(|| TargetThreads::open(&pids))
        .flatten();
    let is_target_watched = target_threads.is_some();
    let reader = EdgeReader {
        pids: &pids,
        // Continuously watched values need no reading at the edges.
        reads_waits: !is_target_watched,
        session: RefCell::new(session),
        began: Cell::new(None),
        ended: Cell::new(None),
        threads_at_start: Cell::new(None),
        threads_at_end: Cell::new(None),
    };
    let phase = driver.slice(&endpoint, load, target_threads, &reader, stop);
    let edges = (reader.began.get(), reader.ended.get());
    let threads = (reader.threads_at_start.take(), reader.threads_at_end.take());
    let session = reader.session.into_inner();
    let SliceRecord { record, answers } = session.account(phase)?;
    let state_after = CpuState::now(&driver.placement);
    machine_use.add(&before, &Edge::read_quickly(session, &pids), 0);
    let (Some(began), Some(ended)) = edges else {
        return Err(RunError::Load("a slice had no end".to_owned()));
    };
    // A generator that cannot keep its own clock says nothing of the server. Requests that met a stall are left out
    // where stalls are watched for.
    let is_late = is_paced
        && (record.verdict.status == LoadStatus::Invalid
            || (record.undisturbed.is_none() && record.lateness.max() > LATE_NS_MAX));
    let cpus = driver.placement.server_threads();
    let waited = match threads {
        (Some(before), Some(after)) => after.waited_since(&before, cpus),
        _ => None,
    };
    let waited = waited.unwrap_or_default();
    let has_waited = waited > load.window.mul_f64(WAITED_SHARE_MAX);
    let has_met_others = has_waited || machine_use.is_disturbed();
    let Some(mut slice) = Slice::of(record, ended.costs_since(&began)) else {
        return Err(RunError::NoResponse {
            window: load.window,
            is_disturbed: has_met_others,
        });
    };
    slice.errors = answers.failed.total();
    slice.waited_share = waited.div_duration_f64(load.window) / cpus as f64;
    slice.is_disturbed = is_late
        || slice.left_out_share > LEFT_OUT_SHARE_MAX
        || slice.costs.is_none()
        || (has_met_others && !is_target_watched)
        || state_before.differs(state_after);
    slice.state = state_before.mean(state_after);
    Ok(slice)
}

#[cfg(test)]
impl Slice {
    /// One request.
    pub(crate) fn example() -> Self {
        Self {
            requests: 1,
            errors: 0,
            requests_per_s: 1.0,
            costs: None,
            response: LatencyHistogram::new(),
            service: LatencyHistogram::new(),
            lateness: LatencyHistogram::new(),
            left_out_share: 0.0,
            generator_cpu_share: 0.0,
            status: LoadStatus::Ok,
            waited_share: 0.0,
            is_disturbed: false,
            state: CpuState::default(),
        }
    }
}

impl Slice {
    /// `None` if there was no response.
    fn of(record: LoadRecord, costs: Costs) -> Option<Self> {
        let requests = record.answered_in_window;
        let window = Duration::from_nanos(record.duration_ns);
        if requests == 0 || window.is_zero() {
            return None;
        }
        let clocks = record.undisturbed.unwrap_or(Undisturbed {
            response: record.response,
            service: record.service,
            lateness: record.lateness,
            ..Undisturbed::default()
        });
        let answers = clocks.response.count() + clocks.left_out;
        Some(Self {
            requests,
            errors: 0,
            left_out_share: clocks.left_out as f64 / answers.max(1) as f64,
            requests_per_s: requests as f64 / window.as_secs_f64(),
            costs: (costs.over >= window.mul_f64(READ_SHARE_MIN))
                .then(|| costs.stretched_to(window)),
            response: clocks.response,
            service: clocks.service,
            lateness: clocks.lateness,
            generator_cpu_share: record.generator_cpu_share,
            status: record.verdict.status,
            waited_share: 0.0,
            is_disturbed: false,
            state: CpuState::default(),
        })
    }
}

/// Reads what the target has used at both ends of the window.
struct EdgeReader<'a> {
    session: RefCell<&'a mut StartedCandidate>,
    pids: &'a [u32],
    reads_waits: bool,
    began: Cell<Option<Usage>>,
    ended: Cell<Option<Usage>>,
    threads_at_start: Cell<Option<WaitTimes>>,
    threads_at_end: Cell<Option<WaitTimes>>,
}

impl EdgeReader<'_> {
    fn waits(&self) -> Option<WaitTimes> {
        self.reads_waits
            .then(|| WaitTimes::read(self.pids))
            .flatten()
    }

    fn read(&self) -> Usage {
        Usage::read(&mut self.session.borrow_mut(), self.pids)
    }
}

impl Observer for EdgeReader<'_> {
    fn window_began(&self) {
        self.threads_at_start.set(self.waits());
        self.began.set(Some(self.read()));
    }

    fn window_ended(&self) {
        self.ended.set(Some(self.read()));
        self.threads_at_end.set(self.waits());
    }
}

/// The slices of one kind of one candidate, by cycle. One that failed is missing.
#[derive(Debug, Default)]
pub(crate) struct Slices {
    by_cycle: BTreeMap<u32, Slice>,
}

impl Slices {
    pub(crate) fn add(&mut self, cycle: u32, slice: Slice) {
        self.by_cycle.insert(cycle, slice);
    }

    /// True if there was one.
    pub(crate) fn remove(&mut self, cycle: u32) -> bool {
        self.by_cycle.remove(&cycle).is_some()
    }

    /// How far apart the CPUs were; `None` if the cycle has no slice.
    pub(crate) fn distance(&self, cycle: u32) -> Option<CoreDistance> {
        Some(self.by_cycle.get(&cycle)?.state.distance)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_cycle.is_empty()
    }

    fn requests(&self) -> u64 {
        self.by_cycle.values().map(|slice| slice.requests).sum()
    }

    /// With the requests that they are of.
    pub(crate) fn costs(&self) -> Option<(Costs, u64)> {
        self.costs_of(|_| true)
    }

    /// The same of some cycles.
    pub(crate) fn costs_of(&self, is_meant: impl Fn(u32) -> bool) -> Option<(Costs, u64)> {
        let slices = self.by_cycle.iter();
        let slices = slices.filter(|(cycle, _)| is_meant(**cycle));
        let costs = slices.filter_map(|(_, slice)| Some((slice.costs.clone()?, slice.requests)));
        costs.reduce(|sum, one| (sum.0.plus(&one.0), sum.1 + one.1))
    }

    /// Requests per second, on the average.
    pub(crate) fn mean_per_s(&self) -> f64 {
        self.mean(|slice| slice.requests_per_s)
    }

    /// The generator's busiest thread, on the average.
    pub(crate) fn generator_cpu_share(&self) -> f64 {
        self.mean(|slice| slice.generator_cpu_share)
    }

    /// The part of its CPUs' time in which the target was ready and others ran, on the average.
    pub(crate) fn waited_share(&self) -> f64 {
        self.mean(|slice| slice.waited_share)
    }

    fn mean(&self, pick: impl Fn(&Slice) -> f64) -> f64 {
        self.by_cycle.values().map(pick).sum::<f64>() / self.by_cycle.len().max(1) as f64
    }

    pub(crate) fn is_invalid(&self) -> bool {
        let mut all = self.by_cycle.values();
        all.any(|slice| slice.status == LoadStatus::Invalid)
    }

    pub(crate) fn cycles(&self) -> impl Iterator<Item = u32> {
        self.by_cycle.keys().copied()
    }

    /// Requests of one clock, the slices of these cycles together.
    pub(crate) fn merged(
        &self,
        cycles: &BTreeSet<u32>,
        clock: impl Fn(&Slice) -> &LatencyHistogram,
    ) -> LatencyHistogram {
        let mut sum = LatencyHistogram::new();
        let counted = self
            .by_cycle
            .iter()
            .filter(|(cycle, _)| cycles.contains(cycle));
        counted.for_each(|(_, slice)| sum.merge(clock(slice)));
        sum
    }

    /// Notes the slices, and what they cost per request. Throughput and CPU time are worked out from the slices of
    /// all candidates together (`millpond_measure::slices`).
    pub(crate) fn note_closed_loop(&self, operation: Operation, measures: &mut RoundMeasures) {
        self.count_requests(measures);
        if let Some((costs, requests)) = self.costs() {
            costs.note(operation, requests, measures);
        }
        measures
            .slices
            .insert(operation.key().to_owned(), self.columns());
    }

    /// For the record.
    pub(crate) fn columns(&self) -> SliceColumns {
        let mut columns = SliceColumns::default();
        for (cycle, slice) in &self.by_cycle {
            let requests = slice.requests as f64;
            let per_request = |quantity| {
                let costs = slice.costs.as_ref();
                Some(costs?.sum(quantity)? / requests)
            };
            columns.cycle.push(*cycle);
            columns.requests.push(slice.requests);
            columns.per_s.push(slice.requests_per_s);
            columns
                .cpu_ns
                .push(per_request(Quantity::CpuTime).unwrap_or(0.0));
            columns.server_call_ns.push(slice.state.server_ns);
            columns.generator_call_ns.push(slice.state.generator_ns);
            let faults = per_request(Quantity::MinorFaults);
            columns.minor_faults.push(faults.unwrap_or(0.0));
            columns
                .madvise_calls
                .extend(per_request(Quantity::MadviseCalls));
            columns.core_distance_ns.push(slice.state.distance.ns());
        }
        // Counted in all slices or in none.
        if columns.madvise_calls.len() < columns.len() {
            columns.madvise_calls.clear();
        }
        columns
    }

    /// The same of slices at the constant rate.
    pub(crate) fn paced_columns(&self) -> PacedColumns {
        let mut columns = PacedColumns::default();
        for (cycle, slice) in &self.by_cycle {
            let cpu_ns = slice.costs.as_ref().map_or(0.0, Costs::cpu_ns);
            columns.cycle.push(*cycle);
            columns.requests.push(slice.requests);
            columns.p50_ns.push(slice.response.percentile(50.0));
            columns.p99_ns.push(slice.response.percentile(99.0));
            columns.service_p50_ns.push(slice.service.percentile(50.0));
            columns.service_p99_ns.push(slice.service.percentile(99.0));
            columns.cpu_ns.push(cpu_ns / slice.requests as f64);
            columns.left_out_share.push(slice.left_out_share);
            columns.core_distance_ns.push(slice.state.distance.ns());
        }
        columns
    }

    /// Counts the responses of the slices, and what failed beside them.
    pub(crate) fn count_requests(&self, measures: &mut RoundMeasures) {
        measures.requests += self.requests();
        measures.errors += self
            .by_cycle
            .values()
            .map(|slice| slice.errors)
            .sum::<u64>();
    }
}
