//! `--memory` of the entity server, with data many times as large, and values a fraction as large.
//!
//! Two servers, one after the other. One is filled with ten million small entities and read from
//! the first to the last in one range. To the other, 64 connections put and get values of 100
//! bytes, 1 MiB and 64 MiB under the same few ids; what there is no memory for waits, or is asked
//! for again. Of both, the most that was ever resident has to be no more than `--memory` and what
//! comes with a process.

mod client;

use crate::bench::candidates::{Record, Spread};
use crate::bench::{self, Bench};
use crate::hostile::subject::Subject;
use client::Client;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Small entities by default.
pub(crate) const KEYS_DEFAULT: u64 = 10_000_000;

/// The memory of any process: code, stacks, the engine's own structures.
const PROCESS_BYTES: u64 = 32 << 20;

const FILL_MEMORY_BYTES: u64 = 64 << 20;
const FILL_CONNECTIONS: u64 = 4;
const FILL_PIPELINE: u64 = 256;

const LARGE_CONNECTIONS: u64 = 64;

/// How much more may be resident in the last third of a scan than in the middle one.
const SCAN_GROWTH_BYTES_MAX: u64 = 2 << 20;

/// Sampling period of the resident memory during a scan.
const SAMPLE_PERIOD: Duration = Duration::from_millis(20);
const THIRD_SAMPLES_MIN: usize = 5;

/// How much is asked for.
struct BoundsPlan {
    keys: u64,
    requests_per_connection: u64,
    /// Of all requests for values, one in so many is for one of the longest.
    huge_every: u64,
    huge_bytes: u64,
    /// Of the server with values like that.
    large_memory_bytes: u64,
}

/// Both, with so many small entities; records what was resident.
pub(crate) fn run(keys: u64) -> Result<(), String> {
    let bench = bench::prepare(bench::Plan::full(), true)?;
    let plan = BoundsPlan {
        keys,
        requests_per_connection: 24,
        huge_every: 16,
        huge_bytes: 64 << 20,
        large_memory_bytes: 2 << 30,
    };
    let parts = measure(&bench, &plan)?;
    let command = format!("cargo bench-suite entity-bounds {keys}");
    Record::new("entity-bounds", command, &bench.machine)?
        .with("parts", parts)
        .write()
}

/// Whether it still works, with less of everything; nothing is recorded.
pub(crate) fn smoke() -> Result<(), String> {
    let bench = bench::prepare(bench::Plan::smoke(), true)?;
    let plan = BoundsPlan {
        keys: 100_000,
        requests_per_connection: 3,
        huge_every: 16,
        huge_bytes: 4 << 20,
        large_memory_bytes: 128 << 20,
    };
    measure(&bench, &plan).map(drop)
}

fn measure(bench: &Bench, plan: &BoundsPlan) -> Result<Vec<Value>, String> {
    let many = with_server(bench, FILL_MEMORY_BYTES, |subject| many_keys(subject, plan))?;
    let large = with_server(bench, plan.large_memory_bytes, |subject| {
        large_values(subject, plan)
    })?;
    Ok(vec![many, large])
}

/// Runs `part` on a server with so much memory, and compares what was resident.
fn with_server(
    bench: &Bench,
    memory_bytes: u64,
    part: impl FnOnce(&Subject) -> Result<Value, String>,
) -> Result<Value, String> {
    let data = bench.scratch.join("entity-bounds");
    // The store of an earlier run; it may not be there.
    let _ = std::fs::remove_dir_all(&data);
    let (data_text, memory) = (data.display().to_string(), memory_bytes.to_string());
    let words = [
        "entity",
        "--data",
        &data_text,
        "--memory",
        &memory,
        "--sync",
        "interval:100",
    ];
    let subject = Subject::start(&bench.millpond, bench.machine.server_cpu, &[], &words)?;
    let mut found = part(&subject)?;
    let most = subject.peak_resident_bytes()?;
    println!(
        "{} MiB resident at most, of {} MiB",
        most >> 20,
        memory_bytes >> 20
    );
    found["memory_bytes"] = json!(memory_bytes);
    found["resident_bytes_max"] = json!(most);
    drop(subject);
    let _ = std::fs::remove_dir_all(&data);
    match most <= memory_bytes + PROCESS_BYTES {
        true => Ok(found),
        false => Err(format!(
            "{most} bytes were resident, of {memory_bytes} that --memory allows and {PROCESS_BYTES} \
             that come with a process: {found}"
        )),
    }
}

