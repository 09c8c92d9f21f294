//! The engine's threads that merge tables, as the scheduler sees them.
//!
//! Place: the compaction filter of [`super::rocksdb`] is asked on such a thread, record by record, and the
//! engine has no other call there. Merging is work for seconds at a time; with equal rights every request
//! on its CPU waited for slices of it, and the p99 of reads was thirty times what it is at rest.
//! Absent on purpose: threads that write memtables out, which writers wait for, and an idle priority:
//! beside shards that never rest tables would pile up until the engine stops all writes.

use std::cell::Cell;

use rustix::process::{getpriority_process, setpriority_process};

/// A third of the weight of a shard: beside a shard that never rests it is a quarter of a CPU.
const NICENESS_ADDED: i32 = 5;

thread_local! {
    static HAS_STOOD_BACK: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread lets others go first from now on. But for the first time, one look at a thread's own
/// memory.
pub(super) fn stand_back() {
    if !HAS_STOOD_BACK.replace(true) {
        // Of this thread alone: a Linux thread has a priority of its own (getpriority(2), "C library/kernel
        // differences"). One that may not even be lowered stays as it is.
        let lowered = getpriority_process(None)
            .and_then(|niceness| setpriority_process(None, niceness + NICENESS_ADDED));
        let _ = lowered;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a thread stands back once, however often it is asked, and alone.
    #[test]
    fn a_thread_stands_back_once_and_alone() {
        let before = getpriority_process(None).unwrap();
        let merger = std::thread::spawn(|| {
            stand_back();
            stand_back();
            getpriority_process(None).unwrap()
        });
        let lowest = 19;
        assert_eq!(
            merger.join().unwrap(),
            (before + NICENESS_ADDED).min(lowest)
        );
        assert_eq!(getpriority_process(None).unwrap(), before);
    }
}
