//! A network of its own for each attack.
//!
//! What an attack leaves in the kernel outlives it: for a minute the connections that the server
//! closed first stand in TIME_WAIT, and their timers end by the thousand in one interrupt, 150 us
//! with another 300 us of packets behind it. In one network for all, that minute later was the next
//! attacks' time, and that of their runs alone. A network goes with all its connections.
//!
//! And in this network nobody puts off an acknowledgement. A hostile client that is slow to close leaves
//! that of the server's last packet to a timer of 40 ms, and it runs on the CPU that received for it,
//! which on one machine is the server's: a hundred of them in one interrupt, 300 us. Clients elsewhere
//! have their timers with them.
//!
//! Absent on purpose: any need of it. Where the system forbids it, all share the machine's network.

use super::attack::Attack;
use crate::bench::figure::Figure;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};

/// A shell that is the first in a new network brings its loopback interface up, has it acknowledge at
/// once, and becomes the program behind it.
const OWN_NETWORK: [&str; 6] = [
    "unshare",
    "--net",
    "sh",
    "-c",
    "ip link set lo up && for to in 127.0.0.0/8 127.0.0.1; do \
     ip route change table local local $to dev lo scope host src 127.0.0.1 quickack 1; done && exec \"$@\"",
    "sh",
];

/// The words that give a program a network of its own; none where that cannot be.
pub(super) fn own_network() -> &'static [&'static str] {
    let tried = Command::new(OWN_NETWORK[0])
        .args(&OWN_NETWORK[1..])
        .arg("true")
        .stderr(Stdio::null())
        .status();
    match tried.is_ok_and(|status| status.success()) {
        true => &OWN_NETWORK,
        false => &[],
    }
}

/// Has another process, behind `before`, take all turns of an attack; it tells them on our stdout,
/// and leaves them in `file`.
pub(super) fn take(
    before: &[&str],
    attack: &Attack,
    driver: &str,
    seconds: u64,
    file: &Path,
) -> Result<(Vec<Figure>, Value), String> {
    let myself = std::env::current_exe().map_err(|error| format!("who am I: {error}"))?;
    let mut words = before.iter();
    let mut command = match words.next() {
        Some(first) => Command::new(first),
        None => Command::new(&myself),
    };
    command.args(words);
    if !before.is_empty() {
        command.arg(&myself);
    }
    command.args(["hostile-apart", attack.name, driver, &seconds.to_string()]);
    let status = command.arg(file).status();
    let status = status.map_err(|error| format!("{command:?} cannot be run: {error}"))?;
    if !status.success() {
        return Err(format!("it ended with {status}"));
    }
    read(file).ok_or_else(|| format!("{} is no record of turns", file.display()))
}

/// Leaves them for who waits.
pub(super) fn write(file: &Path, figures: &[Figure], detail: &Value) -> Result<(), String> {
    let figures: Vec<Value> = figures
        .iter()
        .map(|figure| {
            let limit = figure.target.map(|(_, limit)| limit);
            json!({ "name": figure.name, "runs": figure.runs, "at_most": limit })
        })
        .collect();
    let record = json!({ "figures": figures, "detail": detail });
    std::fs::write(file, record.to_string())
        .map_err(|error| format!("{} cannot be written: {error}", file.display()))
}

fn read(file: &Path) -> Option<(Vec<Figure>, Value)> {
    let record: Value = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    let figures = record["figures"].as_array()?.iter().map(|figure| {
        let runs = figure["runs"].as_array()?.iter().map(Value::as_f64);
        let median = Figure::median(
            figure["name"].as_str()?.to_owned(),
            runs.collect::<Option<_>>()?,
        );
        Some(match figure["at_most"].as_f64() {
            Some(limit) => median.at_most(limit),
            None => median,
        })
    });
    Some((figures.collect::<Option<_>>()?, record["detail"].clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what one process writes the other reads as it was.
    #[test]
    fn turns_come_back_as_they_were() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("turns");
        let figures = [
            Figure::median("a_ratio", vec![1.0, 3.0, 2.5]).at_most(2.0),
            Figure::median("b_ratio", vec![0.5]),
        ];
        write(&file, &figures, &json!({ "attack": "a" })).unwrap();
        let (read_figures, detail) = read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(detail["attack"], "a");
        for (written, read) in figures.iter().zip(&read_figures) {
            assert_eq!(written.name, read.name);
            assert_eq!(written.runs, read.runs);
            assert_eq!(written.target, read.target);
            assert!((written.value - read.value).abs() < 1e-12);
        }
        assert_eq!(read_figures.len(), 2);
        assert!(read(&file).is_none());
    }
}
