//! The rounds: every candidate once in each, in the order drawn, until the result is known.
//!
//! `compare` makes the plan, this runs it. The data are analysed only after the rounds that the plan names: when every
//! verdict of the three questions is decided, the comparison ends. The cost of these analyses is in the plan's
//! significance (`millpond_measure::statistics::InterimAnalyses`). A candidate all of whose verdicts are decided at an
//! interim analysis takes no part in later rounds. Time that is left becomes more slices of each round, not more
//! rounds. The number of rounds stays as planned: it may not depend on what was found. A candidate that fails twice is
//! left out, with its cause; without the baseline, or without another candidate, the rounds end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millpond_measure::analysis::{
    Design, ExpectedWidth, OpenVerdict, expected_widths, open_verdicts,
};
use millpond_measure::record::{FailureCause, LeftOut, LeftOutWhen, Margins, Role, RoundStatus};
use millpond_measure::statistics::InterimAnalyses;
use millpond_measure::units::format_percent;

use crate::error::LabError;
use crate::event::LabEvent;
use crate::generation::Generation;
use crate::load_command::LoadCommand;
use crate::matrix::Candidate;
use crate::outcome;
use crate::outcome::Collection;
use crate::outcome::ScoredRun;
use crate::output_directory::{Journal, Line};
use crate::plan::Plan;
use crate::plan::Reserve;
use crate::preflight::nothing_to_compare;
use crate::started_candidate::RunContext;

/// A candidate is left out after so many failed runs: in a row, if the machine or the load may be the reason; in all,
/// if the candidate crashes, hangs or responds wrongly. Each run that hangs takes its time from the others.
const FAILURES_MAX: u32 = 2;
/// After so many rounds there are intervals, and it is said how wide those of all rounds will be.
const FORECAST_AFTER: u32 = 6;
/// The widest interval is named if it is so many times as wide as the typical one.
const WIDEST_NAMED: f64 = 1.5;
/// Verdicts that are named during the rounds; the others are counted.
const OPEN_NAMED_MAX: usize = 3;

/// The constant data of all rounds.
pub(crate) struct Course<'a> {
    pub(crate) candidates: &'a [Candidate],
    pub(crate) plan: &'a Plan,
    /// The candidates' places in each round, in the order in which they run.
    pub(crate) schedule: &'a [Vec<usize>],
    /// The rounds' number was asked for: time gives way.
    pub(crate) is_fixed: bool,
    /// Up to which difference two candidates count as the same.
    pub(crate) margins: Margins,
    /// Until when the time budget is filled with slices; `None` if the rounds are to be those of the plan.
    pub(crate) fill_until: Option<Instant>,
    /// More connections come at once than may wait at the server.
    pub(crate) has_small_backlog: bool,
    /// When rounds that were not asked for are dropped.
    pub(crate) deadline: Instant,
    pub(crate) stop: &'a AtomicBool,
}

impl Course<'_> {
    /// The rules for the data at each interim analysis.
    fn design(&self) -> Design {
        Design {
            looks: InterimAnalyses::planned(self.plan.looks.len()),
            margins: self.margins,
        }
    }
}

/// The growing data of running rounds.
pub(crate) struct Rounds {
    pub(crate) collection: Collection,
    /// One sentence per run that failed.
    pub(crate) failures: Vec<String>,
    /// Candidates that failed too often.
    pub(crate) left_out: Vec<LeftOut>,
    /// Rounds begun.
    pub(crate) begun: u32,
    /// The rounds after which the data were analysed.
    pub(crate) analysed_after: Vec<u32>,
    /// Why there were no more rounds.
    pub(crate) stopped: String,
    /// By candidate: after how many rounds all its verdicts were decided, so that it took no part in later ones.
    pub(crate) left_after: Vec<Option<u32>>,
    /// The settings of the coming rounds.
    plan: Plan,
    /// By candidate.
    failed_runs: Vec<FailedRuns>,
    runs_done: u32,
    /// In all rounds.
    runs_begun: u32,
    runs_ended: u32,
    /// In those before the current one.
    runs_before_round: u32,
    began: Instant,
    journal: Journal,
}

