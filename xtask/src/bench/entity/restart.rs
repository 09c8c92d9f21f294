//! From the start of a server to its first answer, after an orderly stop and after a kill.
//!
//! The store has every key, and before each stop 20,000 more puts that only the log has. Absent on purpose: a
//! target; how much of a log there is to read again is `--memory`'s matter.

use super::{Directory, fill, serve};
use crate::bench::Bench;
use crate::bench::command::{bounded, text_of_load};
use crate::bench::figure::Figure;
use crate::bench::server::Server;
use std::time::{Duration, Instant};

const ROUNDS_MAX: usize = 5;
const WORDS: [&str; 2] = ["--sync", "always"];

pub(super) fn measure(bench: &Bench) -> Result<Vec<Figure>, String> {
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

/// Until `/v0/status` is answered.
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
