//! How fast a CPU is right now, as far as somebody else decides it.
//!
//! On a machine that is shared, the other half of a core is busy for seconds and idle for seconds. Arithmetic
//! hardly notices; entering the kernel takes 40 % longer, and a server that does little else is a third slower.
//! A short run of system calls before and after each slice tells in which of the states it ran.

use std::time::Instant;

use rustix::process::getppid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Calls in one run, and runs: the fastest counts, since an interrupt falls into a few of them.
const CALLS: u32 = 100;
const RUNS: u32 = 4;
/// More CPUs would take longer than the answer is worth.
const CPUS_MAX: usize = 4;

/// Nanoseconds of a system call on these CPUs, their geometric mean; `None` if this thread may not go there.
pub(crate) fn system_call_ns(cpus: &[usize]) -> Option<f64> {
    let cpus = cpus
        .get(..cpus.len().min(CPUS_MAX))
        .filter(|cpus| !cpus.is_empty())?;
    let home = sched_getaffinity(None).ok()?;
    let mut sum_of_logs = 0.0;
    let mut has_failed = false;
    for &cpu in cpus {
        let mut only = CpuSet::new();
        only.set(cpu);
        has_failed |= sched_setaffinity(None, &only).is_err();
        sum_of_logs += fastest_call_ns().ln();
    }
    // It was allowed there before.
    let _ = sched_setaffinity(None, &home);
    (!has_failed).then(|| (sum_of_logs / cpus.len() as f64).exp())
}

fn fastest_call_ns() -> f64 {
    let run = |_| {
        let began = Instant::now();
        for _ in 0..CALLS {
            std::hint::black_box(getppid());
        }
        began.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    (0..RUNS).map(run).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a number for the CPUs of this machine, none without any; the thread is where it was.
    #[test]
    fn calls_take_time() {
        let home = sched_getaffinity(None).unwrap();
        let cpus = millpond_io::allowed_cpus().unwrap();
        assert!(system_call_ns(&cpus).unwrap() > 1.0);
        assert_eq!(system_call_ns(&[]), None);
        assert_eq!(system_call_ns(&[1_000]), None);
        assert!(sched_getaffinity(None).unwrap() == home);
    }
}
