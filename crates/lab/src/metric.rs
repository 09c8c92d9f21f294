//! Values from the output of the user's own load program: `p99[ms]=regex:p99=([0-9.]+)`.
//!
//! `load_command` hands over what the program wrote and gets numbers. A name that we know
//! (`throughput`, `p50`, `p99`, `requests`) answers our questions; any other is a measure of its
//! own, with the unit and the direction that the user says. A metric that is not there, or no
//! number, fails the run.

use std::fmt;

use millpond_measure::record::{CustomQuantity, Quantity};
use millpond_measure::statistics::Direction;
use regex::Regex;

/// How a metric is written, for refusals.
pub const METRIC_FORM: &str = "NAME[UNIT,higher|lower]=regex:PATTERN or json:PATH";

/// One number of each run.
#[derive(Clone, Debug)]
pub struct Metric {
    /// As given.
    pub text: String,
    /// Its meaning.
    pub meaning: Meaning,
    source: Source,
}

/// The meaning of a metric's number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Meaning {
    /// A measure, after this many of its units make one of ours (1e6 for milliseconds).
    Measure(Quantity, f64),
    /// How many requests a run does, by which costs are divided.
    Requests,
}

#[derive(Clone, Debug)]
enum Source {
    Regex(Regex),
    /// Keys and indices, outermost first.
    Json(Vec<String>),
    /// A unit of the user's.
    Number(f64),
}

