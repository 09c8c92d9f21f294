//! The memory of a target over time, up to twenty times a second while phases run.
//!
//! `scored` and `generation` start it once the target serves and stop it before the target is stopped.
//! Each sample is the quantity that the table shows, read from `smaps_rollup` of every process, so that the curve and the
//! table cannot contradict each other: cheaper figures (resident less shared pages of `statm`) count what a pre-fork
//! server's workers share once for each of them. A look costs about 1 ms of CPU time for 100 MB, so the pause after it
//! grows with what it took, up to half a second: samples of a large server are fewer, never different. Where `smaps_rollup` cannot be read the samples
//! are of RSS alone.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use millpond_measure::process::ProcessTree;
use millpond_measure::record::MemorySeries;
use rustix::time::{ClockId, clock_gettime};

const INTERVAL: Duration = Duration::from_millis(50);

/// The longest pause between two looks: an idle phase of two seconds has samples however many servers are looked at, and
/// however slow a look is.
const INTERVAL_MAX: Duration = Duration::from_millis(500);

/// Looks, and searches for processes, each take at most this part of a CPU's time, all samplers together, unless that
/// would need a longer pause than [`INTERVAL_MAX`]. No clock that is scored runs meanwhile, or this process is not the
/// one whose clock it is. CPU time and not time on the clock: a look that waits for a CPU takes nothing from anybody, and
/// on a busy machine all pauses would grow until a phase had no sample.
const TIME_SHARE: u32 = 20;

/// A running sampler; dropping it ends its thread at its next sample.
#[derive(Debug)]
pub(crate) struct Sampler {
    began: Instant,
    progress: Arc<Progress>,
    thread: Option<JoinHandle<MemorySeries>>,
}

/// What its thread and its owner tell each other.
#[derive(Debug, Default)]
struct Progress {
    is_ended: AtomicBool,
    is_paused: AtomicBool,
    samples: AtomicUsize,
    searches: AtomicUsize,
}

