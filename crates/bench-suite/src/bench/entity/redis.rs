//! GET and PUT of 64 connections beside redis: with a sync before each response and once a second, 1 KiB and 1 MiB, and
//! what both hold in memory for the same data.
//!
//! redis-benchmark asks redis, one request at a time on each connection; `millpond load` asks ours
//! and checks each value. Where the generator is the limit, requests per second of the server's CPU
//! time say more, so they are printed too.

use super::{Directory, EntityServer, PASS_MAX, fill, read_every_key};
use crate::bench::Bench;
use crate::bench::Figure;
use crate::bench::first_line;
use crate::bench::generator::{CONNECTIONS, Generator, Timed, parse};
use crate::bench::interleave;
use crate::bench::server::{Server, free_address};
use crate::bench::{bounded, lasting, text_of, text_of_load};
use std::time::Duration;

const SERVER: &str = "redis-server";
const GENERATOR: &str = "redis-benchmark";
const PAIRS_MAX: usize = 5;
const NAMES: [&str; 2] = ["entity", "redis"];

/// Requests of one run of redis-benchmark, which has no duration: some seconds.
const GETS: u64 = 200_000;
const SETS: u64 = 100_000;
const LARGE_REQUESTS: u64 = 4_000;

const LARGE_BYTES: u64 = 1 << 20;
/// Of large values; they fit into the memory of the server.
const LARGE_KEYS: u64 = 64;

const SMALL_BYTES: u64 = 100;
const SMALL_KEYS: u64 = 1_000_000;

/// The values written and read.
#[derive(Clone, Copy)]
struct Values {
    bytes: u64,
    keys: u64,
}

impl Values {
    fn usual(bench: &Bench) -> Self {
        Self {
            bytes: 1 << 10,
            keys: bench.plan.keys,
        }
    }
}

pub(super) fn measure(bench: &Bench) -> Result<Vec<Figure>, String> {
    let is_here = |program| first_line(program, &["--version"]).is_some();
    if !is_here(SERVER) || !is_here(GENERATOR) {
        println!("left out: {SERVER} or {GENERATOR} is not here (apt install redis-server)");
        return Ok(Vec::new());
    }
    let mut figures = synced(bench)?;
    figures.extend(unsynced(bench)?);
    figures.extend(resident(bench)?);
    Ok(figures)
}

/// Reads, and writes of which each is synced before it is acknowledged.
fn synced(bench: &Bench) -> Result<Vec<Figure>, String> {
    let values = Values::usual(bench);
    let entity = EntityServer::start(bench, "entity", &["--sync", "always"])?;
    fill(bench, &entity)?;
    read_every_key(bench, &entity)?;
    let data = Directory::make(bench, "redis-beside")?;
    let redis = start_redis(bench, &data)?;
    // Random keys: five times as many puts reach all but one in 150 of them.
    set_sync(bench, &redis, "no")?;
    ask(bench, &redis, "set", values, values.keys * 5)?;
    set_sync(bench, &redis, "always")?;
    let reads = interleave(
        pair_count(bench),
        NAMES,
        || Generator::MillpondGet.timed(bench, &entity, bench.plan.run),
        || ask(bench, &redis, "get", values, requests(bench, GETS)),
    )?;
    let writes = interleave(
        pair_count(bench),
        NAMES,
        || put(bench, &entity),
        || ask(bench, &redis, "set", values, requests(bench, SETS)),
    )?;
    let mut figures = compared("get", &reads, Some(1.0));
    figures.extend(compared("put_always", &writes, Some(1.2)));
    Ok(figures)
}

