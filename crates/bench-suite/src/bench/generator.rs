//! One run of a load generator, and the numbers in its text.
//!
//! wrk is not ours, so it is the judge. But one core of it is busier than the server: the faster
//! the server, the more often it sleeps, and waking is what it then pays for. Our own generator
//! leaves no such gap; each figure's name says which one drove.

use super::Bench;
use super::server::Server;
use super::{bounded, text_of_load};
use std::fmt;
use std::process::Command;
use std::time::Duration;

/// Connections of every run, as the figures ask.
pub(super) const CONNECTIONS: usize = 64;

/// The generator.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Generator {
    Wrk,
    /// `millpond load`.
    Millpond,
    /// `millpond load --get`: random keys of a filled store, each value checked.
    MillpondGet,
}

/// The results.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Answers {
    pub(super) requests: u64,
    pub(super) requests_per_s: f64,
}

impl Generator {
    /// The program's words after those that bind and bound it.
    fn words(self, bench: &Bench, server: &Server, duration: Duration) -> Vec<String> {
        let seconds = format!("{}s", duration.as_secs());
        let keys = bench.plan.keys.to_string();
        let millpond = bench.millpond.display().to_string();
        let (program, own_words, path) = match self {
            Self::Wrk => (vec!["wrk"], vec![], "/plaintext"),
            Self::Millpond => (vec![millpond.as_str(), "load"], vec![], "/plaintext"),
            Self::MillpondGet => (
                vec![millpond.as_str(), "load"],
                vec!["--get", "--value-size", "1KiB", "--keys", &keys],
                "/",
            ),
        };
        let connections = CONNECTIONS.to_string();
        let shape = ["-t", "1", "-c", &connections, "-d", &seconds];
        // A server under callgrind responds late; a run with timeouts is refused.
        let patience = ["--timeout", "20s"];
        let url = format!("http://{}{path}", server.address);
        [&program[..], &shape, &patience, &own_words]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .chain([url])
            .collect()
    }

    /// As a command on the generator's CPU. `before` may put words of a program in front.
    pub(super) fn command(
        self,
        bench: &Bench,
        server: &Server,
        duration: Duration,
        before: &[String],
    ) -> Command {
        let limit = duration + Duration::from_secs(60);
        let mut command = bounded(bench.machine.generator_cpu, limit);
        command
            .args(before)
            .args(self.words(bench, server, duration));
        command
    }

    /// Runs it alone.
    pub(super) fn run(
        self,
        bench: &Bench,
        server: &Server,
        duration: Duration,
    ) -> Result<Answers, String> {
        parse(&text_of_load(&mut self.command(
            bench,
            server,
            duration,
            &[],
        ))?)
    }

    /// Runs it and reads the server threads' use meanwhile.
    pub(super) fn timed(
        self,
        bench: &Bench,
        server: &Server,
        duration: Duration,
    ) -> Result<Timed, String> {
        let before = server.cpu_time()?;
        let answers = self.run(bench, server, duration)?;
        let used = server.cpu_time()?.saturating_sub(before);
        Ok(Timed {
            requests_per_s: answers.requests_per_s,
            cpu_ns: used.as_nanos() as f64 / answers.requests as f64,
        })
    }
}

/// A run with the server's CPU time, which replaces cycles where those cannot be counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timed {
    pub(super) requests_per_s: f64,
    /// Of all the server's threads, user and kernel, per request.
    pub(super) cpu_ns: f64,
}

impl fmt::Display for Timed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (per_s, cpu_ns) = (self.requests_per_s, self.cpu_ns);
        write!(formatter, "{per_s:.0}/s, {cpu_ns:.0} ns of CPU each")
    }
}

/// Reads the text that wrk and `millpond load` have in common; a run with errors is no measurement.
pub(super) fn parse(text: &str) -> Result<Answers, String> {
    for complaint in ["Socket errors:", "Non-2xx"] {
        if let Some(line) = text
            .lines()
            .find(|line| line.trim_start().starts_with(complaint))
        {
            return Err(format!("the generator saw errors: {}", line.trim()));
        }
    }
    let find = |pattern: &str| text.lines().find(|line| line.contains(pattern));
    let requests = find(" requests in ").and_then(|line| line.split_whitespace().next());
    let per_s = find("Requests/sec:").and_then(|line| line.split_whitespace().nth(1));
    match (requests.map(str::parse), per_s.map(str::parse)) {
        (Some(Ok(requests)), Some(Ok(requests_per_s))) => Ok(Answers {
            requests,
            requests_per_s,
        }),
        _ => Err(format!(
            "the generator said nothing that can be read: {}",
            text.trim()
        )),
    }
}

#[cfg(test)]
#[path = "tests/generator.rs"]
mod tests;
