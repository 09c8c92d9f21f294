//! A generator that keeps no latencies: closed loop, as cheap for each request as a client can be.
//!
//! For the benchmarks only. What a server takes for a request shows when its CPU is never idle, and
//! a generator that is busier than the server leaves it idle. So this one looks at two ends of each
//! batch of responses and counts bytes between: the first response, read and taken apart before the run,
//! says how long each is. It goes over io_uring like the server that it asks, so that a batch of
//! responses and the requests after them are one system call.
//!
//! Its own share of a CPU is in what it prints: near 1, it was the one that could not go on.

mod config;
mod answer;
mod cpu;
mod client;

use client::Client;
use config::Config;
use millpond_io::{Driver, IoError};
use millpond_io::{DriverKind, EpollDriver, Shard, ShardConfig, UringDriver};
use millpond_mempool::PoolMode;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("lean: {sentence}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let config = Config::from_words(std::env::args().skip(1))?;
    let sentence = |error: IoError| error.to_string();
    match config.driver.choose().map_err(sentence)?.kind {
        DriverKind::Uring => drive(config, UringDriver::new),
        DriverKind::Epoll => drive(config, EpollDriver::new),
    }
}

fn drive<D: Driver>(
    config: Config,
    make_driver: fn(PoolMode) -> Result<D, IoError>,
) -> Result<(), String> {
    let sentence = |error: IoError| error.to_string();
    let answer = answer::ask(&config)?;
    let pool_mode = PoolMode::On;
    let shard_config = ShardConfig {
        index: 0,
        cpu: None,
        pool_mode,
    };
    let mut shard = Shard::new(shard_config, make_driver(pool_mode).map_err(sentence)?);
    let mut client = Client::new(config, answer);
    shard.run(&mut client).map_err(sentence)?;
    client.report()
}
