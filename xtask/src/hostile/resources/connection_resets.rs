//! Connections that are opened and reset at once, in a loop, beside writes.
//!
//! Accepting and closing took place in queues without a bound: 20,000 descriptors within seconds, and then no more
//! writes.

use super::scene::{Extra, GAP_MAX, Outcome, STOP_MAX, Scene, Stop, beside};
use super::writer::{Writer, Writing};
use rustix::net::sockopt;
use serde_json::json;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub(super) fn run(scene: &Scene) -> Result<Outcome, String> {
    let mut stage = scene.entity(&["--max-connections", "1000", "--sync", "off"])?;
    let address = stage.address();
    let mut writer = Writer::new(
        address,
        Writing {
            prefix: "beside",
            value_bytes: 200,
            keys: 100,
            reconnects: false,
        },
    );
    let write = |stop: &Stop| {
        while !stop.is_over() {
            writer.write_or_pause();
        }
    };
    let (opened, ()) = beside(scene.time(), |stop| open_and_reset(address, stop), write)?;
    if opened < 100 {
        return Err(format!(
            "the attack opened {opened} connections: it was none"
        ));
    }
    writer.check_statuses(&[201])?;
    writer.check_progress(GAP_MAX)?;
    writer.check_stored(address)?;
    let seen = json!({ "connections": opened, "writer": writer.summary() });
    drop(writer);
    let judged = stage.judge(Extra::default(), &seen)?;
    stage.stop(STOP_MAX)?;
    Ok(Outcome::Stood(judged))
}

/// How many were opened.
fn open_and_reset(address: SocketAddr, stop: &Stop) -> u64 {
    let mut opened = 0;
    while !stop.is_over() {
        if let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) {
            // Without lingering, closing sends RST.
            let _ = sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
            opened += 1;
        }
    }
    opened
}
