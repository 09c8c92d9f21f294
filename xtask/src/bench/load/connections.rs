//! Ten thousand connections: exactly so many at the server, and what each costs the client in memory.

use super::target::arrivals;
use super::{TargetProgram, number};
use crate::bench::Bench;
use crate::bench::command::lasting;
use crate::bench::figure::Figure;
use std::process::{Child, Stdio};
use std::time::Duration;

const FEW: usize = 100;

pub(super) fn measure(bench: &Bench, target: &TargetProgram<'_>) -> Result<Vec<Figure>, String> {
    let many = if bench.plan.smoke { 1_000 } else { 10_000 };
    let (few_bytes, _) = hold(bench, target, FEW)?;
    let (many_bytes, opened) = hold(bench, target, many)?;
    let each = (many_bytes - few_bytes) / (many - FEW) as f64;
    println!("{many} connections: {opened} opened, {each:.0} bytes of the client each");
    let difference = (opened - many as f64).abs();
    Ok(vec![
        Figure::median("load_c10000_user_bytes_per_connection", vec![each]).at_most(2_048.0),
        Figure::median("load_c10000_connections_off", vec![difference]).at_most(0.0),
    ])
}

/// A run over so many connections: the client's anonymous memory in the middle of it, and how many
/// connections its server ever had open at once.
fn hold(bench: &Bench, target: &TargetProgram<'_>, count: usize) -> Result<(f64, f64), String> {
    let server = target.start(0)?;
    let mut command = lasting(bench.machine.generator_cpu);
    command
        .arg(&bench.millpond)
        .args(["load", "-t", "1", "--timeout", "20s"]);
    command.args(["-c", &count.to_string(), "-R", "5k", "-d", "8s"]);
    command.arg(format!("http://{}/", server.address));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let spawned = command.spawn();
    let mut load = spawned.map_err(|error| format!("{command:?}: {error}"))?;
    std::thread::sleep(Duration::from_secs(6));
    let bytes = anonymous_bytes(&load);
    let ended = load
        .wait()
        .map_err(|error| format!("the generator: {error}"))?;
    if ended.code().is_none_or(|code| ![0, 4].contains(&code)) {
        return Err(format!(
            "the generator with {count} connections ended with {ended}"
        ));
    }
    let opened = number(&arrivals(&server, 1)?, "connections_most")?;
    Ok((bytes?, opened))
}

/// Resident bytes that are not files' pages.
pub(super) fn anonymous_bytes(process: &Child) -> Result<f64, String> {
    let path = format!("/proc/{}/status", process.id());
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
    kib.map(|kib| kib * 1024.0)
        .ok_or_else(|| format!("{path} has no RssAnon"))
}
