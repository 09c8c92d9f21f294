//! The builds with other features: without what can be left out, and with a cluster's driver.
//!
//! Each selection compiles most crates again, which is why this is not in the fast tier.

use crate::step::{cargo, run_command};
use crate::tally::TestTally;

/// Lints the command without its optional parts and with all of them, and runs the tests of what a build without Lua
/// and without symbols says and does.
pub(crate) fn run() -> Result<(), String> {
    let mut tests = TestTally::default();
    let mut is_good = true;
    for flags in [
        &["--no-default-features"][..],
        &["--features", "distributed"],
    ] {
        let mut clippy = cargo();
        clippy.args(["clippy", "--package", "millpond", "--locked"]);
        clippy.args(flags).args(["--", "-Dwarnings"]);
        is_good &= run_command(&mut clippy, &mut tests)?;
    }
    let mut cluster = cargo();
    cluster.args(["clippy", "--package", "millpond-entity", "--all-targets"]);
    cluster.args(["--features", "distributed", "--locked", "--", "-Dwarnings"]);
    is_good &= run_command(&mut cluster, &mut tests)?;
    let mut least = cargo();
    least.args(["test", "-p", "millpond-load", "-p", "millpond-lab", "--lib"]);
    least.args(["--no-default-features", "--locked", "--no-fail-fast"]);
    is_good &= run_command(&mut least, &mut tests)?;
    print!("{tests}");
    match is_good {
        true => Ok(()),
        false => Err("a build with other features fails: which one is printed above".to_owned()),
    }
}
