//! The figures this project holds itself to, measured with tools that are not ours.
//!
//! wrk and redis-benchmark are the generators, perf or callgrind the counter, nginx, haproxy and
//! other allocators the rivals: a mistake that our own server, generator and statistics shared
//! would show here. Rivals take turns (A B, B A, ...) and are compared in pairs, so that a machine
//! that slows down slows both.

pub(crate) mod server;
pub(crate) mod nginx;
mod generator;
pub(crate) mod callgrind;
mod plaintext;
mod entity;
mod lean;
mod load;
mod serving;
mod proxying;
mod pools;
pub(crate) mod candidates;
mod redis;

use std::borrow::Cow;
use std::fmt::{Display, Write};
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use candidates::{Record, Spread};
use serde_json::{Value, json};
use xtask::{TestTally, cargo, run_command};

/// How long and how often to measure.
pub(crate) struct Plan {
    /// Pairs of interleaved runs.
    pub(crate) pairs: usize,
    /// One run.
    pub(crate) run: Duration,
    /// Keys of the entity benchmark.
    pub(crate) keys: u64,
    /// Idle connections of the server benchmark.
    pub(crate) idle_connections: usize,
    /// Only whether it still works: nothing is recorded.
    pub(crate) smoke: bool,
}

impl Plan {
    /// The contents of the records.
    pub(crate) const fn full() -> Self {
        let run = Duration::from_secs(2);
        Self {
            pairs: 9,
            run,
            keys: 100_000,
            idle_connections: 10_000,
            smoke: false,
        }
    }

    /// A moment of each, for `cargo xtask verify`.
    pub(crate) const fn smoke() -> Self {
        let run = Duration::from_secs(1);
        Self {
            pairs: 1,
            run,
            keys: 1_000,
            idle_connections: 50,
            smoke: true,
        }
    }
}

/// The context of every benchmark.
pub(crate) struct Bench {
    pub(crate) plan: Plan,
    pub(crate) machine: Machine,
    /// The `millpond` that is measured; it is there if any benchmark that needs it was asked for.
    pub(crate) millpond: PathBuf,
    /// A directory on a real disk, for data and logs.
    pub(crate) scratch: PathBuf,
    /// Where cargo puts what it builds.
    pub(crate) target: PathBuf,
}

/// The package that is measured.
const MILLPOND: &str = "millpond";

type Measure = fn(&Bench) -> Result<Vec<Figure>, String>;

const ALL: [(&str, Measure); 7] = [
    ("plaintext", plaintext::measure),
    ("entity", entity::measure),
    (SERVER, serving::measure),
    ("proxy", proxying::measure),
    ("load", load::measure),
    ("pools", pools::measure),
    (REDIS, redis::measure),
];

/// The one that measures what polling saves over CPUs that sleep.
const SERVER: &str = "server";

/// The one that measures a third-party program.
const REDIS: &str = "redis";

/// Measures the benchmark of that name, or all of them, and prints the table.
pub(crate) fn run(name: &str, plan: Plan) -> Result<(), String> {
    let chosen: Vec<_> = ALL
        .iter()
        .filter(|(known, _)| name == "all" || name == *known)
        .collect();
    if chosen.is_empty() {
        return Err(format!(
            "no benchmark is called {name}: use plaintext, entity, server, proxy, load, pools, redis or all"
        ));
    }
    let needs_millpond = chosen.iter().any(|(name, _)| *name != REDIS);
    let mut bench = prepare(plan, needs_millpond)?;
    let mut figures = Vec::new();
    let mut failures = Vec::new();
    for (name, measure) in chosen {
        println!("\n--- {name}");
        let may_sleep = bench.plan.smoke || *name == SERVER;
        bench.machine.keep_awake(!may_sleep);
        match measure(&bench) {
            Ok(found) => {
                if !bench.plan.smoke && !found.is_empty() {
                    record(name, &found, &bench)?;
                }
                figures.extend(found);
            }
            // The others are measured anyway, so that one run reports everything that is wrong.
            Err(sentence) => {
                println!("FAILED: {name}: {sentence}");
                failures.push(format!("{name}: {sentence}"));
            }
        }
    }
    print!("\n{}", table(&figures));
    let nonsense = figures
        .iter()
        .filter(|figure| !figure.value.is_finite() || figure.value < 0.0)
        .map(|figure| format!("{} came out as {}", figure.name, figure.value));
    failures.extend(nonsense);
    match failures.is_empty() {
        true => Ok(()),
        false => Err(failures.join("; ")),
    }
}

fn record(name: &str, figures: &[Figure], bench: &Bench) -> Result<(), String> {
    let figures: Vec<Value> = figures.iter().map(Figure::to_json).collect();
    let command = format!("cargo bench-suite bench {name}");
    Record::new(name, command, &bench.machine)?
        .with("pairs", bench.plan.pairs)
        .with("run_ns", bench.plan.run.as_nanos() as u64)
        .with("figures", figures)
        .write()
}

