//! The well-behaved client: `millpond load` at a constant rate over keep-alive connections.

use super::exchanges::{self, Exchange};
use super::subject::Subject;
use crate::bench::command::bounded;
use serde_json::Value;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

/// Connections of the client: one is free whenever a request is due, unless for 32 ms none was
/// answered.
pub(crate) const CONNECTIONS: usize = 64;

/// Newcomers at a time, each with a connection of its own for its one request.
const NEWCOMERS: &str = "4";
const NEWCOMERS_PER_S: &str = "250";

/// How it asks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Amount {
    /// So many requests, however long they take.
    Requests(u64),
    /// So long.
    Time(Duration),
}

/// What it asks for, how often, and where it runs.
#[derive(Debug)]
pub(crate) struct GoodClient<'a> {
    pub(crate) millpond: &'a Path,
    pub(crate) cpu: usize,
    /// Words in front of the program: its priority.
    pub(crate) before: &'a [&'static str],
    pub(crate) path: &'a str,
    pub(crate) rate_per_s: u64,
    pub(crate) amount: Amount,
    /// Before its answers count. What a newcomer meets is asked apart, see
    /// [`GoodClient::run_newcomers`].
    pub(crate) warm_up: Duration,
    /// How long newcomers come.
    pub(crate) newcomers: Duration,
    /// Where its record goes.
    pub(crate) record: PathBuf,
}

/// What it went through.
#[derive(Clone, Debug)]
pub(crate) struct Experience {
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    /// From when it left to when the kernel had the answer.
    pub(crate) kernel_p50_ns: f64,
    pub(crate) kernel_p99_ns: f64,
    /// Every request that was answered.
    pub(super) exchanges: Vec<Exchange>,
}

/// One run on its way.
pub(crate) struct Running {
    child: Child,
    record: PathBuf,
}

impl GoodClient<'_> {
    pub(crate) fn start(&self, subject: &Subject) -> Result<Running, String> {
        let limit = match self.amount {
            Amount::Requests(_) => super::subject::PATIENCE,
            Amount::Time(time) => time + super::subject::PATIENCE,
        };
        let (connections, rate) = (CONNECTIONS.to_string(), self.rate_per_s.to_string());
        let amount = match self.amount {
            Amount::Requests(count) => ["--requests".to_owned(), count.to_string()],
            Amount::Time(time) => ["--duration".to_owned(), in_ms(time)],
        };
        let warm_up = in_ms(self.warm_up);
        let mut words = vec!["-c", &connections, "-R", &rate, "--warm-up", &warm_up];
        words.extend(amount.iter().map(String::as_str));
        self.spawn(subject, limit, &words)
    }

    /// Clients that come for one request each: what the door is like.
    pub(crate) fn run_newcomers(&self, subject: &Subject) -> Result<Experience, String> {
        let words = ["-c", NEWCOMERS, "-R", NEWCOMERS_PER_S, "--no-keepalive"];
        let time = in_ms(self.newcomers);
        let words = [&words[..], &["--duration", &time]].concat();
        self.spawn(subject, super::subject::PATIENCE, &words)?
            .finish()
    }

    fn spawn(&self, subject: &Subject, limit: Duration, words: &[&str]) -> Result<Running, String> {
        let mut command = bounded(self.cpu, limit);
        command.args(self.before).arg(self.millpond);
        // Of the two drivers, the one to whose receives the kernel adds its stamps.
        command.args(["load", "-t", "1", "--driver", "epoll", "--timeout", "30s"]);
        let mut exchanges = OsString::from("requests=");
        exchanges.push(exchanges_beside(&self.record));
        command.args(words).arg("--json").arg(&self.record);
        command.arg("--print").arg(exchanges);
        command.arg(format!("http://{}{}", subject.address, self.path));
        let record = self.record.clone();
        let complaints = complaints_beside(&record);
        let file = File::create(&complaints)
            .map_err(|error| format!("{}: {error}", complaints.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .map_err(|error| format!("{command:?} cannot be started: {error}"))?;
        Ok(Running { child, record })
    }

    pub(crate) fn run(&self, subject: &Subject) -> Result<Experience, String> {
        self.start(subject)?.finish()
    }
}

/// Where it writes a line for each request.
fn exchanges_beside(record: &Path) -> PathBuf {
    record.with_extension("csv")
}

/// Where it writes what goes wrong.
fn complaints_beside(record: &Path) -> PathBuf {
    record.with_extension("stderr")
}

fn in_ms(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}

impl Running {
    pub(crate) fn finish(mut self) -> Result<Experience, String> {
        let status = self
            .child
            .wait()
            .map_err(|error| format!("millpond load: {error}"))?;
        // It judges its own figures with 4; its errors are judged here.
        if !matches!(status.code(), Some(0 | 4)) {
            let complaints = std::fs::read_to_string(complaints_beside(&self.record));
            let complaints = complaints.unwrap_or_else(|error| error.to_string());
            return Err(format!(
                "millpond load ended with {status}: {}",
                complaints.trim()
            ));
        }
        let shown = self.record.display();
        let text =
            std::fs::read_to_string(&self.record).map_err(|error| format!("{shown}: {error}"))?;
        let record: Value =
            serde_json::from_str(&text).map_err(|error| format!("{shown}: {error}"))?;
        let phases = record["errors"].as_object();
        let phases = phases.ok_or_else(|| format!("{shown} has no errors"))?;
        let kernel = |which: &str| {
            record["kernel_service_ns"][which]
                .as_f64()
                .ok_or_else(|| format!("{shown} has no kernel_service_ns.{which}"))
        };
        Ok(Experience {
            requests: record["requests"].as_u64().unwrap_or_default(),
            errors: phases.values().filter_map(Value::as_u64).sum(),
            kernel_p50_ns: kernel("p50")?,
            kernel_p99_ns: kernel("p99")?,
            exchanges: exchanges::read(&exchanges_beside(&self.record))?,
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