impl Metric {
    /// Reads a `--load-metric`; `Err` is a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let malformed = || format!("{text:?} is no metric: write {METRIC_FORM}");
        let (head, source) = text.split_once('=').ok_or_else(malformed)?;
        let (name, unit) = match head.split_once('[') {
            Some((name, rest)) => (name, Some(rest.strip_suffix(']').ok_or_else(malformed)?)),
            None => (head, None),
        };
        let meaning = Meaning::parse(name.trim(), unit)?;
        let source = Source::parse(source)?;
        if matches!(source, Source::Number(_)) && meaning != Meaning::Requests {
            return Err(format!(
                "{text:?}: a number that is always the same measures nothing; only requests=N may be"
            ));
        }
        Ok(Self {
            text: text.to_owned(),
            meaning,
            source,
        })
    }

    /// The value in `output`, in our unit; `Err` is a sentence.
    pub fn read(&self, output: &str) -> Result<f64, String> {
        let value = self
            .source
            .find(output)
            .map_err(|reason| format!("the metric {:?} {reason}", self.text))?;
        Ok(match self.meaning {
            Meaning::Measure(_, factor) => value * factor,
            Meaning::Requests => value,
        })
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Meaning {
    fn parse(name: &str, unit: Option<&str>) -> Result<Self, String> {
        let (unit, direction) = match unit.map(|words| words.split_once(',').unwrap_or((words, "")))
        {
            Some((unit, direction)) => (unit.trim(), direction.trim()),
            None => ("", ""),
        };
        let known = match name {
            "requests" if unit.is_empty() => return Ok(Self::Requests),
            "requests" => {
                return Err(format!(
                    "requests are counted one by one, not in {unit:?}: write requests=..."
                ));
            }
            "throughput" => Some((Quantity::Throughput, per_second(unit)?)),
            "p50" => Some((Quantity::ResponseP50, nanoseconds(name, unit)?)),
            "p99" => Some((Quantity::ResponseP99, nanoseconds(name, unit)?)),
            _ => None,
        };
        if let Some((quantity, factor)) = known {
            let is_good = match quantity.direction() {
                Direction::HigherIsBetter => ["", "higher"].contains(&direction),
                Direction::LowerIsBetter => ["", "lower"].contains(&direction),
            };
            return if is_good {
                Ok(Self::Measure(quantity, factor))
            } else {
                Err(format!(
                    "{name} cannot be {direction}; give yours another name"
                ))
            };
        }
        let direction = match direction {
            "higher" => Direction::HigherIsBetter,
            "lower" => Direction::LowerIsBetter,
            _ => {
                return Err(format!(
                    "{name:?} is a metric of yours (throughput, p50, p99 and requests are ours): say \
                     its unit and whether higher or lower is better, as in {name}[ms,lower]=..."
                ));
            }
        };
        let custom = CustomQuantity::new(name, unit, direction)
            .ok_or_else(|| format!("{name:?} needs a name and a unit without : and ."))?;
        Ok(Self::Measure(Quantity::Custom(custom), 1.0))
    }
}

fn nanoseconds(name: &str, unit: &str) -> Result<f64, String> {
    match unit {
        "ns" => Ok(1.0),
        "us" | "µs" => Ok(1e3),
        "ms" => Ok(1e6),
        "s" => Ok(1e9),
        _ => Err(format!(
            "{name} needs its unit (ns, us, ms or s), as in {name}[ms]=..."
        )),
    }
}

/// Units of a throughput: each a word for one response.
const ANSWERS: [&str; 16] = [
    "",
    "1",
    "r",
    "req",
    "reqs",
    "requests",
    "op",
    "ops",
    "operations",
    "q",
    "queries",
    "t",
    "tx",
    "transactions",
    "msgs",
    "messages",
];

/// Responses per second, neither in thousands nor per minute.
fn per_second(unit: &str) -> Result<f64, String> {
    let counted = unit
        .strip_suffix("/s")
        .or_else(|| unit.strip_suffix("/sec"))
        .or_else(|| unit.strip_suffix("ps").filter(|word| !word.is_empty()));
    if unit.is_empty() || counted.is_some_and(|counted| ANSWERS.contains(&counted)) {
        return Ok(1.0);
    }
    Err(format!(
        "throughput is in responses per second, as in throughput[req/s]=...; give what is in {unit:?} \
         another name"
    ))
}

impl Source {
    fn parse(text: &str) -> Result<Self, String> {
        if let Some(pattern) = text.strip_prefix("regex:") {
            return Regex::new(&format!("(?m){pattern}"))
                .map(Self::Regex)
                .map_err(|error| format!("the pattern {pattern:?} is none: {error}"));
        }
        if let Some(path) = text.strip_prefix("json:") {
            let parts = path.split(['.', '[', ']']).filter(|part| !part.is_empty());
            return Ok(Self::Json(parts.map(str::to_owned).collect()));
        }
        number(text)
            .filter(|number| *number > 0.0)
            .map(Self::Number)
            .ok_or_else(|| format!("{text:?} is neither regex:PATTERN nor json:PATH"))
    }

    fn find(&self, output: &str) -> Result<f64, String> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Regex(pattern) => {
                // The last one: programs print progress first, and their result at the end.
                let found = pattern.captures_iter(output).last();
                let found = found.ok_or("is not in what the load command wrote")?;
                let text = found.get(1).or_else(|| found.get(0));
                let text = text.map(|text| text.as_str()).unwrap_or_default();
                number(text).ok_or_else(|| format!("found {text:?}, which is no number"))
            }
            Self::Json(path) => {
                let value = json(output).ok_or("needs JSON, and the load command wrote none")?;
                let mut at = &value;
                for part in path {
                    let next = match part.parse::<usize>() {
                        Ok(index) if at.is_array() => at.get(index),
                        _ => at.get(part),
                    };
                    at = next.ok_or_else(|| format!("finds no {part:?} in the JSON"))?;
                }
                let value = at.as_f64().or_else(|| number(at.as_str()?));
                value.ok_or_else(|| format!("found {at}, which is no number"))
            }
        }
    }
}

/// The whole, or the last line that is JSON.
fn json(output: &str) -> Option<serde_json::Value> {
    serde_json::from_str(output).ok().or_else(|| {
        let lines = output
            .lines()
            .rev()
            .filter(|line| line.trim_start().starts_with(['{', '[']));
        lines
            .into_iter()
            .find_map(|line| serde_json::from_str(line).ok())
    })
}

/// `1,234.5` as well: programs write for people.
fn number(text: &str) -> Option<f64> {
    let plain: String = text
        .trim()
        .chars()
        .filter(|&letter| letter != ',')
        .collect();
    plain
        .parse::<f64>()
        .ok()
        .filter(|number| number.is_finite())
}

#[cfg(test)]
#[path = "tests/metric.rs"]
mod tests;
