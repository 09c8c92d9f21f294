//! redis-server on every allocator found, driven by redis-benchmark.
//!
//! Waves of SET and GET with one value size each go over the same keys, so that values of all sizes
//! come to lie beside each other and are replaced by others. Each run has a fresh server; the
//! candidates take turns, from another one on each round. Memory is compared after the same
//! requests, and time as the server's own, too, because the generator is not always faster.

use super::Bench;
use super::Figure;
use super::candidates::{self, Candidate, MEMPOOL};
use super::server::{Server, free_address};
use super::{bounded, lasting, text_of};
use std::path::Path;
use std::time::{Duration, Instant};

const SERVER: &str = "redis-server";
const GENERATOR: &str = "redis-benchmark";

/// Bytes of a wave's values, and its requests in a hundred.
const WAVES: [(u32, u64); 6] = [
    (16, 40),
    (100, 25),
    (512, 15),
    (1024, 10),
    (4096, 7),
    (16_384, 3),
];
/// How often all waves come, so that the sizes mix.
const PASSES: u64 = 3;
const KEYS: &str = "50000";
const CONNECTIONS: &str = "50";
/// Requests that a connection sends at once; with one, the server waits for the generator.
const PIPELINED: &str = "16";
/// Of SET in a run, and as many of GET.
const REQUESTS: u64 = 600_000;
const SMOKE_REQUESTS: u64 = 6_000;
const WAVE_MAX: Duration = Duration::from_secs(60);
/// Only a server that does not start takes so long.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(60);

const THROUGHPUT_MIN: f64 = 0.97;
const RSS_MAX: f64 = 1.1;

/// The result of one server.
#[derive(Clone, Copy)]
struct Run {
    requests_per_s: f64,
    cpu_s_per_million: f64,
    rss_bytes: f64,
}

/// One candidate's runs, round by round.
struct Runs {
    name: String,
    runs: Vec<Run>,
}

/// Every candidate in every round.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Figure>, String> {
    if [SERVER, GENERATOR].iter().any(|program| !is_here(program)) {
        println!("left out: {SERVER} or {GENERATOR} is not here (apt install redis-server)");
        return Ok(Vec::new());
    }
    let candidates = candidates::find(bench)?;
    for candidate in &candidates {
        candidate.prove(SERVER)?;
    }
    let (rounds, requests) = if bench.plan.smoke {
        (1, SMOKE_REQUESTS)
    } else {
        (bench.plan.pairs, REQUESTS)
    };
    let mut all: Vec<Runs> = candidates
        .iter()
        .map(|candidate| Runs {
            name: candidate.name.clone(),
            runs: Vec::new(),
        })
        .collect();
    for round in 0..rounds {
        for turn in 0..candidates.len() {
            let index = (turn + round) % candidates.len();
            let run = run_one(bench, &candidates[index], requests)?;
            println!(
                "round {}: {:<10} {:>9.0} requests/s {:>6.3} CPU s per million {:>6.1} MiB",
                round + 1,
                candidates[index].name,
                run.requests_per_s,
                run.cpu_s_per_million,
                run.rss_bytes / f64::from(1 << 20)
            );
            all[index].runs.push(run);
        }
    }
    figures(&all)
}

fn is_here(program: &str) -> bool {
    super::first_line(program, &["--version"]).is_some()
}

fn run_one(bench: &Bench, candidate: &Candidate, requests: u64) -> Result<Run, String> {
    let directory = bench.scratch.join("redis");
    std::fs::create_dir_all(&directory)
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    let socket = directory.join("socket");
    // A killed server leaves the socket behind, and no process listens there.
    let _ = std::fs::remove_file(&socket);
    let address = free_address()?;
    let mut command = lasting(bench.machine.server_cpu);
    command
        .arg("env")
        .arg(format!("LD_PRELOAD={}", candidate.library.display()));
    command.args([
        SERVER,
        "--bind",
        "127.0.0.1",
        "--io-threads",
        "1",
        "--save",
        "",
    ]);
    command
        .args(["--port", &address.port().to_string(), "--dir"])
        .arg(&directory);
    command.arg("--unixsocket").arg(&socket);
    let server = Server::start(command, address)?;
    await_socket(&socket)?;
    let cpu_before = server.cpu_time()?;
    let (mut count, mut seconds) = (0, 0.0);
    for _ in 0..PASSES {
        for (value_bytes, share) in WAVES {
            let of_each = (requests * share / 100 / PASSES).max(1);
            for rate in wave(bench, &socket, value_bytes, of_each)? {
                count += of_each;
                seconds += of_each as f64 / rate;
            }
        }
    }
    let cpu_s = (server.cpu_time()? - cpu_before).as_secs_f64();
    Ok(Run {
        requests_per_s: count as f64 / seconds,
        cpu_s_per_million: cpu_s * 1e6 / count as f64,
        rss_bytes: server.resident_bytes()? as f64,
    })
}

