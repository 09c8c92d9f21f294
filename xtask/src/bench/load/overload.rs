//! Twice what the server can do, for a minute: memory stays flat, and every request that was due is
//! answered, failed, shed or cut off, exactly.

use super::connections::anonymous_bytes;
use super::{TargetProgram, number};
use crate::bench::Bench;
use crate::bench::command::lasting;
use crate::bench::figure::Figure;
use serde_json::Value;
use std::process::Stdio;
use std::time::Duration;

/// A thousand requests a second.
const SERVICE_US: u32 = 1_000;

pub(super) fn measure(bench: &Bench, target: &TargetProgram<'_>) -> Result<Vec<Figure>, String> {
    let seconds = if bench.plan.smoke { 3 } else { 60 };
    let mut figures = Vec::new();
    for (name, deadline) in [("backlog", None), ("deadline", Some("500ms"))] {
        let (growth, lost) = overload(bench, target, seconds, deadline)?;
        println!("{name}: memory grew by {growth:.3}, {lost} requests are not accounted for");
        let growth_name = format!("load_overload_{name}_memory_growth_ratio");
        figures.push(Figure::median(growth_name, vec![growth]).at_most(1.05));
        let lost_name = format!("load_overload_{name}_requests_not_accounted_for");
        figures.push(Figure::median(lost_name, vec![lost.abs()]).at_most(0.0));
    }
    Ok(figures)
}

fn overload(
    bench: &Bench,
    target: &TargetProgram<'_>,
    seconds: u64,
    deadline: Option<&str>,
) -> Result<(f64, f64), String> {
    let server = target.start(SERVICE_US)?;
    let file = bench.scratch.join("overload.json");
    let mut command = lasting(bench.machine.generator_cpu);
    command
        .arg(&bench.millpond)
        .args(["load", "-t", "1", "-c", "64", "-R", "2000"]);
    command
        .args(["-d", &format!("{seconds}s"), "--json"])
        .arg(&file);
    command.args(deadline.into_iter().flat_map(|time| ["--deadline", time]));
    command.arg(format!("http://{}/", server.address));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let spawned = command.spawn();
    let mut load = spawned.map_err(|error| format!("{command:?}: {error}"))?;
    // Past the first seconds, whose histograms are new.
    let early_s = seconds / 6 + 1;
    std::thread::sleep(Duration::from_secs(early_s));
    let early = anonymous_bytes(&load);
    // Before it can have ended.
    std::thread::sleep(Duration::from_secs(seconds - 1 - early_s));
    let late = anonymous_bytes(&load);
    let ended = load
        .wait()
        .map_err(|error| format!("the generator: {error}"))?;
    let text = std::fs::read_to_string(&file)
        .map_err(|error| format!("the generator ended with {ended}, and no record: {error}"))?;
    let record: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    Ok((late? / early?, not_accounted_for(&record)?))
}

/// Requests that were due, less all that became of them; failures include those never sent.
fn not_accounted_for(record: &Value) -> Result<f64, String> {
    let failures = ["read", "write", "timeout", "status", "validation"];
    let failed: Result<Vec<f64>, String> = failures
        .iter()
        .map(|phase| number(record, &format!("errors/{phase}")))
        .collect();
    let known = number(record, "response_ns/count")?
        + number(record, "shed")?
        + number(record, "abandoned")?
        + failed?.iter().sum::<f64>();
    Ok(number(record, "offered")? - known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_fate_is_counted() {
        let errors = json!({"read": 1, "write": 2, "timeout": 3, "status": 4, "validation": 5});
        let record = json!({
            "offered": 120, "shed": 20, "abandoned": 5, "errors": errors,
            "response_ns": {"count": 79},
        });
        assert_eq!(not_accounted_for(&record), Ok(1.0));
        assert!(not_accounted_for(&json!({})).is_err());
    }
}
