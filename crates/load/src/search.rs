//! The highest rate at which objectives hold: step up, bisect, vote again where it matters.
//!
//! `cli` calls [`find_max`]; it asks a `Bracket` for the next rate, makes one [`run`](crate::run())
//! there, judges it, and updates the bracket, until that is narrow. Every step is a run of its own,
//! with a warm-up and new connections: the backlog of one that was too fast is not in the next.
//!
//! The response is a rate that was offered and held, twice.

#[cfg(test)]
#[path = "tests/search_simulated.rs"]
mod simulated;

use std::sync::atomic::AtomicBool;

use millpond_measure::record::{
    CurvePoint, FORMAT_VERSION, SearchEnd, SearchReport, SearchStep, StepOutcome,
};
use millpond_measure::slo::Slo;
use millpond_measure::units::{format_duration_ns, format_percent};

use crate::arrivals::{Arrivals, Profile, RATE_PER_S_MAX, Rate, Spacing};
use crate::config::{LoadConfig, Mode, Stop};
use crate::error::LoadError;
use crate::record::{Ended, LoadRecord};
use crate::run::{Progress, run};
use crate::verdict::{CPU_SHARE_MAX, ERROR_SHARE_INVALID, STEAL_SHARE_INVALID, facts_of};

/// The first rate, as a share of what a closed loop reaches. The steps up from there are chosen not
/// to meet that figure itself: at exactly what a target can do, no vote is worth anything.
const FIRST_SHARE: f64 = 1.05 / 8.0;
/// Where to begin when a closed loop got no response.
const FIRST_PER_S: f64 = 100.0;
/// Samples beyond the strictest percentile that make a step long enough.
const SAMPLES_BEYOND: u64 = 10;
/// A step is made longer for their sake, but at most so many times.
const STEP_STRETCH_MAX: u64 = 4;

/// How to search.
#[derive(Clone, Debug)]
pub struct SearchPlan {
    /// The objectives.
    pub slo: Slo,
    /// The first rate; `None`: an eighth of what a closed loop reaches.
    pub first_per_s: Option<f64>,
    /// How arrivals lie within each rate.
    pub spacing: Spacing,
    /// Random numbers of the spacing start here, and one further for each step.
    pub seed: u64,
    /// How far apart the highest rate that holds and the lowest that does not may lie, as a share.
    pub precision: f64,
}

/// The progress of a running search.
#[derive(Clone, Copy, Debug)]
pub enum SearchNews<'a> {
    /// A run begins: at this rate, or as a closed loop.
    Begins {
        /// The rate, unless it is the closed loop.
        rate_per_s: Option<f64>,
    },
    /// How far that run is.
    Progress(&'a Progress),
    /// A step has ended.
    Step(&'a SearchStep),
}

/// Searches with `config`, whose mode is ignored and whose window is that of each step. `stop` ends
/// it as it ends a run, with what is known until then.
///
/// # Errors
/// If nothing was measured: a setting is wrong or the target cannot be reached. A failure after the first step ends the
/// search, and the report contains it.
pub fn find_max(
    config: &LoadConfig,
    plan: &SearchPlan,
    news: &(dyn Fn(&SearchNews<'_>) + Sync),
    stop: &AtomicBool,
) -> Result<SearchReport, LoadError> {
    let config = LoadConfig {
        mode: Mode::ClosedLoop,
        deadline_ns: None,
        abort: None,
        ..config.clone()
    };
    config.check()?;
    let step_ns = config.stop.duration_ns.ok_or(LoadError::Setting {
        name: "stop",
        problem: "a step of a search lasts for a time, not for a number of requests".into(),
    })?;
    let search = Search {
        config,
        plan,
        news,
        stop,
        step_ns,
    };
    search.to_the_end()
}

struct Search<'a> {
    /// A closed loop; each step puts its rate into a copy.
    config: LoadConfig,
    plan: &'a SearchPlan,
    news: &'a (dyn Fn(&SearchNews<'_>) + Sync),
    stop: &'a AtomicBool,
    step_ns: u64,
}

