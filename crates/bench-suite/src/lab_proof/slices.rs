//! The controls of slices: do they agree with an independent source?
//!
//! Each control is a comparison under circumstances that must not matter: with uninterrupted blocks of two
//! seconds beside the slices, with fewer or more candidates alive, with slices and settling of other lengths. The
//! table shows what each says of the same pair, and whether it agrees with the usual setting within both
//! intervals. One more shows what connections do: how much the rate of `millpond load` differs from one set of
//! connections to another, beside how much it differs from second to second on one set.
//!
//! Every comparison that ended is kept (`journal`), so the command can be interrupted and resumed.

use super::Journal;
use super::record::{Comparison, Found};
use crate::bench::candidates::Record;
use crate::bench::server::free_address;
use crate::bench::{self, Bench};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The time of each comparison by default.
pub(crate) const TIME_BUDGET_DEFAULT: &str = "150s";

/// The pair that every control compares, and what else lives beside it.
const PAIR: &str = "glibc,mimalloc";
const FOUR: &str = "glibc,mimalloc,jemalloc,tcmalloc";
/// Settings that purge by the clock at once, late and never; mimalloc's are named differently from version to version.
const PURGING: &str =
    "glibc,jemalloc,jemalloc:dirty_decay_ms=0,jemalloc:dirty_decay_ms=-1,mimalloc";
/// What all controls check.
const MEASURES: [&str; 4] = [
    "put.throughput_per_s",
    "put.cpu_per_request_ns",
    "get.throughput_per_s",
    "get.cpu_per_request_ns",
];
const COMPARED: &str = "mimalloc";
/// Sets of connections of the last control.
const SETS: &str = "12";

/// A comparison under other circumstances.
struct Control {
    name: &'static str,
    allocators: &'static str,
    words: &'static [&'static str],
}

/// The first is the reference for the others.
const CONTROLS: &[Control] = &[
    control("usual", PAIR, &[]),
    control("blocks of 2 s", PURGING, &["--block", "2s"]),
    control("4 candidates", FOUR, &[]),
    control("slices of 400 ms", PAIR, &["--slice", "400ms"]),
    control("settling of 40 ms", PAIR, &["--settle", "40ms"]),
    control("settling of 160 ms", PAIR, &["--settle", "160ms"]),
    control("10 connections", PAIR, &["--connections", "10"]),
];

const fn control(
    name: &'static str,
    allocators: &'static str,
    words: &'static [&'static str],
) -> Control {
    Control {
        name,
        allocators,
        words,
    }
}

/// All controls, of so much time each; prints the table and records it.
pub(crate) fn run(time_budget: &str) -> Result<(), String> {
    let mut bench = bench::prepare(bench::Plan::full(), true)?;
    bench.machine.keep_awake(true);
    let mut journal = Journal::open(&bench.scratch, "lab-proof-slices")?;
    let mut found = Vec::new();
    for control in CONTROLS {
        let key = format!("{} {time_budget}", control.name);
        println!("--- {}", control.name);
        let comparison = journal.find_or(&key, || control.compare(&bench, time_budget))?;
        found.push((control, comparison));
        print!("{}", table(&found));
    }
    print!("{}", blocks_table(&found));
    let connections = connections(&bench)?;
    println!("{}", connections["sentence"].as_str().unwrap_or_default());
    let command = format!("cargo bench-suite lab-proof slices {time_budget}");
    Record::new("lab-proof-slices", command, &bench.machine)?
        .with("controls", rows(&found))
        .with("blocks", block_rows(&found))
        .with("connections", connections)
        .write()
}

