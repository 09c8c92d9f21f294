//! System calls of the client for each request, counted by strace, which slows it down: events then
//! come in fuller batches than at full speed, as they do under callgrind.

use super::TargetProgram;
use crate::bench::Bench;
use crate::bench::command::{bounded, text_of_load};
use crate::bench::figure::Figure;
use crate::bench::server::Server;
use std::time::Duration;

pub(super) fn measure(bench: &Bench, target: &TargetProgram<'_>) -> Result<Vec<Figure>, String> {
    let server = target.start(0)?;
    let mut figures = Vec::new();
    for (driver, limit) in [("uring", 0.3), ("epoll", 2.1)] {
        let thousands: u32 = if bench.plan.smoke { 5 } else { 20 };
        let few = count(bench, &server, driver, thousands * 1_000)?;
        let many = count(bench, &server, driver, thousands * 3_000)?;
        let value = (many - few) / f64::from(thousands * 2_000);
        println!("{driver}: {value:.2} system calls per request by strace");
        let name = format!("load_c64_{driver}_system_calls_per_request_by_strace");
        figures.push(Figure::median(name, vec![value]).at_most(limit));
    }
    Ok(figures)
}

/// All system calls of one run.
fn count(bench: &Bench, server: &Server, driver: &str, requests: u32) -> Result<f64, String> {
    let file = bench.scratch.join("load.strace");
    let mut command = bounded(bench.machine.generator_cpu, Duration::from_secs(200));
    command.args(["strace", "-f", "-c", "-o"]).arg(&file);
    command
        .arg(&bench.millpond)
        .args(["load", "-t", "1", "-c", "64"]);
    command.args([
        "--driver",
        driver,
        "--receive-stamps",
        "off",
        "--timeout",
        "60s",
    ]);
    command.args(["--requests", &requests.to_string()]);
    command.arg(format!("http://{}/", server.address));
    text_of_load(&mut command)?;
    let text = std::fs::read_to_string(&file)
        .map_err(|error| format!("strace's {}: {error}", file.display()))?;
    total(&text).ok_or_else(|| format!("strace's table has no total: {text}"))
}

/// The calls in the last line: `100.00    0.123456           3     40000       123 total`.
fn total(text: &str) -> Option<f64> {
    let line = text
        .lines()
        .find(|line| line.trim_end().ends_with(" total"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_read() {
        let text = "% time     seconds  usecs/call     calls    errors syscall\n\
            ------ ----------- ----------- --------- --------- ----------------\n\
             60.00    0.100000           3     30000           recvfrom\n\
            ------ ----------- ----------- --------- --------- ----------------\n\
            100.00    0.123456           3     40123        12 total\n";
        assert_eq!(total(text), Some(40_123.0));
        assert_eq!(total("nothing\n"), None);
    }
}
