//! Every candidate once, before anything is scored: does it start, is its allocator there, are its
//! answers right, and how fast is it?
//!
//! A candidate that fails here is left out with its reason; without the baseline there is nothing to
//! compare. The second run of the baseline needs no try of its own.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use millpond_measure::record::{Operation, Role};

use crate::drive::Load;
use crate::error::{LabError, RunError};
use crate::event::LabEvent;
use crate::load_command;
use crate::matrix::Candidate;
use crate::readiness::Ready;
use crate::server_info::ServerInfo;
use crate::session::{Session, Workshop};

/// Written first, so that reads have something to find.
const FILL_REQUESTS: u64 = 2_000;
/// Long enough to leave start-up behind, short enough for nine candidates.
const BURST: Duration = Duration::from_millis(150);
/// The best of these counts: a neighbour can only make a burst slower than the server is.
const BURSTS: usize = 2;
/// Fewer answers than this in a burst say nothing about the rate of a slow server...
const BURST_ANSWERS_MIN: u64 = 50;
/// ...which then gets this long once.
const LONG_BURST: Duration = Duration::from_secs(2);

/// What the preflight found out.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// What the check wrote under the baseline.
    pub(crate) checked: Option<String>,
    /// The longest that a load program of the user's took.
    pub(crate) load_command: Option<Duration>,
    /// Closed loop throughput of the slowest candidate, per operation in order.
    pub(crate) slowest_per_s: Vec<f64>,
    /// The mean time a run spent outside its phases.
    pub(crate) overhead: Duration,
    /// The allocator the target brings along.
    pub(crate) native: Option<String>,
    /// What our server says about itself.
    pub(crate) server: ServerInfo,
    /// On hardware counters and exact memory: what is counted, or why not.
    pub(crate) counters: String,
    /// Names and reasons of candidates that were left out.
    pub(crate) left_out: Vec<(String, String)>,
}

struct Smoke {
    per_s: Vec<f64>,
    load_command: Option<Duration>,
    overhead: Duration,
}

/// Tries every candidate; those that fail are removed from `candidates`.
pub(crate) fn run(
    workshop: &mut Workshop,
    candidates: &mut Vec<Candidate>,
    events: &mut dyn FnMut(&LabEvent),
    stop: &AtomicBool,
) -> Result<Findings, LabError> {
    let mut findings = Findings::default();
    let mut overheads: Vec<Duration> = Vec::new();
    let to_try: Vec<Candidate> = candidates
        .iter()
        .filter(|one| one.role != Role::BaselineAgain)
        .cloned()
        .collect();
    for (index, candidate) in to_try.iter().enumerate() {
        events(&LabEvent::Preflight {
            candidate: candidate.name.clone(),
            number: index + 1,
            of: to_try.len(),
        });
        match smoke(workshop, candidate, &mut findings, stop) {
            Ok(smoke) => {
                overheads.push(smoke.overhead);
                findings.take_in(&smoke);
            }
            Err(RunError::Interrupted) => return Err(LabError::InterruptedEarly),
            Err(reason) if candidate.role == Role::Baseline => {
                return Err(LabError::Baseline {
                    candidate: candidate.name.clone(),
                    reason,
                });
            }
            Err(reason) => {
                let reason = reason.to_string();
                events(&LabEvent::Note(format!(
                    "{} is left out: {reason}",
                    candidate.name
                )));
                candidates.retain(|one| one.name != candidate.name);
                findings.left_out.push((candidate.name.clone(), reason));
            }
        }
    }
    let tried = u32::try_from(overheads.len()).unwrap_or(u32::MAX).max(1);
    findings.overhead = overheads.iter().sum::<Duration>() / tried;
    let others = candidates
        .iter()
        .filter(|one| one.role == Role::Candidate)
        .count();
    let wanted_others = to_try.len() > 1;
    if others == 0 && wanted_others {
        let reasons = findings
            .left_out
            .iter()
            .map(|(name, why)| format!("{name}: {why}"));
        return Err(LabError::NothingToCompare {
            baseline: candidates
                .first()
                .map(|one| one.name.clone())
                .unwrap_or_default(),
            reasons: reasons.collect(),
        });
    }
    Ok(findings)
}

