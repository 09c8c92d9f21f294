//! The load generator: what a request costs it, how exactly it keeps time, and whether it counts right.
//!
//! `millpond-load-target` (in `crates/load/src/bin/target`) is asked where the response is known
//! before: it has an exact capacity and writes down when requests came. It shares no code with the
//! generator. wrk is measured beside it, in the same run.

use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::bench::server::{Server, free_address};
use crate::bench::{build_beside, callgrind, nginx};
use crate::bench::{lasting, real_time, text_of_load};

use super::Figure;
use super::{Bench, measure_parts};
use super::{bounded, text_of};

type Part = fn(&Bench, &TargetProgram<'_>) -> Result<Vec<Figure>, String>;

const PARTS: [(&str, Part); 6] = [
    ("instructions", instructions_measure),
    ("syscalls", syscalls_measure),
    ("pacing", pacing_measure),
    ("connections", connections_measure),
    ("overload", overload_measure),
    ("search", search_measure),
];

/// All of it.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Figure>, String> {
    let target = TargetProgram::build(bench)?;
    let parts = PARTS
        .iter()
        .map(|(name, part)| (*name, part(bench, &target)));
    measure_parts(bench, "load", parts)
}

/// One run of the generator on its CPU; returns the record that it writes. A verdict on itself
/// (exit status 4) or a missed objective is no failure here: only the figures matter.
pub(super) fn run(bench: &Bench, words: &[&str]) -> Result<Value, String> {
    run_behind(bench, &[], words)
}

/// The same, behind these words.
pub(super) fn run_behind(bench: &Bench, before: &[&str], words: &[&str]) -> Result<Value, String> {
    let file = bench.scratch.join("load.json");
    let _ = std::fs::remove_file(&file);
    let mut command = bounded(bench.machine.generator_cpu, Duration::from_secs(300));
    command.args(before).arg(&bench.millpond).arg("load");
    command.args(words).arg("--json").arg(&file);
    let said = text_of(&mut command);
    let text = std::fs::read_to_string(&file).map_err(|error| match said {
        Err(sentence) => sentence,
        Ok(_) => format!("the record {}: {error}", file.display()),
    })?;
    serde_json::from_str(&text).map_err(|error| format!("the record cannot be read: {error}"))
}

/// A number of a record, by its path: `slip_ns/p50`.
pub(super) fn number(record: &Value, path: &str) -> Result<f64, String> {
    let value = path.split('/').fold(record, |value, key| &value[key]);
    value
        .as_f64()
        .ok_or_else(|| format!("the record has no {path}"))
}

// `--find-max` against a server of known capacity: how far from it the worst of ten results lies.

/// 500 requests a second: few enough that the machine's own noise is small beside the server's time.
const SERVICE_US: u32 = 2_000;
const CAPACITY_PER_S: f64 = 500.0;

fn search_measure(bench: &Bench, target: &TargetProgram<'_>) -> Result<Vec<Figure>, String> {
    let (runs, step, precision) = if bench.plan.smoke {
        (1, "100ms", "20%")
    } else {
        (10, "1s", "1%")
    };
    let mut deviations = Vec::new();
    for number_of_run in 0..runs {
        let server = target.start(SERVICE_US)?;
        let url = format!("http://{}/", server.address);
        let words = [
            "-t",
            "1",
            "-c",
            "16",
            "-d",
            step,
            "--precision",
            precision,
            "--find-max",
            "p99<20ms,errors<0.1%",
            &url,
        ];
        let record = run(bench, &words)?;
        // No rate at all is as wrong as a result can be.
        let per_s = number(&record, "rate_per_s").unwrap_or(0.0);
        println!("search {number_of_run}: {per_s:.1}/s of {CAPACITY_PER_S}/s");
        deviations.push((per_s / CAPACITY_PER_S - 1.0).abs());
    }
    let worst = deviations.iter().copied().fold(0.0, f64::max);
    let figure = Figure {
        value: worst,
        ..Figure::median("load_find_max_worst_deviation", deviations)
    };
    Ok(vec![figure.at_most(0.03)])
}

