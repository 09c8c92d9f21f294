//! When a run is not worth going on with: too many failures, or answers far too late.
//!
//! On the path: the supervising thread shows every second of the run to the watch, which judges the
//! last few of them together; `run` ends the run when one of the conditions has come true.
//! Absent on purpose: conditions about the generator. A run that cannot be trusted says so itself.
use crate::timeline::{Clocks, Second};
use millpond_measure::histogram::LatencyHistogram;
use millpond_measure::record::RunPart;
use millpond_measure::slo::{Slo, SloFacts};
use std::collections::VecDeque;

const SECOND_NS: u64 = 1_000_000_000;

/// Ends a run early.
#[derive(Clone, Debug, PartialEq)]
pub struct AbortRule {
    /// Any of these coming true ends it: `errors > 5 %`, `p99 > 1 s`.
    pub when: Slo,
    /// How many seconds are judged together; a shorter run is not judged.
    pub seconds: usize,
}

/// One second as far as conditions ask.
struct Kept {
    clocks: Clocks,
    /// Requests that were given up after the timeout, which is less than they would have taken.
    timeouts: u64,
    failed: u64,
    requests: u64,
    duration_ns: u64,
}

/// The last seconds of a run.
pub(crate) struct AbortWatch<'run> {
    rule: Option<&'run AbortRule>,
    timeout_ns: u64,
    kept: VecDeque<Kept>,
    /// Which condition came true, and what was measured.
    pub(crate) reason: Option<String>,
}

impl<'run> AbortWatch<'run> {
    pub(crate) fn new(rule: Option<&'run AbortRule>, timeout_ns: u64) -> Self {
        Self {
            rule,
            timeout_ns,
            kept: VecDeque::new(),
            reason: None,
        }
    }

    /// A second is over.
    pub(crate) fn second(&mut self, second: &Second<'_>) {
        let Some(rule) = self.rule else { return };
        let figures = second.figures;
        if figures.part == RunPart::Drain || self.reason.is_some() {
            return;
        }
        self.kept.push_back(Kept {
            clocks: second.clocks.clone(),
            timeouts: figures.errors.timeout,
            failed: figures.errors.total() + figures.shed,
            requests: figures.requests,
            duration_ns: figures.duration_ns,
        });
        // Where a part of the run or a set of connections ends, seconds are shorter.
        let wanted_ns = rule.seconds as u64 * SECOND_NS;
        let mut span_ns: u64 = self.kept.iter().map(|kept| kept.duration_ns).sum();
        while let Some(oldest) = self.kept.front()
            && span_ns - oldest.duration_ns >= wanted_ns
        {
            span_ns -= oldest.duration_ns;
            self.kept.pop_front();
        }
        if span_ns >= wanted_ns {
            self.reason = self.judge(&rule.when, span_ns);
        }
    }

    fn judge(&self, when: &Slo, span_ns: u64) -> Option<String> {
        let mut clocks = Clocks::default();
        let mut unanswered = LatencyHistogram::new();
        let (mut failed, mut requests) = (0, 0);
        for kept in &self.kept {
            clocks.merge(&kept.clocks);
            unanswered.record_many(self.timeout_ns, kept.timeouts);
            failed += kept.failed;
            requests += kept.requests;
        }
        let outcomes = when.judge(&SloFacts {
            response: &clocks.response,
            service: &clocks.service,
            slip: &clocks.slip,
            unanswered: &unanswered,
            failed,
            requests_per_s: requests as f64 * 1e9 / span_ns.max(1) as f64,
        });
        let true_one = outcomes.into_iter().find(|outcome| outcome.is_met)?;
        Some(format!(
            "{}: {} over {} s",
            true_one.objective,
            true_one.measured,
            span_ns.div_ceil(SECOND_NS)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millpond_measure::record::{LoadErrors, LoadSecond};

    const MS_NS: u64 = 1_000_000;

    fn show(watch: &mut AbortWatch<'_>, part: RunPart, answer_ms: u64, timeouts: u64) {
        let mut clocks = Clocks::default();
        clocks.response.record_many(answer_ms * MS_NS, 100);
        let figures = LoadSecond {
            part,
            requests: 100,
            duration_ns: 1_000 * MS_NS,
            errors: LoadErrors {
                timeout: timeouts,
                ..LoadErrors::default()
            },
            ..LoadSecond::default()
        };
        watch.second(&Second {
            figures: &figures,
            clocks: &clocks,
        });
    }

    /// Goal: shorter seconds, as at the end of a set of connections, do not make the judgement one of less time.
    #[test]
    fn shorter_seconds_count_as_what_they_are() {
        let rule = rule("errors>5%", 2);
        let mut watch = AbortWatch::new(Some(&rule), 0);
        let clocks = Clocks::default();
        let figures = LoadSecond {
            part: RunPart::Window,
            requests: 1,
            duration_ns: 700 * MS_NS,
            errors: LoadErrors {
                read: 1,
                ..LoadErrors::default()
            },
            ..LoadSecond::default()
        };
        let mut show = || {
            watch.second(&Second {
                figures: &figures,
                clocks: &clocks,
            });
            watch.reason.is_some()
        };
        assert!(!show() && !show() && show());
    }

    fn rule(when: &str, seconds: usize) -> AbortRule {
        AbortRule {
            when: when.parse().unwrap(),
            seconds,
        }
    }

    /// Goal: conditions are judged over the seconds asked for, warm-up included, the drain not.
    #[test]
    fn a_bad_stretch_is_noticed_and_a_bad_second_is_not() {
        let rule = rule("errors>5%", 3);
        let mut watch = AbortWatch::new(Some(&rule), 0);
        show(&mut watch, RunPart::WarmUp, 1, 0);
        show(&mut watch, RunPart::WarmUp, 1, 0);
        show(&mut watch, RunPart::Window, 1, 10);
        assert_eq!(watch.reason, None, "10 of 310");
        show(&mut watch, RunPart::Drain, 1, 1_000);
        assert_eq!(watch.reason, None);
        show(&mut watch, RunPart::Window, 1, 20);
        let reason = watch.reason.clone().unwrap();
        assert!(reason.starts_with("errors > 5 %: 9.1 %"), "{reason}");
        assert!(reason.ends_with("over 3 s"), "{reason}");
    }

    /// Goal: a target that answers nothing in time is slow, though no answer was: its timeouts count
    /// with their age. Without a rule nothing is kept.
    #[test]
    fn silence_is_slow() {
        let rule = rule("errors>99%,p90>1s", 1);
        let mut watch = AbortWatch::new(Some(&rule), 2_000 * MS_NS);
        show(&mut watch, RunPart::Window, 1, 5);
        assert_eq!(watch.reason, None);
        show(&mut watch, RunPart::Window, 1, 50);
        assert!(watch.reason.clone().unwrap().starts_with("p90 > 1.00 s"));
        let mut nobody = AbortWatch::new(None, 0);
        show(&mut nobody, RunPart::Window, 1, 1_000_000);
        assert!(nobody.reason.is_none() && nobody.kept.is_empty());
    }
}
