//! The common parts of the attacks on resources: a server of their own, a good client beside the attack, and the limits
//! on what the server held at most and holds afterwards.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::hostile::subject::{
    Metrics, PATIENCE, broken_identity, fetch_metrics, sum, wait_for_metrics,
};

use super::client::Client;
use super::server::{Launch, Server};

/// `--memory` of the entity servers that are attacked.
const MEMORY: &str = "128MiB";
const MEMORY_BYTES: u64 = 128 << 20;
/// The memory of the process beside `--memory`, as docs/explanation/memory-of-the-servers.md says.
const PROCESS_BYTES: u64 = 32 << 20;
/// Of each connection: its state, and what the engine and malloc lose beside it.
const CONNECTION_BYTES: u64 = 4 << 10;
/// Tables and logs that the engine may have opened since.
const ENGINE_FILES: u64 = 64;
/// The memory of an attack that may stay resident: free memory of pools and of malloc.
const RESIDENT_LEFT_BYTES: u64 = 8 << 20;
/// A bound on the silence of a client that waits only for the server: far above the delay that a busy machine adds.
pub(super) const GAP_MAX: Duration = Duration::from_secs(10);
/// Longest stop: the drain timeout, and what closing a store takes.
pub(super) const STOP_MAX: Duration = Duration::from_secs(45);

/// Where an attack takes place.
pub(super) struct Scene {
    pub(super) launch: Launch,
    pub(super) driver: String,
    /// Made for this attack alone, removed after it.
    pub(super) directory: PathBuf,
    pub(super) is_smoke: bool,
    /// The network is this attack's own, so that addresses can be added.
    pub(super) has_own_network: bool,
}

/// The result of an attack that ended as it should.
pub(super) enum Outcome {
    Stood(Value),
    /// This machine cannot show it, and why.
    LeftOut(String),
}

/// When both sides of an attack end.
pub(super) struct Stop(AtomicBool);

impl Stop {
    pub(super) fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Runs an attack and a good client beside each other for so long.
pub(super) fn beside<A: Send, G: Send>(
    time: Duration,
    attack: impl FnOnce(&Stop) -> A + Send,
    good: impl FnOnce(&Stop) -> G + Send,
) -> Result<(A, G), String> {
    let stop = Stop(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let attack = scope.spawn(|| attack(&stop));
        let good = scope.spawn(|| good(&stop));
        std::thread::sleep(time);
        stop.0.store(true, Ordering::Relaxed);
        match (attack.join(), good.join()) {
            (Ok(attack), Ok(good)) => Ok((attack, good)),
            _ => Err("a client panicked".to_owned()),
        }
    })
}

impl Scene {
    /// How long an attack lasts.
    pub(super) fn time(&self) -> Duration {
        match self.is_smoke {
            true => Duration::from_millis(1500),
            false => Duration::from_secs(8),
        }
    }

    /// One count for a quick check, another for the whole.
    pub(super) fn count(&self, smoke: usize, full: usize) -> usize {
        if self.is_smoke { smoke } else { full }
    }

    pub(super) fn entity(&self, flags: &[&str]) -> Result<Stage, String> {
        let data = self.directory.join("data").display().to_string();
        let memory = ["--memory", MEMORY, "--disk-reserve", "64MiB"];
        let words = [&["serve", "entity", "--data", &data], &memory[..]].concat();
        self.stage(&[&words[..], flags].concat(), None)
    }

    pub(super) fn plaintext(&self, flags: &[&str]) -> Result<Stage, String> {
        self.stage(&[&["serve", "plaintext"], flags].concat(), None)
    }

    pub(super) fn proxy(&self, upstream: SocketAddr, flags: &[&str]) -> Result<Stage, String> {
        let upstream = upstream.to_string();
        self.stage(&[&["proxy", "--upstream", &upstream], flags].concat(), None)
    }

