//! Minutes of mixed traffic against all three servers: does anything grow, leak or not add up?
//!
//! Visitors play scenarios whose responses they know: whole bodies, chunks, pipelines, ranges, large
//! files, refusals, visits that break off, connections that are forgotten. Meanwhile memory,
//! descriptors and the identities of `/metrics` are sampled. Growth is the median of the last third
//! over that of the middle one: the first is warm-up, and a spike is no growth.
//!
//! Visitors pause, so that the run is about time and not about load.

mod traffic;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use traffic::{ENTITY, FILES, LARGE_BYTES, PLAINTEXT, Scenario, Visitor, pattern};

use crate::bench;
use crate::bench::Bench;
use crate::bench::candidates::{Record, Spread};
use crate::hostile::subject::{Metrics, Subject, broken_identity, sum};

/// Seconds by default.
pub(crate) const SECONDS_DEFAULT: u64 = 600;
/// Visitors of each server.
const VISITORS: u64 = 3;
/// Between two visits of one visitor.
const PAUSE: Duration = Duration::from_millis(10);
/// So many samples of a run.
const SAMPLES: u64 = 150;
/// Shorter than this, nothing is said about growth: pools and caches still fill.
const FLAT_SECONDS_MIN: u64 = 60;
/// Failures that are printed; there may be more.
const FAILURES_MAX: usize = 10;

/// A server, what its visitors do, and how much its memory may move.
struct Stay {
    name: &'static str,
    subject: Subject,
    scenarios: &'static [Scenario],
    /// A store's memory goes up and down with what it writes behind.
    growth_bytes_max: u64,
    /// A store opens and closes files of its own.
    has_files_of_its_own: bool,
    descriptors: usize,
    samples: Vec<Sample>,
}

#[derive(Clone, Copy)]
struct Sample {
    resident_bytes: u64,
    descriptors: usize,
}

/// The visitors' findings, and whether they are to go on.
#[derive(Default)]
struct Visits {
    is_over: AtomicBool,
    count: AtomicU64,
    failures: Mutex<Vec<String>>,
}

impl Visits {
    fn fail(&self, sentence: String) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() < FAILURES_MAX {
            failures.push(sentence);
        }
    }
}

/// Runs for so long with a driver, says whether all is flat and adds up, and records it.
pub(crate) fn run(seconds: u64, driver: &str) -> Result<(), String> {
    let bench = bench::prepare(bench::Plan::full(), true)?;
    let report = soak(&bench, seconds, driver)?;
    let command = format!("cargo bench-suite soak {seconds} {driver}");
    Record::new(&format!("soak-{driver}"), command, &bench.machine)?
        .with("driver", driver)
        .with("seconds", seconds)
        .with("servers", report)
        .write()
}

/// A few seconds with the development build: every scenario, every identity, nothing about growth.
pub(crate) fn smoke() -> Result<(), String> {
    let bench = bench::prepare(bench::Plan::smoke(), true)?;
    soak(&bench, 4, "auto").map(|_| ())
}

fn soak(bench: &Bench, seconds: u64, driver: &str) -> Result<Vec<Value>, String> {
    let mut stays = start_all(bench, driver)?;
    let visits = Visits::default();
    let statuses = std::thread::scope(|scope| {
        let mut visitors = Vec::new();
        for (number, stay) in stays.iter().enumerate() {
            for visitor in 0..VISITORS {
                let visitor = Visitor::new(stay.subject.address, number as u64 * 100 + visitor + 1);
                let (scenarios, visits) = (stay.scenarios, &visits);
                let thread = scope.spawn(move || visit(visitor, scenarios, visits));
                visitors.push((number, thread));
            }
        }
        watch(&mut stays, &visits, Duration::from_secs(seconds));
        visits.is_over.store(true, Ordering::Relaxed);
        let mut statuses: Vec<BTreeMap<u16, u64>> = vec![BTreeMap::new(); 3];
        for (number, visitor) in visitors {
            for (status, count) in visitor.join().unwrap_or_default() {
                *statuses[number].entry(status).or_default() += count;
            }
        }
        statuses
    });
    let mut report = Vec::new();
    for (stay, statuses) in stays.into_iter().zip(&statuses) {
        let name = stay.name;
        match stay.end(statuses, seconds) {
            Ok(summary) => report.push(summary),
            Err(sentence) => visits.fail(format!("serve {name}: {sentence}")),
        }
    }
    let failures = visits
        .failures
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    for sentence in &failures {
        println!("{sentence}");
    }
    println!("{} visits in {seconds} s", visits.count.into_inner());
    match failures.is_empty() {
        true => Ok(report),
        false => Err("the soak found something: see above".to_owned()),
    }
}