impl Findings {
    fn take_in(&mut self, smoke: &Smoke) {
        self.load_command = self.load_command.max(smoke.load_command);
        if self.slowest_per_s.is_empty() {
            self.slowest_per_s.clone_from(&smoke.per_s);
        }
        for (slowest, &per_s) in self.slowest_per_s.iter_mut().zip(&smoke.per_s) {
            *slowest = slowest.min(per_s);
        }
    }
}

fn smoke(
    workshop: &mut Workshop,
    candidate: &Candidate,
    findings: &mut Findings,
    stop: &AtomicBool,
) -> Result<Smoke, RunError> {
    let began = Instant::now();
    let mut session = Session::start(workshop, candidate, "preflight", None, stop)?;
    let mut overhead = began.elapsed();
    if candidate.role == Role::Baseline {
        findings.native.clone_from(&session.presence.native);
        let mut lines = session.counters.lines();
        let memory = session.tree.sample().ok();
        lines.extend(memory.and_then(|sample| sample.total.missing_line()));
        findings.counters = lines.join("; ");
        // A server of another protocol would take the question for an attack.
        if matches!(workshop.options.ready, Ready::Http | Ready::HttpPath(_)) {
            findings.server = ServerInfo::ask(&workshop.driver.target.probe(session.address));
        }
    }
    check_answers(workshop, &mut session, findings, stop)?;
    if let Some(command) = workshop.load_command.clone() {
        let load = command.run(workshop, &mut session, "load", stop)?;
        overhead += session.stop()?.duration;
        return Ok(Smoke {
            per_s: Vec::new(),
            load_command: Some(load.duration),
            overhead,
        });
    }
    let mut per_s = Vec::new();
    for &operation in workshop.driver.target.operations() {
        if operation == Operation::Put {
            let fill = Load::Work {
                requests: FILL_REQUESTS,
            };
            let filled = workshop
                .driver
                .run(session.address, operation, FILL_REQUESTS, fill, stop);
            session.explain(filled)?;
        }
        per_s.push(capacity(workshop, &mut session, operation, stop)?);
    }
    overhead += session.stop()?.duration;
    Ok(Smoke {
        per_s,
        load_command: None,
        overhead,
    })
}

/// The user's own check, before anything of this candidate is timed: it has to end well, and to
/// write what it wrote under the baseline, which is tried first.
fn check_answers(
    workshop: &Workshop,
    session: &mut Session,
    findings: &mut Findings,
    stop: &AtomicBool,
) -> Result<(), RunError> {
    let Some(line) = &workshop.options.check else {
        return Ok(());
    };
    let found = load_command::check(line, workshop, session, stop)?;
    match &findings.checked {
        None => findings.checked = Some(found),
        Some(expected) if *expected == found => {}
        Some(expected) => {
            return Err(RunError::OtherAnswers {
                expected: expected.clone(),
                found,
            });
        }
    }
    Ok(())
}

/// Requests per second in the closed loop, without the patience of a scored run.
fn capacity(
    workshop: &Workshop,
    session: &mut Session,
    operation: Operation,
    stop: &AtomicBool,
) -> Result<f64, RunError> {
    let mut burst = |duration| {
        let load = Load::Burst { duration };
        let phase = workshop
            .driver
            .run(session.address, operation, FILL_REQUESTS, load, stop);
        session.explain(phase)
    };
    let (mut best_per_s, mut answers) = (0.0_f64, 0);
    for _ in 0..BURSTS {
        let phase = burst(BURST)?;
        best_per_s = best_per_s.max(phase.requests_per_s);
        answers += phase.requests;
    }
    if answers < BURST_ANSWERS_MIN {
        let phase = burst(LONG_BURST)?;
        answers += phase.requests;
        best_per_s = best_per_s.max(phase.requests_per_s);
    }
    if answers == 0 {
        let seconds = LONG_BURST.as_secs();
        return Err(RunError::Load(format!(
            "not one answer came within {seconds} s"
        )));
    }
    Ok(best_per_s)
}
