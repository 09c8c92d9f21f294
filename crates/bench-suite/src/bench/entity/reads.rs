//! Reads against plaintext in interleaved pairs, and how many puts share a sync.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::bench::Bench;
use crate::bench::Figure;
use crate::bench::generator::Generator;
use crate::bench::interleave;
use crate::bench::load::{number, run_behind};
use crate::bench::server::Server;
use crate::bench::{bounded, real_time, text_of_load};

use super::{Directory, EntityServer, fill, read_every_key};

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

// One connection, 2,000 requests a second: GET of one entity and PUT of new ones, values of three
// bytes, beside plaintext and beside the disk.
//
// The same load was put on an earlier service in Java on such a machine: service p50 and p99 of 42
// and 91 us for GET, 49 and 115 us for PUT without a sync. The disk decides the cost of a sync: it
// is measured alone, in the same rounds. The generator runs at a real-time priority where that is
// allowed.

const RATE: u32 = 2000;
const ROUNDS_MAX: usize = 5;

/// About what RocksDB writes into its log for one of these puts.
const LOGGED_BYTES: usize = 64;

/// The results of one run, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Latency {
    p50_us: f64,
    p99_us: f64,
    response_p50_us: f64,
}

/// The servers one round asks, in this order or the other way round.
const PLAINTEXT: usize = 0;
const GET: usize = 1;
const PUT_OFF: usize = 2;
const PUT_ALWAYS: usize = 3;
const NAMES: [&str; 4] = ["plaintext", "get", "put_off", "put_always"];

pub(super) fn latency_measure(bench: &Bench) -> Result<Vec<Figure>, String> {
    let plaintext = Server::millpond(bench, &["plaintext"], &[])?;
    let unsynced = EntityServer::start(bench, "entity-unsynced", &["--sync", "off"])?;
    let synced = EntityServer::start(bench, "entity-synced", &["--sync", "always"])?;
    let disk = Directory::make(bench, "entity-disk")?;
    let mut file = File::create(disk.0.join("log"))
        .map_err(|error| format!("a file for syncs cannot be made: {error}"))?;
    let ask = |kind: usize| {
        let put = ["--method", "PUT", "--body", "123"];
        let (server, path, words) = match kind {
            PLAINTEXT => (&plaintext, "plaintext", &[][..]),
            GET => (&*unsynced, "v0/entity?id=100", &[][..]),
            PUT_OFF => (&*unsynced, "v0/entity?id={seq}", &put[..]),
            _ => (&*synced, "v0/entity?id={seq}", &put[..]),
        };
        one_run(bench, &format!("http://{}/{path}", server.address), words)
    };
    // The entity that is read has to exist, and each connection has been served once.
    for kind in [PLAINTEXT, PUT_OFF, GET, PUT_ALWAYS] {
        ask(kind)?;
    }
    let mut runs: [Vec<Latency>; 4] = Default::default();
    let mut sync_p99s = Vec::new();
    for round in 0..bench.plan.pairs.min(ROUNDS_MAX) {
        let mut order = [PLAINTEXT, GET, PUT_OFF, PUT_ALWAYS];
        if round % 2 == 1 {
            order.reverse();
        }
        for kind in order {
            let run = ask(kind)?;
            println!(
                "round {}: {:<10} service p50 {:.1} us, p99 {:.1} us; response p50 {:.1} us",
                round + 1,
                NAMES[kind],
                run.p50_us,
                run.p99_us,
                run.response_p50_us
            );
            runs[kind].push(run);
        }
        let [p50, p99] = disk_sync_us(&mut file, duration(bench))?;
        println!(
            "round {}: the disk alone, p50 {p50:.1} us, p99 {p99:.1} us",
            round + 1
        );
        sync_p99s.push(p99);
    }
    Ok(figures(&runs, sync_p99s))
}

fn duration(bench: &Bench) -> Duration {
    match bench.plan.smoke {
        true => Duration::from_secs(1),
        false => Duration::from_secs(5),
    }
}

fn one_run(bench: &Bench, url: &str, words: &[&str]) -> Result<Latency, String> {
    let (rate, seconds) = (RATE.to_string(), format!("{}s", duration(bench).as_secs()));
    let shape = ["-t", "1", "-c", "1", "-R", &rate, "-d", &seconds];
    // A disk that syncs slower than the rate responds late, by seconds in the end: that is a result.
    let patience = ["--timeout", "20s"];
    let words = [&shape[..], &patience, words, &[url]].concat();
    let record = run_behind(bench, &real_time(), &words)?;
    let errors = &record["errors"];
    let is_clean = errors
        .as_object()
        .is_some_and(|errors| errors.values().all(|count| count.as_u64() == Some(0)));
    if !is_clean {
        return Err(format!("{url}: the generator saw errors: {errors}"));
    }
    let us = |path: &str| number(&record, path).map(|ns| ns / 1e3);
    Ok(Latency {
        p50_us: us("service_ns/p50")?,
        p99_us: us("service_ns/p99")?,
        response_p50_us: us("response_ns/p50")?,
    })
}

