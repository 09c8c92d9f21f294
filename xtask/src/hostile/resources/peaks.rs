//! The most that a server held while it was attacked, sampled from `/proc`, and how long its queues were, from
//! `/metrics`.

use crate::hostile::subject::{fetch_metrics, sum};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two samples.
const SAMPLE_PERIOD: Duration = Duration::from_millis(15);

/// What a process holds at one moment, or at most of several.
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

    /// What of this is more than `bounds` allows, if anything.
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

/// Between two looks at `/metrics`.
const QUEUE_PERIOD: Duration = Duration::from_millis(100);

/// Lengths of queues in `/metrics`, with their bounds: what waits for the store, and what for a connection to an
/// upstream (`--upstream-pending`).
const QUEUES: [(&str, f64); 2] = [
    ("millpond_entity_jobs_in_flight", 4096.0),
    ("millpond_upstream_waiting", 4096.0),
];

/// Looks at queues until it is finished.
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