impl Search<'_> {
    fn to_the_end(&self) -> Result<SearchReport, LoadError> {
        let closed_loop_per_s = match self.plan.first_per_s {
            Some(_) => None,
            None => Some(self.closed_loop()?),
        };
        let first_per_s = match (self.plan.first_per_s, closed_loop_per_s) {
            (Some(per_s), _) => per_s,
            (None, Some(per_s)) if per_s > 0.0 => per_s * FIRST_SHARE,
            _ => FIRST_PER_S,
        };
        let mut bracket = Bracket::new(first_per_s, self.plan.precision);
        let mut steps: Vec<SearchStep> = Vec::new();
        let mut failure = None;
        let ended = loop {
            let per_s = match bracket.next() {
                Ok(per_s) => per_s,
                Err(ended) => break ended,
            };
            match self.step(per_s, steps.len() as u64) {
                Ok((Ended::Complete | Ended::Aborted, step)) => {
                    bracket.observe(per_s, step.outcome);
                    (self.news)(&SearchNews::Step(&step));
                    steps.push(step);
                }
                Ok((Ended::Interrupted, _)) => break SearchEnd::Interrupted,
                Ok((Ended::TargetGone, _)) => break SearchEnd::TargetGone,
                Err(LoadError::Unreachable { .. }) if !steps.is_empty() => {
                    break SearchEnd::TargetGone;
                }
                // Earlier measurements keep their value.
                Err(error) if !steps.is_empty() => {
                    failure = Some(error.to_string());
                    break SearchEnd::Failed;
                }
                Err(error) => return Err(error),
            }
        };
        let report = self.report(closed_loop_per_s, &bracket, steps, ended);
        Ok(SearchReport { failure, ..report })
    }

    /// The most that the connections can request, if the generator can.
    fn closed_loop(&self) -> Result<f64, LoadError> {
        (self.news)(&SearchNews::Begins { rate_per_s: None });
        let config = LoadConfig {
            stop: Stop::after_ns((self.step_ns / 2).max(1)),
            ..self.config.clone()
        };
        Ok(self.run(&config)?.requests_per_s)
    }

    fn step(&self, per_s: f64, number: u64) -> Result<(Ended, SearchStep), LoadError> {
        (self.news)(&SearchNews::Begins {
            rate_per_s: Some(per_s),
        });
        let config = self.at(per_s, number)?;
        let record = self.run(&config)?;
        let warm_up_ns = config.warm_up.known_ns();
        let (outcome, reasons) = judge(&record, &self.plan.slo, warm_up_ns);
        Ok((record.ended, summary(&record, per_s, outcome, reasons)))
    }

    fn run(&self, config: &LoadConfig) -> Result<LoadRecord, LoadError> {
        let progress = |now: &Progress| (self.news)(&SearchNews::Progress(now));
        run(config, &progress, self.stop)
    }

    /// The run at one rate, long enough for the percentiles that are asked for.
    fn at(&self, per_s: f64, number: u64) -> Result<LoadConfig, LoadError> {
        let rate = Rate::from_per_s(per_s).ok_or_else(|| LoadError::Setting {
            name: "rate",
            problem: format!("{per_s} cannot be offered"),
        })?;
        let samples = self.plan.slo.samples_min(SAMPLES_BEYOND) as f64;
        let wanted_ns = (samples / per_s * 1e9) as u64;
        let step_ns = wanted_ns.clamp(self.step_ns, self.step_ns.saturating_mul(STEP_STRETCH_MAX));
        Ok(LoadConfig {
            mode: Mode::Open(Arrivals {
                profile: Profile::Constant(rate),
                spacing: self.plan.spacing,
                seed: self.plan.seed.wrapping_add(number),
            }),
            stop: Stop::after_ns(step_ns),
            ..self.config.clone()
        })
    }

    fn report(
        &self,
        closed_loop_per_s: Option<f64>,
        bracket: &Bracket,
        steps: Vec<SearchStep>,
        ended: SearchEnd,
    ) -> SearchReport {
        let narrow = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        SearchReport {
            format_version: FORMAT_VERSION,
            objectives: self.plan.slo.in_words(),
            threads: narrow(self.config.threads.min(self.config.connections)),
            connections: narrow(self.config.connections),
            pipeline: narrow(self.config.pipeline),
            arrivals: self.plan.spacing.to_string(),
            closed_loop_per_s,
            step_ns: self.step_ns,
            warm_up_ns: self.config.warm_up.known_ns(),
            precision: self.plan.precision,
            rate_per_s: bracket.low(),
            missed_per_s: bracket.high(),
            ended,
            curve: curve(bracket, &steps),
            steps,
            ..SearchReport::default()
        }
    }
}

