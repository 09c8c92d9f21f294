//! User instructions per request where the machine hides its counters: valgrind's callgrind.
//!
//! It counts every instruction of the whole process, so the server runs twice under it, once for
//! longer: the difference holds neither start nor stop, nor the opening and closing of connections,
//! which at full speed is spread over fifty times as many requests. It also has fuller batches of
//! events than full speed, and what a tick costs is spread over more requests.

use std::fmt;
use std::process::Command;
use std::time::Duration;

use super::generator::{Answers, Generator};
use super::server::Server;
use super::{Bench, generator, text_of, text_of_load};

/// The counted server: with the driver that valgrind can follow. Under it a ring's completions are seen late or, at the
/// stop, never.
pub(super) const SERVE_PLAINTEXT: [&str; 3] = ["plaintext", "--driver", "epoll"];

/// Whether valgrind is here; the sentence says what to do when not.
pub(super) fn available() -> Result<(), String> {
    text_of(Command::new("valgrind").arg("--version"))
        .map(|_| ())
        .map_err(|error| format!("{error} (install the Debian package valgrind)"))
}

/// How long a server is driven for the first count, and how many times that for the second.
const fn drive_time(bench: &Bench) -> Duration {
    Duration::from_secs(if bench.plan.smoke { 1 } else { 2 })
}
const LONGER: u32 = 4;

/// Instructions per request of the server that `start` starts behind the given words. `drive` sends
/// requests for the given time and returns how many.
pub(super) fn user_instructions(
    bench: &Bench,
    name: &str,
    start: impl Fn(&Bench, &[String]) -> Result<Server, String>,
    drive: impl Fn(&Server, Duration) -> Result<u64, String>,
) -> Result<f64, String> {
    let time = drive_time(bench);
    let (fewer_instructions, few) = count(bench, name, &start, |server| drive(server, time))?;
    let (instructions, many) = count(bench, name, &start, |server| drive(server, time * LONGER))?;
    if many <= few {
        return Err(format!(
            "{name}: {many} requests in {LONGER} times as long as {few} took; count again on a \
             machine with a CPU to spare"
        ));
    }
    let per_request = (instructions - fewer_instructions) / (many - few);
    println!("{name}: {per_request:.0} user instructions per request by callgrind");
    Ok(per_request)
}

/// All instructions of one driven process, and the requests it responded to.
fn count(
    bench: &Bench,
    name: &str,
    start: impl Fn(&Bench, &[String]) -> Result<Server, String>,
    drive: impl FnOnce(&Server) -> Result<u64, String>,
) -> Result<(f64, f64), String> {
    let file = bench.scratch.join(format!("{name}.callgrind"));
    let log = bench.scratch.join(format!("{name}.valgrind.log"));
    let words = [
        "valgrind".to_owned(),
        "--tool=callgrind".to_owned(),
        format!("--callgrind-out-file={}", file.display()),
        format!("--log-file={}", log.display()),
    ];
    let _ = std::fs::remove_file(&file);
    let server = start(bench, &words)?;
    let requests = drive(&server)?;
    // Callgrind writes its file when the program ends.
    drop(server);
    let text = std::fs::read_to_string(&file)
        .map_err(|error| format!("callgrind's {}: {error}", file.display()))?;
    Ok((total(&text)?, requests as f64))
}

/// All instructions of one run of `millpond` with these words.
pub(super) fn instructions(bench: &Bench, name: &str, words: &[&str]) -> Result<f64, String> {
    let file = bench.scratch.join(format!("{name}.callgrind"));
    let _ = std::fs::remove_file(&file);
    let mut command = Command::new("valgrind");
    command
        .args(["--quiet", "--tool=callgrind"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(&bench.millpond)
        .args(words);
    text_of_load(&mut command)?;
    let text = std::fs::read_to_string(&file)
        .map_err(|error| format!("callgrind's {}: {error}", file.display()))?;
    total(&text)
}

/// All instructions of one run of wrk with these words, and how many requests it says it made.
pub(super) fn of_wrk(bench: &Bench, words: &[&str]) -> Result<(f64, f64), String> {
    let file = bench.scratch.join("wrk.callgrind");
    let _ = std::fs::remove_file(&file);
    let mut command = Command::new("valgrind");
    command
        .args(["--quiet", "--tool=callgrind"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg("wrk")
        .args(words);
    let answers = super::generator::parse(&text_of(&mut command)?)?;
    let text = std::fs::read_to_string(&file)
        .map_err(|error| format!("callgrind's {}: {error}", file.display()))?;
    Ok((total(&text)?, answers.requests as f64))
}

/// The last `totals: N` of the file.
fn total(text: &str) -> Result<f64, String> {
    let line = text
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("totals: "));
    line.and_then(|count| count.trim().parse().ok())
        .ok_or_else(|| "callgrind's file has no totals".to_owned())
}

// Hardware counters of a server while a generator drives it, counted by perf.

const EVENTS: &str = "instructions:u,instructions:k,cycles:u,cycles:k";

/// Counts over one run of a generator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Counts {
    user_instructions: f64,
    kernel_instructions: f64,
    /// User and kernel.
    cycles: f64,
}

/// Counts over one run of a generator whose results are known.
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
pub(crate) fn perf_available() -> Result<(), String> {
    let output = Command::new("perf")
        .args(["stat", "-x", ",", "-e", EVENTS, "--", "true"])
        .output()
        .map_err(|error| format!("perf cannot be run (Debian package linux-perf): {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    EVENTS
        .split(',')
        .try_for_each(|event| parse(&text, event).map(|_| ()))
}

/// Runs the generator and takes its results from its text.
pub(super) fn run(
    bench: &Bench,
    server: &Server,
    generator: Generator,
    duration: Duration,
) -> Result<Counted, String> {
    let (text, counts) = perf_count(bench, server, |words| {
        generator.command(bench, server, duration, words)
    })?;
    let answers = generator::parse(&text)?;
    Ok(Counted { answers, counts })
}

/// Runs a generator as perf's own command, so that the counts cover exactly its requests; `command`
/// makes it behind the words it is given. Its text comes back with the counts.
pub(super) fn perf_count(
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
#[path = "tests/callgrind.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/perf.rs"]
mod perf_tests;