/// The failed runs of a candidate.
#[derive(Clone, Copy, Debug, Default)]
struct FailedRuns {
    in_a_row: u32,
    /// Those that are its own, in all.
    own: u32,
}

impl FailedRuns {
    fn add(&mut self, failure: Option<&FailureCause>) {
        self.in_a_row = failure.map_or(0, |_| self.in_a_row + 1);
        self.own += u32::from(failure.is_some_and(FailureCause::is_its_own));
    }

    const fn is_out(self) -> bool {
        self.in_a_row >= FAILURES_MAX || self.own >= FAILURES_MAX
    }
}

impl Rounds {
    pub(crate) fn new(candidates: &[Candidate], plan: &Plan, journal: Journal) -> Self {
        Self {
            collection: Collection::new(candidates),
            failures: Vec::new(),
            left_out: Vec::new(),
            begun: 0,
            analysed_after: Vec::new(),
            stopped: String::new(),
            left_after: vec![None; candidates.len()],
            plan: plan.clone(),
            failed_runs: vec![FailedRuns::default(); candidates.len()],
            runs_done: 0,
            runs_begun: 0,
            runs_ended: 0,
            runs_before_round: 0,
            began: Instant::now(),
            journal,
        }
    }

    /// Runs rounds until the data decide, the plan ends, the time is used up or the user stops it.
    pub(crate) fn run(
        &mut self,
        course: &Course<'_>,
        workshop: &mut RunContext,
        events: &mut dyn FnMut(&LabEvent),
    ) -> Result<(), LabError> {
        for (round, order) in (0_u32..).zip(course.schedule) {
            if self.out_of_time(round, course) {
                self.stopped = format!(
                    "stopped after {round} of {} rounds: the time budget is used up",
                    course.plan.rounds
                );
                events(&LabEvent::Note(self.stopped.clone()));
                break;
            }
            self.begun = round + 1;
            self.runs_before_round = self.runs_begun;
            if let Some(end) = course.fill_until {
                let left = end.saturating_duration_since(Instant::now());
                self.fill(left, course.plan, &mut workshop.reserve);
            }
            self.one_round(round, order, course, workshop, events)?;
            if !self.stopped.is_empty() {
                break;
            }
            if course.stop.load(Ordering::Relaxed) {
                if self.runs_done == 0 {
                    return Err(LabError::InterruptedEarly);
                }
                "interrupted".clone_into(&mut self.stopped);
                break;
            }
            if self.begun == FORECAST_AFTER {
                self.forecast(course, events);
            }
            if course.plan.looks.contains(&self.begun) && self.is_answered(course, events) {
                break;
            }
        }
        // However it ended, this was an analysis.
        if self.analysed_after.last() != Some(&self.begun) {
            self.analysed_after.push(self.begun);
        }
        self.stopped.push_str(&self.left_text(course.candidates));
        Ok(())
    }

    /// The candidates that took part in fewer rounds than the others, and why.
    fn left_text(&self, candidates: &[Candidate]) -> String {
        let left = candidates.iter().zip(&self.left_after);
        let parts = left.filter_map(|(candidate, left_after)| {
            let rounds = (*left_after)?;
            Some(format!(
                "; {} was decided after {rounds} rounds and took no part in later ones",
                candidate.name
            ))
        });
        parts.collect()
    }

    /// Says how wide the intervals will be: if an hour will not decide, the user need not wait for it. No claim is
    /// made, so this is no analysis.
    fn forecast(&self, course: &Course<'_>, events: &mut dyn FnMut(&LabEvent)) {
        let rounds = course.plan.rounds;
        if rounds <= self.begun {
            return;
        }
        let candidates = self.collection.so_far();
        let widths = expected_widths(&candidates, course.design(), rounds as usize);
        if !widths.is_empty() {
            let text = forecast_text(&widths);
            events(&LabEvent::Note(format!(
                "intervals of {rounds} rounds will be about: {text}"
            )));
        }
    }

