//! Many more seeds of the simulated tests than a check takes.
//!
//! Built with the release profile: a seed costs a few milliseconds. Absent on purpose: stopping at
//! a time; the number of seeds is what a record can repeat.

use crate::step::{cargo, run_command};
use crate::tally::TestTally;

/// The tests that try many seeds, and their packages.
const WORDS: [&str; 12] = [
    "test",
    "--release",
    "--locked",
    "--package",
    "millpond-io",
    "--package",
    "millpond-http",
    "--test",
    "simulator",
    "--test",
    "simulated",
    "--no-fail-fast",
];

/// Tries `seeds` seeds from `from` on. A seed that fails is printed with its faults.
pub(crate) fn run(seeds: &str, from: &str) -> Result<(), String> {
    for number in [seeds, from] {
        number
            .parse::<u64>()
            .map_err(|_| format!("{number} is no number of seeds"))?;
    }
    let mut test = cargo();
    test.args(WORDS)
        .env("MILLPOND_SIM_SEEDS", seeds)
        .env("MILLPOND_SIM_FROM", from);
    if run_command(&mut test, &mut TestTally::default())? {
        return Ok(());
    }
    Err("a seed failed: it is printed above, and --from SEED --seeds 1 repeats it".to_owned())
}
