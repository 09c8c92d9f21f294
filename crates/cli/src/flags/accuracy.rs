//! How `millpond load` guards its own figures: stamps of the kernel, and an early end.
//!
//! Absent on purpose: the verdict (`millpond_load`), which no flag can turn off.

use super::parse_duration_ns;
use clap::{ArgAction, Args};
use millpond_load::{AbortRule, LoadRecord, WarmUp};
use millpond_measure::slo::{Slo, SloPopulation};

const SECOND_NS: u64 = 1_000_000_000;

/// The flags of accuracy.
#[derive(Args, Debug)]
#[command(next_help_heading = "Accuracy")]
pub(super) struct AccuracyFlags {
    /// Have the kernel stamp a sample of the answers as they arrive, which tells a generator that
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
            format!("no kernel stamps of answers ({why}): wake delay is unknown")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: stamps that were asked for and did not come are missed in one line, for either reason.
    #[test]
    fn missing_stamps_are_told() {
        let flags = |receive_stamps| AccuracyFlags {
            receive_stamps,
            warm_up: None,
            abort: None,
            abort_over: SECOND_NS,
        };
        let record = |driver| LoadRecord {
            requests: 1,
            driver,
            ..LoadRecord::default()
        };
        let told = |driver| flags(true).missing(&record(driver)).unwrap();
        assert!(
            told("uring").contains("--driver epoll"),
            "{}",
            told("uring")
        );
        assert!(told("epoll").contains("this kernel"), "{}", told("epoll"));
        assert_eq!(flags(false).missing(&record("uring")), None);
        let mut stamped = record("epoll");
        stamped.wake_delay.record(1);
        assert_eq!(flags(true).missing(&stamped), None);
        assert!(parse_switch("maybe").is_err());
    }

    #[test]
    fn warm_ups_last_or_end_by_themselves() {
        let lasting = |duration_ns| Ok(WarmUp::Lasting { duration_ns });
        let until_steady = |limit_ns| Ok(WarmUp::UntilSteady { limit_ns });
        assert_eq!(parse_warm_up("2s"), lasting(2 * SECOND_NS));
        assert_eq!(parse_warm_up("auto"), until_steady(30 * SECOND_NS));
        assert_eq!(parse_warm_up("auto:5s"), until_steady(5 * SECOND_NS));
        for bad in ["", "auto5s", "auto:", "automatic", "soon"] {
            assert!(parse_warm_up(bad).is_err(), "{bad}");
        }
    }
}