    /// Analyses the data. True if there is no reason for another round.
    fn is_answered(&mut self, course: &Course<'_>, events: &mut dyn FnMut(&LabEvent)) -> bool {
        self.analysed_after.push(self.begun);
        let looks = &course.plan.looks;
        let is_last = looks.last() == Some(&self.begun);
        if course.is_fixed {
            "as many rounds as were asked for".clone_into(&mut self.stopped);
            return true;
        }
        let candidates = self.collection.so_far();
        let open = open_verdicts(&candidates, course.design());
        if open.is_empty() {
            self.stopped = match is_last {
                true => "the last analysis: no verdict is undecided".to_owned(),
                false => format!(
                    "stopped after {} of at most {} rounds: no verdict is undecided",
                    self.begun, course.plan.rounds
                ),
            };
        } else if is_last {
            self.stopped = format!(
                "the time budget has no room for more rounds; {}",
                open_text(&open)
            );
        }
        if !self.stopped.is_empty() {
            if looks.len() > 1 {
                events(&LabEvent::Note(self.stopped.clone()));
            }
            return true;
        }
        let next = looks.iter().find(|&&look| look > self.begun);
        events(&LabEvent::Note(format!(
            "after {} rounds {}; going on to {}",
            self.begun,
            open_text(&open),
            next.unwrap_or(&course.plan.rounds)
        )));
        self.let_decided_leave(&open, course, events);
        false
    }

    /// Candidates without an open verdict take no part any more, and leave their time to the others (`fill`). The baseline
    /// stays, and so does its double, which shows what rounds like these call different by chance.
    fn let_decided_leave(
        &mut self,
        open: &[OpenVerdict],
        course: &Course<'_>,
        events: &mut dyn FnMut(&LabEvent),
    ) {
        let mut names = Vec::new();
        let all = course.candidates.iter().zip(&mut self.left_after);
        for ((candidate, left_after), failed_runs) in all.zip(&self.failed_runs) {
            let is_open = open.iter().any(|one| one.candidate == candidate.name);
            let is_decided = !is_open && !failed_runs.is_out();
            if candidate.role == Role::Candidate && is_decided && left_after.is_none() {
                *left_after = Some(self.begun);
                names.push(candidate.name.as_str());
            }
        }
        if names.is_empty() {
            return;
        }
        events(&LabEvent::Note(format!(
            "all verdicts are decided of {}: the other candidates get the time",
            names.join(", ")
        )));
    }

    /// The time that is left is shared out among the rounds that are left, this one included: what earlier ones kept
    /// back and did not need, and the part of candidates that have left, becomes more slices.
    fn fill(&mut self, left: Duration, plan: &Plan, reserve: &mut Reserve) {
        let rounds = plan.rounds.saturating_sub(self.begun - 1).max(1);
        let per_run = left / (rounds * self.count_tried().max(1));
        self.plan = plan.with_more_slices(per_run.saturating_sub(plan.run));
        *reserve = Reserve::default();
    }

    /// Candidates that take part in the next round.
    fn count_tried(&self) -> u32 {
        let tried = (0..self.failed_runs.len()).filter(|&index| self.is_tried(index));
        u32::try_from(tried.count()).unwrap_or(u32::MAX)
    }

