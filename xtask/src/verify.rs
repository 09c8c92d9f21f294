//! The slow tier: what is too long for each change, in named parts.
//!
//! A part is a few verbs of `cargo xtask` and `cargo bench-suite`. Each runs as a process with its output going to a
//! file of its own, so that a part that hangs or panics, or does not compile, ends alone and the next one starts. One
//! line is printed for each part.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};
use xtask::{cargo, print_tail, run_in_group, target_directory};

/// A part that has not ended by then hangs. The longest, by name only, take three hours.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30 * 60);
const NAMED_TIMEOUT: Duration = Duration::from_secs(5 * 3600);

/// Lines of a failed part's log that are printed.
const TAIL_LINES: usize = 30;

/// Whether a part runs when none is named.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Start {
    Always,
    /// Only if it is named: it takes an hour or more.
    ByName,
}

/// One part of the slow tier.
struct Part {
    name: &'static str,
    start: Start,
    /// Crates and folders whose change asks for this part.
    guards: &'static [&'static str],
    what: &'static str,
    /// The words after `cargo`, in order.
    verbs: &'static [&'static [&'static str]],
}

const fn part(
    name: &'static str,
    guards: &'static [&'static str],
    what: &'static str,
    verbs: &'static [&'static [&'static str]],
) -> Part {
    Part {
        name,
        start: Start::Always,
        guards,
        what,
        verbs,
    }
}

const fn by_name(
    name: &'static str,
    guards: &'static [&'static str],
    what: &'static str,
    verbs: &'static [&'static [&'static str]],
) -> Part {
    Part {
        start: Start::ByName,
        ..part(name, guards, what, verbs)
    }
}

