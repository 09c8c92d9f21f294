//! Tests that a check runs once or with a handful of kills, many times over: all of them on a busy machine, and those
//! that kill the entity server.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use xtask::{
    TestTally, build_tests, cargo, one_number, run_command, run_on_epoll, run_suite,
    target_directory,
};

// A busy machine: two threads per CPU that never sleep, and the whole suite beside them. A test that fails here depends
// on timing, and is to be mended at its cause.

/// Runs by default.
const RUNS_DEFAULT: u64 = 10;

/// Busy threads for each CPU.
const THREADS_PER_CPU: usize = 2;

/// Builds on the quiet machine, then runs all tests so often, on both drivers. A line for each run is appended to a
/// log, so that several sittings add up. Fails if any test did.
pub(crate) fn run_busy(words: &[&str]) -> Result<(), String> {
    let runs = one_number(words, "runs", RUNS_DEFAULT)?;
    if !build_tests()? {
        return Err("the tests do not build; why is printed above".to_owned());
    }
    let log = target_directory()?.join("busy.log");
    let is_over = AtomicBool::new(false);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let failed = std::thread::scope(|scope| {
        for _ in 0..cpus * THREADS_PER_CPU {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let failed = run_all(runs, &log);
        is_over.store(true, Ordering::Relaxed);
        failed
    })?;
    match failed {
        0 => Ok(()),
        _ => Err(format!(
            "tests failed in {failed} of {runs} runs; {} has them",
            log.display()
        )),
    }
}

/// How many of the runs had a test that failed.
fn run_all(runs: u64, log: &std::path::Path) -> Result<u64, String> {
    let cannot = |error: std::io::Error| format!("{} cannot be written: {error}", log.display());
    let mut failed = 0;
    for run in 1..=runs {
        let started = Instant::now();
        let mut tests = TestTally::default();
        let is_good = run_suite(&mut tests)? & run_on_epoll(&mut tests)?;
        failed += u64::from(!is_good);
        let took = started.elapsed().as_secs_f64();
        let line = format!("run {run} of {runs}: {took:.0} s\n{tests}");
        print!("{line}");
        let file = std::fs::File::options().create(true).append(true).open(log);
        file.map_err(cannot)?
            .write_all(line.as_bytes())
            .map_err(cannot)?;
    }
    Ok(failed)
}

// Many more deaths of the entity server than a check takes: named for what it proves, which is what is there after a
// crash; `soak` is about time without one.

/// So many have an upper 95 % bound of 1.5 % on the deaths that lose something, if none of them does.
const KILLS_DEFAULT: u64 = 200;

/// The suffixes of the tests' names: under load on a disk that works and on one that fails, and each call of making,
/// opening, copying, restoring and upgrading a directory failing once.
const TESTS: [&str; 2] = [
    "every_history_is_one_of_a_register",
    "survives_every_failure",
];

/// Kills a server so often under load, and as often where its disk fails, and checks what each left behind; then fails
/// each call once.
pub(crate) fn run_crash(words: &[&str]) -> Result<(), String> {
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
