//! One generation: every candidate is started once, and measured while the others stand still.
//!
//! ```text
//! start each, in the round's order
//! memory: each in turn, equal work on one set of connections -> memory; then all idle together -> memory
//! per operation, reads before writes:
//!   cycles: one slice of each in a balanced order, closed loop and constant rate
//!   block: one of each, several times as long as a slice, closed loop
//! stop each
//! ```
//!
//! Memory is read after equal work that nothing interrupted, and before the slices. Where a process's pages
//! lie is decided at its start, so a generation is one observation, however many slices it has.
//!
//! Targets whose copies cannot run at the same time (`lock`) run one after the other: then all of this is done for one
//! candidate, and then for the next.

mod member;
mod phased;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use member::{Member, Part, Parts};
use millpond_load::Observer;
use millpond_measure::growth::bytes_per_request;
use millpond_measure::histogram::LatencyHistogram;
use millpond_measure::record::{
    Coexistence, Measure, NoiseFlag, NoiseKind, Operation, Quantity, RoundMeasures,
};

use crate::drive::{Pace, PhaseLoad, SliceKind, SliceLoad};
use crate::error::RunError;
use crate::isolation::HostNoise;
use crate::matrix::Candidate;
use crate::outcome::{RunLatency, ScoredRun, sleep_unless_stopped};
use crate::placement::CoreDistance;
use crate::plan::Plan;
use crate::sampler::PhaseMarks;
use crate::slice::Slices;
use crate::started_candidate::{RunContext, StartedCandidate};
use crate::usage::{Edge, MachineUse};
use crate::{matrix, slice};

/// Beyond this share of its CPUs the generator may be the limit.
const GENERATOR_CPU_LIMIT: f64 = 0.90;
/// Unless the server's CPUs are this busy: then the server is, whatever the generator does.
const SERVER_BUSY: f64 = 0.95;
/// How often a slice is tried that something outside disturbs.
const TURNS_MAX: u32 = 3;
/// How often the distance of the CPUs is measured while nothing else is left to do.
const NEAR_LOOK: Duration = Duration::from_millis(20);
/// A request is late if it left this long after it was due.
const LATE_NS: u64 = 1_000_000;
/// More late requests than this taint the latency of a run.
const LATE_SENDS_LIMIT: f64 = 0.01;

/// The parts of a generation.
pub(crate) struct Generation<'a> {
    pub(crate) workshop: &'a mut RunContext,
    pub(crate) candidates: &'a [Candidate],
    pub(crate) plan: &'a Plan,
    pub(crate) round: u32,
    pub(crate) stop: &'a AtomicBool,
}

