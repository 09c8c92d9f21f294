//! Does `millpond compare` find what is there, and nothing else?
//!
//! Real comparisons of a server with itself, and with the same that has faults of known size
//! (`preload/plant`): more work in each allocation, a longer stall in one of many, memory that is never given
//! back. Those of instructions alone need no quiet machine (`scope`). The table says how often something was claimed where there is nothing, how often each fault was
//! found, and how often the interval held the truth. What the server is like, and why: `faults`.
//!
//! The truth follows from what was planted and from what that takes without the lab (`calibration`). No build fails by
//! the clock: the smoke run looks at memory alone.

pub(crate) mod calibration;
mod faults;
mod scope;
mod record;
mod journal;
pub(crate) mod slices;
mod tally;

use crate::bench::record::Record;
use crate::bench::{self, Bench};
use crate::step::{cargo, run_command};
use crate::tally::TestTally;
use faults::Scene;
use journal::Journal;
use record::Comparison;
pub(crate) use scope::Scope;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use tally::Tally;

/// Comparisons, unless told otherwise: so many have an upper 95 % bound of 7.2 % if none errs.
pub(crate) const COMPARISONS_DEFAULT: u32 = 40;
/// What `millpond compare` takes without a word.
pub(crate) const TIME_BUDGET_DEFAULT: &str = "300s";

/// In the smoke run, far beyond any noise.
const SMOKE_MEMORY_SHARE: f64 = 0.30;

const THROUGHPUT: &str = "request.throughput_per_s";
const P99: &str = "request.response_p99_ns";
const MEMORY: &str = "memory_after_work_bytes";
const INSTRUCTIONS: &str = "request.instructions_per_request";
const EMULATED: &str = "request.emulated_instructions_per_request";
const CPU: &str = "request.cpu_per_request_ns";
const HEAP_CALLS: &str = "request.heap_calls_per_request";

/// The candidate with the faults.
const PLANTED: &str = "planted";

struct Proof {
    scope: Scope,
    bench: Bench,
    object: PathBuf,
    out: PathBuf,
}

/// So many comparisons of so much time each; prints the table and records it.
pub(crate) fn run(comparisons: u32, time_budget: &str, scope: Scope) -> Result<(), String> {
    let mut proof = Proof::prepare(bench::Plan::full(), scope)?;
    // As `millpond compare` does by itself in a virtual machine; the record says whether they were.
    proof.bench.machine.keep_awake(true);
    let (word, name) = scope.names();
    let mut journal = Journal::open(&proof.bench.scratch, name)?;
    // The faults are sized by it, and stay the same when the verb goes on.
    let scout = journal.find_or("scout", || proof.scout())?;
    let scene = scope.scene(&scout, calibration::ns_per_instruction(&proof.object)?)?;
    let mut tallies = tallies(scope, &scene);
    let mut courses = Vec::new();
    for number in 0..comparisons {
        println!("--- comparison {} of {comparisons}", number + 1);
        let seed = number.to_string();
        let words = ["--time-budget", time_budget, "--seed", &seed];
        let allocators = scene.allocators(&proof.object());
        let key = format!("{time_budget} {seed} {allocators}");
        let comparison = journal.find_or(&key, || proof.compare(&allocators, &words))?;
        courses.push(comparison.course());
        for tally in &mut tallies {
            tally.add(&comparison);
        }
        // A table after each: many comparisons take hours.
        print!("{}", tally::table(&tallies));
    }
    let rows: Vec<Value> = tallies.iter().map(Tally::to_json).collect();
    let command = format!("cargo xtask lab-proof {comparisons} {time_budget}{word}");
    Record::new(name, command, &proof.bench.machine)?
        .with("comparisons", comparisons)
        .with("server", scene.baseline.to_string())
        .with("course", record::courses(&courses))
        .with("rows", rows)
        .write()
}

/// One comparison of seven rounds with a large fault in memory, which no timing touches: it has to be
/// found, and its size has to be about right.
pub(crate) fn smoke() -> Result<(), String> {
    let proof = Proof::prepare(bench::Plan::smoke(), Scope::All)?;
    let scene = Scene::of_memory(&proof.scout()?, SMOKE_MEMORY_SHARE)?;
    let words = ["--rounds", "7", "--idle", "10ms", "--time-budget", "10s"];
    let comparison = proof.compare(&scene.allocators(&proof.object()), &words)?;
    let mut tallies = tallies(Scope::All, &scene);
    for tally in &mut tallies {
        tally.add(&comparison);
    }
    print!("{}", tally::table(&tallies));
    let found = comparison.of(PLANTED, MEMORY)?;
    if found.verdict != "worse" {
        return Err(format!("additional memory was not found: {found:?}"));
    }
    let (low, high) = (
        1.0 + SMOKE_MEMORY_SHARE / 2.0,
        1.0 + SMOKE_MEMORY_SHARE * 2.0,
    );
    if !(low..=high).contains(&found.ratio) {
        return Err(format!("a share of {SMOKE_MEMORY_SHARE} became {found:?}"));
    }
    Ok(())
}

/// One row for each fault, after those of the baseline's double.
fn tallies(scope: Scope, scene: &Scene) -> Vec<Tally> {
    let equals = scope
        .measures(scene)
        .into_iter()
        .map(|measure| Tally::of_equals("(again)", measure));
    let planted = scene
        .faults
        .iter()
        .map(|fault| Tally::of_fault(PLANTED, fault.measure, &fault.planted, fault.truth));
    equals.chain(planted).collect()
}

impl Proof {
    fn prepare(plan: bench::Plan, scope: Scope) -> Result<Self, String> {
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
        Ok(Self {
            scope,
            bench,
            object,
            out,
        })
    }

    /// What a request costs without a fault, to size the faults by.
    fn scout(&self) -> Result<Comparison, String> {
        self.compare(
            "glibc",
            &["--rounds", "2", "--time-budget", "10s", "--seed", "0"],
        )
    }

    /// The object that plants, as `--allocators` takes it.
    fn object(&self) -> String {
        self.object.display().to_string()
    }

    /// One comparison of the scope's server.
    fn compare(&self, allocators: &str, words: &[&str]) -> Result<Comparison, String> {
        let mut compare = Command::new(&self.bench.millpond);
        compare.args(["compare", "--allocators", allocators]);
        compare.args(words).arg("--out").arg(&self.out);
        self.scope.subject(&mut compare, &self.bench)?;
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
