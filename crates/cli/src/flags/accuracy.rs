//! How `millpond load` guards its own figures: stamps of the kernel, and an early end.

use clap::{ArgAction, Args};
use millpond_load::{AbortRule, LoadRecord, WarmUp};
use millpond_measure::slo::{Slo, SloPopulation};

use super::parse_duration_ns;

const SECOND_NS: u64 = 1_000_000_000;

/// The flags of accuracy.
#[derive(Args, Debug)]
#[command(next_help_heading = "Accuracy")]
pub(super) struct AccuracyFlags {
    /// Have the kernel stamp a sample of the responses as they arrive, which tells a generator that
    /// woke late from a slow server. Only --driver epoll has stamps
    #[arg(long, value_name = "on|off", value_parser = parse_switch, default_value = "on",
        action = ArgAction::Set)]
    pub(super) receive_stamps: bool,
    /// Send for so long before requests count; --print ndjson shows it all the same. auto: until
    /// throughput and median response time no longer change, or for LIMIT [default limit: 30s]
    #[arg(long, value_name = "TIME|auto[:LIMIT]", value_parser = parse_warm_up)]
    warm_up: Option<WarmUp>,
    /// End the run early, with exit status 5, when one of these comes true over --abort-over:
    /// errors>5%, p99>1s, rate<100, written as the objectives of --slo; several with commas
    #[arg(long, value_name = "CONDITIONS", conflicts_with = "find_max")]
    abort: Option<Slo>,
    /// How much of the run is judged together by --abort, in whole seconds
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, default_value = "5s",
        requires = "abort")]
    abort_over: u64,
}

/// When a warm-up ends that does not become steady.
const LIMIT_NS_DEFAULT: u64 = 30 * SECOND_NS;

fn parse_warm_up(text: &str) -> Result<WarmUp, String> {
    let Some(limit) = text.strip_prefix("auto") else {
        return parse_duration_ns(text).map(|duration_ns| WarmUp::Lasting { duration_ns });
    };
    let limit_ns = match limit.strip_prefix(':') {
        Some(limit) => parse_duration_ns(limit)?,
        None if limit.is_empty() => LIMIT_NS_DEFAULT,
        None => return Err("write a time, auto, or auto:LIMIT".to_owned()),
    };
    Ok(WarmUp::UntilSteady { limit_ns })
}

/// `on` or `off`.
pub(super) fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("write on or off".to_owned()),
    }
}

impl AccuracyFlags {
    /// What comes before the window.
    pub(super) fn warm_up(&self) -> WarmUp {
        self.warm_up.unwrap_or(WarmUp::Lasting { duration_ns: 0 })
    }

    /// What ends the run early.
    pub(super) fn abort_rule(&self, population: SloPopulation) -> Option<AbortRule> {
        let seconds = self.abort_over.div_ceil(SECOND_NS) as usize;
        let rule = |when: &Slo| AbortRule {
            when: when.clone().of(population),
            seconds,
        };
        self.abort.as_ref().map(rule)
    }

    /// What a run could not do that was asked for, if anything.
    pub(super) fn missing(&self, record: &LoadRecord) -> Option<String> {
        let has_answers = record.requests > 0;
        (self.receive_stamps && has_answers && record.wake_delay.is_empty()).then(|| {
            let why = match record.driver {
                "epoll" => "this kernel or kind of connection gives none",
                _ => "receives of io_uring bring none; --driver epoll has them",
            };
            format!("no kernel stamps of responses ({why}): wake delay is unknown")
        })
    }
}

#[cfg(test)]
#[path = "tests/accuracy.rs"]
mod tests;
