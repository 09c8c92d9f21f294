//! How a server of the user's is started, asked whether it serves, and stopped.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};
use millpond_lab::identity::Identity;
use millpond_lab::launch::StopSignal;
use millpond_lab::metric::Metric;
use millpond_lab::readiness::Ready;
use millpond_lab::{IdleCpus, Inherited, Lengths, LoadCommand, MemoryWork, SubjectOptions};
use millpond_measure::record::{CandidateRounds, ComparisonRecord, Measure, Operation, Quantity};
use millpond_measure::report::terminal::wrapped;
use millpond_measure::units::format_duration_ns;

use crate::flags::accuracy::parse_switch;
use crate::flags::{parse_bytes, parse_count, parse_duration_ns};
use crate::output::Failure;

// No doc comment: clap would show it as what the command does.
#[derive(Args, Debug)]
#[command(next_help_heading = "Your server")]
pub(in crate::flags) struct SubjectFlags {
    /// How to tell that it serves: http, http:/PATH, port, or log:REGEX for a line of its output [default:
    /// http with --url, port with --port]
    #[arg(long, value_name = "HOW", value_parser = Ready::parse, requires = "command")]
    pub(in crate::flags) ready: Option<Ready>,
    /// Longest it may take until then
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, requires = "command")]
    pub(in crate::flags) ready_within: Option<u64>,
    /// A variable for its environment; repeatable
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = parse_pair, requires = "command")]
    environment: Vec<(OsString, OsString)>,
    /// Keep the shell's variables that change allocators (MALLOC_*, GLIBC_TUNABLES, MIMALLOC_*, TCMALLOC_*,
    /// LD_PRELOAD and the like) for every candidate [default: no candidate gets them]
    #[arg(long)]
    keep_env: bool,
    /// The directory it starts in
    #[arg(long, value_name = "DIR", requires = "command")]
    workdir: Option<PathBuf>,
    /// The user it runs as; needs root
    #[arg(long, value_name = "USER", value_parser = Identity::find, requires = "command")]
    user: Option<Identity>,
    /// Its CPUs, as in 0,2-3 [default: all but the last quarter]
    #[arg(long, value_name = "CPUS", value_parser = parse_cpus)]
    server_cpus: Option<Cpus>,
    /// The load's CPUs [default: the last quarter, at least one]
    #[arg(long, value_name = "CPUS", value_parser = parse_cpus)]
    load_cpus: Option<Cpus>,
    /// Whether server and load are bound to their CPUs: on or off. Allocators and runtimes size themselves by the CPUs
    /// they may use, and a bound server may use few
    #[arg(long, value_name = "on|off", value_parser = parse_switch, action = ArgAction::Set, default_value = "on",
        conflicts_with_all = ["server_cpus", "load_cpus"])]
    pin: bool,
    /// What CPUs do that have nothing to do: awake, asleep as the system has it, or auto: awake in a
    /// virtual machine, where the host takes those that sleep; needs root
    #[arg(long, value_name = "STATE", value_parser = parse_idle_cpus, default_value = "auto")]
    idle_cpus: IdleCpus,
    /// What asks it to end: TERM, INT, QUIT, HUP, USR1 or USR2
    #[arg(long, value_name = "SIGNAL", value_parser = parse_signal, default_value = "TERM")]
    stop_signal: StopSignal,
    /// How long it has until it is killed
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, default_value = "5s")]
    stop_within: u64,
    /// Most memory that all its processes may hold together, page cache included, as a container's limit: beyond it the
    /// kernel kills one of them, and the candidate is told of as killed. Needs a control group that counts memory (root)
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    memory_limit: Option<u64>,
    /// Huge pages that the kernel gives without being asked, where the machine's mode says so: off for every candidate,
    /// or on again if the shell has them off [default: as the machine has it]
    #[arg(long, value_name = "on|off", value_parser = parse_switch)]
    thp: Option<bool>,
    /// A shell command that has to succeed, and to print the same under every allocator, before
    /// anything is timed
    #[arg(long, value_name = "CMD", requires = "command")]
    check_cmd: Option<String>,
}