/// Median and 99th percentile of appending a little and syncing it, at the same rate.
fn disk_sync_us(file: &mut File, duration: Duration) -> Result<[f64; 2], String> {
    let interval = Duration::from_secs(1) / RATE;
    let begun = Instant::now();
    let mut times_us = Vec::new();
    let mut due = begun;
    while begun.elapsed() < duration {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let start = Instant::now();
        file.write_all(&[b'x'; LOGGED_BYTES])
            .and_then(|()| file.sync_data())
            .map_err(|error| format!("the disk cannot be synced: {error}"))?;
        times_us.push(start.elapsed().as_secs_f64() * 1e6);
        due += interval;
    }
    times_us.sort_by(f64::total_cmp);
    let at = |share: f64| times_us[((times_us.len() - 1) as f64 * share) as usize];
    Ok([at(0.5), at(0.99)])
}

fn figures(runs: &[Vec<Latency>; 4], sync_p99s: Vec<f64>) -> Vec<Figure> {
    type Value = fn(&Latency) -> f64;
    let values = |kind: usize, value: Value| runs[kind].iter().map(value).collect::<Vec<f64>>();
    let ratio = |kind: usize, value: Value| {
        let pairs = values(kind, value)
            .into_iter()
            .zip(values(PLAINTEXT, value));
        pairs
            .map(|(ours, plain)| ours / plain)
            .collect::<Vec<f64>>()
    };
    let (p50, p99): (Value, Value) = (|run| run.p50_us, |run| run.p99_us);
    let shift: Value = |run| (run.response_p50_us - run.p50_us).max(0.0);
    let mut figures = Vec::new();
    for (kind, earlier) in [(GET, [42.0, 91.0]), (PUT_OFF, [49.0, 115.0])] {
        let name = |what: &str| format!("entity_r2000_{}_{what}", NAMES[kind]);
        figures.extend([
            Figure::median(name("p50_over_plaintext_ratio"), ratio(kind, p50)).at_most(1.3),
            Figure::median(name("p99_over_plaintext_ratio"), ratio(kind, p99)).at_most(1.3),
            Figure::median(name("p50_us"), values(kind, p50)).at_most(earlier[0]),
            Figure::median(name("p99_us"), values(kind, p99)).at_most(earlier[1]),
            Figure::median(
                name("response_p50_above_service_p50_us"),
                values(kind, shift),
            )
            .at_most(10.0),
        ]);
    }
    let always = values(PUT_ALWAYS, p99);
    // The disk may have been slower for itself than for us.
    let pairs = always.iter().zip(&sync_p99s);
    let above = pairs.map(|(put, sync)| (put - sync).max(0.0));
    let name = "entity_r2000_put_always_p99_above_disk_sync_p99_us";
    figures.push(Figure::median(name, above.collect()).at_most(100.0));
    figures.extend([
        Figure::median("entity_r2000_put_always_p50_us", values(PUT_ALWAYS, p50)),
        Figure::median("entity_r2000_put_always_p99_us", always),
        Figure::median("entity_r2000_disk_sync_p99_us", sync_p99s),
        Figure::median("entity_r2000_plaintext_p50_us", values(PLAINTEXT, p50)),
        Figure::median("entity_r2000_plaintext_p99_us", values(PLAINTEXT, p99)),
    ]);
    figures
}

// GET at 2,000 a second while the engine merges tables, beside the same at rest.
//
// A burst of puts of other, longer values leaves tables behind that are merged for some seconds
// after it: that is when GETs are timed, without writers. The entities that are read fit into the
// caches and are read once before each window, so only the engine's work on the server's own CPU
// differs.

const COMPACTION_RATE: &str = "2000";
const CONNECTIONS: &str = "8";
const KEYS: &str = "2000";
const COMPACTION_ROUNDS_MAX: usize = 5;

/// Longest wait until the engine is idle.
const REST_MAX: Duration = Duration::from_secs(60);

/// So long nothing is merged or written out: it is at rest.
const REST_MIN: Duration = Duration::from_secs(1);

/// How often the server itself checks its engine.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

const COMPACTIONS: &str = "millpond_entity_engine_compactions";

struct Window {
    p99_us: f64,
    /// Of these checks, those that saw the engine merge.
    merging_share: f64,
}

pub(super) fn compaction_measure(bench: &Bench) -> Result<Vec<Figure>, String> {
    let words = ["--sync", "off", "--memory", "256MiB"];
    let entity = EntityServer::start(bench, "entity-merging", &words)?;
    load(bench, &entity, &["--put", "--keys", KEYS, "-n", KEYS])?;
    let (mut resting, mut merging, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..bench.plan.pairs.min(COMPACTION_ROUNDS_MAX) {
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

/// Reads everything once, then times reads while the engine is observed.
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
            COMPACTION_RATE,
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
