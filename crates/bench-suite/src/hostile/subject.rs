//! The server under attack, seen from outside: its numbers, its memory, its descriptors.

use crate::bench::lasting;
use crate::bench::server::free_address;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Far beyond what any of this takes, so that a hang ends as a failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The values at one moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Holdings {
    pub(crate) resident_bytes: u64,
    pub(crate) descriptors: usize,
}

/// A running `millpond serve`; dropping it kills it.
pub(crate) struct Subject {
    child: Child,
    pub(crate) address: SocketAddr,
}

/// The samples of `/metrics`, by name and labels as they are written.
pub(crate) type Metrics = BTreeMap<String, f64>;

impl Subject {
    /// Starts it on `cpu`, behind the words of `before`.
    pub(crate) fn start(
        millpond: &Path,
        cpu: usize,
        before: &[&str],
        words: &[&str],
    ) -> Result<Self, String> {
        let address = free_address()?;
        let mut command = lasting(cpu);
        command.args(before).arg(millpond).arg("serve").args(words);
        command.args(["--shards", "1", "--listen", &address.to_string()]);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{command:?} cannot be started: {error}"))?;
        let mut subject = Self { child, address };
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            if let Ok(Some(status)) = subject.child.try_wait() {
                return Err(format!("{command:?} ended at once: {status}"));
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("{command:?} does not listen on {address}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(subject)
    }

    pub(crate) fn metrics(&self) -> Result<Metrics, String> {
        fetch_metrics(self.address)
    }

    /// Asks until `is_true` of the metrics; a server that is full may refuse meanwhile.
    pub(crate) fn wait_until(
        &self,
        what: &str,
        is_true: impl Fn(&Metrics) -> bool,
    ) -> Result<Metrics, String> {
        wait_for_metrics(what, || self.metrics(), is_true)
    }

    /// The most bytes that were ever resident, by the kernel's own book.
    pub(crate) fn peak_resident_bytes(&self) -> Result<u64, String> {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        Ok(kib.ok_or_else(|| format!("{path} has no VmHWM line"))? * 1024)
    }

    pub(crate) fn holdings(&self) -> Result<Holdings, String> {
        let pid = self.child.id();
        let rollup = format!("/proc/{pid}/smaps_rollup");
        let text =
            std::fs::read_to_string(&rollup).map_err(|error| format!("{rollup}: {error}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("Rss:"));
        let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        let fds = format!("/proc/{pid}/fd");
        let open = std::fs::read_dir(&fds).map_err(|error| format!("{fds}: {error}"))?;
        Ok(Holdings {
            resident_bytes: kib.ok_or_else(|| format!("{rollup} has no Rss line"))? * 1024,
            descriptors: open.count(),
        })
    }

    /// Asks it to stop in order; its exit status.
    pub(crate) fn stop(mut self) -> Result<i32, String> {
        let pid = self.child.id().to_string();
        // A closed server already shows by its status.
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let begun = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Ok(status.code().unwrap_or(-1)),
                Ok(None) if begun.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                _ => return Err(format!("the server does not stop within {PATIENCE:?}")),
            }
        }
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The samples that the listener at `address` has.
pub(crate) fn fetch_metrics(address: SocketAddr) -> Result<Metrics, String> {
    let fetch = || {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let text: Result<String, std::io::Error> = fetch();
    let text = text.map_err(|error| format!("GET /metrics: {error}"))?;
    if !text.starts_with("HTTP/1.1 200 ") {
        let line = text.lines().next().unwrap_or_default();
        return Err(format!("GET /metrics: {line}"));
    }
    Ok(parse_metrics(&text))
}

/// Fetches until `is_true` of the metrics. A fetch may fail meanwhile; the last failure is reported.
pub(crate) fn wait_for_metrics(
    what: &str,
    fetch: impl Fn() -> Result<Metrics, String>,
    is_true: impl Fn(&Metrics) -> bool,
) -> Result<Metrics, String> {
    let begun = Instant::now();
    loop {
        let metrics = fetch();
        if let Ok(metrics) = &metrics
            && is_true(metrics)
        {
            return Ok(metrics.clone());
        }
        if begun.elapsed() > PATIENCE {
            let last = metrics.err().unwrap_or_default();
            return Err(format!("{what}: not so after {PATIENCE:?} {last}"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn parse_metrics(text: &str) -> Metrics {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let samples = lines.filter_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    });
    samples.collect()
}

/// The sum of a metric over its labels.
pub(crate) fn sum(metrics: &Metrics, name: &str) -> f64 {
    let of_name = |sample: &str| {
        sample
            .strip_prefix(name)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('{'))
    };
    metrics
        .iter()
        .filter(|(sample, _)| of_name(sample))
        .map(|(_, value)| value)
        .sum()
}

/// The identities that `/metrics` promises, at any moment: what does not hold, if any.
pub(crate) fn broken_identity(metrics: &Metrics) -> Option<String> {
    for (name, reserved) in metrics {
        let Some(labels) = name.strip_prefix("millpond_pool_reserved_bytes") else {
            continue;
        };
        let part = |suffix: &str| {
            let name = format!("millpond_pool_{suffix}_bytes{labels}");
            metrics.get(&name).copied().unwrap_or(f64::NAN)
        };
        let (live, cached, waste) = (part("live"), part("cached"), part("waste"));
        // Whole bytes, far below what a double holds exactly.
        if live + cached + waste != *reserved {
            return Some(format!(
                "pool {labels}: reserved {reserved} is not live {live} + cached {cached} + waste {waste}"
            ));
        }
    }
    let requests = sum(metrics, "millpond_http_requests_total");
    let accepted = sum(metrics, "millpond_http_connections_accepted_total");
    let open = sum(metrics, "millpond_http_connections");
    if open > accepted || requests.is_nan() {
        return Some(format!(
            "{open} connections are open, of {accepted} ever accepted"
        ));
    }
    None
}

/// Goal: samples are found by name and labels, sums take all labels and no longer name, and a pool
/// that does not add up is named.
#[test]
fn metrics_are_read_and_checked() {
    let text = "HTTP/1.1 200 OK\r\n\r\n# HELP a b\na{s=\"0\"} 1\na{s=\"1\"} 2\na_total 9\n\
        millpond_pool_reserved_bytes{p=\"x\"} 6\nmillpond_pool_live_bytes{p=\"x\"} 1\n\
        millpond_pool_cached_bytes{p=\"x\"} 2\nmillpond_pool_waste_bytes{p=\"x\"} 3\n";
    let mut metrics = parse_metrics(text);
    assert_eq!(metrics.get("a{s=\"1\"}"), Some(&2.0));
    assert_eq!(sum(&metrics, "a"), 3.0);
    assert_eq!(broken_identity(&metrics), None);
    metrics.insert("millpond_pool_live_bytes{p=\"x\"}".to_owned(), 2.0);
    assert!(broken_identity(&metrics).is_some_and(|text| text.contains("live 2")));
}
