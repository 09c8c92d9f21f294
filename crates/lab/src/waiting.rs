//! How long the threads of a target waited for a CPU that something outside of the target had.
//!
//! On a machine that is not ours alone, a task of somebody else's takes the server's CPU for some milliseconds
//! a few times a second: 3 % of a slice of 100 ms, and its p99. The kernel counts for each thread how long it
//! was ready and did not run. That is nobody's fault but others' only as long as the target does not compete
//! with itself, so it is looked at only where a thread for each CPU did nearly all of the target's work.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use millpond_measure::noise::ThreadTimes;

/// Reading more threads takes longer than it may at the edge of a slice.
const THREADS_MAX: usize = 64;
/// What all other threads of a target may have of its CPU time.
const OTHERS_SHARE_MAX: f64 = 0.01;

/// CPU time and time of waiting of each thread since its start.
#[derive(Debug, Default)]
pub(crate) struct WaitTimes {
    by_thread: BTreeMap<u32, ThreadTimes>,
}

impl WaitTimes {
    /// Of these processes; `None` if they have too many threads, or if the kernel does not count waiting.
    pub(crate) fn read(pids: &[u32]) -> Option<Self> {
        let mut all = Self::default();
        for pid in pids {
            let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
                continue;
            };
            for thread in threads.flatten() {
                let id = thread.file_name().to_str()?.parse().ok()?;
                // One that has ended in the meantime does not wait.
                if let Ok(text) = fs::read_to_string(thread.path().join("schedstat")) {
                    all.by_thread.insert(id, ThreadTimes::parse(&text)?);
                }
                if all.by_thread.len() > THREADS_MAX {
                    return None;
                }
            }
        }
        (!all.by_thread.is_empty()).then_some(all)
    }

    /// How long since `earlier` the busiest threads, one for each of `cpus`, waited for others; `None` if
    /// they may have waited for threads of their own process.
    pub(crate) fn waited_since(&self, earlier: &Self, cpus: usize) -> Option<Duration> {
        let mut spent: Vec<ThreadTimes> = self
            .by_thread
            .iter()
            .map(|(id, now)| {
                let before = earlier.by_thread.get(id).copied().unwrap_or_default();
                now.since(before)
            })
            .collect();
        spent.sort_by_key(|times| std::cmp::Reverse(times.cpu_ns));
        let (busiest, others) = spent.split_at(cpus.min(spent.len()));
        let sum = |part: &[ThreadTimes]| part.iter().map(|times| times.cpu_ns).sum::<u64>();
        let others_may = sum(&spent) as f64 * OTHERS_SHARE_MAX;
        if sum(others) as f64 > others_may {
            return None;
        }
        let waited_ns = busiest.iter().map(|times| times.waited_ns).sum();
        Some(Duration::from_nanos(waited_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(threads: &[(u32, u64, u64)]) -> WaitTimes {
        let times = |&(id, cpu_ns, waited_ns)| (id, ThreadTimes { cpu_ns, waited_ns });
        WaitTimes {
            by_thread: threads.iter().map(times).collect(),
        }
    }

    /// Goal: waiting counts where nobody of the target's own was waited for, and only then.
    #[test]
    fn only_others_are_to_blame() {
        let before = times(&[(1, 500, 40), (2, 1_000, 10)]);
        let after = times(&[(1, 501, 90), (2, 2_000, 13), (3, 2, 7)]);
        let waited = |cpus| after.waited_since(&before, cpus).map(|it| it.as_nanos());
        assert_eq!(waited(1), Some(3));
        assert_eq!(waited(2), Some(10));
        let shared = times(&[(1, 700, 90), (2, 2_000, 13)]);
        assert_eq!(shared.waited_since(&before, 1), None);
        assert_eq!(shared.waited_since(&before, 2).unwrap().as_nanos(), 53);
        assert_eq!(times(&[]).waited_since(&before, 1), Some(Duration::ZERO));
    }

    /// Goal: the kernel's text is understood; this very thread is among those that are read.
    #[test]
    fn own_threads_are_read() {
        let Some(own) = WaitTimes::read(&[std::process::id()]) else {
            assert!(!fs::exists("/proc/self/schedstat").unwrap());
            eprintln!("skipped: this kernel does not count waiting");
            return;
        };
        let id = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        assert!(own.by_thread.contains_key(&id), "{own:?}");
        assert!(WaitTimes::read(&[u32::MAX]).is_none());
    }
}
