//! A server on its own CPU, for as long as a value lives.

use super::Bench;
use super::lasting;
use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longest start: a store replays its log.
pub(super) const START_MAX: Duration = Duration::from_secs(30);
/// Longest wait for one response.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Longest graceful stop.
const STOP_MAX: Duration = Duration::from_secs(40);

/// Where a server listens; prints as its flag takes it.
#[derive(Clone, Debug)]
pub(super) enum Address {
    Inet(SocketAddr),
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(address) => address.fmt(formatter),
            Self::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Inet(address)
    }
}

/// A connection of either kind.
trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

impl Address {
    fn connect(&self) -> std::io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Inet(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_read_timeout(Some(ANSWER_MAX))?;
                Box::new(stream)
            }
            Self::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(ANSWER_MAX))?;
                Box::new(stream)
            }
        })
    }
}

/// A running server; dropping it stops it.
pub(super) struct Server {
    child: Child,
    pub(super) address: Address,
    /// The responding process: perf and /proc are asked about this one.
    pub(super) pid: u32,
}

impl Server {
    /// Starts `millpond serve ...` behind the words in `before`.
    pub(super) fn millpond(
        bench: &Bench,
        words: &[&str],
        before: &[String],
    ) -> Result<Self, String> {
        Self::millpond_at(bench, free_address()?.into(), words, before)
    }

