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

/// Ignored functions that are processes which another test starts: no tests by themselves.
const CHILD_PROCESSES: &str = "test(/(server|disk)_process$/)";

/// Runs every test of the fast tier with the driver that the machine prefers: io_uring where there is one.
pub(crate) fn run(tests: &mut TestTally) -> Result<bool, String> {
    let programs = ["--workspace", "--lib", "--bins", "--tests", "--examples"];
    run_tests(&mut with_runner(&[], &programs), tests)
}

/// Runs the tests that a driver can change once more, on epoll.
pub(crate) fn run_on_epoll(tests: &mut TestTally) -> Result<bool, String> {
    let [one, other] = DRIVER_PACKAGES;
    let filter = format!("kind(test) and (package({one}) or package({other}))");
    let programs = ["--tests", "--package", one, "--package", other];
    let mut command = with_runner(&["-E", &filter], &programs);
    run_tests(command.env(DRIVER_VARIABLE, "epoll"), tests)
}

/// Runs the tests that are ignored because they take long, measure time, or need root.
pub(crate) fn run_slow() -> Result<(), String> {
    if !has_cargo_tool("nextest") {
        return Err("cargo-nextest is missing: scripts/setup test installs it".to_owned());
    }
    let filter = format!("not {CHILD_PROCESSES}");
    let mut tests = TestTally::default();
    let mut command = nextest(&["--run-ignored", "only", "-E", &filter]);
    let is_good = run_tests(&mut command, &mut tests)?;
    print!("{tests}");
    match is_good {
        true => Ok(()),
        false => Err("a test of the slow tier failed: it is named above".to_owned()),
    }
}

/// Builds the test programs and nothing else, so that the time of a run is known apart from it.
pub(crate) fn build() -> Result<bool, String> {
    let mut command = with_runner(&["--no-run"], &["--workspace", "--no-run"]);
    run_command(&mut command, &mut TestTally::default())
}

/// The command that runs tests: cargo-nextest with `words`, or `cargo test` with `cargo_words` where it is missing.
fn with_runner(words: &[&str], cargo_words: &[&str]) -> Command {
    if has_cargo_tool("nextest") {
        return nextest(words);
    }
    println!(
        "cargo-nextest is not installed: `cargo test` takes longer (scripts/setup test installs it)"
    );
    let mut command = cargo();
    command.args(["test", "--locked", "--no-fail-fast"]);
    command.args(cargo_words);
    command
}

fn nextest(words: &[&str]) -> Command {
    let mut command = cargo_tool("nextest");
    command.args(["run", "--workspace", "--locked"]);
    command.args(words);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    command.env("NEXTEST_TEST_THREADS", (2 * cpus).to_string());
    // Many tests provoke a panic on purpose; a backtrace of each takes longer than the test.
    command.env("RUST_BACKTRACE", "0");
    command
}

/// Runs tests; a run of none is no success.
fn run_tests(command: &mut Command, tests: &mut TestTally) -> Result<bool, String> {
    let passed_before = tests.passed;
    let is_good = run_command(command, tests)?;
    if is_good && tests.passed == passed_before {
        return Err("no test ran".to_owned());
    }
    Ok(is_good)
}
