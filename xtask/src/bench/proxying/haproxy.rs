//! The rival that is nothing but a proxy: haproxy with one thread that reuses connections always.

use crate::bench::Bench;
use crate::bench::command::{lasting, text_of};
use crate::bench::nginx::path_with_sbin;
use crate::bench::server::{Server, free_address};
use std::process::Command;

const CONFIGURATION: &str = "\
global
    nbthread 1
    maxconn 4096
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    option http-keep-alive
    option forwardfor
    http-reuse always
frontend clients
    bind ADDRESS backlog 4096
    default_backend origin
backend origin
    server origin ORIGIN
";

/// Whether it is here; the sentence says what to do when not.
pub(super) fn available() -> Result<(), String> {
    let mut version = Command::new("haproxy");
    version.env("PATH", path_with_sbin()).arg("-v");
    text_of(&mut version)
        .map(|_| ())
        .map_err(|error| format!("{error} (install the Debian package haproxy)"))
}

/// Starts it as one process in front of `origin`, behind the words in `before`.
pub(super) fn start(bench: &Bench, origin: &str, before: &[String]) -> Result<Server, String> {
    let directory = bench.scratch.join("haproxy");
    let failed = |error: std::io::Error| format!("haproxy's directory: {error}");
    std::fs::create_dir_all(&directory).map_err(failed)?;
    let address = free_address()?;
    let text = CONFIGURATION
        .replace("ADDRESS", &address.to_string())
        .replace("ORIGIN", origin);
    let file = directory.join("haproxy.cfg");
    std::fs::write(&file, text).map_err(failed)?;
    let mut command = lasting(bench.machine.server_cpu);
    command.env("PATH", path_with_sbin());
    // In the foreground, without a word.
    command.args(before).args(["haproxy", "-db", "-q", "-f"]);
    command.arg(&file);
    Server::start(command, address)
}
