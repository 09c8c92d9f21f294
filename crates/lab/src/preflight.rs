//! Every candidate once, before anything is scored: does it start, is its allocator there, are its
//! responses right, and how fast is it?
//!
//! A candidate that fails here is left out with its reason; without the baseline there is nothing to
//! compare. The second run of the baseline needs no try of its own.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use millpond_measure::record::{LeftOut, LeftOutWhen, Operation, Role, SteadyState};

use crate::allocator;
use crate::drive::{Load, PhaseLoad};
use crate::error::{LabError, RunError};
use crate::event::LabEvent;
use crate::load_command;
use crate::matrix::Candidate;
use crate::options::ServerInfo;
use crate::readiness::Ready;
use crate::started_candidate::{RunContext, StartedCandidate};
use crate::warm_up::{Drift, Slices};

/// Written first, so that reads have something to find.
const FILL_REQUESTS: u64 = 2_000;
/// Short enough for nine candidates to be driven until they are steady.
const SLICE: Duration = Duration::from_millis(100);
/// Fewer responses than this in a slice say nothing about the rate of a slow server...
const SLICE_ANSWERS_MIN: u64 = 50;
/// ...which then gets longer slices until every connection has had two responses, and no warm-up: it would take too
/// long.
const LONG_SLICES: [Duration; 3] = [
    Duration::from_secs(2),
    Duration::from_secs(8),
    Duration::from_secs(30),
];
/// The rate of a slow server is known after so many responses per connection.
const ANSWERS_PER_CONNECTION: u64 = 2;
/// Bounds on how long one operation of one candidate is driven.
const PATIENCE_MIN: Duration = Duration::from_millis(900);
const PATIENCE_MAX: Duration = Duration::from_secs(15);

/// The results of the preflight.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// The output of the check under the baseline.
    pub(crate) checked: Option<String>,
    /// The longest that a load program of the user's took, with its warm-up.
    pub(crate) load_command: Option<Duration>,
    /// Closed loop throughput of the slowest candidate, per operation in order.
    pub(crate) slowest_per_s: Vec<f64>,
    /// Resident memory of the largest candidate, at the end of its try; shared pages counted once where the kernel says.
    pub(crate) resident_bytes: u64,
    /// The mean time a run spent outside its phases.
    pub(crate) overhead: Duration,
    /// The allocator the target brings along.
    pub(crate) native: Option<String>,
    /// The values from our server's metrics.
    pub(crate) server: ServerInfo,
    /// The result of a handshake with the baseline, if there is TLS.
    pub(crate) tls_version: Option<&'static str>,
    /// On hardware counters and exact memory: what is counted, or why not.
    pub(crate) counters: String,
    /// Instructions are among what is counted.
    pub(crate) has_instructions: bool,
    /// Candidates that failed.
    pub(crate) left_out: Vec<LeftOut>,
    /// Settings that were seen to have no effect, as sentences.
    pub(crate) without_effect: Vec<String>,
    /// How many connections may wait at the server to be accepted, if more come at once.
    pub(crate) small_backlog: Option<u32>,
    /// The status of a candidate's responses that point to another URL.
    pub(crate) redirect: Option<u16>,
    /// Requests until every candidate was steady, per operation in order.
    pub(crate) warm_up_requests: Vec<u64>,
    /// The most that a burst took beyond its length: connections, and the last responses.
    pub(crate) tail: Duration,
    /// How each candidate became steady, or not, by name.
    steady_states: Vec<(String, SteadyState)>,
}

struct Smoke {
    per_s: Vec<f64>,
    warm_up_requests: Vec<u64>,
    steady_state: Option<SteadyState>,
    load_command: Option<Duration>,
    resident_bytes: u64,
    overhead: Duration,
    tail: Duration,
}