/// A list as one value, for clap takes several for several flags.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Cpus(Vec<usize>);

impl SubjectFlags {
    /// `is_http`: the server answers at a URL.
    pub(in crate::flags) fn options(&self, is_http: bool) -> Result<SubjectOptions, Failure> {
        let ready = match &self.ready {
            Some(Ready::Http | Ready::HttpPath(_)) if !is_http => {
                return Err(Failure::usage(
                    "--ready http needs --url; with --port write port or log:REGEX",
                ));
            }
            Some(ready) => ready.clone(),
            None if is_http => Ready::Http,
            None => Ready::Port,
        };
        Ok(SubjectOptions {
            environment: self.environment.clone(),
            inherited: Inherited::of_this_process(self.keep_env),
            directory: self.workdir.clone(),
            user: self.user.clone(),
            ready,
            server_cpus: self.server_cpus.clone().map(|cpus| cpus.0),
            load_cpus: self.load_cpus.clone().map(|cpus| cpus.0),
            is_pinned: self.pin,
            idle_cpus: self.idle_cpus,
            stop_signal: self.stop_signal,
            stop_grace: Duration::from_nanos(self.stop_within),
            memory_limit_bytes: self.memory_limit,
            huge_pages: self.thp,
            check: self.check_cmd.clone(),
        })
    }
}

fn parse_pair(text: &str) -> Result<(OsString, OsString), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

fn parse_signal(text: &str) -> Result<StopSignal, String> {
    StopSignal::named(text).ok_or_else(|| "write TERM, INT, QUIT, HUP, USR1 or USR2".to_owned())
}

fn parse_idle_cpus(text: &str) -> Result<IdleCpus, String> {
    match text {
        "auto" => Ok(IdleCpus::Auto),
        "awake" => Ok(IdleCpus::Awake),
        "asleep" => Ok(IdleCpus::Asleep),
        _ => Err("write auto, awake or asleep".to_owned()),
    }
}

/// `0,2-3`.
fn parse_cpus(text: &str) -> Result<Cpus, String> {
    let wrong = || "write CPUs as in 0,2-3".to_owned();
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.trim().parse().map_err(|_| wrong())?;
        let last: usize = last.trim().parse().map_err(|_| wrong())?;
        // More than any machine has.
        if last < first || last > 65_535 {
            return Err(wrong());
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(Cpus(cpus))
}

// How long a candidate works before its memory is read, and how long slices are.

// No doc comment: clap would show it as what the command does.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Lengths")]
pub(crate) struct LengthFlags {
    /// Work of each candidate before its memory is read: as many requests as the slowest answers in TIME, per
    /// operation, without a pause. Growth of memory with work shows, and what purging gives back; the comparison
    /// takes rounds times candidates times TIME [default: 300ms and 1000 requests at least, more with hours of
    /// --time-budget]
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, conflicts_with_all = ["work", "load_cmd"])]
    run_for: Option<u64>,
    /// The same as a number of requests, per operation
    #[arg(long, value_name = "N", value_parser = parse_count, conflicts_with = "load_cmd")]
    work: Option<u64>,
    /// What counts of a slice of the closed loop [default: 100ms, more for slow servers]
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, conflicts_with = "load_cmd")]
    slice: Option<u64>,
    /// What precedes the counted part of each slice [default: 80ms]
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, conflicts_with = "load_cmd")]
    settle: Option<u64>,
    /// What counts of the uninterrupted blocks with which slices have to agree [default: three slices]
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, conflicts_with = "load_cmd")]
    block: Option<u64>,
}

impl LengthFlags {
    pub(super) fn lengths(self) -> Lengths {
        let time = |ns: Option<u64>| ns.map(Duration::from_nanos);
        Lengths {
            slice: time(self.slice),
            settle: time(self.settle),
            block: time(self.block),
            memory: time(self.run_for)
                .map(MemoryWork::For)
                .or(self.work.map(MemoryWork::Requests)),
        }
    }
}

