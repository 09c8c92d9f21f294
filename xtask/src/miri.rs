//! The pools' tests under Miri, which knows every rule of memory that a compiler may rely on; and
//! those of the search for the ends of a head's parts, as whose vectors it takes SSE2.
//!
//! The pools take their chunks from the allocator there, since Miri knows no `mmap` at an address
//! of one's choice, and the tests do little of what they otherwise do often: Miri is a thousand
//! times slower. Absent on purpose: all other unsafe code, which is calls of the system; and AVX2,
//! whose code is that of SSE2 over wider blocks.

use crate::metadata::target_directory;
use crate::step::run_command;
use crate::tally::TestTally;
use crate::toolchain::Toolchain;
use std::process::Command;

/// Counting the calls of malloc means to loop often, and shows nothing about memory.
const NOT_UNDER_IT: &str = "heap_calls";

/// What threads do depends on which of them goes on when, and that on a seed: these are run with
/// several.
const THREADED: [&str; 3] = ["first_use", "stress", "threads"];

/// Addresses are never made from numbers. The tests read the clock, the environment and files. And a
/// stack for each of the panics that they expect would be interpreted too, for seconds; cargo-miri
/// prefers the variable as it was when the test was compiled to the one it is run with.
const FLAGS: &str = "-Zmiri-strict-provenance -Zmiri-disable-isolation \
                     -Zmiri-env-set=RUST_BACKTRACE=0";
const SEEDS: &str = "-Zmiri-many-seeds=0..4";

/// The unit tests that a moment of it consists of: lists that are written into free blocks.
const SMOKE: [&str; 2] = ["batch::", "block_class::"];

const POOLS: &str = "millpond-mempool";
const HTTP: &str = "millpond-http";

/// How the paths of the search's tests begin.
const SCAN: &str = "scan::";

/// Runs the tests whose path contains one of `filter`, or all.
pub(crate) fn run(filter: &[&str]) -> Result<(), String> {
    let toolchain = with_miri()?;
    let (threaded, others): (Vec<String>, Vec<String>) = integration_tests()?
        .into_iter()
        .partition(|test| THREADED.contains(&test.as_str()));
    let mut once = interpreter(&toolchain, POOLS, &others, FLAGS)?;
    once.arg("--lib").arg("--").args(filter);
    let mut in_orders = interpreter(&toolchain, POOLS, &threaded, &format!("{FLAGS} {SEEDS}"))?;
    in_orders.arg("--").args(filter);
    let mut tests = TestTally::default();
    let mut is_clean = run_command(&mut once, &mut tests)?;
    is_clean &= run_command(&mut in_orders, &mut tests)?;
    if filter.is_empty() || filter.iter().any(|word| word.starts_with(SCAN)) {
        let mut scan = interpreter(&toolchain, HTTP, &[], FLAGS)?;
        let words = if filter.is_empty() {
            &[SCAN][..]
        } else {
            filter
        };
        scan.args(["--lib", "--"]).args(words);
        is_clean &= run_command(&mut scan, &mut tests)?;
    }
    verdict(is_clean)
}

/// The unit tests alone, in minutes: lists that are written into free blocks, and the search of heads.
pub(crate) fn smoke() -> Result<(), String> {
    let toolchain = with_miri()?;
    let mut pools = interpreter(&toolchain, POOLS, &[], FLAGS)?;
    pools.arg("--lib").arg("--").args(SMOKE);
    let mut scan = interpreter(&toolchain, HTTP, &[], FLAGS)?;
    scan.args(["--lib", "--", SCAN]);
    let mut tests = TestTally::default();
    let is_clean = run_command(&mut pools, &mut tests)? & run_command(&mut scan, &mut tests)?;
    verdict(is_clean)
}

fn with_miri() -> Result<Toolchain, String> {
    let toolchain = Toolchain::most_able();
    match toolchain.has_miri() {
        true => Ok(toolchain),
        false => Err(
            "Miri is missing: `rustup toolchain install nightly --component miri,rust-src`"
                .to_owned(),
        ),
    }
}

fn verdict(is_clean: bool) -> Result<(), String> {
    match is_clean {
        true => Ok(()),
        false => Err("Miri found what is printed above".to_owned()),
    }
}

/// The command that interprets these test programs of a package.
fn interpreter(
    toolchain: &Toolchain,
    package: &str,
    tests: &[String],
    flags: &str,
) -> Result<Command, String> {
    let mut command = toolchain.cargo();
    command.args(["miri", "test", "--locked", "--package", package]);
    command.arg("--no-fail-fast");
    command.args(tests.iter().flat_map(|test| ["--test", test]));
    command
        .env("MIRIFLAGS", flags)
        .env("CARGO_TARGET_DIR", target_directory()?.join("miri"));
    Ok(command)
}

/// The names of the crate's test programs that are worth interpreting.
fn integration_tests() -> Result<Vec<String>, String> {
    let directory = "crates/mempool/tests";
    let cannot_read = |error: std::io::Error| format!("{directory} cannot be read: {error}");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(cannot_read)? {
        let path = entry.map_err(cannot_read)?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        if let Some(stem) = stem
            && path.extension().is_some_and(|extension| extension == "rs")
            && stem != NOT_UNDER_IT
        {
            names.push(stem.to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}
