//! Panics of threads that go on after them: counted for the process, said in the log, shown on `/metrics`.

use crate::log::{self, LogLevel};
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};

/// A thread beside the shards that does not end by a panic.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum HelperThread {
    AccessLog,
    FilesDisk,
}

static COUNTS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// What `work` gives back; `None`: it panicked, which is counted and said. Its caller goes on, so what `work` changes
/// has to be whole after each of its steps.
pub(crate) fn catch<T>(thread: HelperThread, work: impl FnOnce() -> T) -> Option<T> {
    let done = panic::catch_unwind(AssertUnwindSafe(work)).ok();
    if done.is_none() {
        note(thread);
    }
    done
}

/// Counts it, and says what came of it.
fn note(thread: HelperThread) {
    COUNTS[thread as usize].fetch_add(1, Ordering::Relaxed);
    let (name, consequence) = match thread {
        HelperThread::AccessLog => (
            "access log's writer",
            "the entry at hand is lost, others are written",
        ),
        HelperThread::FilesDisk => (
            "disk thread of the file server",
            "the request at hand is answered 500, others go on",
        ),
    };
    log::write(
        LogLevel::Error,
        format_args!("the {name} panicked: {consequence}"),
    );
}

/// How often each has panicked, by its name on `/metrics`.
pub(crate) fn counts() -> [(&'static str, u64); 3] {
    let of = |thread: HelperThread| COUNTS[thread as usize].load(Ordering::Relaxed);
    [
        ("access-log", of(HelperThread::AccessLog)),
        ("files-disk", of(HelperThread::FilesDisk)),
        ("resolver", millpond_io::resolver::panic_count()),
    ]
}