impl Control {
    fn compare(&self, bench: &Bench, time_budget: &str) -> Result<Comparison, String> {
        let out = bench.scratch.join("lab-proof-slices");
        let mut compare = Command::new(&bench.millpond);
        compare.args(["compare", "--pools", "off", "--emulated-counts", "0"]);
        compare.args([
            "--allocators",
            self.allocators,
            "--time-budget",
            time_budget,
        ]);
        compare.args(self.words).arg("--out").arg(&out);
        let output = compare
            .output()
            .map_err(|error| format!("millpond compare cannot be run: {error}"))?;
        match output.status.code() {
            // 4: not to be trusted, which is a result.
            Some(0 | 4) => Comparison::read(&out.join("results.json")),
            _ => Err(format!(
                "millpond compare ended with {}: {}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            )),
        }
    }
}

/// Whether two intervals allow the same ratio: their distance is within both half widths together.
fn agrees(one: &Found, other: &Found) -> bool {
    let half = |found: &Found| (found.high / found.low).ln() / 2.0;
    let bound = half(one).hypot(half(other));
    (one.ratio / other.ratio).ln().abs() <= bound
}

fn table(found: &[(&Control, Comparison)]) -> String {
    let mut text = format!("\n{COMPARED} against glibc; A/A: glibc against itself\n");
    for measure in MEASURES {
        let usual = found
            .first()
            .and_then(|(_, one)| one.of(COMPARED, measure).ok());
        for (control, comparison) in found {
            let show = |name: &str| match comparison.of(name, measure) {
                Ok(one) => format!("{:.3} [{:.3}, {:.3}]", one.ratio, one.low, one.high),
                Err(_) => "not measured".to_owned(),
            };
            let verdict = match (&usual, comparison.of(COMPARED, measure)) {
                (Some(usual), Ok(this)) if agrees(usual, &this) => "agrees",
                (Some(_), Ok(_)) => "DIFFERS",
                _ => "",
            };
            let _ = writeln!(
                text,
                "{measure:<24} {:<20} {:<24} {verdict:<8} A/A {}",
                control.name,
                show(COMPARED),
                show("(again)")
            );
        }
    }
    text
}

fn rows(found: &[(&Control, Comparison)]) -> Vec<Value> {
    let of = |comparison: &Comparison, name: &str, measure: &str| {
        comparison.of(name, measure).ok().map(
            |one| json!({"ratio": one.ratio, "low": one.low, "high": one.high, "verdict": one.verdict}),
        )
    };
    let mut rows = Vec::new();
    for (control, comparison) in found {
        for measure in MEASURES {
            rows.push(json!({
                "control": control.name,
                "measure": measure,
                COMPARED: of(comparison, COMPARED, measure),
                "again": of(comparison, "(again)", measure),
            }));
        }
    }
    rows
}

fn block_rows(found: &[(&Control, Comparison)]) -> Vec<Value> {
    let mut rows = Vec::new();
    for (control, comparison) in found {
        for (candidate, check) in comparison.block_checks() {
            rows.push(json!({"control": control.name, "candidate": candidate, "check": check}));
        }
    }
    rows
}

/// The blocks' results on slices, by control and candidate.
fn blocks_table(found: &[(&Control, Comparison)]) -> String {
    let mut text =
        "\nblocks divided by slices: throughput, CPU time; page faults and madvise calls per request, each in \
         slices and in blocks\n"
            .to_owned();
    let ratio = |value: &Value| match (
        value["ratio"].as_f64(),
        value["low"].as_f64(),
        value["high"].as_f64(),
    ) {
        (Some(ratio), Some(low), Some(high)) => format!("{ratio:.3} [{low:.3}, {high:.3}]"),
        _ => "-".to_owned(),
    };
    for row in block_rows(found) {
        let check = &row["check"];
        let count = |key: &str| {
            check[key]
                .as_f64()
                .map_or("-".to_owned(), |count| format!("{count:.3}"))
        };
        let _ = writeln!(
            text,
            "{:<20} {:<34} {:<4} {:<24} {:<24} {:>7} {:>7} {:>7} {:>7} {}",
            row["control"].as_str().unwrap_or_default(),
            row["candidate"].as_str().unwrap_or_default(),
            check["operation"].as_str().unwrap_or_default(),
            ratio(&check["throughput"]),
            ratio(&check["cpu_time"]),
            count("minor_faults_in_slices"),
            count("minor_faults_in_blocks"),
            count("madvise_calls_in_slices"),
            count("madvise_calls_in_blocks"),
            if check["is_used"] == true {
                "BLOCKS USED"
            } else {
                ""
            }
        );
    }
    text
}

/// How much a rate differs from one set of connections to another.
fn connections(bench: &Bench) -> Result<Value, String> {
    let address = free_address()?.to_string();
    let mut serve = Command::new(&bench.millpond);
    serve.args(["serve", "plaintext", "--shards", "1", "--listen", &address]);
    let mut server = serve
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("the server cannot be started: {error}"))?;
    let outcome = connections_of(bench, &address);
    let _ = server.kill();
    let _ = server.wait();
    outcome
}

fn connections_of(bench: &Bench, address: &str) -> Result<Value, String> {
    let url = format!("http://{address}/");
    for _ in 0..100 {
        if std::net::TcpStream::connect(address).is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let file = bench.scratch.join("lab-proof-sets.json");
    let load = |words: &[&str]| {
        let mut load = Command::new(&bench.millpond);
        load.args(["load", "-c", "64", "-t", "1", &url]).args(words);
        load.arg("--json").arg(&file).stdout(Stdio::null());
        let status = load
            .status()
            .map_err(|error| format!("millpond load: {error}"))?;
        if !status.success() {
            return Err(format!("millpond load ended with {status}"));
        }
        let text = std::fs::read(&file).map_err(|error| error.to_string())?;
        serde_json::from_slice::<Value>(&text).map_err(|error| error.to_string())
    };
    let sets = load(&["-d", "2s", "--repeat", SETS])?;
    let rate = &sets["connection_sets"]["requests_per_s"];
    let between = rate["stdev_share"]
        .as_f64()
        .ok_or("millpond load --repeat recorded no spread between sets")?;
    Ok(json!({
        "sets": sets["connection_sets"],
        "sentence": format!(
            "{SETS} sets of 64 connections, 2 s each, one after the other: the rate has a standard deviation of \
             {:.1} % between them",
            between * 100.0
        ),
    }))
}
