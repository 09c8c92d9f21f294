//! Many more deaths of the entity server than a check takes.
//!
//! The test that a check runs with a handful of kills, told to go on. Named for what it proves, which
//! is what is there after a crash; `soak` is about time without one. Absent on purpose: a release build;
//! tests are optimised already, and share what is compiled with `check`.

use crate::step::{cargo, run_command};
use crate::tally::TestTally;

/// So many have an upper 95 % bound of 1.5 % on the deaths that lose something, if none of them does.
pub(crate) const KILLS_DEFAULT: &str = "200";

const WORDS: [&str; 9] = [
    "test",
    "--locked",
    "--package",
    "millpond-entity",
    "--test",
    "crash",
    "--",
    "--nocapture",
    "every_history_is_one_of_a_register",
];

/// Kills a server so often under load, and looks at what each left behind.
pub(crate) fn run(kills: &str) -> Result<(), String> {
    kills
        .parse::<u32>()
        .map_err(|_| format!("{kills} is no number of kills"))?;
    let mut test = cargo();
    test.args(WORDS).env("MILLPOND_CRASH_KILLS", kills);
    if run_command(&mut test, &mut TestTally::default())? {
        return Ok(());
    }
    Err("what clients saw cannot be: the key and its history are printed above".to_owned())
}