/// Plays scenarios until the end; returns the responses it read completely.
fn visit(mut visitor: Visitor, scenarios: &[Scenario], visits: &Visits) -> BTreeMap<u16, u64> {
    let mut number = 0;
    while !visits.is_over.load(Ordering::Relaxed) {
        // Each once before chance decides, so that a short run has them all.
        let chosen = match number < scenarios.len() {
            true => number,
            false => visitor.below(scenarios.len() as u64) as usize,
        };
        number += 1;
        let (name, play) = scenarios[chosen];
        if let Err(sentence) = play(&mut visitor) {
            visits.fail(format!("{name}: {sentence}"));
        }
        visits.count.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(PAUSE);
    }
    visitor.statuses
}

fn start_all(bench: &Bench, driver: &str) -> Result<Vec<Stay>, String> {
    let site = bench.scratch.join(format!("soak-site-{driver}"));
    let data = bench.scratch.join(format!("soak-data-{driver}"));
    let large: Vec<u8> = (0..LARGE_BYTES).map(pattern).collect();
    let fill = || {
        std::fs::create_dir_all(&site)?;
        // Data of an earlier run would be found instead of nothing; it may not be there.
        let _ = std::fs::remove_dir_all(&data);
        for number in 0..40 {
            let text = format!("file {number}\n").repeat(number + 1);
            std::fs::write(site.join(format!("small-{number}")), text)?;
        }
        std::fs::write(site.join("large"), &large)
    };
    fill().map_err(|error| format!("{} cannot be filled: {error}", site.display()))?;
    let (site, data) = (site.display().to_string(), data.display().to_string());
    let entity = [
        "entity",
        "--data",
        &data,
        "--cache",
        "8MiB",
        "--memtable",
        "4MiB",
        "--sync",
        "off",
    ];
    let servers: [(&str, &[&str], &[Scenario], u64); 3] = [
        ("plaintext", &["plaintext"], PLAINTEXT, 1 << 20),
        ("files", &["files", &site], FILES, 1 << 20),
        ("entity", &entity, ENTITY, 8 << 20),
    ];
    let mut stays = Vec::new();
    for (name, words, scenarios, growth_bytes_max) in servers {
        let common = ["--driver", driver, "--idle-timeout", "20s"];
        let words = [words, &common].concat();
        let subject = Subject::start(&bench.millpond, bench.machine.server_cpu, &[], &words)?;
        let at_rest = subject.wait_until("the first connection closes", needs_own_connection)?;
        debug_assert!(needs_own_connection(&at_rest));
        stays.push(Stay {
            name,
            scenarios,
            growth_bytes_max,
            has_files_of_its_own: name == "entity",
            descriptors: subject.holdings()?.descriptors,
            subject,
            samples: Vec::new(),
        });
    }
    Ok(stays)
}

/// No other connection is open.
fn needs_own_connection(metrics: &Metrics) -> bool {
    sum(metrics, "millpond_http_connections") == 1.0
}

fn watch(stays: &mut [Stay], visits: &Visits, whole: Duration) {
    let begun = Instant::now();
    let step = (whole / SAMPLES as u32).max(Duration::from_secs(1));
    while begun.elapsed() < whole {
        std::thread::sleep(step.min(whole.saturating_sub(begun.elapsed())));
        for stay in stays.iter_mut() {
            if let Err(sentence) = stay.sample() {
                visits.fail(format!("serve {}: {sentence}", stay.name));
            }
        }
    }
}

impl Stay {
    fn sample(&mut self) -> Result<(), String> {
        let holdings = self.subject.holdings()?;
        self.samples.push(Sample {
            resident_bytes: holdings.resident_bytes,
            descriptors: holdings.descriptors,
        });
        match broken_identity(&self.subject.metrics()?) {
            Some(sentence) => Err(sentence),
            None => Ok(()),
        }
    }