/// Tries every candidate; those that fail are removed from `candidates`. `patience`: time limit for finding the steady
/// states of all together.
pub(crate) fn run(
    workshop: &mut RunContext,
    candidates: &mut Vec<Candidate>,
    patience: Duration,
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
    let operations = workshop.driver.target.operations().len();
    let turns = u32::try_from(to_try.len() * operations).unwrap_or(u32::MAX);
    let patience = (patience / turns.max(1)).clamp(PATIENCE_MIN, PATIENCE_MAX);
    for (index, candidate) in to_try.iter().enumerate() {
        events(&LabEvent::Preflight {
            candidate: candidate.name.clone(),
            number: index + 1,
            of: to_try.len(),
        });
        match smoke(workshop, candidate, patience, &mut findings, stop) {
            Ok(smoke) => {
                overheads.push(smoke.overhead);
                if candidate.role == Role::Baseline {
                    smoke.adjust_timeout(workshop);
                }
                findings.take_in(&candidate.name, smoke);
            }
            Err(RunError::Interrupted) => return Err(LabError::InterruptedEarly),
            // No allocator is to blame, and the next one may fail as well as this one.
            Err(reason) if candidate.role == Role::Baseline || reason.is_of_backlog() => {
                return Err(LabError::Baseline {
                    candidate: candidate.name.clone(),
                    reason: reason.to_string(),
                });
            }
            Err(reason) => {
                candidates.retain(|one| one.name != candidate.name);
                let left_out = LeftOut {
                    candidate: candidate.name.clone(),
                    cause: reason.cause(),
                    sentence: reason.to_string(),
                    when: LeftOutWhen::TriedOut,
                    rounds_done: 0,
                };
                let (name, sentence) = (&left_out.candidate, &left_out.sentence);
                events(&LabEvent::Note(format!("{name} is left out: {sentence}")));
                findings.left_out.push(left_out);
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
        return Err(nothing_to_compare(candidates, &findings.left_out));
    }
    Ok(findings)
}

/// Why only the baseline is left.
pub(crate) fn nothing_to_compare(candidates: &[Candidate], left_out: &[LeftOut]) -> LabError {
    let baseline = candidates.first().map(|one| one.name.clone());
    let reasons = left_out.iter();
    let reasons =
        reasons.map(|one| format!("{} {}: {}", one.candidate, one.when.label(), one.sentence));
    LabError::NothingToCompare {
        baseline: baseline.unwrap_or_default(),
        reasons: reasons.collect(),
    }
}

impl Smoke {
    /// A hanging candidate is stopped sooner, now that the baseline's speed is known.
    fn adjust_timeout(&self, workshop: &mut RunContext) {
        let slowest = self.per_s.iter().copied().reduce(f64::min);
        if let Some(per_s) = slowest {
            workshop.driver.adjust_timeout(per_s);
        }
    }
}

impl Findings {
    fn take_in(&mut self, name: &str, smoke: Smoke) {
        self.load_command = self.load_command.max(smoke.load_command);
        self.tail = self.tail.max(smoke.tail);
        self.resident_bytes = self.resident_bytes.max(smoke.resident_bytes);
        self.warm_up_requests
            .resize(smoke.warm_up_requests.len(), 0);
        for (most, requests) in self.warm_up_requests.iter_mut().zip(smoke.warm_up_requests) {
            *most = requests.max(*most);
        }
        let steady_state = smoke.steady_state;
        self.steady_states
            .extend(steady_state.map(|found| (name.to_owned(), found)));
        if self.slowest_per_s.is_empty() {
            self.slowest_per_s.clone_from(&smoke.per_s);
        }
        for (slowest, &per_s) in self.slowest_per_s.iter_mut().zip(&smoke.per_s) {
            *slowest = slowest.min(per_s);
        }
    }

    /// Settings that show only in the server itself, once it has worked: jemalloc starts threads of its own, and a
    /// process that was forked after that has none.
    fn note_effects(&mut self, candidate: &Candidate, session: &StartedCandidate) {
        let allocator = &candidate.allocator;
        let pids = &session.presence.pids;
        let lacks = |pid: &&i32| allocator::has_background_thread(**pid) == Some(false);
        let lacking = pids.iter().filter(lacks).count();
        let is_wanted =
            allocator.is_jemalloc() && allocator.setting("background_thread") == Some("true");
        if is_wanted && lacking > 0 {
            self.without_effect.push(format!(
                "{}: background_thread=true has no effect in {lacking} of {} processes that serve: none of their \
                 threads is jemalloc's own (a process that is forked loses them), so memory goes back only while \
                 they work",
                candidate.name,
                pids.len()
            ));
        }
    }

    /// With the places of those that were tried in `candidates`.
    pub(crate) fn steady_states(&self, candidates: &[Candidate]) -> Vec<(usize, SteadyState)> {
        let place = |name: &str| candidates.iter().position(|one| one.name == name);
        let found = self.steady_states.iter();
        found
            .filter_map(|(name, found)| Some((place(name)?, found.clone())))
            .collect()
    }

    /// The candidates that still changed at the time limit.
    pub(crate) fn unsteady_warning(&self) -> Option<String> {
        let unsteady: Vec<&str> = self
            .steady_states
            .iter()
            .filter(|(_, found)| !found.reached)
            .map(|(name, _)| name.as_str())
            .collect();
        (!unsteady.is_empty()).then(|| {
            format!(
                "no steady state in the try-out: {}; throughput still went up or down when it ended, so a \
                 part of what is measured may be warm-up (a longer --time-budget has more patience)",
                unsteady.join(", ")
            )
        })
    }
}

fn smoke(
    workshop: &mut RunContext,
    candidate: &Candidate,
    patience: Duration,
    findings: &mut Findings,
    stop: &AtomicBool,
) -> Result<Smoke, RunError> {
    let began = Instant::now();
    let mut session = StartedCandidate::start(workshop, candidate, "preflight", None, stop)?;
    let mut overhead = began.elapsed();
    if candidate.role == Role::Baseline {
        note_server(workshop, &mut session, findings)?;
    }
    check_responses(workshop, &mut session, findings, stop)?;
    if let Some(command) = workshop.load_command.clone() {
        let began = Instant::now();
        command.warm_up(workshop, &mut session, stop)?;
        command.run(workshop, &mut session, "load", stop)?;
        let load = began.elapsed();
        findings.note_effects(candidate, &session);
        overhead += session.stop()?.duration;
        return Ok(Smoke {
            per_s: Vec::new(),
            warm_up_requests: Vec::new(),
            steady_state: None,
            load_command: Some(load),
            // Candidates live one after the other then.
            resident_bytes: 0,
            overhead,
            tail: Duration::ZERO,
        });
    }
    let (mut per_s, mut warm_up_requests) = (Vec::new(), Vec::new());
    let mut longest_tail = Duration::ZERO;
    let mut steady_state = SteadyState {
        reached: true,
        ..SteadyState::default()
    };
    for &operation in workshop.driver.target.operations() {
        if operation == Operation::Put {
            let fill = Load::Work {
                requests: FILL_REQUESTS,
            };
            let filled =
                workshop
                    .driver
                    .run(&session.endpoint, operation, FILL_REQUESTS, fill, stop);
            session.account(filled)?;
        }
        let began = Instant::now();
        let (slices, ending, tail) = steady(workshop, &mut session, operation, patience, stop)?;
        longest_tail = longest_tail.max(tail);
        let requests = ending.warm_up_requests(&slices);
        per_s.push(slices.capacity_per_s());
        warm_up_requests.push(requests);
        steady_state.reached &= ending != Ending::Drifting;
        steady_state
            .requests
            .insert(operation.key().to_owned(), requests);
        let driven = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        steady_state.duration_ns += driven;
    }
    let resident_bytes = session.tree.sample().map_or(0, |sample| {
        let memory = sample.total.memory;
        memory.pss_bytes.unwrap_or(memory.rss_bytes)
    });
    findings.note_effects(candidate, &session);
    findings.redirect = findings.redirect.or(session.redirected());
    overhead += session.stop()?.duration;
    Ok(Smoke {
        resident_bytes,
        per_s,
        warm_up_requests,
        steady_state: Some(steady_state),
        load_command: None,
        overhead,
        tail: longest_tail,
    })
}

/// The baseline's program, and its countable events.
fn note_server(
    workshop: &RunContext,
    session: &mut StartedCandidate,
    findings: &mut Findings,
) -> Result<(), RunError> {
    findings.native.clone_from(&session.presence.native);
    findings.small_backlog = session.small_backlog();
    let mut lines = session.counters.lines();
    findings.has_instructions = session.counters.has_instructions();
    let memory = session.tree.sample().ok();
    lines.extend(memory.and_then(|sample| sample.total.memory.missing_line()));
    findings.counters = lines.join("; ");
    // A server of another protocol would take the question for an attack.
    if matches!(workshop.options.ready, Ready::Http | Ready::HttpPath(_)) {
        let probe = workshop.driver.target.probe(&session.endpoint);
        findings.server = session.endpoint.within(|| ServerInfo::ask(&probe))?;
        findings.tls_version = session.endpoint.within(|| probe.tls_version())?;
    }
    Ok(())
}

/// The user's own check, before anything of this candidate is timed: it has to end well, and to
/// write what it wrote under the baseline, which is tried first.
fn check_responses(
    workshop: &RunContext,
    session: &mut StartedCandidate,
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
            return Err(RunError::OtherResponses {
                expected: expected.clone(),
                found,
            });
        }
    }
    Ok(())
}

