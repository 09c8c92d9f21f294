//! Where and how threads run: which CPUs a process may use, binding a thread to one of them, and its priority.

use crate::error::IoError;
use rustix::io::Errno;
use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs this thread may run on, ascending: as limited by `taskset` and containers.
pub fn allowed_cpus() -> Result<Vec<usize>, IoError> {
    let set = sched_getaffinity(None).map_err(IoError::system("sched_getaffinity"))?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect())
}

/// Binds the calling thread to one CPU.
pub fn pin_to(cpu: usize) -> Result<(), IoError> {
    // `CpuSet::set` panics beyond its size; the kernel returns EINVAL for CPUs that do not exist.
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

// The highest priority among ordinary tasks, so that other programs interrupt a thread as little as may be.
//
// A task of equal priority that wakes on the same CPU keeps it until its slice or the kernel's tick ends, up to 4 ms.
// Real-time priorities would be stronger, and could stop the machine: not used.

/// The nice value with the largest weight.
const HIGHEST: i32 = -20;
/// Where sessions are scheduled as groups (`CONFIG_SCHED_AUTOGROUP`), a nice value orders only the tasks of one session;
/// this is the session's own.
const SESSION_NICE: &str = "/proc/self/autogroup";

/// Gives the calling thread, and what it starts from now on, the highest priority. Needs `CAP_SYS_NICE` or a limit of
/// `nice` (`RLIMIT_NICE`) that allows it.
pub fn raise_thread_priority() -> Result<(), IoError> {
    setpriority_process(None, HIGHEST).map_err(IoError::system("setpriority"))
}

/// The same for the calling process's session, which it must lead: every process of it is raised.
///
/// Only for a separate session (`setsid`): in a terminal's it would raise all processes there.
pub fn raise_session_priority() -> Result<(), IoError> {
    raise_thread_priority()?;
    // Absent or without effect where sessions are not scheduled as groups.
    let _ = std::fs::write(SESSION_NICE, HIGHEST.to_string());
    Ok(())
}

/// Whether [`raise_thread_priority`] is permitted; tried in a thread that ends.
#[must_use]
pub fn may_raise_priority() -> bool {
    let attempt = std::thread::Builder::new().spawn(raise_thread_priority);
    attempt.is_ok_and(|thread| thread.join().is_ok_and(|raised| raised.is_ok()))
}

#[cfg(test)]
#[path = "tests/affinity.rs"]
mod affinity_tests;

#[cfg(test)]
#[path = "tests/priority.rs"]
mod priority_tests;