impl Generation<'_> {
    /// Measures candidates, each given as its position in the round and its place in the list, in this order. `begins`
    /// is called with each before it starts.
    pub(crate) fn run(
        &mut self,
        order: &[(u32, usize)],
        begins: &mut dyn FnMut(usize),
    ) -> Vec<(usize, ScoredRun)> {
        let mut all = Vec::new();
        for group in self.groups(order) {
            let mut members = Vec::new();
            for &(position, index) in group {
                if !self.is_stopped() {
                    begins(index);
                    members.push(self.start(index, position, group.len() == 1));
                }
            }
            self.measure(&mut members);
            members.iter_mut().for_each(Member::stop);
            all.extend(members);
        }
        self.note_results(&mut all);
        let scored = all.into_iter().map(|member| (member.index, member.scored));
        scored.collect()
    }

    /// Those that live at the same time.
    fn groups<'b>(&self, order: &'b [(u32, usize)]) -> Vec<&'b [(u32, usize)]> {
        let needs_own_connection = self.workshop.coexistence == Coexistence::OneAtATime
            || self.workshop.load_command.is_some();
        match needs_own_connection {
            true => order.chunks(1).collect(),
            false => vec![order],
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn start(&mut self, index: usize, position: u32, needs_own_connection: bool) -> Member {
        let operations = self.workshop.driver.target.operations().len();
        let place = (self.round, position);
        let mut member = Member::new(index, place, operations, needs_own_connection);
        let Some(candidate) = self.candidates.get(index) else {
            return member;
        };
        let label = format!("round{}", self.round + 1);
        let unpinned = self.unpinned_memory(candidate, &label);
        if let Some(bytes) = unpinned {
            let measure = Measure::whole(Quantity::UnpinnedMemory);
            member.scored.measures.set(measure, bytes);
        }
        match StartedCandidate::start(self.workshop, candidate, &label, None, self.stop) {
            Ok(session) => {
                member.scored.start_duration = session.start_duration;
                member.session = Some(session);
                member.run_frozen();
            }
            Err(error) => member.fail(error),
        }
        member
    }

    /// Memory of a process of its own that does the same work on all CPUs: allocators and runtimes size themselves by the
    /// CPUs that they may use. `None` in a round without, or if it failed: the pinned one says why.
    fn unpinned_memory(&mut self, candidate: &Candidate, label: &str) -> Option<f64> {
        if !self.plan.is_unpinned_round(self.round) || self.is_stopped() {
            return None;
        }
        let label = format!("{label}-unpinned");
        let session = StartedCandidate::start_unpinned(self.workshop, candidate, &label, self.stop);
        let mut session = session.ok()?;
        let mut marks = PhaseMarks::new(Instant::now());
        let mut parts = Parts::default();
        let work = self.equal_work(&mut session, &mut marks, &mut parts);
        let is_stopped = session.stop().is_ok();
        work.ok().filter(|()| is_stopped)?;
        parts.block.get(Measure::whole(Quantity::MemoryAfterWork))
    }

    fn measure(&mut self, members: &mut [Member]) {
        for member in members.iter_mut() {
            member.while_running(|session, parts| self.memory_phase(session, parts));
        }
        self.rest(members);
        let operations = self.workshop.driver.target.operations();
        let by_operation = by_operation(self.plan, operations);
        let parts = u32::try_from(by_operation.len()).unwrap_or(u32::MAX);
        let count = u32::try_from(members.len()).unwrap_or(u32::MAX);
        let kept_back = self.plan.kept_back() * count / parts.max(1);
        for steps in by_operation {
            self.workshop.reserve.add(kept_back);
            self.take_steps(members, steps, kept_back);
        }
    }

    /// All of these, with `kept_back` for what the machine disturbs.
    fn take_steps(&mut self, members: &mut [Member], mut steps: Vec<Step>, kept_back: Duration) {
        let mut doubtful = Vec::new();
        while !steps.is_empty() {
            let mut are_far = are_paced_left(&steps) && self.are_cpus_far();
            if are_far && are_only_paced_left(&steps) {
                are_far = !self.wait_for_near_cpus(kept_back / 2);
            }
            let step = take(&mut steps, are_far);
            match step.kind.pace {
                Pace::Rate { .. } => doubtful.extend(self.paced_cycle(members, step)),
                Pace::Closed | Pace::Block => {
                    self.slice_of_each(members, step);
                }
            }
        }
        drop_doubtful(members, &doubtful);
    }

    /// Whether the CPUs are farther apart now than they have been.
    fn are_cpus_far(&mut self) -> bool {
        let now = CoreDistance::now(&self.workshop.driver.placement);
        now.is_beyond(self.workshop.nearest.lower_to(now))
    }

    /// Waits until the CPUs are as near as they have been, as long as more than `kept` of the reserve is left. True if
    /// they are.
    fn wait_for_near_cpus(&mut self, kept: Duration) -> bool {
        while self.workshop.reserve.exceeds(kept) && !self.is_stopped() {
            let began = Instant::now();
            // Ctrl-C is seen above.
            let _ = sleep_unless_stopped(NEAR_LOOK, self.stop);
            let are_far = self.are_cpus_far();
            self.workshop.reserve.spend_since(began);
            if !are_far {
                return true;
            }
        }
        false
    }

    /// A slice of every member at the constant rate, all of them while the CPUs were equally far apart: a p99 of
    /// 70 us there is one of 1 ms here. Those that were measured elsewhere than the last one are repeated; where
    /// that does not end, the step is returned.
    fn paced_cycle(&mut self, members: &mut [Member], step: Step) -> Option<Step> {
        let mut last = self.slice_of_each(members, step);
        for _ in 1..TURNS_MAX {
            let elsewhere: Vec<usize> = (0..members.len())
                .filter(|&index| members[index].is_far_from(last, step))
                .collect();
            if elsewhere.is_empty() {
                return None;
            }
            for index in elsewhere {
                if self.workshop.reserve.exceeds(Duration::ZERO) {
                    let (began, reserve) = (Instant::now(), self.workshop.reserve);
                    last = self.slice(&mut members[index], step).or(last);
                    // The time of its own turns is a part of this.
                    self.workshop.reserve = reserve;
                    self.workshop.reserve.spend_since(began);
                }
            }
        }
        let mut members = members.iter_mut();
        members
            .any(|member| member.is_far_from(last, step))
            .then_some(step)
    }

    /// One slice of every member, in a balanced order. How far apart the CPUs were in the last one.
    fn slice_of_each(&mut self, members: &mut [Member], step: Step) -> CoreDistance {
        let row = matrix::balanced_order(members.len(), self.workshop.random.usize(..));
        let mut last = CoreDistance::default();
        for index in row {
            if let Some(member) = members.get_mut(index) {
                last = self.slice(member, step).or(last);
            }
        }
        last
    }

    /// A slice of `member`, again if something outside of the candidates disturbed it: at once, so that it stays
    /// beside those of the others. How far apart the CPUs were.
    fn slice(&mut self, member: &mut Member, step: Step) -> CoreDistance {
        let [closed, paced, block] = self.plan.windows(step.place);
        let load = SliceLoad {
            kind: step.kind,
            keys: self.plan.keys,
            settle: self.plan.settle,
            window: match step.kind.pace {
                Pace::Closed => closed,
                Pace::Block => block,
                Pace::Rate { .. } => paced,
            },
        };
        let mut distance = CoreDistance::default();
        let (who, stop) = (member.index, self.stop);
        let workshop = &mut *self.workshop;
        let (driver, disturbances) = (&workshop.driver, &mut workshop.disturbances);
        let reserve = &mut workshop.reserve;
        member.while_running(|session, parts| {
            let Some(part) = parts.slices_of(step) else {
                return Ok(());
            };
            for turn in 0..TURNS_MAX {
                let began = Instant::now();
                let weather = HostNoise::before(false);
                let mut machine_use = MachineUse::default();
                let slice = slice::run(driver, session, load, &mut machine_use, stop);
                let slice = match slice {
                    // There is nothing to keep of it, so the reserve may be exceeded.
                    Err(error) if error.is_of_machine() && turn + 1 < TURNS_MAX => {
                        part.disturbed += 1;
                        disturbances.note(who, true);
                        reserve.spend_since(began);
                        continue;
                    }
                    other => other?,
                };
                part.disturbed += u32::from(slice.is_disturbed);
                disturbances.note(who, slice.is_disturbed);
                let is_last = turn + 1 == TURNS_MAX || !reserve.exceeds(Duration::ZERO);
                if slice.is_disturbed && !is_last && !disturbances.are_its_own(who) {
                    reserve.spend_since(began);
                    continue;
                }
                weather.add_to(&mut part.weather);
                part.machine_use.merge(&machine_use);
                distance = slice.state.distance;
                part.slices.add(step.cycle, slice);
                break;
            }
            Ok(())
        });
        distance
    }

    fn keys(&self) -> u64 {
        self.plan.keys
    }

    /// Equal work per operation, without a pause, and memory after it.
    fn memory_phase(
        &self,
        session: &mut StartedCandidate,
        parts: &mut Parts,
    ) -> Result<(), RunError> {
        let sampler = session.sampler();
        let mut marks = PhaseMarks::new(sampler.began());
        let result = self.equal_work(session, &mut marks, parts);
        parts.phases = marks.finish();
        parts.memory = parts.edges.finish(sampler);
        let operations = self.workshop.driver.target.operations();
        for (operation, &requests) in operations.iter().zip(&self.plan.requests) {
            let name = work_phase(*operation);
            let phase = parts.phases.iter().find(|phase| phase.name == name);
            let memory = parts.memory.best();
            let slope = phase.and_then(|phase| bytes_per_request(memory, phase, requests));
            if let Some(slope) = slope {
                parts.growth.insert(operation.key().to_owned(), slope);
            }
        }
        result
    }

    fn equal_work(
        &self,
        session: &mut StartedCandidate,
        marks: &mut PhaseMarks,
        parts: &mut Parts,
    ) -> Result<(), RunError> {
        let (measures, edges) = (&mut parts.block, &mut parts.edges);
        let mut before = Edge::read(session)?;
        edges.add(&before);
        let floor = self.plan.missed_floor;
        for (place, &operation) in self.workshop.driver.target.operations().iter().enumerate() {
            let of_plan = |list: &[u64]| list.get(place).copied().unwrap_or(0);
            let warm_up = of_plan(&self.plan.warm_up_requests);
            if warm_up > 0 {
                marks.enter("warm-up");
                before = self.work(session, operation, warm_up)?.1;
                edges.add(&before);
            }
            marks.enter(&work_phase(operation));
            let (phase, after) =
                self.work(session, operation, of_plan(&self.plan.requests).max(1))?;
            if let Some(floor) = floor.filter(|&floor| phase.requests < floor) {
                measures.noise.push(NoiseFlag {
                    kind: NoiseKind::LittleWork,
                    value: phase.requests as f64,
                    limit: floor as f64,
                    phase: Some(format!("{} memory", operation.key())),
                });
            }
            measures.requests += phase.requests;
            measures.errors += phase.answers.failed.total();
            after.note_costs(&before, operation, phase.requests, measures);
            edges.add(&after);
            before = after;
        }
        before.note_memory(measures);
        Ok(())
    }

    /// So many requests, and what the target has used and holds after the last response, its connections open still.
    fn work(
        &self,
        session: &mut StartedCandidate,
        operation: Operation,
        requests: u64,
    ) -> Result<(PhaseLoad, Edge), RunError> {
        let driver = &self.workshop.driver;
        let endpoint = session.endpoint.clone();
        let reader = MemoryReader {
            session: RefCell::new(session),
            edge: Cell::new(None),
        };
        let phase = driver.work(
            &endpoint,
            operation,
            self.keys(),
            requests,
            &reader,
            self.stop,
        );
        let edge = reader.edge.take();
        let phase = reader.session.into_inner().account(phase)?;
        let missing = || RunError::Load("the work had no end".to_owned());
        Ok((phase, edge.ok_or_else(missing)??))
    }

    /// Nothing to do for anybody, and what is left of the memory after it.
    fn rest(&self, members: &mut [Member]) {
        let mut samplers = Vec::new();
        for member in members.iter_mut() {
            member.run_thawed();
            samplers.push(member.session.as_ref().map(StartedCandidate::sampler));
        }
        let began = Instant::now();
        // Ctrl-C is seen by the first slice.
        let _ = sleep_unless_stopped(self.plan.idle, self.stop);
        for (member, sampler) in members.iter_mut().zip(samplers) {
            let idle = member.session.as_mut().map(Edge::read);
            if let Some(Ok(edge)) = &idle {
                edge.note_idle_memory(&mut member.parts.block);
                member.parts.edges.add(edge);
            }
            if let Some(sampler) = sampler {
                member.parts.add_idle(sampler, began.elapsed());
            }
            if let Some(Err(error)) = idle {
                member.fail(error);
            }
            member.run_frozen();
        }
    }

    /// From slices to the figures of the round.
    fn note_results(&self, members: &mut [Member]) {
        let operations = self.workshop.driver.target.operations();
        let server_cpus = self.workshop.driver.placement.server_threads();
        let near: Vec<BTreeSet<u32>> = (0..operations.len())
            .map(|place| self.near_cycles(members, place))
            .collect();
        for member in members.iter_mut() {
            member.scored.memory = std::mem::take(&mut member.parts.memory);
            member.note_memory();
            let (parts, measures) = (&member.parts, &mut member.scored.measures);
            let of_each = operations.iter().zip(&parts.operations).zip(&near);
            for ((&operation, parts), near) in of_each {
                let (closed, blocks, paced) = (&parts.closed, &parts.blocks, &parts.paced);
                let disturbed = closed.disturbed + blocks.disturbed + paced.disturbed;
                measures.disturbed_slices += disturbed;
                if !closed.slices.is_empty() {
                    closed.slices.note_closed_loop(operation, measures);
                    note_limits(closed, operation, server_cpus, measures);
                }
                if !blocks.slices.is_empty() {
                    blocks.slices.count_requests(measures);
                    let (key, columns) = (operation.key().to_owned(), blocks.slices.columns());
                    measures.blocks.insert(key, columns);
                }
                if !paced.slices.is_empty() {
                    let key = operation.key().to_owned();
                    measures.paced.insert(key, paced.slices.paced_columns());
                }
                let latency = note_latency(paced, near, operation, measures);
                member.scored.latencies.extend(latency);
            }
        }
    }

    /// The cycles at the constant rate in which the CPUs were near for every member that has slices; all of them if these
    /// have too few responses of a member for a p99.
    fn near_cycles(&self, members: &[Member], place: usize) -> BTreeSet<u32> {
        let slices = members
            .iter()
            .map(|member| &member.parts.operations[place].paced.slices);
        let measured: Vec<&Slices> = slices.filter(|slices| !slices.is_empty()).collect();
        let all: BTreeSet<u32> = measured.iter().flat_map(|slices| slices.cycles()).collect();
        let is_near = |&cycle: &u32| {
            let mut distances = measured.iter().map(|slices| slices.distance(cycle));
            distances.all(|distance| {
                distance.is_some_and(|distance| !distance.is_beyond(self.workshop.nearest))
            })
        };
        let near: BTreeSet<u32> = all.iter().copied().filter(is_near).collect();
        let has_p99 = |slices: &&Slices| {
            let answers = slices.merged(&near, |slice| &slice.response);
            answers.can_estimate(99.0)
        };
        match !near.is_empty() && measured.iter().all(has_p99) {
            true => near,
            false => all,
        }
    }
}

