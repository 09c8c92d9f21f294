//! When requests leave: `--rate` with steps and ramps, `--arrivals`, `--bursts`, `--trace`.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use clap::Args;
use millpond_http::{LimitValues, LimitsError};
use millpond_io::Address;
use millpond_load::{
    Arrivals, LoadConfig, Mode, Profile, Rate, SearchNews, SearchPlan, Segment, Spacing, Stop,
    WarmUp, find_max,
};
use millpond_measure::record::{SearchEnd, SearchReport, SearchStep};
use millpond_measure::report::curve;
use millpond_measure::slo::{Slo, parse_share};
use millpond_measure::units::{format_duration_ns, format_rate};

use crate::output;
use crate::output::{Exit, JsonFile, Progress};

use super::{Failure, interrupt_flag, parse_bytes, parse_count, parse_duration_ns};

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

// `millpond load --find-max`: the highest rate at which objectives hold.

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

/// A search that found nothing, or not the target's limit, must not look like success to a script.
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

// Flags of `millpond serve` for what peers may send and how long they may take.

const CONNECTIONS: &str = "Limits on connections";
const MESSAGES: &str = "Limits on messages";
const TIME: &str = "Deadlines";

/// Caps on peers; `LimitValues` says why each has the default it has.
#[derive(Args, Debug)]
pub(super) struct LimitFlags {
    /// Open connections of the whole server; one more takes the place of the one idle for longest,
    /// or is answered with 503 if none has been idle for --idle-timeout-min
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "16384", help_heading = CONNECTIONS)]
    max_connections: u64,
    /// Open connections from one address (IPv6: from one /64); one more is answered with 503. Behind a proxy or
    /// balancer all clients have its address: none, or --proxy-protocol [default: half of --max-connections, and none
    /// for loopback addresses]
    #[arg(long, value_name = "N|none", value_parser = parse_cap, help_heading = CONNECTIONS)]
    max_connections_per_address: Option<Cap>,

    /// Method, target and version; a longer line is answered with 414
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "8KiB", help_heading = MESSAGES)]
    max_request_line: u64,
    /// Request line and all fields; a longer head is answered with 431
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "16KiB", help_heading = MESSAGES)]
    max_head: u64,
    /// Header fields of a request, at most 128; more are answered with 431
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "100", help_heading = MESSAGES)]
    max_fields: u64,
    /// Body of a request; a longer one is answered with 413 (serve entity: see --max-value)
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "64MiB", help_heading = MESSAGES)]
    max_body: u64,
    /// Extensions of one chunk; longer ones are answered with 400
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "256", help_heading = MESSAGES)]
    max_chunk_extension: u64,
    /// Fields behind a chunked body; longer ones are answered with 431
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "4KiB", help_heading = MESSAGES)]
    max_trailer: u64,
    /// Pipelined requests of one connection answered before the others have their turn
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "64", help_heading = MESSAGES)]
    max_pipelined: u64,
    /// Unsent responses of one connection at which its next request waits
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "256KiB", help_heading = MESSAGES)]
    max_output: u64,

    /// From the first byte of a head to its end; 408 beyond it
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, default_value = "10s", help_heading = TIME)]
    head_timeout: u64,
    /// Without a request, while connections are few; then the connection closes
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, default_value = "75s", help_heading = TIME)]
    idle_timeout: u64,
    /// What --idle-timeout shrinks to, in a straight line, as nine tenths of the connections fill
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, default_value = "1s", help_heading = TIME)]
    idle_timeout_min: u64,
    /// How long a body may be slower than --min-body-rate
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, default_value = "5s", help_heading = TIME)]
    body_grace: u64,
    /// Slowest body, per second; 408 below it
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "240", help_heading = TIME)]
    min_body_rate: u64,
    /// How far a peer may be behind while others wait for the memory of its large body or response: all of
    /// it in two minutes, 64 KiB a second at least; then 408, or the connection is cut
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, default_value = "2s", help_heading = TIME)]
    contended_grace: u64,
    /// For a peer that does not take its response; then the connection is cut
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, default_value = "30s", help_heading = TIME)]
    write_stall: u64,
    /// Slowest reading of a response, per second: what takes longer than --write-stall at this rate
    /// has that much longer
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "16KiB", help_heading = TIME)]
    min_write_rate: u64,
    /// How long a graceful stop waits for requests being answered
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, default_value = "30s", help_heading = TIME)]
    drain_timeout: u64,
}

