//! Servers that others wrote, as upstreams that keep a list of all that they made of what they were sent.

use crate::support::PATIENCE;
use millpond_io::Address;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// One of them, until dropped.
pub(super) struct OtherServer {
    pub(super) name: &'static str,
    pub(super) address: Address,
    child: Child,
    log: PathBuf,
    directory: tempfile::TempDir,
}

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data");

impl OtherServer {
    /// Python's http.server.
    pub(super) fn python() -> Self {
        Self::with_script("python", "python3", "upstream.py").expect("python3 starts")
    }

    /// Node.js's http server; `None` where there is no Node.js, which is said aloud.
    pub(super) fn node() -> Option<Self> {
        Self::with_script("node", "node", "upstream.js")
    }

    fn with_script(name: &'static str, program: &str, script: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("seen.json");
        let mut command = Command::new(program);
        command.arg(format!("{DATA}/{script}")).arg(&log);
        let mut child = match command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn() {
            Ok(child) => child,
            Err(error) => {
                println!("SKIPPED: no upstream in {name}, for {program} does not start ({error})");
                return None;
            }
        };
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let port: u16 = line.trim().parse().unwrap();
        Some(Self {
            name,
            address: SocketAddr::from(([127, 0, 0, 1], port)).into(),
            child,
            log,
            directory,
        })
    }

    /// nginx, which reads each body whole, and logs it, because it passes it on to itself. It listens on unix sockets,
    /// because it cannot report the port that it was given.
    pub(super) fn nginx() -> Self {
        let text = std::fs::read_to_string(format!("{DATA}/upstream.nginx.conf")).unwrap();
        Self::with_conf("nginx", &["-c"], &text, "front.sock")
    }

    /// haproxy as a balancer of TCP connections to `server`, whose clients send their address by the PROXY protocol,
    /// and which sends it too: see [`Self::socket`].
    pub(super) fn haproxy(server: SocketAddr) -> Self {
        let text = std::fs::read_to_string(format!("{DATA}/balancer.haproxy.conf")).unwrap();
        let text = text.replace("SERVER", &server.to_string());
        Self::with_conf("haproxy", &["-db", "-f"], &text, "v1.sock")
    }

    /// nginx, which requires a PROXY header and responds with its content.
    pub(super) fn nginx_told() -> Self {
        let text = std::fs::read_to_string(format!("{DATA}/told.nginx.conf")).unwrap();
        Self::with_conf("nginx", &["-c"], &text, "front.sock")
    }

    /// The same of haproxy.
    pub(super) fn haproxy_told() -> Self {
        let text = std::fs::read_to_string(format!("{DATA}/told.haproxy.conf")).unwrap();
        Self::with_conf("haproxy", &["-db", "-f"], &text, "front.sock")
    }

    /// Where it listens under this name.
    pub(super) fn socket(&self, name: &str) -> PathBuf {
        self.directory.path().join(format!("{name}.sock"))
    }

    /// One that reads a file, in which HERE is its directory.
    fn with_conf(name: &'static str, flags: &[&str], text: &str, socket: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let conf = directory.path().join("conf");
        let here = directory.path().display().to_string();
        std::fs::write(&conf, text.replace("HERE", &here)).unwrap();
        let child = Command::new(name)
            .args(flags)
            .arg(&conf)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{name}: {error}; scripts/setup test installs it"));
        let server = Self {
            name,
            address: Address::Unix(directory.path().join(socket)),
            child,
            log: directory.path().join("seen.json"),
            directory,
        };
        server.wait_for_socket();
        server
    }

    fn wait_for_socket(&self) {
        let Address::Unix(path) = &self.address else {
            return;
        };
        let started = Instant::now();
        while std::os::unix::net::UnixStream::connect(path as &Path).is_err() {
            assert!(started.elapsed() < PATIENCE, "{} does not start", self.name);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Its port; of those that have one.
    pub(super) fn inet(&self) -> SocketAddr {
        self.address.inet().unwrap()
    }

    /// Everything it has said that it has seen: each request that it read to its end, and what it refused.
    pub(super) fn seen(&self) -> Vec<Value> {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        // nginx writes the bytes of a body as they are.
        let text: String = bytes.into_iter().map(char::from).collect();
        // The last line may be half of one.
        let end = text.rfind('\n').map_or(0, |end| end + 1);
        text[..end]
            .lines()
            .map(|line| {
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
            })
            .collect()
    }

    /// Requests it saw after the first `count`, up to a request for `mark`, which was sent after all of those: it has
    /// one thread, or writes before it responds.
    pub(super) fn seen_until(&self, count: usize, mark: &str) -> Vec<Value> {
        let started = Instant::now();
        loop {
            let mut seen = self.seen().split_off(count);
            let is_mark =
                |value: &Value| value["line"].as_str().is_some_and(|it| it.contains(mark));
            if let Some(at) = seen.iter().position(is_mark) {
                seen.truncate(at);
                return seen;
            }
            assert!(started.elapsed() < PATIENCE, "{}: no {mark}", self.name);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for OtherServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
