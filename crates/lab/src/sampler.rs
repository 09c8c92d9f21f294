//! The memory of a target over time, twenty times a second while phases run.
//!
//! On the path: `scored` starts it once the target serves and stops it before the target is stopped.
//! It reads the cheap `statm` of the processes known at the start; exact figures (PSS, peak) are
//! read by `scored` at the edges of phases, when nothing is being timed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use millpond_measure::process::resident_bytes;
use millpond_measure::series::Series;

const INTERVAL: Duration = Duration::from_millis(50);

/// A running sampler; dropping it ends its thread at its next sample.
#[derive(Debug)]
pub(crate) struct Sampler {
    began: Instant,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<Series>>,
}

impl Sampler {
    /// Begins to sample the sum over `pids`.
    pub(crate) fn start(pids: Vec<u32>) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ended);
        let began = Instant::now();
        let thread = thread::spawn(move || sample_until(&seen, &pids, began));
        Self {
            began,
            ended,
            thread: Some(thread),
        }
    }

    /// The zero of its samples' times.
    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// Ends it and returns what it saw.
    pub(crate) fn finish(mut self) -> Series {
        self.ended.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else {
            return Series::default();
        };
        thread.thread().unpark();
        thread.join().unwrap_or_default()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

fn sample_until(ended: &AtomicBool, pids: &[u32], began: Instant) -> Series {
    let mut series = Series::default();
    while !ended.load(Ordering::Relaxed) {
        let known: Vec<u64> = pids
            .iter()
            .filter_map(|&pid| resident_bytes(pid).ok())
            .collect();
        if known.is_empty() {
            break;
        }
        let at_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        series.push(at_ns, known.iter().sum::<u64>() as f64);
        thread::park_timeout(INTERVAL);
    }
    series
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: samples come while it runs, in order; a process that is gone ends it.
    #[test]
    fn samples_follow_a_process() {
        let sampler = Sampler::start(vec![std::process::id()]);
        thread::sleep(Duration::from_millis(120));
        let series = sampler.finish();
        assert!(series.points.len() >= 2);
        assert!(
            series
                .points
                .windows(2)
                .all(|pair| pair[0].at_ns < pair[1].at_ns)
        );
        assert!(series.points.iter().all(|point| point.value > 0.0));
        assert!(
            Sampler::start(vec![u32::MAX - 1])
                .finish()
                .points
                .is_empty()
        );
    }
}