impl Sampler {
    /// Begins to sample the sum over all members of `tree`. `procs`: a file that lists them, which spares a walk
    /// over all processes of the machine. `count`: how many samplers run at once; together they take no more time than one.
    pub(crate) fn start(tree: ProcessTree, procs: Option<PathBuf>, count: usize) -> Self {
        let progress = Arc::<Progress>::default();
        let told = Arc::clone(&progress);
        let began = Instant::now();
        let members = Members {
            tree,
            procs,
            pids: Vec::new(),
            next_search: began,
            rest_share: TIME_SHARE.saturating_mul(u32::try_from(count.max(1)).unwrap_or(u32::MAX)),
        };
        let thread = thread::spawn(move || sample(&told, members, began));
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

    /// No more samples, or samples again.
    pub(crate) fn pause(&self, is_paused: bool) {
        self.progress.is_paused.store(is_paused, Ordering::Relaxed);
        if let Some(thread) = self.thread.as_ref().filter(|_| !is_paused) {
            thread.thread().unpark();
        }
    }

    /// Ends it and returns what it saw.
    pub(crate) fn finish(mut self) -> MemorySeries {
        self.progress.is_ended.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else {
            return MemorySeries::default();
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

/// The processes of the target: those that were found last. What a server shares with a worker that is not among them
/// would be missing by half, so they are looked for as often as that is cheap.
#[derive(Debug)]
struct Members {
    tree: ProcessTree,
    procs: Option<PathBuf>,
    pids: Vec<u32>,
    next_search: Instant,
    /// What it rests after a look is so many times as long.
    rest_share: u32,
}

impl Members {
    /// How long to rest after what took so much CPU time.
    fn rest(&self, cpu: Duration) -> Duration {
        (cpu * self.rest_share).clamp(INTERVAL, INTERVAL_MAX)
    }

    fn search(&mut self, progress: &Progress) {
        let began = thread_cpu();
        let listed = self.procs.as_ref().and_then(|file| {
            let text = fs::read_to_string(file).ok()?;
            let pids: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
            (!pids.is_empty()).then_some(pids)
        });
        self.pids = listed.unwrap_or_else(|| self.tree.members());
        self.next_search = Instant::now() + self.rest(thread_cpu().saturating_sub(began));
        progress.searches.fetch_add(1, Ordering::Relaxed);
    }
}

fn sample(progress: &Progress, mut members: Members, began: Instant) -> MemorySeries {
    let mut series = MemorySeries::default();
    while !progress.is_ended.load(Ordering::Relaxed) {
        if progress.is_paused.load(Ordering::Relaxed) {
            thread::park_timeout(INTERVAL);
            continue;
        }
        if Instant::now() >= members.next_search {
            members.search(progress);
        }
        let (looked, cpu_before) = (Instant::now(), thread_cpu());
        let Some((memory, count)) = members.tree.memory_of(&members.pids) else {
            // All that were known have ended: others may have taken their place.
            members.search(progress);
            if members.tree.memory_of(&members.pids).is_none() {
                break;
            }
            continue;
        };
        if count < members.pids.len() {
            members.next_search = looked;
        }
        let at_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        series.push(at_ns, memory.rss_bytes, memory.private_bytes());
        progress.samples.fetch_add(1, Ordering::Relaxed);
        thread::park_timeout(members.rest(thread_cpu().saturating_sub(cpu_before)));
    }
    series
}

/// CPU time of this thread so far.
fn thread_cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let (secs, nanos) = (u64::try_from(now.tv_sec), u32::try_from(now.tv_nsec));
    Duration::new(secs.unwrap_or(0), nanos.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// Until `count` has grown by so many.
    fn wait_for(count: &AtomicUsize, more: usize) {
        let until = count.load(Ordering::Relaxed) + more;
        while count.load(Ordering::Relaxed) < until {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Goal: samples come while it runs, in order; a process that is gone ends it.
    #[test]
    fn samples_follow_a_process() {
        let sampler = Sampler::start(ProcessTree::new(std::process::id()), None, 1);
        wait_for(&sampler.progress.samples, 3);
        let series = sampler.finish();
        for series in [&series.rss, series.best()] {
            assert!(series.points.len() >= 3);
            let mut pairs = series.points.windows(2);
            assert!(pairs.all(|pair| pair[0].at_ns < pair[1].at_ns));
            assert!(series.points.iter().all(|point| point.value > 0.0));
        }
        let gone = Sampler::start(ProcessTree::new(u32::MAX - 1), None, 1);
        assert!(gone.finish().rss.points.is_empty());
    }

    /// With eighteen servers on a busy machine the pause after a look was longer than an idle phase: nine of ten rounds had
    /// no memory after the burst.
    ///
    /// Goal: a pause grows with what looks cost, by the number of samplers, and never above half a second.
    #[test]
    fn pauses_are_bounded() {
        let members = |rest_share| Members {
            tree: ProcessTree::new(std::process::id()),
            procs: None,
            pids: Vec::new(),
            next_search: Instant::now(),
            rest_share,
        };
        let ms = Duration::from_millis;
        assert_eq!(members(TIME_SHARE).rest(ms(1)), INTERVAL);
        assert_eq!(members(TIME_SHARE).rest(ms(5)), ms(100));
        assert_eq!(members(TIME_SHARE * 18).rest(ms(1)), ms(360));
        assert_eq!(members(TIME_SHARE * 18).rest(ms(20)), INTERVAL_MAX);
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
        let sampler = Sampler::start(tree.clone(), None, 1);
        wait_for(&sampler.progress.samples, 1);
        drop(shell.stdin.take());
        let rss_bytes = || {
            tree.memory_of(&tree.members())
                .map_or(0, |(it, _)| it.rss_bytes)
        };
        while rss_bytes() < LEAST_BYTES {
            thread::sleep(INTERVAL);
        }
        // The first one may have begun before.
        wait_for(&sampler.progress.searches, 2);
        wait_for(&sampler.progress.samples, 1);
        for pid in tree.members() {
            // The end of one may have ended another by now.
            let _ = Command::new("/bin/kill").arg(pid.to_string()).status();
        }
        shell.wait().unwrap();
        let points = sampler.finish().rss.points;
        let is_seen = points.iter().any(|point| point.value > LEAST_BYTES as f64);
        assert!(is_seen, "{points:?}");
    }
}
