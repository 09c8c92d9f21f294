//! A server to measure load generators with: of known capacity, and a witness of when requests come.
//!
//! For the benchmarks only. It is one queue with one server that takes a fixed time for each request: a response is due
//! that long after the request came or the one before it was due, whichever is later, so its capacity is exact however
//! late its own thread wakes. It records when each request came, and `GET /arrivals?interval_ns=N` shows how they lie
//! on a grid of that width.
//!
//! Absent on purpose: all code of the generator and of the servers that it shares, so that neither
//! can hide the other's mistakes; request bodies; more than one thread.

mod arrivals;
mod server;

use server::Server;
use std::net::SocketAddr;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("target: {sentence}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let config = Config::from_words(std::env::args().skip(1))?;
    let mut server = Server::bind(&config).map_err(|error| error.to_string())?;
    println!("listening on {}", server.address());
    server.serve().map_err(|error| error.to_string())
}

const USAGE: &str = "usage: target [--listen ADDRESS] [--service-us N] [--recorded N]";

/// Its settings; see the usage.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    /// The service time of each request; 0: immediate.
    pub(crate) service_ns: u64,
    /// Arrivals written down at most; the memory is taken before the first.
    pub(crate) recorded: usize,
}

impl Config {
    pub(crate) fn from_words(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut config = Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            service_ns: 0,
            recorded: 1_000_000,
        };
        while let Some(flag) = words.next() {
            let value = words.next().ok_or(USAGE)?;
            let wrong = || format!("{flag} {value} cannot be read; {USAGE}");
            match flag.as_str() {
                "--listen" => config.listen = value.parse().map_err(|_| wrong())?,
                "--service-us" => {
                    let micros: u64 = value.parse().map_err(|_| wrong())?;
                    config.service_ns = micros.saturating_mul(1_000);
                }
                "--recorded" => config.recorded = value.parse().map_err(|_| wrong())?,
                _ => return Err(USAGE.to_owned()),
            }
        }
        Ok(config)
    }
}
