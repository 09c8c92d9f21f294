//! Does `millpond compare` find what is there, and nothing else?
//!
//! Real comparisons of a real server under the C library's malloc, under the same once more, and under
//! the same with a fault of known size (`preload/plant`): more instructions in each call, a stall in one
//! call of many, memory that is never given back. The table says how often something was claimed where
//! there is nothing, how often each fault was found, and how often the interval held the truth.
//!
//! The truth of memory follows from what was planted. That of time does not (what a stall does to a p99
//! depends on who waits behind it): there it is the median of all comparisons' estimates.
//! Absent on purpose: any verdict that fails a build by the clock. The smoke run looks at memory alone.

mod record;
mod tally;

use crate::bench::{self, Bench, machine::first_line, server::free_address};
use crate::step::{cargo, run_command};
use crate::tally::TestTally;
use record::Comparison;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use tally::Tally;

/// Comparisons, unless told otherwise: so many have an upper 95 % bound of 7.2 % if none errs.
pub(crate) const COMPARISONS_DEFAULT: u32 = 40;
/// What `millpond compare` takes without a word.
pub(crate) const TIME_BUDGET_DEFAULT: &str = "270s";

/// Additional instructions, as a share of all of a request's. It takes hardware counters to see them.
const WORK_SHARE: f64 = 0.01;
/// Without counters CPU time stands in, which is not as fine: a share of a request's CPU time.
const CPU_SHARE: f64 = 0.10;
/// A turn of three instructions takes a cycle: so many in a nanosecond, roughly. The size of the fault
/// follows from it, not the truth it is compared with.
const TURNS_PER_NS: f64 = 3.0;
const TURN_INSTRUCTIONS: f64 = 3.0;
/// How much the 99th percentile is to grow, and the requests that are hit for it.
const P99_SHARE: f64 = 0.03;
const HIT_SHARE: f64 = 0.02;
/// A p99 beyond so many medians is the machine's doing while it was looked at: a stall as long would
/// be a server that does nothing else.
const TAIL_MEDIANS_MAX: f64 = 5.0;
/// How much more is resident.
const RSS_SHARE: f64 = 0.05;
/// In the smoke run, far beyond any noise.
const SMOKE_RSS_SHARE: f64 = 0.30;

const THROUGHPUT: &str = "request.throughput_per_s";
const P50: &str = "request.response_p50_ns";
const P99: &str = "request.response_p99_ns";
const RSS: &str = "rss_after_work_bytes";
const INSTRUCTIONS: &str = "request.instructions_per_request";
const CPU: &str = "request.cpu_per_request_ns";
const HEAP_CALLS: &str = "request.heap_calls_per_request";

/// What is planted, and where it has to show.
struct Fault {
    name: &'static str,
    measure: &'static str,
    /// Settings of the object.
    settings: String,
    /// For the table.
    planted: String,
    /// Bytes that are added to the measure, where that is the truth.
    added_bytes: Option<f64>,
}

struct Proof {
    bench: Bench,
    object: PathBuf,
    out: PathBuf,
}

/// So many comparisons of so much time each; prints the table and records it.
pub(crate) fn run(comparisons: u32, time_budget: &str) -> Result<(), String> {
    let proof = Proof::prepare(bench::Plan::full())?;
    let faults = proof.faults()?;
    let mut tallies = tallies(&faults);
    for number in 0..comparisons {
        println!("--- comparison {} of {comparisons}", number + 1);
        let seed = number.to_string();
        let words = ["--time-budget", time_budget, "--seed", &seed];
        let comparison = proof.compare(&faults, &words)?;
        for tally in &mut tallies {
            tally.add(&comparison);
        }
        // A table after each: many comparisons take hours.
        print!("{}", tally::table(&tallies));
    }
    let date = first_line("date", &["-u", "+%F"]).ok_or("date(1) cannot be run")?;
    let path = format!("benches/records/{date}-lab-proof.json");
    let rows: Vec<Value> = tallies.iter().map(Tally::to_json).collect();
    let record = json!({
        "name": "lab-proof",
        "date": date,
        "command": format!("cargo xtask lab-proof {comparisons} {time_budget}"),
        "environment": proof.bench.machine.describe(),
        "comparisons": comparisons,
        "rows": rows,
    });
    std::fs::write(Path::new(&path), format!("{record:#}\n"))
        .map_err(|error| format!("{path} cannot be written: {error}"))?;
    println!("recorded in {path}");
    Ok(())
}

/// One comparison of seven rounds with a large fault in memory, which no timing touches: it has to be
/// found, and its size has to be about right.
pub(crate) fn smoke() -> Result<(), String> {
    let proof = Proof::prepare(bench::Plan::smoke())?;
    let scout = proof.scout()?;
    let fault = retaining(scout.baseline(RSS)?, SMOKE_RSS_SHARE);
    let words = ["--rounds", "7", "--idle", "10ms", "--time-budget", "10s"];
    let comparison = proof.compare(std::slice::from_ref(&fault), &words)?;
    let mut tallies = tallies(std::slice::from_ref(&fault));
    for tally in &mut tallies {
        tally.add(&comparison);
    }
    print!("{}", tally::table(&tallies));
    let found = comparison.of(fault.name, fault.measure)?;
    if found.verdict != "worse" {
        return Err(format!(
            "{} of additional memory were not found: {found:?}",
            fault.planted
        ));
    }
    let (low, high) = (1.0 + SMOKE_RSS_SHARE / 2.0, 1.0 + SMOKE_RSS_SHARE * 2.0);
    if !(low..=high).contains(&found.ratio) {
        return Err(format!("{} became {found:?}", fault.planted));
    }
    Ok(())
}

