//! The rival: nginx with one worker that returns the same text from memory.

use super::Bench;
use super::server::{Server, pinned};
use std::net::{SocketAddr, TcpListener};

const CONFIGURATION: &str = "\
daemon off;
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

/// Starts it; the value's process is the worker.
pub(crate) fn start(bench: &Bench) -> Result<Server, String> {
    let directory = bench.scratch.join("nginx");
    let failed = |error: std::io::Error| format!("nginx's directory: {error}");
    std::fs::create_dir_all(&directory).map_err(failed)?;
    let address = free_address()?;
    let text = CONFIGURATION
        .replace("DIRECTORY", &directory.display().to_string())
        .replace("ADDRESS", &address.to_string());
    let file = directory.join("nginx.conf");
    std::fs::write(&file, text).map_err(failed)?;
    let mut command = pinned(bench.machine.server_cpu);
    command.env("PATH", path_with_sbin());
    command
        .arg("nginx")
        .arg("-c")
        .arg(&file)
        .arg("-p")
        .arg(&directory);
    let mut server = Server::other(command, address)?;
    let children = format!("/proc/{0}/task/{0}/children", server.pid);
    let workers = std::fs::read_to_string(&children).map_err(failed)?;
    let worker = workers
        .split_whitespace()
        .next()
        .and_then(|pid| pid.parse().ok());
    server.pid = worker.ok_or("nginx has no worker process")?;
    Ok(server)
}

/// A port nobody has; the moment until nginx takes it is a risk that a benchmark can run.
fn free_address() -> Result<SocketAddr, String> {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .map_err(|error| format!("no port for nginx: {error}"))
}

/// Debian keeps nginx where a user's PATH may not look.
fn path_with_sbin() -> String {
    format!(
        "{}:/usr/sbin:/sbin",
        std::env::var("PATH").unwrap_or_default()
    )
}