// Ten thousand connections: exactly so many at the server, and what each costs the client in memory.

const FEW: usize = 100;

fn connections_measure(bench: &Bench, target: &TargetProgram<'_>) -> Result<Vec<Figure>, String> {
    let many = if bench.plan.smoke { 1_000 } else { 10_000 };
    let (few_bytes, _) = hold(bench, target, FEW)?;
    let (many_bytes, opened) = hold(bench, target, many)?;
    let each = (many_bytes - few_bytes) / (many - FEW) as f64;
    println!("{many} connections: {opened} opened, {each:.0} bytes of the client each");
    let difference = (opened - many as f64).abs();
    Ok(vec![
        Figure::median("load_c10000_user_bytes_per_connection", vec![each]).at_most(2_048.0),
        Figure::median("load_c10000_connections_off", vec![difference]).at_most(0.0),
    ])
}

/// A run over so many connections: the client's anonymous memory in the middle of it, and how many
/// connections its server ever had open at once.
fn hold(bench: &Bench, target: &TargetProgram<'_>, count: usize) -> Result<(f64, f64), String> {
    let server = target.start(0)?;
    let mut command = lasting(bench.machine.generator_cpu);
    command
        .arg(&bench.millpond)
        .args(["load", "-t", "1", "--timeout", "20s"]);
    command.args(["-c", &count.to_string(), "-R", "5k", "-d", "8s"]);
    command.arg(format!("http://{}/", server.address));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let spawned = command.spawn();
    let mut load = spawned.map_err(|error| format!("{command:?}: {error}"))?;
    std::thread::sleep(Duration::from_secs(6));
    let bytes = anonymous_bytes(&load);
    let ended = load
        .wait()
        .map_err(|error| format!("the generator: {error}"))?;
    if ended.code().is_none_or(|code| ![0, 4].contains(&code)) {
        return Err(format!(
            "the generator with {count} connections ended with {ended}"
        ));
    }
    let opened = number(&arrivals(&server, 1)?, "connections_most")?;
    Ok((bytes?, opened))
}

/// Resident bytes that are not files' pages.
fn anonymous_bytes(process: &Child) -> Result<f64, String> {
    let path = format!("/proc/{}/status", process.id());
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
    kib.map(|kib| kib * 1024.0)
        .ok_or_else(|| format!("{path} has no RssAnon"))
}

// `millpond-load-target`: built, started, and asked what came.

const PACKAGE: &str = "millpond-load";
const PROGRAM: &str = "millpond-load-target";

/// The program.
struct TargetProgram<'a> {
    bench: &'a Bench,
    program: PathBuf,
}

impl<'a> TargetProgram<'a> {
    /// Builds it as the measured program is built.
    fn build(bench: &'a Bench) -> Result<Self, String> {
        let program = build_beside(bench, PACKAGE, PROGRAM)?;
        Ok(Self { bench, program })
    }

    /// On the server's CPU; each request takes so many microseconds.
    fn start(&self, service_us: u32) -> Result<Server, String> {
        let address = free_address()?;
        let mut command = lasting(self.bench.machine.server_cpu);
        command.arg(&self.program);
        command.args(["--listen", &address.to_string()]);
        command.args(["--service-us", &service_us.to_string()]);
        Server::start(command, address)
    }
}

/// The arrivals, beside a grid of this width.
fn arrivals(server: &Server, interval_ns: u64) -> Result<Value, String> {
    let text = server.get(&format!("/arrivals?interval_ns={interval_ns}"))?;
    serde_json::from_str(&text).map_err(|error| format!("{PROGRAM} said {text:?}: {error}"))
}

// System calls of the client for each request, counted by strace, which slows it down: events then
// come in fuller batches than at full speed, as they do under callgrind.

