//! PUT with a sync, of 64 connections, beside one node of etcd v3 and its own benchmark.
//!
//! The benchmark is built by Go, once, in the target directory. Absent on purpose: a part of the smoke
//! run, which must not need the network.

use super::{Directory, EntityServer, fill, redis};
use crate::bench::Bench;
use crate::bench::command::{bounded, lasting, text_of};
use crate::bench::figure::Figure;
use crate::bench::generator::{CONNECTIONS, Timed};
use crate::bench::machine::first_line;
use crate::bench::pairs::interleave;
use crate::bench::server::{Server, free_address};
use crate::step::run_command;
use crate::tally::TestTally;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const SERVER: &str = "etcd";
const PACKAGE: &str = "go.etcd.io/etcd/v3/tools/benchmark";
const VERSION: &str = "v3.5.11";

const PAIRS_MAX: usize = 5;

/// Of one run: some seconds.
const PUTS: u64 = 20_000;

pub(super) fn measure(bench: &Bench) -> Result<Vec<Figure>, String> {
    if bench.plan.smoke || first_line(SERVER, &["--version"]).is_none() {
        println!("left out: {SERVER} is not here (scripts/setup bench), or nothing is recorded");
        return Ok(Vec::new());
    }
    let benchmark = build(&bench.target.join("etcd-benchmark"))?;
    let entity = EntityServer::start(bench, "entity", &["--sync", "always"])?;
    fill(bench, &entity)?;
    let data = Directory::make(bench, "etcd-beside")?;
    let (etcd, endpoint) = start_etcd(bench, &data)?;
    let pairs = interleave(
        bench.plan.pairs.min(PAIRS_MAX),
        ["entity", "etcd"],
        || redis::put(bench, &entity),
        || ask(bench, &benchmark, &etcd, &endpoint),
    )?;
    let of = |value: fn(&(Timed, Timed)) -> f64| pairs.iter().map(value).collect::<Vec<f64>>();
    let ratio = of(|(ours, etcd)| ours.requests_per_s / etcd.requests_per_s);
    let cpu = of(|(ours, etcd)| etcd.cpu_ns / ours.cpu_ns);
    Ok(vec![
        Figure::median("entity_put_always_per_s_over_etcd_ratio", ratio).at_least(5.0),
        Figure::median("entity_put_always_per_cpu_s_over_etcd_ratio", cpu),
        Figure::median(
            "entity_put_always_per_s_of_etcd",
            of(|(_, etcd)| etcd.requests_per_s),
        ),
    ])
}

/// The benchmark, built unless it is there.
fn build(home: &Path) -> Result<PathBuf, String> {
    let program = home.join("benchmark");
    if program.exists() {
        return Ok(program);
    }
    let source = format!("//go:build tools\n\npackage tools\n\nimport _ \"{PACKAGE}\"\n");
    std::fs::create_dir_all(home)
        .and_then(|()| std::fs::write(home.join("go.mod"), "module tools\n\ngo 1.21\n"))
        .and_then(|()| std::fs::write(home.join("tools.go"), source))
        .map_err(|error| format!("{}: {error}", home.display()))?;
    let (wanted, output) = (format!("{PACKAGE}@{VERSION}"), program.as_os_str());
    let mut get = Command::new("go");
    get.args(["get", &wanted]).current_dir(home);
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(output);
    build.arg(PACKAGE).current_dir(home);
    let tests = &mut TestTally::default();
    match run_command(&mut get, tests)? && run_command(&mut build, tests)? {
        true => Ok(program),
        false => Err(format!(
            "{wanted} cannot be built: it takes Go, and the network once"
        )),
    }
}

fn start_etcd(bench: &Bench, data: &Directory) -> Result<(Server, String), String> {
    let (client, peer) = (free_address()?, free_address()?);
    let (client_url, peer_url) = (format!("http://{client}"), format!("http://{peer}"));
    let mut command = lasting(bench.machine.server_cpu);
    command.args([SERVER, "--log-level", "error", "--data-dir"]);
    command.arg(data.0.join("etcd"));
    command.args(["--listen-client-urls", &client_url]);
    command.args(["--advertise-client-urls", &client_url]);
    command.args(["--listen-peer-urls", &peer_url]);
    command.args(["--initial-advertise-peer-urls", &peer_url]);
    command.args(["--initial-cluster", &format!("default={peer_url}")]);
    Ok((Server::start(command, client)?, client.to_string()))
}

fn ask(bench: &Bench, benchmark: &Path, etcd: &Server, endpoint: &str) -> Result<Timed, String> {
    let mut command = bounded(bench.machine.generator_cpu, Duration::from_secs(120));
    let connections = CONNECTIONS.to_string();
    command
        .arg(benchmark)
        .args(["put", "--endpoints", endpoint]);
    command.args(["--clients", &connections, "--conns", &connections]);
    command.args(["--total", &PUTS.to_string(), "--val-size", "1024"]);
    command.args(["--key-size", "10", "--sequential-keys"]);
    command.args(["--key-space-size", &bench.plan.keys.to_string()]);
    let before = etcd.cpu_time()?;
    let requests_per_s = rate(&text_of(&mut command)?)?;
    let used = etcd.cpu_time()?.saturating_sub(before);
    Ok(Timed {
        requests_per_s,
        cpu_ns: used.as_nanos() as f64 / PUTS as f64,
    })
}

/// What it says of all requests; one that failed makes the run none.
fn rate(text: &str) -> Result<f64, String> {
    if text.contains("Error distribution") {
        return Err(format!("etcd refused puts: {text}"));
    }
    text.lines()
        .find_map(|line| {
            line.trim()
                .strip_prefix("Requests/sec:")?
                .trim()
                .parse()
                .ok()
        })
        .ok_or_else(|| format!("the benchmark of etcd printed no rate: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the rate is found, and a run with errors is none.
    #[test]
    fn the_rate_of_etcd_is_read() {
        let text = "\nSummary:\n  Total:\t1.0 secs.\n  Requests/sec:\t8123.5000\n";
        assert_eq!(rate(text), Ok(8123.5));
        assert!(rate(&format!("{text}Error distribution:\n  [1] x\n")).is_err());
    }
}
