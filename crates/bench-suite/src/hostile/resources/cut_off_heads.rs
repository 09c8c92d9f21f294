//! Thousands of large heads whose end never comes, then nothing at all.
//!
//! Their memory stayed until the next request, because traffic alone drove the sweeps.

use super::scene::Read;
use super::scene::{Extra, Outcome, STOP_MAX, Scene, Stop, beside};
use serde_json::json;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const HEADS: usize = 3000;
/// Just below `--max-head`.
const HEAD_BYTES: usize = 15_000;
/// A block of the pool for it, and what is lost beside it.
const BLOCK_BYTES: u64 = 20 << 10;

pub(super) fn run(scene: &Scene) -> Result<Outcome, String> {
    let mut stage = scene.plaintext(&[])?;
    let address = stage.address();
    let attack = |stop: &Stop| {
        let heads = open(address);
        while !stop.is_over() {
            std::thread::sleep(Duration::from_millis(10));
        }
        heads.len() as u64
    };
    let good = |stop: &Stop| Read::until(stop, address, &[("/plaintext", 13)], false);
    let (heads, read) = beside(scene.time(), attack, good)?;
    read.check()?;
    let peak_bytes = stage.resident_peak_bytes()?;
    let held = heads.min(stage.connections_max) - 1;
    let least = stage.before().resident_bytes + held * HEAD_BYTES as u64 / 2;
    if peak_bytes < least {
        return Err(format!(
            "{peak_bytes} bytes were resident at most: the heads were not there"
        ));
    }
    // No request is sent until then, not to /metrics either.
    stage.finish_queues()?;
    let after = stage.wait_given_back(0)?;
    let seen = json!({ "heads": heads, "given_back_without_a_request": after.resident_bytes < peak_bytes,
        "reader": read.summary() });
    let extra = Extra {
        resident_bytes: heads * BLOCK_BYTES,
        ..Extra::default()
    };
    let judged = stage.judge(extra, &seen)?;
    stage.stop(STOP_MAX)?;
    Ok(Outcome::Stood(judged))
}

fn open(address: SocketAddr) -> Vec<TcpStream> {
    let head = [
        &b"GET / HTTP/1.1\r\nHost: hostile\r\nX: "[..],
        &[b'x'; HEAD_BYTES],
    ]
    .concat();
    let connect = |_| {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2)).ok()?;
        stream.write_all(&head).ok().map(|()| stream)
    };
    (0..HEADS).filter_map(connect).collect()
}
