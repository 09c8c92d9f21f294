//! The rival: nginx with one worker that returns the same text from memory.

use super::Bench;
use super::command::lasting;
use super::server::{Server, free_address};

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
    let children = format!("/proc/{0}/task/{0}/children", server.pid);
    let workers =
        std::fs::read_to_string(&children).map_err(|error| format!("{children}: {error}"))?;
    let worker = workers
        .split_whitespace()
        .next()
        .and_then(|pid| pid.parse().ok());
    server.pid = worker.ok_or("nginx has no worker process")?;
    Ok(server)
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
