//! The proxy beside haproxy and nginx as proxies, each with one thread and the same nginx as origin.
//!
//! The proxy that is measured has one CPU to itself; origin and generator share the other. All three
//! keep their connections to the origin and tell it of the client in `X-Forwarded-For`; ours adds
//! `Forwarded` and `Via` besides, as it does by itself. haproxy is left out where it is not installed.
//!
//! Absent on purpose: several upstreams, bodies and TLS: those are tested, not raced.

mod haproxy;
mod rates;
mod instructions;
mod latency;

use super::figure::Figure;
use super::lean::{Lean, Shape};
use super::server::Server;
use super::{Bench, measure_parts, nginx};
use std::time::Duration;

/// Connections of clients.
const CONNECTIONS: usize = 64;
/// Of every run that compares: long enough for some ten thousand requests.
const WINDOW: Duration = Duration::from_millis(800);
const WINDOW_OF_SMOKE: Duration = Duration::from_millis(100);

type Part = fn(&Bench, &Lean<'_>, &Server) -> Result<Vec<Figure>, String>;

const PARTS: [(&str, Part); 3] = [
    ("rates", rates::measure),
    ("instructions", instructions::measure),
    ("latency", latency::measure),
];

/// All of it.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Figure>, String> {
    let lean = Lean::build(bench)?;
    let origin = nginx::start_origin(bench)?;
    let parts = PARTS
        .iter()
        .map(|(name, part)| (*name, part(bench, &lean, &origin)));
    measure_parts(bench, "proxy", parts)
}

/// A proxy that takes turns with others.
struct Contestant {
    name: &'static str,
    server: Server,
}

/// Ours on both drivers, and whoever else is here.
fn contestants(bench: &Bench, origin: &Server) -> Result<Vec<Contestant>, String> {
    let mut all = Vec::new();
    for driver in ["uring", "epoll"] {
        let words = ["--driver", driver];
        let server = Server::millpond_proxy(bench, &origin.address, &words, &[])?;
        let name = driver;
        all.push(Contestant { name, server });
    }
    let origin = origin.address.to_string();
    all.push(Contestant {
        name: "nginx",
        server: nginx::start_proxy(bench, &origin)?,
    });
    match haproxy::available() {
        Ok(()) => all.push(Contestant {
            name: "haproxy",
            server: haproxy::start(bench, &origin, &[])?,
        }),
        Err(sentence) => println!("haproxy is left out: {sentence}"),
    }
    Ok(all)
}

fn shape(bench: &Bench) -> Shape {
    Shape {
        connections: CONNECTIONS,
        depth: 1,
        spin: false,
        window: match bench.plan.smoke {
            true => WINDOW_OF_SMOKE,
            false => WINDOW,
        },
    }
}
