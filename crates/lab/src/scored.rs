//! One scored run: the phases, in an order that keeps memory comparable.
//!
//! ```text
//! start -> warm-up and equal work, closed loop, per operation -> memory -> idle -> memory
//!       -> constant rate -> stop
//! ```
//!
//! Memory is read right after the equal work and before the constant rate phases, so every
//! candidate has done the same number of requests by then, however fast it is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use millpond_measure::histogram::LatencyHistogram;
use millpond_measure::record::{
    LoadStatus, Measure, MemoryCourse, NoiseFlag, NoiseKind, Operation, Quantity, RoundMeasures,
    RoundStatus,
};
use millpond_measure::series::Series;

use crate::drive::{Load, PhaseLoad};
use crate::edge::Edge;
use crate::error::RunError;
use crate::load_command::LoadCommand;
use crate::matrix::Candidate;
use crate::phase_marks::PhaseMarks;
use crate::plan::Plan;
use crate::sampler::Sampler;
use crate::session::{Session, Workshop};
use crate::weather::Weather;

/// Beyond this share of its CPUs the generator may be the limit.
const GENERATOR_CPU_LIMIT: f64 = 0.90;
/// Unless the server's CPUs are this busy: then the server is, whatever the generator does.
const SERVER_BUSY: f64 = 0.95;
/// A request is late if it left this long after it was due.
const LATE_NS: u64 = 1_000_000;
/// More late requests than this taint the latency of a run.
const LATE_SENDS_LIMIT: f64 = 0.01;

/// Latencies of one run, for the merged curves of the report.
#[derive(Debug)]
pub(crate) struct RunLatency {
    pub(crate) operation: Operation,
    pub(crate) response: LatencyHistogram,
    pub(crate) service: LatencyHistogram,
}

/// Everything one run gave.
#[derive(Debug)]
pub(crate) struct ScoredRun {
    pub(crate) measures: RoundMeasures,
    pub(crate) latencies: Vec<RunLatency>,
    pub(crate) memory: Series,
    pub(crate) start_duration: Duration,
    pub(crate) stop_duration: Option<Duration>,
}

/// Runs `candidate` once. A failure is part of the result, with what was measured before it.
pub(crate) fn run(
    workshop: &mut Workshop,
    candidate: &Candidate,
    plan: &Plan,
    round: u32,
    position: u32,
    stop: &AtomicBool,
) -> ScoredRun {
    let mut scored = ScoredRun {
        measures: RoundMeasures {
            round,
            position,
            ..RoundMeasures::default()
        },
        latencies: Vec::new(),
        memory: Series::default(),
        start_duration: Duration::ZERO,
        stop_duration: None,
    };
    match try_run(workshop, candidate, plan, stop, &mut scored) {
        Ok(()) => {}
        Err(RunError::Interrupted) => scored.measures.status = RoundStatus::Interrupted,
        Err(error) => {
            scored.measures.status = RoundStatus::Failed {
                reason: error.to_string(),
            };
        }
    }
    scored
}

fn try_run(
    workshop: &mut Workshop,
    candidate: &Candidate,
    plan: &Plan,
    stop: &AtomicBool,
    scored: &mut ScoredRun,
) -> Result<(), RunError> {
    let label = format!("round{}", scored.measures.round + 1);
    let mut session = Session::start(workshop, candidate, &label, None, stop)?;
    scored.start_duration = session.start_duration;
    let sampler = Sampler::start(session.tree);
    let mut stage = Stage {
        workshop,
        session: &mut session,
        plan,
        stop,
        marks: PhaseMarks::new(sampler.began()),
    };
    let result = match &workshop.load_command {
        Some(command) => stage.command_phase(command, scored),
        None => stage.phases(scored),
    };
    let phases = stage.marks.finish();
    scored.memory = sampler.finish();
    scored.measures.memory_course = MemoryCourse::thinned(&scored.memory);
    if let Some(course) = &mut scored.measures.memory_course {
        course.phases = phases;
    }
    session.explain(result)?;
    scored.stop_duration = Some(session.stop()?.duration);
    Ok(())
}

