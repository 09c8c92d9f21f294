//! How long the target was kept from its CPU by other programs, read while it is loaded.
//!
//! The kernel counts for each thread how long it was ready and did not run. Behind another thread of the target that is
//! the target's own cost; behind anybody else it is the machine's. So of what a thread waited, the CPU time that the
//! target's other threads used meanwhile is taken off, and only the rest is called a stall. On several CPUs that takes
//! off too much: then a stall is missed, never invented.
//!
//! A wait is counted when it ends, so all that the others used since it began has to be known: readings of the last
//! [`READINGS`] are kept. Nothing is called a stall that began before them, or while threads came or went.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use millpond_measure::noise::ThreadTimes;
use rustix::fs::fstat;

/// Reading more takes longer than it may while requests are due.
const THREADS_MAX: usize = 16;
/// Time between two readings for each thread that is read, which takes about a microsecond.
const PERIOD_NS_PER_THREAD: u64 = 50_000;
const PERIOD_NS_MIN: u64 = 100_000;
/// The first answer after so long a silence, for each thread that is read, is looked at only after a reading: it and
/// those that come with it are the ones that a stall delayed most.
const SILENCE_NS_PER_THREAD: u64 = 20_000;
const SILENCE_NS_MIN: u64 = 50_000;
const READINGS: usize = 128;
/// Waiting for less is in every distribution.
const STALL_NS_MIN: u64 = 50_000;

/// The counters of all threads of a target, open.
#[derive(Debug)]
pub struct TargetThreads {
    /// `/proc/PID/task` of each process; its links count the threads.
    processes: Vec<File>,
    /// `schedstat` of each thread.
    counters: Vec<File>,
}

impl TargetThreads {
    /// Opens those of these processes. `None` if that is not permitted, if the kernel does not count, or if they have
    /// more than 16 threads.
    #[must_use]
    pub fn open(pids: &[u32]) -> Option<Self> {
        let mut all = Self {
            processes: Vec::new(),
            counters: Vec::new(),
        };
        for pid in pids {
            let directory = format!("/proc/{pid}/task");
            all.processes.push(File::open(&directory).ok()?);
            for thread in fs::read_dir(&directory).ok()?.flatten() {
                if all.counters.len() == THREADS_MAX {
                    return None;
                }
                let counter = File::open(thread.path().join("schedstat")).ok()?;
                read_counter(&counter)?;
                all.counters.push(counter);
            }
        }
        (!all.counters.is_empty()).then_some(all)
    }

    /// True if no thread came or went since the counters were opened.
    fn are_complete(&self) -> bool {
        // Two links are the directory's own.
        let links =
            |process| fstat(process).map_or(0, |stat| (stat.st_nlink as usize).saturating_sub(2));
        self.processes.iter().map(links).sum::<usize>() == self.counters.len()
    }
}

fn read_counter(counter: &File) -> Option<ThreadTimes> {
    let mut buffer = [0_u8; 64];
    let count = counter.read_at(&mut buffer, 0).ok()?;
    ThreadTimes::parse(str::from_utf8(buffer.get(..count)?).ok()?)
}

/// All threads at one moment.
#[derive(Clone, Debug)]
struct Reading {
    at_ns: u64,
    times: Box<[ThreadTimes]>,
}

/// One generator thread's view of the target.
#[derive(Clone, Debug)]
pub(crate) struct TargetWatch {
    threads: Arc<TargetThreads>,
    next_ns: u64,
    /// When the last event came.
    event_ns: u64,
    history: History,
}

/// A time in which the target was kept from its CPU.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Kept {
    pub(crate) from_ns: u64,
    pub(crate) length_ns: u64,
}

impl TargetWatch {
    pub(crate) fn new(threads: &Arc<TargetThreads>) -> Self {
        Self {
            history: History::new(threads.counters.len()),
            threads: Arc::clone(threads),
            next_ns: 0,
            event_ns: 0,
        }
    }

