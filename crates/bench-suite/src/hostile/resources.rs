//! Attacks on what a server has a limited number of: descriptors, memory, places at an upstream.
//!
//! Each runs beside a good client, against a server of its own, with each driver, and under the usual descriptor limit
//! as well as under a large one. The most that the server held meanwhile is sampled and judged by bounds that
//! follow from its flags. The good client sees only what the attack's file says, everything is given back afterwards,
//! every acknowledged write can be read, and the server never has to be started again. No latency is judged.
//!
//! An attack is a process of its own, where possible with a network of its own; see [`apart`](super::exchanges).

pub(crate) mod client;
mod cut_off_heads;
mod gone_clients;
mod one_address;
mod scene;
pub(crate) mod server;
mod slow_downloads;
mod tunnels;
pub(crate) mod writer;

use super::exchanges::own_network;
use crate::bench::Bench;
use scene::{Outcome, Scene};
use serde_json::{Value, json};
use server::{Launch, Server};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// One attack.
pub(super) struct ResourceAttack {
    pub(super) name: &'static str,
    run: fn(&Scene) -> Result<Outcome, String>,
}

const fn attack(name: &'static str, run: fn(&Scene) -> Result<Outcome, String>) -> ResourceAttack {
    ResourceAttack { name, run }
}

/// All there are.
pub(super) const ATTACKS: &[ResourceAttack] = &[
    attack("connection-resets", client::connection_resets_run),
    attack("idle-connections", client::run),
    attack("slow-upload", writer::slow_upload_run),
    attack("slow-downloads", slow_downloads::run),
    attack("gone-clients", gone_clients::run),
    attack("proxy-loop", server::run),
    attack("cut-off-heads", cut_off_heads::run),
    attack("abandoned-tunnels", tunnels::run),
    attack("slow-heads-from-one-address", one_address::run),
    attack("small-requests", writer::run),
];

/// The usual limit of open files, and one that is as large as --max-connections needs.
const DESCRIPTOR_LIMITS: [u64; 2] = [1024, 20_000];

/// The attack of that name.
pub(super) fn named(name: &str) -> Option<&'static ResourceAttack> {
    ATTACKS.iter().find(|attack| attack.name == name)
}

/// Runs these with both drivers and both limits, the larger one in full runs alone; what is for the record. Each has
/// its turn even when an earlier one failed.
pub(super) fn run_all(
    bench: &Bench,
    is_smoke: bool,
    descriptors_max: u64,
    chosen: &[&ResourceAttack],
) -> Result<Vec<Value>, String> {
    let (mut records, mut failures) = (Vec::new(), Vec::new());
    let limits = if is_smoke {
        &DESCRIPTOR_LIMITS[..1]
    } else {
        &DESCRIPTOR_LIMITS
    };
    let (fitting, beyond): (Vec<u64>, Vec<u64>) =
        limits.iter().partition(|limit| **limit <= descriptors_max);
    for limit in beyond {
        println!(
            "not run with ulimit -n {limit}: the hard limit of this machine is {descriptors_max}"
        );
    }
    for driver in ["uring", "epoll"] {
        if let Err(sentence) = try_driver(bench, driver) {
            println!("not run with {driver}: {sentence}");
            continue;
        }
        for attack in chosen {
            for limit in &fitting {
                match run_apart(bench, attack.name, driver, *limit, is_smoke) {
                    Ok(record) => records.push(record),
                    Err(sentence) => {
                        println!(
                            "{:<28} {driver:<6} {limit:>6} FAILED: {sentence}",
                            attack.name
                        );
                        failures.push(format!(
                            "{} with {driver} and {limit} descriptors",
                            attack.name
                        ));
                    }
                }
            }
        }
    }
    match failures.is_empty() {
        true => Ok(records),
        false => Err(format!(
            "failed: {}; why is printed above",
            failures.join(", ")
        )),
    }
}

/// Whether a server starts with this driver.
fn try_driver(bench: &Bench, driver: &str) -> Result<(), String> {
    let launch = Launch {
        millpond: bench.millpond.clone(),
        descriptors_max: DESCRIPTOR_LIMITS[0],
        behind: Vec::new(),
        stderr: bench
            .scratch
            .join(format!("hostile-driver-{}.log", std::process::id())),
        has_metrics_listener: false,
    };
    let started = Server::start(&launch, &["serve", "plaintext", "--driver", driver]);
    // Its output is part of the error.
    let _ = std::fs::remove_file(&launch.stderr);
    started.map(drop)
}