    fn one_round(
        &mut self,
        round: u32,
        order: &[usize],
        course: &Course<'_>,
        workshop: &mut RunContext,
        events: &mut dyn FnMut(&LabEvent),
    ) -> Result<(), LabError> {
        let failed_before = self.failures.len();
        let whole = workshop.load_command.clone();
        let done = match whole.filter(|_| self.plan.phased.is_none()) {
            None => self.one_generation(round, order, course, workshop, events)?,
            Some(command) => self.whole_runs(round, order, &command, course, workshop, events)?,
        };
        if course.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.end_without_others(course, events)?;
        if done > 0 || !self.stopped.is_empty() {
            return Ok(());
        }
        self.end_by_failure(round + 1, failed_before, events)
    }

    /// Without the baseline, or without a candidate to compare with it, more rounds say nothing. The values from before
    /// the baseline failed are still a result.
    fn end_without_others(
        &mut self,
        course: &Course<'_>,
        events: &mut dyn FnMut(&LabEvent),
    ) -> Result<(), LabError> {
        let is_out = |index: usize| self.failed_runs.get(index).is_some_and(|it| it.is_out());
        let mut roles = (0..).zip(course.candidates.iter().map(|one| one.role));
        let mut others = roles.clone().filter(|&(_, role)| role == Role::Candidate);
        let has_others = others.clone().next().is_some();
        if has_others && others.all(|(index, _)| is_out(index)) {
            return Err(nothing_to_compare(course.candidates, &self.left_out));
        }
        let baseline = roles.find(|&(_, role)| role == Role::Baseline);
        let Some((index, _)) = baseline.filter(|&(index, _)| is_out(index)) else {
            return Ok(());
        };
        let name = course.candidates.get(index).map(|one| one.name.clone());
        let candidate = name.unwrap_or_default();
        let of_it = format!("{candidate}, ");
        let mut last = self.failures.iter().rev();
        let reason = last.find_map(|failure| failure.strip_prefix(&of_it));
        let reason = reason.unwrap_or_default().to_owned();
        if self.collection.count_done(index) == 0 {
            return Err(LabError::Baseline { candidate, reason });
        }
        self.stopped = format!("stopped because the baseline failed: {reason}");
        events(&LabEvent::Note(self.stopped.clone()));
        Ok(())
    }

    /// All candidates alive together, in slices. The number of those that gave a result.
    fn one_generation(
        &mut self,
        round: u32,
        order: &[usize],
        course: &Course<'_>,
        workshop: &mut RunContext,
        events: &mut dyn FnMut(&LabEvent),
    ) -> Result<u32, LabError> {
        let order: Vec<(u32, usize)> = (0..)
            .zip(order.iter().copied())
            .filter(|&(_, index)| self.is_tried(index))
            .collect();
        let plan = self.plan.clone();
        let mut generation = Generation {
            workshop,
            candidates: course.candidates,
            plan: &plan,
            round,
            stop: course.stop,
        };
        let mut begins = |index: usize| self.announce(round, index, course, events);
        let scored = match &plan.phased {
            Some(phased) => generation.run_phases(&order, phased, false, &mut begins),
            None => generation.run(&order, &mut begins),
        };
        let mut done = 0;
        for (index, scored) in scored {
            done += u32::from(self.note(index, scored, course, events)?);
        }
        Ok(done)
    }

    /// One candidate after the other, each under the user's load program.
    fn whole_runs(
        &mut self,
        round: u32,
        order: &[usize],
        command: &LoadCommand,
        course: &Course<'_>,
        workshop: &mut RunContext,
        events: &mut dyn FnMut(&LabEvent),
    ) -> Result<u32, LabError> {
        let mut done = 0;
        for (position, &index) in (0_u32..).zip(order) {
            if course.stop.load(Ordering::Relaxed) {
                break;
            }
            let Some(candidate) = course.candidates.get(index) else {
                continue;
            };
            if !self.is_tried(index) {
                continue;
            }
            self.announce(round, index, course, events);
            let empty = ScoredRun::new(round, position);
            let idle = course.plan.idle;
            let scored = outcome::run(workshop, candidate, command, idle, empty, course.stop);
            done += u32::from(self.note(index, scored, course, events)?);
        }
        Ok(done)
    }

