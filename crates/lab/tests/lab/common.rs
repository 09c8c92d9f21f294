//! The common parts of the tests: a launcher, targets made of the system's own programs, and a free port.

use std::ffi::OsString;
use std::net::{SocketAddr, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::path::Path;
use std::time::{Duration, Instant};

use millpond_io::Address;
use millpond_lab::allocator::{self, Allocator};
use millpond_lab::launch::LaunchSpec;
use millpond_lab::port;
use millpond_lab::probe::Probe;
use millpond_lab::subject::{Launcher, Subject};
use millpond_lab::{CompareConfig, ServerRequests, Target};

pub(crate) fn launcher() -> Launcher {
    Launcher {
        program: env!("CARGO_BIN_EXE_millpond-lab-launch").into(),
    }
}

pub(crate) fn spec(directory: &Path, command: &[&str]) -> LaunchSpec {
    LaunchSpec {
        log: directory.join("target.log"),
        command: command.iter().map(OsString::from).collect(),
        ..LaunchSpec::default()
    }
}

/// A comparison of `words` at `address` under `allocators`, as short as it can be.
pub(crate) fn short_comparison(
    directory: &Path,
    words: &[String],
    address: SocketAddr,
    allocators: Vec<String>,
) -> CompareConfig {
    let requests = Box::new(ServerRequests::get(address, "/"));
    let words = words.iter().map(OsString::from).collect();
    let mut config = CompareConfig::new(Target::Command { words, requests }, launcher());
    config.allocators = Some(allocators);
    config.rounds = Some(2);
    config.time_budget = Duration::from_secs(10);
    config.connections = 4;
    config.rate_per_s = Some(200.0);
    config.out = directory.join("report");
    config.seed = Some(1);
    config
}

/// An address that no other program takes before the target that gets it: its port lies outside the range that the
/// kernel gives away, and no other test has it, since each keeps a name for its port until it ends.
pub(crate) fn free_address() -> SocketAddr {
    loop {
        let port = port::choose().expect("no free port");
        let name = format!("millpond-test-port-{port}");
        let name = UnixAddress::from_abstract_name(name).expect("name");
        if let Ok(kept) = UnixListener::bind_addr(&name) {
            std::mem::forget(kept);
            return SocketAddr::from(([127, 0, 0, 1], port));
        }
    }
}

pub(crate) fn probe(address: SocketAddr) -> Probe {
    Probe {
        addresses: [Address::Inet(address)].into(),
        host: address.to_string(),
        path: "/".to_owned(),
        tls: None,
    }
}

/// Whether something accepts connections there.
pub(crate) fn is_taken(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_ok()
}

/// Adds the allocator and the variables that it needs.
pub(crate) fn put_under(spec: &mut LaunchSpec, allocator: &Allocator) {
    spec.preload.extend(allocator.library.clone());
    spec.environment.extend(allocator.variables());
}

pub(crate) fn start(spec: &LaunchSpec) -> Subject {
    let mut subject = Subject::prepare(&launcher(), spec, "the target").expect("prepare");
    subject.go().expect("go");
    subject
}

/// nginx with two workers and a configuration of its own in `directory`.
pub(crate) fn nginx(directory: &Path, address: SocketAddr, daemon: &str) -> Vec<String> {
    let file = directory.join("nginx.conf");
    let text = format!(
        "worker_processes 2; pid {0}/pid; error_log {0}/error.log; {daemon}\n\
         events {{ }}\n\
         http {{ access_log off; client_body_temp_path {0}/b; proxy_temp_path {0}/p;\n\
         fastcgi_temp_path {0}/f; uwsgi_temp_path {0}/u; scgi_temp_path {0}/s;\n\
         server {{ listen {address}; location / {{ return 200 'hello'; }} }} }}\n",
        directory.display()
    );
    std::fs::write(&file, text).expect("write");
    vec![
        "nginx".to_owned(),
        "-c".to_owned(),
        file.display().to_string(),
    ]
}

/// A small HTTP server in the interpreter itself (no shim script in front of it).
pub(crate) fn python_server(address: SocketAddr) -> Vec<String> {
    let words = ["/usr/bin/env", "python3", "-m", "http.server", "--bind"];
    let mut command: Vec<String> = words.map(str::to_owned).to_vec();
    command.extend([address.ip().to_string(), address.port().to_string()]);
    command
}

/// A Redis that keeps nothing on disk: it speaks no HTTP and is linked to jemalloc.
pub(crate) fn redis_server(address: SocketAddr) -> Vec<String> {
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    let words = ["redis-server", "--bind", &ip, "--port", &port, "--save", ""];
    words.map(str::to_owned).to_vec()
}

/// Waits for something that must happen; the bound only ends a broken test.
pub(crate) fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(300);
    while !happened() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The allocators of this system that can be preloaded. Without any (no root to install them) there
/// is nothing to prove, and the test prints that and passes.
pub(crate) fn preloadable() -> Vec<Allocator> {
    let mut found = allocator::discover();
    found.retain(|one| one.library.is_some());
    if found.is_empty() {
        eprintln!("skipped: no allocator is installed; scripts/setup installs them");
    }
    found
}

/// True if the shell would find `program`; otherwise the caller's test is skipped with a message.
pub(crate) fn has_program(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|directory| directory.join(program).is_file());
    if !found {
        eprintln!("skipped: {program} is not installed; scripts/setup installs it");
    }
    found
}

/// Node itself, not a script in front of it; a test without it prints that and passes.
pub(crate) fn node_server() -> Option<String> {
    has_program("node").then(|| "node".to_owned())
}

/// Whether an allocator is installed; prints a message if it is not.
pub(crate) fn is_here(name: &str) -> bool {
    let found = allocator::discover().iter().any(|one| one.name == name);
    if !found {
        eprintln!("skipped: {name} is not installed; scripts/setup installs it");
    }
    found
}
