//! `cargo xtask`: the checks and the benchmarks of this repository, and the allocators it builds for
//! comparison, as one program.
//!
//! `make test`, `make verify` and `make bench` prepare the machine and then call this. What a step runs is printed, so
//! that it can be repeated by hand.

mod tally;
mod check;
mod verify;
mod busy;
mod mutants;
mod allocators;
mod bench;
mod hostile;
mod soak;
mod crash;
mod faults;
mod cassandra;
mod newcomer;
mod api;
mod bounds;
mod lab_proof;
mod instrumented;
mod dist;

use instrumented::{Depth, Sanitizer, run_loom};
use std::process::ExitCode;
use tally::TestTally;

const USAGE: &str = "\
Usage: cargo xtask check
       cargo xtask verify [PART...]
       cargo xtask mutants [NAME...]
       cargo xtask busy [RUNS]
       cargo xtask allocators [--only NAME]
       cargo xtask bench plaintext|entity|server|load|pools|redis|all [--smoke]
       cargo xtask hostile [ATTACK] [SECONDS] | --smoke
       cargo xtask soak [SECONDS] [auto|uring|epoll] | --smoke
       cargo xtask crash [KILLS]
       cargo xtask faults [SERVER|DRIVER|CALL...] [--smoke]
       cargo xtask cassandra [secured] [TEST...] | beside COMMAND...
       cargo xtask newcomer [--whole] [--test] [--crates] [--plots]
       cargo xtask api [EXAMPLES]
       cargo xtask entity-bounds [ENTITIES] | --smoke
       cargo xtask lab-proof [COMPARISONS] [TIME_BUDGET] [instructions] | slices [TIME_BUDGET] | --smoke
       cargo xtask loom
       cargo xtask miri [TEST...] | --smoke
       cargo xtask features
       cargo xtask slow-tests
       cargo xtask sanitize address|thread
       cargo xtask fuzz [HARNESS] [SECONDS]
       cargo xtask simulate [--seeds N] [--from SEED]
       cargo xtask dist [--smoke]

check       the fast tier (`make test`): format, lints, dependencies, tests on both drivers, documentation, models
verify      the slow tier (`make verify`): the parts below, one line each, or only those that are named
mutants     39 deliberate mistakes, or those named: does the fast tier catch each of them? Works on a copy
busy        all tests so many times (10) beside two busy threads for each CPU: none may fail
allocators  builds the allocators that the distribution does not have (jemalloc531, mimalloc2, mimalloc3,
            snmalloc, rpmalloc, hardened, tcmalloc_percpu) from their crates, for millpond compare to find
            --only: this one alone
bench       measures the figures in benches/README.md on this machine, with the release build
            --smoke: a moment of each with the development build, to see that they still run
hostile     attacks servers beside a well-behaved client, and compares what that one sees alone and
            beside each attack, or the one named: so many seconds (8) for each attack and driver. Then attacks on
            descriptors, memory and upstreams, with each driver and two descriptor limits: peaks are judged
soak        mixed traffic against all servers for so many seconds (600): memory and descriptors flat,
            every response as expected, the numbers of /metrics add up, an orderly stop
crash       kill -9 of the entity server at any moment, so many times (200), under a load of everything it
            can be asked: is what clients were told before and after possible, key by key? As often on a
            disk that fails and forgets; then every single call of opening, copying and restoring fails
faults      each call with which a server acquires something (a socket, a descriptor, memory, a thread, a file) fails
            once at each point, then all of them for a while, with strace (as root, or where it may trace): does
            it go on, or end with a sentence? Of all servers, drivers and calls, or of those named
            --smoke: one point in five
cassandra   the entity server on a cluster: starts three nodes of Apache Cassandra on 127.0.0.1 to 3 (Java 17
            and Maven are installed, and 67 MB fetched, where they are missing), plays the API's tests on
            them, kills one and brings it back; with names, only tests that contain one of them
            secured: the nodes speak TLS alone, and ask for a certificate and a password
            beside: only starts them, and runs COMMAND beside them, which finds them in MILLPOND_CASSANDRA
newcomer    somebody's first hour, in a fresh clone with an empty target directory: the commands and the
            recipes of README.md, and every example; ends at the first that fails
            --whole: make compare as long as it takes by itself, and not for a look of 80 s
            --test: make test as well; --crates: fetch every crate anew; --plots: with pandas
api         requests that schemathesis makes up from /openapi.json, so many (200) for each operation, against
            the entity server in memory and on RocksDB: is every response as described? It takes python3
