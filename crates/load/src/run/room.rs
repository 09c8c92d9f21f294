//! Whether this process and its addresses have room for all connections, before the first is opened.
//!
//! A run that lacks a thousand descriptors or ports would only find out after it has opened all others.
use crate::config::LoadConfig;
use crate::error::LoadError;
use millpond_io::Address;
use rustix::process::{Resource, getrlimit};

/// Of each thread: its ring or epoll, what wakes it, a timer, a spare one.
const FILES_PER_THREAD: u64 = 4;
/// Of the process, where the kernel does not tell which are open.
const FILES_OPEN_DEFAULT: u64 = 16;

/// Refuses more connections than there are descriptors or ports for.
pub(super) fn check(config: &LoadConfig) -> Result<(), LoadError> {
    let limit = getrlimit(Resource::Nofile);
    let connections = config.connections as u64;
    if let Some(open_max) = limit.current {
        let others = files_open() + FILES_PER_THREAD * config.threads as u64;
        let room = open_max.saturating_sub(others);
        if connections > room {
            return Err(LoadError::FewDescriptors {
                connections,
                room,
                open_max,
                needed: connections + others,
            });
        }
    }
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let ports = range.ok().as_deref().and_then(ports_in);
    match (ports, &config.target.addresses[0]) {
        (Some(ports), Address::Inet(_)) => check_ports(config, ports),
        _ => Ok(()),
    }
}

fn check_ports(config: &LoadConfig, ports: u64) -> Result<(), LoadError> {
    let connections = config.connections as u64;
    let sources = config.plan.sources.map_or(1, |sources| sources.len());
    // Any one of several addresses may take all connections, where the others refuse.
    let room = u128::from(ports).saturating_mul(sources);
    if u128::from(connections) <= room {
        return Ok(());
    }
    Err(LoadError::FewPorts {
        connections,
        ports,
        sources,
        sources_needed: connections.div_ceil(ports.max(1)),
    })
}

/// Files that this process has open.
fn files_open() -> u64 {
    std::fs::read_dir("/proc/self/fd").map_or(FILES_OPEN_DEFAULT, |files| files.count() as u64)
}

/// How many ports a line of two numbers spans.
fn ports_in(range: &str) -> Option<u64> {
    let mut numbers = range.split_whitespace().map(str::parse::<u64>);
    let (first, last) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    (last + 1).checked_sub(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(connections: usize, sources: Option<&str>) -> LoadConfig {
        let mut config = LoadConfig::for_tests();
        config.connections = connections;
        config.plan.sources = sources.map(|text| text.parse().unwrap());
        config
    }

    /// Goal: each source address has the ports of the kernel's range once, and what is missing is said with the number
    /// of addresses that is enough.
    #[test]
    fn ports_are_counted_per_source_address() {
        assert_eq!(ports_in("32768\t60999\n"), Some(28_232));
        assert_eq!(ports_in("9 8"), Some(0));
        assert_eq!(
            (ports_in("9 7"), ports_in(""), ports_in("a b")),
            (None, None, None)
        );
        assert!(check_ports(&config(28_232, None), 28_232).is_ok());
        assert!(check_ports(&config(56_464, Some("127.0.0.1..127.0.0.2")), 28_232).is_ok());
        let error = check_ports(&config(1_000_000, None), 28_232).unwrap_err();
        let text = error.to_string();
        for part in [
            "1000000 connections",
            "28232 ports",
            "--source",
            "36 addresses",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let error = check_ports(&config(56_465, Some("127.0.0.1..127.0.0.2")), 28_232);
        assert!(matches!(
            error,
            Err(LoadError::FewPorts {
                sources_needed: 3,
                ..
            })
        ));
    }
}