/// What the phases of one run have in common.
struct Stage<'a> {
    workshop: &'a Workshop,
    session: &'a mut Session,
    plan: &'a Plan,
    stop: &'a AtomicBool,
    marks: PhaseMarks,
}

impl Stage<'_> {
    fn phases(&mut self, scored: &mut ScoredRun) -> Result<(), RunError> {
        let operations = self.workshop.driver.target.operations();
        let mut edge = Edge::read(self.session)?;
        for (index, &operation) in operations.iter().enumerate() {
            edge = self.throughput(index, operation, edge, scored)?;
        }
        edge.note_memory(&mut scored.measures);
        let mut edge = self.rest(scored)?;
        for (index, &operation) in operations.iter().enumerate() {
            edge = self.latency(index, operation, &edge, scored)?;
        }
        Ok(())
    }

    /// Equal work, as fast as answers come.
    fn throughput(
        &mut self,
        index: usize,
        operation: Operation,
        mut before: Edge,
        scored: &mut ScoredRun,
    ) -> Result<Edge, RunError> {
        if self.warm_up(index, operation)? {
            before = Edge::read(self.session)?;
        }
        let name = format!("{} throughput", operation.key());
        self.marks.enter(&name);
        let requests = self.plan.requests.get(index).copied().unwrap_or(1);
        let weather = Weather::before();
        let began = Instant::now();
        let phase = self.drive(operation, Load::Work { requests })?;
        let wall = began.elapsed();
        weather.note(&name, &mut scored.measures);
        let after = Edge::read(self.session)?;
        note_throughput(
            self.workshop,
            operation,
            &phase,
            &before,
            &after,
            wall,
            &mut scored.measures,
        );
        Ok(after)
    }

    /// The constant rate, the same for all.
    fn latency(
        &mut self,
        index: usize,
        operation: Operation,
        before: &Edge,
        scored: &mut ScoredRun,
    ) -> Result<Edge, RunError> {
        let name = format!("{} latency", operation.key());
        self.marks.enter(&name);
        let load = Load::Rate {
            per_s: self.plan.rate_per_s.get(index).copied().unwrap_or(1.0),
            duration: self.plan.latency_phase,
        };
        let weather = Weather::before();
        let phase = self.drive(operation, load)?;
        weather.note(&name, &mut scored.measures);
        let after = Edge::read(self.session)?;
        note_latency(operation, &phase, before, &after, &mut scored.measures);
        let PhaseLoad {
            response, service, ..
        } = phase;
        scored.latencies.push(RunLatency {
            operation,
            response,
            service,
        });
        Ok(after)
    }

    /// Drives the target until it is as fast as it gets: the same number of requests for all, which
    /// count nowhere. False if there is nothing to do.
    fn warm_up(&mut self, index: usize, operation: Operation) -> Result<bool, RunError> {
        let requests = self.plan.warm_up_requests.get(index).copied().unwrap_or(0);
        if requests == 0 {
            return Ok(false);
        }
        self.marks.enter("warm-up");
        self.drive(operation, Load::Work { requests })?;
        Ok(true)
    }

    fn drive(&mut self, operation: Operation, load: Load) -> Result<PhaseLoad, RunError> {
        let keys = self.plan.requests.first().copied().unwrap_or(1);
        let (driver, address) = (&self.workshop.driver, self.session.address);
        let phase = driver.run(address, operation, keys, load, self.stop);
        self.session.explain(phase)
    }

    /// Nothing to do, and what is left of the memory after it.
    fn rest(&mut self, scored: &mut ScoredRun) -> Result<Edge, RunError> {
        self.marks.enter("idle");
        sleep_unless_stopped(self.plan.idle, self.stop)?;
        let rested = Edge::read(self.session)?;
        rested.note_idle_memory(&mut scored.measures);
        Ok(rested)
    }

    /// The one phase of a load program of the user's, and memory after it.
    fn command_phase(
        &mut self,
        command: &LoadCommand,
        scored: &mut ScoredRun,
    ) -> Result<(), RunError> {
        let operation = Operation::Request;
        if command.warm_ups > 0 {
            self.marks.enter("warm-up");
            command.warm_up(self.workshop, self.session, self.stop)?;
        }
        let before = Edge::read(self.session)?;
        self.marks.enter("load");
        let weather = Weather::before();
        let load = command.run(self.workshop, self.session, "load", self.stop)?;
        weather.note("load", &mut scored.measures);
        let after = Edge::read(self.session)?;
        let measures = &mut scored.measures;
        for &(quantity, value) in &load.values {
            measures.set(Measure::of(operation, quantity), value);
        }
        if let Some(requests) = load.requests {
            measures.requests += requests;
            after.note_costs(&before, operation, requests, measures);
        }
        measures
            .noise
            .extend(after.noise_since(&before, "load", load.cpu_ns));
        after.note_memory(measures);
        self.rest(scored).map(|_| ())
    }
}

