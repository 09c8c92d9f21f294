//! The same servers under wrk, ab and curl.

use crate::modes::Mode;
use crate::server::{Server, Start};
use std::process::Command;

/// Compares what the tools say with their columns; a tool that is not installed says nothing.
pub(crate) fn check(mode: &Mode) -> Result<(), String> {
    let status = mode.curl.to_string();
    let mut columns = vec![
        ("curl", curl as fn(&Mode) -> Option<String>, status.as_str()),
        ("wrk", wrk, mode.wrk),
    ];
    if !mode.ab.is_empty() {
        columns.push(("ab", ab, mode.ab));
    }
    for (tool, ask, expected) in columns {
        if let Some(found) = ask(mode).filter(|found| found != expected) {
            return Err(format!("{tool} says {found:?} instead of {expected:?}"));
        }
    }
    Ok(())
}

/// Exit status and everything that was printed, if there is such a program.
fn output(program: &str, words: &[&str]) -> Option<(i32, String)> {
    let output = Command::new(program).args(words).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    Some((output.status.code()?, text))
}

fn url(mode: &Mode, server: &Server, host: &str) -> String {
    let scheme = match mode.start {
        Start::Clear => "http",
        _ => "https",
    };
    format!("{scheme}://{host}:{}/", server.address.port())
}

fn curl(mode: &Mode) -> Option<String> {
    let server = Server::start(mode.start, mode.conduct);
    let url = url(mode, &server, "localhost");
    let authority = server.certificates.as_ref();
    let authority = authority.map(|it| it.authority().display().to_string());
    let seconds = if mode.is_silent { "1" } else { "60" };
    let mut words = vec!["-4", "-s", "-o", "/dev/null", "--max-time", seconds];
    match &authority {
        Some(authority) => words.extend(["--cacert", authority]),
        None => words.push("-k"),
    }
    words.push(&url);
    output("curl", &words).map(|(status, _)| status.to_string())
}

/// Complete and failed requests, as in `6/0`, or the exit status.
fn ab(mode: &Mode) -> Option<String> {
    let server = Server::start(mode.start, mode.conduct);
    let url = url(mode, &server, "127.0.0.1");
    let words = ["-q", "-k", "-s", "1", "-n", "6", "-c", "1", &url];
    let (status, text) = output("ab", &words)?;
    let number = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map_or("?", str::trim).to_owned()
    };
    Some(match status {
        0 => format!(
            "{}/{}",
            number("Complete requests:"),
            number("Failed requests:")
        ),
        status => format!("exit {status}"),
    })
}

/// The kinds that it counts failures of.
fn wrk(mode: &Mode) -> Option<String> {
    let server = Server::start(mode.start, mode.conduct);
    let url = url(mode, &server, "127.0.0.1");
    let (_, text) = output("wrk", &["-t", "1", "-c", "1", "-d", "1s", &url])?;
    let mut lines = text.lines().map(str::trim);
    let errors = lines.find_map(|line| line.strip_prefix("Socket errors: "));
    let counts = errors.unwrap_or_default().split(", ");
    let counts = counts.filter_map(|part| part.split_once(' '));
    let mut kinds: Vec<&str> = counts
        .filter(|(_, count)| *count != "0")
        .map(|(kind, _)| kind)
        .collect();
    if text.contains("Non-2xx") {
        kinds.push("status");
    }
    if text.contains("  0 requests in") {
        kinds.push("nothing");
    }
    Some(kinds.join(", "))
}
