//! More connections than an address has ports for, really opened: in a network namespace of its own,
//! where ports can be made scarce without taking them from anybody.
//!
//! Not part of `make test`: a namespace takes root, and 15,000 connections take some 16,000 descriptors
//! of each process. `cargo test -p millpond --test cli -- --ignored ports`

use crate::support::{Finished, run};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs these lines of shell where ports go from 20,000 to `last`, with a server on 127.0.0.1:8080;
/// `$BIN` is millpond.
fn among_few_ports(directory: &Path, last: u32, lines: &str) -> Finished {
    let script = format!(
        "set -e
         ip link set lo up
         echo 20000 {last} > /proc/sys/net/ipv4/ip_local_port_range
         $BIN serve plaintext --listen 127.0.0.1:8080 --shards 1 --max-connections 19000 > server &
         server=$!
         trap 'kill $server' EXIT
         tries=0
         until grep -q listening server; do
            tries=$((tries + 1)); test $tries -lt 2000; sleep 0.05
         done
         {lines}"
    );
    let mut command = Command::new("unshare");
    command
        .args(["-n", "sh", "-c", &script])
        .current_dir(directory);
    run(command.env("BIN", env!("CARGO_BIN_EXE_millpond")))
}

fn record(directory: &Path, name: &str) -> Value {
    serde_json::from_slice(&fs::read(directory.join(name)).unwrap()).unwrap()
}

/// Goal: where an address has 1,000 ports, four of them carry 3,000 connections and one does not: what
/// is missing is counted, its cause is named, and the connections that there are go on. Each run has
/// addresses of its own: the ports of the run before are in TIME_WAIT for a second at least.
#[test]
#[ignore = "needs root for a network namespace"]
fn addresses_add_up_their_ports() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let load = "$BIN load --timeout 30s http://127.0.0.1:8080/plaintext";
    let lines = format!(
        "{load} -c 3000 -n 9000 --source 127.0.0.2..127.0.0.5 --json four.json || test $? = 4
         {load} -c 1500 -n 3000 --source 127.0.0.6 --json one.json || test $? = 4
         {load} -c 1500 -n 3000 --json none.json || test $? = 4"
    );
    let finished = among_few_ports(at, 20_999, &lines);
    assert_eq!(finished.code(), 0, "{finished:?}");
    let four = record(at, "four.json");
    assert_eq!(
        (&four["requests"], &four["connections"]),
        (&9_000.into(), &3_000.into())
    );
    assert_eq!(four["errors"]["connect"], 0, "{four}");
    assert!(four["opening_ns"]["count"].as_u64().unwrap() >= 3_000);
    for name in ["one.json", "none.json"] {
        let one = record(at, name);
        assert_eq!(one["requests"], 3_000, "{one}");
        assert!(one["errors"]["connect"].as_u64().unwrap() >= 500, "{one}");
        let opened = one["opening_ns"]["count"].as_u64().unwrap();
        assert!((900..=1_000).contains(&opened), "{opened}");
        let reasons = one["verdict"]["reasons"].to_string();
        assert!(reasons.contains("--source"), "{reasons}");
    }
}

/// Goal: 15,000 connections stand at once, of two addresses with 10,000 ports each, and each is used.
#[test]
#[ignore = "needs root for a network namespace, and 16,000 descriptors"]
fn fifteen_thousand_connections_stand() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let lines = "$BIN load --timeout 60s -c 15000 -n 45000 --source 127.0.0.2..127.0.0.3 \
        --json big.json http://127.0.0.1:8080/plaintext || test $? = 4";
    let finished = among_few_ports(at, 29_999, lines);
    assert_eq!(finished.code(), 0, "{finished:?}");
    let big = record(at, "big.json");
    assert_eq!(
        (&big["requests"], &big["connections"]),
        (&45_000.into(), &15_000.into())
    );
    assert_eq!(big["errors"]["connect"], 0, "{big}");
    assert!(big["opening_ns"]["count"].as_u64().unwrap() >= 15_000);
}
