//! The tests of the workspace: one build of all test programs, which then run once for each I/O driver.
//!
//! The driver of a server or client under test is chosen when it starts, so a second driver costs a second
//! run of those packages and no second build. cargo-nextest runs each test in a process of its own, two at a time for
//! each CPU, since many of them wait. Where it is not installed `cargo test` runs the same tests, one program after another.

use crate::step::{cargo, cargo_tool, has_cargo_tool, run_command};
use crate::tally::TestTally;
use std::process::Command;

/// Read by the tests of `http` and `load`: the driver of the shards that they start.
const DRIVER_VARIABLE: &str = "MILLPOND_TEST_DRIVER";

/// Packages whose integration tests read it. Those of `io` name their drivers themselves.
const DRIVER_PACKAGES: [&str; 2] = ["millpond-http", "millpond-load"];

const NO_RUN: &str = "--no-run";

/// Ignored functions that are processes which another test starts: no tests by themselves.
const CHILD_PROCESSES: &str = "test(/(server|disk)_process$/)";

/// Runs every test of the fast tier with the driver that the machine prefers: io_uring where there is one.
pub(crate) fn run(tests: &mut TestTally) -> Result<bool, String> {
    match has_nextest() {
        true => run_nextest(&mut nextest(&[]), tests),
        false => {
            println!(
                "cargo-nextest is not installed: `cargo test` takes longer (scripts/setup test installs it)"
            );
            let mut test = cargo();
            test.args(["test", "--workspace", "--locked", "--no-fail-fast"]);
            test.args(["--lib", "--bins", "--tests", "--examples"]);
            run_command(&mut test, tests)
        }
    }
}

/// Runs the tests that a driver can change once more, on epoll.
pub(crate) fn run_on_epoll(tests: &mut TestTally) -> Result<bool, String> {
    let mut command = match has_nextest() {
        true => {
            let packages = DRIVER_PACKAGES.map(|name| format!("package({name})"));
            let filter = format!("kind(test) and ({})", packages.join(" or "));
            nextest(&["-E", &filter])
        }
        false => {
            let mut test = cargo();
            test.args(["test", "--locked", "--no-fail-fast", "--tests"]);
            test.args(DRIVER_PACKAGES.iter().flat_map(|name| ["-p", name]));
            test
        }
    };
    command.env(DRIVER_VARIABLE, "epoll");
    match has_nextest() {
        true => run_nextest(&mut command, tests),
        false => run_command(&mut command, tests),
    }
}

/// Runs the tests that are ignored because they take long, measure time, or need root.
pub(crate) fn run_slow() -> Result<(), String> {
    if !has_nextest() {
        return Err("cargo-nextest is missing: scripts/setup test installs it".to_owned());
    }
    let filter = format!("not {CHILD_PROCESSES}");
    let mut tests = TestTally::default();
    let mut command = nextest(&["--run-ignored", "only", "-E", &filter]);
    let is_good = run_nextest(&mut command, &mut tests)?;
    print!("{tests}");
    match is_good {
        true => Ok(()),
        false => Err("a test of the slow tier failed: it is named above".to_owned()),
    }
}

/// Builds the test programs and nothing else, so that the time of a run is known apart from it.
pub(crate) fn build() -> Result<bool, String> {
    let mut command = match has_nextest() {
        true => nextest(&[NO_RUN]),
        false => {
            let mut test = cargo();
            test.args(["test", "--workspace", "--locked", "--no-run"]);
            test
        }
    };
    run_command(&mut command, &mut TestTally::default())
}

fn has_nextest() -> bool {
    has_cargo_tool("nextest")
}

fn nextest(words: &[&str]) -> Command {
    let mut command = cargo_tool("nextest");
    command.args(["run", "--workspace", "--locked"]);
    if !words.contains(&NO_RUN) {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        command.args(["--test-threads", &(2 * cpus).to_string()]);
    }
    command.args(words);
    // Many tests provoke a panic on purpose; a backtrace of each takes longer than the test.
    command.env("RUST_BACKTRACE", "0");
    command
}

/// Runs nextest; a run without a closing line, or of no test, is no success.
fn run_nextest(command: &mut Command, tests: &mut TestTally) -> Result<bool, String> {
    let before = tests.passed;
    let is_good = run_command(command, tests)?;
    if is_good && tests.passed == before && !command.get_args().any(|word| word == NO_RUN) {
        return Err("no test ran".to_owned());
    }
    Ok(is_good)
}
