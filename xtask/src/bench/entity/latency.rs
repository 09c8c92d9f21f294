//! One connection, 2,000 requests a second: GET of one entity and PUT of new ones, values of three
//! bytes, beside plaintext and beside the disk.
//!
//! The same load was put on an earlier service in Java on such a machine: service p50 and p99 of 42 and
//! 91 us for GET, 49 and 115 us for PUT without a sync. What stands in the way of a sync is the disk: it is
//! asked alone, in the same rounds. The generator runs at a real-time priority where that is allowed.
//! Absent on purpose: throughput.

use super::{Directory, EntityServer};
use crate::bench::Bench;
use crate::bench::command::real_time;
use crate::bench::figure::Figure;
use crate::bench::load::{number, run_behind};
use crate::bench::server::Server;
use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

const RATE: u32 = 2000;
const ROUNDS_MAX: usize = 5;

/// About what RocksDB writes into its log for one of these puts.
const LOGGED_BYTES: usize = 64;

/// What one run found, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Latency {
    p50_us: f64,
    p99_us: f64,
    response_p50_us: f64,
}

/// Whom one round asks, in this order or the other way round.
const PLAINTEXT: usize = 0;
const GET: usize = 1;
const PUT_OFF: usize = 2;
const PUT_ALWAYS: usize = 3;
const NAMES: [&str; 4] = ["plaintext", "get", "put_off", "put_always"];

pub(super) fn measure(bench: &Bench) -> Result<Vec<Figure>, String> {
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
    // The entity that is read has to be there; and everybody has served once.
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
    // A disk that syncs slower than the rate answers late, by seconds in the end: that is a figure.
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