    pub(super) fn stage(
        &self,
        words: &[&str],
        address: Option<SocketAddr>,
    ) -> Result<Stage, String> {
        let words = [words, &["--driver", &self.driver]].concat();
        let server = Server::start_at(&self.launch, &words, address)?;
        let metrics = server.metrics()?;
        let usage = Usage::of(server.pid()).ok_or("the server ended at once")?;
        let connections_max = metrics
            .get("millpond_http_limit{limit=\"connections_max\"}")
            .copied()
            .unwrap_or_default() as u64;
        Ok(Stage {
            watch: PeakWatch::start(server.pid()),
            queues: Some(QueueWatch::start(server.metrics_address)),
            queue_peaks: Value::Null,
            server,
            before: usage,
            peak: usage,
            connections_max,
            descriptors_limit: self.launch.descriptors_max,
            is_store: words.contains(&"entity"),
            is_proxy: words.contains(&"proxy"),
        })
    }
}

/// A server under attack.
pub(super) struct Stage {
    pub(super) server: Server,
    watch: PeakWatch,
    queues: Option<QueueWatch>,
    queue_peaks: Value,
    before: Usage,
    peak: Usage,
    /// The limits that the server derived from `--max-connections` and the descriptor limit.
    pub(super) connections_max: u64,
    descriptors_limit: u64,
    is_store: bool,
    is_proxy: bool,
}

/// The amounts that an attack may add to the bounds that follow from the flags.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extra {
    pub(super) resident_bytes: u64,
    /// Threads that the kernel runs for io_uring.
    pub(super) kernel_threads: u64,
    /// In place of what follows from `--max-connections`.
    pub(super) sockets_max: Option<u64>,
}

/// Accepted sockets that a shard holds at most; see `Limits::sockets_max`.
fn sockets_max(connections_max: u64) -> u64 {
    connections_max + (connections_max / 4).clamp(16, 256)
}

impl Stage {
    pub(super) fn address(&self) -> SocketAddr {
        self.server.address
    }

    pub(super) fn before(&self) -> Usage {
        self.before
    }

    /// Asks until `is_true` of the metrics.
    pub(super) fn wait_until(
        &self,
        what: &str,
        is_true: impl Fn(&Metrics) -> bool,
    ) -> Result<Metrics, String> {
        wait_for_metrics(what, || self.server.metrics(), is_true)
    }

    fn bounds(&self, extra: Extra) -> Usage {
        let each = if self.is_proxy { 2 } else { 1 };
        let sockets = extra
            .sockets_max
            .unwrap_or(sockets_max(self.connections_max) * each);
        let (files, resident_bytes) = match self.is_store {
            true => (ENGINE_FILES, MEMORY_BYTES + PROCESS_BYTES),
            false => (8, self.before.resident_bytes + RESIDENT_LEFT_BYTES),
        };
        Usage {
            descriptors: (self.before.descriptors + sockets + files)
                .min(self.descriptors_limit - 1),
            resident_bytes: resident_bytes + sockets * CONNECTION_BYTES + extra.resident_bytes,
            threads: self.before.threads + 2 + extra.kernel_threads,
        }
    }

    /// The amounts that may remain once the attack is over.
    fn bounds_after(&self) -> Usage {
        let (files, resident_bytes) = match self.is_store {
            true => (ENGINE_FILES, MEMORY_BYTES + PROCESS_BYTES),
            false => (4, self.before.resident_bytes + RESIDENT_LEFT_BYTES),
        };
        Usage {
            descriptors: self.before.descriptors + files,
            resident_bytes,
            threads: self.before.threads + 2,
        }
    }