fn note_throughput(
    workshop: &Workshop,
    operation: Operation,
    phase: &PhaseLoad,
    before: &Edge,
    after: &Edge,
    wall: Duration,
    measures: &mut RoundMeasures,
) {
    let name = format!("{} throughput", operation.key());
    measures.requests += phase.requests;
    measures.errors += phase.errors;
    measures.set(
        Measure::of(operation, Quantity::Throughput),
        phase.requests_per_s,
    );
    after.note_costs(before, operation, phase.requests, measures);
    measures.noise.extend(after.noise_since(before, &name, 0));
    let cpus = workshop.driver.placement.server_threads() as f64;
    let busy = after.cpu_ns_since(before) as f64 / (wall.as_nanos() as f64 * cpus);
    let value = phase.generator_cpu_share;
    if value > GENERATOR_CPU_LIMIT && busy < SERVER_BUSY {
        let (kind, limit) = (NoiseKind::GeneratorCpu, GENERATOR_CPU_LIMIT);
        measures.noise.push(NoiseFlag {
            kind,
            value,
            limit,
            phase: Some(name),
        });
    }
}

fn note_latency(
    operation: Operation,
    phase: &PhaseLoad,
    before: &Edge,
    after: &Edge,
    measures: &mut RoundMeasures,
) {
    let name = format!("{} latency", operation.key());
    measures.requests += phase.requests;
    measures.errors += phase.errors;
    measures.noise.extend(after.noise_since(before, &name, 0));
    let clocks = [
        (
            "response",
            &phase.response,
            Quantity::ResponseP50,
            Quantity::ResponseP99,
        ),
        (
            "service",
            &phase.service,
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
        let key = format!("{}.{clock}", operation.key());
        measures.latencies.insert(key, histogram.summary());
    }
    let mut flag = |kind, value, limit| {
        measures.noise.push(NoiseFlag {
            kind,
            value,
            limit,
            phase: Some(name.clone()),
        });
    };
    let late = late_share(&phase.lateness);
    if late > LATE_SENDS_LIMIT {
        flag(NoiseKind::LateSends, late, LATE_SENDS_LIMIT);
    }
    if phase.status == LoadStatus::Invalid {
        flag(NoiseKind::GeneratorInvalid, 1.0, 0.0);
    }
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

fn sleep_unless_stopped(duration: Duration, stop: &AtomicBool) -> Result<(), RunError> {
    let deadline = Instant::now() + duration;
    while Instant::now() < deadline {
        if stop.load(Ordering::Relaxed) {
            return Err(RunError::Interrupted);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        thread::sleep(left.min(Duration::from_millis(20)));
    }
    Ok(())
}