    /// A round in which all runs failed is the last one. The values from before are still a result: an hour's rounds
    /// are not thrown away for one failure. Without any there is no result.
    fn end_by_failure(
        &mut self,
        round: u32,
        failed_before: usize,
        events: &mut dyn FnMut(&LabEvent),
    ) -> Result<(), LabError> {
        let first = self.failures.get(failed_before).or(self.failures.last());
        let error = LabError::RoundFailed {
            round,
            first: first.cloned().unwrap_or_default(),
        };
        if self.runs_done == 0 {
            return Err(error);
        }
        self.stopped = error.to_string();
        events(&LabEvent::Note(self.stopped.clone()));
        Ok(())
    }

    /// A candidate that keeps failing is passed over, and so is one that is decided.
    fn is_tried(&self, index: usize) -> bool {
        let is_out = self.failed_runs.get(index).is_some_and(|it| it.is_out());
        let has_left = self.left_after.get(index).is_some_and(Option::is_some);
        !is_out && !has_left
    }

    fn announce(
        &mut self,
        round: u32,
        index: usize,
        course: &Course<'_>,
        events: &mut dyn FnMut(&LabEvent),
    ) {
        let eta_ns = self.eta_ns(self.runs_begun, self.count_runs(round, course));
        self.runs_begun += 1;
        let candidate = course.candidates.get(index);
        events(&LabEvent::RunStarted {
            candidate: candidate.map(|one| one.name.clone()).unwrap_or_default(),
            round: round + 1,
            run: self.runs_begun,
            runs: self.count_runs(round, course),
            eta_ns,
        });
    }

    /// Takes in what a candidate gave in a round. True if that is a result.
    fn note(
        &mut self,
        index: usize,
        scored: ScoredRun,
        course: &Course<'_>,
        events: &mut dyn FnMut(&LabEvent),
    ) -> Result<bool, LabError> {
        let Some(candidate) = course.candidates.get(index) else {
            return Ok(false);
        };
        let round = scored.measures.round;
        self.journal.write(&Line::Run {
            candidate: &candidate.name,
            measures: &scored.measures,
            start_ns: nanoseconds(scored.start_duration),
            stop_ns: scored.stop_duration.map(nanoseconds),
            rss_bytes: &scored.memory.rss,
            memory_bytes: scored.memory.memory(),
        })?;
        let (failure, cause) = match &scored.measures.status {
            RoundStatus::Failed { reason, cause } => {
                let cause = cause.clone().unwrap_or(FailureCause::Other);
                (Some(reason.clone()), Some(cause))
            }
            RoundStatus::Done | RoundStatus::Interrupted => (None, None),
        };
        if let Some(reason) = &failure {
            let (name, round) = (&candidate.name, round + 1);
            self.failures
                .push(format!("{name}, round {round}: {reason}"));
        }
        let is_of_backlog =
            course.has_small_backlog && matches!(cause, Some(FailureCause::FailedRequests { .. }));
        // No allocator is to blame. Later on a whole round has to fail.
        if let Some(reason) = failure.as_ref().filter(|_| is_of_backlog && round == 0) {
            return Err(LabError::RoundFailed {
                round: 1,
                first: reason.clone(),
            });
        }
        let is_done = scored.measures.status == RoundStatus::Done;
        self.runs_done += u32::from(is_done);
        self.collection
            .add(index, scored.measures, &scored.latencies);
        if let Some(failed_runs) = self.failed_runs.get_mut(index) {
            failed_runs.add(cause.as_ref());
        }
        if let (Some(sentence), Some(cause)) = (&failure, cause) {
            self.leave_out_if_too_bad(index, candidate, (sentence, cause), round + 1, events);
        }
        self.runs_ended += 1;
        let runs = self.count_runs(round, course);
        events(&LabEvent::RunFinished {
            candidate: candidate.name.clone(),
            round: round + 1,
            run: self.runs_ended,
            runs,
            failure,
            eta_ns: self.eta_ns(self.runs_ended, runs),
        });
        Ok(is_done)
    }

