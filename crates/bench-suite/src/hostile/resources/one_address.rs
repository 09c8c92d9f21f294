//! Slow heads from one address that is not loopback, beside a client from another that reconnects for each request.
//!
//! Without a cap for each address they held every place of the server. The default is half of `--max-connections`.

use super::scene::Read;
use super::scene::{Extra, Outcome, STOP_MAX, Scene, Stop, beside};
use rustix::net::{AddressFamily, SocketType};
use serde_json::json;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

/// Of the block for documentation (RFC 5737).
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const SLOW: usize = 300;
const CONNECTIONS_MAX: &str = "200";
const LIMIT_HITS: &str =
    "millpond_http_limit_exceeded_total{shard=\"0\",limit=\"connections_per_address_max\"}";

pub(super) fn run(scene: &Scene) -> Result<Outcome, String> {
    if !scene.has_own_network {
        return Ok(Outcome::LeftOut(
            "an address that is not loopback takes a network namespace".to_owned(),
        ));
    }
    let address = format!("{ELSEWHERE}/32");
    let added = Command::new("ip")
        .args(["address", "add", &address, "dev", "lo"])
        .status();
    if !added.is_ok_and(|status| status.success()) {
        return Ok(Outcome::LeftOut(format!("ip(8) cannot add {address}")));
    }
    // The default cap is for listeners that other machines can reach.
    let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let words = ["serve", "plaintext", "--max-connections", CONNECTIONS_MAX];
    let mut stage = scene.stage(&words, Some(everywhere))?;
    let address = stage.address();
    let attack = |stop: &Stop| send_slowly(address, stop);
    let good = |stop: &Stop| Read::until(stop, address, &[("/plaintext", 13)], true);
    let (slow, read) = beside(scene.time(), attack, good)?;
    read.check()?;
    let metrics = stage.server.metrics()?;
    let limit_hits = metrics.get(LIMIT_HITS).copied().unwrap_or_default();
    if limit_hits < 1.0 {
        return Err(format!(
            "none of {slow} connections from {ELSEWHERE} was refused"
        ));
    }
    let seen = json!({ "slow_heads": slow, "refused": limit_hits, "reader": read.summary() });
    let judged = stage.judge(Extra::default(), &seen)?;
    stage.stop(STOP_MAX)?;
    Ok(Outcome::Stood(judged))
}

/// A byte of a head at a time from each; how many connections were opened.
fn send_slowly(address: SocketAddr, stop: &Stop) -> u64 {
    let mut connections: Vec<Option<TcpStream>> = (0..SLOW).map(|_| None).collect();
    let mut opened = 0;
    while !stop.is_over() {
        for place in &mut connections {
            match place {
                None => {
                    *place = connect(address).ok();
                    opened += u64::from(place.is_some());
                }
                Some(stream) => {
                    if stream.write_all(b"x").is_err() {
                        *place = None;
                    }
                }
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    opened
}

fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    rustix::net::bind(&socket, &SocketAddr::from((ELSEWHERE, 0)))?;
    rustix::net::connect(&socket, &address)?;
    let mut stream = TcpStream::from(socket);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: hostile\r\nX-Slow: ")?;
    Ok(stream)
}
