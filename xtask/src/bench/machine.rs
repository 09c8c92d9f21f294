//! What the figures were measured on, and which CPU does what.

use super::awake::Awake;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// The machine as far as it bears on a figure.
pub(crate) struct Machine {
    /// The server's CPU.
    pub(crate) server_cpu: usize,
    /// The generator's CPU.
    pub(crate) generator_cpu: usize,
    awake: Option<Awake>,
    /// What `millpond version` says: features, storage engine and how that was built.
    build: Vec<String>,
}

impl Machine {
    /// Picks two CPUs; with one alone, server and generator would measure each other. `millpond` is what is measured.
    pub(crate) fn look(millpond: &Path) -> Result<Self, String> {
        let cpus = allowed_cpus(&read("/proc/self/status"));
        let [server_cpu, generator_cpu, ..] = cpus[..] else {
            return Err(
                "the benchmarks need two CPUs: one for the server, one for the generator"
                    .to_owned(),
            );
        };
        Ok(Self {
            server_cpu,
            generator_cpu,
            awake: None,
            build: lines(millpond, "version"),
        })
    }

    /// Idle CPUs stay awake from now on, or sleep as the system has it; see [`super::awake`].
    pub(crate) fn keep_awake(&mut self, is_wanted: bool) {
        self.awake = if is_wanted { Awake::ask() } else { None };
        if is_wanted && self.awake.is_none() {
            println!("idle CPUs sleep: /dev/cpu_dma_latency needs root, and a kernel that has it");
        }
    }

    /// For the record.
    pub(crate) fn describe(&self) -> Value {
        let field = |file: &str, name: &str| {
            let text = read(file);
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        json!({
            "kernel": read("/proc/sys/kernel/osrelease").trim(),
            "cpu": field("/proc/cpuinfo", "model name"),
            "cpus": allowed_cpus(&read("/proc/self/status")).len(),
            "memory": field("/proc/meminfo", "MemTotal"),
            "rustc": first_line("rustc", &["--version"]),
            "build": self.build,
            "commit": first_line("git", &["describe", "--always", "--dirty"]),
            "wrk": first_line("wrk", &["-v"]).map(|line| line.chars().take(20).collect::<String>()),
            "nginx": first_line("nginx", &["-v"]),
            "haproxy": first_line("haproxy", &["-v"]).or_else(|| first_line("/usr/sbin/haproxy", &["-v"])),
            "redis": first_line("redis-server", &["--version"]),
            "etcd": first_line("etcd", &["--version"]),
            "valgrind": first_line("valgrind", &["--version"]),
            "server_cpu": self.server_cpu,
            "generator_cpu": self.generator_cpu,
            "idle_cpus": if self.awake.is_some() { "stay awake" } else { "sleep as the system has it" },
        })
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The first line a program prints; some print their version on stderr.
pub(crate) fn first_line(program: &str, words: &[&str]) -> Option<String> {
    let output = Command::new(program).args(words).output().ok()?;
    let both = [output.stdout, output.stderr].concat();
    Some(
        String::from_utf8_lossy(&both)
            .lines()
            .next()?
            .trim()
            .to_owned(),
    )
}

/// What a program prints for one word; nothing if it cannot be run.
fn lines(program: &Path, word: &str) -> Vec<String> {
    let output = Command::new(program).arg(word).output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines().map(str::to_owned).collect()
}

/// Reads `Cpus_allowed_list: 0-2,5` of /proc/PID/status.
fn allowed_cpus(status: &str) -> Vec<usize> {
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let mut cpus = Vec::new();
    for part in list.unwrap_or_default().trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            cpus.extend(first..=last);
        }
    }
    cpus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(
            allowed_cpus("Name:\tx\nCpus_allowed_list:\t0-2,5\n"),
            [0, 1, 2, 5]
        );
        assert_eq!(allowed_cpus("Cpus_allowed_list:\t3\n"), [3]);
        assert!(allowed_cpus("").is_empty());
    }
}
