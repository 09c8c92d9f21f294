//! What test programs printed, by themselves or through cargo-nextest: how many tests passed, and why each failed
//! one did.

use std::fmt;

/// Of what a failed test printed, this much is repeated at the end; the rest is in the log above.
const COMPLAINT_LINES: usize = 12;
const COMPLAINT_BYTES: usize = 1200;

/// A failed test and the part of its output that says why.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Failure {
    test: String,
    complaint: Vec<String>,
}

/// The sum of what several test programs said.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct TestTally {
    pub(crate) passed: u64,
    failed: u64,
    ignored: u64,
    failures: Vec<Failure>,
    /// Whether the lines that come are the output of the last of `failures`.
    in_failure: bool,
    /// Whether the lines that come stand behind nextest's summary, where it names each failed test once.
    is_behind_summary: bool,
}

impl TestTally {
    /// Takes one line of a test program's output; most say nothing.
    pub(crate) fn add_line(&mut self, line: &str) {
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.in_failure = false;
            self.add_counts(counts);
        } else if let Some(counts) = nextest_summary(line) {
            self.is_behind_summary = true;
            self.add_counts(counts);
        } else if line.trim_start().starts_with("Nextest run ID ") {
            self.is_behind_summary = false;
        } else if let Some(test) =
            failed_test(line).or_else(|| nextest_status(line).filter(|_| self.is_behind_summary))
        {
            self.in_failure = true;
            self.failures.push(Failure {
                test: test.to_owned(),
                complaint: Vec::new(),
            });
        } else if line == "failures:" || line == "error: test run failed" {
            self.in_failure = false;
        } else if self.in_failure
            && let Some(failure) = self.failures.last_mut()
        {
            failure.add_line(line);
        }
    }

    /// Adds counts such as `ok. 12 passed; 0 failed; 1 ignored; ...`.
    fn add_counts(&mut self, counts: &str) {
        let words: Vec<&str> = counts
            .split([' ', ';', ','])
            .filter(|word| !word.is_empty())
            .collect();
        for pair in words.windows(2) {
            let Ok(count) = pair[0].parse::<u64>() else {
                continue;
            };
            match pair[1] {
                "passed" => self.passed += count,
                // nextest counts apart what could not be started and what it ended because it hung.
                "failed" | "exec" | "timed" => self.failed += count,
                "ignored" | "skipped" => self.ignored += count,
                _ => {}
            }
        }
    }

    /// Adds what another step's test programs said.
    pub(crate) fn add(&mut self, other: &TestTally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
        self.failures.extend_from_slice(&other.failures);
    }
}

impl Failure {
    /// The panic is what says why; what the test printed before it only counts while there is none.
    fn add_line(&mut self, line: &str) {
        let is_panic = line.contains(" panicked at ");
        let has_panic = (self.complaint.first()).is_some_and(|first| first.contains("panicked at"));
        if is_panic && !has_panic {
            self.complaint.clear();
        }
        let size_bytes: usize = self.complaint.iter().map(String::len).sum();
        let room_bytes = COMPLAINT_BYTES.saturating_sub(size_bytes);
        if line.is_empty() || room_bytes == 0 || self.complaint.len() == COMPLAINT_LINES {
            return;
        }
        let end = line.floor_char_boundary(room_bytes);
        self.complaint.push(line[..end].to_owned());
    }
}

/// The counts in `Summary [ 2.0s] 3 tests run: 2 passed (1 slow), 1 failed, 1 skipped`.
fn nextest_summary(line: &str) -> Option<&str> {
    let (_, counts) = line
        .trim_start()
        .strip_prefix("Summary [")?
        .split_once("run: ")?;
    Some(counts)
}

/// The name in a line such as `FAIL [ 0.151s] (2/3) PACKAGE::PROGRAM TEST`, if it says that a test failed: the word is
/// a signal's or an ending's, and these four are none.
fn nextest_status(line: &str) -> Option<&str> {
    let (word, rest) = line.trim_start().split_once(" [")?;
    let is_ending = word
        .chars()
        .all(|it| it.is_ascii_uppercase() || it.is_ascii_digit());
    if !is_ending || ["PASS", "SLOW", "LEAK", "SKIP"].contains(&word) {
        return None;
    }
    let (_, name) = rest.split_once("] ")?;
    Some(name.split_once(") ").map_or(name, |(_, name)| name))
}

/// The name in `---- NAME stdout ----`, under which libtest prints what a failed test said.
fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

/// Each failed test with its complaint, then the counts on one line.
impl fmt::Display for TestTally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for failure in &self.failures {
            writeln!(out, "failed: {}", failure.test)?;
            for line in &failure.complaint {
                writeln!(out, "    {line}")?;
            }
        }
        let (passed, failed, ignored) = (self.passed, self.failed, self.ignored);
        writeln!(
            out,
            "tests: {passed} passed, {failed} failed, {ignored} ignored"
        )
    }
}

#[cfg(test)]
mod tests {
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
}
