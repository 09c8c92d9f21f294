//! One run of wrk, and the numbers in its text.

use super::Bench;
use super::server::Server;
use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Connections of every run, as the figures ask.
pub(crate) const CONNECTIONS: usize = 64;

/// What to ask for.
pub(crate) struct Load {
    pub(crate) path: &'static str,
    /// A Lua script in wrk's contract.
    pub(crate) script: Option<PathBuf>,
    pub(crate) duration: Duration,
}

/// What came back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Answers {
    pub(crate) requests: u64,
    pub(crate) requests_per_s: f64,
}

/// The words after the generator's `taskset`; perf starts them too.
pub(crate) fn words(bench: &Bench, server: &Server, load: &Load) -> Vec<String> {
    let cpu = bench.machine.generator_cpu.to_string();
    let seconds = format!("{}s", load.duration.as_secs());
    let connections = CONNECTIONS.to_string();
    let mut words: Vec<String> = [
        "taskset",
        "--cpu-list",
        &cpu,
        "wrk",
        "-t",
        "1",
        "-c",
        &connections,
        "-d",
        &seconds,
    ]
    .map(str::to_owned)
    .into();
    // A server that is stepped answers late; a run with timeouts is refused.
    words.extend(["--timeout", "60s"].map(str::to_owned));
    if let Some(script) = &load.script {
        words.extend(["-s".to_owned(), script.display().to_string()]);
    }
    words.push(format!("http://{}{}", server.address, load.path));
    words
}

/// Runs wrk alone.
pub(crate) fn run(bench: &Bench, server: &Server, load: &Load) -> Result<Answers, String> {
    let words = words(bench, server, load);
    let output = Command::new(&words[0])
        .args(&words[1..])
        .output()
        .map_err(|error| format!("wrk cannot be run: {error}"))?;
    parse(&String::from_utf8_lossy(&output.stdout))
}

/// A run with the server's CPU time, which stands in for cycles where those cannot be counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    pub(crate) requests_per_s: f64,
    /// Of the server, user and kernel, per request.
    pub(crate) cpu_us: f64,
}

impl fmt::Display for Timed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:.0}/s, {:.2} us of CPU each",
            self.requests_per_s, self.cpu_us
        )
    }
}

/// Runs wrk and sees what the server's threads used meanwhile.
pub(crate) fn timed(bench: &Bench, server: &Server, load: &Load) -> Result<Timed, String> {
    let before = server.cpu_time()?;
    let answers = run(bench, server, load)?;
    let used = server.cpu_time()?.saturating_sub(before);
    let cpu_us = used.as_secs_f64() * 1e6 / answers.requests as f64;
    Ok(Timed {
        requests_per_s: answers.requests_per_s,
        cpu_us,
    })
}

/// Reads wrk's text; a run with errors is no measurement.
pub(crate) fn parse(text: &str) -> Result<Answers, String> {
    for complaint in ["Socket errors:", "Non-2xx"] {
        if let Some(line) = text
            .lines()
            .find(|line| line.trim_start().starts_with(complaint))
        {
            return Err(format!("wrk saw errors: {}", line.trim()));
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
            "wrk said nothing that can be read: {}",
            text.trim()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Running 4s test @ http://127.0.0.1:1/\n  1 threads and 64 connections\n\
        \x20 Thread Stats   Avg      Stdev     Max   +/- Stdev\n\
        \x20   Latency   612.50us  105.92us   6.78ms   90.11%\n\
        \x20 415893 requests in 4.00s, 51.96MB read\nRequests/sec: 103905.97\nTransfer/sec: 12.98MB\n";

    /// Goal: the two numbers are found, and a run with errors is refused.
    #[test]
    fn the_text_of_wrk_is_read() {
        let answers = Answers {
            requests: 415_893,
            requests_per_s: 103_905.97,
        };
        assert_eq!(parse(TEXT), Ok(answers));
        assert!(parse("").is_err());
        let failed = format!("{TEXT}  Non-2xx or 3xx responses: 3\n");
        assert!(parse(&failed).unwrap_err().contains("Non-2xx"));
    }
}
