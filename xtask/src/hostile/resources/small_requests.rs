//! Small requests on 200 connections, each followed by the next as soon as it is answered, beside a client that writes.
//!
//! Its share of all requests is reported; how long it waits is not judged.

use super::client::Client;
use super::scene::{Extra, GAP_MAX, Outcome, STOP_MAX, Scene, Stop, beside};
use super::writer::{Writer, Writing};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const CONNECTIONS: usize = 200;
const THREADS: usize = 2;
const REQUEST: &[u8] = b"GET /v0/entity?id=small HTTP/1.1\r\nHost: hostile\r\n\r\n";

pub(super) fn run(scene: &Scene) -> Result<Outcome, String> {
    let mut stage = scene.entity(&["--sync", "off"])?;
    let address = stage.address();
    let put = Client::new(address).request("PUT", "/v0/entity?id=small", b"v")?;
    if put.status != 201 {
        return Err(format!("PUT is answered {}", put.status));
    }
    let writing = Writing {
        prefix: "beside",
        value_bytes: 200,
        keys: 100,
        reconnects: false,
    };
    let mut writer = Writer::new(address, writing);
    let write = |stop: &Stop| {
        while !stop.is_over() {
            writer.write_or_pause();
        }
    };
    let (rounds, ()) = beside(scene.time(), |stop| flood(address, stop), write)?;
    let requests = rounds?;
    writer.check_statuses(&[201])?;
    writer.check_progress(GAP_MAX)?;
    writer.check_stored(address)?;
    let share = writer.stored() as f64 / (writer.stored() + requests).max(1) as f64;
    let fair_share = 1.0 / (CONNECTIONS + 1) as f64;
    let seen = json!({ "requests": requests, "good_share": share, "fair_share": fair_share,
        "writer": writer.summary() });
    drop(writer);
    let judged = stage.judge(Extra::default(), &seen)?;
    stage.stop(STOP_MAX)?;
    Ok(Outcome::Stood(judged))
}

/// How many requests were answered.
fn flood(address: SocketAddr, stop: &Stop) -> Result<u64, String> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| scope.spawn(|| flood_part(address, stop, CONNECTIONS / THREADS)))
            .collect();
        let answered = threads.into_iter().map(|thread| match thread.join() {
            Ok(answered) => answered.map_err(|error| format!("the flood: {error}")),
            Err(_) => Err("a client panicked".to_owned()),
        });
        answered.sum()
    })
}

fn flood_part(address: SocketAddr, stop: &Stop, count: usize) -> std::io::Result<u64> {
    let mut streams = Vec::new();
    for _ in 0..count {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        streams.push(stream);
    }
    let mut answered = 0;
    while !stop.is_over() {
        for stream in &mut streams {
            stream.write_all(REQUEST)?;
        }
        for stream in &mut streams {
            // An answer of a few hundred bytes comes in one piece.
            if stream.read(&mut [0; 1024])? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            answered += 1;
        }
    }
    Ok(answered)
}
