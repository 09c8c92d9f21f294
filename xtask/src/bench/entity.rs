//! `serve entity`: reads against plaintext in interleaved pairs, and how many puts share a sync.

use super::figure::Figure;
use super::server::{Server, pinned};
use super::wrk::{CONNECTIONS, Load};
use super::{Bench, wrk};
use std::path::PathBuf;
use std::process::Stdio;

/// Requests are made once and then taken in random order, so that the generator pays the same for
/// these as for a constant one.
const SCRIPT: &str = "\
local requests = {}
function init(arguments)
    for key = 1, KEYS do
        requests[key] = wrk.format('GET', string.format('/v0/entity?id=k%09d', key - 1))
    end
end
function request()
    return requests[math.random(KEYS)]
end
";

/// Fills a store under `--sync always`, then reads from it.
pub(crate) fn measure(bench: &Bench) -> Result<Vec<Figure>, String> {
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
    let entity = Server::millpond(bench, &words)?;
    let puts_per_sync = fill(bench, &entity)?;
    let plaintext = Server::millpond(bench, &["plaintext"])?;

    let read = Load {
        path: "/",
        script: Some(script(bench)?),
        duration: bench.plan.run,
    };
    let constant = Load {
        path: "/plaintext",
        script: None,
        duration: bench.plan.run,
    };
    wrk::run(bench, &plaintext, &constant)?;
    wrk::run(bench, &entity, &read)?;
    let mut ratios = Vec::new();
    let mut reads_per_s = Vec::new();
    let mut cpu_ratios = Vec::new();
    for pair in 0..bench.plan.pairs {
        let (entity_run, plaintext_run) = if pair % 2 == 0 {
            let first = wrk::timed(bench, &entity, &read)?;
            (first, wrk::timed(bench, &plaintext, &constant)?)
        } else {
            let first = wrk::timed(bench, &plaintext, &constant)?;
            (wrk::timed(bench, &entity, &read)?, first)
        };
        println!(
            "pair {}: entity {:.0}/s, {:.2} us of CPU each; plaintext {:.0}/s, {:.2} us",
            pair + 1,
            entity_run.requests_per_s,
            entity_run.cpu_us,
            plaintext_run.requests_per_s,
            plaintext_run.cpu_us,
        );
        ratios.push(entity_run.requests_per_s / plaintext_run.requests_per_s);
        cpu_ratios.push(entity_run.cpu_us / plaintext_run.cpu_us);
        reads_per_s.push(entity_run.requests_per_s);
    }
    let misses = entity.metric("millpond_entity_cold_reads_total")?;
    drop(entity);
    std::fs::remove_dir_all(&data).map_err(|error| format!("{}: {error}", data.display()))?;
    Ok(vec![
        Figure::median("entity_get_over_plaintext_throughput_ratio", ratios).at_least(0.8),
        Figure::median("entity_puts_per_wal_sync", vec![puts_per_sync]).at_least(10.0),
        Figure::median("entity_gets_per_s", reads_per_s),
        Figure::median("entity_get_over_plaintext_cpu_ratio", cpu_ratios),
        Figure::median("entity_cold_reads", vec![misses]),
    ])
}

/// Writes every key once with our own generator, which checks each answer; returns puts per sync.
fn fill(bench: &Bench, server: &Server) -> Result<f64, String> {
    let keys = bench.plan.keys.to_string();
    let mut command = pinned(bench.machine.generator_cpu);
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
    command
        .arg(format!("http://{}/", server.address))
        .stdout(Stdio::null());
    let puts = "millpond_entity_puts_total";
    let syncs = "millpond_entity_wal_syncs_total";
    let before = (server.metric(puts)?, server.metric(syncs)?);
    let status = command
        .status()
        .map_err(|error| format!("millpond load: {error}"))?;
    let done = (
        server.metric(puts)? - before.0,
        server.metric(syncs)? - before.1,
    );
    if !status.success() || done.0 < bench.plan.keys as f64 {
        return Err(format!(
            "filling the store ended with {status} after {} puts",
            done.0
        ));
    }
    println!("{} puts in {} syncs", done.0, done.1);
    Ok(done.0 / done.1)
}

fn script(bench: &Bench) -> Result<PathBuf, String> {
    let path = bench.scratch.join("entity.lua");
    let text = SCRIPT.replace("KEYS", &bench.plan.keys.to_string());
    std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}
