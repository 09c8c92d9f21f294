//! Everything that has to hold before a change is taken, in one go.
//!
//! Every step runs even when an earlier one failed: one run names all that is wrong. Absent on
//! purpose: anything that a timing could decide.

use crate::bench;
use crate::dependencies;
use crate::hostile;
use crate::lab_proof;
use crate::loom;
use crate::miri;
use crate::sanitize;
use crate::soak;
use crate::step::{StepOutcome, cargo, leave_out, run_command, run_step};
use crate::tally::TestTally;
use crate::toolchain::Toolchain;

/// Nothing is installed for a moment of what has a verb of its own.
const NO_NIGHTLY: &str = "it takes a nightly toolchain: `rustup toolchain install nightly \
                          --component miri,rust-src`";

/// Lints the command as it is built with these flags.
fn lint_command(flags: &[&str], tests: &mut TestTally) -> Result<bool, String> {
    let mut clippy = cargo();
    clippy.args(["clippy", "--package", "millpond"]).args(flags);
    clippy.args(["--locked", "--", "-Dwarnings"]);
    run_command(&mut clippy, tests)
}

/// Runs all steps, then prints one line for each and the sum of the tests.
pub(crate) fn run() -> Result<(), String> {
    let toolchain = Toolchain::most_able();
    let steps = [
        run_step("format", |tests| {
            // What `cargo xtask allocators` builds is a workspace of its own.
            let apart = ["--manifest-path", "preload/allocators/Cargo.toml"];
            let ours = run_command(cargo().args(["fmt", "--all", "--check"]), tests)?;
            let mut fmt = cargo();
            fmt.args(["fmt", "--all", "--check"]).args(apart);
            Ok(run_command(&mut fmt, tests)? && ours)
        }),
        run_step("dependencies", dependencies::check),
        run_step("lints", |tests| {
            let words = [
                "clippy",
                "--workspace",
                "--all-targets",
                "--locked",
                "--",
                "-Dwarnings",
            ];
            let whole = run_command(cargo().args(words), tests)?;
            // Without what can be left out the command is another program, and with a cluster's
            // driver a third.
            let without = lint_command(&["--no-default-features"], tests)?;
            let cluster = lint_command(&["--features", "distributed"], tests)?;
            Ok(whole && without && cluster)
        }),
        run_step("tests", |tests| {
            let words = ["test", "--workspace", "--locked", "--no-fail-fast"];
            run_command(cargo().args(words), tests)
        }),
        // What a build says and does without Lua and without symbols.
        run_step("tests, least", |tests| {
            let mut test = cargo();
            test.args(["test", "-p", "millpond-load", "-p", "millpond-lab", "--lib"]);
            test.args(["--no-default-features", "--locked", "--no-fail-fast"]);
            run_command(&mut test, tests)
        }),
        // `auto` took io_uring where there is one; the other driver has to pass the same.
        run_step("tests, epoll", |tests| {
            let words = [
                "test",
                "-p",
                "millpond-http",
                "-p",
                "millpond-load",
                "--locked",
            ];
            let mut test = cargo();
            test.args(words).args(["--no-fail-fast", "--tests"]);
            run_command(test.env("MILLPOND_TEST_DRIVER", "epoll"), tests)
        }),
        run_step("models", loom::run),
        match toolchain.is_nightly_beside() && toolchain.has_source() {
            true => run_step("sanitizers", |tests| sanitize::smoke(&toolchain, tests)),
            false => leave_out("sanitizers", NO_NIGHTLY),
        },
        match toolchain.is_nightly_beside() && toolchain.has_miri() {
            true => run_step("miri", |tests| miri::smoke(&toolchain, tests)),
            false => leave_out("miri", NO_NIGHTLY),
        },
        run_step("documentation", |tests| {
            let words = ["doc", "--workspace", "--no-deps", "--locked"];
            run_command(cargo().args(words).env("RUSTDOCFLAGS", "-Dwarnings"), tests)
        }),
        run_step("benchmarks", |_| {
            bench::run("all", bench::Plan::smoke()).map(|()| true)
        }),
        run_step("soak", |_| soak::smoke().map(|()| true)),
        run_step("comparison", |_| lab_proof::smoke().map(|()| true)),
        run_step("hostile clients", |_| hostile::smoke().map(|()| true)),
    ];
    summarise(&steps)
}

/// One line for each step, then what each failed for and each failed test with what it said: who only
/// has the end of a long log has what he needs.
fn summarise(steps: &[StepOutcome]) -> Result<(), String> {
    println!("\n=== summary");
    let mut tests = TestTally::default();
    for step in steps {
        let verdict = match (step.ok, step.absence) {
            (true, None) => "ok",
            (true, Some(_)) => "not run",
            (false, _) => "FAILED",
        };
        println!(
            "{:<16} {verdict:<7} {:>7.1} s",
            step.name,
            step.took.as_secs_f64()
        );
        tests.add(&step.tests);
    }
    for step in steps {
        if let Some(complaint) = &step.complaint {
            println!("{}: {complaint}", step.name);
        }
    }
    print!("{tests}");
    let failed: Vec<&str> = steps
        .iter()
        .filter(|step| !step.ok)
        .map(|step| step.name)
        .collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!(
        "failed: {}; the log above has each under its own heading",
        failed.join(", ")
    ))
}
