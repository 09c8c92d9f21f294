//! The server core: what a request, a pipelined request, an idle connection and a connection for
//! one request cost, on both drivers and beside nginx; requests and handshakes over TLS beside nginx.
//!
//! Absent on purpose: latencies. A closed loop without a rate has none that mean anything; what
//! `ab` tells of them is the one exception, since all its connections wait at once.

mod drivers;
mod pipelined;
mod instructions;
mod idle;
mod short_lived;
pub(super) mod encrypted;

use super::figure::Figure;
use super::lean::{Lean, Shape};
use super::server::Server;
use super::{Bench, measure_parts};
use std::time::Duration;

/// Of every run that compares: long enough for some ten thousand requests.
const WINDOW: Duration = Duration::from_millis(800);
const WINDOW_OF_SMOKE: Duration = Duration::from_millis(100);

type Part = fn(&Bench, &Lean<'_>) -> Result<Vec<Figure>, String>;

const PARTS: [(&str, Part); 6] = [
    ("drivers", drivers::measure),
    ("pipelined", pipelined::measure),
    ("instructions", instructions::measure),
    ("idle", idle::measure),
    ("short-lived", short_lived::measure),
    ("encrypted", encrypted::measure),
];

/// All of it.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Figure>, String> {
    let lean = Lean::build(bench)?;
    let parts = PARTS.iter().map(|(name, part)| (*name, part(bench, &lean)));
    measure_parts(bench, "server", parts)
}

/// So many connections with one or more requests at once.
fn shape(bench: &Bench, connections: usize, depth: usize) -> Shape {
    let window = if bench.plan.smoke {
        WINDOW_OF_SMOKE
    } else {
        WINDOW
    };
    Shape {
        connections,
        depth,
        spin: false,
        window,
    }
}

/// `serve plaintext` on a driver.
fn plaintext(bench: &Bench, driver: &str) -> Result<Server, String> {
    Server::millpond(bench, &["plaintext", "--driver", driver], &[])
}
