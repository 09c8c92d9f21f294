//! What one candidate gave in one round; and a run under a load program of the user's, which knows no
//! slices:
//!
//! ```text
//! start -> the program's warm-ups -> the program -> memory -> idle -> memory -> stop
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use millpond_measure::histogram::LatencyHistogram;
use millpond_measure::record::{
    Measure, MemoryCourse, MemorySeries, Operation, PhaseHeap, RoundMeasures,
};

use crate::edge::Edge;
use crate::error::RunError;
use crate::load_command::LoadCommand;
use crate::matrix::Candidate;
use crate::memory_course::EdgeMemory;
use crate::phase_marks::PhaseMarks;
use crate::session::{Session, Workshop};
use crate::weather::{Weather, WeatherSum};

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
    pub(crate) memory: MemorySeries,
    /// Of a run of phases that was traced.
    pub(crate) phase_heaps: Vec<PhaseHeap>,
    pub(crate) start_duration: Duration,
    pub(crate) stop_duration: Option<Duration>,
}

impl ScoredRun {
    pub(crate) fn new(round: u32, position: u32) -> Self {
        Self {
            measures: RoundMeasures {
                round,
                position,
                ..RoundMeasures::default()
            },
            latencies: Vec::new(),
            memory: MemorySeries::default(),
            phase_heaps: Vec::new(),
            start_duration: Duration::ZERO,
            stop_duration: None,
        }
    }
}

/// Runs `candidate` once under `command`. A failure is part of the result, with what was measured before it.
pub(crate) fn run(
    workshop: &mut Workshop,
    candidate: &Candidate,
    command: &LoadCommand,
    idle: Duration,
    mut scored: ScoredRun,
    stop: &AtomicBool,
) -> ScoredRun {
    match try_run(workshop, candidate, command, idle, stop, &mut scored) {
        Ok(()) => {}
        Err(error) => scored.measures.status = error.into(),
    }
    scored
}

fn try_run(
    workshop: &mut Workshop,
    candidate: &Candidate,
    command: &LoadCommand,
    idle: Duration,
    stop: &AtomicBool,
    scored: &mut ScoredRun,
) -> Result<(), RunError> {
    let label = format!("round{}", scored.measures.round + 1);
    let mut session = Session::start(workshop, candidate, &label, None, stop)?;
    scored.start_duration = session.start_duration;
    let sampler = session.sampler();
    let mut stage = Stage {
        workshop,
        session: &mut session,
        stop,
        marks: PhaseMarks::new(sampler.began()),
        edges: EdgeMemory::default(),
    };
    let result = stage.load(command, &mut scored.measures);
    let result = result.and_then(|()| stage.rest(idle, &mut scored.measures));
    let (phases, mut edges) = (stage.marks.finish(), stage.edges);
    scored.memory = edges.finish(sampler);
    edges.note(&scored.memory, &phases, &mut scored.measures);
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
    stop: &'a AtomicBool,
    marks: PhaseMarks,
    edges: EdgeMemory,
}

impl Stage<'_> {
    /// The load program, and memory after it.
    fn load(
        &mut self,
        command: &LoadCommand,
        measures: &mut RoundMeasures,
    ) -> Result<(), RunError> {
        let operation = Operation::Request;
        if command.warm_ups > 0 {
            self.marks.enter("warm-up");
            command.warm_up(self.workshop, self.session, self.stop)?;
        }
        let before = Edge::read(self.session)?;
        self.edges.add(&before);
        self.marks.enter("load");
        let mut sum = WeatherSum::default();
        let is_raised = self.workshop.driver.placement.is_raised;
        let weather = Weather::before(!is_raised);
        let load = command.run(self.workshop, self.session, "load", self.stop)?;
        weather.add_to(&mut sum);
        sum.note("load", measures);
        let after = Edge::read(self.session)?;
        self.edges.add(&after);
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
        Ok(())
    }

    /// Nothing to do, and what is left of the memory after it.
    fn rest(&mut self, idle: Duration, measures: &mut RoundMeasures) -> Result<(), RunError> {
        self.marks.enter("idle");
        sleep_unless_stopped(idle, self.stop)?;
        let edge = Edge::read(self.session)?;
        self.edges.add(&edge);
        edge.note_idle_memory(measures);
        Ok(())
    }
}

/// Sleeps for `duration`; Ctrl-C ends it.
pub(crate) fn sleep_unless_stopped(duration: Duration, stop: &AtomicBool) -> Result<(), RunError> {
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