    /// No clients come any more: everything is given back, adds up, and stops in order.
    fn end(self, statuses: &BTreeMap<u16, u64>, seconds: u64) -> Result<Value, String> {
        let metrics = self.subject.wait_until("all is given back", |metrics| {
            needs_own_connection(metrics) && leftover(metrics).is_none()
        });
        let metrics = metrics.map_err(|sentence| {
            let last = self.subject.metrics().ok();
            let left = last.as_ref().and_then(leftover).unwrap_or_default();
            format!("{sentence} {left}")
        })?;
        if let Some(sentence) = broken_identity(&metrics) {
            return Err(sentence);
        }
        self.check_responses(&metrics, statuses)?;
        let (growth_bytes, descriptors) = (
            growth(&self.samples, |s| s.resident_bytes as f64),
            self.descriptors,
        );
        let opened = growth(&self.samples, |s| s.descriptors as f64);
        let mut now = self.subject.holdings()?.descriptors;
        // The connection that was asked last may still be closing.
        for _ in 0..50 {
            if now <= descriptors {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
            now = self.subject.holdings()?.descriptors;
        }
        if !self.has_files_of_its_own && now > descriptors {
            return Err(format!(
                "{now} descriptors are open, {descriptors} were before"
            ));
        }
        let is_long = seconds >= FLAT_SECONDS_MIN;
        if is_long && (growth_bytes > self.growth_bytes_max as f64 || opened > 16.0) {
            return Err(format!(
                "memory grew by {growth_bytes:.0} bytes and descriptors by {opened:.0} from the \
                 middle third of the run to the last"
            ));
        }
        let answered: u64 = statuses.values().sum();
        println!(
            "serve {:<10} {answered} responses, as expected; resident {:.1} MiB, {:+.2} MiB over a third \
             of the run; {now} descriptors, {descriptors} at first; all adds up",
            self.name,
            median(&self.samples, |s| s.resident_bytes as f64) / f64::from(1 << 20),
            growth_bytes / f64::from(1 << 20),
        );
        let samples = self.samples.iter();
        let resident_bytes: Vec<f64> = samples.map(|s| s.resident_bytes as f64).collect();
        let summary = json!({
            "server": self.name,
            "answers": statuses.iter().map(|(k, v)| (k.to_string(), *v)).collect::<BTreeMap<_, _>>(),
            "growth_bytes": growth_bytes,
            "descriptors_before": descriptors,
            "descriptors_after": now,
            "resident_bytes": Spread::thirds(&resident_bytes),
        });
        self.drain()?;
        Ok(summary)
    }

    /// The server counted no response fewer than were read. It may count more: of visits that broke
    /// off, and ours to `/metrics`.
    fn check_responses(
        &self,
        metrics: &Metrics,
        statuses: &BTreeMap<u16, u64>,
    ) -> Result<(), String> {
        for (status, read) in statuses.iter().filter(|(status, _)| **status >= 200) {
            let sample =
                format!("millpond_http_responses_total{{shard=\"0\",status=\"{status}\"}}");
            let counted = metrics.get(&sample).copied().unwrap_or_default();
            if counted < *read as f64 {
                return Err(format!(
                    "{read} responses {status} were read and {counted} counted"
                ));
            }
        }
        Ok(())
    }

    /// Asked to stop in the middle of a response, the server ends it first.
    fn drain(self) -> Result<(), String> {
        let is_files = self.name == "files";
        let mut half = Connection::open(self.subject.address)?;
        if is_files {
            half.send(b"GET /large HTTP/1.1\r\nHost: soak\r\n\r\n")?;
            half.receive_some()?;
        }
        let stopping = std::thread::spawn(move || self.subject.stop());
        if is_files {
            let answer = half.answer(false)?;
            if answer.body.len() as u64 != LARGE_BYTES {
                return Err("a response that had begun was cut by the stop".to_owned());
            }
        }
        drop(half);
        match stopping.join() {
            Ok(Ok(0)) => Ok(()),
            Ok(Ok(status)) => Err(format!("it stopped with status {status}")),
            Ok(Err(sentence)) => Err(sentence),
            Err(_) => Err("stopping it failed".to_owned()),
        }
    }
}

/// What should be free when no client is connected, and is not.
fn leftover(metrics: &Metrics) -> Option<String> {
    let is_of_requests = |name: &str| {
        name.starts_with("millpond_files_transfers")
            || name.starts_with("millpond_pool_live_objects") && name.contains("\"http_streams\"")
            || name.starts_with("millpond_pool_live_objects") && name.contains("\"files_tasks\"")
    };
    let left = metrics
        .iter()
        .find(|(name, value)| is_of_requests(name) && **value > 0.0);
    left.map(|(name, value)| format!("{name} is {value}"))
}

fn median(samples: &[Sample], read: fn(&Sample) -> f64) -> f64 {
    let mut values: Vec<f64> = samples.iter().map(read).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The median of the last third above that of the middle one.
fn growth(samples: &[Sample], read: fn(&Sample) -> f64) -> f64 {
    let third = samples.len() / 3;
    median(&samples[2 * third..], read) - median(&samples[third..2 * third], read)
}

/// Goal: growth is that of the last third over the middle one; the warm-up and a spike are none.
#[test]
fn growth_is_what_lasts() {
    let samples = |values: [u64; 9]| {
        values.map(|resident_bytes| Sample {
            resident_bytes,
            descriptors: 0,
        })
    };
    let read = |sample: &Sample| sample.resident_bytes as f64;
    assert_eq!(
        growth(&samples([1, 5, 9, 10, 10, 10, 10, 99, 10]), read),
        0.0
    );
    assert_eq!(
        growth(&samples([1, 5, 9, 10, 11, 12, 13, 14, 15]), read),
        3.0
    );
}

// A client that waits for each response and reads it whole. Nothing of ours: see `hostile`.

/// Far beyond any response, so that a hang ends as a failure.
const PATIENCE: Duration = Duration::from_secs(60);

/// One response.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn field(&self, name: &str) -> Option<&str> {
        self.head.split("\r\n").find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// A connection with what came and was not read.
#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Connection {
    fn open(address: SocketAddr) -> Result<Self, String> {
        let opened = TcpStream::connect(address).and_then(|stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            stream.set_nodelay(true)?;
            Ok(stream)
        });
        let stream = opened.map_err(|error| format!("connecting: {error}"))?;
        Ok(Self {
            stream,
            unread: Vec::new(),
        })
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.stream
            .write_all(bytes)
            .map_err(|error| format!("sending: {error}"))
    }

