//! A server on its own CPU, for as long as a value lives.

use super::Bench;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest start: a store replays its log.
const START_MAX: Duration = Duration::from_secs(30);
/// Longest graceful stop.
const STOP_MAX: Duration = Duration::from_secs(40);

/// A running server; dropping it stops it.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    /// The process that answers: perf and /proc are asked about this one.
    pub(crate) pid: u32,
}

impl Server {
    /// Starts `millpond serve ...` on the server's CPU; it prints its address when it is ready.
    pub(crate) fn millpond(bench: &Bench, words: &[&str]) -> Result<Self, String> {
        let mut command = pinned(bench.machine.server_cpu);
        command.arg(&bench.millpond).arg("serve").args(words);
        command.args(["--listen", "127.0.0.1:0", "--shards", "1"]);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("the server cannot be started: {error}"))?;
        let pid = child.id();
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            // A server that fails closes its stdout, which ends this line.
            let _ = BufReader::new(output).read_line(&mut line);
        }
        let address = line
            .trim()
            .strip_prefix("listening on ")
            .and_then(|text| text.parse().ok());
        let server = Self {
            child,
            address: ([127, 0, 0, 1], 0).into(),
            pid,
        };
        let address = address.ok_or("the server did not say where it listens")?;
        Ok(Self::with_address(server, address))
    }

    fn with_address(mut self, address: SocketAddr) -> Self {
        self.address = address;
        self
    }

    /// Starts another program that will listen on `address`; ready when it accepts.
    pub(crate) fn other(mut command: Command, address: SocketAddr) -> Result<Self, String> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("{command:?} cannot be started: {error}"))?;
        let pid = child.id();
        let mut server = Self {
            child,
            address,
            pid,
        };
        let started = Instant::now();
        while TcpStream::connect(address).is_err() {
            let ended = server.child.try_wait().ok().flatten();
            if let Some(status) = ended {
                return Err(format!("{command:?} ended at once: {status}"));
            }
            if started.elapsed() > START_MAX {
                return Err(format!("{command:?} does not listen on {address}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// The body of `GET path`.
    pub(crate) fn get(&self, path: &str) -> Result<String, String> {
        let failed = |error: std::io::Error| format!("GET {path}: {error}");
        let mut stream = TcpStream::connect(self.address).map_err(failed)?;
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
    pub(crate) fn metric(&self, name: &str) -> Result<f64, String> {
        let text = self.get("/metrics")?;
        sum_metric(&text, name).ok_or_else(|| format!("/metrics has no {name}"))
    }

    /// Resident bytes, exact: the faster counters in /proc/PID/status are batched per thread.
    pub(crate) fn resident_bytes(&self) -> Result<u64, String> {
        let path = format!("/proc/{}/smaps_rollup", self.pid);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("Rss:"));
        let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        kib.map(|kib| kib * 1024)
            .ok_or_else(|| format!("{path} has no Rss line"))
    }

    /// CPU time used so far.
    pub(crate) fn cpu_time(&self) -> Result<Duration, String> {
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

/// A command that will run on one CPU.
pub(crate) fn pinned(cpu: usize) -> Command {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", &cpu.to_string()]);
    command
}

fn sum_metric(text: &str, name: &str) -> Option<f64> {
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
mod tests {
    use super::*;

    /// Goal: labels are summed, and a name that another begins with is not mistaken for it.
    #[test]
    fn metrics_are_summed_over_labels() {
        let text =
            "# HELP a_total x\na_total{s=\"0\"} 3\na_total{s=\"1\"} 4\na_total_more 9\nb 1\n";
        assert_eq!(sum_metric(text, "a_total"), Some(7.0));
        assert_eq!(sum_metric(text, "b"), Some(1.0));
        assert_eq!(sum_metric(text, "c"), None);
    }
}
