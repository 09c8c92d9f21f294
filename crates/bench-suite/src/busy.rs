//! The test programs on a busy machine: two threads per CPU that never sleep, and the whole suite beside them, many
//! times. A test that fails here depends on timing, and is to be mended at its cause.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use xtask::{TestTally, build_tests, one_number, run_on_epoll, run_suite, target_directory};

/// Runs, unless told otherwise.
const RUNS_DEFAULT: u64 = 10;

/// Busy threads for each CPU.
const THREADS_PER_CPU: usize = 2;

/// Builds on the quiet machine, then runs all tests so often, on both drivers. A line for each run is appended to a
/// log, so that several sittings add up. Fails if any test did.
pub(crate) fn run(words: &[&str]) -> Result<(), String> {
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
