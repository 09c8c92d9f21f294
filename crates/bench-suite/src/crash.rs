//! Many more deaths of the entity server than a check takes.
//!
//! The test that a check runs with a handful of kills, told to go on. Named for what it proves,
//! which is what is there after a crash; `soak` is about time without one.


/// So many have an upper 95 % bound of 1.5 % on the deaths that lose something, if none of them does.
const KILLS_DEFAULT: u64 = 200;

/// What the names of the tests end in: under load on a disk that works and on one that fails, and each
/// call of making, opening, copying, restoring and upgrading a directory failing once.
const TESTS: [&str; 2] = [
    "every_history_is_one_of_a_register",
    "survives_every_failure",
];

/// Kills a server so often under load, and as often where its disk fails, and looks at what each left
/// behind; then fails each call once.
pub(crate) fn run(words: &[&str]) -> Result<(), String> {
    let kills = one_number(words, "kills", KILLS_DEFAULT)?;
    let mut test = cargo();
    test.args(["test", "--locked", "--package", "millpond-entity"])
        .args(["--test", "entity", "--", "--nocapture"])
        .args(TESTS)
        .env("MILLPOND_CRASH_KILLS", kills.to_string())
        .env("MILLPOND_DISK_STEP", "1");
    let mut tests = TestTally::default();
    let ok = run_command(&mut test, &mut tests)?;
    if ok && tests.passed == 0 {
        return Err("no test has run: their names have changed".to_owned());
    }
    match ok {
        true => Ok(()),
        false => Err("what was promised is not there: what it was is printed above".to_owned()),
    }
}