// The user's own load program instead of ours, and what its output says.

// No doc comment: clap would show it as what the command does.
#[derive(Args, Debug)]
#[command(next_help_heading = "Your load, for servers that do not speak HTTP")]
pub(in crate::flags) struct LoadCommandFlags {
    /// A shell command that loads the server, the same work each time; it finds MILLPOND_HOST and
    /// MILLPOND_PORT in its environment
    #[arg(long, value_name = "CMD", requires = "command")]
    load_cmd: Option<String>,
    /// What its output says; repeatable: `NAME[UNIT,higher|lower]=regex:PATTERN` or json:PATH. throughput,
    /// `p50[ms]` and `p99[ms]` answer the questions, requests=N divides costs, any other name needs its
    /// unit and direction. The first group of the pattern counts, of its last match
    #[arg(long, value_name = "METRIC", value_parser = Metric::parse, requires = "load_cmd")]
    load_metric: Vec<Metric>,
    /// When it is stopped
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, default_value = "2m")]
    load_within: u64,
    /// How often it runs in each run before the time that counts, for servers that warm up
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=1_000), default_value = "0", requires = "load_cmd")]
    load_warm_up: u32,
    /// Where your server listens, on 127.0.0.1, instead of --url
    #[arg(
        long,
        value_name = "PORT",
        requires = "load_cmd",
        conflicts_with = "url"
    )]
    pub(in crate::flags) port: Option<u16>,
}

impl LoadCommandFlags {
    pub(in crate::flags) const fn is_given(&self) -> bool {
        self.load_cmd.is_some()
    }

    pub(in crate::flags) fn load_command(&self) -> Option<LoadCommand> {
        self.load_cmd.as_ref().map(|line| LoadCommand {
            line: line.clone(),
            metrics: self.load_metric.clone(),
            timeout: Duration::from_nanos(self.load_within),
            warm_ups: self.load_warm_up,
        })
    }
}

// The published results of the five earlier benchmarks, and how far they are comparable with ours.