/// Redis listens on its port a moment before it makes its socket.
fn await_socket(socket: &Path) -> Result<(), String> {
    let deadline = Instant::now() + SOCKET_TIMEOUT;
    while !socket.exists() {
        if Instant::now() > deadline {
            let seconds = SOCKET_TIMEOUT.as_secs();
            return Err(format!(
                "redis did not make {} within {seconds} s",
                socket.display()
            ));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Requests per second of SET, then of GET.
fn wave(bench: &Bench, socket: &Path, value_bytes: u32, requests: u64) -> Result<Vec<f64>, String> {
    let mut command = bounded(bench.machine.generator_cpu, WAVE_MAX);
    command.arg(GENERATOR).arg("-s").arg(socket);
    command.args(["-t", "set,get", "--csv", "-r", KEYS]);
    command.args(["-c", CONNECTIONS, "-P", PIPELINED]);
    command.args(["-d", &value_bytes.to_string(), "-n", &requests.to_string()]);
    rates(&text_of(&mut command)?)
}

/// The second column, of the lines for SET and GET.
fn rates(text: &str) -> Result<Vec<f64>, String> {
    let rate_of = |line: &str| {
        let mut columns = line
            .split(',')
            .map(|column| column.trim().trim_matches('"'));
        let is_ours = matches!(columns.next()?, "SET" | "GET");
        let rate = columns.next()?.parse::<f64>().ok()?;
        (is_ours && rate > 0.0).then_some(rate)
    };
    let rates: Vec<f64> = text.lines().filter_map(rate_of).collect();
    match rates.len() {
        2 => Ok(rates),
        _ => Err(format!(
            "{GENERATOR} printed no rates for SET and GET: {text}"
        )),
    }
}

/// Ours against the best of the others, round by round, then all medians.
fn figures(all: &[Runs]) -> Result<Vec<Figure>, String> {
    type Value = fn(&Run) -> f64;
    let rows: [(&str, Value); 3] = [
        ("requests_per_s", |run| run.requests_per_s),
        ("cpu_s_per_million_requests", |run| run.cpu_s_per_million),
        ("rss_bytes", |run| run.rss_bytes),
    ];
    let values = |runs: &Runs, value: Value| runs.runs.iter().map(value).collect::<Vec<f64>>();
    let ours = all
        .iter()
        .find(|runs| runs.name == MEMPOOL)
        .ok_or("mempool did not run")?;
    let against = |name: &'static str, value: Value, is_more_better: bool| {
        let median = |runs: &&Runs| Figure::median(name, values(runs, value)).value;
        let others = all.iter().filter(|runs| runs.name != MEMPOOL);
        let best = if is_more_better {
            others.max_by(|one, other| median(one).total_cmp(&median(other)))
        } else {
            others.min_by(|one, other| median(one).total_cmp(&median(other)))
        };
        let best = best.ok_or("no other allocator is here: cargo xtask allocators builds some")?;
        println!("{name}: the best other allocator is {}", best.name);
        let pairs = values(ours, value).into_iter().zip(values(best, value));
        let ratios = pairs.map(|(ours, theirs)| ours / theirs).collect();
        Ok::<_, String>(Figure::median(name, ratios))
    };
    let mut figures = vec![
        against(
            "redis_mempool_requests_per_s_over_best_allocator",
            rows[0].1,
            true,
        )?
        .at_least(THROUGHPUT_MIN),
        against(
            "redis_mempool_cpu_time_over_best_allocator",
            rows[1].1,
            false,
        )?,
        against(
            "redis_mempool_rss_over_smallest_allocator",
            rows[2].1,
            false,
        )?
        .at_most(RSS_MAX),
    ];
    for runs in all {
        for (unit, value) in rows {
            let name = format!("redis_{}_{unit}", runs.name);
            figures.push(Figure::median(name, values(runs, value)));
        }
    }
    Ok(figures)
}

#[cfg(test)]
#[path = "tests/redis.rs"]
mod tests;
