//! The memory of a target over time, twenty times a second while phases run.
//!
//! On the path: `scored` starts it once the target serves and stops it before the target is stopped.
//! It reads the cheap `statm` of the processes it knows, and looks for new ones every second, which
//! takes a walk over `/proc`; exact figures (PSS, peak) are read by `scored` at the edges of phases,
//! when nothing is being timed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use millpond_measure::process::{ProcessTree, resident_bytes};
use millpond_measure::series::Series;

const INTERVAL: Duration = Duration::from_millis(50);

/// How often those are looked for that were started since.
const SAMPLES_PER_SEARCH: usize = 20;

/// A running sampler; dropping it ends its thread at its next sample.
#[derive(Debug)]
pub(crate) struct Sampler {
    began: Instant,
    progress: Arc<Progress>,
    thread: Option<JoinHandle<Series>>,
}

/// What its thread and its owner tell each other.
#[derive(Debug, Default)]
struct Progress {
    is_ended: AtomicBool,
    samples: AtomicUsize,
}

impl Sampler {
    /// Begins to sample the sum over all members of `tree`.
    pub(crate) fn start(tree: ProcessTree) -> Self {
        let progress = Arc::<Progress>::default();
        let told = Arc::clone(&progress);
        let began = Instant::now();
        let thread = thread::spawn(move || sample(&told, &tree, began));
        Self {
            began,
            progress,
            thread: Some(thread),
        }
    }

    /// The zero of its samples' times.
    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// Ends it and returns what it saw.
    pub(crate) fn finish(mut self) -> Series {
        self.progress.is_ended.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else {
            return Series::default();
        };
        thread.thread().unpark();
        thread.join().unwrap_or_default()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.progress.is_ended.store(true, Ordering::Relaxed);
    }
}

fn sample(progress: &Progress, tree: &ProcessTree, began: Instant) -> Series {
    let mut series = Series::default();
    let mut pids = Vec::new();
    while !progress.is_ended.load(Ordering::Relaxed) {
        if series.points.len() % SAMPLES_PER_SEARCH == 0 {
            pids = tree.members();
        }
        let known: Vec<u64> = pids
            .iter()
            .filter_map(|&pid| resident_bytes(pid).ok())
            .collect();
        if known.is_empty() {
            break;
        }
        let at_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        series.push(at_ns, known.iter().sum::<u64>() as f64);
        progress.samples.fetch_add(1, Ordering::Relaxed);
        thread::park_timeout(INTERVAL);
    }
    series
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// Until it has taken so many samples more.
    fn wait_for_samples(sampler: &Sampler, more: usize) {
        let samples = || sampler.progress.samples.load(Ordering::Relaxed);
        let until = samples() + more;
        while samples() < until {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Goal: samples come while it runs, in order; a process that is gone ends it.
    #[test]
    fn samples_follow_a_process() {
        let sampler = Sampler::start(ProcessTree::new(std::process::id()));
        wait_for_samples(&sampler, 3);
        let series = sampler.finish();
        assert!(series.points.len() >= 3);
        assert!(
            series
                .points
                .windows(2)
                .all(|pair| pair[0].at_ns < pair[1].at_ns)
        );
        assert!(series.points.iter().all(|point| point.value > 0.0));
        assert!(
            Sampler::start(ProcessTree::new(u32::MAX - 1))
                .finish()
                .points
                .is_empty()
        );
    }

    /// Workers that a server started later were never seen: the picture of its memory showed its parent's.
    ///
    /// Goal: a process that is started while it runs is in the sum after the next search.
    #[test]
    fn processes_that_come_later_are_counted() {
        const LEAST_BYTES: u64 = 48 << 20;
        let mut shell = Command::new("/bin/sh")
            .args(["-c", "read go; (head -c 64M /dev/zero; sleep 60) | tail"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let tree = ProcessTree::new(shell.id());
        let sampler = Sampler::start(tree);
        wait_for_samples(&sampler, 1);
        drop(shell.stdin.take());
        while tree.resident_bytes().unwrap() < LEAST_BYTES {
            thread::sleep(INTERVAL);
        }
        wait_for_samples(&sampler, SAMPLES_PER_SEARCH + 1);
        for pid in tree.members() {
            // The end of one may have ended another by now.
            let _ = Command::new("/bin/kill").arg(pid.to_string()).status();
        }
        shell.wait().unwrap();
        let points = sampler.finish().points;
        let is_seen = points.iter().any(|point| point.value > LEAST_BYTES as f64);
        assert!(is_seen, "{points:?}");
    }
}