/// Drops, for all members, cycles in which the CPUs were not equally far apart for all, unless a member has no others:
/// a round without any latency would be lost to all.
fn drop_doubtful(members: &mut [Member], doubtful: &[Step]) {
    let Some(&first) = doubtful.first() else {
        return;
    };
    let cycles: BTreeSet<u32> = doubtful.iter().map(|step| step.cycle).collect();
    let has_others = |member: &mut Member| {
        let part = member.parts.slices_of(first);
        part.is_none_or(|part| {
            let mut left = part.slices.cycles();
            left.any(|cycle| !cycles.contains(&cycle)) || part.slices.is_empty()
        })
    };
    if members.iter_mut().all(has_others) {
        for member in members {
            doubtful.iter().for_each(|&step| member.drop_slice(step));
        }
    }
}

/// Reads what the target holds while the connections of its work are open.
struct MemoryReader<'a> {
    session: RefCell<&'a mut StartedCandidate>,
    edge: Cell<Option<Result<Edge, RunError>>>,
}

impl Observer for MemoryReader<'_> {
    fn connections_held(&self) {
        let edge = Edge::read(&mut self.session.borrow_mut());
        self.edge.set(Some(edge));
    }
}

/// The name of the memory phase's work.
fn work_phase(operation: Operation) -> String {
    format!("{} throughput", operation.key())
}