    /// After its last failure that is too many. The baseline stays in what is shown: all others are compared with it.
    fn leave_out_if_too_bad(
        &mut self,
        index: usize,
        candidate: &Candidate,
        (sentence, cause): (&str, FailureCause),
        round: u32,
        events: &mut dyn FnMut(&LabEvent),
    ) {
        let is_out = self.failed_runs.get(index).is_some_and(|it| it.is_out());
        if !is_out || candidate.role == Role::Baseline {
            return;
        }
        let left_out = LeftOut {
            candidate: candidate.name.clone(),
            cause,
            sentence: sentence.to_owned(),
            when: LeftOutWhen::Round(round),
            rounds_done: self.collection.leave_out(index),
        };
        let (name, cause) = (&left_out.candidate, left_out.cause.label());
        events(&LabEvent::Note(format!(
            "{name} is left out, since it failed {FAILURES_MAX} times: {cause}"
        )));
        self.left_out.push(left_out);
    }

    /// Drops rounds that were not asked for once they no longer fit, but never those a verdict needs.
    fn out_of_time(&self, rounds_done: u32, course: &Course<'_>) -> bool {
        if course.is_fixed || rounds_done < course.plan.rounds_min {
            return false;
        }
        let planned = course.plan.run * self.count_tried();
        let took = self.began.elapsed() / rounds_done.max(1);
        Instant::now() + planned.max(took) > course.deadline
    }

    /// Runs in all, if `round` is being run and all later ones are like it.
    fn count_runs(&self, round: u32, course: &Course<'_>) -> u32 {
        let in_round = self.runs_begun - self.runs_before_round;
        let to_come = course.plan.rounds.saturating_sub(round + 1);
        let tried = self.count_tried().max(in_round);
        self.runs_before_round + tried.saturating_mul(to_come + 1)
    }

    /// The time to the end, from the plan at first, then from what runs really took.
    fn eta_ns(&self, run: u32, runs: u32) -> u64 {
        let per_run = if run == 0 {
            self.plan.run
        } else {
            self.began.elapsed() / run
        };
        nanoseconds(per_run * runs.saturating_sub(run))
    }
}

/// `7 verdicts are undecided: throughput of a, latency of a, memory of a and 4 more`.
fn open_text(open: &[OpenVerdict]) -> String {
    let verb = match open.len() {
        1 => "1 verdict is undecided".to_owned(),
        count => format!("{count} verdicts are undecided"),
    };
    let named = open.iter().take(OPEN_NAMED_MAX).map(ToString::to_string);
    let named = named.collect::<Vec<_>>().join(", ");
    match open.len().saturating_sub(OPEN_NAMED_MAX) {
        0 => format!("{verb}: {named}"),
        more => format!("{verb}: {named} and {more} more"),
    }
}

/// `throughput +-0.9 %, latency +-9 % (one +-49 %; more than half of the margin of 15 %: some may stay undecided)`.
fn forecast_text(widths: &[ExpectedWidth]) -> String {
    let part = |expected: &ExpectedWidth| {
        let mut notes = Vec::new();
        if expected.widest > expected.typical * WIDEST_NAMED {
            notes.push(format!("one +-{}", format_percent(expected.widest)));
        }
        if expected.widest > expected.margin / 2.0 {
            notes.push(format!(
                "more than half of the margin of {}: small differences may stay undecided",
                format_percent(expected.margin)
            ));
        }
        let width = format_percent(expected.typical);
        let notes = match notes.is_empty() {
            true => String::new(),
            false => format!(" ({})", notes.join("; ")),
        };
        format!("{} +-{width}{notes}", expected.question)
    };
    widths.iter().map(part).collect::<Vec<_>>().join(", ")
}

pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "tests/rounds.rs"]
mod tests;
