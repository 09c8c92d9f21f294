//! The rounds: every candidate once in each, in the order drawn, until the answer is known.
//!
//! On the path: `compare` makes the plan, this runs it. After the rounds that the plan names, and only
//! then, the data are looked at: when every verdict of the three questions is decided, the comparison is
//! over. The price of looking is in the plan's significance (`millpond_measure::statistics::Looks`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millpond_measure::analysis::{Design, open_verdicts};
use millpond_measure::record::{Margins, RoundStatus};
use millpond_measure::statistics::Looks;

use crate::error::LabError;
use crate::event::LabEvent;
use crate::generation::Generation;
use crate::journal::{Journal, Line};
use crate::load_command::LoadCommand;
use crate::matrix::Candidate;
use crate::outcome::Collection;
use crate::plan::Plan;
use crate::scored::{self, ScoredRun};
use crate::session::Workshop;

/// So many failed runs of a candidate in a row, and it is not tried again.
const FAILURES_IN_A_ROW_MAX: u32 = 2;
/// Verdicts that are named while rounds go on; the others are counted.
const OPEN_NAMED_MAX: usize = 3;

/// What stays the same over all rounds.
pub(crate) struct Course<'a> {
    pub(crate) candidates: &'a [Candidate],
    pub(crate) plan: &'a Plan,
    /// The candidates' places in each round, in the order in which they run.
    pub(crate) schedule: &'a [Vec<usize>],
    /// The rounds' number was asked for: time gives way.
    pub(crate) is_fixed: bool,
    /// Up to which difference two candidates count as the same.
    pub(crate) margins: Margins,
    /// When rounds that were not asked for are given up.
    pub(crate) deadline: Instant,
    pub(crate) stop: &'a AtomicBool,
}

impl Course<'_> {
    /// What the data are judged by at each look.
    fn design(&self) -> Design {
        Design {
            looks: Looks::planned(self.plan.looks.len()),
            margins: self.margins,
        }
    }
}

/// What grows while rounds run.
pub(crate) struct Rounds {
    pub(crate) collection: Collection,
    /// One sentence per run that failed.
    pub(crate) failures: Vec<String>,
    /// Rounds begun.
    pub(crate) begun: u32,
    /// The rounds after which the data were looked at.
    pub(crate) looked_after: Vec<u32>,
    /// Why there were no more rounds.
    pub(crate) stopped: String,
    in_a_row: Vec<u32>,
    runs_done: u32,
    began: Instant,
    journal: Journal,
}

impl Rounds {
    pub(crate) fn new(candidates: &[Candidate], journal: Journal) -> Self {
        Self {
            collection: Collection::new(candidates),
            failures: Vec::new(),
            begun: 0,
            looked_after: Vec::new(),
            stopped: String::new(),
            in_a_row: vec![0; candidates.len()],
            runs_done: 0,
            began: Instant::now(),
            journal,
        }
    }

