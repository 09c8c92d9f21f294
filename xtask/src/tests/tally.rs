use super::*;

fn tally_of(output: &str) -> TestTally {
    let mut tally = TestTally::default();
    output.lines().for_each(|line| tally.add_line(line));
    tally
}

/// Goal: the numbers of several test programs add up, and other lines count nothing.
#[test]
fn closing_lines_add_up() {
    let mut sum = tally_of(
        "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out\n\
         test wheel::turns ... ok\n7 passed; by the bridge\n",
    );
    sum.add(&tally_of(
        "test result: FAILED. 2 passed; 5 failed; 0 ignored; 0 measured",
    ));
    assert_eq!(sum.to_string(), "tests: 14 passed, 5 failed, 1 ignored\n");
}

/// Goal: a failed test is named with its panic, not with what it printed before or with what
/// other tests and programs print after.
#[test]
fn a_failed_test_is_named_with_its_panic() {
    let tally = tally_of(
        "test wheel::turns ... FAILED\n\nfailures:\n\n---- wheel::turns stdout ----\n\
         listening on 127.0.0.1\n\nthread 'wheel::turns' panicked at src/wheel.rs:7:5:\n\
         it stands still\nnote: run with a backtrace\n\n\nfailures:\n    wheel::turns\n\n\
         test result: FAILED. 3 passed; 1 failed; 0 ignored\nRunning another\n",
    );
    assert_eq!(
        tally.to_string(),
        "failed: wheel::turns\n    thread 'wheel::turns' panicked at src/wheel.rs:7:5:\n    \
         it stands still\n    note: run with a backtrace\n\
         tests: 3 passed, 1 failed, 0 ignored\n"
    );
}

/// Goal: nextest's closing lines count as well, each failed test is named once, and a test that hung or was
/// ended by a signal has failed.
#[test]
fn a_summary_of_nextest_is_read() {
    let tally = tally_of(
        " Nextest run ID 5e74 with nextest profile: default\n    Starting 5 tests across 1 binary\n        \
         FAIL [   0.151s] (2/5) pond wheel::turns\n────\n     \
         Summary [   2.029s] 5 tests run: 2 passed (1 slow), 2 failed, 1 timed out, 7 skipped\n        \
         SLOW [   2.029s] (4/5) pond wheel::waits\n        \
         FAIL [   0.151s] (2/5) pond wheel::turns\n  stdout ───\n\n    running 1 test\n  stderr ───\n\n    \
         thread 'wheel::turns' panicked at src/wheel.rs:7:5:\n    it stands still\n\n        \
         SIGABRT [   0.010s] (3/5) pond wheel::breaks\n     \
         TIMEOUT [  900.0s] (5/5) pond wheel::hangs\nerror: test run failed\n",
    );
    assert_eq!(
        tally.to_string(),
        "failed: pond wheel::turns\n        thread 'wheel::turns' panicked at src/wheel.rs:7:5:\n        \
         it stands still\nfailed: pond wheel::breaks\nfailed: pond wheel::hangs\n\
         tests: 2 passed, 3 failed, 7 ignored\n"
    );
}

/// Goal: a test that prints without end does not push the other failures out of the summary.
#[test]
fn a_long_complaint_is_cut() {
    let long = "é".repeat(4000);
    let tally = tally_of(&format!("---- chatter stdout ----\n{long}\n{long}\n"));
    assert!(tally.to_string().len() < COMPLAINT_BYTES + 100);
    let many = tally_of(&format!("---- many stdout ----\n{}", "line\n".repeat(100)));
    assert_eq!(many.failures[0].complaint.len(), COMPLAINT_LINES);
}
