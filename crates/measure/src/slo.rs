//! Service-level objectives: what a run has to keep, and whether it did.
//!
//! On the path: `millpond load --slo 'p99<5ms,errors<0.1%'` reads them before the run and asks after
//! it. Times are judged over all requests, and one that failed counts as slower than any objective: a target must not
//! keep its objectives by failing, quickly or slowly. Over successful requests alone ([`SloPopulation::Successful`])
//! a request that was given up without an answer counts with its age, which is less than it would have taken.
//!
//! Nothing is interpolated: an objective is met by what was measured.

use crate::histogram::LatencyHistogram;
use crate::units::{
    UnitError, format_duration_ns, format_percent, format_rate, parse_count, parse_duration_ns,
};
use std::fmt;
use std::str::FromStr;

/// What a run came to, as far as objectives ask.
#[derive(Clone, Copy, Debug)]
pub struct SloFacts<'a> {
    /// From the intended start to the last byte; in a closed loop from the actual send.
    pub response: &'a LatencyHistogram,
    /// From the actual send to the last byte.
    pub service: &'a LatencyHistogram,
    /// From the intended start to the actual send.
    pub slip: &'a LatencyHistogram,
    /// Ages of requests that were given up, by their intended start.
    pub unanswered: &'a LatencyHistogram,
    /// Requests that failed or were given up.
    pub failed: u64,
    /// Right answers a second.
    pub requests_per_s: f64,
}

/// Which requests the objectives about time are about.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum SloPopulation {
    /// All: those that failed are slower than any objective.
    #[default]
    All,
    /// Those that were answered rightly, and those without an answer with their ages.
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
    /// Share of the requests that failed or were given up.
    Errors,
    /// Right answers a second.
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
    /// What was measured, in words.
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
    /// Whether failed requests are among those it is about. What they waited for before they were sent is not known.
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
mod tests {
    use super::*;

    fn times(values_ms: impl IntoIterator<Item = u64>) -> LatencyHistogram {
        let mut histogram = LatencyHistogram::new();
        values_ms
            .into_iter()
            .for_each(|value_ms| histogram.record(value_ms * 1_000_000));
        histogram
    }

    fn judged(slo: &str, unanswered: &LatencyHistogram, failed: u64) -> Vec<bool> {
        judged_of(SloPopulation::All, slo, unanswered, failed)
    }

    fn judged_of(
        population: SloPopulation,
        slo: &str,
        unanswered: &LatencyHistogram,
        failed: u64,
    ) -> Vec<bool> {
        let (response, service) = (times(1..=100), times(1..=50));
        let facts = SloFacts {
            response: &response,
            service: &service,
            slip: &times([]),
            unanswered,
            failed,
            requests_per_s: 1_000.0,
        };
        let slo = slo.parse::<Slo>().unwrap().of(population);
        let outcomes = slo.judge(&facts);
        outcomes.iter().map(|outcome| outcome.is_met).collect()
    }

    /// Goal: each measure is compared with its own limit, on the side that was asked for.
    #[test]
    fn objectives_are_judged_one_by_one() {
        let nobody = times([]);
        let slo =
            "p50<60ms,p50<40ms,p99.9<101ms,max<100ms,service.p99<51ms,mean>50ms,rate>999,rate>1k";
        let expected = [true, false, true, false, true, true, true, false];
        assert_eq!(judged(slo, &nobody, 0), expected);
        assert_eq!(judged("errors<1%, errors<0.5%", &nobody, 1), [true, false]);
        // There was no open loop: a promise about slip is not kept by silence.
        assert_eq!(judged("slip.p99<1s", &nobody, 0), [false]);
    }

    /// Goal: requests that were never answered do not make the tail of the successful ones look better.
    #[test]
    fn the_unanswered_count_with_their_age() {
        let judged = |slo, unanswered: &LatencyHistogram, failed| {
            judged_of(SloPopulation::Successful, slo, unanswered, failed)
        };
        assert_eq!(judged("p90<95ms", &times([]), 0), [true]);
        assert_eq!(judged("p90<95ms", &times([]), 20), [true]);
        assert_eq!(judged("p90<95ms", &times([500; 20]), 20), [false]);
        assert_eq!(judged("service.p90<95ms", &times([500; 20]), 20), [true]);
    }

