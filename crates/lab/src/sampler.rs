//! The memory of a target over time, up to twenty times a second while phases run.
//!
//! `outcome` and `generation` start it once the target serves and stop it before the target is stopped. Each sample is
//! the quantity that the table shows, read from `smaps_rollup` of every process, so that the curve and the table cannot
//! contradict each other: cheaper figures (resident less shared pages of `statm`) count what a pre-fork server's
//! workers share once for each of them. A reading costs about 1 ms of CPU time for 100 MB, so the pause after it grows
//! with its cost, up to half a second: samples of a large server are fewer, never different. Where `smaps_rollup`
//! cannot be read the samples are of RSS alone.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fs, thread};

use millpond_measure::process::{MemorySample, ProcessTree};
use millpond_measure::record::{CoursePhase, Measure, MemorySeries, Quantity, RoundMeasures};
use millpond_measure::series::Series;
use rustix::time::{ClockId, clock_gettime};

use crate::rounds::nanoseconds;
use crate::usage::Edge;

const INTERVAL: Duration = Duration::from_millis(50);

/// The longest pause between two readings: an idle phase of two seconds has samples however many servers are read, and
/// however slow a reading is.
const INTERVAL_MAX: Duration = Duration::from_millis(500);

/// Readings, and searches for processes, each take at most this part of a CPU's time, all samplers together, unless
/// that would need a longer pause than [`INTERVAL_MAX`]. No scored clock runs meanwhile, or it is the clock of another
/// process. CPU time and not time on the clock: a reading that waits for a CPU takes nothing from other threads, and on
/// a busy machine all pauses would grow until a phase had no sample.
const TIME_SHARE: u32 = 20;

/// A running sampler; dropping it ends its thread at its next sample.
#[derive(Debug)]
pub(crate) struct Sampler {
    began: Instant,
    progress: Arc<Progress>,
    thread: Option<JoinHandle<MemorySeries>>,
}

/// State shared by its thread and its owner.
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

    /// Ends it and returns its samples.
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
/// would be missing by half, so they are searched for as often as that is cheap.
#[derive(Debug)]
struct Members {
    tree: ProcessTree,
    procs: Option<PathBuf>,
    pids: Vec<u32>,
    next_search: Instant,
    /// The rest after a reading is so many times as long.
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

// The memory of one run on one clock: the sampler's samples, and the readings at the edges of phases.
//
// A reading at an edge is the same quantity as a sample, so both stand in one series, and what the table shows is a
// point of the curve. The peak is the largest of them all: no sample of the run is above it. A peak between two of them
// is missed; of resident memory the kernel keeps high-water marks, whose sum over processes is an upper bound, as these
// need not have been at the same moment. The mean is over the time of the equal work alone: how long a target idles is
// the user's choice.

/// The readings at the edges of a run, and the kernel's own peaks.
#[derive(Debug, Default)]
pub(crate) struct EdgeMemory {
    /// Those that are in no series yet.
    readings: Vec<(Instant, MemorySample)>,
    peak_rss_bytes: u64,
    cgroup_bytes: Option<u64>,
}

impl EdgeMemory {
    /// Takes in what was read at an edge.
    pub(crate) fn add(&mut self, edge: &Edge) {
        let process = &edge.usage.process;
        self.readings.push((edge.usage.at, process.memory));
        self.peak_rss_bytes = self.peak_rss_bytes.max(process.peak_rss_bytes);
        // Not comparable with the others: page cache and kernel memory are in it.
        self.cgroup_bytes = self.cgroup_bytes.max(edge.usage.cgroup.memory_peak_bytes);
    }

    /// Ends `sampler`; its samples, and the readings since it began.
    pub(crate) fn finish(&mut self, sampler: Sampler) -> MemorySeries {
        let began = sampler.began();
        let mut series = sampler.finish();
        for (at, memory) in self.readings.drain(..) {
            let at_ns = at.saturating_duration_since(began).as_nanos();
            let at_ns = u64::try_from(at_ns).unwrap_or(u64::MAX);
            series.insert(at_ns, memory.rss_bytes, memory.private_bytes());
        }
        series
    }

    /// Notes the peaks over all of `series`, and the mean over those of `phases` that are work.
    pub(crate) fn note(
        &self,
        series: &MemorySeries,
        phases: &[CoursePhase],
        measures: &mut RoundMeasures,
    ) {
        let memory = series.memory();
        let (mut area, mut length_ns) = (0.0, 0.0);
        for phase in phases.iter().filter(|phase| phase.is_work()) {
            let mean = memory.and_then(|memory| memory.mean_between(phase.from_ns, phase.to_ns));
            if let Some(mean) = mean {
                let phase_ns = phase.to_ns.saturating_sub(phase.from_ns) as f64;
                area += mean * phase_ns;
                length_ns += phase_ns;
            }
        }
        let peak_rss = series.rss.largest().unwrap_or(0.0);
        let peak_rss = peak_rss.max(self.peak_rss_bytes as f64);
        for (quantity, value) in [
            (Quantity::PeakMemory, memory.and_then(Series::largest)),
            (
                Quantity::MeanMemory,
                (length_ns > 0.0).then(|| area / length_ns),
            ),
            (Quantity::PeakRss, (peak_rss > 0.0).then_some(peak_rss)),
            (
                Quantity::CgroupPeak,
                self.cgroup_bytes.map(|bytes| bytes as f64),
            ),
        ] {
            if let Some(bytes) = value {
                measures.set(Measure::whole(quantity), bytes);
            }
        }
    }
}

// The phases of a run, and their times: the marks on the drawing of its memory over time.

/// The phases of one run, in order. Memory is sampled on the same clock.
#[derive(Debug)]
pub(crate) struct PhaseMarks {
    began: Instant,
    phases: Vec<CoursePhase>,
}

impl PhaseMarks {
    /// Nothing yet; `began` is the zero of all times.
    pub(crate) fn new(began: Instant) -> Self {
        Self {
            began,
            phases: Vec::new(),
        }
    }

    /// A phase begins, and the one before ends.
    pub(crate) fn enter(&mut self, name: &str) {
        let now_ns = nanoseconds(self.began.elapsed());
        self.close(now_ns);
        self.phases.push(CoursePhase {
            name: name.to_owned(),
            from_ns: now_ns,
            // Open until the next one.
            to_ns: u64::MAX,
        });
    }

    /// All of them; the last ends now.
    pub(crate) fn finish(mut self) -> Vec<CoursePhase> {
        self.close(nanoseconds(self.began.elapsed()));
        self.phases
    }

    fn close(&mut self, now_ns: u64) {
        if let Some(last) = self.phases.last_mut().filter(|it| it.to_ns == u64::MAX) {
            last.to_ns = now_ns;
        }
    }
}

#[cfg(test)]
#[path = "tests/sampler.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/memory_course.rs"]
mod memory_course_tests;

#[cfg(test)]
#[path = "tests/phase_marks.rs"]
mod phase_marks_tests;
