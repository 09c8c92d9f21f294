//! The highest rate at which objectives hold: step up, bisect, vote again where it matters.
//!
//! On the path: `cli` calls [`find_max`]; it asks `bracket` for the next rate, makes one
//! [`run`](crate::run()) there, has `step` judge it, and tells the bracket, until that is narrow.
//! Every step is a run of its own, with a warm-up and new connections, so that the backlog of one
//! that was too fast is not in the next.
//!
//! Absent on purpose: interpolation. The answer is a rate that was offered and held, twice.
mod bracket;
mod step;
#[cfg(test)]
mod simulated;

use crate::arrivals::{Arrivals, Profile, Rate, Spacing};
use crate::config::{LoadConfig, Mode, Stop};
use crate::error::LoadError;
use crate::record::{Ended, LoadRecord};
use crate::run::{Progress, run};
use bracket::Bracket;
use millpond_measure::record::{
    CurvePoint, FORMAT_VERSION, SearchEnd, SearchReport, SearchStep, StepOutcome,
};
use millpond_measure::slo::Slo;
use std::sync::atomic::AtomicBool;

/// The first rate, as a share of what a closed loop reaches. The steps up from there are chosen not
/// to meet that figure itself: at exactly what a target can do, no vote is worth anything.
const FIRST_SHARE: f64 = 1.05 / 8.0;
/// Where to begin when a closed loop has not answered anything.
const FIRST_PER_S: f64 = 100.0;
/// Samples beyond the strictest percentile that make a step long enough.
const SAMPLES_BEYOND: u64 = 10;
/// A step is made longer for their sake, but at most so many times.
const STEP_STRETCH_MAX: u64 = 4;

/// How to search.
#[derive(Clone, Debug)]
pub struct SearchPlan {
    /// What has to be kept.
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

/// What a search tells while it runs.
#[derive(Clone, Copy, Debug)]
pub enum SearchNews<'a> {
    /// A run begins: at this rate, or as a closed loop.
    Begins {
        /// The rate, unless it is the closed loop.
        rate_per_s: Option<f64>,
    },
    /// How far that run is.
    Progress(&'a Progress),
    /// A step is over.
    Step(&'a SearchStep),
}

/// Searches with `config`, whose mode is not looked at and whose window is that of each step.
/// `stop` ends it as it ends a run, with what is known until then.
///
/// # Errors
/// If nothing was measured: a setting is wrong or the target cannot be reached. What fails once a step was
/// made ends the search, and the report says what.
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
                // What was measured before it is worth no less.
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

    /// What the connections can ask for at most, if the generator can.
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
        let (outcome, reasons) = step::judge(&record, &self.plan.slo, warm_up_ns);
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