entity-bounds  what a server holds in memory under --memory: with so many small entities (10,000,000) put
            and read in one range, and with values of 64 MiB put and got by 64 connections at once
lab-proof   millpond compare on faults of known size and on nothing at all: how often each is found, how
            often something is where there is nothing; 40 comparisons of 300s, which takes three and a half hours;
            with `instructions` at the end those alone, which neighbours do not change
            slices [TIME]: what must not matter to slices (blocks, other candidates, lengths), by comparisons of
            TIME (150s) each; both keep what ended, so that they can be interrupted and go on

The memory pools, beyond what `check` does:
loom        models of remote frees and of threads' ends, in every order (`check` tries those with two preemptions)
miri        their tests, interpreted under all rules of memory; --smoke: the unit tests
sanitize    their tests, watched for accesses out of bounds or out of order
fuzz        what libFuzzer invents, for a minute or so many seconds: sequences of operations, or with
            http_heads, http_chunks, http_target or http_differential, bytes for the parsers of HTTP

Shards and servers:
simulate    over a simulated network with seeded faults: so many seeds (2,000) from SEED (0) on

features    lints and tests of builds with other features
slow-tests  the tests that `check` passes over: long ones, and those that measure time or need root

For others to install:
dist        a tarball and a Debian package (with cargo-deb) in target/release/dist, with manual pages, completions,
            systemd units and configuration; unpacked and looked at. --smoke: of the development build
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["check"] => check::run(),
        ["verify", names @ ..] => verify::run(names),
        ["mutants", names @ ..] => mutants::run(names),
        ["busy", runs @ ..] => busy::run(runs),
        ["features"] => check::features_run(),
        ["slow-tests"] => check::run_slow(),
        ["allocators"] => allocators::run(None),
        ["allocators", "--only", name] => allocators::run(Some(name)),
        ["bench", name] => bench::run(name, bench::Plan::full()),
        ["bench", name, "--smoke"] => bench::run(name, bench::Plan::smoke()),
        ["hostile", "--smoke"] => hostile::smoke(),
        ["soak", "--smoke"] => soak::smoke(),
        ["hostile", words @ ..] => hostile_as_told(words),
        ["crash", kills @ ..] => crash::run(kills),
        ["faults", names @ ..] => faults::run(names),
        ["newcomer", words @ ..] => newcomer::Options::of(words).and_then(newcomer::run),
        ["cassandra", words @ ..] => cassandra::run(words),
        ["cassandra-node", home, number] => cassandra::start_node(home, number),
        ["entity-bounds"] => bounds::run(bounds::KEYS_DEFAULT),
        ["entity-bounds", "--smoke"] => bounds::smoke(),
        ["entity-bounds", keys] => match keys.parse() {
            Ok(keys) => bounds::run(keys),
            Err(error) => Err(format!("{keys} is no number of entities: {error}")),
        },
        ["api", examples @ ..] => api::run(examples),
        ["soak", words @ ..] => soak_as_told(words),
        [
            verb @ ("hostile-stalls" | "hostile-crowd" | "hostile-apart" | "hostile-resource"),
            words @ ..,
        ] => hostile_process(verb, words),
        ["lab-proof", "--smoke"] => lab_proof::smoke(),
        ["lab-proof", "--allocate", count] => lab_proof::allocate(count),
        ["lab-proof", words @ ..] => lab_proof_as_told(words),
        ["loom"] => verdict(run_loom(Depth::Whole, &mut TestTally::default())),
        ["miri", "--smoke"] => instrumented::smoke(),
        ["miri", filter @ ..] => instrumented::run(filter),
        ["sanitize", name] => match Sanitizer::named(name) {
            Some(sanitizer) => instrumented::run_sanitize(sanitizer),
            None => Err(format!(
                "no sanitizer is called {name}: use address or thread"
            )),
        },
        ["simulate"] => instrumented::run_simulate("2000", "0"),
        ["simulate", "--seeds", seeds] => instrumented::run_simulate(seeds, "0"),
        ["simulate", "--seeds", seeds, "--from", from]
        | ["simulate", "--from", from, "--seeds", seeds] => instrumented::run_simulate(seeds, from),
        ["dist"] => dist::run(dist::Build::Release),
        ["dist", "--smoke"] => dist::run(dist::Build::Smoke),
        ["fuzz", words @ ..] => fuzz_as_told(words),
        ["help" | "-h" | "--help"] => {
            print!("{USAGE}\nParts of the slow tier:\n{}", verify::table());
            Ok(())
        }
        _ => {
            eprint!("{USAGE}\nParts of the slow tier:\n{}", verify::table());
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("xtask: {sentence}");
            ExitCode::FAILURE
        }
    }
}

