//! Which CPUs this process may use, and binding a thread to one of them.

use crate::error::IoError;
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs this thread may run on, ascending: what `taskset` and containers left of the machine.
pub fn allowed_cpus() -> Result<Vec<usize>, IoError> {
    let set = sched_getaffinity(None).map_err(IoError::system("sched_getaffinity"))?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect())
}

/// Binds the calling thread to one CPU.
pub fn pin_to(cpu: usize) -> Result<(), IoError> {
    // `CpuSet::set` panics beyond its size; the kernel answers EINVAL for CPUs that do not exist.
    if cpu >= CpuSet::MAX_CPU {
        return Err(IoError::CpuUnavailable {
            cpu,
            error: Errno::INVAL,
        });
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|error| IoError::CpuUnavailable { cpu, error })
}

#[cfg(test)]
#[path = "tests/affinity.rs"]
mod tests;
