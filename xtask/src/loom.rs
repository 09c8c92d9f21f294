//! The models of remote frees and of threads' ends, in the orders that their atomic operations can have.
//!
//! Only the models: with loom's atomics the other tests would run inside no model.

use crate::metadata::target_directory;
use crate::step::{cargo, run_command};
use crate::tally::TestTally;
use crate::toolchain::with_rustflags;

/// What all models lie under.
const MODELS: &str = "models::";

/// How many orders are tried.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Depth {
    /// Those with at most two preemptions, which find nearly every mistake, in seconds.
    Small,
    /// Every one.
    Whole,
}

/// Compiles the pools with loom's atomics, in a target directory of its own, and runs the models.
pub(crate) fn run(depth: Depth, tests: &mut TestTally) -> Result<bool, String> {
    let mut command = cargo();
    command
        .args(["test", "--locked", "--package", "millpond-mempool", "--lib"])
        .arg(MODELS);
    with_rustflags(&mut command, "--cfg loom");
    command.env("CARGO_TARGET_DIR", target_directory()?.join("loom"));
    match depth {
        Depth::Small => command.env("LOOM_MAX_PREEMPTIONS", "2"),
        Depth::Whole => command.env_remove("LOOM_MAX_PREEMPTIONS"),
    };
    let passed_before = tests.passed;
    let ok = run_command(&mut command, tests)?;
    if ok && tests.passed == passed_before {
        return Err(format!(
            "no test's path contains {MODELS}: nothing was modelled"
        ));
    }
    Ok(ok)
}