/// Harness and seconds in this order, each of which may be missing.
fn fuzz_as_told(words: &[&str]) -> Result<(), String> {
    let (target, seconds) = match words {
        [] => (&instrumented::TARGETS[0], None),
        [seconds] if seconds.parse::<u64>().is_ok() => (&instrumented::TARGETS[0], Some(seconds)),
        [name] => (instrumented::Target::named(name)?, None),
        [name, seconds] => (instrumented::Target::named(name)?, Some(seconds)),
        _ => return Err("too many words behind fuzz: it takes a harness and seconds".to_owned()),
    };
    let seconds = seconds.map_or(Ok(60), |text| text.parse());
    let seconds = seconds.map_err(|error| format!("that is no number of seconds: {error}"))?;
    instrumented::run_fuzz(target, seconds)
}

/// The processes that `hostile` starts.
fn hostile_process(verb: &str, words: &[&str]) -> Result<(), String> {
    match (verb, words) {
        ("hostile-stalls", []) => hostile::stalls::run_watcher(),
        ("hostile-crowd", [name, address, count]) => hostile::run_crowd(name, address, count),
        ("hostile-apart", [name, driver, seconds, file]) => {
            hostile::run_apart(name, driver, seconds, file)
        }
        ("hostile-resource", words) => hostile::run_resource(words),
        _ => Err(format!("{verb} is for `cargo xtask hostile` to start")),
    }
}

/// Attack and seconds in this order, each of which may be missing.
fn hostile_as_told(words: &[&str]) -> Result<(), String> {
    let (name, seconds) = match words {
        [] => (None, None),
        [seconds] if seconds.parse::<u64>().is_ok() => (None, Some(seconds)),
        [name] => (Some(*name), None),
        [name, seconds] => (Some(*name), Some(seconds)),
        _ => {
            return Err("too many words behind hostile: it takes an attack and seconds".to_owned());
        }
    };
    let seconds = seconds.map_or(Ok(hostile::SECONDS_DEFAULT), |text| text.parse());
    let seconds = seconds.map_err(|error| format!("that is no number of seconds: {error}"))?;
    hostile::run(name, seconds)
}

/// Seconds and driver in this order, each of which may be missing.
fn soak_as_told(words: &[&str]) -> Result<(), String> {
    let (seconds, driver) = match words {
        [] => (None, "auto"),
        [seconds] => (Some(seconds), "auto"),
        [seconds, driver @ ("auto" | "uring" | "epoll")] => (Some(seconds), *driver),
        _ => return Err("soak takes seconds, and auto, uring or epoll".to_owned()),
    };
    let seconds = seconds.map_or(Ok(soak::SECONDS_DEFAULT), |text| text.parse());
    let seconds = seconds.map_err(|error| format!("that is no number of seconds: {error}"))?;
    soak::run(seconds, driver)
}

/// Comparisons and the time of each, in this order, each of which may be missing.
fn lab_proof_as_told(words: &[&str]) -> Result<(), String> {
    match words {
        ["slices"] => return lab_proof::slices::run(lab_proof::slices::TIME_BUDGET_DEFAULT),
        ["slices", time_budget] => return lab_proof::slices::run(time_budget),
        _ => {}
    }
    let (words, scope) = match words {
        [words @ .., "instructions"] => (words, lab_proof::Scope::Instructions),
        _ => (words, lab_proof::Scope::All),
    };
    let (comparisons, time_budget) = match words {
        [] => (None, None),
        [comparisons] => (Some(comparisons), None),
        [comparisons, time_budget] => (Some(comparisons), Some(*time_budget)),
        _ => {
            let complaint = "too many words behind lab-proof: it takes a number, a time, and perhaps \
                             `instructions`";
            return Err(complaint.to_owned());
        }
    };
    let comparisons = comparisons.map_or(Ok(lab_proof::COMPARISONS_DEFAULT), |text| text.parse());
    let comparisons =
        comparisons.map_err(|error| format!("that is no number of comparisons: {error}"))?;
    let time_budget = time_budget.unwrap_or(lab_proof::TIME_BUDGET_DEFAULT);
    lab_proof::run(comparisons, time_budget, scope)
}

/// A step of `check` as its own subcommand.
fn verdict(outcome: Result<bool, String>) -> Result<(), String> {
    match outcome? {
        true => Ok(()),
        false => Err("failed; why is printed above".to_owned()),
    }
}