    fn ask(&mut self, request: &str) -> Result<Answer, String> {
        self.send(request.as_bytes())?;
        self.answer(request.starts_with("HEAD "))
    }

    /// The next response; interim ones too.
    fn answer(&mut self, is_head: bool) -> Result<Answer, String> {
        let end = loop {
            if let Some(at) = find(&self.unread, b"\r\n\r\n") {
                break at + 4;
            }
            self.receive()?;
        };
        let head = String::from_utf8_lossy(&self.unread[..end]).into_owned();
        self.unread.drain(..end);
        let status = head
            .strip_prefix("HTTP/1.1 ")
            .and_then(|rest| rest.get(..3)?.parse().ok());
        let status: u16 = status.ok_or_else(|| format!("no response: {head:?}"))?;
        let mut answer = Answer {
            status,
            head,
            body: Vec::new(),
        };
        if is_head || status < 200 || matches!(status, 204 | 304) {
            return Ok(answer);
        }
        let length = answer.field("content-length").map(str::parse::<usize>);
        let Some(Ok(length)) = length else {
            return Err(format!("a response without a length: {}", answer.head));
        };
        while self.unread.len() < length {
            self.receive()?;
        }
        answer.body = self.unread.drain(..length).collect();
        Ok(answer)
    }

    fn receive(&mut self) -> Result<(), String> {
        match self.receive_some()? {
            0 => Err("closed in the middle of a response".to_owned()),
            _ => Ok(()),
        }
    }

    /// Takes what is there; 0 at the end.
    fn receive_some(&mut self) -> Result<usize, String> {
        let mut part = [0; 64 * 1024];
        let count = self
            .stream
            .read(&mut part)
            .map_err(|error| format!("receiving: {error}"))?;
        self.unread.extend_from_slice(&part[..count]);
        Ok(count)
    }

    /// Reads until the server closes.
    fn expect_end(mut self) -> Result<(), String> {
        while self.receive_some()? > 0 {}
        Ok(())
    }
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}