/// Drives a candidate in the closed loop until its rate is steady, or the time limit; returns how that went, and the
/// most that a burst took beyond its length. One that is too slow to be judged is taken unjudged.
fn steady(
    workshop: &RunContext,
    session: &mut StartedCandidate,
    operation: Operation,
    patience: Duration,
    stop: &AtomicBool,
) -> Result<(Slices, Ending, Duration), RunError> {
    let driver = &workshop.driver;
    let mut tail = Duration::ZERO;
    let mut burst = |duration| {
        let (load, began) = (Load::Burst { duration }, Instant::now());
        let phase = driver.run(&session.endpoint, operation, FILL_REQUESTS, load, stop);
        tail = tail.max(began.elapsed().saturating_sub(duration));
        session.account(phase)
    };
    let (slices, ending) = until_steady(&mut burst, driver.connections, patience)?;
    Ok((slices, ending, tail))
}

/// The same by bursts of lengths that it chooses.
fn until_steady(
    burst: &mut dyn FnMut(Duration) -> Result<PhaseLoad, RunError>,
    connections: usize,
    patience: Duration,
) -> Result<(Slices, Ending), RunError> {
    let began = Instant::now();
    let mut slices = Slices::default();
    let first = burst(SLICE)?;
    slices.push(first.requests, first.requests_per_s);
    if first.requests < SLICE_ANSWERS_MIN {
        let enough = ANSWERS_PER_CONNECTION * connections as u64;
        let mut per_s = 0.0;
        for length in LONG_SLICES {
            let long = burst(length)?;
            slices.push(long.requests, long.requests_per_s);
            per_s = long.requests_per_s;
            if long.requests >= enough {
                break;
            }
        }
        if per_s == 0.0 {
            let seconds: u64 = LONG_SLICES.iter().map(Duration::as_secs).sum();
            return Err(RunError::Load(format!(
                "not one response came within {seconds} s"
            )));
        }
        if per_s * SLICE.as_secs_f64() < SLICE_ANSWERS_MIN as f64 {
            return Ok((slices.without_warm_up(), Ending::Steady));
        }
    }
    let mut end = patience;
    while !slices.is_steady() {
        if began.elapsed() >= end {
            if slices.drift() == Drift::None {
                return Ok((slices, Ending::Restless));
            }
            if end > patience {
                return Ok((slices, Ending::Drifting));
            }
            // A burst that began in the middle looks like a drift; at twice the length it does not.
            end = patience * 2;
        }
        let phase = burst(SLICE)?;
        slices.push(phase.requests, phase.requests_per_s);
    }
    Ok((slices, Ending::Steady))
}

/// How the slices of an operation ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Ending {
    /// They agree.
    Steady,
    /// They do not, but they go nowhere: as steady as this machine lets them be.
    Restless,
    /// They still become faster or slower.
    Drifting,
}

impl Ending {
    /// Requests before the steady part; all of them where there is none.
    fn warm_up_requests(self, slices: &Slices) -> u64 {
        match self {
            Self::Steady => slices.requests_before(),
            Self::Restless => slices.requests_before_drift_ended(),
            Self::Drifting => slices.requests(),
        }
    }
}