/// One published figure.
struct Figure {
    what: &'static str,
    earlier: &'static str,
    /// Our measure, and the allocator it was published for.
    ours: Option<(Measure, &'static str)>,
}

/// One earlier benchmark.
struct Earlier {
    name: &'static str,
    title: &'static str,
    figures: &'static [Figure],
    comparable: &'static str,
    not_comparable: &'static str,
}

const fn of_request(quantity: Quantity) -> Measure {
    Measure::of(Operation::Request, quantity)
}

const fn figure(
    what: &'static str,
    earlier: &'static str,
    measure: Measure,
    allocator: &'static str,
) -> Figure {
    Figure {
        what,
        earlier,
        ours: Some((measure, allocator)),
    }
}

const fn alone(what: &'static str, earlier: &'static str) -> Figure {
    Figure {
        what,
        earlier,
        ours: None,
    }
}

const RATE: Measure = of_request(Quantity::Throughput);
const RSS: Measure = Measure::whole(Quantity::RssAfterWork);

const ALL: [Earlier; 4] = [
    Earlier {
        name: "everscale",
        title: "everscale, 2020-04-16: 500 connections x 5,000 requests, 1,024 B sent in chunks, 740 B \
                answered; client and server in one process",
        figures: &[
            figure("malloc, no pools", "174,956/s, peak 190,018", RATE, "glibc"),
            figure(
                "tcmalloc, no pools",
                "161,082/s, peak 168,962",
                RATE,
                "tcmalloc",
            ),
            figure("malloc, pools", "174,323/s, peak 194,263", RATE, "mempool"),
        ],
        comparable: "connections, requests on each, the request byte for byte, no pipelining, the size \
                     of the response, loopback; and the ratios between allocators.",
        not_comparable: "the rates: other hardware, 3 client and 3 server threads there. Client and server \
                         are two processes here, as a server under another allocator has to be \
                         (--one-process has both in one); our response is a file with Content-Length, theirs came in chunks; theirs made no \
                         heap calls at all in a steady state, with pools or without, ours runs with its \
                         pools off. One run of each then, with drifts of 4 to 11 % in it: the \
                         differences that were published are within its noise.",
    },
    Earlier {
        name: "haywire",
        title: "haywire, 2016-11-30: 768 connections, 128 requests deep, wrk for 60 s on another machine",
        figures: &[
            figure("malloc", "7,347,393/s", RATE, "glibc"),
            figure("tcmalloc", "9,493,995/s", RATE, "tcmalloc"),
            figure("jemalloc", "9,244,076/s", RATE, "jemalloc"),
            alone("lockless", "9,440,641/s, 166.0 MB"),
            figure("malloc, memory", "64.2 MB", RSS, "glibc"),
            figure("tcmalloc, memory", "85.0 MB", RSS, "tcmalloc"),
            figure("jemalloc, memory", "70.4 MB", RSS, "jemalloc"),
        ],
        comparable: "connections, depth, the request, a response of a few words; and the ratios between \
                     allocators (tcmalloc 1.29x malloc then).",
        not_comparable: "the rates: 20 cores with the generator on another machine there. haywire made 14 \
                         heap calls per request, our server with its pools off makes far fewer, so an \
                         allocator moves it less. Latency was published as plots only (at 3,000,000/s); \
                         p50 and p99 here are of the constant rate that follows the pipelined run. \
                         Memory there is one look at top. lockless is in no registry: build it and name \
                         it with --allocators lockless=FILE.",
    },
    Earlier {
        name: "network-pool",
        title: "network_pool, 2017-12-30: ab -c 10000 -n 200000, no keep-alive, one thread",
        figures: &[
            figure("requests", "16,357.69/s", RATE, "glibc"),
            figure(
                "median",
                "10 ms",
                of_request(Quantity::ResponseP50),
                "glibc",
            ),
            figure(
                "99 %",
                "7,036 ms",
                of_request(Quantity::ResponseP99),
                "glibc",
            ),
            alone("memory at its peak", "30 MB, read by hand"),
        ],
        comparable: "connections, a connection for each request, loopback, the generator beside the \
                     server on few cores.",
        not_comparable: "the rate: one core for both there. Its p99 of 7 s is SYNs sent again because the \
                         listen queue overflowed, and not the server's work. ab's median leaves out \
                         what waited to be sent. Addresses of 127.1.0.0/16 are used here, or ports run \
                         out.",
    },
    Earlier {
        name: "entity",
        title: "/v0/entity in Java, 2020-10-04: wrk2 -t1 -c1 -R2000 -d15s, PUT of 3 bytes, then GET",
        figures: &[
            figure(
                "PUT p50, corrected",
                "1.09 ms",
                Measure::of(Operation::Put, Quantity::ResponseP50),
                "glibc",
            ),
            figure(
                "PUT p99, corrected",
                "2.11 ms",
                Measure::of(Operation::Put, Quantity::ResponseP99),
                "glibc",
            ),
            figure(
                "PUT p50, uncorrected",
                "0.206 ms",
                Measure::of(Operation::Put, Quantity::ServiceP50),
                "glibc",
            ),
            figure(
                "GET p50, corrected",
                "1.11 ms",
                Measure::of(Operation::Get, Quantity::ResponseP50),
                "glibc",
            ),
            figure(
                "GET p99, corrected",
                "2.11 ms",
                Measure::of(Operation::Get, Quantity::ResponseP99),
                "glibc",
            ),
            figure(
                "GET p50, uncorrected",
                "0.223 ms",
                Measure::of(Operation::Get, Quantity::ServiceP50),
                "glibc",
            ),
        ],
        comparable: "the API, the rate, one connection, values of 3 bytes, RocksDB; both latencies.",
        not_comparable: "the corrected latency: about 1 ms of it was wrk2's own timer. PUT there was \
                         acknowledged before it was durable, here after a sync of the log. GET there \
                         always asked for one key.",
    },
];

/// The table of one benchmark, and what may be made of it, for so many columns.
pub(super) fn beside(name: &str, record: &ComparisonRecord, width: usize) -> String {
    let Some(earlier) = ALL.iter().find(|one| one.name == name) else {
        return String::new();
    };
    let mut text = "\nThe earlier figure beside ours\n".to_owned();
    text += &wrapped(earlier.title, width, INDENT);
    text += &row("", "then", "ours");
    for figure in earlier.figures {
        let ours = figure.ours.map_or_else(
            || "-".to_owned(),
            |(measure, allocator)| ours(record, measure, allocator),
        );
        text += &row(figure.what, figure.earlier, &ours);
    }
    let Earlier {
        comparable,
        not_comparable,
        ..
    } = earlier;
    text += &wrapped(&format!("Comparable: {comparable}"), width, INDENT);
    text + &wrapped(&format!("Not comparable: {not_comparable}"), width, INDENT)
}

/// Of all lines but the first of a sentence.
const INDENT: &str = "  ";

fn row(what: &str, then: &str, ours: &str) -> String {
    format!("{INDENT}{what:<22}{then:<28}{ours}\n")
}

/// The median of the candidate of that allocator, and its ratio to the baseline.
fn ours(record: &ComparisonRecord, measure: Measure, allocator: &str) -> String {
    let is_it = |one: &&CandidateRounds| one.allocator == allocator;
    let Some(candidate) = record.candidates.iter().find(is_it) else {
        return format!("{allocator} was not compared");
    };
    let Some(median) = candidate.median(measure) else {
        return "not measured".to_owned();
    };
    let value = measure.quantity.unit().format(median);
    let mut details = record.analysis.details.iter();
    let ratio = details
        .find(|detail| detail.measure == measure)
        .and_then(|detail| {
            let mut comparisons = detail.comparisons.iter();
            comparisons.find(|one| one.candidate == candidate.name)
        })
        .map_or_else(String::new, |one| {
            format!(" ({}, {})", one.ratio_text(), one.verdict.label())
        });
    format!("{value} {}{ratio}", candidate.name)
}

/// The same for the micro-benchmark.
pub(super) fn beside_pools(record: &serde_json::Value, width: usize) -> String {
    let medians = pool_medians(record);
    let ours = |name: &str| {
        let mut found = medians.iter();
        let found = found.find(|(candidate, _)| candidate == name);
        found.map_or_else(
            || "not measured".to_owned(),
            |(_, median_ns)| format_duration_ns(*median_ns),
        )
    };
    let title = "memory_pool, 2024-06-29: an iteration of 140 objects of 56 bytes made and destroyed, \
                 and 16 times a vector that grows; 100,000 iterations, 5 repetitions";
    let comparable = "Comparable: the program, its objects and their number, iterations and \
                      repetitions; the ratio of the pool to malloc, 0.71x then.";
    let not_comparable = "Not comparable: nanoseconds, on another processor (4 x 2.7 GHz there). The \
                          earlier pool was measured with one thread and one size only: `millpond \
                          bench pools` has the other programs.";
    [
        "\nThe earlier figure beside ours\n".to_owned(),
        wrapped(title, width, INDENT),
        row("", "then", "ours"),
        row("pool", "0.005 ms (5,000 ns)", &ours("pool")),
        row("malloc", "0.007 ms (7,000 ns)", &ours("glibc")),
        wrapped(comparable, width, INDENT),
        wrapped(not_comparable, width, INDENT),
    ]
    .concat()
}

fn pool_medians(record: &serde_json::Value) -> Vec<(String, f64)> {
    let mut found = Vec::new();
    let programs = record["programs"].as_array().into_iter().flatten();
    for program in programs {
        let results = program["allocators"].as_array().into_iter().flatten();
        for result in results {
            let name = result["allocator"].as_str();
            let median = result["ns_per_iteration"]["median"].as_f64();
            found.extend(name.map(str::to_owned).zip(median));
        }
    }
    found
}

#[cfg(test)]
#[path = "tests/subject.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/figures.rs"]
mod figures_tests;