    /// The same on a unix socket.
    pub(super) fn millpond_on_unix(bench: &Bench, words: &[&str]) -> Result<Self, String> {
        // A socket's path may have 107 bytes, so not below the build's directory.
        let name = format!("millpond-bench-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        Self::millpond_at(bench, Address::Unix(path), words, &[])
    }

    fn millpond_at(
        bench: &Bench,
        address: Address,
        words: &[&str],
        before: &[String],
    ) -> Result<Self, String> {
        Self::program_at(bench, &bench.millpond, address, words, before)
    }

    /// Starts another build of it than the usual one.
    pub(super) fn build_of_millpond(
        bench: &Bench,
        program: &Path,
        words: &[&str],
    ) -> Result<Self, String> {
        Self::program_at(bench, program, free_address()?.into(), words, &[])
    }

    fn program_at(
        bench: &Bench,
        program: &Path,
        address: Address,
        words: &[&str],
        before: &[String],
    ) -> Result<Self, String> {
        let mut command = lasting(bench.machine.server_cpu);
        command.args(before).arg(program).arg("serve");
        command.args(words).args(["--shards", "1"]);
        command.args(["--listen", &address.to_string()]);
        Self::start(command, address)
    }

    /// Starts `millpond proxy` in front of `origin`, behind the words in `before`.
    pub(super) fn millpond_proxy(
        bench: &Bench,
        origin: &Address,
        words: &[&str],
        before: &[String],
    ) -> Result<Self, String> {
        let address = free_address()?;
        let mut command = lasting(bench.machine.server_cpu);
        command.args(before).arg(&bench.millpond).arg("proxy");
        command.args(["--upstream", &origin.to_string()]);
        command.args(words).args(["--shards", "1"]);
        command.args(["--listen", &address.to_string()]);
        Self::start(command, address)
    }

    /// Starts a program that will listen on `address`; ready when it accepts.
    pub(super) fn start(mut command: Command, address: impl Into<Address>) -> Result<Self, String> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("{command:?} cannot be started: {error}"))?;
        let pid = child.id();
        let mut server = Self {
            child,
            address: address.into(),
            pid,
        };
        let started = Instant::now();
        while server.address.connect().is_err() {
            let ended = server.child.try_wait().ok().flatten();
            if let Some(status) = ended {
                return Err(format!("{command:?} ended at once: {status}"));
            }
            if started.elapsed() > START_MAX {
                let address = &server.address;
                return Err(format!("{command:?} does not listen on {address}"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(server)
    }

    /// Ends it at once, as a failing machine does.
    pub(super) fn kill(mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
    }

    /// The body of `GET path`.
    pub(super) fn get(&self, path: &str) -> Result<String, String> {
        let failed = |error: std::io::Error| format!("GET {path}: {error}");
        let mut stream = self.address.connect().map_err(failed)?;
        let head = format!("GET {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).map_err(failed)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(failed)?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        if !head.starts_with("HTTP/1.1 200 ") {
            return Err(format!(
                "GET {path}: {}",
                head.lines().next().unwrap_or_default()
            ));
        }
        Ok(body.to_owned())
    }

    /// The sum of a metric over its labels.
    pub(super) fn metric(&self, name: &str) -> Result<f64, String> {
        let text = self.get("/metrics")?;
        sum_metric(&text, name).ok_or_else(|| format!("/metrics has no {name}"))
    }

    /// Resident bytes, exact: the faster counters in /proc/PID/status are batched per thread.
    pub(super) fn resident_bytes(&self) -> Result<u64, String> {
        let path = format!("/proc/{}/smaps_rollup", self.pid);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("Rss:"));
        kibibytes(line).ok_or_else(|| format!("{path} has no Rss line"))
    }

    /// The most bytes that were ever resident, by the kernel's own book.
    pub(super) fn peak_resident_bytes(&self) -> Result<u64, String> {
        let path = format!("/proc/{}/status", self.pid);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        kibibytes(line).ok_or_else(|| format!("{path} has no VmHWM line"))
    }

    /// CPU time used so far.
    pub(super) fn cpu_time(&self) -> Result<Duration, String> {
        let mut total_ns = 0;
        let tasks = format!("/proc/{}/task", self.pid);
        let entries = std::fs::read_dir(&tasks).map_err(|error| format!("{tasks}: {error}"))?;
        for task in entries.flatten() {
            let mut text = String::new();
            // A thread may end while the list is read.
            let _ =
                File::open(task.path().join("schedstat")).map(|mut f| f.read_to_string(&mut text));
            total_ns += text
                .split(' ')
                .next()
                .and_then(|ns| ns.parse::<u64>().ok())
                .unwrap_or(0);
        }
        Ok(Duration::from_nanos(total_ns))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // kill(1) rather than Child::kill: a store is to close in order.
        let _ = Command::new("kill")
            .args(["-TERM", &self.child.id().to_string()])
            .status();
        let started = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if started.elapsed() > STOP_MAX {
                let _ = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The bytes of `  123 kB`.
fn kibibytes(text: Option<&str>) -> Option<u64> {
    let kib: u64 = text?.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Ports that a server may be given: below those that the kernel gives to outgoing connections, or a client of the same
/// attack could sit on the port when the server binds it.
const PORTS: std::ops::Range<u16> = 10_000..32_000;

/// A loopback address whose port could be bound just now. Each call searches above the port of the previous call, and
/// each process begins elsewhere.
pub(crate) fn free_address() -> Result<SocketAddr, String> {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let count = u32::from(PORTS.end - PORTS.start);
    let first = std::process::id().wrapping_mul(101);
    for _ in 0..count {
        let offset = first.wrapping_add(CALLS.fetch_add(1, Ordering::Relaxed)) % count;
        // Below `count`, which is the length of a range of u16.
        let port = PORTS.start + offset as u16;
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return listener
                .local_addr()
                .map_err(|error| format!("no port for a server: {error}"));
        }
    }
    Err(format!("no port for a server: none of {PORTS:?} is free"))
}

/// The sum of the samples of a metric in the text of `/metrics`; a name may go on with labels.
pub(super) fn sum_metric(text: &str, name: &str) -> Option<f64> {
    let mut values = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        if !rest.starts_with(['{', ' ']) {
            return None;
        }
        rest.rsplit(' ').next()?.parse::<f64>().ok()
    });
    let first = values.next()?;
    Some(first + values.sum::<f64>())
}

#[cfg(test)]
#[path = "tests/server.rs"]
mod tests;
