//! A free port for a server that the lab starts with a given address, outside the range the kernel gives to outgoing
//! connections.
//!
//! Inside that range a generator's own connection may sit on the port just when the next server
//! wants to bind it: servers then die with "address in use", once in many runs.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};

/// Where to search when the kernel's range starts lower than usual.
const LOWEST: u16 = 10_000;
/// Kernel default of `ip_local_port_range`.
const DEFAULT_RANGE: (u16, u16) = (32_768, 60_999);
const TRIES: u32 = 2_000;

/// No port that a server could be given.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("no free port outside the kernel's own range")]
pub struct NoFreePort;

/// A port that could be bound on loopback just now.
///
/// Not from a comparison's seed: two programs with the same seed would choose the same port before either binds it.
pub fn choose() -> Result<u16, NoFreePort> {
    let mut random = fastrand::Rng::new();
    let range = local_port_range();
    (0..TRIES)
        .map(|_| random.u16(LOWEST..u16::MAX))
        .filter(|&port| port < range.0 || port > range.1)
        .find(|&port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
        .ok_or(NoFreePort)
}

fn local_port_range() -> (u16, u16) {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(low)), Some(Ok(high))) => (low, high),
        _ => DEFAULT_RANGE,
    }
}

#[cfg(test)]
#[path = "tests/port.rs"]
mod tests;