/// One row for each fault, after those of the baseline's double.
fn tallies(faults: &[Fault]) -> Vec<Tally> {
    let equals = [THROUGHPUT, P99, RSS]
        .into_iter()
        .map(|measure| Tally::of_equals("(again)", measure));
    let planted = faults
        .iter()
        .map(|fault| Tally::of_fault(fault.name, fault.measure, &fault.planted, fault.added_bytes));
    equals.chain(planted).collect()
}

fn retaining(rss_bytes: f64, share: f64) -> Fault {
    let added_bytes = (rss_bytes * share / 4096.0).round() * 4096.0;
    Fault {
        name: "retain",
        measure: RSS,
        settings: format!("PLANT_RETAIN_BYTES={added_bytes}"),
        planted: format!("{:.0} KiB more RSS", added_bytes / 1024.0),
        added_bytes: Some(added_bytes),
    }
}

impl Proof {
    fn prepare(plan: bench::Plan) -> Result<Self, String> {
        let is_smoke = plan.smoke;
        let bench = bench::prepare(plan, true)?;
        let mut build = cargo();
        build.args(["build", "--locked", "--profile", "preload"]);
        build.args(["--package", "millpond-preload-plant"]);
        if !run_command(&mut build, &mut TestTally::default())? {
            return Err("preload/plant does not build".to_owned());
        }
        let object = bench.target.join("preload/libmillpond_plant.so");
        let name = if is_smoke {
            "lab-proof-smoke"
        } else {
            "lab-proof"
        };
        let out = bench.scratch.join(name);
        Ok(Self { bench, object, out })
    }

    /// What a request costs without a fault, to size the faults by.
    fn scout(&self) -> Result<Comparison, String> {
        self.compare(
            &[],
            &["--rounds", "2", "--time-budget", "10s", "--seed", "0"],
        )
    }

    fn faults(&self) -> Result<Vec<Fault>, String> {
        let scout = self.scout()?;
        let allocations = scout.baseline(HEAP_CALLS)?;
        if allocations < 0.1 {
            return Err(format!(
                "the server makes {allocations} heap calls for a request: nothing can be planted there"
            ));
        }
        Ok(vec![
            working(&scout, allocations)?,
            stalling(&scout, allocations)?,
            retaining(scout.baseline(RSS)?, RSS_SHARE),
        ])
    }

    /// One comparison of `millpond serve plaintext` without pools.
    fn compare(&self, faults: &[Fault], words: &[&str]) -> Result<Comparison, String> {
        let address = free_address()?.to_string();
        let url = format!("http://{address}/");
        let mut allocators = "glibc".to_owned();
        for fault in faults {
            let object = self.object.display();
            allocators += &format!(",{}={object}:{}", fault.name, fault.settings);
        }
        let mut compare = Command::new(&self.bench.millpond);
        compare.args(["compare", "--allocators", &allocators]);
        compare.args(words).arg("--out").arg(&self.out);
        compare.args(["--url", &url, "--"]);
        compare.arg(&self.bench.millpond);
        compare.args(["serve", "plaintext", "--listen", &address]);
        compare.args(["--shards", "1", "--pools", "off"]);
        if self.bench.plan.smoke {
            // Checks may run beside each other; only memory is looked at.
            compare.env("MILLPOND_LOCK", "");
        }
        let output = compare
            .output()
            .map_err(|error| format!("millpond compare cannot be run: {error}"))?;
        // 4: not to be trusted, which is a result.
        if ![Some(0), Some(4)].contains(&output.status.code()) {
            let words = String::from_utf8_lossy(&output.stderr);
            return Err(format!(
                "millpond compare ended with {}: {words}",
                output.status
            ));
        }
        Comparison::read(&self.out.join("results.json"))
    }
}

fn working(scout: &Comparison, allocations: f64) -> Result<Fault, String> {
    let (measure, instructions, what) = match scout.baseline(INSTRUCTIONS) {
        Ok(all) => (INSTRUCTIONS, all * WORK_SHARE / allocations, ""),
        Err(_) => {
            let turns = scout.baseline(CPU)? * CPU_SHARE / allocations * TURNS_PER_NS;
            (
                CPU,
                TURN_INSTRUCTIONS * turns,
                "; no counters here, so CPU time",
            )
        }
    };
    let instructions = instructions.ceil().max(TURN_INSTRUCTIONS);
    Ok(Fault {
        name: "work",
        measure,
        settings: format!("PLANT_INSTRUCTIONS={instructions}"),
        planted: format!("{instructions} instructions an allocation{what}"),
        added_bytes: None,
    })
}

fn stalling(scout: &Comparison, allocations: f64) -> Result<Fault, String> {
    let usual_ns = scout.baseline(P50)?;
    // Too slow a machine for a p99 of two short rounds: twice the median will do to size a fault.
    let tail_ns = scout.baseline(P99).unwrap_or(2.0 * usual_ns);
    let tail_ns = tail_ns.min(TAIL_MEDIANS_MAX * usual_ns);
    let every = (allocations / HIT_SHARE).ceil().max(1.0);
    let stall_us = ((tail_ns * (1.0 + P99_SHARE) - usual_ns) / 1e3)
        .ceil()
        .max(1.0);
    Ok(Fault {
        name: "stall",
        measure: P99,
        settings: format!("PLANT_STALL_EVERY={every},PLANT_STALL_US={stall_us}"),
        planted: format!("{stall_us} us in one allocation of {every}"),
        added_bytes: None,
    })
}
