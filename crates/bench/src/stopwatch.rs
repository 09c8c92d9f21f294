//! What a piece of work took: time on the clock, time on the CPU, and hardware counts.
//!
//! On the path: around the loop of every program, in each of its threads.

use crate::counters::{Counters, Counts};
use rustix::time::{ClockId, clock_gettime};
use std::time::Instant;

/// What one thread's work took, or that of several together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Timed {
    /// On the clock; of several threads, of the slowest.
    pub(crate) wall_ns: u64,
    /// On the CPU, user mode and kernel; of several threads, of all.
    pub(crate) cpu_ns: u64,
    /// `None` without counters, or when one thread had none.
    pub(crate) counts: Option<Counts>,
}

impl Timed {
    /// Does the work and times it.
    pub(crate) fn of(work: impl FnOnce()) -> Self {
        let mut counters = Counters::of_this_thread();
        let (wall, cpu_ns) = (Instant::now(), thread_cpu_ns());
        counters.start();
        work();
        let counts = counters.stop();
        Self {
            wall_ns: wall.elapsed().as_nanos() as u64,
            cpu_ns: thread_cpu_ns() - cpu_ns,
            counts,
        }
    }

    /// Two threads that worked at the same time.
    pub(crate) fn beside(self, other: Self) -> Self {
        Self {
            wall_ns: self.wall_ns.max(other.wall_ns),
            cpu_ns: self.cpu_ns + other.cpu_ns,
            counts: self.counts.zip(other.counts).map(|(one, two)| one + two),
        }
    }
}

fn thread_cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Goal: sleeping takes time on the clock and next to none on the CPU, and two threads take the
    /// longer time and both CPU times.
    #[test]
    fn clock_and_cpu_are_told_apart() {
        let asleep = Timed::of(|| std::thread::sleep(Duration::from_millis(30)));
        assert!(asleep.wall_ns >= 30_000_000);
        assert!(asleep.cpu_ns < asleep.wall_ns);
        let longer = Timed {
            wall_ns: asleep.wall_ns + 1,
            cpu_ns: 5,
            counts: None,
        };
        let both = asleep.beside(longer);
        assert_eq!(
            (both.wall_ns, both.cpu_ns, both.counts),
            (asleep.wall_ns + 1, asleep.cpu_ns + 5, None)
        );
    }
}
