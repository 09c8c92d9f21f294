//! When requests leave: `--rate` with steps and ramps, `--arrivals`, `--bursts`, `--trace`.

use std::path::PathBuf;

use clap::Args;
use millpond_load::{Arrivals, Mode, Profile, Rate, Segment, Spacing};

use super::{Failure, parse_duration_ns};

const NS_PER_S: f64 = 1e9;

/// The flags of an open loop.
#[derive(Args, Debug)]
#[command(next_help_heading = "Arrivals (an open loop: requests leave whatever the responses do)")]
pub(super) struct ArrivalFlags {
    /// Requests per second of all connections together: 2000, 20k, 0.5/s, 120/m; a ramp over
    /// --duration: 100..2k; or steps: 1k@10s,1k..5k@30s,500. Without it each connection asks again
    /// as soon as it is answered
    #[arg(short = 'R', long, value_name = "RATE", value_parser = parse_rate_steps, allow_hyphen_values = true)]
    rate: Option<RateSteps>,
    /// How requests lie within the rate: evenly, as independent users come, or each moved by up to
    /// SHARE of a gap
    #[arg(long, value_name = "constant|poisson|jitter[:SHARE]", default_value = "constant",
        value_parser = parse_spacing)]
    arrivals: Spacing,
    /// The rate only for ON, then nothing for OFF, and again: 1s:4s
    #[arg(long, value_name = "ON:OFF", value_parser = parse_bursts, requires = "rate")]
    bursts: Option<(u64, u64)>,
    /// Send at the moments in FILE: a line each, in seconds after the start, ascending
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rate", "bursts"])]
    trace: Option<PathBuf>,
    /// Drop, unsent, requests later than this; it is counted apart
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns)]
    pub(super) deadline: Option<u64>,
}

impl ArrivalFlags {
    /// Whether requests leave at a rate.
    pub(super) fn has_rate(&self) -> bool {
        self.rate.is_some()
    }

    /// Whether the schedule may end by itself.
    pub(super) fn is_trace(&self) -> bool {
        self.trace.is_some()
    }

    /// Where a search for the highest rate begins, if the flags say so.
    pub(super) fn first_per_s(&self) -> Result<Option<f64>, Failure> {
        let Some(steps) = &self.rate else {
            return Ok(None);
        };
        match steps.profile(None, None)? {
            Profile::Constant(rate) => Ok(Some(rate.per_s())),
            _ => Err(Failure::usage(
                "--rate: a search begins with one rate, not with steps or a ramp",
            )),
        }
    }

    /// How requests lie within the rate.
    pub(super) fn spacing(&self) -> Spacing {
        self.arrivals
    }

    /// What the flags say, for a run of `duration_ns` at most.
    pub(super) fn mode(&self, duration_ns: Option<u64>, seed: u64) -> Result<Mode, Failure> {
        let profile = match (&self.rate, &self.trace) {
            (None, None) if self.arrivals != Spacing::Even => {
                return Err(Failure::usage("--arrivals needs --rate"));
            }
            (None, None) => return Ok(Mode::ClosedLoop),
            (Some(steps), _) => steps.profile(duration_ns, self.bursts)?,
            (None, Some(file)) => {
                let failed = |problem: String| {
                    Failure::failed(format!("--trace {}: {problem}", file.display()))
                };
                let text = std::fs::read_to_string(file)
                    .map_err(|error| failed(format!("the file cannot be read: {error}")))?;
                Profile::Trace(parse_trace(&text).map_err(failed)?.into())
            }
        };
        Ok(Mode::Open(Arrivals {
            profile,
            spacing: self.arrivals,
            seed,
        }))
    }
}

/// `--rate`: at least one step.
#[derive(Clone, Debug, PartialEq)]
struct RateSteps(Vec<Segment>);

impl RateSteps {
    fn profile(
        &self,
        duration_ns: Option<u64>,
        bursts: Option<(u64, u64)>,
    ) -> Result<Profile, Failure> {
        let [only] = self.0[..] else {
            return match bursts {
                Some(_) => Err(Failure::usage(
                    "--bursts goes with one rate, not with steps",
                )),
                None => Ok(Profile::Segments {
                    segments: self.0.clone(),
                    is_cyclic: false,
                }),
            };
        };
        let is_flat = only.from_per_s == only.to_per_s;
        if let Some((on_ns, off_ns)) = bursts {
            return if is_flat && only.duration_ns.is_none() {
                Ok(Profile::bursts(only.from_per_s, on_ns, off_ns))
            } else {
                Err(Failure::usage(
                    "--bursts goes with one rate, not with a ramp",
                ))
            };
        }
        if is_flat && only.duration_ns.is_none() {
            return Rate::from_per_s(only.from_per_s)
                .map(Profile::Constant)
                .ok_or_else(|| {
                    Failure::usage("--rate: a rate is above 0 and at most 1000000000 a second")
                });
        }
        let duration_ns = only.duration_ns.or(duration_ns).ok_or_else(|| {
            Failure::usage("--rate: a ramp needs --duration, or a time of its own: 100..2k@30s")
        })?;
        Ok(Profile::Segments {
            segments: vec![Segment {
                duration_ns: Some(duration_ns),
                ..only
            }],
            is_cyclic: false,
        })
    }
}

