//! Hardware counters of a server while a generator drives it, counted by perf.

use super::Bench;
use super::command::text_of_load;
use super::generator::{self, Answers, Generator};
use super::server::Server;
use std::fmt;
use std::process::Command;
use std::time::Duration;

const EVENTS: &str = "instructions:u,instructions:k,cycles:u,cycles:k";

/// Counts over one run of a generator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Counts {
    user_instructions: f64,
    kernel_instructions: f64,
    /// User and kernel.
    cycles: f64,
}

/// Counts over one run of a generator whose answers are known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Counted {
    pub(super) answers: Answers,
    counts: Counts,
}

/// Each figure is per request.
impl Counts {
    pub(super) fn user_instructions(&self, requests: u64) -> f64 {
        self.user_instructions / requests as f64
    }

    pub(super) fn kernel_instructions(&self, requests: u64) -> f64 {
        self.kernel_instructions / requests as f64
    }
}

/// Each figure is per request.
impl Counted {
    pub(super) fn user_instructions(&self) -> f64 {
        self.counts.user_instructions(self.answers.requests)
    }

    pub(super) fn kernel_instructions(&self) -> f64 {
        self.counts.kernel_instructions(self.answers.requests)
    }

    pub(super) fn cycles(&self) -> f64 {
        self.counts.cycles / self.answers.requests as f64
    }
}

impl fmt::Display for Counted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (instructions, cycles) = (self.user_instructions(), self.cycles());
        let per_s = self.answers.requests_per_s;
        write!(
            formatter,
            "{instructions:.0} user instructions, {cycles:.0} cycles, {per_s:.0}/s"
        )
    }
}

/// Whether this machine lets us count; the sentence says why not.
pub(crate) fn available() -> Result<(), String> {
    let output = Command::new("perf")
        .args(["stat", "-x", ",", "-e", EVENTS, "--", "true"])
        .output()
        .map_err(|error| format!("perf cannot be run (Debian package linux-perf): {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    EVENTS
        .split(',')
        .try_for_each(|event| parse(&text, event).map(|_| ()))
}

/// Runs the generator and takes its answers from its text.
pub(super) fn run(
    bench: &Bench,
    server: &Server,
    generator: Generator,
    duration: Duration,
) -> Result<Counted, String> {
    let (text, counts) = count(bench, server, |words| {
        generator.command(bench, server, duration, words)
    })?;
    let answers = generator::parse(&text)?;
    Ok(Counted { answers, counts })
}

/// Runs a generator as perf's own command, so that the counts cover exactly its requests; `command`
/// makes it behind the words it is given. Its text comes back with the counts.
pub(super) fn count(
    bench: &Bench,
    server: &Server,
    command: impl FnOnce(&[String]) -> Command,
) -> Result<(String, Counts), String> {
    let file = bench.scratch.join("perf.csv");
    let (pid, path) = (server.pid.to_string(), file.display().to_string());
    let words = [
        "perf", "stat", "-x", ",", "-e", EVENTS, "-p", &pid, "-o", &path, "--",
    ];
    let words = words.map(str::to_owned);
    let said = text_of_load(&mut command(&words))?;
    let text = std::fs::read_to_string(&file).map_err(|error| format!("perf's file: {error}"))?;
    let count = |event: &str| parse(&text, event);
    let counts = Counts {
        user_instructions: count("instructions:u")?,
        kernel_instructions: count("instructions:k")?,
        cycles: count("cycles:u")? + count("cycles:k")?,
    };
    Ok((said, counts))
}

/// One line of perf's CSV: `count,unit,event,time running,percent running,...`.
fn parse(text: &str, event: &str) -> Result<f64, String> {
    let line = text
        .lines()
        .find(|line| line.split(',').nth(2) == Some(event));
    let count = line.and_then(|line| line.split(',').next());
    let missing =
        "this machine may hide its hardware counters, and reading the kernel's needs root";
    count
        .and_then(|count| count.parse().ok())
        .ok_or_else(|| format!("perf gave no count of {event}: {missing}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perf_s_lines_are_read() {
        let text = "# started on Sat\n\n123456,,instructions:u,4003,100.00,,\n\
                    <not supported>,,cycles:u,0,0.00,,\n";
        assert_eq!(parse(text, "instructions:u"), Ok(123_456.0));
        assert!(parse(text, "cycles:u").unwrap_err().contains("cycles:u"));
        assert!(parse(text, "cycles:k").is_err());
    }
}
