//! Service-level objectives: what a run has to keep, and whether it did.
//!
//! `millpond load --slo 'p99<5ms,errors<0.1%'` reads them before the run and asks after it. Times
//! are judged over all requests, and one that failed counts as slower than any objective: a target
//! must not keep its objectives by failing, quickly or slowly. Over successful requests alone
//! ([`SloPopulation::Successful`]) a request that timed out without a response counts with its
//! age, which is less than it would have taken.
//!
//! Nothing is interpolated: an objective is met by what was measured.

use crate::histogram::LatencyHistogram;
use crate::units::{
    UnitError, format_duration_ns, format_percent, format_rate, parse_count, parse_duration_ns,
};
use std::fmt;
use std::str::FromStr;

/// The results of a run, as far as objectives need them.
#[derive(Clone, Copy, Debug)]
pub struct SloFacts<'a> {
    /// From the intended start to the last byte; in a closed loop from the actual send.
    pub response: &'a LatencyHistogram,
    /// From the actual send to the last byte.
    pub service: &'a LatencyHistogram,
    /// From the intended start to the actual send.
    pub slip: &'a LatencyHistogram,
    /// Ages of requests that timed out, by their intended start.
    pub unanswered: &'a LatencyHistogram,
    /// Requests that failed or were dropped.
    pub failed: u64,
    /// Right responses a second.
    pub requests_per_s: f64,
}

/// Which requests the objectives about time are about.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum SloPopulation {
    /// All: those that failed are slower than any objective.
    #[default]
    All,
    /// Successful requests, and those without a response with their ages.
    Successful,
}

impl FromStr for SloPopulation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            "successful" => Ok(Self::Successful),
            _ => Err("it is all or successful".to_owned()),
        }
    }
}

/// All that one run has to keep.
#[derive(Clone, Debug, PartialEq)]
pub struct Slo {
    objectives: Vec<Objective>,
    population: SloPopulation,
}

