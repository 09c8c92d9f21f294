//! `serve entity`: beside plaintext, beside other stores, and beside itself at rest.
//!
//! Each part fills a server of its own, in a directory that is removed afterwards. Rivals run on
//! the same CPU and the same disk, in turns with ours.

mod reads;
mod redis;

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::bench::first_line;
use crate::bench::generator::Timed;
use crate::bench::interleave;
use crate::bench::lasting;
use crate::bench::server::free_address;

use super::Figure;
use super::generator::CONNECTIONS;
use super::server::Server;
use super::{Bench, measure_parts};
use super::{bounded, text_of, text_of_load};
use xtask::{TestTally, run_command};

/// Longest time to write or read every key once.
const PASS_MAX: Duration = Duration::from_secs(300);

type Part = fn(&Bench) -> Result<Vec<Figure>, String>;

const PARTS: [(&str, Part); 6] = [
    ("reads", reads::measure),
    ("latency", reads::latency_measure),
    ("redis", redis::measure),
    ("etcd", etcd_measure),
    ("compaction", reads::compaction_measure),
    ("restart", restart_measure),
];

/// All of it.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Figure>, String> {
    let parts = PARTS.iter().map(|(name, part)| {
        println!("--- {name}");
        (*name, part(bench))
    });
    measure_parts(bench, "entity", parts)
}

/// A directory below the benchmark's, empty at first and removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn make(bench: &Bench, name: &str) -> Result<Self, String> {
        let path = bench.scratch.join(name);
        // Leftovers of an interrupted run; they may not exist.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path)
            .map_err(|error| format!("{} cannot be made: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server with its data; it stops before they go.
struct EntityServer {
    server: Server,
    _data: Directory,
}

impl EntityServer {
    /// With an empty store, behind the words of `words`.
    fn start(bench: &Bench, name: &str, words: &[&str]) -> Result<Self, String> {
        let data = Directory::make(bench, name)?;
        Ok(Self {
            server: serve(bench, &data.0, words)?,
            _data: data,
        })
    }
}

impl Deref for EntityServer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

fn serve(bench: &Bench, data: &Path, words: &[&str]) -> Result<Server, String> {
    let data = data.display().to_string();
    let words = [&["entity", "--data", &data][..], words].concat();
    Server::millpond(bench, &words, &[])
}

/// Writes every key once with our own generator, which checks each response.
fn fill(bench: &Bench, server: &Server) -> Result<(), String> {
    let keys = bench.plan.keys.to_string();
    let mut command = bounded(bench.machine.generator_cpu, PASS_MAX);
    command
        .arg(&bench.millpond)
        .args(["load", "--put", "--value-size", "1KiB", "--threads", "1"]);
    command.args([
        "--connections",
        &CONNECTIONS.to_string(),
        "--keys",
        &keys,
        "--requests",
        &keys,
    ]);
    command.arg(format!("http://{}/", server.address));
    text_of_load(&mut command).map(drop)
}

/// Warms the cache: every key once, in order. Random reads would leave some cold for long.
fn read_every_key(bench: &Bench, server: &Server) -> Result<(), String> {
    let last = bench.plan.keys - 1;
    let mut command = bounded(bench.machine.generator_cpu, PASS_MAX);
    command.args(["curl", "--silent", "--show-error", "--fail"]);
    command.args(["--output", "/dev/null"]);
    let ids = format!("k[000000000-{last:09}]");
    command.arg(format!("http://{}/v0/entity?id={ids}", server.address));
    text_of(&mut command).map(drop)
}

// PUT with a sync, of 64 connections, beside one node of etcd v3 and its own benchmark.
//
// The benchmark is built by Go, once, in the target directory.

const SERVER: &str = "etcd";
const PACKAGE: &str = "go.etcd.io/etcd/v3/tools/benchmark";
const VERSION: &str = "v3.5.11";

const PAIRS_MAX: usize = 5;

/// Of one run: some seconds.
const PUTS: u64 = 20_000;

fn etcd_measure(bench: &Bench) -> Result<Vec<Figure>, String> {
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

/// Its summary of all requests; one that failed makes the run none.
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

// From the start of a server to its first response, after an orderly stop and after a kill.
//
// The store has every key, and before each stop 20,000 more puts that only the log has.

const ROUNDS_MAX: usize = 5;
const WORDS: [&str; 2] = ["--sync", "always"];

fn restart_measure(bench: &Bench) -> Result<Vec<Figure>, String> {
    let data = Directory::make(bench, "entity-restart")?;
    let mut server = serve(bench, &data.0, &WORDS)?;
    fill(bench, &server)?;
    let (mut orderly, mut killed) = (Vec::new(), Vec::new());
    for round in 0..bench.plan.pairs.min(ROUNDS_MAX) {
        put_some(bench, &server)?;
        drop(server);
        let (started, ms) = timed_start(bench, &data)?;
        orderly.push(ms);
        put_some(bench, &started)?;
        started.kill();
        let (started, ms) = timed_start(bench, &data)?;
        killed.push(ms);
        server = started;
        println!(
            "round {}: {:.0} ms after a stop, {ms:.0} ms after a kill",
            round + 1,
            orderly.last().copied().unwrap_or(f64::NAN)
        );
    }
    Ok(vec![
        Figure::median("entity_start_after_stop_ms", orderly),
        Figure::median("entity_start_after_kill_ms", killed),
    ])
}

/// Until `/v0/status` responds.
fn timed_start(bench: &Bench, data: &Directory) -> Result<(Server, f64), String> {
    let begun = Instant::now();
    let server = serve(bench, &data.0, &WORDS)?;
    server.get("/v0/status")?;
    Ok((server, begun.elapsed().as_secs_f64() * 1e3))
}

fn put_some(bench: &Bench, server: &Server) -> Result<(), String> {
    let mut command = bounded(bench.machine.generator_cpu, Duration::from_secs(60));
    command
        .arg(&bench.millpond)
        .args(["load", "-t", "1", "--put"]);
    command.args(["-c", "64", "--keys", "20000", "-n", "20000"]);
    command.arg(format!("http://{}/", server.address));
    text_of_load(&mut command).map(drop)
}

#[cfg(test)]
#[path = "tests/etcd.rs"]
mod etcd_tests;
