//! The load generator: what a request costs it, how exactly it keeps time, and whether it counts right.
//!
//! `millpond-load-target` (in `crates/load/src/bin/target`) is asked where the answer is known before:
//! it has an exact capacity and writes down when requests came. It shares no code with the generator.
//! wrk is measured beside it, in the same run.
//! Absent on purpose: the server's figures (`server`), and throughput, which is the server's.

mod target;
mod instructions;
mod syscalls;
mod pacing;
mod connections;
mod overload;
mod search;

use super::command::{bounded, text_of};
use super::figure::Figure;
use super::{Bench, measure_parts};
use serde_json::Value;
use std::time::Duration;
use target::TargetProgram;

type Part = fn(&Bench, &TargetProgram<'_>) -> Result<Vec<Figure>, String>;

const PARTS: [(&str, Part); 6] = [
    ("instructions", instructions::measure),
    ("syscalls", syscalls::measure),
    ("pacing", pacing::measure),
    ("connections", connections::measure),
    ("overload", overload::measure),
    ("search", search::measure),
];

/// All of it.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Figure>, String> {
    let target = TargetProgram::build(bench)?;
    let parts = PARTS
        .iter()
        .map(|(name, part)| (*name, part(bench, &target)));
    measure_parts(bench, "load", parts)
}

/// One run of the generator on its CPU; the record that it writes. A verdict on itself (exit status
/// 4) or a missed objective is no failure here: the figures are what is looked at.
pub(super) fn run(bench: &Bench, words: &[&str]) -> Result<Value, String> {
    run_behind(bench, &[], words)
}

/// The same, behind these words.
pub(super) fn run_behind(bench: &Bench, before: &[&str], words: &[&str]) -> Result<Value, String> {
    let file = bench.scratch.join("load.json");
    let _ = std::fs::remove_file(&file);
    let mut command = bounded(bench.machine.generator_cpu, Duration::from_secs(300));
    command.args(before).arg(&bench.millpond).arg("load");
    command.args(words).arg("--json").arg(&file);
    let said = text_of(&mut command);
    let text = std::fs::read_to_string(&file).map_err(|error| match said {
        Err(sentence) => sentence,
        Ok(_) => format!("the record {}: {error}", file.display()),
    })?;
    serde_json::from_str(&text).map_err(|error| format!("the record cannot be read: {error}"))
}

/// A number of a record, by its path: `slip_ns/p50`.
pub(super) fn number(record: &Value, path: &str) -> Result<f64, String> {
    let value = path.split('/').fold(record, |value, key| &value[key]);
    value
        .as_f64()
        .ok_or_else(|| format!("the record has no {path}"))
}