/// One measure and its limit.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Objective {
    subject: Subject,
    is_upper: bool,
    /// Nanoseconds, a share of 1, or requests per second, as the subject is.
    limit: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Subject {
    Time(Clock, Figure),
    /// Share of the requests that failed or were dropped.
    Errors,
    /// Right responses a second.
    Rate,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Clock {
    Response,
    Service,
    Slip,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Figure {
    Percentile(f64),
    Mean,
    Max,
}

/// One objective after a run.
#[derive(Clone, Debug, PartialEq)]
pub struct SloOutcome {
    /// The objective, as `p99 < 5 ms`.
    pub objective: String,
    /// The measured value, in words.
    pub measured: String,
    /// Whether it was kept.
    pub is_met: bool,
}

impl Slo {
    /// The same about other requests.
    #[must_use]
    pub fn of(self, population: SloPopulation) -> Self {
        Self { population, ..self }
    }

    /// Whether failed requests decide about an objective as slow ones do.
    #[must_use]
    pub fn counts_failures_as_slow(&self) -> bool {
        let mut objectives = self.objectives.iter();
        self.population == SloPopulation::All
            && objectives.any(|objective| objective.subject.counts_failures())
    }

    /// The objectives in words, in their order.
    #[must_use]
    pub fn in_words(&self) -> Vec<String> {
        self.objectives.iter().map(Objective::to_string).collect()
    }

    /// Samples without which the strictest percentile rests on fewer than `beyond` of them.
    #[must_use]
    pub fn samples_min(&self, beyond: u64) -> u64 {
        let strictest = self
            .objectives
            .iter()
            .filter_map(|objective| match objective.subject {
                Subject::Time(_, Figure::Percentile(percent)) => Some(percent),
                _ => None,
            });
        let rest = 1.0 - strictest.fold(0.0, f64::max).min(99.999) / 100.0;
        (beyond as f64 / rest).ceil() as u64
    }

    /// Whether it says how many requests may fail.
    #[must_use]
    pub fn limits_errors(&self) -> bool {
        let mut objectives = self.objectives.iter();
        objectives.any(|objective| objective.subject == Subject::Errors)
    }

    /// Compares a run with every objective, in their order.
    #[must_use]
    pub fn judge(&self, facts: &SloFacts<'_>) -> Vec<SloOutcome> {
        let judge = |objective: &Objective| objective.judge(facts, self.population);
        self.objectives.iter().map(judge).collect()
    }
}

impl Objective {
    fn judge(&self, facts: &SloFacts<'_>, population: SloPopulation) -> SloOutcome {
        let measured = self.subject.measure(facts, population);
        // Nothing measured keeps no promise.
        let is_met = measured.is_some_and(|value| {
            if self.is_upper {
                value < self.limit
            } else {
                value > self.limit
            }
        });
        SloOutcome {
            objective: self.to_string(),
            measured: measured.map_or_else(
                || "nothing was measured".to_owned(),
                |value| self.subject.in_words(value, facts),
            ),
            is_met,
        }
    }
}

impl Subject {
    /// Whether failed requests are among those it is about. The time that they waited before they were sent is not
    /// known.
    fn counts_failures(self) -> bool {
        matches!(self, Self::Time(Clock::Response | Clock::Service, _))
    }

    /// Infinite where it is that of a failed request.
    fn measure(self, facts: &SloFacts<'_>, population: SloPopulation) -> Option<f64> {
        match self {
            Self::Rate => Some(facts.requests_per_s),
            Self::Errors => {
                let all = facts.failed + facts.response.count();
                (all > 0).then(|| facts.failed as f64 / all as f64)
            }
            Self::Time(clock, figure) => {
                let histogram = match clock {
                    Clock::Response => facts.response,
                    Clock::Service => facts.service,
                    Clock::Slip => facts.slip,
                };
                match population {
                    SloPopulation::All if self.counts_failures() => {
                        figure.with_failed(histogram, facts.failed)
                    }
                    SloPopulation::Successful if clock == Clock::Response => {
                        let mut histogram = histogram.clone();
                        histogram.merge(facts.unanswered);
                        figure.of(&histogram)
                    }
                    _ => figure.of(histogram),
                }
            }
        }
    }

    /// A figure that is that of a failed request, with what it is without them.
    fn in_words(self, value: f64, facts: &SloFacts<'_>) -> String {
        if value.is_finite() {
            return self.format(value);
        }
        let all = facts.failed + facts.response.count();
        let share = format_percent(facts.failed as f64 / all.max(1) as f64);
        let successful = self.measure(facts, SloPopulation::Successful);
        let successful = successful.map_or_else(String::new, |value| {
            format!("; {} of successful ones", self.format(value))
        });
        format!("a failed request, {share} failed{successful}")
    }

    fn format(self, value: f64) -> String {
        match self {
            Self::Time(..) => format_duration_ns(value),
            Self::Errors => format_percent(value),
            Self::Rate => format_rate(value),
        }
    }
}

impl Figure {
    fn of(self, times: &LatencyHistogram) -> Option<f64> {
        (!times.is_empty()).then(|| match self {
            Self::Percentile(percent) => times.percentile(percent) as f64,
            Self::Mean => times.mean(),
            Self::Max => times.max() as f64,
        })
    }

    /// With `failed` more that took longer than any.
    fn with_failed(self, times: &LatencyHistogram, failed: u64) -> Option<f64> {
        if failed == 0 {
            return self.of(times);
        }
        let Self::Percentile(percent) = self else {
            return Some(f64::INFINITY);
        };
        let answered = times.count();
        // The rank of the percentile among all, from 1, as a histogram counts.
        let rank = (percent / 100.0 * (answered + failed) as f64)
            .ceil()
            .max(1.0);
        if rank > answered as f64 {
            return Some(f64::INFINITY);
        }
        // Half a rank below it, so that rounding does not reach the next one.
        Some(times.percentile((rank - 0.5) / answered as f64 * 100.0) as f64)
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.is_upper { '<' } else { '>' };
        let limit = self.subject.format(self.limit);
        match self.subject {
            Subject::Errors => write!(formatter, "errors {sign} {limit}"),
            Subject::Rate => write!(formatter, "rate {sign} {limit}"),
            Subject::Time(clock, figure) => {
                match clock {
                    Clock::Response => {}
                    Clock::Service => formatter.write_str("service ")?,
                    Clock::Slip => formatter.write_str("slip ")?,
                }
                match figure {
                    Figure::Percentile(percent) => write!(formatter, "p{percent}")?,
                    Figure::Mean => formatter.write_str("mean")?,
                    Figure::Max => formatter.write_str("max")?,
                }
                write!(formatter, " {sign} {limit}")
            }
        }
    }
}

impl FromStr for Slo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let objectives: Result<Vec<Objective>, String> =
            text.split(',').map(|one| one.trim().parse()).collect();
        objectives.map(|objectives| Self {
            objectives,
            population: SloPopulation::default(),
        })
    }
}