fn parse_rate_steps(text: &str) -> Result<RateSteps, String> {
    text.split(',')
        .map(parse_step)
        .collect::<Result<_, _>>()
        .map(RateSteps)
}

/// `RATE`, `RATE..RATE`, either with `@TIME`.
fn parse_step(text: &str) -> Result<Segment, String> {
    let (rates, duration_ns) = match text.split_once('@') {
        Some((rates, time)) => (rates, Some(parse_duration_ns(time)?)),
        None => (text, None),
    };
    let (from_per_s, to_per_s) = match rates.split_once("..") {
        Some((from, to)) => (parse_rate(from)?, parse_rate(to)?),
        None => {
            let per_s = parse_rate(rates)?;
            (per_s, per_s)
        }
    };
    Ok(Segment {
        from_per_s,
        to_per_s,
        duration_ns,
    })
}

/// A number, fractions allowed, with `k` or `M`, per second unless it ends in `/m` or `/h`.
fn parse_rate(text: &str) -> Result<f64, String> {
    let (number, per) = match text.split_once('/') {
        None | Some((_, "s")) => (text.trim_end_matches("/s"), 1.0),
        Some((number, "m" | "min")) => (number, 60.0),
        Some((number, "h")) => (number, 3600.0),
        Some((_, unit)) => return Err(format!("a rate is per s, m or h, not per {unit}")),
    };
    let scaled = [("k", 1e3), ("K", 1e3), ("M", 1e6), ("", 1.0)];
    let parsed = scaled.iter().find_map(|(suffix, scale)| {
        let digits = number.strip_suffix(suffix)?;
        let is_plain = digits
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.');
        digits
            .parse::<f64>()
            .ok()
            .filter(|_| is_plain)
            .map(|value| value * scale)
    });
    parsed
        .map(|per_unit| per_unit / per)
        .ok_or_else(|| format!("{text:?} is not a rate: write 2000, 20k, 0.5/s or 120/m"))
}

fn parse_spacing(text: &str) -> Result<Spacing, String> {
    match text.split_once(':') {
        None => match text {
            "constant" => Ok(Spacing::Even),
            "poisson" => Ok(Spacing::Poisson),
            "jitter" => Ok(Spacing::Jitter { share: 1.0 }),
            _ => Err("write constant, poisson, jitter or jitter:SHARE".to_owned()),
        },
        Some(("jitter", share)) => match share.parse() {
            Ok(share) if share > 0.0 && share <= 1.0 => Ok(Spacing::Jitter { share }),
            _ => Err("the share of a gap is above 0 and at most 1, as in jitter:0.5".to_owned()),
        },
        Some(_) => Err("write constant, poisson, jitter or jitter:SHARE".to_owned()),
    }
}

fn parse_bursts(text: &str) -> Result<(u64, u64), String> {
    let (on, off) = text
        .split_once(':')
        .ok_or("write it as ON:OFF, as in 1s:4s")?;
    Ok((parse_duration_ns(on)?, parse_duration_ns(off)?))
}

/// Seconds, a line each; blank lines and what follows a `#` do not count.
fn parse_trace(text: &str) -> Result<Vec<u64>, String> {
    let mut offsets = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let value = line.split('#').next().unwrap_or_default().trim();
        if value.is_empty() {
            continue;
        }
        let number = index + 1;
        let seconds: f64 = value
            .parse()
            .ok()
            .filter(|seconds: &f64| (0.0..=1e9).contains(seconds))
            .ok_or_else(|| format!("line {number}: {value:?} is no time in seconds"))?;
        let offset_ns = (seconds * NS_PER_S).round() as u64;
        if offsets.last().is_some_and(|&last_ns| offset_ns < last_ns) {
            return Err(format!(
                "line {number}: {value} is before the line above it: sort the file by time"
            ));
        }
        offsets.push(offset_ns);
    }
    if offsets.is_empty() {
        return Err("there is no time in the file".to_owned());
    }
    Ok(offsets)
}

#[cfg(test)]
#[path = "tests/arrivals.rs"]
mod tests;
