//! GET at 2,000 a second while the engine merges tables, beside the same at rest.
//!
//! A burst of puts of other, longer values leaves tables behind that are merged for some seconds after it:
//! that is when GETs are timed, with nobody writing. The entities that are read fit into the caches and are
//! read once before each window, so that what differs is what the engine does meanwhile, on the server's own
//! CPU. Absent on purpose: reads from the disk.

use super::EntityServer;
use crate::bench::Bench;
use crate::bench::command::{bounded, real_time, text_of_load};
use crate::bench::figure::Figure;
use crate::bench::load::{number, run_behind};
use crate::bench::server::Server;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const RATE: &str = "2000";
const CONNECTIONS: &str = "8";
const KEYS: &str = "2000";
const ROUNDS_MAX: usize = 5;

/// Longest wait for the engine to come to rest.
const REST_MAX: Duration = Duration::from_secs(60);

/// So long nothing is merged or written out: it is at rest.
const REST_MIN: Duration = Duration::from_secs(1);

/// How often the server itself looks at its engine.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

const COMPACTIONS: &str = "millpond_entity_engine_compactions";

struct Window {
    p99_us: f64,
    /// Of the looks at the engine, those that saw it merge.
    merging_share: f64,
}

pub(super) fn measure(bench: &Bench) -> Result<Vec<Figure>, String> {
    let words = ["--sync", "off", "--memory", "256MiB"];
    let entity = EntityServer::start(bench, "entity-merging", &words)?;
    load(bench, &entity, &["--put", "--keys", KEYS, "-n", KEYS])?;
    let (mut resting, mut merging, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..bench.plan.pairs.min(ROUNDS_MAX) {
        await_rest(&entity)?;
        let rest = window(bench, &entity)?;
        burst(bench, &entity)?;
        let busy = window(bench, &entity)?;
        println!(
            "round {}: p99 {:.0} us at rest, {:.0} us with merges in {:.0} % of the time",
            round + 1,
            rest.p99_us,
            busy.p99_us,
            busy.merging_share * 100.0
        );
        resting.push(rest.p99_us);
        merging.push(busy.p99_us);
        shares.push(busy.merging_share);
    }
    let pairs = merging.iter().zip(&resting);
    let ratios = pairs.map(|(merging, resting)| merging / resting).collect();
    Ok(vec![
        Figure::median("entity_get_p99_merging_over_resting_ratio", ratios).at_most(2.0),
        Figure::median("entity_get_p99_resting_us", resting),
        Figure::median("entity_get_p99_merging_us", merging),
        Figure::median("entity_get_merging_share", shares),
    ])
}

fn load(bench: &Bench, server: &Server, words: &[&str]) -> Result<(), String> {
    let mut command = bounded(bench.machine.generator_cpu, Duration::from_secs(60));
    command.arg(&bench.millpond).args(["load", "-t", "1"]);
    command
        .args(words)
        .arg(format!("http://{}/", server.address));
    text_of_load(&mut command).map(drop)
}

/// More than the memtables hold, several times.
fn burst(bench: &Bench, server: &Server) -> Result<(), String> {
    let duration = if bench.plan.smoke { "1s" } else { "4s" };
    let values = [
        "--key-prefix",
        "w",
        "--keys",
        "20000",
        "--value-size",
        "16KiB",
    ];
    let shape = ["--put", "-c", CONNECTIONS, "-d", duration];
    load(bench, server, &[&shape[..], &values].concat())
}

fn await_rest(server: &Server) -> Result<(), String> {
    let begun = Instant::now();
    let mut busy_at = begun;
    while busy_at.elapsed() < REST_MIN {
        if begun.elapsed() > REST_MAX {
            return Err("the engine does not come to rest".to_owned());
        }
        let flushes = server.metric("millpond_entity_engine_flushes")?;
        if server.metric(COMPACTIONS)? + flushes > 0.0 {
            busy_at = Instant::now();
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    Ok(())
}

/// Reads everything once, then times reads while the engine is looked at.
fn window(bench: &Bench, server: &Server) -> Result<Window, String> {
    let read = ["--get", "--keys", KEYS];
    let once = ["-n", KEYS, "--key-distribution", "sequential"];
    load(bench, server, &[&read[..], &once].concat())?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let (mut looks, mut merging) = (0_u32, 0_u32);
            while !is_over.load(Ordering::Relaxed) {
                if let Ok(compactions) = server.metric(COMPACTIONS) {
                    looks += 1;
                    merging += u32::from(compactions > 0.0);
                }
                std::thread::sleep(LOOK_INTERVAL);
            }
            f64::from(merging) / f64::from(looks.max(1))
        });
        let url = format!("http://{}/", server.address);
        let duration = if bench.plan.smoke { "1s" } else { "3s" };
        let shape = [
            "-t",
            "1",
            "-c",
            CONNECTIONS,
            "-R",
            RATE,
            "-d",
            duration,
            &url,
        ];
        let record = run_behind(bench, &real_time(), &[&read[..], &shape].concat());
        is_over.store(true, Ordering::Relaxed);
        let merging_share = looks.join().unwrap_or(0.0);
        Ok(Window {
            p99_us: number(&record?, "service_ns/p99")? / 1e3,
            merging_share,
        })
    })
}