    /// `p99<5ms` was met while 4 % of the answers were 503s after 20 ms.
    ///
    /// Goal: each failed request takes a place among the slowest, of every clock that has an end; the figure beside
    /// it is that of the successful ones.
    #[test]
    fn failed_requests_are_slower_than_any_objective() {
        let none = times([]);
        // 100 right answers of 1 to 100 ms, and as many failures as make 4 % of all.
        assert_eq!(
            judged("p99<1h,p96.2<1h,max<1h,mean<1h", &none, 4),
            [false; 4]
        );
        assert_eq!(
            judged("p96<101ms,p50<60ms,p50<51ms", &none, 4),
            [true, true, false]
        );
        assert_eq!(judged("service.p99<1h", &none, 4), [false]);
        assert_eq!(judged("p99<101ms,max<101ms", &none, 0), [true, true]);
        let response = times(1..=100);
        let facts = SloFacts {
            response: &response,
            service: &response,
            slip: &none,
            unanswered: &none,
            failed: 4,
            requests_per_s: 1.0,
        };
        let slo: Slo = "p99<1h".parse().unwrap();
        let measured = &slo.judge(&facts)[0].measured;
        for part in ["a failed request", "failed", "99", "of successful ones"] {
            assert!(measured.contains(part), "{part}: {measured}");
        }
        assert!(slo.counts_failures_as_slow());
        assert!(!slo.of(SloPopulation::Successful).counts_failures_as_slow());
        let slip: Slo = "slip.p99<1h,errors<1%".parse().unwrap();
        assert!(!slip.counts_failures_as_slow());
    }

    /// Goal: a rate may be less than one a second.
    #[test]
    fn rates_may_be_fractions() {
        assert_eq!(
            judged("rate>999.5,rate>1000.5", &times([]), 0),
            [true, false]
        );
        assert_eq!(judged("rate>0.9,rate<0.9", &times([]), 0), [true, false]);
        for text in ["rate>-1", "rate>nan", "rate>inf", "rate>"] {
            assert!(text.parse::<Slo>().is_err(), "{text}");
        }
    }

    /// Goal: a percentile asks for as many samples as lie beyond it, the strictest one decides.
    #[test]
    fn strict_percentiles_need_many_samples() {
        let samples = |slo: &str| slo.parse::<Slo>().unwrap().samples_min(10);
        assert_eq!(samples("errors<1%"), 10);
        assert_eq!(samples("p50<1s"), 20);
        assert!((999..=1001).contains(&samples("p50<1s,p99<1s")));
        assert!(samples("p100<1s") < 1_100_000);
    }

    #[test]
    fn outcomes_can_be_read() {
        let slo: Slo = "p99.9<5ms,errors<0.1%,service.max<1s,rate>2k"
            .parse()
            .unwrap();
        let (empty, some) = (times([]), times([7]));
        let facts = SloFacts {
            response: &some,
            service: &empty,
            slip: &empty,
            unanswered: &empty,
            failed: 0,
            requests_per_s: 1.0,
        };
        let outcomes = slo.judge(&facts);
        let words: Vec<&str> = outcomes.iter().map(|one| one.objective.as_str()).collect();
        assert_eq!(words[0], "p99.9 < 5.00 ms");
        assert!(words[1].starts_with("errors < 0.1"), "{}", words[1]);
        assert!(words[2].starts_with("service max < 1"), "{}", words[2]);
        assert!(words[3].starts_with("rate > 2"), "{}", words[3]);
        assert!(outcomes[0].measured.contains("ms") && !outcomes[0].is_met);
        assert_eq!(outcomes[2].measured, "nothing was measured");
    }

    #[test]
    fn wrong_objectives_are_refused_with_an_example() {
        for text in [
            "",
            "p99",
            "p99<",
            "p99<fast",
            "p101<1s",
            "px<1s",
            "errors<5ms",
            "errors<200%",
            "rate>fast",
            "other.p99<1s",
            "p99<1s,",
            "p-1<1s",
        ] {
            let parsed: Result<Slo, String> = text.parse();
            assert!(parsed.is_err(), "{text}");
        }
        let error = "p99=5ms".parse::<Slo>().unwrap_err();
        assert!(error.contains("p99<5ms"), "{error}");
    }
}
