//! Reads against plaintext in interleaved pairs, and how many puts share a sync.

use super::{EntityServer, fill, read_every_key};
use crate::bench::Bench;
use crate::bench::figure::Figure;
use crate::bench::generator::Generator;
use crate::bench::pairs::interleave;
use crate::bench::server::Server;

/// Fills a store under `--sync always`, then reads from it.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Figure>, String> {
    let entity = EntityServer::start(bench, "entity", &["--sync", "always"])?;
    let puts_per_sync = counted_fill(bench, &entity)?;
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

/// Writes every key once; returns puts per sync.
fn counted_fill(bench: &Bench, server: &Server) -> Result<f64, String> {
    let puts = "millpond_entity_puts_total";
    let syncs = "millpond_entity_wal_syncs_total";
    let before = (server.metric(puts)?, server.metric(syncs)?);
    fill(bench, server)?;
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