/// The figures of all parts, one after the other. A failed benchmark does not lose the others' minutes: it becomes a
/// figure that misses its target.
fn measure_parts(
    bench: &Bench,
    benchmark: &str,
    parts: impl Iterator<Item = (&'static str, Result<Vec<Figure>, String>)>,
) -> Result<Vec<Figure>, String> {
    let mut figures = Vec::new();
    let mut failures = Vec::new();
    for (name, measured) in parts {
        match measured {
            Ok(found) => figures.extend(found),
            Err(sentence) => {
                println!("FAILED: {name}: {sentence}");
                failures.push(format!("{name}: {sentence}"));
            }
        }
    }
    if bench.plan.smoke && !failures.is_empty() {
        return Err(failures.join("; "));
    }
    let name = format!("{benchmark}_parts_not_measured");
    let count = Figure::median(name, vec![failures.len() as f64]);
    figures.push(count.at_most(0.0));
    Ok(figures)
}

/// Builds the command without RocksDB, whose library alone is half of a plain server's memory, and
/// puts it aside: the next build takes its place.
fn build_without_entity(bench: &Bench) -> Result<PathBuf, String> {
    if !run_command(
        build_command(bench.plan.smoke, MILLPOND).arg("--no-default-features"),
        &mut TestTally::default(),
    )? {
        return Err("millpond does not build without its default features".to_owned());
    }
    let aside = bench.scratch.join("millpond-without-entity");
    std::fs::copy(&bench.millpond, &aside)
        .map_err(|error| format!("{} cannot be written: {error}", aside.display()))?;
    match run_command(
        &mut build_command(bench.plan.smoke, MILLPOND),
        &mut TestTally::default(),
    )? {
        true => Ok(aside),
        false => Err("millpond does not build".to_owned()),
    }
}

/// Builds a program as the measured one is built, beside which it then lies.
fn build_beside(bench: &Bench, package: &str, program: &str) -> Result<PathBuf, String> {
    let mut build = build_command(bench.plan.smoke, package);
    match run_command(build.args(["--bin", program]), &mut TestTally::default())? {
        true => Ok(bench.millpond.with_file_name(program)),
        false => Err(format!("{program} does not build")),
    }
}

fn build_command(is_smoke: bool, package: &str) -> Command {
    let mut build = cargo();
    build.args(["build", "--locked", "--package", package]);
    if !is_smoke {
        build.arg("--release");
    }
    build
}

/// Builds what is measured, and checks the machine.
pub(crate) fn prepare(plan: Plan, needs_millpond: bool) -> Result<Bench, String> {
    let mut build = build_command(plan.smoke, MILLPOND);
    if needs_millpond && !run_command(&mut build, &mut TestTally::default())? {
        return Err("millpond does not build".to_owned());
    }
    let metadata = xtask::metadata()?;
    let target = metadata["target_directory"]
        .as_str()
        .ok_or("cargo names no target directory")?;
    let target = PathBuf::from(target);
    let profile = if plan.smoke { "debug" } else { "release" };
    let scratch = target.join("bench-scratch");
    std::fs::create_dir_all(&scratch)
        .map_err(|error| format!("{} cannot be made: {error}", scratch.display()))?;
    let millpond = target.join(profile).join("millpond");
    Ok(Bench {
        plan,
        machine: Machine::look(&millpond)?,
        millpond,
        scratch,
        target,
    })
}

// Rivals take turns, so that a machine that slows down slows both.

/// Runs `first` and `second` `count` times, A B, B A, ...; one tuple for each pair.
fn interleave<T: Display>(
    count: usize,
    names: [&str; 2],
    mut first: impl FnMut() -> Result<T, String>,
    mut second: impl FnMut() -> Result<T, String>,
) -> Result<Vec<(T, T)>, String> {
    let mut pairs = Vec::new();
    for number in 0..count {
        let pair = if number % 2 == 0 {
            let one = first()?;
            (one, second()?)
        } else {
            let other = second()?;
            (first()?, other)
        };
        let [one, other] = names;
        println!("pair {}: {one} {}; {other} {}", number + 1, pair.0, pair.1);
        pairs.push(pair);
    }
    Ok(pairs)
}

// A figure with its target, and the table of them.

/// Which side of the target is good.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Target {
    AtMost,
    AtLeast,
}

/// One number this project holds itself to, or one that explains it.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// In glossary form, with its unit last.
    pub(crate) name: Cow<'static, str>,
    pub(crate) value: f64,
    /// `None`: it explains another figure.
    pub(crate) target: Option<(Target, f64)>,
    /// The value of every run, in the order in which they ran.
    pub(crate) runs: Vec<f64>,
}