    /// What kept the target from its CPU since the last reading, if it is time for the next; `has_events`: answers may
    /// have come.
    #[inline]
    pub(crate) fn look(&mut self, has_events: bool, now_ns: u64) -> Option<Kept> {
        let count = self.threads.counters.len() as u64;
        let silence_ns_max = (SILENCE_NS_PER_THREAD * count).max(SILENCE_NS_MIN);
        let is_after_silence = has_events && now_ns.saturating_sub(self.event_ns) >= silence_ns_max;
        if has_events {
            self.event_ns = now_ns;
        }
        if now_ns < self.next_ns && !is_after_silence {
            return None;
        }
        self.next_ns = now_ns + (PERIOD_NS_PER_THREAD * count).max(PERIOD_NS_MIN);
        self.read(now_ns)
    }

    fn read(&mut self, now_ns: u64) -> Option<Kept> {
        let reading = self.history.begin(now_ns);
        for (counter, times) in self.threads.counters.iter().zip(&mut reading.times) {
            match read_counter(counter) {
                Some(read) => *times = read,
                None => return self.history.forget(),
            }
        }
        if !self.threads.are_complete() {
            return self.history.forget();
        }
        self.history.end()
    }
}

/// The last readings, oldest overwritten first.
#[derive(Clone, Debug)]
struct History {
    readings: Vec<Reading>,
    /// Where the next is written.
    next: usize,
    /// How many there are.
    count: usize,
}

impl History {
    fn new(threads: usize) -> Self {
        let empty = Reading {
            at_ns: 0,
            times: vec![ThreadTimes::default(); threads].into(),
        };
        Self {
            readings: vec![empty; READINGS],
            next: 0,
            count: 0,
        }
    }

    /// The place of a new reading, which counts from [`Self::end`] on.
    fn begin(&mut self, at_ns: u64) -> &mut Reading {
        let reading = &mut self.readings[self.next];
        reading.at_ns = at_ns;
        reading
    }

    fn forget(&mut self) -> Option<Kept> {
        self.count = 0;
        None
    }

    /// The reading is complete: the longest wait that it shows for others than the target's own threads.
    fn end(&mut self) -> Option<Kept> {
        let newest = self.next;
        self.next = (self.next + 1) % READINGS;
        self.count = (self.count + 1).min(READINGS);
        let before = self.past(newest, 1)?;
        let (now, last) = (&self.readings[newest], &self.readings[before]);
        let waited = now.times.iter().zip(&last.times);
        let waited = waited.map(|(now, last)| now.since(*last).waited_ns);
        let (thread, waited_ns) = waited.enumerate().max_by_key(|&(_, waited_ns)| waited_ns)?;
        if waited_ns < STALL_NS_MIN {
            return None;
        }
        // It began at most this long before the last reading.
        let from_ns = last.at_ns.checked_sub(waited_ns)?;
        let first = (1..self.count)
            .filter_map(|age| self.past(newest, age))
            .find(|&index| self.readings[index].at_ns <= from_ns)?;
        let others = now
            .times
            .iter()
            .zip(&self.readings[first].times)
            .enumerate();
        let others_ns: u64 = others
            .filter(|&(index, _)| index != thread)
            .map(|(_, (now, first))| now.since(*first).cpu_ns)
            .sum();
        let length_ns = waited_ns.saturating_sub(others_ns);
        (length_ns >= STALL_NS_MIN).then_some(Kept { from_ns, length_ns })
    }

