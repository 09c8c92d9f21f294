//! What a connection costs that has nothing to say, between two requests, on both drivers.
//!
//! Twice: by what the pools say they reserved, which is each connection's, and by the resident memory
//! that the kernel counts, which has all else in it: tables that are no pool's (16 bytes for each), pages
//! that are full in part, and the shard's one set of receive buffers, which is given back while nobody
//! is connected (512 KiB under io_uring).

use super::{plaintext, shape};
use crate::bench::Bench;
use crate::bench::command::descriptors_max;
use crate::bench::figure::Figure;
use crate::bench::lean::Lean;
use crate::bench::server::Server;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

const BYTES_PER_CONNECTION_MAX: f64 = 256.0;
const RSS_ABOVE_NONE_MIB_MAX: f64 = 4.0;
/// Longest time that the connections are held.
const HOLD_MAX: Duration = Duration::from_secs(90);
/// Descriptors of a server that are no connection.
const OTHER_DESCRIPTORS: u64 = 100;

/// Memory of one server.
#[derive(Clone, Copy, Debug)]
struct Memory {
    resident_bytes: f64,
    pooled_bytes: f64,
}

/// Both drivers.
pub(super) fn measure(bench: &Bench, lean: &Lean<'_>) -> Result<Vec<Figure>, String> {
    let count = bench.plan.idle_connections;
    let needed = count as u64 + OTHER_DESCRIPTORS;
    if descriptors_max().is_some_and(|max| max < needed) {
        println!("idle connections are not measured: {count} need `ulimit -Hn` at {needed}");
        return Ok(Vec::new());
    }
    let mut figures = Vec::new();
    for driver in ["uring", "epoll"] {
        let (mut resident, mut pooled) = (Vec::new(), Vec::new());
        for _ in 0..bench.plan.pairs.min(2) {
            // A fresh process each time: what an earlier run left would hide what this one takes.
            let (none, all) = one_crowd(bench, lean, driver, count)?;
            resident.push(all.resident_bytes - none.resident_bytes);
            pooled.push(all.pooled_bytes - none.pooled_bytes);
            println!(
                "{driver}, {count} idle connections: {:.2} MiB, none: {:.2} MiB; in pools {:.2} \
                 and {:.2} MiB",
                mebibytes(all.resident_bytes),
                mebibytes(none.resident_bytes),
                mebibytes(all.pooled_bytes),
                mebibytes(none.pooled_bytes)
            );
        }
        let per_connection = |bytes: &Vec<f64>| bytes.iter().map(|it| it / count as f64).collect();
        let (by_rss, by_pools) = (per_connection(&resident), per_connection(&pooled));
        let above_none = resident.iter().map(|&bytes| mebibytes(bytes)).collect();
        let named = |what: &str| format!("server_idle_{driver}_{what}");
        figures.extend([
            Figure::median(named("bytes_per_connection_by_rss"), by_rss),
            Figure::median(named("bytes_per_connection_by_pools"), by_pools)
                .at_most(BYTES_PER_CONNECTION_MAX),
            Figure::median(named("rss_above_none_mib"), above_none).at_most(RSS_ABOVE_NONE_MIB_MAX),
        ]);
    }
    Ok(figures)
}

/// A server's memory without and with idle connections.
fn one_crowd(
    bench: &Bench,
    lean: &Lean<'_>,
    driver: &str,
    count: usize,
) -> Result<(Memory, Memory), String> {
    let server = plaintext(bench, driver)?;
    // What any traffic takes once (code, the kernel's receive buffers) is no connection's.
    lean.run(&server, &shape(bench, 64, 16))?;
    let none = settled(&server)?;
    let crowd = Crowd::gather(lean, &server, count)?;
    let all = settled(&server)?;
    crowd.dismiss()?;
    Ok((none, all))
}

/// Memory once nothing more is given back. Asking is traffic too, hence the metrics come first.
fn settled(server: &Server) -> Result<Memory, String> {
    let mut before_bytes = 0;
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(1_200));
        let now_bytes = server.resident_bytes()?;
        if now_bytes == before_bytes {
            break;
        }
        before_bytes = now_bytes;
    }
    let pooled_bytes = server.metric("millpond_pool_reserved_bytes")?;
    Ok(Memory {
        resident_bytes: server.resident_bytes()? as f64,
        pooled_bytes,
    })
}

/// The process that holds the connections: one process may not have as many descriptors as both
/// ends need.
struct Crowd {
    client: Child,
}

impl Crowd {
    /// Returns when each connection has been answered once.
    fn gather(lean: &Lean<'_>, server: &Server, count: usize) -> Result<Self, String> {
        let (address, count) = (server.address.to_string(), count.to_string());
        let words = ["--hold", "--connections", &count, &address, "/plaintext"];
        let client = lean
            .command(&[], HOLD_MAX, &words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("the idle connections' client: {error}"))?;
        let mut crowd = Self { client };
        let mut line = String::new();
        if let Some(stdout) = crowd.client.stdout.take() {
            let outcome = BufReader::new(stdout).read_line(&mut line);
            outcome.map_err(|error| format!("the idle connections' client: {error}"))?;
        }
        if line.trim() == format!("holding {count}") {
            return Ok(crowd);
        }
        crowd.dismiss()?;
        Err(format!("{count} idle connections: the client ended early"))
    }

    /// Ends it; an error if a connection did not live so long.
    fn dismiss(mut self) -> Result<(), String> {
        drop(self.client.stdin.take());
        let status = self.client.wait();
        match status {
            Ok(status) if status.success() => Ok(()),
            other => Err(format!("idle connections were lost: {other:?}")),
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        // Nothing when it has been waited for; else its input's end lets it go.
        drop(self.client.stdin.take());
        let _ = self.client.wait();
    }
}

fn mebibytes(bytes: f64) -> f64 {
    bytes / (1024.0 * 1024.0)
}