/// Writes that are synced once a second, of small values and of large ones, and reads of large ones.
fn unsynced(bench: &Bench) -> Result<Vec<Figure>, String> {
    let small = Values::usual(bench);
    let large = Values {
        bytes: LARGE_BYTES,
        keys: LARGE_KEYS,
    };
    let entity = EntityServer::start(bench, "entity-unsynced", &["--sync", "interval:1000"])?;
    let data = Directory::make(bench, "redis-unsynced")?;
    let redis = start_redis(bench, &data)?;
    set_sync(bench, &redis, "everysec")?;
    let turns = [
        ("put_interval", "--put", "set", small, SETS),
        ("put_1mib", "--put", "set", large, LARGE_REQUESTS),
        ("get_1mib", "--get", "get", large, LARGE_REQUESTS),
    ];
    let mut figures = Vec::new();
    for (name, ours, theirs, values, count) in turns {
        let pairs = interleave(
            pair_count(bench),
            NAMES,
            || load(bench, &entity, ours, values),
            || ask(bench, &redis, theirs, values, requests(bench, count)),
        )?;
        figures.extend(compared(name, &pairs, None));
    }
    Ok(figures)
}

/// Resident memory with the same small values in both.
fn resident(bench: &Bench) -> Result<Vec<Figure>, String> {
    let keys = if bench.plan.smoke {
        bench.plan.keys
    } else {
        SMALL_KEYS
    };
    let entity = EntityServer::start(bench, "entity-resident", &["--sync", "off"])?;
    let mut command = bounded(bench.machine.generator_cpu, PASS_MAX);
    command
        .arg(&bench.millpond)
        .args(["load", "-t", "1", "--put", "-c", &CONNECTIONS.to_string()])
        .args(["--value-size", &SMALL_BYTES.to_string()])
        .args(["--keys", &keys.to_string(), "--requests", &keys.to_string()])
        .arg(format!("http://{}/", entity.address));
    text_of_load(&mut command)?;
    let data = Directory::make(bench, "redis-resident")?;
    let redis = start_redis(bench, &data)?;
    let populate = format!("debug populate {keys} k {SMALL_BYTES}");
    tell(bench, &redis, &populate)?;
    let (ours, theirs) = (
        entity.resident_bytes()? as f64,
        redis.resident_bytes()? as f64,
    );
    let mib = f64::from(1 << 20);
    Ok(vec![
        Figure::median("entity_rss_over_redis_ratio", vec![ours / theirs]),
        Figure::median("entity_rss_mib", vec![ours / mib]),
        Figure::median("entity_rss_of_redis_mib", vec![theirs / mib]),
    ])
}

fn pair_count(bench: &Bench) -> usize {
    bench.plan.pairs.min(PAIRS_MAX)
}

fn requests(bench: &Bench, full: u64) -> u64 {
    if bench.plan.smoke {
        full.min(1_000)
    } else {
        full
    }
}

fn start_redis(bench: &Bench, data: &Directory) -> Result<Server, String> {
    let address = free_address()?;
    let mut command = lasting(bench.machine.server_cpu);
    command.args([SERVER, "--bind", "127.0.0.1", "--io-threads", "1"]);
    command.args(["--save", "", "--appendonly", "yes"]);
    // Ours does no such thing in a run that short.
    command.args(["--auto-aof-rewrite-percentage", "0"]);
    command.args(["--enable-debug-command", "local"]);
    command.args(["--port", &address.port().to_string(), "--dir"]);
    command.arg(&data.0);
    Server::start(command, address)
}

fn port(server: &Server) -> String {
    let address = server.address.to_string();
    address.rsplit(':').next().unwrap_or_default().to_owned()
}

fn set_sync(bench: &Bench, redis: &Server, when: &str) -> Result<(), String> {
    tell(bench, redis, &format!("config set appendfsync {when}"))
}

/// A redis command that returns OK.
fn tell(bench: &Bench, redis: &Server, words: &str) -> Result<(), String> {
    let mut command = bounded(bench.machine.generator_cpu, PASS_MAX);
    command.args(["redis-cli", "-p", &port(redis)]);
    command.args(words.split(' '));
    match text_of(&mut command)?.trim() {
        "OK" => Ok(()),
        other => Err(format!("redis does not take `{words}`: {other}")),
    }
}

