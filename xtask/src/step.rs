//! Commands and how they end: a step of the check with its time and what its test programs said, and a process
//! group with a deadline.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::tally::TestTally;

/// How a step ended.
pub(crate) struct StepOutcome {
    pub(crate) name: &'static str,
    pub(crate) ok: bool,
    /// What it failed for, if that is not what a test said.
    pub(crate) complaint: Option<String>,
    /// Why it was not run, if it was not; that is no failure.
    pub(crate) absence: Option<&'static str>,
    pub(crate) took: Duration,
    pub(crate) tests: TestTally,
}

/// Announces a step, runs it, and times it. `work` returns whether it went well.
pub(crate) fn run_step(
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
pub(crate) fn leave_out(name: &'static str, reason: &'static str) -> StepOutcome {
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

/// The cargo that started us, so that a toolchain chosen with `cargo +NAME` stays chosen. What that one
/// told us of our own package is not passed on: a build script that asks to run again when it changes
/// (ring's does) would have all above it compiled anew after each cargo that was called by hand.
pub(crate) fn cargo() -> Command {
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

/// The one number that a verb takes, or its default.
pub(crate) fn one_number(words: &[&str], what: &str, default: u64) -> Result<u64, String> {
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
pub(crate) fn cargo_tool(name: &str) -> Command {
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
pub(crate) fn has_cargo_tool(name: &str) -> bool {
    let asked = cargo_tool(name)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    asked.is_ok_and(|status| status.success())
}

/// Runs a command with its output going to ours; counts test results on its way.
pub(crate) fn run_command(command: &mut Command, tests: &mut TestTally) -> Result<bool, String> {
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

/// Runs a command to its end and hands on each line of what it prints, on stdout and stderr alike: one pipe for
/// both, so that what is said of a test stays beside it. The command is not to be run again.
pub(crate) fn run_by_lines(
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
pub(crate) fn run_in_group(
    command: &mut Command,
    deadline: Instant,
) -> io::Result<Option<ExitStatus>> {
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
pub(crate) fn print_tail(log: &Path, lines_max: usize) {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines[lines.len().saturating_sub(lines_max)..] {
        println!("    {line}");
    }
}

pub(crate) fn shown(command: &Command) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a cargo of ours sees the environment of one that was called by hand.
    #[test]
    fn nothing_of_this_package_is_passed_on() {
        let cargo = cargo();
        let removed: Vec<_> = cargo
            .get_envs()
            .filter(|(_, value)| value.is_none())
            .map(|(name, _)| name)
            .collect();
        for name in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME"] {
            assert!(std::env::var_os(name).is_some(), "cargo test sets {name}");
            assert!(removed.contains(&std::ffi::OsStr::new(name)), "{name}");
        }
    }

    /// Goal: a step whose command cannot be found has failed, and says which.
    #[test]
    fn a_missing_program_fails_its_step() {
        let outcome = run_step("missing", |tests| {
            run_command(&mut Command::new("/nowhere/at-all"), tests)
        });
        assert!(!outcome.ok);
        let complaint = outcome.complaint.unwrap_or_default();
        assert!(complaint.contains("/nowhere/at-all"), "{complaint}");
    }
}
