//! The rival: nginx with one worker that returns the same text from memory, or a file, or asks another
//! server for it.

use super::Bench;
use super::lasting;
use super::server::{START_MAX, Server, free_address};
use super::serving::encrypted::Identity;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const CONFIGURATION: &str = "\
daemon off;
master_process MASTER;
worker_processes 1;
USER
pid DIRECTORY/nginx.pid;
error_log DIRECTORY/error.log warn;
events { worker_connections CONNECTIONS; }
http {
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path DIRECTORY/body;
    proxy_temp_path DIRECTORY/proxy;
    fastcgi_temp_path DIRECTORY/fastcgi;
    uwsgi_temp_path DIRECTORY/uwsgi;
    scgi_temp_path DIRECTORY/scgi;
    UPSTREAM
    server {
        listen ADDRESS ENCRYPTED backlog=4096;
        IDENTITY
        default_type text/plain;
        location / { LOCATION }
    }
}
";

/// What it serves, where it runs, and how many connections it has places for.
struct Site<'a> {
    /// Of its directory: several may run at the same time.
    name: &'a str,
    location: &'a str,
    /// The address of a server that it asks.
    origin: Option<&'a str>,
    /// On the CPU of the client, not on that of the server.
    is_beside_generator: bool,
    connections: usize,
    /// Over TLS 1.3 alone.
    identity: Option<&'a Identity>,
}

const HELLO: Site<'static> = Site {
    name: "nginx",
    location: "return 200 'Hello, World!';",
    origin: None,
    is_beside_generator: false,
    connections: 4096,
    identity: None,
};

/// Starts it with master and worker; the value's process is the worker.
pub(super) fn start(bench: &Bench) -> Result<Server, String> {
    start_worker(bench, &HELLO)
}

/// The same over TLS.
pub(super) fn start_encrypted(bench: &Bench, identity: &Identity) -> Result<Server, String> {
    let identity = Some(identity);
    start_worker(bench, &Site { identity, ..HELLO })
}

/// The same as what proxies ask: on the CPU that they do not have.
pub(super) fn start_origin(bench: &Bench) -> Result<Server, String> {
    let site = Site {
        name: "nginx-origin",
        is_beside_generator: true,
        ..HELLO
    };
    start_worker(bench, &site)
}

/// As a proxy that keeps its connections to the origin.
pub(super) fn start_proxy(bench: &Bench, origin: &str) -> Result<Server, String> {
    start_worker(bench, &proxy_of(origin))
}

/// The same as one process, behind the words of the program that counts.
pub(super) fn start_proxy_alone(
    bench: &Bench,
    origin: &str,
    before: &[String],
) -> Result<Server, String> {
    start_as(bench, "off", &proxy_of(origin), before)
}

fn proxy_of(origin: &str) -> Site<'_> {
    Site {
        name: "nginx-proxy",
        location: "proxy_pass http://origin; proxy_http_version 1.1; \
                   proxy_set_header Connection ''; \
                   proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;",
        origin: Some(origin),
        ..HELLO
    }
}

/// Starts it over a directory, with places for so many connections and with its cache of open files.
pub(super) fn start_files(
    bench: &Bench,
    root: &Path,
    connections: usize,
) -> Result<Server, String> {
    let root = root.display();
    let location = format!("root '{root}'; sendfile on; open_file_cache max=100;");
    // A few more, for its listener and its own files.
    let connections = connections + 100;
    let location = &location;
    start_worker(
        bench,
        &Site {
            location,
            connections,
            ..HELLO
        },
    )
}

fn start_worker(bench: &Bench, site: &Site<'_>) -> Result<Server, String> {
    let mut server = start_as(bench, "on", site, &[])?;
    server.pid = first_child(server.pid)?;
    Ok(server)
}

/// Workers of a root process switch to user `nobody`, which may not read where root builds: every file would get 403.
fn user() -> &'static str {
    match rustix::process::geteuid().is_root() {
        true => "user root;",
        false => "",
    }
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
    start_as(bench, "off", &HELLO, before)
}

/// Where it responds as one process, and the words that start it, for callers that do so repeatedly.
pub(crate) fn command_alone(bench: &Bench) -> Result<(SocketAddr, Vec<OsString>), String> {
    let (address, file) = configure(bench, "off", &HELLO)?;
    let directory = bench.scratch.join(HELLO.name);
    let mut words: Vec<OsString> = ["nginx", "-c"].map(OsString::from).into();
    words.extend([file.into(), "-p".into(), directory.into()]);
    Ok((address, words))
}

fn start_as(
    bench: &Bench,
    master: &str,
    site: &Site<'_>,
    before: &[String],
) -> Result<Server, String> {
    let (address, file) = configure(bench, master, site)?;
    let directory = bench.scratch.join(site.name);
    let cpu = match site.is_beside_generator {
        true => bench.machine.generator_cpu,
        false => bench.machine.server_cpu,
    };
    let mut command = lasting(cpu);
    command.env("PATH", path_with_sbin());
    command.args(before).arg("nginx").arg("-c").arg(&file);
    command.arg("-p").arg(&directory);
    Server::start(command, address)
}

/// Writes its configuration.
fn configure(
    bench: &Bench,
    master: &str,
    site: &Site<'_>,
) -> Result<(SocketAddr, PathBuf), String> {
    let directory = bench.scratch.join(site.name);
    let failed = |error: std::io::Error| format!("nginx's directory: {error}");
    std::fs::create_dir_all(&directory).map_err(failed)?;
    let address = free_address()?;
    let text = CONFIGURATION
        .replace("DIRECTORY", &directory.display().to_string())
        .replace("MASTER", master)
        .replace("USER", user())
        .replace("ADDRESS", &address.to_string())
        .replace("CONNECTIONS", &site.connections.to_string())
        .replace("LOCATION", site.location);
    let (encrypted, identity) = match site.identity {
        None => ("", String::new()),
        Some(Identity { certificate, key }) => {
            let (certificate, key) = (certificate.display(), key.display());
            let files = format!("ssl_certificate {certificate}; ssl_certificate_key {key};");
            ("ssl", format!("{files} ssl_protocols TLSv1.3;"))
        }
    };
    let upstream = site.origin.map_or_else(String::new, |origin| {
        format!(
            "upstream origin {{ server {origin}; keepalive 256; keepalive_requests 1000000000; }}"
        )
    });
    let text = text
        .replace("UPSTREAM", &upstream)
        .replace("ENCRYPTED", encrypted)
        .replace("IDENTITY", &identity);
    let file = directory.join("nginx.conf");
    std::fs::write(&file, text).map_err(failed)?;
    Ok((address, file))
}

/// Debian installs nginx and haproxy outside a user's PATH.
pub(crate) fn path_with_sbin() -> String {
    format!(
        "{}:/usr/sbin:/sbin",
        std::env::var("PATH").unwrap_or_default()
    )
}
