//! Many more deaths of the entity server than a check takes.
//!
//! The test that a check runs with a handful of kills, told to go on. Named for what it proves, which
//! is what is there after a crash; `soak` is about time without one. Absent on purpose: a release build;
//! tests are optimised already, and share what is compiled with `check`.

use crate::step::{cargo, one_number, run_command};
use crate::tally::TestTally;

/// So many have an upper 95 % bound of 1.5 % on the deaths that lose something, if none of them does.
const KILLS_DEFAULT: u64 = 200;

/// The tests of each round: under load on a disk that works and on one that fails, and each call of
/// making, opening, copying, restoring and upgrading a directory failing once.
const TESTS: [(&str, &str); 2] = [
    ("crash", "every_history"),
    ("failing_disk", "every_failure"),
];

/// Kills a server so often under load, and as often where its disk fails, and looks at what each left
/// behind; then fails each call once.
pub(crate) fn run(words: &[&str]) -> Result<(), String> {
    let kills = one_number(words, "kills", KILLS_DEFAULT)?;
    let mut ok = true;
    for (program, filter) in TESTS {
        let mut test = cargo();
        test.args(["test", "--locked", "--package", "millpond-entity"])
            .args(["--test", program, "--", "--nocapture", filter])
            .env("MILLPOND_CRASH_KILLS", kills.to_string())
            .env("MILLPOND_DISK_STEP", "1");
        ok &= run_command(&mut test, &mut TestTally::default())?;
    }
    match ok {
        true => Ok(()),
        false => Err("what was promised is not there: what it was is printed above".to_owned()),
    }
}