    /// The reading that is so many older than the newest.
    fn past(&self, newest: usize, age: usize) -> Option<usize> {
        (age < self.count).then(|| (newest + READINGS - age) % READINGS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    /// Readings 100 us apart of two threads, each (CPU time, waited) in us: what the last one shows.
    fn shown(readings: &[[(u64, u64); 2]]) -> Option<Kept> {
        let mut history = History::new(2);
        let mut shown = None;
        for (number, reading) in (10..).zip(readings) {
            let place = history.begin(number * 100 * US);
            for (times, &(cpu, waited)) in place.times.iter_mut().zip(reading) {
                *times = ThreadTimes {
                    cpu_ns: cpu * US,
                    waited_ns: waited * US,
                };
            }
            shown = history.end();
        }
        shown
    }

    /// Goal: what a thread waited for somebody else is a stall, what it waited for the target's own threads is not,
    /// even if those ran before the wait was counted; what cannot be known is not called one.
    #[test]
    fn only_waiting_for_others_is_a_stall() {
        let idle = [(50, 0), (0, 0)];
        // 200 us, counted when they are over.
        let found = shown(&[idle, idle, idle, idle, [(60, 200), (0, 0)]]);
        let expected = Kept {
            from_ns: 1_100 * US,
            length_ns: 200 * US,
        };
        assert_eq!(found, Some(expected));
        // The other thread had the CPU meanwhile.
        let own = [
            idle,
            idle,
            [(50, 0), (90, 0)],
            [(50, 0), (190, 0)],
            [(60, 200), (200, 0)],
        ];
        assert_eq!(shown(&own), None);
        // A part of it.
        let part = shown(&[
            idle,
            idle,
            [(50, 0), (90, 0)],
            [(50, 0), (90, 0)],
            [(60, 200), (90, 0)],
        ]);
        assert_eq!(part.map(|kept| kept.length_ns), Some(110 * US));
        // Too short, and longer than what was read.
        assert_eq!(shown(&[idle, idle, [(60, 40), (0, 0)]]), None);
        assert_eq!(shown(&[idle, idle, [(60, 900), (0, 0)]]), None);
        assert_eq!(shown(&[]), None);
    }

    /// Goal: the readings of a long run take the places of the oldest, and what was forgotten is not looked at.
    #[test]
    fn the_oldest_are_overwritten() {
        let idle = [(50, 0), (0, 0)];
        let mut many = vec![idle; 3 * READINGS];
        many.push([(60, 300), (0, 0)]);
        assert_eq!(shown(&many).map(|kept| kept.length_ns), Some(300 * US));
        let mut history = History::new(1);
        history.begin(0);
        history.end();
        assert_eq!(history.forget(), None);
        assert_eq!(history.past(0, 1), None);
    }

    /// Goal: this process's threads are read; when one comes, nothing is called a stall until it has gone.
    #[test]
    fn threads_that_come_are_seen() {
        // A process of its own: other tests come and go in this one.
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let threads = TargetThreads::open(&[child.id()]);
        if let Some(threads) = threads {
            assert!(threads.are_complete());
            let mut watch = TargetWatch::new(&Arc::new(threads));
            let mut readings = |has_events, at_us: u64| {
                assert_eq!(watch.look(has_events, at_us * US), None);
                watch.history.count
            };
            assert_eq!(readings(false, 1), 1);
            assert_eq!(readings(true, 80), 2, "the first event after a silence");
            assert_eq!(readings(true, 120), 2, "no silence, and before its time");
            assert_eq!(readings(false, 181), 3);
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(readings(false, 1_000), 0);
        }
        let _ = child.kill();
        let _ = child.wait();
        assert!(TargetThreads::open(&[]).is_none());
        assert!(TargetThreads::open(&[u32::MAX]).is_none());
    }

    /// Goal: a process that shares its CPU with another's busy loop is seen to wait for that.
    #[test]
    fn a_neighbour_is_seen() {
        let busy_loop = || {
            let mut command = std::process::Command::new("sh");
            let child = command.args(["-c", "while :; do :; done"]).spawn().unwrap();
            let mut one = rustix::thread::CpuSet::new();
            one.set(millpond_io::allowed_cpus().unwrap()[0]);
            let pid = rustix::process::Pid::from_child(&child);
            rustix::thread::sched_setaffinity(Some(pid), &one).unwrap();
            child
        };
        let (mut target, mut neighbour) = (busy_loop(), busy_loop());
        if let Some(threads) = TargetThreads::open(&[target.id()]) {
            let mut watch = TargetWatch::new(&Arc::new(threads));
            let began = std::time::Instant::now();
            let now_ns = || 1 + began.elapsed().as_nanos() as u64;
            // Each runs for some milliseconds at a time; how many is the kernel's business.
            while watch.look(false, now_ns()).is_none() {
                assert!(began.elapsed().as_secs() < 60, "never kept from its CPU");
                std::thread::sleep(std::time::Duration::from_micros(100));
            }
        }
        for child in [&mut target, &mut neighbour] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