fn summary(
    record: &LoadRecord,
    rate_per_s: f64,
    outcome: StepOutcome,
    reasons: Vec<String>,
) -> SearchStep {
    SearchStep {
        rate_per_s,
        requests_per_s: record.requests_per_s,
        requests: record.requests,
        outcome,
        reasons,
        response_ns: record.response.summary(),
        service_ns: record.service.summary(),
        slip_ns: record.slip.summary(),
        errors: record.errors,
        generator_cpu_share: record.generator_cpu_share,
        verdict: record.verdict.clone(),
    }
}

/// One point for each rate, by ascending rate.
fn curve(bracket: &Bracket, steps: &[SearchStep]) -> Vec<CurvePoint> {
    let mut points: Vec<CurvePoint> = bracket
        .rates()
        .map(|(rate_per_s, outcome)| {
            let here: Vec<&SearchStep> = steps
                .iter()
                .filter(|step| step.rate_per_s == rate_per_s)
                .collect();
            let mut agreeing: Vec<&SearchStep> = here
                .iter()
                .copied()
                .filter(|step| step.outcome == outcome)
                .collect();
            agreeing.sort_by_key(|step| step.response_ns.p99);
            let narrow = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
            CurvePoint {
                rate_per_s,
                outcome,
                votes: narrow(agreeing.len()),
                steps: narrow(here.len()),
                typical: agreeing
                    .get(agreeing.len() / 2)
                    .map(|&step| step.clone())
                    .unwrap_or_default(),
            }
        })
        .collect();
    points.sort_by(|one, other| one.rate_per_s.total_cmp(&other.rate_per_s));
    points
}

// Between which two rates the limit lies, and where to search next.

/// Equal votes that decide about a rate.
const VOTES: u32 = 2;
/// Misses of the rate above the response, unless it has held twice before the last of them.
const VOTES_ABOVE: u32 = 3;
/// From one step up to the next, while none has failed.
const CLIMB: f64 = std::f64::consts::SQRT_2;
/// From one step down to the next, while none has held.
const DESCENT: f64 = 2.0;
/// The lowest rate worth trying, as a share of the first.
const FLOOR_SHARE: f64 = 1.0 / 1024.0;
/// Steps after which a search is not going to end.
const STEPS_MAX: u32 = 100;

/// One rate and how its steps went.
#[derive(Clone, Copy, Debug)]
struct Tried {
    per_s: f64,
    met: u32,
    missed: u32,
    rejected: u32,
}

impl Tried {
    /// The result of the votes, if enough agree.
    fn decided(&self) -> Option<StepOutcome> {
        if self.met >= VOTES {
            Some(StepOutcome::Met)
        } else if self.missed >= VOTES {
            Some(StepOutcome::Missed)
        } else if self.rejected >= VOTES {
            Some(StepOutcome::Rejected)
        } else {
            None
        }
    }

    /// The tendency of the votes.
    fn leaning(&self) -> StepOutcome {
        self.decided().unwrap_or({
            if self.met > 0 && self.missed + self.rejected == 0 {
                StepOutcome::Met
            } else if self.missed >= self.rejected {
                StepOutcome::Missed
            } else {
                StepOutcome::Rejected
            }
        })
    }

    /// Whether a vote against it is open.
    fn is_doubtful(&self) -> bool {
        self.decided().is_none() && self.missed + self.rejected > 0
    }
}

/// A search in progress.
#[derive(Debug)]
struct Bracket {
    first_per_s: f64,
    precision: f64,
    tried: Vec<Tried>,
    steps: u32,
}

impl Bracket {
    /// Begins at `first_per_s`; ends when the two rates differ by no more than `precision`.
    fn new(first_per_s: f64, precision: f64) -> Self {
        Self {
            first_per_s,
            precision,
            tried: Vec::new(),
            steps: 0,
        }
    }