/// A cap, or none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Cap {
    At(u64),
    None,
}

fn parse_cap(text: &str) -> Result<Cap, String> {
    match text {
        "none" => Ok(Cap::None),
        count => parse_count(count).map(Cap::At),
    }
}

impl LimitFlags {
    /// Connections that are wanted.
    pub(super) fn connections(&self) -> u64 {
        self.max_connections
    }

    /// The limits of each of `shards` of a server that listens at `listen`. The kernel spreads connections over
    /// them: each gets its share, rounded up.
    /// `has_told_addresses`: clients' addresses come from `--proxy-protocol`, wherever the balancer is.
    /// `connections`: as many of [`Self::connections`] as there are descriptors for.
    pub(super) fn limits(
        &self,
        (listen, has_told_addresses): (&Address, bool),
        shards: usize,
        connections: u64,
    ) -> LimitValues {
        let share = |count: u64| in_memory(count.div_ceil(shards as u64));
        let is_remote = has_told_addresses
            || matches!(listen, Address::Inet(at) if !at.ip().to_canonical().is_loopback());
        let cap = match self.max_connections_per_address {
            // One client alone must not shut all others out.
            None if is_remote => Cap::At(connections.div_ceil(2)),
            None => Cap::None,
            Some(cap) => cap,
        };
        LimitValues {
            request_line_bytes_max: in_memory(self.max_request_line),
            head_bytes_max: in_memory(self.max_head),
            fields_max: in_memory(self.max_fields),
            body_bytes_max: self.max_body,
            // A service that gathers whole bodies says how many bytes of them there may be.
            bodies_bytes_max: LimitValues::default().bodies_bytes_max,
            chunk_extension_bytes_max: in_memory(self.max_chunk_extension),
            trailer_bytes_max: in_memory(self.max_trailer),
            pipelined_per_tick_max: in_memory(self.max_pipelined),
            output_bytes_max: in_memory(self.max_output),
            head_timeout_ns: self.head_timeout,
            idle_timeout_ns: self.idle_timeout,
            idle_timeout_min_ns: self.idle_timeout_min,
            body_grace_ns: self.body_grace,
            body_rate_bytes_per_s_min: self.min_body_rate,
            contended_grace_ns: self.contended_grace,
            write_stall_ns: self.write_stall,
            write_rate_bytes_per_s_min: self.min_write_rate,
            drain_timeout_ns: self.drain_timeout,
            connections_max: share(connections),
            connections_per_address_max: match cap {
                Cap::At(count) => share(count),
                Cap::None => usize::MAX,
            },
            counts_loopback_addresses: self.max_connections_per_address.is_some(),
        }
    }
}

/// The library's sentence with the flag instead of the field.
pub(super) fn in_flags(error: &LimitsError) -> String {
    let LimitsError::OutOfRange {
        name,
        value,
        value_max,
    } = error
    else {
        return error.to_string();
    };
    let flag = FLAGS.iter().find(|(field, _)| field == name);
    let shown = flag.map_or(*name, |(_, flag)| *flag);
    match *value_max {
        u64::MAX => format!("{shown} {value}: use at least 1"),
        value_max => format!("{shown} {value}: use a value from 1 to {value_max}"),
    }
}

/// Where the two differ in more than the order of their words, nobody would guess one from the other.
const FLAGS: [(&str, &str); 14] = [
    ("request_line_bytes_max", "--max-request-line"),
    ("head_bytes_max", "--max-head"),
    ("fields_max", "--max-fields"),
    ("trailer_bytes_max", "--max-trailer"),
    ("pipelined_per_tick_max", "--max-pipelined"),
    ("output_bytes_max", "--max-output"),
    ("head_timeout_ns", "--head-timeout"),
    ("idle_timeout_ns", "--idle-timeout"),
    ("idle_timeout_min_ns", "--idle-timeout-min"),
    ("body_rate_bytes_per_s_min", "--min-body-rate"),
    ("write_stall_ns", "--write-stall"),
    ("write_rate_bytes_per_s_min", "--min-write-rate"),
    ("connections_max", "--max-connections"),
    (
        "connections_per_address_max",
        "--max-connections-per-address",
    ),
];

fn in_memory(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[cfg(test)]
#[path = "tests/arrivals.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/find_max.rs"]
mod find_max_tests;

#[cfg(test)]
#[path = "tests/limits.rs"]
mod limits_tests;