impl Figure {
    /// The median of the runs.
    pub(crate) fn median(name: impl Into<Cow<'static, str>>, runs: Vec<f64>) -> Self {
        Self {
            name: name.into(),
            value: Spread::of(runs.iter().copied()).median,
            target: None,
            runs,
        }
    }

    pub(crate) fn at_most(self, limit: f64) -> Self {
        Self {
            target: Some((Target::AtMost, limit)),
            ..self
        }
    }

    pub(crate) fn at_least(self, limit: f64) -> Self {
        Self {
            target: Some((Target::AtLeast, limit)),
            ..self
        }
    }

    fn is_met(&self) -> Option<bool> {
        self.target.map(|(side, limit)| match side {
            Target::AtMost => self.value <= limit,
            Target::AtLeast => self.value >= limit,
        })
    }

    /// For the record. The median differs from the value where the worst run is what counts.
    pub(crate) fn to_json(&self) -> Value {
        let mut shown = Spread::of(self.runs.iter().copied()).to_json();
        shown["name"] = json!(self.name);
        shown["value"] = json!(self.value);
        if let Some(is_met) = self.is_met() {
            shown["target"] = json!(self.target_text());
            shown["met"] = json!(is_met);
        }
        shown
    }

    fn target_text(&self) -> String {
        match self.target {
            None => String::new(),
            Some((Target::AtMost, limit)) => format!("<= {}", digits(limit)),
            Some((Target::AtLeast, limit)) => format!(">= {}", digits(limit)),
        }
    }
}

/// Whole numbers once the fraction stops mattering.
fn digits(value: f64) -> String {
    if value.abs() >= 100.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}

/// One line per figure, its target and whether it is met.
pub(crate) fn table(figures: &[Figure]) -> String {
    let mut text = format!("{:<56} {:>12} {:>12}\n", "figure", "target", "measured");
    for figure in figures {
        let met = match figure.is_met() {
            None => "",
            Some(true) => "  met",
            Some(false) => "  MISSED",
        };
        let (target, value) = (figure.target_text(), digits(figure.value));
        let _ = writeln!(text, "{:<56} {target:>12} {value:>12}{met}", figure.name);
    }
    text
}

// How every program of a benchmark is started: on one CPU, dying with us, and not for ever.
//
// The programs that do this are util-linux's and coreutils': `setpriv` has the kernel stop the
// program when we end in whatever way, `prlimit` lets it have as many descriptors as it may,
// `taskset` binds it, `timeout` bounds it.

/// A program that runs until it is stopped. Its process is the one that is started here: each of
/// these words becomes the next.
pub(crate) fn lasting(cpu: usize) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM"]);
    if let Some(count_max) = descriptors_max() {
        command.args(["prlimit", &format!("--nofile={count_max}:{count_max}")]);
    }
    command.args(["taskset", "--cpu-list", &cpu.to_string()]);
    command
}

/// As many descriptors as a process may have at most; the usual 1,024 are too few for a crowd.
fn descriptors_max() -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// The words behind which a program is not held up by others; none where the system forbids it.
pub(crate) fn real_time() -> Vec<&'static str> {
    real_time_at("20")
}

/// The same at another priority: the higher one goes first.
pub(crate) fn real_time_at(priority: &str) -> Vec<&str> {
    let words = vec!["chrt", "--fifo", priority];
    let tried = Command::new(words[0])
        .args(&words[1..])
        .arg("true")
        .stderr(Stdio::null())
        .status();
    match tried.is_ok_and(|status| status.success()) {
        true => words,
        false => Vec::new(),
    }
}

/// A program that is stopped after `limit`, which none of them should need.
pub(crate) fn bounded(cpu: usize, limit: Duration) -> Command {
    let mut command = lasting(cpu);
    let seconds = limit.as_secs_f64().to_string();
    command.args(["timeout", "--foreground", "--kill-after", "10", &seconds]);
    command
}

