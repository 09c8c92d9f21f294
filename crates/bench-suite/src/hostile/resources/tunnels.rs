//! Upgraded connections through the proxy that are abandoned: each held two descriptors for ever.

use super::scene::Read;
use super::scene::{Extra, Outcome, STOP_MAX, Scene, Stop, beside};
use super::server::{AT_ONCE, UPGRADE_PATH, Upstream};
use crate::hostile::subject::{PATIENCE, sum};
use serde_json::json;
use std::io::{Read as _, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const TUNNELS: usize = 120;

pub(super) fn run(scene: &Scene) -> Result<Outcome, String> {
    let upstream = Upstream::start()?;
    let mut stage = scene.proxy(
        upstream.address,
        &["--upgrade", "--tunnel-idle-timeout", "1s"],
    )?;
    let address = stage.address();
    let attack = |_: &Stop| -> Result<Vec<TcpStream>, String> {
        let tunnels: Vec<TcpStream> = (0..TUNNELS).filter_map(|_| upgrade(address).ok()).collect();
        // On a busy machine the first have ended by their limit before the last is open.
        let opened = upstream.upgrades();
        if tunnels.len() < TUNNELS || opened < TUNNELS as u64 {
            return Err(format!(
                "{} tunnels opened, {opened} at the upstream",
                tunnels.len()
            ));
        }
        // The clients keep their ends and send nothing, as peers that have vanished.
        let begun = Instant::now();
        while upstream.open() > 1 {
            if begun.elapsed() > PATIENCE {
                return Err(format!(
                    "{} connections to the upstream remain",
                    upstream.open()
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(tunnels)
    };
    let good = |stop: &Stop| Read::until(stop, address, &[(AT_ONCE, 2)], false);
    let (tunnels, read) = beside(scene.time() * 2, attack, good)?;
    let tunnels = tunnels?;
    read.check()?;
    let seen = json!({ "tunnels": tunnels.len(), "reader": read.summary() });
    let judged = stage.judge(Extra::default(), &seen)?;
    let metrics = stage.server.metrics()?;
    let ended = sum(&metrics, "millpond_upstream_tunnel_idle_timeouts_total");
    if ended < TUNNELS as f64 {
        return Err(format!("{ended} of {TUNNELS} tunnels are counted as idle"));
    }
    stage.stop(STOP_MAX)?;
    Ok(Outcome::Stood(judged))
}

fn upgrade(address: SocketAddr) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(
        format!(
            "GET {UPGRADE_PATH} HTTP/1.1\r\nHost: hostile\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        )
        .as_bytes(),
    )?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    match head.starts_with(b"HTTP/1.1 101 ") {
        true => Ok(stream),
        false => Err(std::io::ErrorKind::ConnectionRefused.into()),
    }
}
