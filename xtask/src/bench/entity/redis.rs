//! GET of 1 KiB, and PUT with a sync, of 64 connections, beside redis with `appendfsync always`.
//!
//! redis-benchmark asks redis, one request at a time on each connection; `millpond load` asks ours and checks
//! each value. Where the generator is the limit, requests per second of the server's CPU time tell more: they
//! stand beside. Absent on purpose: pipelining, which HTTP's clients do not do.

use super::{Directory, EntityServer, fill, read_every_key};
use crate::bench::Bench;
use crate::bench::command::{bounded, lasting, text_of, text_of_load};
use crate::bench::figure::Figure;
use crate::bench::generator::{CONNECTIONS, Generator, Timed, parse};
use crate::bench::machine::first_line;
use crate::bench::pairs::interleave;
use crate::bench::server::{Server, free_address};
use std::time::Duration;

const SERVER: &str = "redis-server";
const GENERATOR: &str = "redis-benchmark";
const VALUE_BYTES: &str = "1024";
const PAIRS_MAX: usize = 5;

/// Requests of one run of redis-benchmark, which has no duration: some seconds.
const GETS: u64 = 200_000;
const SETS: u64 = 100_000;

pub(super) fn measure(bench: &Bench) -> Result<Vec<Figure>, String> {
    let is_here = |program| first_line(program, &["--version"]).is_some();
    if !is_here(SERVER) || !is_here(GENERATOR) {
        println!("left out: {SERVER} or {GENERATOR} is not here (apt install redis-server)");
        return Ok(Vec::new());
    }
    let entity = EntityServer::start(bench, "entity", &["--sync", "always"])?;
    fill(bench, &entity)?;
    read_every_key(bench, &entity)?;
    let data = Directory::make(bench, "redis-beside")?;
    let redis = start_redis(bench, &data)?;
    // Random keys: five times as many puts reach all but one in 150 of them.
    set_sync(bench, &redis, "no")?;
    ask(bench, &redis, "set", bench.plan.keys * 5)?;
    set_sync(bench, &redis, "always")?;
    let (gets, sets) = match bench.plan.smoke {
        true => (1_000, 1_000),
        false => (GETS, SETS),
    };
    let count = bench.plan.pairs.min(PAIRS_MAX);
    let duration = bench.plan.run;
    let names = ["entity", "redis"];
    let reads = interleave(
        count,
        names,
        || Generator::MillpondGet.timed(bench, &entity, duration),
        || ask(bench, &redis, "get", gets),
    )?;
    let writes = interleave(
        count,
        names,
        || put(bench, &entity, duration),
        || ask(bench, &redis, "set", sets),
    )?;
    let mut figures = compared("get", &reads, 1.0);
    figures.extend(compared("put_always", &writes, 1.2));
    Ok(figures)
}

fn start_redis(bench: &Bench, data: &Directory) -> Result<Server, String> {
    let address = free_address()?;
    let mut command = lasting(bench.machine.server_cpu);
    command.args([SERVER, "--bind", "127.0.0.1", "--io-threads", "1"]);
    command.args(["--save", "", "--appendonly", "yes"]);
    // Ours does no such thing in a run that short.
    command.args(["--auto-aof-rewrite-percentage", "0"]);
    command.args(["--port", &address.port().to_string(), "--dir"]);
    command.arg(&data.0);
    Server::start(command, address)
}

fn port(server: &Server) -> String {
    let address = server.address.to_string();
    address.rsplit(':').next().unwrap_or_default().to_owned()
}

fn set_sync(bench: &Bench, redis: &Server, when: &str) -> Result<(), String> {
    let mut command = bounded(bench.machine.generator_cpu, Duration::from_secs(10));
    command.args(["redis-cli", "-p", &port(redis)]);
    command.args(["config", "set", "appendfsync", when]);
    match text_of(&mut command)?.trim() {
        "OK" => Ok(()),
        other => Err(format!("redis does not take appendfsync {when}: {other}")),
    }
}

fn ask(bench: &Bench, redis: &Server, what: &str, requests: u64) -> Result<Timed, String> {
    let mut command = bounded(bench.machine.generator_cpu, Duration::from_secs(120));
    command.args([GENERATOR, "-p", &port(redis), "-t", what, "--csv"]);
    command.args(["-P", "1", "-c", &CONNECTIONS.to_string()]);
    command.args(["-d", VALUE_BYTES, "-r", &bench.plan.keys.to_string()]);
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

/// New values for all keys in turn.
pub(super) fn put(bench: &Bench, server: &Server, duration: Duration) -> Result<Timed, String> {
    let mut command = bounded(bench.machine.generator_cpu, Duration::from_secs(120));
    command
        .arg(&bench.millpond)
        .args(["load", "-t", "1", "--put"]);
    command.args(["-c", &CONNECTIONS.to_string(), "--value-size", "1KiB"]);
    command.args(["--keys", &bench.plan.keys.to_string()]);
    command.args(["-d", &format!("{}s", duration.as_secs())]);
    command.arg(format!("http://{}/", server.address));
    let before = server.cpu_time()?;
    let answers = parse(&text_of_load(&mut command)?)?;
    let used = server.cpu_time()?.saturating_sub(before);
    Ok(Timed {
        requests_per_s: answers.requests_per_s,
        cpu_ns: used.as_nanos() as f64 / answers.requests as f64,
    })
}

fn compared(what: &str, pairs: &[(Timed, Timed)], target: f64) -> Vec<Figure> {
    let name = |rest: &str| format!("entity_{what}_{rest}");
    let of = |value: fn(&(Timed, Timed)) -> f64| pairs.iter().map(value).collect::<Vec<f64>>();
    let ratio = of(|(ours, theirs)| ours.requests_per_s / theirs.requests_per_s);
    let cpu = of(|(ours, theirs)| theirs.cpu_ns / ours.cpu_ns);
    vec![
        Figure::median(name("per_s_over_redis_ratio"), ratio).at_least(target),
        Figure::median(name("per_cpu_s_over_redis_ratio"), cpu),
        Figure::median(name("per_s"), of(|(ours, _)| ours.requests_per_s)),
        Figure::median(
            name("per_s_of_redis"),
            of(|(_, redis)| redis.requests_per_s),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the rate is that of the command asked for, and none at all is an error.
    #[test]
    fn the_rate_of_a_command_is_read() {
        let text = "\"test\",\"rps\"\n\"SET\",\"816326.56\",\"0.2\"\n\"GET\",\"754717.00\"\n";
        assert_eq!(rate(text, "get"), Ok(754_717.0));
        assert!(rate("\"test\",\"rps\"\n", "get").is_err());
    }
}