/// Which side was the limit, and what others took meanwhile.
fn note_limits(
    part: &Part,
    operation: Operation,
    server_cpus: usize,
    measures: &mut RoundMeasures,
) {
    let name = format!("{} throughput", operation.key());
    measures.noise.extend(part.machine_use.flags(&name));
    part.weather.note(&name, measures);
    let busy = part.slices.costs().map_or(0.0, |(costs, _)| {
        costs.cpu_ns() / (costs.over.as_nanos() as f64 * server_cpus as f64).max(1.0)
    });
    measures
        .server_busy
        .insert(operation.key().to_owned(), busy);
    let value = part.slices.generator_cpu_share();
    // Time that others ran on its CPUs was not a lack of requests.
    let at_work = busy + part.slices.waited_share();
    if value > GENERATOR_CPU_LIMIT && at_work < SERVER_BUSY {
        measures.noise.push(NoiseFlag {
            kind: NoiseKind::GeneratorCpu,
            value,
            limit: GENERATOR_CPU_LIMIT,
            phase: Some(name),
        });
    }
}

/// Percentiles of all responses of these cycles together: a pause of the server that falls into one slice of several is a
/// part of its p99.
fn note_latency(
    part: &Part,
    cycles: &BTreeSet<u32>,
    operation: Operation,
    measures: &mut RoundMeasures,
) -> Option<RunLatency> {
    if part.slices.is_empty() {
        return None;
    }
    let name = format!("{} latency", operation.key());
    measures.noise.extend(part.machine_use.flags(&name));
    part.weather.note(&name, measures);
    part.slices.count_requests(measures);
    let response = part.slices.merged(cycles, |slice| &slice.response);
    let service = part.slices.merged(cycles, |slice| &slice.service);
    let clocks = [
        (
            "response",
            &response,
            Quantity::ResponseP50,
            Quantity::ResponseP99,
        ),
        (
            "service",
            &service,
            Quantity::ServiceP50,
            Quantity::ServiceP99,
        ),
    ];
    for (clock, histogram, median, tail) in clocks {
        for (quantity, percent) in [(median, 50.0), (tail, 99.0)] {
            // A percentile that too few samples lie beyond is not measured, not guessed.
            if histogram.can_estimate(percent) {
                let value = histogram.percentile(percent) as f64;
                measures.set(Measure::of(operation, quantity), value);
            }
        }
        if !histogram.is_empty() {
            let key = format!("{}.{clock}", operation.key());
            measures.latencies.insert(key, histogram.summary());
        }
    }
    let mut flag = |kind, value, limit| {
        measures.noise.push(NoiseFlag {
            kind,
            value,
            limit,
            phase: Some(name.clone()),
        });
    };
    let late = late_share(&part.slices.merged(cycles, |slice| &slice.lateness));
    if late > LATE_SENDS_LIMIT {
        flag(NoiseKind::LateSends, late, LATE_SENDS_LIMIT);
    }
    if part.slices.is_invalid() {
        flag(NoiseKind::GeneratorInvalid, 1.0, 0.0);
    }
    Some(RunLatency {
        operation,
        response,
        service,
    })
}

