//! Requests through the proxy whose clients send FIN, before an upstream that responds late.
//!
//! They held the upstream for a minute: other clients got 503, and SIGTERM took half a minute.

use super::scene::Read;
use super::scene::{Extra, Outcome, Scene, Stop, beside};
use super::server::{AT_ONCE, LATE_PATH, Upstream};
use serde_json::json;
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const GONE: usize = 1200;
/// Far less than `--drain-timeout` and than the upstream's late response.
const STOP_MAX: Duration = Duration::from_secs(10);

pub(super) fn run(scene: &Scene) -> Result<Outcome, String> {
    let upstream = Upstream::start()?;
    let mut stage = scene.proxy(upstream.address, &[])?;
    let address = stage.address();
    let count = scene.count(300, GONE);
    let attack = |stop: &Stop| ask_and_go(address, count, stop);
    let good = |stop: &Stop| Read::until(stop, address, &[(AT_ONCE, 2)], false);
    let (gone, read) = beside(scene.time(), attack, good)?;
    read.check()?;
    upstream_is_told(&upstream)?;
    let (asked, cancelled) = (upstream.late_requests(), upstream.cancelled());
    if asked < 100 {
        return Err(format!(
            "{asked} of {gone} requests came to the upstream: it was no attack"
        ));
    }
    let seen = json!({ "gone": gone, "asked_upstream": asked, "cancelled": cancelled,
        "reader": read.summary() });
    let judged = stage.judge(Extra::default(), &seen)?;
    let waiting = three_wait(address, &upstream)?;
    stage.stop(STOP_MAX)?;
    drop(waiting);
    Ok(Outcome::Stood(judged))
}

fn ask(address: SocketAddr) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    stream.write_all(format!("GET {LATE_PATH} HTTP/1.1\r\nHost: hostile\r\n\r\n").as_bytes())?;
    Ok(stream)
}

/// Half of them send FIN with the request, half once the upstream may have it; how many there were.
fn ask_and_go(address: SocketAddr, count: usize, stop: &Stop) -> usize {
    let mut gone = Vec::new();
    for number in 0..count {
        let Ok(stream) = ask(address) else { continue };
        if number % 2 == 0 {
            // A refused connection shows when it is read, and nothing reads it.
            let _ = stream.shutdown(Shutdown::Write);
        }
        gone.push(stream);
    }
    std::thread::sleep(Duration::from_millis(300));
    for stream in &gone {
        let _ = stream.shutdown(Shutdown::Write);
    }
    while !stop.is_over() {
        std::thread::sleep(Duration::from_millis(10));
    }
    gone.len()
}

/// The upstream loses the connection of each request that it has.
fn upstream_is_told(upstream: &Upstream) -> Result<(), String> {
    let begun = Instant::now();
    while upstream.cancelled() < upstream.late_requests() {
        if begun.elapsed() > STOP_MAX {
            return Err(format!(
                "the upstream has had {} requests of clients that are gone, and was told of {}",
                upstream.late_requests(),
                upstream.cancelled()
            ));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Three requests that wait at the upstream when their clients send FIN.
fn three_wait(address: SocketAddr, upstream: &Upstream) -> Result<Vec<TcpStream>, String> {
    let before = upstream.late_requests();
    let waiting: Result<Vec<TcpStream>, _> = (0..3).map(|_| ask(address)).collect();
    let waiting = waiting.map_err(|error| format!("three clients cannot ask: {error}"))?;
    let begun = Instant::now();
    while upstream.late_requests() < before + 3 {
        if begun.elapsed() > STOP_MAX {
            return Err("three requests do not come to the upstream".to_owned());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    for stream in &waiting {
        let _ = stream.shutdown(Shutdown::Write);
    }
    Ok(waiting)
}
