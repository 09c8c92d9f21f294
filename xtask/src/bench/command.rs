//! How every program of a benchmark is started: on one CPU, dying with us, and not for ever.
//!
//! The programs that do this are util-linux's and coreutils': `setpriv` has the kernel stop the
//! program when we end in whatever way, `prlimit` lets it have as many descriptors as it may,
//! `taskset` binds it, `timeout` bounds it.

use std::process::{Command, Stdio};
use std::time::Duration;

/// A program that runs until it is stopped. Its process is the one that is started here: each of
/// these words becomes the next.
pub(crate) fn lasting(cpu: usize) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM"]);
    if let Some(count_max) = descriptors_max() {
        command.args(["prlimit", &format!("--nofile={count_max}:{count_max}")]);
    }
    command.args(["taskset", "--cpu-list", &cpu.to_string()]);
    command
}

/// As many descriptors as a process may have at most; the usual 1,024 are too few for a crowd.
pub(super) fn descriptors_max() -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// The words behind which a program is not held up by others; none where the system forbids it.
pub(crate) fn real_time() -> Vec<&'static str> {
    real_time_at("20")
}

/// The same at another priority: the higher one goes first.
pub(crate) fn real_time_at(priority: &str) -> Vec<&str> {
    let words = vec!["chrt", "--fifo", priority];
    let tried = Command::new(words[0])
        .args(&words[1..])
        .arg("true")
        .stderr(Stdio::null())
        .status();
    match tried.is_ok_and(|status| status.success()) {
        true => words,
        false => Vec::new(),
    }
}

/// A program that is stopped after `limit`, which none of them should need.
pub(crate) fn bounded(cpu: usize, limit: Duration) -> Command {
    let mut command = lasting(cpu);
    let seconds = limit.as_secs_f64().to_string();
    command.args(["timeout", "--foreground", "--kill-after", "10", &seconds]);
    command
}

/// Runs a load generator to its end; its text. That it does not trust itself (exit status 4), as where
/// the hypervisor takes a tenth of a second of CPU, is no failure here: pairs and medians are what the
/// figures rest on.
pub(super) fn text_of_load(command: &mut Command) -> Result<String, String> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?} cannot be run: {error}"))?;
    match output.status.code() {
        Some(0 | 4) => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        _ => Err(format!(
            "{command:?} ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

/// Runs it to its end; its text, or what it said instead.
pub(super) fn text_of(command: &mut Command) -> Result<String, String> {
    let name = format!("{command:?}").replace('"', "");
    let output = command
        .output()
        .map_err(|error| format!("{name} cannot be run: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().lines().last().unwrap_or_default();
        return Err(format!("{name} ended with {}: {said}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a generator on a machine that stalls ends no benchmark, and one that cannot run does. A run
    /// of one second is soon one in which a tenth of it was withheld.
    #[test]
    fn a_run_that_does_not_trust_itself_counts() {
        let run = |script: &str| text_of_load(Command::new("sh").args(["-c", script]));
        assert_eq!(
            run("echo 7 requests; exit 4"),
            Ok("7 requests\n".to_owned())
        );
        let refused = run("echo no such target >&2; exit 2").unwrap_err();
        assert!(refused.contains("no such target"), "{refused}");
    }
}
