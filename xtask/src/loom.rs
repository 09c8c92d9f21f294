//! The models of remote frees and of threads' ends, in every order of their atomic operations.
//!
//! Absent on purpose: the rest of the tests. With loom's atomics they would only run inside a
//! model.

use crate::step::{cargo, run_command};
use crate::tally::TestTally;
use crate::toolchain::{target_directory, with_rustflags};

/// What all models lie under.
const MODELS: &str = "models::";

/// Compiles the pools with loom's atomics, in a target directory of its own, and runs the models.
pub(crate) fn run(tests: &mut TestTally) -> Result<bool, String> {
    let mut command = cargo();
    command
        .args(["test", "--locked", "--package", "millpond-mempool", "--lib"])
        .arg(MODELS);
    with_rustflags(&mut command, "--cfg loom");
    command.env("CARGO_TARGET_DIR", target_directory()?.join("loom"));
    let passed_before = tests.passed;
    let ok = run_command(&mut command, tests)?;
    if ok && tests.passed == passed_before {
        return Err(format!(
            "no test's path contains {MODELS}: nothing was modelled"
        ));
    }
    Ok(ok)
}
