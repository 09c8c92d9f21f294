//! A server to measure load generators with: of known capacity, and a witness of when requests come.
//!
//! For the benchmarks only. It is one queue with one server that takes a fixed time for each request:
//! a response is due that long after the request came or the one before it was due, whichever is
//! later, so its capacity is exact however late its own thread wakes. It writes down when each
//! request came, and tells on `GET /arrivals?interval_ns=N` how they lay on a grid of that width.
//!
//! Absent on purpose: all code of the generator and of the servers that it shares, so that neither
//! can hide the other's mistakes; request bodies; more than one thread.

mod config;
mod arrivals;
mod server;

use config::Config;
use server::Server;
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