fn id_of(key: u64) -> String {
    format!("key{key:09}")
}

/// Not sorted, as keys are that clients make up: every key below `count` once.
fn shuffled(index: u64, count: u64) -> u64 {
    // A prime that no count of keys here is a multiple of.
    (u128::from(index) * 2_147_483_647 % u128::from(count)) as u64
}

fn many_keys(subject: &Subject, plan: &BoundsPlan) -> Result<Value, String> {
    let refused = AtomicU64::new(0);
    let fillers: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let fill = |number| fill(subject.address, number, plan.keys, &refused);
        let threads: Vec<_> = (0..FILL_CONNECTIONS)
            .map(|number| scope.spawn(move || fill(number)))
            .collect();
        threads.into_iter().map(join).collect()
    });
    fillers.into_iter().collect::<Result<(), String>>()?;
    let filled = subject.peak_resident_bytes()?;
    println!(
        "{} entities put, {} MiB resident at most",
        plan.keys,
        filled >> 20
    );
    let samples = sampled(subject, || scan(subject.address, plan.keys))?;
    let growth = growth_bytes(&samples);
    match growth {
        Some(growth) => println!(
            "a range of all of them: {} samples of what is resident, {growth} bytes more in the last third",
            samples.len()
        ),
        None => println!(
            "a range of all of them was over after {} samples of what is resident: too few to judge",
            samples.len()
        ),
    }
    if growth.is_some_and(|growth| growth > SCAN_GROWTH_BYTES_MAX) {
        return Err(format!(
            "a scan took {growth:?} bytes more in its last third: {samples:?}"
        ));
    }
    let shown: Vec<f64> = samples.iter().map(|bytes| *bytes as f64).collect();
    Ok(json!({
        "name": "many small entities",
        "entities": plan.keys,
        "refused_and_asked_again": refused.into_inner(),
        "resident_bytes_max_filled": filled,
        "scan_growth_bytes": growth,
        "scan_resident_bytes": Spread::thirds(&shown),
    }))
}

/// What was resident in the last third of a scan beyond that in the middle one: the first fills the
/// caches. `None` if the scan was too short.
fn growth_bytes(samples: &[u64]) -> Option<u64> {
    let third = samples.len() / 3;
    let thirds = || Some((samples.get(third..2 * third)?, samples.get(2 * third..)?));
    let (middle, last) = thirds().filter(|_| third >= THIRD_SAMPLES_MIN)?;
    Some(median(last).saturating_sub(median(middle)))
}

fn join<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T, String>>) -> Result<T, String> {
    thread
        .join()
        .unwrap_or_else(|_| Err("a client failed".to_owned()))
}

fn fill(address: SocketAddr, number: u64, keys: u64, refused: &AtomicU64) -> Result<(), String> {
    let mut client = Client::connect(address)?;
    let mut left: Vec<u64> = Vec::new();
    let mut fresh = (number..keys).step_by(FILL_CONNECTIONS as usize);
    loop {
        left.extend(
            fresh
                .by_ref()
                .take((FILL_PIPELINE as usize).saturating_sub(left.len())),
        );
        if left.is_empty() {
            return Ok(());
        }
        let mut bytes = Vec::new();
        for &index in &left {
            let key = shuffled(index, keys);
            let id = id_of(key);
            bytes.extend_from_slice(
                format!(
                    "PUT /v0/entity?id={id} HTTP/1.1\r\nHost: x\r\nContent-Length: 24\r\n\r\n{key:024}"
                )
                .as_bytes(),
            );
        }
        client.send(&bytes)?;
        let mut again = Vec::new();
        for index in left.drain(..) {
            let head = client.head()?;
            client.skip(head.length_bytes.unwrap_or(0))?;
            match head.status {
                201 => {}
                503 => again.push(index),
                other => return Err(format!("a put was answered with {other}")),
            }
        }
        if !again.is_empty() {
            refused.fetch_add(again.len() as u64, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(20));
        }
        left = again;
    }
}

