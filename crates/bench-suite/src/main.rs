//! `cargo bench-suite`: what this project measures of itself, attacks itself with and proves of its comparison.
//!
//! Benchmarks beside rivals, hostile clients, soaks, kills, failing system calls, a cluster, and the first hour of a
//! newcomer. `make bench` calls it; `cargo xtask verify` runs a short form of each, as processes. A step's commands are
//! printed, so that they can be repeated by hand.

mod bench;
mod hostile;
mod soak;
mod repeated_tests;
mod faults;
mod cassandra;
mod openapi_conformance;
mod memory_bound;
mod lab_proof;
mod newcomer;

use std::process::ExitCode;

const USAGE: &str = "\
Usage: cargo bench-suite bench GROUP|all [--smoke]
       cargo bench-suite hostile [ATTACK] [SECONDS] | --smoke
       cargo bench-suite soak [SECONDS] [auto|uring|epoll] | --smoke
       cargo bench-suite busy [RUNS]
       cargo bench-suite crash [KILLS]
       cargo bench-suite faults [SERVER|DRIVER|CALL...] [--smoke]
       cargo bench-suite cassandra [secured] [TEST...] | beside COMMAND...
       cargo bench-suite api [EXAMPLES]
       cargo bench-suite entity-bounds [ENTITIES] | --smoke
       cargo bench-suite lab-proof [COMPARISONS] [TIME_BUDGET] [instructions] |
           slices [TIME_BUDGET] | --smoke
       cargo bench-suite newcomer [--whole] [--test] [--crates] [--plots]

bench          measures the figures in benches/README.md on this machine, with
               the release build: all, or one group (plaintext, entity, server,
               proxy, load, pools, redis)
               --smoke: a moment of each with the development build, to see
               that they still run
hostile        attacks servers beside a well-behaved client, and compares what
               that one sees alone and beside each attack, or the one named: so
               many seconds (8) for each attack and driver. Then attacks on
               descriptors, memory and upstreams, with each driver and two
               descriptor limits: peaks are judged
soak           mixed traffic against all servers for so many seconds (600):
               memory and descriptors flat, every answer as expected, the
               numbers of /metrics add up, an orderly stop
busy           all tests so many times (10) beside two busy threads for each
               CPU: none may fail
crash          kill -9 of the entity server at any moment, so many times (200),
               under a load of everything it can be asked: is what clients were
               told before and after possible, key by key? As often on a disk
               that fails and forgets; then every single call of opening,
               copying and restoring fails
faults         each call with which a server acquires something (a socket, a
               descriptor, memory, a thread, a file) fails once at each point,
               then all of them for a while, with strace (as root, or where it
               may trace): does it go on, or end with a sentence? Of all
               servers, drivers and calls, or of those named
               --smoke: one point in five
cassandra      the entity server on a cluster: starts three nodes of Apache
               Cassandra on 127.0.0.1 to 3 (Java 17 and Maven are installed, and
               67 MB fetched, where they are missing), plays the API's tests on
               them, kills one and brings it back; with names, only tests that
               contain one of them
               secured: the nodes speak TLS alone, and ask for a certificate and
               a password
               beside: only starts them, and runs COMMAND beside them, which
               finds them in MILLPOND_CASSANDRA
api            requests that schemathesis makes up from /openapi.json, so many
               (200) for each operation, against the entity server in memory and
               on RocksDB: is every answer as described? It takes python3
entity-bounds  what a server holds in memory under --memory: with so many small
               entities (10,000,000) put and read in one range, and with values
               of 64 MiB put and got by 64 connections at once
lab-proof      millpond compare on faults of known size and on nothing at all:
               how often each is found, how often something is where there is
               nothing; 40 comparisons of 300s, which takes three and a half
               hours; with `instructions` at the end those alone, which
               neighbours do not change
               slices [TIME]: what must not matter to slices (blocks, other
               candidates, lengths), by comparisons of TIME (150s) each; both
               keep what ended, so that they can be interrupted and go on
newcomer       somebody's first hour, in a fresh clone with an empty target
               directory: the commands and the recipes of README.md, and every
               example; ends at the first that fails
               --whole: make compare as long as it takes by itself, and not for
               a look of 80 s; --test: make test as well; --crates: fetch every
               crate anew; --plots: with pandas
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["busy", runs @ ..] => repeated_tests::run_busy(runs),
        ["bench", name] => bench::run(name, bench::Plan::full()),
        ["bench", name, "--smoke"] => bench::run(name, bench::Plan::smoke()),
        ["hostile", "--smoke"] => hostile::smoke(),
        ["soak", "--smoke"] => soak::smoke(),
        ["hostile", words @ ..] => hostile_as_told(words),
        ["crash", kills @ ..] => repeated_tests::run_crash(kills),
        ["faults", names @ ..] => faults::run(names),
        ["newcomer", words @ ..] => newcomer::Options::of(words).and_then(newcomer::run),
        ["cassandra", words @ ..] => cassandra::run(words),
        ["cassandra-node", home, number] => cassandra::start_node(home, number),
        ["entity-bounds"] => memory_bound::run(memory_bound::KEYS_DEFAULT),
        ["entity-bounds", "--smoke"] => memory_bound::smoke(),
        ["entity-bounds", keys] => match keys.parse() {
            Ok(keys) => memory_bound::run(keys),
            Err(error) => Err(format!("{keys} is no number of entities: {error}")),
        },
        ["api", examples @ ..] => openapi_conformance::run(examples),
        ["soak", words @ ..] => soak_as_told(words),
        [
            verb @ ("hostile-stalls" | "hostile-crowd" | "hostile-apart" | "hostile-resource"),
            words @ ..,
        ] => hostile_process(verb, words),
        ["lab-proof", "--smoke"] => lab_proof::smoke(),
        ["lab-proof", "--allocate", count] => lab_proof::allocate(count),
        ["lab-proof", words @ ..] => lab_proof_as_told(words),
        ["help" | "-h" | "--help"] => {
            print!("{USAGE}");
            Ok(())
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("bench-suite: {sentence}");
            ExitCode::FAILURE
        }
    }
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
        _ => Err(format!(
            "{verb} is for `cargo bench-suite hostile` to start"
        )),
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
