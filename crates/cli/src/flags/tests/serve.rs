use super::*;
use crate::flags::{Cli, Command};
use clap::Parser;

fn parse(line: &str) -> Result<ServeFlags, String> {
    let words = ["millpond", "serve"]
        .into_iter()
        .chain(line.split_whitespace());
    match Cli::try_parse_from(words)
        .map_err(|error| error.to_string())?
        .command
    {
        Command::Serve(flags) => Ok(*flags),
        other => Err(format!("{other:?}")),
    }
}

#[cfg(feature = "entity")]
pub(super) fn parse_server(line: &str) -> Result<ServerFlags, String> {
    parse(line).map(|flags| flags.server)
}

fn config(line: &str) -> ServeConfig {
    match parse(line).unwrap().server {
        ServerFlags::Plaintext(flags) => flags.common.config("plaintext").unwrap(),
        other @ ServerFlags::Entity(_) => panic!("{other:?}"),
        ServerFlags::Files(flags) => flags.common.config("files").unwrap(),
    }
}

/// Goal: each flag reaches the field it names.
#[test]
fn flags_reach_the_configuration() {
    let config = config(
        "plaintext --listen [::1]:0 --shards 3 --driver epoll --pools off \
         --max-connections 10 --no-pin --busy-poll 50 --reuse-port --proxy-protocol",
    );
    assert!(config.reuse_port && config.proxy_protocol);
    assert_eq!(config.busy_poll_ns, 50_000);
    assert_eq!(config.listen.to_string(), "[::1]:0");
    assert_eq!((config.shards, config.pin), (3, false));
    assert_eq!(config.driver, DriverChoice::Epoll);
    assert_eq!(config.pool_mode, PoolMode::Off);
    for pools in [
        "arena-only",
        "checked",
        "checked,guard",
        "checked,guard,fail=9",
    ] {
        let config = self::config(&format!("plaintext --pools {pools}"));
        assert_eq!(config.pool_mode.to_string(), pools);
    }
    assert_eq!(
        config.limits.connections_max, 4,
        "10 over 3 shards, rounded up"
    );
}

/// Goal: the defaults are safe: reachable from this machine only, every CPU used, pools on.
#[test]
fn defaults_stay_on_this_machine() {
    let config = config("plaintext");
    assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.pool_mode, PoolMode::On);
    assert!(config.pin && config.shards >= 1);
}

/// Goal: what cannot be served is refused with the flag's name and the alternative.
#[test]
fn wrong_values_are_named() {
    for (line, part) in [
        ("plaintext --listen 8080", "--listen"),
        ("plaintext --listen upstart", "127.0.0.1:8080"),
        ("plaintext --shards 0", "at least 1"),
        ("plaintext --shards 5000", "at most 1024"),
        ("plaintext --driver kqueue", "auto, uring or epoll"),
        ("plaintext --busy-poll 50us", "from 0 (off) to 1000"),
        ("plaintext --busy-poll 1001", "from 0 (off) to 1000"),
        ("plaintext --head-timeout 0s", "longer than nothing"),
        ("plaintext --max-head lots", "--max-head"),
        ("plaintext --pools yes", "on, off, arena-only, or checked"),
        ("plaintext --pools checked,fail=0", "from 1 on"),
        ("plaintext --data x", "--data"),
        ("files", "<DIR>"),
        ("files . --cache lots", "--cache"),
        ("", "plaintext"),
    ] {
        let error = parse(line).unwrap_err();
        assert!(error.contains(part), "{line}: {error}");
    }
}
