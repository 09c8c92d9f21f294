//! `cargo xtask`: the checks of this repository, the allocators it builds for comparison, and its packages, as one
//! program.
//!
//! `make test` and `make verify` prepare the machine and then call this. A step's commands are printed, so that they
//! can be repeated by hand. Benchmarks, attacks and soaks are `cargo bench-suite`.

mod check;
mod verify;
mod mutants;
mod allocators;
mod instrumented;
mod dist;

use instrumented::{Depth, Sanitizer, run_loom};
use std::process::ExitCode;
use xtask::TestTally;

const USAGE: &str = "\
Usage: cargo xtask check
       cargo xtask verify [PART...] | --list
       cargo xtask mutants [NAME...]
       cargo xtask features
       cargo xtask slow-tests
       cargo xtask loom
       cargo xtask miri [TEST...] | --smoke
       cargo xtask sanitize address|thread
       cargo xtask fuzz [HARNESS] [SECONDS]
       cargo xtask simulate [--seeds N] [--from SEED]
       cargo xtask allocators [--only NAME]
       cargo xtask dist [--smoke]

check       the fast tier (`make test`): format, lints, dependencies, tests on
            both drivers, documentation, models
verify      the slow tier (`make verify`): all its parts, or those named
            --list: the parts, and after which changes each is due
mutants     deliberate mistakes, all or those named: does the fast tier catch
            each of them? Works on a copy
features    lints and tests of builds with other features
slow-tests  the tests that `check` passes over: long ones, and those that
            measure time or need root
loom        models of remote frees and of threads' ends, in every order
miri        the tests of the pools, interpreted; --smoke: the unit tests
sanitize    the tests of the pools, watched for accesses out of bounds or order
fuzz        what libFuzzer invents, for a minute or so many seconds: sequences
            of operations on pools (sequences), or bytes for the parsers of HTTP
            (http_heads, http_chunks, http_target, http_differential)
simulate    a simulated network with faults: so many seeds (2,000) from SEED on
allocators  builds the allocators that the distribution lacks, for `millpond
            compare` to find: jemalloc531, mimalloc2, mimalloc3, snmalloc,
            rpmalloc, hardened, tcmalloc_percpu
dist        a tarball and a Debian package in target/release/dist, unpacked and
            tried; --smoke: of the development build

Benchmarks, attacks, soaks and proofs: cargo bench-suite help
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["check"] => check::run(),
        ["verify", "--list"] => {
            print!("{}", verify::table());
            Ok(())
        }
        ["verify", names @ ..] => verify::run(names),
        ["mutants", names @ ..] => mutants::run(names),
        ["features"] => check::features_run(),
        ["slow-tests"] => xtask::run_slow(),
        ["allocators"] => allocators::run(None),
        ["allocators", "--only", name] => allocators::run(Some(name)),
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

/// A step of `check` as a verb of its own.
fn verdict(outcome: Result<bool, String>) -> Result<(), String> {
    match outcome? {
        true => Ok(()),
        false => Err("failed; why is printed above".to_owned()),
    }
}
