//! User instructions per request where the machine hides its counters: valgrind's callgrind.
//!
//! It counts every instruction of the whole process, so the server runs twice under it, once for
//! longer: the difference holds neither start nor stop, nor the coming and going of connections,
//! which at full speed is spread over fifty times as many requests. It also has fuller batches of
//! events than full speed, and what a tick costs is spread over more requests.

use super::Bench;
use super::command::{text_of, text_of_load};
use super::server::Server;
use std::process::Command;
use std::time::Duration;

/// What is counted: with the driver that valgrind can follow. Under it a ring's completions are seen
/// late or, at the stop, never.
pub(super) const SERVE_PLAINTEXT: [&str; 3] = ["plaintext", "--driver", "epoll"];

/// Whether valgrind is here; the sentence says what to do when not.
pub(super) fn available() -> Result<(), String> {
    text_of(Command::new("valgrind").arg("--version"))
        .map(|_| ())
        .map_err(|error| format!("{error} (install the Debian package valgrind)"))
}

/// How long a server is driven for the first count, and how many times that for the second.
const fn drive_time(bench: &Bench) -> Duration {
    Duration::from_secs(if bench.plan.smoke { 1 } else { 2 })
}
const LONGER: u32 = 4;

/// Instructions per request of the server that `start` starts behind the words it is given and
/// `drive` asks for as long as it is told; it says how many requests those were.
pub(super) fn user_instructions(
    bench: &Bench,
    name: &str,
    start: impl Fn(&Bench, &[String]) -> Result<Server, String>,
    drive: impl Fn(&Server, Duration) -> Result<u64, String>,
) -> Result<f64, String> {
    let time = drive_time(bench);
    let (fewer_instructions, few) = count(bench, name, &start, |server| drive(server, time))?;
    let (instructions, many) = count(bench, name, &start, |server| drive(server, time * LONGER))?;
    if many <= few {
        return Err(format!(
            "{name}: {many} requests in {LONGER} times as long as {few} took; count again on a \
             machine with a CPU to spare"
        ));
    }
    let per_request = (instructions - fewer_instructions) / (many - few);
    println!("{name}: {per_request:.0} user instructions per request by callgrind");
    Ok(per_request)
}

/// All instructions of one process that is driven, and the requests it answered.
fn count(
    bench: &Bench,
    name: &str,
    start: impl Fn(&Bench, &[String]) -> Result<Server, String>,
    drive: impl FnOnce(&Server) -> Result<u64, String>,
) -> Result<(f64, f64), String> {
    let file = bench.scratch.join(format!("{name}.callgrind"));
    let log = bench.scratch.join(format!("{name}.valgrind.log"));
    let words = [
        "valgrind".to_owned(),
        "--tool=callgrind".to_owned(),
        format!("--callgrind-out-file={}", file.display()),
        format!("--log-file={}", log.display()),
    ];
    let _ = std::fs::remove_file(&file);
    let server = start(bench, &words)?;
    let requests = drive(&server)?;
    // Callgrind writes its file when the program ends.
    drop(server);
    let text = std::fs::read_to_string(&file)
        .map_err(|error| format!("callgrind's {}: {error}", file.display()))?;
    Ok((total(&text)?, requests as f64))
}

/// All instructions of one run of `millpond` with these words.
pub(super) fn instructions(bench: &Bench, name: &str, words: &[&str]) -> Result<f64, String> {
    let file = bench.scratch.join(format!("{name}.callgrind"));
    let _ = std::fs::remove_file(&file);
    let mut command = Command::new("valgrind");
    command
        .args(["--quiet", "--tool=callgrind"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(&bench.millpond)
        .args(words);
    text_of_load(&mut command)?;
    let text = std::fs::read_to_string(&file)
        .map_err(|error| format!("callgrind's {}: {error}", file.display()))?;
    total(&text)
}

/// All instructions of one run of wrk with these words, and how many requests it says it made.
pub(super) fn of_wrk(bench: &Bench, words: &[&str]) -> Result<(f64, f64), String> {
    let file = bench.scratch.join("wrk.callgrind");
    let _ = std::fs::remove_file(&file);
    let mut command = Command::new("valgrind");
    command
        .args(["--quiet", "--tool=callgrind"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg("wrk")
        .args(words);
    let answers = super::generator::parse(&text_of(&mut command)?)?;
    let text = std::fs::read_to_string(&file)
        .map_err(|error| format!("callgrind's {}: {error}", file.display()))?;
    Ok((total(&text)?, answers.requests as f64))
}

/// The last `totals: N` of the file.
fn total(text: &str) -> Result<f64, String> {
    let line = text
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("totals: "));
    line.and_then(|count| count.trim().parse().ok())
        .ok_or_else(|| "callgrind's file has no totals".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_read() {
        let text = "events: Ir\nfn=(1) main\n0 7\n\ntotals: 4215\n";
        assert_eq!(total(text), Ok(4215.0));
        assert!(total("events: Ir\n").is_err());
    }
}
