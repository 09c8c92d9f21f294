//! Does `millpond compare` find what is there, and nothing else?
//!
//! Real comparisons of a server with itself, and with a copy that has faults of known size (`preload/plant`): more work
//! in each allocation, a longer stall in one of many, leaked memory. Those of instructions alone need no quiet machine
//! (`scope`). The table says how often a difference was claimed where there is none, how often each fault was found,
//! and how often the interval contained the true value. `faults` describes the server and the reasons.
//!
//! The true value follows from the planted fault and from its cost without the lab (`calibration`). No build fails
//! because of time: the smoke run checks memory only.

mod faults;
mod record;
pub(crate) mod slices;

use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use faults::Scene;
use record::Comparison;
use record::Tally;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use crate::bench;
use crate::bench::candidates::Record;
use crate::bench::{Bench, callgrind, nginx};
use xtask::{TestTally, cargo, run_command};

/// Comparisons by default: so many have an upper 95 % bound of 7.2 % if none errs.
pub(crate) const COMPARISONS_DEFAULT: u32 = 40;
/// The default duration of `millpond compare`.
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
    // The faults are sized by it, and stay the same when the command is resumed.
    let scout = journal.find_or("scout", || proof.scout())?;
    let scene = scope.scene(&scout, ns_per_instruction(&proof.object)?)?;
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
        print!("{}", record::table(&tallies));
    }
    let rows: Vec<Value> = tallies.iter().map(Tally::to_json).collect();
    let command = format!("cargo bench-suite lab-proof {comparisons} {time_budget}{word}");
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
    print!("{}", record::table(&tallies));
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

    /// The cost of a request without a fault, to size the faults by.
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
            // Checks may run beside each other; only memory is measured.
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

// The property to prove, and its server.

/// How often instructions are counted by valgrind where the processor hides its counters: what it takes to
/// decide between two candidates and a double.
const EMULATED_COUNTS: &str = "8";

/// Which rows the table has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Scope {
    /// Every kind of measure.
    All,
    /// Instructions alone. Counted, not timed: whatever else runs on the machine.
    Instructions,
}

impl Scope {
    /// The word behind the command, and the record's name.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::All => ("", "lab-proof"),
            Self::Instructions => (" instructions", "lab-proof-instructions"),
        }
    }

    /// What is planted, after a measurement of the server without it. `ns`: CPU time of a planted
    /// instruction.
    fn scene(self, scout: &Comparison, ns: f64) -> Result<Scene, String> {
        match self {
            Self::All => Scene::sized(scout, ns),
            Self::Instructions => Scene::of_work(scout),
        }
    }

    /// Where the baseline's double must not differ.
    fn measures(self, scene: &Scene) -> Vec<&'static str> {
        match self {
            Self::All => vec![THROUGHPUT, P99, CPU, MEMORY],
            Self::Instructions => scene.faults.iter().map(|fault| fault.measure).collect(),
        }
    }

    /// Adds the server to a comparison's words: nginx in one process, which allocates equally often for each request.
    fn subject(self, compare: &mut Command, bench: &Bench) -> Result<(), String> {
        let (address, words) = nginx::command_alone(bench)?;
        let counts = match self {
            Self::Instructions if callgrind::perf_available().is_err() => EMULATED_COUNTS,
            _ => "0",
        };
        compare.args(["--emulated-counts", counts]);
        compare.env("PATH", nginx::path_with_sbin());
        compare.args(["--url", &format!("http://{address}/"), "--"]);
        compare.args(words);
        Ok(())
    }
}

// The cost of the planted work, measured without the lab.
//
// A process that does nothing but allocate runs under `preload/plant` with two amounts of planted work alternately; the
// difference of their CPU times, divided by the difference of the instructions, is the true value that the lab's
// estimates are compared with.

/// Allocations of each process.
const ALLOCATIONS: u32 = 2_000;
/// Planted in each of them.
const CALIBRATION_INSTRUCTIONS: [f64; 2] = [15_000.0, 45_000.0];
/// Pairs of processes; the median counts.
const PAIRS: usize = 15;
/// The verb that this program starts itself by.
pub(crate) const VERB: [&str; 2] = ["lab-proof", "--allocate"];