    /// Waits, without a request, until what the attack took is given back.
    pub(super) fn wait_given_back(&self, extra_bytes: u64) -> Result<Usage, String> {
        let allowed = self.bounds_after();
        let allowed = Usage {
            resident_bytes: allowed.resident_bytes + extra_bytes,
            ..allowed
        };
        let begun = Instant::now();
        loop {
            let now = Usage::of(self.server.pid())
                .ok_or_else(|| format!("the server has ended: {}", self.server.said()))?;
            let Some(beyond) = now.beyond(allowed) else {
                return Ok(now);
            };
            if begun.elapsed() > PATIENCE {
                return Err(format!(
                    "{PATIENCE:?} after the attack not all is back: {beyond}"
                ));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The most that was resident so far.
    pub(super) fn resident_peak_bytes(&mut self) -> Result<u64, String> {
        self.peak().map(|peak| peak.resident_bytes)
    }

    fn peak(&mut self) -> Result<Usage, String> {
        let watch = std::mem::replace(&mut self.watch, PeakWatch::start(self.server.pid()));
        self.peak = self.peak.max(watch.finish()?);
        Ok(self.peak)
    }

    /// Stops watching queues, and with it all requests for `/metrics`.
    pub(super) fn finish_queues(&mut self) -> Result<(), String> {
        if let Some(queues) = self.queues.take() {
            self.queue_peaks = queues.finish()?;
        }
        Ok(())
    }

    /// Judges peaks, and that everything is given back; what is for the record.
    pub(super) fn judge(&mut self, extra: Extra, seen: &Value) -> Result<Value, String> {
        self.finish_queues()?;
        let metrics = self.wait_until("all connections close", |metrics| {
            sum(metrics, "millpond_http_connections") <= 1.0
        })?;
        let after = self.wait_given_back(extra.resident_bytes)?;
        let bounds = self.bounds(extra);
        let peak = self.peak()?;
        if let Some(beyond) = peak.beyond(bounds) {
            return Err(format!(
                "at its peak the server held more than its flags allow: {beyond}"
            ));
        }
        let sockets_peak = sum(&metrics, "millpond_driver_sockets_peak") as u64;
        let each = if self.is_proxy { 2 } else { 1 };
        let sockets_bound = extra
            .sockets_max
            .unwrap_or(sockets_max(self.connections_max) * each);
        if sockets_peak > sockets_bound {
            return Err(format!(
                "the driver held {sockets_peak} sockets, {sockets_bound} at most"
            ));
        }
        if let Some(sentence) = broken_identity(&metrics) {
            return Err(sentence);
        }
        Ok(json!({
            "peak": peak.to_json(),
            "bounds": bounds.to_json(),
            "before": self.before.to_json(),
            "after": after.to_json(),
            "sockets_peak": sockets_peak,
            "sockets_bound": sockets_bound,
            "queues_peak": self.queue_peaks,
            "seen": seen,
        }))
    }

    /// An orderly stop, of a server that never asked to be started again.
    pub(super) fn stop(mut self, stop_max: Duration) -> Result<(), String> {
        let status = self.server.stop(stop_max)?;
        let said = self.server.said();
        if !status.success() || said.contains("panicked") || said.contains("until a restart") {
            return Err(format!("the server ended with {status}: {said}"));
        }
        Ok(())
    }
}

// A well-behaved client that reads, and records the responses.

/// Failures that are quoted; all are counted.
const QUOTED_MAX: usize = 3;

/// Behind this it stops.
const REFUSED_MAX: Duration = Duration::from_secs(30);

/// Its targets, in turn, with the length of the whole response.
pub(super) type Targets<'a> = &'a [(&'a str, usize)];

/// The responses it got.
#[derive(Debug, Default)]
pub(super) struct Read {
    statuses: BTreeMap<u16, u64>,
    failures: u64,
    wrong: u64,
    without_retry_after: u64,
    quoted: Vec<String>,
    longest: Duration,
    /// The longest that one target was refused again and again.
    longest_refused: Duration,
}

impl Read {
    /// One request after the other until the attack is over, at least one of each.
    pub(super) fn until(
        stop: &Stop,
        address: SocketAddr,
        targets: Targets<'_>,
        reconnects: bool,
    ) -> Self {
        let (mut read, mut client, mut turn) = (Self::default(), Client::new(address), 0);
        let mut refused_since = vec![None; targets.len()];
        // A refused target is requested until it responds.
        while !stop.is_over() || turn < targets.len() || refused_since.iter().any(Option::is_some) {
            let place = turn % targets.len();
            let (target, length) = targets[place];
            if reconnects {
                client.close();
            }
            let begun = Instant::now();
            let is_good = read.once(&mut client, target, length);
            read.longest = read.longest.max(begun.elapsed());
            match is_good {
                true => refused_since[place] = None,
                false => {
                    let since = refused_since[place].get_or_insert(begun).elapsed();
                    read.longest_refused = read.longest_refused.max(since);
                    if since > REFUSED_MAX {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            turn += 1;
        }
        read
    }

    fn once(&mut self, client: &mut Client, target: &str, length: usize) -> bool {
        match client.get(target) {
            Ok(answer) => {
                *self.statuses.entry(answer.status).or_default() += 1;
                let is_good = answer.status == 200;
                self.without_retry_after +=
                    u64::from(answer.status == 503 && !answer.has_retry_after);
                self.wrong += u64::from(is_good && answer.body.len() != length);
                is_good
            }
            Err(sentence) => {
                self.failures += 1;
                if self.quoted.len() < QUOTED_MAX {
                    self.quoted.push(sentence);
                }
                false
            }
        }
    }

    pub(super) fn answered(&self) -> u64 {
        self.statuses.values().sum()
    }

    /// Every request got 200, with the whole body.
    pub(super) fn check(&self) -> Result<(), String> {
        self.check_refusals(Duration::ZERO)
    }

    /// The same, with 503 and Retry-After allowed as long as no target was refused for longer than this.
    pub(super) fn check_refusals(&self, refused_max: Duration) -> Result<(), String> {
        let is_allowed = |status: &u16| *status == 200 || *status == 503 && !refused_max.is_zero();
        let are_allowed = self.statuses.keys().all(is_allowed);
        let wrong = self.failures + self.wrong + self.without_retry_after;
        let is_served = self.longest_refused <= refused_max && self.answered() > 0;
        match are_allowed && wrong == 0 && is_served {
            true => Ok(()),
            false => Err(format!(
                "the good client was to see 200, and 503 for {refused_max:?} at most: {}",
                self.summary()
            )),
        }
    }

    pub(super) fn summary(&self) -> Value {
        let statuses: BTreeMap<String, u64> = self
            .statuses
            .iter()
            .map(|(status, count)| (status.to_string(), *count))
            .collect();
        let mut summary =
            json!({ "statuses": statuses, "longest_ns": self.longest.as_nanos() as u64 });
        if !self.longest_refused.is_zero() {
            summary["longest_refused_ns"] = json!(self.longest_refused.as_nanos() as u64);
        }
        if self.without_retry_after > 0 {
            summary["without_retry_after"] = json!(self.without_retry_after);
        }
        if self.failures > 0 {
            summary["without_answer"] = json!(self.failures);
            summary["why"] = json!(self.quoted);
        }
        if self.wrong > 0 {
            summary["of_wrong_length"] = json!(self.wrong);
        }
        summary
    }
}

// The most that a server held while it was attacked, sampled from `/proc`, and how long its queues were, from
// `/metrics`.

/// Between two samples.
const SAMPLE_PERIOD: Duration = Duration::from_millis(15);

/// The resources of a process at one moment, or the most at several.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Usage {
    pub(crate) descriptors: u64,
    pub(crate) resident_bytes: u64,
    pub(crate) threads: u64,
}

impl Usage {
    /// `None` once the process has ended.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        Some(Self {
            descriptors: descriptors as u64,
            resident_bytes: number_of(&status, "VmRSS:")? * 1024,
            threads: number_of(&status, "Threads:")?,
        })
    }

    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            descriptors: self.descriptors.max(other.descriptors),
            resident_bytes: self.resident_bytes.max(other.resident_bytes),
            threads: self.threads.max(other.threads),
        }
    }

    /// The part of this that exceeds `bounds`, if any.
    pub(crate) fn beyond(self, bounds: Self) -> Option<String> {
        let pairs = [
            ("descriptors", self.descriptors, bounds.descriptors),
            ("resident bytes", self.resident_bytes, bounds.resident_bytes),
            ("threads", self.threads, bounds.threads),
        ];
        let beyond: Vec<String> = pairs
            .iter()
            .filter(|(_, value, bound)| value > bound)
            .map(|(what, value, bound)| format!("{value} {what}, {bound} at most"))
            .collect();
        (!beyond.is_empty()).then(|| beyond.join("; "))
    }

    pub(crate) fn to_json(self) -> Value {
        json!({ "descriptors": self.descriptors, "resident_bytes": self.resident_bytes, "threads": self.threads })
    }
}

/// The number behind `name` in a file of lines such as /proc/PID/status.
fn number_of(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Samples until it is asked for the peak.
pub(crate) struct PeakWatch {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<(Usage, u64)>,
}

impl PeakWatch {
    pub(crate) fn start(pid: u32) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let watch = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let (mut peak, mut samples) = (Usage::default(), 0);
            while let Some(usage) = Usage::of(pid) {
                (peak, samples) = (peak.max(usage), samples + 1);
                if watch.load(Ordering::Relaxed) {
                    break;
                }
                std::thread::sleep(SAMPLE_PERIOD);
            }
            (peak, samples)
        });
        Self { is_over, thread }
    }

