//! The figures this project holds itself to, measured with tools that are not ours.
//!
//! wrk and redis-benchmark are the generators, perf or callgrind the counter, nginx, haproxy and other
//! allocators the rivals: a mistake that our own
//! server, generator and statistics shared would show here. Rivals take turns (A B, B A, ...) and are compared in
//! pairs, so that a machine that slows down slows both. Absent on purpose: any verdict that fails a
//! build; a figure that misses its target is printed as such and recorded.

mod awake;
pub(crate) mod machine;
pub(crate) mod command;
pub(crate) mod server;
pub(crate) mod nginx;
mod generator;
mod pairs;
pub(crate) mod perf;
mod callgrind;
pub(crate) mod record;
pub(crate) mod figure;
mod plaintext;
mod entity;
mod lean;
mod load;
mod serving;
mod proxying;
mod pools;
mod candidates;
mod redis;

use crate::step::{cargo, run_command};
use crate::tally::TestTally;
use figure::Figure;
use machine::Machine;
use record::Record;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

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
    /// What the records hold.
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

    /// A moment of each, for `cargo xtask check`.
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

/// What every benchmark needs to know.
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

/// The one that measures a program of somebody else's.
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
            // The others are measured all the same: one run names all that is wrong.
            Err(sentence) => {
                println!("FAILED: {name}: {sentence}");
                failures.push(format!("{name}: {sentence}"));
            }
        }
    }
    print!("\n{}", figure::table(&figures));
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
    let command = format!("cargo xtask bench {name}");
    Record::new(name, command, &bench.machine)?
        .with("pairs", bench.plan.pairs)
        .with("run_ns", bench.plan.run.as_nanos() as u64)
        .with("figures", figures)
        .write()
}

/// The figures of all parts, one after the other. What one could not measure keeps the others' minutes
/// from being lost: it is a figure that misses its target.
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

/// Builds what is measured, and looks at the machine.
pub(crate) fn prepare(plan: Plan, needs_millpond: bool) -> Result<Bench, String> {
    let mut build = build_command(plan.smoke, MILLPOND);
    if needs_millpond && !run_command(&mut build, &mut TestTally::default())? {
        return Err("millpond does not build".to_owned());
    }
    let metadata = crate::metadata::metadata()?;
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