/// Nanoseconds of CPU time of an instruction that `object` plants.
fn ns_per_instruction(object: &Path) -> Result<f64, String> {
    let mut found = Vec::new();
    for _ in 0..PAIRS {
        let [less, more] =
            CALIBRATION_INSTRUCTIONS.map(|instructions| cpu_ns(object, instructions));
        let planted =
            (CALIBRATION_INSTRUCTIONS[1] - CALIBRATION_INSTRUCTIONS[0]) * f64::from(ALLOCATIONS);
        found.push((more? - less?) / planted);
    }
    found.sort_by(f64::total_cmp);
    Ok(found[PAIRS / 2])
}

/// The cost of one process's allocations.
fn cpu_ns(object: &Path, instructions: f64) -> Result<f64, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let mut command = Command::new(program);
    command.args(VERB).arg(ALLOCATIONS.to_string());
    command.env("LD_PRELOAD", object);
    command.env("PLANT_INSTRUCTIONS", instructions.to_string());
    let output = command
        .output()
        .map_err(|error| format!("the calibration cannot be run: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().map_err(|_| {
        let words = String::from_utf8_lossy(&output.stderr);
        format!("the calibration ended with {}: {words}", output.status)
    })
}

/// In the process that is started for it: allocates, and prints the CPU time that took.
pub(crate) fn allocate(count: &str) -> Result<(), String> {
    let count: u32 = count
        .parse()
        .map_err(|error| format!("{count} is no number of allocations: {error}"))?;
    let began = own_cpu_ns();
    for _ in 0..count {
        black_box(Vec::<u8>::with_capacity(black_box(64)));
    }
    println!("{}", own_cpu_ns() - began);
    Ok(())
}

fn own_cpu_ns() -> i64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

// Finished comparisons, one a line, so that hours of them can be interrupted and resumed.

/// A file of them. It lies in the scratch directory, and goes with it.
struct Journal {
    path: PathBuf,
    file: File,
    lines: Vec<Value>,
}

impl Journal {
    /// The values kept under this name, and room for more. A line that was cut short is not there.
    pub(crate) fn open(scratch: &Path, name: &str) -> Result<Self, String> {
        let path = scratch.join(format!("{name}.ndjson"));
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let whole = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        let lines = whole
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        let file = File::options().create(true).append(true).open(&path);
        let file = file.map_err(|error| format!("{}: {error}", path.display()))?;
        let mut journal = Self { path, file, lines };
        if !text.is_empty() && !text.ends_with('\n') {
            journal.write("\n")?;
        }
        Ok(journal)
    }

    /// The comparison that was kept under `key`.
    fn find(&self, key: &str) -> Option<Comparison> {
        let mut lines = self.lines.iter();
        let line = lines.find(|line| line["key"] == key)?;
        Some(Comparison::of_record(line["comparison"].clone()))
    }

    /// The comparison that was kept under `key`, or the one that `make` makes, which is kept.
    pub(crate) fn find_or(
        &mut self,
        key: &str,
        make: impl FnOnce() -> Result<Comparison, String>,
    ) -> Result<Comparison, String> {
        if let Some(kept) = self.find(key) {
            return Ok(kept);
        }
        let comparison = make()?;
        self.keep(key, &comparison)?;
        Ok(comparison)
    }

    fn keep(&mut self, key: &str, comparison: &Comparison) -> Result<(), String> {
        let line = json!({"key": key, "comparison": comparison.kept()});
        self.write(&format!("{line}\n"))?;
        self.lines.push(line);
        Ok(())
    }

    fn write(&mut self, text: &str) -> Result<(), String> {
        let written = self.file.write_all(text.as_bytes());
        written.map_err(|error| format!("{}: {error}", self.path.display()))
    }
}

#[cfg(test)]
#[path = "tests/journal.rs"]
mod journal_tests;