    /// Runs rounds until the data answer, the plan ends, or time or the user's patience does.
    pub(crate) fn run(
        &mut self,
        course: &Course<'_>,
        workshop: &mut Workshop,
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
            if course.plan.looks.contains(&self.begun) && self.is_answered(course, events) {
                break;
            }
        }
        // However it ended, this was a look.
        if self.looked_after.last() != Some(&self.begun) {
            self.looked_after.push(self.begun);
        }
        Ok(())
    }

    /// Looks at the data. True if there is no reason for another round.
    fn is_answered(&mut self, course: &Course<'_>, events: &mut dyn FnMut(&LabEvent)) -> bool {
        self.looked_after.push(self.begun);
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
                true => "the last look: no verdict is undecided".to_owned(),
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
        false
    }

    fn one_round(
        &mut self,
        round: u32,
        order: &[usize],
        course: &Course<'_>,
        workshop: &mut Workshop,
        events: &mut dyn FnMut(&LabEvent),
    ) -> Result<(), LabError> {
        let failed_before = self.failures.len();
        let done = match workshop.load_command.clone() {
            None => self.one_generation(round, order, course, workshop, events)?,
            Some(command) => self.whole_runs(round, order, &command, course, workshop, events)?,
        };
        if done > 0 || course.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.end_by_failure(round + 1, failed_before, events)
    }

    /// All candidates alive together, in slices. The number of those that gave a result.
    fn one_generation(
        &mut self,
        round: u32,
        order: &[usize],
        course: &Course<'_>,
        workshop: &mut Workshop,
        events: &mut dyn FnMut(&LabEvent),
    ) -> Result<u32, LabError> {
        let order: Vec<usize> = order
            .iter()
            .copied()
            .filter(|&index| self.is_tried(index))
            .collect();
        let mut generation = Generation {
            workshop,
            candidates: course.candidates,
            plan: course.plan,
            round,
            stop: course.stop,
        };
        let mut begun = 0;
        let scored = generation.run(&order, &mut |index| {
            self.announce(round, begun, index, course, events);
            begun += 1;
        });
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
        workshop: &mut Workshop,
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
            self.announce(round, position, index, course, events);
            let empty = ScoredRun::new(round, position);
            let idle = course.plan.idle;
            let scored = scored::run(workshop, candidate, command, idle, empty, course.stop);
            done += u32::from(self.note(index, scored, course, events)?);
        }
        Ok(done)
    }

    /// A round in which nobody ended is the last one. What was measured before it still is an answer: an
    /// hour's rounds are not thrown away for one; without any there is none to give.
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

    /// A candidate that keeps failing is passed over.
    fn is_tried(&self, index: usize) -> bool {
        let in_a_row = self.in_a_row.get(index).copied().unwrap_or(0);
        in_a_row < FAILURES_IN_A_ROW_MAX
    }

    fn announce(
        &self,
        round: u32,
        position: u32,
        index: usize,
        course: &Course<'_>,
        events: &mut dyn FnMut(&LabEvent),
    ) {
        let (run, runs) = runs(round, position, course);
        let candidate = course.candidates.get(index);
        events(&LabEvent::RunStarted {
            candidate: candidate.map(|one| one.name.clone()).unwrap_or_default(),
            round: round + 1,
            run,
            runs,
            eta_ns: self.eta_ns(course.plan, run - 1, runs),
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
        let (round, position) = (scored.measures.round, scored.measures.position);
        let (run, runs) = runs(round, position, course);
        self.journal.write(&Line::Run {
            candidate: &candidate.name,
            measures: &scored.measures,
            start_ns: nanoseconds(scored.start_duration),
            stop_ns: scored.stop_duration.map(nanoseconds),
            rss_bytes: &scored.memory,
        })?;
        let failure = match &scored.measures.status {
            RoundStatus::Failed { reason } => Some(reason.clone()),
            RoundStatus::Done | RoundStatus::Interrupted => None,
        };
        if let Some(count) = self.in_a_row.get_mut(index) {
            *count = if failure.is_some() { *count + 1 } else { 0 };
        }
        if let Some(reason) = &failure {
            let (name, round) = (&candidate.name, round + 1);
            self.failures
                .push(format!("{name}, round {round}: {reason}"));
        }
        let is_done = scored.measures.status == RoundStatus::Done;
        self.runs_done += u32::from(is_done);
        self.collection
            .add(index, scored.measures, &scored.latencies);
        events(&LabEvent::RunFinished {
            candidate: candidate.name.clone(),
            round: round + 1,
            run,
            runs,
            failure,
            eta_ns: self.eta_ns(course.plan, run, runs),
        });
        Ok(is_done)
    }

    /// Gives up rounds that were not asked for once they no longer fit, but never those a verdict needs.
    fn out_of_time(&self, rounds_done: u32, course: &Course<'_>) -> bool {
        if course.is_fixed || rounds_done < course.plan.rounds_min {
            return false;
        }
        let count = u32::try_from(course.candidates.len()).unwrap_or(u32::MAX);
        let planned = course.plan.run * count;
        let took = self.began.elapsed() / rounds_done.max(1);
        Instant::now() + planned.max(took) > course.deadline
    }

    /// The time to the end, from the plan at first, then from what runs really took.
    fn eta_ns(&self, plan: &Plan, run: u32, runs: u32) -> u64 {
        let per_run = if run == 0 {
            plan.run
        } else {
            self.began.elapsed() / run
        };
        nanoseconds(per_run * runs.saturating_sub(run))
    }
}

/// The number of a run, counted from 1, and of how many.
fn runs(round: u32, position: u32, course: &Course<'_>) -> (u32, u32) {
    let count = u32::try_from(course.candidates.len()).unwrap_or(u32::MAX);
    let runs = course.plan.rounds.saturating_mul(count);
    (round * count + position + 1, runs)
}

/// `7 verdicts are undecided: throughput of a, latency of a, memory of a and 4 more`.
fn open_text(open: &[String]) -> String {
    let verb = match open.len() {
        1 => "1 verdict is undecided".to_owned(),
        count => format!("{count} verdicts are undecided"),
    };
    let named = open.iter().take(OPEN_NAMED_MAX).cloned();
    let named = named.collect::<Vec<_>>().join(", ");
    match open.len().saturating_sub(OPEN_NAMED_MAX) {
        0 => format!("{verb}: {named}"),
        more => format!("{verb}: {named} and {more} more"),
    }
}

pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocator::Allocator;
    use crate::config::IDLE_DEFAULT;
    use crate::matrix;
    use crate::plan::{Known, Lengths};
    use millpond_measure::record::{Measure, Operation, Quantity, RoundMeasures};

    /// Throughput of baseline, its double and one other candidate in so many rounds, the other one
    /// `ratio` as fast, up to `spread` faster or slower from round to round.
    fn after(begun: u32, candidates: &[Candidate], ratio: f64, spread: f64) -> Rounds {
        let directory = tempfile::tempdir().unwrap();
        let journal = Journal::create(directory.path()).unwrap();
        let mut rounds = Rounds::new(candidates, journal);
        for round in 0..begun {
            for (index, ratio) in [1.0, 1.0, ratio].into_iter().enumerate() {
                let swing = spread * (f64::from(round * 7 % 11) / 5.0 - 1.0);
                let mut measures = RoundMeasures {
                    round,
                    ..RoundMeasures::default()
                };
                let value = 1e4 * ratio + if index == 2 { 1e4 * swing } else { 0.0 };
                let throughput = Measure::of(Operation::Request, Quantity::Throughput);
                measures.set(throughput, value + f64::from(round));
                rounds.collection.add(index, measures, &[]);
            }
        }
        rounds.begun = begun;
        rounds
    }

    /// Goal: a round that fails altogether ends the comparison with what was measured before it. It once
    /// threw all rounds away; only of the first one there is nothing to keep.
    #[test]
    fn a_failed_round_keeps_the_ones_before() {
        let found = [
            Allocator::native("glibc"),
            Allocator::preloaded("x", "/lib/x.so".into()),
        ];
        let candidates = matrix::candidates(&found, &[]);
        let fail = |runs_done| {
            let mut rounds = after(6, &candidates, 1.1, 0.0);
            rounds.runs_done = runs_done;
            let earlier = "glibc, round 2: no answer".to_owned();
            rounds.failures = vec![earlier, "x, round 7: the disk is full".to_owned()];
            let mut notes = 0;
            let end = rounds.end_by_failure(7, 1, &mut |_| notes += 1);
            (
                end.map_err(|error| error.to_string()),
                rounds.stopped,
                notes,
            )
        };
        let words = "every run of round 7 failed; the first one: x, round 7: the disk is full";
        assert_eq!(fail(18), (Ok(()), words.to_owned(), 1));
        assert_eq!(fail(0), (Err(words.to_owned()), String::new(), 0));
    }

    /// Goal: a look ends the rounds when the answer is there and not before, whatever is asked of it;
    /// and every end says why.
    #[test]
    fn a_look_ends_what_is_decided() {
        let found = [
            Allocator::native("glibc"),
            Allocator::preloaded("x", "/lib/x.so".into()),
        ];
        let candidates = matrix::candidates(&found, &[]);
        let plan = Plan::make(&Known {
            candidates: 3,
            left: Duration::from_secs(250),
            overhead: Duration::from_millis(250),
            slowest_per_s: vec![50_000.0],
            connections: 64,
            rounds: None,
            rate_per_s: None,
            load_command: None,
            warm_up_requests: vec![0],
            idle: IDLE_DEFAULT,
            lengths: Lengths::default(),
        });
        let (first, last) = (plan.looks[0], plan.rounds);
        assert!(plan.looks.len() > 1);
        let stop = AtomicBool::new(false);
        let look = |begun, ratio, spread, is_fixed| {
            let mut rounds = after(begun, &candidates, ratio, spread);
            let course = Course {
                candidates: &candidates,
                plan: &plan,
                schedule: &[],
                is_fixed,
                margins: Margins::default(),
                deadline: Instant::now(),
                stop: &stop,
            };
            let mut notes = Vec::new();
            let is_over = rounds.is_answered(&course, &mut |event| notes.push(event.clone()));
            assert_eq!(rounds.looked_after, [begun]);
            assert_eq!(rounds.stopped.is_empty(), !is_over, "{}", rounds.stopped);
            (is_over, rounds.stopped, notes)
        };
        let (is_over, why, _) = look(first, 1.3, 0.001, false);
        assert!(
            is_over && why.contains(": no verdict is undecided"),
            "{why}"
        );
        let (is_over, _, notes) = look(first, 1.01, 0.2, false);
        assert!(!is_over);
        let LabEvent::Note(note) = &notes[0] else {
            unreachable!()
        };
        assert!(
            note.contains("1 verdict is undecided: throughput of x; going on to"),
            "{note}"
        );
        let (is_over, why, _) = look(last, 1.01, 0.2, false);
        assert!(is_over && why.contains("no room for more rounds"), "{why}");
        let (is_over, why, notes) = look(last, 1.01, 0.2, true);
        assert!(
            is_over && notes.is_empty() && why.contains("asked for"),
            "{why}"
        );
    }

    #[test]
    fn open_verdicts_are_counted_and_a_few_named() {
        let open: Vec<String> = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        assert_eq!(open_text(&open[..1]), "1 verdict is undecided: a");
        assert_eq!(
            open_text(&open),
            "4 verdicts are undecided: a, b, c and 1 more"
        );
    }
}