fn syscalls_measure(bench: &Bench, target: &TargetProgram<'_>) -> Result<Vec<Figure>, String> {
    let server = target.start(0)?;
    let mut figures = Vec::new();
    for (driver, limit) in [("uring", 0.3), ("epoll", 2.1)] {
        let thousands: u32 = if bench.plan.smoke { 5 } else { 20 };
        let few = count(bench, &server, driver, thousands * 1_000)?;
        let many = count(bench, &server, driver, thousands * 3_000)?;
        let value = (many - few) / f64::from(thousands * 2_000);
        println!("{driver}: {value:.2} system calls per request by strace");
        let name = format!("load_c64_{driver}_system_calls_per_request_by_strace");
        figures.push(Figure::median(name, vec![value]).at_most(limit));
    }
    Ok(figures)
}

/// All system calls of one run.
fn count(bench: &Bench, server: &Server, driver: &str, requests: u32) -> Result<f64, String> {
    let file = bench.scratch.join("load.strace");
    let mut command = bounded(bench.machine.generator_cpu, Duration::from_secs(200));
    command.args(["strace", "-f", "-c", "-o"]).arg(&file);
    command
        .arg(&bench.millpond)
        .args(["load", "-t", "1", "-c", "64"]);
    command.args([
        "--driver",
        driver,
        "--receive-stamps",
        "off",
        "--timeout",
        "60s",
    ]);
    command.args(["--requests", &requests.to_string()]);
    command.arg(format!("http://{}/", server.address));
    text_of_load(&mut command)?;
    let text = std::fs::read_to_string(&file)
        .map_err(|error| format!("strace's {}: {error}", file.display()))?;
    total(&text).ok_or_else(|| format!("strace's table has no total: {text}"))
}