    /// The peak since the start; an error if nothing could be sampled.
    pub(crate) fn finish(self) -> Result<Usage, String> {
        self.is_over.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok((peak, 1..)) => Ok(peak),
            _ => Err("the server's /proc could not be sampled".to_owned()),
        }
    }
}

/// Between two reads of `/metrics`.
const QUEUE_PERIOD: Duration = Duration::from_millis(100);

/// Lengths of queues in `/metrics`, with their bounds: what waits for the store, and what for a connection to an
/// upstream (`--upstream-pending`).
const QUEUES: [(&str, f64); 2] = [
    ("millpond_entity_jobs_in_flight", 4096.0),
    ("millpond_upstream_waiting", 4096.0),
];

/// Watches queues until it is finished.
pub(crate) struct QueueWatch {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<[f64; QUEUES.len()]>,
}

impl QueueWatch {
    pub(crate) fn start(metrics: SocketAddr) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let watch = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let mut peaks = [0.0_f64; QUEUES.len()];
            while !watch.load(Ordering::Relaxed) {
                if let Ok(metrics) = fetch_metrics(metrics) {
                    for (peak, (name, _)) in peaks.iter_mut().zip(QUEUES) {
                        *peak = peak.max(sum(&metrics, name));
                    }
                }
                std::thread::sleep(QUEUE_PERIOD);
            }
            peaks
        });
        Self { is_over, thread }
    }

    /// The longest that each was seen; an error if one was longer than its bound.
    pub(crate) fn finish(self) -> Result<Value, String> {
        self.is_over.store(true, Ordering::Relaxed);
        let peaks = self.thread.join();
        let peaks = peaks.map_err(|_| "the look at /metrics panicked".to_owned())?;
        let mut seen = json!({});
        for (peak, (name, bound)) in peaks.into_iter().zip(QUEUES) {
            if peak > bound {
                return Err(format!("{name} was {peak}, {bound} at most"));
            }
            if peak > 0.0 {
                seen[name] = json!(peak);
            }
        }
        Ok(seen)
    }
}

/// Goal: peaks are those of this process, and what is beyond a bound is named with both numbers.
#[test]
fn peaks_are_sampled_and_judged() {
    let watch = PeakWatch::start(std::process::id());
    let files: Vec<_> = (0..200)
        .map(|_| std::fs::File::open("/dev/null").unwrap())
        .collect();
    std::thread::sleep(4 * SAMPLE_PERIOD);
    drop(files);
    let peak = watch.finish().unwrap();
    assert!(peak.descriptors >= 200 && peak.threads >= 2 && peak.resident_bytes > 0);
    assert_eq!(peak.beyond(peak), None);
    let less = Usage {
        descriptors: 199,
        ..peak
    };
    let sentence = peak.beyond(less).unwrap();
    assert!(sentence.contains("descriptors, 199 at most"), "{sentence}");
}