impl FromStr for Objective {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let example = "write it as p99<5ms, errors<0.1%, rate>1k or service.p50<200us";
        let at = text
            .find(['<', '>'])
            .ok_or_else(|| format!("{text:?} compares nothing: {example}"))?;
        let (name, limit) = (text[..at].trim(), text[at + 1..].trim());
        let is_upper = text.as_bytes()[at] == b'<';
        let subject = parse_subject(name).ok_or_else(|| format!("{name:?}: {example}"))?;
        let limit = match subject {
            Subject::Time(..) => parse_duration_ns(limit).map(|limit_ns| limit_ns as f64),
            Subject::Rate => parse_rate_per_s(limit),
            Subject::Errors => {
                return parse_share(limit).map(|limit| Self {
                    subject,
                    is_upper,
                    limit,
                });
            }
        };
        let limit = limit.map_err(|error| error.to_string())?;
        Ok(Self {
            subject,
            is_upper,
            limit,
        })
    }
}

/// `1k`, `0.9`, `2.5k`.
fn parse_rate_per_s(text: &str) -> Result<f64, UnitError> {
    let plain = text.parse::<f64>().ok();
    match plain.filter(|per_s| per_s.is_finite() && *per_s >= 0.0) {
        Some(per_s) => Ok(per_s),
        None => parse_count(text).map(|per_s| per_s as f64),
    }
}

fn parse_subject(name: &str) -> Option<Subject> {
    match name {
        "errors" => return Some(Subject::Errors),
        "rate" => return Some(Subject::Rate),
        _ => {}
    }
    let (clock, figure) = match name.split_once('.') {
        Some(("response", figure)) => (Clock::Response, figure),
        Some(("service", figure)) => (Clock::Service, figure),
        Some(("slip", figure)) => (Clock::Slip, figure),
        // The point may be that of p99.9.
        _ => (Clock::Response, name),
    };
    let figure = match figure {
        "mean" => Figure::Mean,
        "max" => Figure::Max,
        _ => {
            let digits = figure.strip_prefix('p')?;
            let is_plain = digits
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b'.');
            let percent: f64 = digits.parse().ok().filter(|_| is_plain)?;
            (percent <= 100.0).then_some(Figure::Percentile(percent))?
        }
    };
    Some(Subject::Time(clock, figure))
}

/// `0.1%`, or a share of 1: `0.001`.
///
/// # Errors
/// A sentence with an example, if it is neither or lies outside 0 to 1.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let (digits, scale) = match text.strip_suffix('%') {
        Some(digits) => (digits.trim(), 100.0),
        None => (text, 1.0),
    };
    let share = digits.parse::<f64>().ok().map(|value| value / scale);
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| format!("{text:?} is not a share: write 0.1% or 0.001"))
}

#[cfg(test)]
#[path = "tests/slo.rs"]
mod tests;
