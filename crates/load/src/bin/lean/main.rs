//! A generator that keeps no latencies: closed loop, as cheap for each request as a client can be.
//!
//! For the benchmarks only. A server's cost per request shows when its CPU is never idle, and a generator that is
//! busier than the server leaves it idle. So this one reads the two ends of each batch of responses and counts the
//! bytes between: the first response, parsed before the run, says how long each is. It uses io_uring like the server,
//! so that a batch of responses and the requests after them are one system call.
//!
//! Its own share of a CPU is in its output: near 1, the generator was the limit.

mod answer;
mod client;

use client::Client;
use millpond_io::{Address, Driver, DriverChoice, IoError};
use millpond_io::{DriverKind, EpollDriver, Shard, ShardConfig, UringDriver};
use millpond_mempool::PoolMode;
use std::process::ExitCode;
use std::time::Duration;

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

const USAGE: &str = "usage: lean [--connections N] [--depth N] [--seconds S] [--warm-up S] \
                     [--driver auto|uring|epoll] [--spin] [--hold] [--server-pid PID] ADDRESS PATH";

/// Its settings; see the usage.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) address: Address,
    pub(crate) path: String,
    pub(crate) connections: usize,
    /// Requests of one batch; the next one follows when all responses came.
    pub(crate) depth: usize,
    pub(crate) window: Duration,
    pub(crate) warm_up: Duration,
    pub(crate) driver: DriverChoice,
    /// Polls for responses without sleeping.
    pub(crate) spin: bool,
    /// One request on each connection; then they stay idle until standard input ends.
    pub(crate) hold: bool,
    /// The process whose CPU time is read when the window begins and when it ends.
    pub(crate) server_pid: Option<u32>,
}

impl Config {
    pub(crate) fn from_words(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut config = Self {
            address: Address::Unix("".into()),
            path: String::new(),
            connections: 64,
            depth: 1,
            window: Duration::from_secs(1),
            warm_up: Duration::from_millis(200),
            driver: DriverChoice::Auto,
            spin: false,
            hold: false,
            server_pid: None,
        };
        let mut places = Vec::new();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--spin" => config.spin = true,
                "--hold" => config.hold = true,
                flag if flag.starts_with("--") => {
                    let value = words.next().ok_or(USAGE)?;
                    config.set(flag, &value)?;
                }
                _ => places.push(word),
            }
        }
        let [address, path] = &places[..] else {
            return Err(USAGE.to_owned());
        };
        config.address = Address::resolve(address).map_err(|error| error.to_string())?;
        config.path.clone_from(path);
        Ok(config)
    }

    fn set(&mut self, flag: &str, value: &str) -> Result<(), String> {
        let wrong = || format!("{flag} {value} cannot be read; {USAGE}");
        let count = || value.parse().ok().filter(|&count: &usize| count > 0);
        let seconds = || Duration::try_from_secs_f64(value.parse().ok()?).ok();
        match flag {
            "--connections" => self.connections = count().ok_or_else(wrong)?,
            "--depth" => self.depth = count().ok_or_else(wrong)?,
            "--seconds" => self.window = seconds().ok_or_else(wrong)?,
            "--warm-up" => self.warm_up = seconds().ok_or_else(wrong)?,
            "--server-pid" => self.server_pid = Some(value.parse().map_err(|_| wrong())?),
            "--driver" => self.driver = value.parse().map_err(|_| wrong())?,
            _ => return Err(USAGE.to_owned()),
        }
        Ok(())
    }

    /// One request.
    pub(crate) fn request(&self) -> String {
        format!("GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n", self.path)
    }
}