    /// The rate of the next step, or why there is none.
    fn next(&self) -> Result<f64, SearchEnd> {
        if self.steps >= STEPS_MAX {
            return Err(SearchEnd::Unsteady);
        }
        if let Some(doubtful) = self.tried.iter().find(|tried| tried.is_doubtful()) {
            return Ok(doubtful.per_s);
        }
        match (self.lowest_failed(), self.highest_held()) {
            (None, None) => Ok(self.first_per_s),
            (None, Some(held)) => {
                let up_per_s = held.per_s * CLIMB;
                if up_per_s <= RATE_PER_S_MAX {
                    Ok(up_per_s)
                } else {
                    Err(SearchEnd::GeneratorLimit)
                }
            }
            (Some(failed), None) => {
                let down_per_s = failed.per_s / DESCENT;
                if down_per_s >= self.first_per_s * FLOOR_SHARE {
                    Ok(down_per_s)
                } else {
                    Err(SearchEnd::NoneHolds)
                }
            }
            (Some(failed), Some(held)) => self.between(&held, &failed),
        }
    }

    fn between(&self, held: &Tried, failed: &Tried) -> Result<f64, SearchEnd> {
        if failed.per_s > held.per_s * (1.0 + self.precision) {
            return Ok((failed.per_s * held.per_s).sqrt());
        }
        match (held.decided(), failed.decided()) {
            (None, _) => Ok(held.per_s),
            _ if failed.missed + failed.rejected < VOTES_ABOVE => Ok(failed.per_s),
            (_, Some(StepOutcome::Rejected)) => Err(SearchEnd::GeneratorLimit),
            _ => Err(SearchEnd::Found),
        }
    }

    /// A step at `per_s` has ended.
    fn observe(&mut self, per_s: f64, outcome: StepOutcome) {
        self.steps += 1;
        let place = self.tried.iter().position(|tried| tried.per_s == per_s);
        let place = place.unwrap_or_else(|| {
            self.tried.push(Tried {
                per_s,
                met: 0,
                missed: 0,
                rejected: 0,
            });
            self.tried.len() - 1
        });
        let tried = &mut self.tried[place];
        match outcome {
            StepOutcome::Met => tried.met += 1,
            StepOutcome::Missed => tried.missed += 1,
            StepOutcome::Rejected => tried.rejected += 1,
        }
    }

    /// The highest rate that held, as far as known.
    fn low(&self) -> Option<f64> {
        self.highest_held().map(|tried| tried.per_s)
    }

    /// The lowest rate that did not.
    fn high(&self) -> Option<f64> {
        self.lowest_failed().map(|tried| tried.per_s)
    }

    /// Every tried rate, and the result or tendency of its votes.
    fn rates(&self) -> impl Iterator<Item = (f64, StepOutcome)> + '_ {
        self.tried
            .iter()
            .map(|tried| (tried.per_s, tried.leaning()))
    }

    fn lowest_failed(&self) -> Option<Tried> {
        let has_failed = |tried: &&Tried| {
            matches!(
                tried.decided(),
                Some(StepOutcome::Missed | StepOutcome::Rejected)
            )
        };
        let failed = self.tried.iter().filter(has_failed);
        failed
            .min_by(|one, other| one.per_s.total_cmp(&other.per_s))
            .copied()
    }

    /// Below the lowest that failed: a rate above it that held has been lucky.
    fn highest_held(&self) -> Option<Tried> {
        let limit_per_s = self.lowest_failed().map_or(f64::INFINITY, |one| one.per_s);
        let held = self
            .tried
            .iter()
            .filter(|tried| tried.leaning() == StepOutcome::Met && tried.per_s < limit_per_s);
        held.max_by(|one, other| one.per_s.total_cmp(&other.per_s))
            .copied()
    }
}

// The statement of one step about the target: that the rate holds, that it does not, or nothing.
//
// `search` asks after each run. A step that keeps its objectives counts even if the generator sent late, since that is
// inside the response time. One that misses them counts against the target only if the generator sent on time. How
// busy its threads were decides nothing: one that spins for its schedule is busy at any rate.

/// Share of the offered requests that may leave after the window before the rate counts as missed:
/// a target that keeps up leaves none behind, save for a stall at the very end.
const LATE_SHARE_MAX: f64 = 0.01;
/// Share of the offered requests by which those on their way may have become more in the window.
const GROWTH_SHARE_MAX: f64 = 0.005;
/// The number of requests on their way at one moment varies by its root; by so many times that, it does by chance.
const GROWTH_ROOTS: f64 = 2.0;