const PARTS: &[Part] = &[
    part(
        "features",
        &["cli", "entity", "lab", "load"],
        "lints and tests of builds with other features",
        &[&["xtask", "features"]],
    ),
    part(
        "slow-tests",
        &["cli", "entity", "http", "io", "load", "lab"],
        "tests that take long, measure time or need root (#[ignore])",
        &[&["xtask", "slow-tests"]],
    ),
    part(
        "loom",
        &["mempool"],
        "models of remote frees and thread ends, in every order",
        &[&["xtask", "loom"]],
    ),
    part(
        "sanitizers",
        &["mempool"],
        "the pools' tests under the address and thread sanitizers",
        &[
            &["xtask", "sanitize", "address"],
            &["xtask", "sanitize", "thread"],
        ],
    ),
    part(
        "miri",
        &["mempool", "http"],
        "the pools' unit tests and the head scanner, interpreted",
        &[&["xtask", "miri", "--smoke"]],
    ),
    part(
        "fuzz",
        &["mempool", "http"],
        "half a minute of libFuzzer for each harness",
        &[
            &["xtask", "fuzz", "sequences", "30"],
            &["xtask", "fuzz", "http_heads", "30"],
            &["xtask", "fuzz", "http_chunks", "30"],
            &["xtask", "fuzz", "http_target", "30"],
            &["xtask", "fuzz", "http_differential", "30"],
        ],
    ),
    part(
        "simulate",
        &["io", "http"],
        "the simulated network with 500 seeds",
        &[&["xtask", "simulate", "--seeds", "500"]],
    ),
    part(
        "crash",
        &["entity", "preload/disk"],
        "40 kills of the entity server under load, on a good and on a failing disk",
        &[&["bench-suite", "crash", "40"]],
    ),
    part(
        "faults",
        &["io", "http", "entity", "cli"],
        "system calls of the servers that fail, one point in five",
        &[&["bench-suite", "faults", "--smoke"]],
    ),
    part(
        "cluster",
        &["entity"],
        "the entity server on three nodes of Apache Cassandra, then with TLS and passwords",
        &[
            &["bench-suite", "cassandra"],
            &["bench-suite", "cassandra", "secured"],
        ],
    ),
    part(
        "api",
        &["entity"],
        "requests that schemathesis makes up from /openapi.json",
        &[&["bench-suite", "api", "50"]],
    ),
    part(
        "bounds",
        &["entity", "mempool"],
        "memory of the entity server with many keys and huge values, small sizes",
        &[&["bench-suite", "entity-bounds", "--smoke"]],
    ),
    part(
        "soak",
        &["http", "io", "entity"],
        "a minute of mixed traffic on each driver: nothing grows, counters add up",
        &[
            &["bench-suite", "soak", "60", "uring"],
            &["bench-suite", "soak", "60", "epoll"],
        ],
    ),
    part(
        "hostile",
        &["http", "io"],
        "a moment of each attack beside a well-behaved client, peaks judged",
        &[&["bench-suite", "hostile", "--smoke"]],
    ),
    part(
        "benchmarks",
        &["bench", "bench-suite", "load"],
        "a moment of each benchmark",
        &[&["bench-suite", "bench", "all", "--smoke"]],
    ),
    part(
        "comparison",
        &["lab", "measure", "load"],
        "millpond compare finds planted memory",
        &[&["bench-suite", "lab-proof", "--smoke"]],
    ),
    part(
        "allocators",
        &["preload/allocators", "lab"],
        "builds the allocators that the distribution lacks",
        &[&["xtask", "allocators"]],
    ),
    part(
        "packaging",
        &["cli", "packaging"],
        "the tarball and the Debian package, unpacked and started",
        &[&["xtask", "dist", "--smoke"]],
    ),
    part(
        "newcomer",
        &["README.md", "examples", "scripts", "cli", "lab"],
        "the commands of README.md and the examples in a fresh clone",
        &[&["bench-suite", "newcomer"]],
    ),
    by_name(
        "mutants",
        &["all"],
        "deliberate mistakes, each of which the fast tier has to catch",
        &[&["xtask", "mutants"]],
    ),
    by_name(
        "busy",
        &["all"],
        "every test ten times beside two busy threads for each CPU",
        &[&["bench-suite", "busy"]],
    ),
    by_name(
        "lab-proof",
        &["lab", "measure"],
        "forty comparisons with planted faults (three hours)",
        &[&["bench-suite", "lab-proof"]],
    ),
    by_name(
        "miri-whole",
        &["mempool", "http"],
        "all tests of the pools, interpreted",
        &[&["xtask", "miri"]],
    ),
    by_name(
        "soak-long",
        &["http", "io", "entity"],
        "ten minutes of mixed traffic on each driver",
        &[
            &["bench-suite", "soak", "600", "uring"],
            &["bench-suite", "soak", "600", "epoll"],
        ],
    ),
    by_name(
        "hostile-long",
        &["http", "io"],
        "eight seconds of each attack, with latencies and peaks",
        &[&["bench-suite", "hostile"]],
    ),
    by_name(
        "faults-long",
        &["io", "http", "entity", "cli"],
        "every system call of the servers that acquires something fails",
        &[&["bench-suite", "faults"]],
    ),
    by_name(
        "crash-long",
        &["entity"],
        "200 kills",
        &[&["bench-suite", "crash"]],
    ),
    by_name(
        "simulate-long",
        &["io", "http"],
        "the simulated network with 20,000 seeds",
        &[&["xtask", "simulate", "--seeds", "20000"]],
    ),
    by_name(
        "bounds-long",
        &["entity"],
        "memory with ten million keys",
        &[&["bench-suite", "entity-bounds"]],
    ),
    by_name(
        "newcomer-test",
        &["README.md", "scripts"],
        "as newcomer, with `make test` and every crate fetched anew",
        &[&["bench-suite", "newcomer", "--test", "--crates"]],
    ),
];

