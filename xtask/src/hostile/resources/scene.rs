//! What the attacks on resources have in common: a server of their own, a good client beside the attack, and the
//! judgement of what the server held at most and holds afterwards.

use super::peaks::{PeakWatch, QueueWatch, Usage};
use super::server::{Launch, Server};
use crate::hostile::subject::{Metrics, PATIENCE, broken_identity, sum, wait_for_metrics};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// `--memory` of the entity servers that are attacked.
const MEMORY: &str = "128MiB";
const MEMORY_BYTES: u64 = 128 << 20;
/// What the process takes beside `--memory`, as docs/operating.md says.
const PROCESS_BYTES: u64 = 32 << 20;
/// Of each connection: its state, and what the engine and malloc lose beside it.
const CONNECTION_BYTES: u64 = 4 << 10;
/// Tables and logs that the engine may have opened since.
const ENGINE_FILES: u64 = 64;
/// What may stay resident of what an attack took: free memory of pools and of malloc.
const RESIDENT_LEFT_BYTES: u64 = 8 << 20;
/// A bound on silence of a client that waits for nothing but the server: far beyond what a busy machine adds.
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

/// What came of an attack that ended as it should.
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

    /// One count for a moment's look, another for the whole.
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
    /// What the server made of `--max-connections` and the descriptor limit.
    pub(super) connections_max: u64,
    descriptors_limit: u64,
    is_store: bool,
    is_proxy: bool,
}

/// What an attack may add to the bounds that follow from the flags.
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

    /// What may be left once the attack is over.
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

    /// Ends the look at queues, and with it all requests for `/metrics`.
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