/// Has another process run it, prints a line, and returns what is for the record.
fn run_apart(
    bench: &Bench,
    name: &str,
    driver: &str,
    limit: u64,
    is_smoke: bool,
) -> Result<Value, String> {
    let begun = Instant::now();
    let myself =
        std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
    let network = own_network();
    let directory = bench
        .scratch
        .join(format!("hostile-{}", std::process::id()));
    let mut words: Vec<String> = network.iter().map(|&word| word.to_owned()).collect();
    words.push(myself.display().to_string());
    words.extend(["hostile-resource", name, driver].map(str::to_owned));
    words.push(limit.to_string());
    words.push(if is_smoke { "smoke" } else { "full" }.to_owned());
    words.push(if network.is_empty() { "shared" } else { "own" }.to_owned());
    words.extend([&bench.millpond, &directory].map(|path| path.display().to_string()));
    let output = Command::new(&words[0])
        .args(&words[1..])
        .output()
        .map_err(|error| format!("{words:?} cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let outcome: Value =
        serde_json::from_str(&text).map_err(|error| format!("{text} is no record: {error}"))?;
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{:<28} {driver:<6} {limit:>6} {seconds:>5.1} s  {}",
        name,
        line_of(&outcome)
    );
    Ok(json!({ "attack": name, "driver": driver, "descriptors_limit": limit, "outcome": outcome }))
}

/// The printed part of an outcome.
fn line_of(outcome: &Value) -> String {
    if let Some(reason) = outcome["left_out"].as_str() {
        return format!("left out: {reason}");
    }
    let of = |what: &str, name: &str| outcome[what][name].as_u64().unwrap_or_default();
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    format!(
        "peak {} of {} descriptors, {} of {} sockets, {:.1} of {:.1} MiB, {} of {} threads; then {}, {:.1} MiB; {}",
        of("peak", "descriptors"),
        of("bounds", "descriptors"),
        outcome["sockets_peak"],
        outcome["sockets_bound"],
        mib(of("peak", "resident_bytes")),
        mib(of("bounds", "resident_bytes")),
        of("peak", "threads"),
        of("bounds", "threads"),
        of("after", "descriptors"),
        mib(of("after", "resident_bytes")),
        outcome["seen"],
    )
}

/// One attack in this process; its outcome goes to stdout.
pub(super) fn run_one(words: &[&str]) -> Result<(), String> {
    let [name, driver, limit, extent, network, millpond, directory] = words else {
        return Err("hostile-resource takes what run_apart gives it".to_owned());
    };
    let attack = named(name).ok_or("no such attack")?;
    let directory = Path::new(directory);
    remove(directory)?;
    std::fs::create_dir_all(directory)
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    let scene = Scene {
        launch: Launch {
            millpond: PathBuf::from(millpond),
            descriptors_max: limit.parse().map_err(|error| format!("{limit}: {error}"))?,
            behind: Vec::new(),
            stderr: directory.join("stderr"),
            has_metrics_listener: true,
        },
        driver: (*driver).to_owned(),
        directory: directory.to_owned(),
        is_smoke: *extent == "smoke",
        has_own_network: *network == "own",
    };
    let outcome = (attack.run)(&scene);
    remove(directory)?;
    match outcome? {
        Outcome::Stood(outcome) => println!("{outcome}"),
        Outcome::LeftOut(reason) => println!("{}", json!({ "left_out": reason })),
    }
    Ok(())
}

fn remove(directory: &Path) -> Result<(), String> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(format!(
            "{} cannot be removed: {error}",
            directory.display()
        )),
        _ => Ok(()),
    }
}

/// Goal: attacks have names of their own, also beside those of the other table.
#[test]
fn every_attack_has_a_name() {
    let others = super::attack::ATTACKS.iter().map(|attack| attack.name);
    let mut names: Vec<&str> = ATTACKS
        .iter()
        .map(|attack| attack.name)
        .chain(others)
        .collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}