/// Reads all in one range: every entity once, in order, with its value.
fn scan(address: SocketAddr, keys: u64) -> Result<(), String> {
    let mut client = Client::connect(address)?;
    client.send(b"GET /v0/entities?start=key HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let head = client.head()?;
    if head.status != 200 || head.length_bytes.is_some() {
        return Err(format!("a range was answered with {head:?}"));
    }
    let mut chunk = Vec::new();
    for key in 0..keys {
        client.chunk(&mut chunk)?;
        if chunk != format!("{}\n{key:024}", id_of(key)).as_bytes() {
            let found = String::from_utf8_lossy(&chunk);
            return Err(format!("instead of entity {key} the range has {found:?}"));
        }
    }
    client.chunk(&mut chunk)?;
    match chunk.is_empty() {
        true => Ok(()),
        false => Err("the range goes on behind the last entity".to_owned()),
    }
}

/// Resident memory while something is done, once in each period.
fn sampled(
    subject: &Subject,
    work: impl FnOnce() -> Result<(), String> + Send,
) -> Result<Vec<u64>, String> {
    let is_over = AtomicBool::new(false);
    let samples = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            let done = work();
            is_over.store(true, Ordering::Relaxed);
            done
        });
        while !is_over.load(Ordering::Relaxed) && !work.is_finished() {
            if let Ok(holdings) = subject.holdings() {
                let mut samples = samples.lock().unwrap_or_else(PoisonError::into_inner);
                samples.push(holdings.resident_bytes);
            }
            std::thread::sleep(SAMPLE_PERIOD);
        }
        join(work)
    })?;
    Ok(samples.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn median(samples: &[u64]) -> u64 {
    let mut samples = samples.to_vec();
    samples.sort_unstable();
    samples.get(samples.len() / 2).copied().unwrap_or(0)
}

#[derive(Debug, Default)]
struct Tally {
    puts: AtomicU64,
    gets: AtomicU64,
    refused: AtomicU64,
    huge: AtomicU64,
}

fn large_values(subject: &Subject, plan: &BoundsPlan) -> Result<Value, String> {
    let tally = Tally::default();
    let visits: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let visit = |number| visit_large(subject.address, number, plan, &tally);
        let threads: Vec<_> = (0..LARGE_CONNECTIONS)
            .map(|number| scope.spawn(move || visit(number)))
            .collect();
        threads.into_iter().map(join).collect()
    });
    println!("{tally:?}");
    visits.into_iter().collect::<Result<(), String>>()?;
    Ok(json!({
        "name": "large values",
        "connections": LARGE_CONNECTIONS,
        "puts": tally.puts.into_inner(),
        "gets": tally.gets.into_inner(),
        "of_the_longest": tally.huge.into_inner(),
        "longest_bytes": plan.huge_bytes,
        "refused_and_asked_again": tally.refused.into_inner(),
    }))
}

/// Puts and gets in turn, of ids that all connections share.
fn visit_large(
    address: SocketAddr,
    number: u64,
    plan: &BoundsPlan,
    tally: &Tally,
) -> Result<(), String> {
    let mut client = Client::connect(address)?;
    for step in 0..plan.requests_per_connection {
        let turn = number + step * LARGE_CONNECTIONS;
        let (id, len) = match turn {
            _ if turn % plan.huge_every == 3 => (format!("huge{}", turn / 7 % 2), plan.huge_bytes),
            _ if turn.is_multiple_of(3) => (format!("large{}", turn / 3 % 8), 1 << 20),
            _ => (format!("small{}", turn % 8), 100),
        };
        tally
            .huge
            .fetch_add(u64::from(len == plan.huge_bytes), Ordering::Relaxed);
        let is_put = (turn / LARGE_CONNECTIONS + number).is_multiple_of(2);
        loop {
            let answered = match is_put {
                true => client.put(&id, turn + 1, len),
                false => client.get(&id),
            };
            // A response that comes before the body was sent may be lost with the connection.
            let head = match answered {
                Ok(head) => head,
                Err(sentence) if sentence.contains("connection") => {
                    client = Client::connect(address)?;
                    tally.refused.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(50));
                    continue;
                }
                Err(sentence) => return Err(sentence),
            };
            if head.closes {
                client = Client::connect(address)?;
            }
            match (is_put, head.status) {
                (true, 201) => tally.puts.fetch_add(1, Ordering::Relaxed),
                (false, 200 | 404) => tally.gets.fetch_add(1, Ordering::Relaxed),
                (_, 503) => {
                    tally.refused.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(50));
                    continue;
                }
                (_, other) => return Err(format!("{id} was answered with {other}")),
            };
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "tests/memory_bound.rs"]
mod tests;