/// The calls in the last line: `100.00    0.123456           3     40000       123 total`.
fn total(text: &str) -> Option<f64> {
    let line = text
        .lines()
        .find(|line| line.trim_end().ends_with(" total"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

// Twice what the server can do, for a minute: memory stays flat, and every due request is responded
// to, failed, shed or cut off, with exact counts.

/// A thousand requests a second.
const OVERLOAD_SERVICE_US: u32 = 1_000;

fn overload_measure(bench: &Bench, target: &TargetProgram<'_>) -> Result<Vec<Figure>, String> {
    let seconds = if bench.plan.smoke { 3 } else { 60 };
    let mut figures = Vec::new();
    for (name, deadline) in [("backlog", None), ("deadline", Some("500ms"))] {
        let (growth, lost) = overload_overload(bench, target, seconds, deadline)?;
        println!("{name}: memory grew by {growth:.3}, {lost} requests are not accounted for");
        let growth_name = format!("load_overload_{name}_memory_growth_ratio");
        figures.push(Figure::median(growth_name, vec![growth]).at_most(1.05));
        let lost_name = format!("load_overload_{name}_requests_not_accounted_for");
        figures.push(Figure::median(lost_name, vec![lost.abs()]).at_most(0.0));
    }
    Ok(figures)
}

fn overload_overload(
    bench: &Bench,
    target: &TargetProgram<'_>,
    seconds: u64,
    deadline: Option<&str>,
) -> Result<(f64, f64), String> {
    let server = target.start(OVERLOAD_SERVICE_US)?;
    let file = bench.scratch.join("overload.json");
    let mut command = lasting(bench.machine.generator_cpu);
    command
        .arg(&bench.millpond)
        .args(["load", "-t", "1", "-c", "64", "-R", "2000"]);
    command
        .args(["-d", &format!("{seconds}s"), "--json"])
        .arg(&file);
    command.args(deadline.into_iter().flat_map(|time| ["--deadline", time]));
    command.arg(format!("http://{}/", server.address));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let spawned = command.spawn();
    let mut load = spawned.map_err(|error| format!("{command:?}: {error}"))?;
    // Past the first seconds, whose histograms are new.
    let early_s = seconds / 6 + 1;
    std::thread::sleep(Duration::from_secs(early_s));
    let early = anonymous_bytes(&load);
    // Before it can have ended.
    std::thread::sleep(Duration::from_secs(seconds - 1 - early_s));
    let late = anonymous_bytes(&load);
    let ended = load
        .wait()
        .map_err(|error| format!("the generator: {error}"))?;
    let text = std::fs::read_to_string(&file)
        .map_err(|error| format!("the generator ended with {ended}, and no record: {error}"))?;
    let record: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    Ok((late? / early?, not_accounted_for(&record)?))
}

/// Requests that were due, less all that became of them; failures include those never sent.
fn not_accounted_for(record: &Value) -> Result<f64, String> {
    let failures = ["read", "write", "timeout", "status", "validation"];
    let failed: Result<Vec<f64>, String> = failures
        .iter()
        .map(|phase| number(record, &format!("errors/{phase}")))
        .collect();
    let known = number(record, "response_ns/count")?
        + number(record, "shed")?
        + number(record, "abandoned")?
        + failed?.iter().sum::<f64>();
    Ok(number(record, "offered")? - known)
}

// User instructions of the client for each request, by callgrind: nginx serves a file of twelve bytes. Two runs of
// different length, so that the difference holds neither start nor end. All of each process counts, ours and wrk's:
// what is done once a second too, of which under callgrind there are fifty times as many to a request.

const CONNECTIONS: &str = "64";

fn instructions_measure(bench: &Bench, _: &TargetProgram<'_>) -> Result<Vec<Figure>, String> {
    callgrind::available()?;
    let root = bench.scratch.join("load-files");
    std::fs::create_dir_all(&root)
        .and_then(|()| std::fs::write(root.join("twelve"), "twelve bytes"))
        .map_err(|error| format!("{}: {error}", root.display()))?;
    let server = nginx::start_files(bench, &root, 100)?;
    let mut figures = Vec::new();
    for (depth, limit) in [("1", 1_200.0), ("16", 280.0)] {
        let value = millpond(bench, &server, depth)?;
        println!("load, depth {depth}: {value:.0} user instructions per request by callgrind");
        let name = format!("load_c64_depth{depth}_user_instructions_per_request_by_callgrind");
        figures.push(Figure::median(name, vec![value]).at_most(limit));
    }
    let value = wrk(bench, &server)?;
    println!("wrk: {value:.0} user instructions per request by callgrind");
    let name = "load_wrk_c64_depth1_user_instructions_per_request_by_callgrind";
    figures.push(Figure::median(name, vec![value]));
    Ok(figures)
}

fn millpond(bench: &Bench, server: &Server, depth: &str) -> Result<f64, String> {
    let url = format!("http://{}/twelve", server.address);
    // Each run is many times what is under way at once, or how full its batches happen to be decides.
    let thousands: u64 = if bench.plan.smoke { 10 } else { 20 };
    let count = |thousands: u64| {
        let requests = (thousands * 1_000).to_string();
        // --driver: valgrind does not follow a ring's completions.
        let words = [
            "load",
            "-t",
            "1",
            "-c",
            CONNECTIONS,
            "--pipeline",
            depth,
            "--driver",
            "epoll",
            "--receive-stamps",
            "off",
            "--timeout",
            "60s",
            "--requests",
            &requests,
            &url,
        ];
        callgrind::instructions(bench, "load", &words)
    };
    Ok((count(3 * thousands)? - count(thousands)?) / (2_000 * thousands) as f64)
}

/// wrk stops by time alone; it says how many requests that were.
fn wrk(bench: &Bench, server: &Server) -> Result<f64, String> {
    let url = format!("http://{}/twelve", server.address);
    let count = |seconds: &str| {
        let words = [
            "-t",
            "1",
            "-c",
            CONNECTIONS,
            "-d",
            seconds,
            "--timeout",
            "60s",
            &url,
        ];
        callgrind::of_wrk(bench, &words)
    };
    let (short, few) = count(if bench.plan.smoke { "1s" } else { "2s" })?;
    let (long, many) = count(if bench.plan.smoke { "4s" } else { "8s" })?;
    if many <= few {
        return Err(format!(
            "wrk made {few} requests in its short run and {many} in its long one"
        ));
    }
    Ok((long - short) / (many - few))
}

// How exactly a constant rate leaves: one connection, 2,000 a second, seen by the generator and by a
// server that writes down when requests come.
//
// The targets are for an otherwise idle machine. Few are: a kernel thread that takes the CPU for some
// milliseconds in every hundred is all of the p99. So each run has a second one at a real-time
// priority, which only what is not preempted can delay, and those figures stand beside.

const RATE: &str = "2000";
const INTERVAL_NS: u64 = 500_000;

fn pacing_measure(bench: &Bench, target: &TargetProgram<'_>) -> Result<Vec<Figure>, String> {
    let real_time = real_time();
    let (mut plain, mut first_in_line) = (Runs::default(), Runs::default());
    for _ in 0..bench.plan.pairs.min(5) {
        plain.add(bench, target, &[])?;
        if !real_time.is_empty() {
            first_in_line.add(bench, target, &real_time)?;
        }
    }
    let [slip_p50, slip_p99, shift, short] = plain.figures("load_r2000");
    let mut figures = vec![
        slip_p50.at_most(5.0),
        slip_p99.at_most(100.0),
        shift.at_most(10.0),
        short.at_most(0.01),
    ];
    if !real_time.is_empty() {
        figures.extend(first_in_line.figures("load_r2000_real_time"));
    }
    Ok(figures)
}

/// The results of some runs of the same kind.
#[derive(Debug, Default)]
struct Runs {
    slips_p50: Vec<f64>,
    slips_p99: Vec<f64>,
    shifts: Vec<f64>,
    short_shares: Vec<f64>,
}

impl Runs {
    /// One more, behind the words of `before`.
    fn add(
        &mut self,
        bench: &Bench,
        target: &TargetProgram<'_>,
        before: &[&str],
    ) -> Result<(), String> {
        let duration = if bench.plan.smoke { "1s" } else { "5s" };
        let server = target.start(0)?;
        let url = format!("http://{}/", server.address);
        let words = ["-t", "1", "-c", "1", "-R", RATE, "-d", duration, &url];
        let record = run_behind(bench, before, &words)?;
        let seen = arrivals(&server, INTERVAL_NS)?;
        let us = |path: &str| number(&record, path).map(|ns| ns / 1e3);
        let short = number(&seen, "gaps_short")? / number(&seen, "arrivals")?;
        println!(
            "send delay p50 {:.1} us, p99 {:.1} us; short gaps {:.2} % {}",
            us("slip_ns/p50")?,
            us("slip_ns/p99")?,
            short * 100.0,
            before.join(" ")
        );
        self.slips_p50.push(us("slip_ns/p50")?);
        self.slips_p99.push(us("slip_ns/p99")?);
        let shift = us("response_ns/p50")? - us("service_ns/p50")?;
        self.shifts.push(shift.abs());
        self.short_shares.push(short);
        Ok(())
    }

    fn figures(self, prefix: &str) -> [Figure; 4] {
        let figure = |what: &str, runs| Figure::median(format!("{prefix}_{what}"), runs);
        [
            figure("slip_p50_us", self.slips_p50),
            figure("slip_p99_us", self.slips_p99),
            figure("response_p50_over_service_p50_us", self.shifts),
            figure("gaps_below_half_share", self.short_shares),
        ]
    }
}

#[cfg(test)]
#[path = "tests/syscalls.rs"]
mod syscalls_tests;

#[cfg(test)]
#[path = "tests/overload.rs"]
mod overload_tests;
