//! `millpond load --find-max`: the highest rate at which objectives hold.

use std::sync::{Mutex, PoisonError};

use clap::Args;
use millpond_load::{LoadConfig, SearchNews, SearchPlan, Spacing, Stop, WarmUp, find_max};
use millpond_measure::record::{SearchEnd, SearchReport, SearchStep};
use millpond_measure::report::curve;
use millpond_measure::slo::{Slo, parse_share};
use millpond_measure::units::{format_duration_ns, format_rate};

use crate::output;
use crate::output::{Exit, JsonFile, Progress};

use super::{Failure, interrupt_flag};

/// Counted time of a step, unless --duration says otherwise.
const STEP_NS_DEFAULT: u64 = 2_000_000_000;
/// Uncounted time before it, as a share of it: one over this.
const WARM_UP_SHARE: u64 = 4;
/// Closer than this, a longer run would be needed to distinguish two rates.
const PRECISION_MIN: f64 = 0.001;

/// The flags of a search.
#[derive(Args, Debug)]
#[command(next_help_heading = "Search for the highest rate")]
pub(super) struct FindMaxFlags {
    /// Find the highest rate that keeps these objectives, written as those of --slo: step up from
    /// --rate (or an eighth of what a closed loop reaches), then bisect. Prints latency as a function
    /// of load. Each step counts for --duration [default: 2s], after --warm-up [default: a quarter of it]
    #[arg(long, value_name = "OBJECTIVES",
        conflicts_with_all = ["script", "slo", "requests", "trace", "bursts", "deadline", "print", "latency", "uncorrected",
            "report", "percentages", "gnuplot", "batch_latency"])]
    pub(super) find_max: Option<Slo>,
    /// How close the highest rate that holds and the lowest that does not have to lie at the end
    #[arg(long, value_name = "SHARE", value_parser = parse_precision, default_value = "1%",
        requires = "find_max")]
    precision: f64,
}

fn parse_precision(text: &str) -> Result<f64, String> {
    let share = parse_share(text)?;
    if (PRECISION_MIN..=0.5).contains(&share) {
        Ok(share)
    } else {
        Err("a precision is from 0.1% to 50%".to_owned())
    }
}

/// What the other flags say about a search.
pub(super) struct SearchOptions {
    pub(super) url: String,
    /// `--rate`.
    pub(super) first_per_s: Option<f64>,
    pub(super) spacing: Spacing,
    pub(super) seed: u64,
    /// `--duration`.
    pub(super) step_ns: Option<u64>,
    pub(super) json: Option<JsonFile>,
}

impl FindMaxFlags {
    /// Searches, and prints what was found.
    pub(super) fn run(
        &self,
        slo: Slo,
        config: LoadConfig,
        wishes: SearchOptions,
    ) -> Result<Exit, Failure> {
        let step_ns = wishes.step_ns.unwrap_or(STEP_NS_DEFAULT);
        let duration_ns = match config.warm_up {
            WarmUp::Lasting { duration_ns: 0 } => step_ns / WARM_UP_SHARE,
            WarmUp::Lasting { duration_ns } => duration_ns,
            WarmUp::UntilSteady { .. } => {
                return Err(Failure::usage(
                    "each step of --find-max has a warm-up of the same length: give --warm-up TIME",
                ));
            }
        };
        let config = LoadConfig {
            stop: Stop::after_ns(step_ns),
            warm_up: WarmUp::Lasting { duration_ns },
            ..config
        };
        let plan = SearchPlan {
            slo,
            first_per_s: wishes.first_per_s,
            spacing: wishes.spacing,
            seed: wishes.seed,
            precision: self.precision,
        };
        let stop = interrupt_flag()?;
        output::print(curve::header(&announced(&config, &plan, &wishes.url)))?;
        let progress = Mutex::new((Progress::new(), String::new()));
        let watch = |news: &SearchNews<'_>| {
            // Poisoned only if showing progress panicked, which loses progress, not the search.
            if let Ok(mut guard) = progress.lock() {
                show(&mut guard, news);
            }
        };
        let report = find_max(&config, &plan, &watch, &stop).map_err(Failure::failed)?;
        let (mut progress, _) = progress
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        progress.clear();
        let report = SearchReport {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            url: wishes.url,
            ..report
        };
        output::print(curve::results(&report))?;
        if let Some(file) = &wishes.json {
            file.write(&report.to_json().map_err(Failure::failed)?)?;
        }
        Ok(exit_of(&report))
    }
}

/// The record as far as it is known before the first step.
fn announced(config: &LoadConfig, plan: &SearchPlan, url: &str) -> SearchReport {
    let narrow = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    SearchReport {
        url: url.to_owned(),
        objectives: plan.slo.in_words(),
        threads: narrow(config.threads),
        connections: narrow(config.connections),
        arrivals: plan.spacing.to_string(),
        step_ns: config.stop.duration_ns.unwrap_or_default(),
        warm_up_ns: config.warm_up.known_ns(),
        ..SearchReport::default()
    }
}

fn show((progress, phase): &mut (Progress, String), news: &SearchNews<'_>) {
    match news {
        SearchNews::Begins { rate_per_s } => {
            *phase = rate_per_s.map_or_else(
                || "closed loop".to_owned(),
                |per_s| format!("offering {}", format_rate(per_s)),
            );
            progress.update(&*phase);
        }
        SearchNews::Progress(now) => {
            let phase = &*phase;
            progress.update(format!("{phase}: {} answered", format_rate(now.rate_per_s)));
        }
        SearchNews::Step(step) => progress.line(step_line(step)),
    }
}

fn step_line(step: &SearchStep) -> String {
    let mut line = format!(
        "{}: {}, p99 {}",
        format_rate(step.rate_per_s),
        step.outcome.label(),
        format_duration_ns(step.response_ns.p99 as f64)
    );
    if !step.reasons.is_empty() {
        line += &format!(" ({})", step.reasons.join("; "));
    }
    line
}

/// A search without a result, or one that did not find the target's limit, must not look like success to a script.
fn exit_of(report: &SearchReport) -> Exit {
    let has_answers = report.steps.iter().any(|step| step.requests > 0);
    match report.ended {
        SearchEnd::Interrupted => Exit::Interrupted,
        SearchEnd::TargetGone | SearchEnd::Failed => Exit::Failed,
        _ if !has_answers => {
            output::note("no request succeeded");
            Exit::Failed
        }
        SearchEnd::Found => Exit::Success,
        SearchEnd::NoneHolds => Exit::SloMissed,
        SearchEnd::GeneratorLimit | SearchEnd::Unsteady => Exit::NotTrusted,
    }
}

#[cfg(test)]
#[path = "tests/find_max.rs"]
mod tests;
