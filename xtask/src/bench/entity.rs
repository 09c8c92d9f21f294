//! `serve entity`: reads against plaintext in interleaved pairs, and how many puts share a sync.

use super::Bench;
use super::command::{bounded, text_of, text_of_load};
use super::figure::Figure;
use super::generator::{CONNECTIONS, Generator};
use super::pairs::interleave;
use super::server::Server;
use std::time::Duration;

/// Longest time to write or read every key once.
const PASS_MAX: Duration = Duration::from_secs(300);

/// Fills a store under `--sync always`, then reads from it.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Figure>, String> {
    let data = bench.scratch.join("entity");
    if data.exists() {
        std::fs::remove_dir_all(&data).map_err(|error| format!("{}: {error}", data.display()))?;
    }
    let words = [
        "entity",
        "--sync",
        "always",
        "--data",
        &data.display().to_string(),
    ];
    let entity = Server::millpond(bench, &words, &[])?;
    let puts_per_sync = fill(bench, &entity)?;
    read_every_key(bench, &entity)?;
    let plaintext = Server::millpond(bench, &["plaintext"], &[])?;

    // The same generator on both sides, or the ratio would be that of two generators.
    let (read, constant) = (Generator::MillpondGet, Generator::Millpond);
    let duration = bench.plan.run;
    read.run(bench, &entity, duration)?;
    constant.run(bench, &plaintext, duration)?;
    let cold_before = entity.metric("millpond_entity_cold_reads_total")?;
    let pairs = interleave(
        bench.plan.pairs,
        ["entity", "plaintext"],
        || read.timed(bench, &entity, duration),
        || constant.timed(bench, &plaintext, duration),
    )?;
    let cold_reads = entity.metric("millpond_entity_cold_reads_total")? - cold_before;
    drop(entity);
    std::fs::remove_dir_all(&data).map_err(|error| format!("{}: {error}", data.display()))?;
    let throughput = pairs
        .iter()
        .map(|(entity, plain)| entity.requests_per_s / plain.requests_per_s);
    let cpu = pairs
        .iter()
        .map(|(entity, plain)| entity.cpu_ns / plain.cpu_ns);
    let gets_per_s = pairs.iter().map(|(entity, _)| entity.requests_per_s);
    let ratio = "entity_get_over_plaintext_throughput_ratio";
    Ok(vec![
        Figure::median(ratio, throughput.collect()).at_least(0.8),
        Figure::median("entity_puts_per_wal_sync", vec![puts_per_sync]).at_least(10.0),
        Figure::median("entity_gets_per_s", gets_per_s.collect()),
        Figure::median("entity_get_over_plaintext_cpu_ratio", cpu.collect()),
        Figure::median("entity_cold_reads", vec![cold_reads]),
    ])
}

/// Writes every key once with our own generator, which checks each answer; returns puts per sync.
fn fill(bench: &Bench, server: &Server) -> Result<f64, String> {
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
    let puts = "millpond_entity_puts_total";
    let syncs = "millpond_entity_wal_syncs_total";
    let before = (server.metric(puts)?, server.metric(syncs)?);
    text_of_load(&mut command)?;
    let done = (
        server.metric(puts)? - before.0,
        server.metric(syncs)? - before.1,
    );
    if done.0 < bench.plan.keys as f64 {
        return Err(format!("filling the store ended after {} puts", done.0));
    }
    println!("{} puts in {} syncs", done.0, done.1);
    Ok(done.0 / done.1)
}

/// Warms the cache: every key once, in order. Random reads would leave some cold for long.
fn read_every_key(bench: &Bench, server: &Server) -> Result<(), String> {
    let last = bench.plan.keys - 1;
    let mut command = bounded(bench.machine.generator_cpu, PASS_MAX);
    command.args(["curl", "--silent", "--show-error", "--fail"]);
    command.args(["--output", "/dev/null"]);
    let ids = format!("k[000000000-{last:09}]");
    command.arg(format!("http://{}/v0/entity?id={ids}", server.address));
    text_of(&mut command).map(|_| ())
}
