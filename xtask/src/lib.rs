//! Commands of this workspace for its own programs, `cargo xtask` and `cargo bench-suite`: how they are run and how they
//! end, what the test programs among them printed, and what cargo says of the workspace.
//!
//! It depends on no crate of this workspace: one that does not compile must not keep the check from saying so.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{fmt, io};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

// The output of test programs, by themselves or through cargo-nextest: how many tests passed, and why each failed one
// did.

/// So much of a failed test's output is repeated at the end; the rest is in the log above.
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
pub struct TestTally {
    /// Tests that ran and did not fail.
    pub passed: u64,
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
    pub fn add_line(&mut self, line: &str) {
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
    pub fn add(&mut self, other: &TestTally) {
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

// Commands and how they end: a step of the check with its time and what its test programs said, and a process
// group with a deadline.

/// How a step ended.
pub struct StepOutcome {
    /// As it was announced.
    pub name: &'static str,
    /// Whether it went well, or was not run.
    pub ok: bool,
    /// The reason of the failure, if it is not a test's output.
    pub complaint: Option<String>,
    /// Why it was not run, if it was not; that is no failure.
    pub absence: Option<&'static str>,
    /// From the announcement to the end.
    pub took: Duration,
    /// The output of this step's test programs.
    pub tests: TestTally,
}

/// Announces a step, runs it, and times it. `work` returns whether it went well.
pub fn run_step(
    name: &'static str,
    work: impl FnOnce(&mut TestTally) -> Result<bool, String>,
) -> StepOutcome {
    println!("\n=== {name}");
    let started = Instant::now();
    let mut tests = TestTally::default();
    let ended = work(&mut tests);
    if let Err(sentence) = &ended {
        println!("{name}: {sentence}");
    }
    StepOutcome {
        name,
        ok: ended == Ok(true),
        complaint: ended.err(),
        absence: None,
        took: started.elapsed(),
        tests,
    }
}

/// Announces a step that this machine lacks something for.
pub fn leave_out(name: &'static str, reason: &'static str) -> StepOutcome {
    println!("\n=== {name}\nnot run: {reason}");
    StepOutcome {
        name,
        ok: true,
        complaint: None,
        absence: Some(reason),
        took: Duration::ZERO,
        tests: TestTally::default(),
    }
}

/// The cargo that started us, so that a toolchain chosen with `cargo +NAME` stays chosen. Its variables about our own
/// package are not passed on: a build script that runs again when they change (ring's does) would recompile all its
/// dependents after each manual cargo call.
pub fn cargo() -> Command {
    let mut command =
        Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    for (name, _) in std::env::vars_os() {
        let is_of_package = name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        });
        if is_of_package {
            command.env_remove(name);
        }
    }
    command
}

/// The one number that a verb takes, or its default. A sentence says what else `words` are; `what` is counted.
pub fn one_number(words: &[&str], what: &str, default: u64) -> Result<u64, String> {
    match words {
        [] => Ok(default),
        [word] => word
            .parse()
            .map_err(|error| format!("{word} is no number of {what}: {error}")),
        _ => Err(format!(
            "too many words: a number of {what} is all there is"
        )),
    }
}

/// A subcommand of cargo that comes from elsewhere, such as `nextest`: the one that `scripts/setup` put below the
/// target directory, else the one that the user has installed.
pub fn cargo_tool(name: &str) -> Command {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| OsString::from("target"));
    let program = PathBuf::from(target).join(format!("tools/bin/cargo-{name}"));
    // Absolute, for a command that is run in another directory.
    let mut command = match program.canonicalize() {
        Ok(program) => Command::new(program),
        Err(_) => cargo(),
    };
    command.arg(name);
    command
}

/// Whether that subcommand is there.
pub fn has_cargo_tool(name: &str) -> bool {
    let asked = cargo_tool(name)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    asked.is_ok_and(|status| status.success())
}

/// Runs a command with its output going to ours; counts test results on its way. Whether it ended well; an error where
/// it cannot be run.
pub fn run_command(command: &mut Command, tests: &mut TestTally) -> Result<bool, String> {
    println!("$ {}", shown(command));
    let program = command.get_program().to_string_lossy().into_owned();
    let ended = run_by_lines(command, |line| {
        let line = String::from_utf8_lossy(line);
        println!("{line}");
        tests.add_line(&line);
        Ok(())
    });
    match ended {
        Ok(status) => Ok(status.success()),
        Err(error) => Err(format!("{program} cannot be run: {error}")),
    }
}

/// Runs a command to its end and hands on each line of what it prints, on stdout and stderr alike: one pipe for both,
/// so that messages about a test stay beside it. The command is not to be run again.
pub fn run_by_lines(
    command: &mut Command,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<ExitStatus> {
    let (output, input) = io::pipe()?;
    command.stderr(input.try_clone()?);
    let mut child = command.stdout(input).spawn()?;
    // The command keeps the ends that it was given, and the pipe ends when the last of them closes.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    for line in BufReader::new(output).split(b'\n') {
        take(&line?)?;
    }
    child.wait()
}