/// Runs a load generator to its end; its text. That it does not trust itself (exit status 4), as where
/// the hypervisor takes a tenth of a second of CPU, is no failure here: pairs and medians are what the
/// figures rest on.
fn text_of_load(command: &mut Command) -> Result<String, String> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?} cannot be run: {error}"))?;
    match output.status.code() {
        Some(0 | 4) => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        _ => Err(format!(
            "{command:?} ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

/// Runs it to its end; its text, or what it said instead.
fn text_of(command: &mut Command) -> Result<String, String> {
    let name = format!("{command:?}").replace('"', "");
    let output = command
        .output()
        .map_err(|error| format!("{name} cannot be run: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().lines().last().unwrap_or_default();
        return Err(format!("{name} ended with {}: {said}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

// The machine of the figures, and the use of each CPU.

/// The machine as far as it bears on a figure.
pub(crate) struct Machine {
    /// The server's CPU.
    pub(crate) server_cpu: usize,
    /// The generator's CPU.
    pub(crate) generator_cpu: usize,
    awake: Option<Awake>,
    /// The output of `millpond version`: features, storage engine and how that was built.
    build: Vec<String>,
}

impl Machine {
    /// Picks two CPUs; with one alone, server and generator would measure each other. `millpond` is what is measured.
    pub(crate) fn look(millpond: &Path) -> Result<Self, String> {
        let cpus = allowed_cpus(&read("/proc/self/status"));
        let [server_cpu, generator_cpu, ..] = cpus[..] else {
            return Err(
                "the benchmarks need two CPUs: one for the server, one for the generator"
                    .to_owned(),
            );
        };
        Ok(Self {
            server_cpu,
            generator_cpu,
            awake: None,
            build: lines(millpond, "version"),
        })
    }

    /// Idle CPUs stay awake from now on, or sleep as the system has it; see [`Awake`].
    pub(crate) fn keep_awake(&mut self, is_wanted: bool) {
        self.awake = if is_wanted { Awake::ask() } else { None };
        if is_wanted && self.awake.is_none() {
            println!("idle CPUs sleep: /dev/cpu_dma_latency needs root, and a kernel that has it");
        }
    }

    /// For the record.
    pub(crate) fn describe(&self) -> Value {
        let field = |file: &str, name: &str| {
            let text = read(file);
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        json!({
            "kernel": read("/proc/sys/kernel/osrelease").trim(),
            "cpu": field("/proc/cpuinfo", "model name"),
            "cpus": allowed_cpus(&read("/proc/self/status")).len(),
            "memory": field("/proc/meminfo", "MemTotal"),
            "rustc": first_line("rustc", &["--version"]),
            "build": self.build,
            "commit": first_line("git", &["describe", "--always", "--dirty"]),
            "wrk": first_line("wrk", &["-v"]).map(|line| line.chars().take(20).collect::<String>()),
            "nginx": first_line("nginx", &["-v"]),
            "haproxy": first_line("haproxy", &["-v"]).or_else(|| first_line("/usr/sbin/haproxy", &["-v"])),
            "redis": first_line("redis-server", &["--version"]),
            "etcd": first_line("etcd", &["--version"]),
            "valgrind": first_line("valgrind", &["--version"]),
            "server_cpu": self.server_cpu,
            "generator_cpu": self.generator_cpu,
            "idle_cpus": if self.awake.is_some() { "stay awake" } else { "sleep as the system has it" },
        })
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The first line a program prints; some print their version on stderr.
pub(crate) fn first_line(program: &str, words: &[&str]) -> Option<String> {
    let output = Command::new(program).args(words).output().ok()?;
    let both = [output.stdout, output.stderr].concat();
    Some(
        String::from_utf8_lossy(&both)
            .lines()
            .next()?
            .trim()
            .to_owned(),
    )
}

/// What a program prints for one word; nothing if it cannot be run.
fn lines(program: &Path, word: &str) -> Vec<String> {
    let output = Command::new(program).arg(word).output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines().map(str::to_owned).collect()
}

/// Reads `Cpus_allowed_list: 0-2,5` of /proc/PID/status.
fn allowed_cpus(status: &str) -> Vec<usize> {
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let mut cpus = Vec::new();
    for part in list.unwrap_or_default().trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            cpus.extend(first..=last);
        }
    }
    cpus
}

// Idle CPUs that stay awake while something is measured.
//
// An idle virtual CPU is given back to the host, and the host decides how soon it returns when a packet comes. On a
// noisy host that is most of a latency, and it is reported as stolen time. Real CPUs sleep too, less deeply. Linux
// keeps the CPUs awake while a program asks for it (Documentation/admin-guide/pm/cpuidle.rst, "Power Management Quality
// of Service for CPUs"), until that program closes the file; all compared servers profit equally.

/// As long as this is kept, no CPU sleeps.
struct Awake {
    _request: File,
}

impl Awake {
    /// Asks for it. `None` where that needs root, or a kernel that can.
    fn ask() -> Option<Self> {
        let mut request = OpenOptions::new()
            .write(true)
            .open("/dev/cpu_dma_latency")
            .ok()?;
        // The longest wait for a CPU that may be, in microseconds.
        request.write_all(&0_i32.to_ne_bytes()).ok()?;
        Some(Self { _request: request })
    }
}

#[cfg(test)]
#[path = "tests/figure.rs"]
mod figure_tests;

#[cfg(test)]
#[path = "tests/command.rs"]
mod command_tests;

#[cfg(test)]
#[path = "tests/machine.rs"]
mod machine_tests;