/// Runs the parts of these names, or all that take no name. Fails if one of them did.
pub(crate) fn run(names: &[&str]) -> Result<(), String> {
    let parts = chosen(names)?;
    let logs = target_directory()?.join("verify");
    std::fs::create_dir_all(&logs)
        .map_err(|error| format!("{} cannot be made: {error}", logs.display()))?;
    println!("logs: {}", logs.display());
    let begun = Instant::now();
    let mut failed = Vec::new();
    for part in &parts {
        print!("{:<14} ", part.name);
        // A line that is not whole yet: where it cannot be shown now, it is shown with its end.
        let _ = std::io::stdout().flush();
        let started = Instant::now();
        let log = logs.join(format!("{}.log", part.name));
        let outcome = part.run(&log);
        let verdict = if outcome.is_ok() { "ok" } else { "FAILED" };
        println!("{verdict:<7} {:>7.1} s", started.elapsed().as_secs_f64());
        if let Err(why) = outcome {
            print_tail(&log, TAIL_LINES);
            println!("    {why}; its whole log is {}", log.display());
            failed.push(part.name);
        }
    }
    let took = begun.elapsed().as_secs_f64() / 60.0;
    println!(
        "{} of {} parts passed in {took:.1} minutes",
        parts.len() - failed.len(),
        parts.len()
    );
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("failed: {}", failed.join(", "))),
    }
}

/// The table of parts.
pub(crate) fn table() -> String {
    let mut text = String::new();
    for (title, start) in [("", Start::Always), ("only by name:\n", Start::ByName)] {
        text.push_str(title);
        for part in PARTS.iter().filter(|part| part.start == start) {
            text.push_str(&format!(
                "  {:<14} {}\n{:17}after a change of {}\n",
                part.name,
                part.what,
                "",
                part.guards.join(", ")
            ));
        }
    }
    text
}

fn chosen(names: &[&str]) -> Result<Vec<&'static Part>, String> {
    if names.is_empty() {
        let always = PARTS.iter().filter(|part| part.start == Start::Always);
        return Ok(always.collect());
    }
    names.iter().map(|name| named(name)).collect()
}

/// The part of that name. A crate's name gives the parts that guard it.
fn named(name: &str) -> Result<&'static Part, String> {
    if let Some(part) = PARTS.iter().find(|part| part.name == name) {
        return Ok(part);
    }
    let guards: Vec<&str> = PARTS
        .iter()
        .filter(|part| part.guards.contains(&name))
        .map(|part| part.name)
        .collect();
    let names: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
    Err(match guards.is_empty() {
        true => format!("no part is called {name}: use {}", names.join(", ")),
        false => format!(
            "{name} is guarded by {}: name one of them",
            guards.join(", ")
        ),
    })
}

impl Part {
    /// Runs its verbs, the first that fails being the last.
    fn run(&self, log: &Path) -> Result<(), String> {
        let file = File::create(log);
        let file = file.map_err(|error| format!("{} cannot be made: {error}", log.display()))?;
        let deadline = Instant::now()
            + match self.start {
                Start::Always => DEFAULT_TIMEOUT,
                Start::ByName => NAMED_TIMEOUT,
            };
        for words in self.verbs {
            run_verb(words, &file, deadline)?;
        }
        Ok(())
    }
}

/// Runs one verb, built anew if its source has changed; what it left running ends with it.
fn run_verb(words: &[&str], log: &File, deadline: Instant) -> Result<(), String> {
    let verb = format!("cargo {}", words.join(" "));
    let cannot_run = |error: std::io::Error| format!("{verb} cannot be run: {error}");
    let mut command = cargo();
    command.args(words);
    command.stdout(log.try_clone().map_err(cannot_run)?);
    command.stderr(log.try_clone().map_err(cannot_run)?);
    let status = run_in_group(&mut command, deadline).map_err(cannot_run)?;
    match status {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(format!("{verb}: {status}")),
        None => Err(format!("{verb} did not end in time")),
    }
}

#[cfg(test)]
#[path = "tests/verify.rs"]
mod tests;