fn ask(
    bench: &Bench,
    redis: &Server,
    what: &str,
    values: Values,
    requests: u64,
) -> Result<Timed, String> {
    let mut command = bounded(bench.machine.generator_cpu, Duration::from_secs(120));
    command.args([GENERATOR, "-p", &port(redis), "-t", what, "--csv"]);
    command.args(["-P", "1", "-c", &CONNECTIONS.to_string()]);
    command.args(["-d", &values.bytes.to_string()]);
    command.args(["-r", &values.keys.to_string()]);
    command.args(["-n", &requests.to_string()]);
    let before = redis.cpu_time()?;
    let requests_per_s = rate(&text_of(&mut command)?, what)?;
    let used = redis.cpu_time()?.saturating_sub(before);
    Ok(Timed {
        requests_per_s,
        cpu_ns: used.as_nanos() as f64 / requests as f64,
    })
}

/// The second column, of the line for that command.
fn rate(text: &str, what: &str) -> Result<f64, String> {
    let mut rates = text.lines().filter_map(|line| {
        let mut columns = line.split(',').map(|column| column.trim_matches('"'));
        let is_it = columns.next()?.eq_ignore_ascii_case(what);
        let rate = columns.next()?.parse::<f64>().ok()?;
        is_it.then_some(rate)
    });
    rates
        .next()
        .ok_or_else(|| format!("{GENERATOR} printed no rate for {what}: {text}"))
}

/// New values for all keys.
pub(super) fn put(bench: &Bench, server: &Server) -> Result<Timed, String> {
    load(bench, server, "--put", Values::usual(bench))
}

/// `what` of these values by our own generator.
fn load(bench: &Bench, server: &Server, what: &str, values: Values) -> Result<Timed, String> {
    let mut command = bounded(bench.machine.generator_cpu, Duration::from_secs(120));
    command.arg(&bench.millpond).args(["load", "-t", "1", what]);
    command.args(["-c", &CONNECTIONS.to_string()]);
    command.args(["--value-size", &values.bytes.to_string()]);
    command.args(["--keys", &values.keys.to_string()]);
    // redis-benchmark waits for ever: the disk may need seconds for 64 MiB at once.
    command.args(["--timeout", "30s"]);
    command.args(["-d", &format!("{}s", bench.plan.run.as_secs())]);
    command.arg(format!("http://{}/", server.address));
    let before = server.cpu_time()?;
    let answers = parse(&text_of_load(&mut command)?)?;
    let used = server.cpu_time()?.saturating_sub(before);
    Ok(Timed {
        requests_per_s: answers.requests_per_s,
        cpu_ns: used.as_nanos() as f64 / answers.requests as f64,
    })
}

fn compared(what: &str, pairs: &[(Timed, Timed)], target: Option<f64>) -> Vec<Figure> {
    let name = |rest: &str| format!("entity_{what}_{rest}");
    let of = |value: fn(&(Timed, Timed)) -> f64| pairs.iter().map(value).collect::<Vec<f64>>();
    let ratio = of(|(ours, theirs)| ours.requests_per_s / theirs.requests_per_s);
    let cpu = of(|(ours, theirs)| theirs.cpu_ns / ours.cpu_ns);
    let ratio = Figure::median(name("per_s_over_redis_ratio"), ratio);
    vec![
        match target {
            Some(target) => ratio.at_least(target),
            None => ratio,
        },
        Figure::median(name("per_cpu_s_over_redis_ratio"), cpu),
        Figure::median(name("per_s"), of(|(ours, _)| ours.requests_per_s)),
        Figure::median(
            name("per_s_of_redis"),
            of(|(_, redis)| redis.requests_per_s),
        ),
    ]
}

#[cfg(test)]
#[path = "tests/redis.rs"]
mod tests;