/// The share of requests that the generator itself sent noticeably after they were due.
fn late_share(lateness: &LatencyHistogram) -> f64 {
    if lateness.is_empty() {
        return 0.0;
    }
    let late: u64 = lateness
        .bins()
        .filter(|&(value, _)| value > LATE_NS)
        .map(|(_, count)| count)
        .sum();
    late as f64 / lateness.count() as f64
}

// The measurements of every candidate of a generation, one step after the other.

/// One slice, or one block, of every candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    /// Counted from 0; blocks have but one.
    cycle: u32,
    /// Of the operation.
    place: usize,
    kind: SliceKind,
}

/// The steps of each operation: cycles, in each of them the closed loop and the constant rate; then the block. Steps
/// that only read come first: flushes and compactions after writes would fall into some reads and not into others.
fn by_operation(plan: &Plan, operations: &[Operation]) -> Vec<Vec<Step>> {
    let mut places: Vec<(usize, Operation)> = operations.iter().copied().enumerate().collect();
    places.sort_by_key(|&(_, operation)| operation.is_write());
    let steps = places
        .into_iter()
        .map(|(place, operation)| of_operation(plan, place, operation));
    steps.collect()
}

fn of_operation(plan: &Plan, place: usize, operation: Operation) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut add = |cycle, pace| {
        let kind = SliceKind { operation, pace };
        steps.push(Step { cycle, place, kind });
    };
    let [closed, paced, blocks] = plan.counts(place);
    for cycle in 0..closed.max(paced) {
        if cycle < closed {
            add(cycle, Pace::Closed);
        }
        if cycle < paced {
            let per_s = plan.rate_per_s.get(place).copied().unwrap_or(1.0);
            add(cycle, Pace::Rate { per_s });
        }
    }
    // Records from before there were blocks are repeated without.
    if blocks > 0 {
        add(0, Pace::Block);
    }
    steps
}

/// Whether a step at the constant rate is left.
fn are_paced_left(steps: &[Step]) -> bool {
    steps.iter().any(is_paced)
}

/// Whether steps at the constant rate are all that is left.
fn are_only_paced_left(steps: &[Step]) -> bool {
    steps.iter().all(is_paced)
}

/// Takes the next step out: while the CPUs of server and generator are near each other one at the constant rate,
/// while they are far apart one of the others, as long as there are such. Throughput can be adjusted for the
/// distance, a p99 cannot.
fn take(steps: &mut Vec<Step>, are_far: bool) -> Step {
    let next = steps.iter().position(|step| is_paced(step) != are_far);
    steps.remove(next.unwrap_or(0))
}

fn is_paced(step: &Step) -> bool {
    matches!(step.kind.pace, Pace::Rate { .. })
}

#[cfg(test)]
#[path = "tests/generation.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/steps.rs"]
mod steps_tests;
