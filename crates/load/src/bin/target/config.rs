//! What it is told.

use std::net::SocketAddr;

const USAGE: &str = "usage: target [--listen ADDRESS] [--service-us N] [--recorded N]";

/// See the usage.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    /// What each request takes; 0: answered at once.
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
