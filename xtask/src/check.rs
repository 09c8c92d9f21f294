//! The fast tier: everything that is asked of each change, in ten minutes on two CPUs.
//!
//! Every step runs even when an earlier one failed: one run names all that is wrong. No timing decides a step.
//! What takes longer is the slow tier (`verify`).

use crate::loom;
use crate::step::{
    StepOutcome, cargo, cargo_tool, has_cargo_tool, leave_out, run_command, run_step,
};
use crate::suite;
use crate::tally::TestTally;

/// Why dependencies were not looked at.
const NO_DENY: &str = "cargo-deny is not installed: scripts/setup test installs it";

/// Runs all steps, then prints one line for each and the sum of the tests.
pub(crate) fn run() -> Result<(), String> {
    let steps = [
        run_step("format", format),
        match has_cargo_tool("deny") {
            true => run_step("dependencies", dependencies),
            false => leave_out("dependencies", NO_DENY),
        },
        run_step("lints", |tests| {
            let mut clippy = cargo();
            clippy.args(["clippy", "--workspace", "--all-targets", "--locked"]);
            run_command(clippy.args(["--", "-Dwarnings"]), tests)
        }),
        run_step("build", |_| suite::build()),
        run_step("tests", suite::run),
        run_step("tests, epoll", suite::run_on_epoll),
        run_step("doc tests", |tests| {
            let words = ["test", "--doc", "--workspace", "--locked", "--no-fail-fast"];
            run_command(cargo().args(words), tests)
        }),
        run_step("documentation", |tests| {
            let words = ["doc", "--workspace", "--no-deps", "--locked"];
            run_command(cargo().args(words).env("RUSTDOCFLAGS", "-Dwarnings"), tests)
        }),
        run_step("models", |tests| loom::run(loom::Depth::Small, tests)),
    ];
    summarise(&steps)
}

fn format(tests: &mut TestTally) -> Result<bool, String> {
    // What `cargo xtask allocators` builds is a workspace of its own.
    let apart = ["--manifest-path", "preload/allocators/Cargo.toml"];
    let ours = run_command(cargo().args(["fmt", "--all", "--check"]), tests)?;
    let mut fmt = cargo();
    fmt.args(["fmt", "--all", "--check"]).args(apart);
    Ok(run_command(&mut fmt, tests)? && ours)
}

/// Licences, duplicates and sources, by the lists in `deny.toml`; advisories take the network.
fn dependencies(tests: &mut TestTally) -> Result<bool, String> {
    // Offline, it works on what is fetched already.
    let fetched = run_command(cargo().args(["fetch", "--locked"]), tests)?;
    let mut deny = cargo_tool("deny");
    deny.args(["--offline", "check", "licenses", "bans", "sources"]);
    Ok(run_command(&mut deny, tests)? && fetched)
}

/// One line for each step, then what each failed for and each failed test with what it said: the end of a long log
/// has all that is needed.
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
