//! One run of `millpond-load-lean`: what a server does for each second of its CPU.
//!
//! wrk and `millpond load` are each as busy as the server they ask, so the server sleeps between
//! requests and waking is what it then pays for. The lean client is several times cheaper. Whether
//! that was enough is in every line: the share of a CPU that each of the two used.

use super::Figure;
use super::server::Server;
use super::{Bench, build_beside};
use super::{bounded, text_of};
use serde_json::Value;
use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// A generator that works for so much of the time may have been what was measured.
const SATURATED_SHARE: f64 = 0.95;

const PACKAGE: &str = "millpond-load";
const PROGRAM: &str = "millpond-load-lean";

/// The program.
pub(super) struct Lean<'a> {
    bench: &'a Bench,
    program: PathBuf,
}

/// How it asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) connections: usize,
    /// Requests sent at once.
    pub(super) depth: usize,
    /// Without sleeping.
    pub(super) spin: bool,
    pub(super) window: Duration,
}

/// The outcome.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Run {
    requests: f64,
    /// Before and after the window too.
    pub(super) requests_in_all: u64,
    window_ns: f64,
    generator_cpu_ns: f64,
    server_cpu_ns: f64,
}

impl<'a> Lean<'a> {
    /// Builds it as the measured program is built.
    pub(super) fn build(bench: &'a Bench) -> Result<Self, String> {
        let program = build_beside(bench, PACKAGE, PROGRAM)?;
        Ok(Self { bench, program })
    }

    /// The program with all its words but those of one way to ask; the last are in `rest`.
    pub(super) fn command(&self, before: &[String], limit: Duration, rest: &[&str]) -> Command {
        let mut command = bounded(self.bench.machine.generator_cpu, limit);
        command.args(before).arg(&self.program).args(rest);
        command
    }

    /// As a command, behind the words of a program that counts.
    pub(super) fn asking(&self, server: &Server, shape: &Shape, before: &[String]) -> Command {
        let limit = shape.window + Duration::from_secs(90);
        let mut command = self.command(before, limit, &[]);
        command.args(["--connections", &shape.connections.to_string()]);
        command.args(["--depth", &shape.depth.to_string()]);
        command.args(["--seconds", &shape.window.as_secs_f64().to_string()]);
        command.args(["--server-pid", &server.pid.to_string()]);
        if shape.spin {
            command.arg("--spin");
        }
        command.args([&server.address.to_string(), "/plaintext"]);
        command
    }

    /// Asks for as long as the shape says.
    pub(super) fn run(&self, server: &Server, shape: &Shape) -> Result<Run, String> {
        Run::parse(&text_of(&mut self.asking(server, shape, &[]))?)
    }
}

impl Run {
    /// Reads what it printed.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let unreadable = || format!("{PROGRAM} said nothing that can be read: {}", text.trim());
        let value: Value = serde_json::from_str(text).map_err(|_| unreadable())?;
        let number = |key: &str| value[key].as_f64().ok_or_else(unreadable);
        Ok(Self {
            requests: number("requests")?,
            requests_in_all: value["requests_in_all"].as_u64().ok_or_else(unreadable)?,
            window_ns: number("window_ns")?,
            generator_cpu_ns: number("generator_cpu_ns")?,
            server_cpu_ns: number("server_cpu_ns")?,
        })
    }

    pub(super) fn requests_per_s(&self) -> f64 {
        self.requests / self.window_ns * 1e9
    }

    /// For each second of the server's CPU.
    pub(super) fn requests_per_cpu_s(&self) -> f64 {
        self.requests / self.server_cpu_ns * 1e9
    }

    /// Of the server, user and kernel, per request.
    pub(super) fn cpu_ns(&self) -> f64 {
        self.server_cpu_ns / self.requests
    }

    pub(super) fn generator_share(&self) -> f64 {
        self.generator_cpu_ns / self.window_ns
    }

    pub(super) fn server_share(&self) -> f64 {
        self.server_cpu_ns / self.window_ns
    }

    /// The server waited for a generator that did not wait.
    fn is_saturated(&self) -> bool {
        self.generator_share() >= SATURATED_SHARE && self.server_share() < SATURATED_SHARE
    }
}

impl fmt::Display for Run {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (per_s, cpu_ns) = (self.requests_per_s(), self.cpu_ns());
        let (server, generator) = (self.server_share(), self.generator_share());
        write!(
            formatter,
            "{per_s:.0}/s, {cpu_ns:.0} ns of CPU each (server {server:.2}, generator \
             {generator:.2} of a CPU)"
        )
    }
}

/// A server that takes turns with others.
pub(super) struct Rival<'a> {
    pub(super) name: &'static str,
    pub(super) server: &'a Server,
    pub(super) shape: Shape,
}

/// All runs of one server, in the order in which they were made.
pub(super) struct Runs {
    name: &'static str,
    runs: Vec<Run>,
}

/// So many rounds, the order turned around each time.
pub(super) fn rounds(
    lean: &Lean<'_>,
    count: usize,
    rivals: &[Rival<'_>],
) -> Result<Vec<Runs>, String> {
    let mut all: Vec<Runs> = Vec::new();
    for rival in rivals {
        // First touches of memory and branch history are not what is compared.
        lean.run(rival.server, &rival.shape)?;
        all.push(Runs {
            name: rival.name,
            runs: Vec::new(),
        });
    }
    for round in 0..count {
        let mut order: Vec<usize> = (0..rivals.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let rival = &rivals[index];
            let run = lean.run(rival.server, &rival.shape)?;
            println!("round {}: {} {run}", round + 1, rival.name);
            all[index].runs.push(run);
        }
    }
    for runs in &all {
        runs.tell_saturation();
    }
    Ok(all)
}

impl Runs {
    /// One value of each run.
    pub(super) fn values(&self, value: impl Fn(&Run) -> f64) -> Vec<f64> {
        self.runs.iter().map(value).collect()
    }

    /// The median of a value over the runs.
    pub(super) fn figure(&self, name: String, value: impl Fn(&Run) -> f64) -> Figure {
        Figure::median(name, self.values(value))
    }

    /// This one's value over the other's, round by round.
    pub(super) fn over(&self, other: &Self, name: String, value: impl Fn(&Run) -> f64) -> Figure {
        let pairs = self.runs.iter().zip(&other.runs);
        Figure::median(name, pairs.map(|(a, b)| value(a) / value(b)).collect())
    }

    fn tell_saturation(&self) {
        let count = self.runs.iter().filter(|run| run.is_saturated()).count();
        if count > 0 {
            println!(
                "SATURATED: in {count} of {} runs against {} the generator was the limit: that \
                 server could answer more requests per second than these",
                self.runs.len(),
                self.name
            );
        }
    }
}

#[cfg(test)]
#[path = "tests/lean.rs"]
mod tests;
