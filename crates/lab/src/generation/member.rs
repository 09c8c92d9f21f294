//! One candidate of a generation: its processes, and what is collected of them.

use std::collections::BTreeMap;
use std::time::Duration;

use millpond_measure::record::{CoursePhase, MemoryCourse, MemorySeries, RoundMeasures};

use super::Step;
use crate::drive::Pace;
use crate::error::RunError;
use crate::isolation;
use crate::isolation::WeatherSum;
use crate::outcome::ScoredRun;
use crate::placement::CoreDistance;
use crate::rounds::nanoseconds;
use crate::sampler::EdgeMemory;
use crate::sampler::Sampler;
use crate::slice::Slices;
use crate::started_candidate::StartedCandidate;
use crate::usage::MachineUse;

/// The collected values of a member.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Of the memory phase.
    pub(super) block: RoundMeasures,
    pub(super) memory: MemorySeries,
    pub(super) edges: EdgeMemory,
    pub(super) phases: Vec<CoursePhase>,
    /// Bytes per request, by operation.
    pub(super) growth: BTreeMap<String, f64>,
    pub(super) operations: Vec<OperationParts>,
}

/// The collected values of an operation.
#[derive(Debug, Default)]
pub(super) struct OperationParts {
    pub(super) closed: Part,
    pub(super) blocks: Part,
    pub(super) paced: Part,
}

/// Slices of one kind, and what happened beside them.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) slices: Slices,
    pub(super) machine_use: MachineUse,
    pub(super) weather: WeatherSum,
    /// Slices that something outside disturbed.
    pub(super) disturbed: u32,
}

impl Parts {
    pub(super) fn slices_of(&mut self, step: Step) -> Option<&mut Part> {
        let parts = self.operations.get_mut(step.place)?;
        Some(match step.kind.pace {
            Pace::Closed => &mut parts.closed,
            Pace::Block => &mut parts.blocks,
            Pace::Rate { .. } => &mut parts.paced,
        })
    }

    /// The course of memory continues without the other candidates' turns.
    pub(super) fn add_idle(&mut self, sampler: Sampler, length: Duration) {
        let worked_ns = self.phases.last().map_or(0, |phase| phase.to_ns);
        let from_ns = self.memory.end_ns().max(worked_ns);
        let idle = self.edges.finish(sampler);
        self.memory.append(&idle, from_ns);
        self.phases.push(CoursePhase {
            name: "idle".to_owned(),
            from_ns,
            to_ns: from_ns + nanoseconds(length),
        });
    }
}

/// One candidate of a generation.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) index: usize,
    /// No other candidate lives at the same time, so there is nothing to take from anybody: it is never frozen.
    needs_own_connection: bool,
    /// `None` once it has failed.
    pub(super) session: Option<StartedCandidate>,
    pub(super) parts: Parts,
    pub(super) scored: ScoredRun,
}

impl Member {
    pub(super) fn new(
        index: usize,
        (round, position): (u32, u32),
        operations: usize,
        needs_own_connection: bool,
    ) -> Self {
        Self {
            index,
            needs_own_connection,
            session: None,
            parts: Parts {
                operations: (0..operations).map(|_| OperationParts::default()).collect(),
                ..Parts::default()
            },
            scored: ScoredRun::new(round, position),
        }
    }

    /// Thaws it for `measure`. An error ends it, and with it what this generation has of it.
    pub(super) fn while_running(
        &mut self,
        measure: impl FnOnce(&mut StartedCandidate, &mut Parts) -> Result<(), RunError>,
    ) {
        self.run_thawed();
        let Some(session) = &mut self.session else {
            return;
        };
        match measure(session, &mut self.parts) {
            Ok(()) => self.run_frozen(),
            Err(error) => self.fail(error),
        }
    }

    /// Whether its slice was measured while the CPUs were much nearer to each other than `distance`, or farther.
    pub(super) fn is_far_from(&mut self, distance: CoreDistance, step: Step) -> bool {
        let part = self.parts.slices_of(step);
        let own = part.and_then(|part| part.slices.distance(step.cycle));
        own.is_some_and(|own| own.differs(distance))
    }

    /// Takes back a slice that cannot be compared with the others' of its cycle.
    pub(super) fn drop_slice(&mut self, step: Step) {
        if let Some(part) = self.parts.slices_of(step) {
            part.disturbed += u32::from(part.slices.remove(step.cycle));
        }
    }

    pub(super) fn run_frozen(&mut self) {
        if self.needs_own_connection {
            return;
        }
        if let Some(Err(error)) = self.session.as_ref().map(isolation::freeze) {
            self.fail(error);
        }
    }

    pub(super) fn run_thawed(&mut self) {
        if self.needs_own_connection {
            return;
        }
        if let Some(Err(error)) = self.session.as_ref().map(isolation::thaw) {
            self.fail(error);
        }
    }

    pub(super) fn fail(&mut self, error: RunError) {
        self.scored.measures.status = error.into();
        if let Some(session) = self.session.take() {
            // It is ended in any case.
            let _ = isolation::thaw(&session);
        }
    }

    pub(super) fn stop(&mut self) {
        self.run_thawed();
        if let Some(session) = self.session.take() {
            match session.stop() {
                Ok(report) => self.scored.stop_duration = Some(report.duration),
                Err(error) => self.fail(error),
            }
        }
    }

    /// Memory, and what the memory phase counted and slices do not.
    pub(super) fn note_memory(&mut self) {
        let measures = &mut self.scored.measures;
        let block = std::mem::take(&mut self.parts.block);
        measures.requests += block.requests;
        measures.errors += block.errors;
        measures.measures.extend(block.measures);
        measures.scaled.extend(block.scaled);
        measures.noise.extend(block.noise);
        measures.growth = std::mem::take(&mut self.parts.growth);
        let (series, phases) = (&self.scored.memory, &self.parts.phases);
        self.parts.edges.note(series, phases, measures);
        measures.memory_course = MemoryCourse::thinned(series);
        if let Some(course) = &mut measures.memory_course {
            course.phases = std::mem::take(&mut self.parts.phases);
        }
    }
}
