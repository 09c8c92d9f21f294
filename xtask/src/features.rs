//! The builds with other features: without what can be left out, and without a cluster's driver alone.
//!
//! Each selection compiles most crates again, which is why this is not in the fast tier.

use crate::step::{cargo, run_command, shown};
use crate::tally::TestTally;
use std::process::Command;

/// Lints the command without its optional parts and without clusters, and runs the tests of what a build without Lua
/// and without symbols says and does.
pub(crate) fn run() -> Result<(), String> {
    let mut tests = TestTally::default();
    let mut failed = Vec::new();
    let mut check = |mut command: Command| {
        if !run_command(&mut command, &mut tests)? {
            failed.push(shown(&command));
        }
        Ok::<(), String>(())
    };
    for flags in [
        &["--no-default-features"][..],
        &["--no-default-features", "--features", "entity,lua,symbols"],
    ] {
        let mut clippy = cargo();
        clippy.args(["clippy", "--package", "millpond", "--locked"]);
        clippy.args(flags).args(["--", "-Dwarnings"]);
        check(clippy)?;
    }
    let mut alone = cargo();
    alone.args(["clippy", "--package", "millpond-entity", "--all-targets"]);
    alone.args(["--locked", "--", "-Dwarnings"]);
    check(alone)?;
    let mut least = cargo();
    least.args(["test", "-p", "millpond-load", "-p", "millpond-lab", "--lib"]);
    least.args(["--no-default-features", "--locked", "--no-fail-fast"]);
    check(least)?;
    print!("{tests}");
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("these failed: {}", failed.join("; "))),
    }
}
