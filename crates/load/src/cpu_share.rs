//! How busy a generator thread is. Time spent looking for answers (`--busy-poll`) is free time: the
//! thread would have slept.

use rustix::time::{ClockId, clock_gettime};

/// CPU time of the calling thread over wall time, between the first and the last sample.
#[derive(Debug, Default)]
pub(crate) struct CpuShare {
    first: Option<(u64, u64)>,
    last: (u64, u64),
}

impl CpuShare {
    /// Reads the calling thread's CPU clock, which is a system call: not per request. `spun_ns` is
    /// how long it has looked for answers so far.
    pub(crate) fn sample(&mut self, now_ns: u64, spun_ns: u64) {
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        // Neither part of a thread's CPU time is ever negative.
        let cpu_ns = cpu.tv_sec.cast_unsigned() * 1_000_000_000 + cpu.tv_nsec.cast_unsigned();
        // A thread that lost its CPU while it looked has used less than the time that took.
        self.last = (now_ns, cpu_ns.saturating_sub(spun_ns));
        self.first.get_or_insert(self.last);
    }

    /// 0 to 1; 0 before two samples.
    pub(crate) fn share(&self) -> f64 {
        let Some((first_ns, first_cpu_ns)) = self.first else {
            return 0.0;
        };
        let (wall_ns, cpu_ns) = (
            self.last.0 - first_ns,
            self.last.1.saturating_sub(first_cpu_ns),
        );
        if wall_ns == 0 {
            0.0
        } else {
            cpu_ns as f64 / wall_ns as f64
        }
    }
}