/// Runs a command in a process group of its own until it ends, `None` if it has not by then. Whatever it left
/// running ends with it, so that ports and CPUs are free for the next one.
pub fn run_in_group(command: &mut Command, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    let mut child = command.stdin(Stdio::null()).process_group(0).spawn()?;
    let status = loop {
        let status = child.try_wait()?;
        if status.is_some() || Instant::now() >= deadline {
            break status;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
        // An error means that the group is empty: as it should be.
        let _ = kill_process_group(group, Signal::TERM);
    }
    if status.is_none() {
        child.kill()?;
        child.wait()?;
    }
    Ok(status)
}

/// Prints the last lines of a log, set in.
pub fn print_tail(log: &Path, lines_max: usize) {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines[lines.len().saturating_sub(lines_max)..] {
        println!("    {line}");
    }
}

/// A command as one would type it, with the variables that it sets.
pub fn shown(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let name = program
        .file_name()
        .unwrap_or(program.as_os_str())
        .to_string_lossy()
        .into_owned();
    let arguments = command
        .get_args()
        .map(|word| format!(" {}", word.to_string_lossy()));
    let variables = command.get_envs().filter_map(|(name, value)| {
        let value = value?.to_string_lossy();
        let quote = if value.contains(' ') { "'" } else { "" };
        Some(format!("{}={quote}{value}{quote} ", name.to_string_lossy()))
    });
    variables.collect::<String>() + &name + &arguments.collect::<String>()
}

// The tests of the workspace: one build of all test programs, which then run once for each I/O driver.
//
// The driver of a server or client under test is chosen when it starts, so a second driver costs a second
// run of those packages and no second build. cargo-nextest runs each test in a process of its own, two at a time for
// each CPU, since many of them wait. Where it is not installed `cargo test` runs the same tests, one program after another.

/// Read by the tests of `http` and `load`: the driver of the shards that they start.
const DRIVER_VARIABLE: &str = "MILLPOND_TEST_DRIVER";

/// Packages whose integration tests read it. Those of `io` name their drivers themselves.
const DRIVER_PACKAGES: [&str; 2] = ["millpond-http", "millpond-load"];

/// Ignored functions that are processes which another test starts: no tests by themselves.
const CHILD_PROCESSES: &str = "test(/(server|disk)_process$/)";

/// Runs every test of the fast tier with the driver that the machine prefers: io_uring where there is one. Whether all
/// passed; an error where none ran.
pub fn run_suite(tests: &mut TestTally) -> Result<bool, String> {
    let programs = ["--workspace", "--lib", "--bins", "--tests", "--examples"];
    run_tests(&mut with_runner(&[], &programs), tests)
}

/// Runs the tests that a driver can change once more, on epoll; as [`run_suite`].
pub fn run_on_epoll(tests: &mut TestTally) -> Result<bool, String> {
    let [one, other] = DRIVER_PACKAGES;
    let filter = format!("kind(test) and (package({one}) or package({other}))");
    let programs = ["--tests", "--package", one, "--package", other];
    let mut command = with_runner(&["-E", &filter], &programs);
    run_tests(command.env(DRIVER_VARIABLE, "epoll"), tests)
}

/// Runs the tests that are ignored because they take long, measure time, or need root. An error if one fails, none ran,
/// or cargo-nextest is missing.
pub fn run_slow() -> Result<(), String> {
    if !has_cargo_tool("nextest") {
        return Err("cargo-nextest is missing: scripts/setup test installs it".to_owned());
    }
    let filter = format!("not {CHILD_PROCESSES}");
    let mut tests = TestTally::default();
    let mut command = nextest(&["--run-ignored", "only", "-E", &filter]);
    let is_good = run_tests(&mut command, &mut tests)?;
    print!("{tests}");
    match is_good {
        true => Ok(()),
        false => Err("a test of the slow tier failed: it is named above".to_owned()),
    }
}

/// Builds the test programs and nothing else, so that the time of a run is known apart from it. Whether they build.
pub fn build_tests() -> Result<bool, String> {
    let mut command = with_runner(&["--no-run"], &["--workspace", "--no-run"]);
    run_command(&mut command, &mut TestTally::default())
}

/// The command that runs tests: cargo-nextest with `words`, or `cargo test` with `cargo_words` where it is missing.
fn with_runner(words: &[&str], cargo_words: &[&str]) -> Command {
    if has_cargo_tool("nextest") {
        return nextest(words);
    }
    println!(
        "cargo-nextest is not installed: `cargo test` takes longer (scripts/setup test installs it)"
    );
    let mut command = cargo();
    command.args(["test", "--locked", "--no-fail-fast"]);
    command.args(cargo_words);
    command
}

fn nextest(words: &[&str]) -> Command {
    let mut command = cargo_tool("nextest");
    command.args(["run", "--workspace", "--locked"]);
    command.args(words);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    command.env("NEXTEST_TEST_THREADS", (2 * cpus).to_string());
    // Many tests provoke a panic on purpose; a backtrace of each takes longer than the test.
    command.env("RUST_BACKTRACE", "0");
    command
}

/// Runs tests; a run of none is no success.
fn run_tests(command: &mut Command, tests: &mut TestTally) -> Result<bool, String> {
    let passed_before = tests.passed;
    let is_good = run_command(command, tests)?;
    if is_good && tests.passed == passed_before {
        return Err("no test ran".to_owned());
    }
    Ok(is_good)
}

// cargo's description of this workspace.

/// Cargo's description of the workspace and all it depends on; an error where cargo does not print it.
pub fn metadata() -> Result<Value, String> {
    let words = [
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--all-features",
    ];
    let target = ["--filter-platform", "x86_64-unknown-linux-gnu"];
    let output = cargo()
        .args(words)
        .args(target)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo metadata cannot be run: {error}"))?;
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata printed no readable JSON: {error}"))
}

/// Where cargo puts what it builds here. Flags for all crates need a directory below of their own,
/// or the daily build starts anew after each use. An error as of [`metadata`].
pub fn target_directory() -> Result<PathBuf, String> {
    metadata()?["target_directory"]
        .as_str()
        .map(PathBuf::from)
        .ok_or_else(|| "cargo names no target directory".to_owned())
}

#[cfg(test)]
#[path = "tests/tally.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/step.rs"]
mod step_tests;