/// Judges a finished step, before whose window the rate was offered for `warm_up_ns`.
fn judge(record: &LoadRecord, slo: &Slo, warm_up_ns: u64) -> (StepOutcome, Vec<String>) {
    let mut reasons: Vec<String> = slo
        .judge(&facts_of(record))
        .into_iter()
        .filter(|outcome| !outcome.is_met)
        .map(|outcome| format!("{}: {}", outcome.objective, outcome.measured))
        .collect();
    reasons.extend(failures(record, slo));
    reasons.extend(missed_rate(record).or_else(|| growing_backlog(record, warm_up_ns)));
    if reasons.is_empty() {
        return (StepOutcome::Met, reasons);
    }
    match own_limit(record) {
        Some(reason) => (StepOutcome::Rejected, vec![reason]),
        None => {
            reasons.extend(busy_thread(record));
            (StepOutcome::Missed, reasons)
        }
    }
}

/// Without this, objectives about time alone would hold at any rate at which a target refuses what it
/// has no time for: a refusal is no response, and has no latency.
fn failures(record: &LoadRecord, slo: &Slo) -> Option<String> {
    let failed = record.errors.total();
    let share = failed as f64 / (record.requests + failed).max(1) as f64;
    (share > ERROR_SHARE_INVALID && !slo.limits_errors()).then(|| {
        format!(
            "{} of the requests failed; how many may is said with errors<SHARE",
            format_percent(share)
        )
    })
}

/// Without this, objectives about errors alone would hold at any rate: a backlog is no error.
fn missed_rate(record: &LoadRecord) -> Option<String> {
    let offered = record.offered.filter(|&offered| offered > 0)?;
    let late = record.sent_late + record.unsent;
    let share = late as f64 / offered as f64;
    (share > LATE_SHARE_MAX).then(|| {
        format!(
            "the rate was not kept: {} of the requests found no connection in time",
            format_percent(share)
        )
    })
}

/// A target that cannot keep up falls behind a little more every moment, and it takes until the end of
/// a long step for that to show in the latencies: the looser the objective and the shorter the step,
/// the further above the limit a rate would hold.
///
/// Requests that arrived and were not finished are the growth. By Little's law, rate times mean response time is what
/// is on its way at a usual moment; as far as the warm-up was too short for that to build up, the window has to.
fn growing_backlog(record: &LoadRecord, warm_up_ns: u64) -> Option<String> {
    let offered = record.offered.filter(|&offered| offered > 0)? as f64;
    let errors = &record.errors;
    let failed = errors.read + errors.write + errors.status + errors.validation;
    let gone = record.answered_in_window + failed + record.shed;
    let (per_ns, mean_ns) = (record.rate_per_s? / 1e9, record.response.mean());
    let (usual, built_up) = (per_ns * mean_ns, per_ns * warm_up_ns as f64);
    let growth = offered - gone as f64 - (usual - built_up).max(0.0);
    // At both ends of the window.
    let by_chance = GROWTH_ROOTS * (2.0 * usual + 1.0).sqrt();
    (growth > by_chance.max(GROWTH_SHARE_MAX * offered)).then(|| {
        format!(
            "the rate was not kept: {growth:.0} more requests were on their way at the end than at \
             the beginning"
        )
    })
}

/// Why a miss may not be the target's.
fn own_limit(record: &LoadRecord) -> Option<String> {
    let lateness = record.lateness.percentile(99.0);
    let response = record.response.percentile(99.0);
    if lateness > response / 2 && lateness > 0 {
        return Some(format!(
            "the generator sent late: p99 of its lateness is {}",
            format_duration_ns(lateness as f64)
        ));
    }
    let steal = record.steal_share?;
    (steal > STEAL_SHARE_INVALID).then(|| {
        format!(
            "the hypervisor withheld {} of the CPU time",
            format_percent(steal)
        )
    })
}

/// A note beside a miss.
fn busy_thread(record: &LoadRecord) -> Option<String> {
    (record.generator_cpu_share > CPU_SHARE_MAX).then(|| {
        format!(
            "a generator thread used {} of its CPU and sent on time all the same",
            format_percent(record.generator_cpu_share)
        )
    })
}

#[cfg(test)]
#[path = "tests/bracket.rs"]
mod bracket_tests;

#[cfg(test)]
#[path = "tests/step.rs"]
mod step_tests;
