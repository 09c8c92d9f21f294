//! CPU time of processes, by what the scheduler counted for each of their threads.

use millpond_measure::noise::ThreadTimes;
use std::time::Duration;

/// User and kernel time of all threads of a process so far.
pub(crate) fn used(pid: u32) -> Result<Duration, String> {
    let tasks = format!("/proc/{pid}/task");
    let entries = std::fs::read_dir(&tasks).map_err(|error| format!("{tasks}: {error}"))?;
    let mut total_ns = 0;
    for task in entries.flatten() {
        // A thread may end while the list is read.
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        total_ns += ThreadTimes::parse(&text).map_or(0, |times| times.cpu_ns);
    }
    Ok(Duration::from_nanos(total_ns))
}
