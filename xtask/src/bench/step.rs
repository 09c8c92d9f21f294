//! User instructions per answer where no hardware counts them: one ptrace step at a time.

use super::server::Server;
use super::wrk::{self, Load};
use super::{Bench, machine};
use std::process::{Command, Stdio};
use std::time::Duration;

const SCRIPT: &str = "benches/count_instructions.py";
/// Each count goes on to the end of a round of the server's event loop, which takes seconds.
const COUNTS: usize = 3;
const COUNT_SECONDS: &str = "3";
/// Longer than all counts together: wrk is ended, not waited for.
const LOAD: Duration = Duration::from_secs(300);

/// Counts a few times while wrk keeps the server busy.
pub(crate) fn user_instructions(bench: &Bench, server: &Server) -> Result<Vec<f64>, String> {
    let load = Load {
        path: "/plaintext",
        script: None,
        duration: LOAD,
    };
    let words = wrk::words(bench, server, &load);
    let mut wrk = Command::new(&words[0])
        .args(&words[1..])
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| format!("wrk cannot be run: {error}"))?;
    // Past the connecting, into the steady state.
    std::thread::sleep(Duration::from_secs(1));
    let counts = (0..COUNTS).map(|_| count(server)).collect();
    let _ = wrk.kill();
    let _ = wrk.wait();
    counts
}

fn count(server: &Server) -> Result<f64, String> {
    let pid = server.pid.to_string();
    let line = machine::first_line("python3", &[SCRIPT, &pid, COUNT_SECONDS]).unwrap_or_default();
    let answer: serde_json::Value = serde_json::from_str(&line)
        .map_err(|_| format!("{SCRIPT} could not count (it needs root and x86-64): {line}"))?;
    let count = answer["instructions_per_answer"].as_f64();
    println!("{line}");
    count.ok_or_else(|| format!("{SCRIPT} said {line}"))
}
