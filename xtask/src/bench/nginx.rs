//! The rival: nginx with one worker that returns the same text from memory.

use super::Bench;
use super::command::lasting;
use super::server::{START_MAX, Server, free_address};
use std::time::{Duration, Instant};

const CONFIGURATION: &str = "\
daemon off;
master_process MASTER;
worker_processes 1;
pid DIRECTORY/nginx.pid;
error_log DIRECTORY/error.log warn;
events { worker_connections 4096; }
http {
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path DIRECTORY/body;
    proxy_temp_path DIRECTORY/proxy;
    fastcgi_temp_path DIRECTORY/fastcgi;
    uwsgi_temp_path DIRECTORY/uwsgi;
    scgi_temp_path DIRECTORY/scgi;
    server {
        listen ADDRESS;
        default_type text/plain;
        location / { return 200 'Hello, World!'; }
    }
}
";

/// Starts it with master and worker; the value's process is the worker.
pub(super) fn start(bench: &Bench) -> Result<Server, String> {
    let mut server = start_as(bench, "on", &[])?;
    server.pid = first_child(server.pid)?;
    Ok(server)
}

/// The worker. The master listens before it forks, so a connection that succeeded does not prove one.
fn first_child(master: u32) -> Result<u32, String> {
    let path = format!("/proc/{master}/task/{master}/children");
    let started = Instant::now();
    loop {
        let pids = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let first = pids.split_whitespace().next();
        if let Some(pid) = first.and_then(|pid| pid.parse().ok()) {
            return Ok(pid);
        }
        if started.elapsed() > START_MAX {
            return Err(format!("nginx's master {master} has no worker process"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts it as one process, behind the words of the program that counts.
pub(super) fn start_alone(bench: &Bench, before: &[String]) -> Result<Server, String> {
    start_as(bench, "off", before)
}

fn start_as(bench: &Bench, master: &str, before: &[String]) -> Result<Server, String> {
    let directory = bench.scratch.join("nginx");
    let failed = |error: std::io::Error| format!("nginx's directory: {error}");
    std::fs::create_dir_all(&directory).map_err(failed)?;
    let address = free_address()?;
    let text = CONFIGURATION
        .replace("DIRECTORY", &directory.display().to_string())
        .replace("MASTER", master)
        .replace("ADDRESS", &address.to_string());
    let file = directory.join("nginx.conf");
    std::fs::write(&file, text).map_err(failed)?;
    let mut command = lasting(bench.machine.server_cpu);
    command.env("PATH", path_with_sbin());
    command.args(before).arg("nginx").arg("-c").arg(&file);
    command.arg("-p").arg(&directory);
    Server::start(command, address)
}

/// Debian keeps nginx where a user's PATH may not look.
fn path_with_sbin() -> String {
    format!(
        "{}:/usr/sbin:/sbin",
        std::env::var("PATH").unwrap_or_default()
    )
}
