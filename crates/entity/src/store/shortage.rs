//! What the engine needs of the machine before it is opened, tried out: threads and descriptors.
//!
//! RocksDB starts its threads with `std::thread`, which throws where the system has none left; no exception may
//! leave its C interface, so the process is aborted. So as many threads are started first. What is lost between
//! the two is met by [`crate::abort_note`].

use std::fs::File;
use std::io;
use std::thread;

/// Threads that the engine starts when it is opened: one that writes memtables out, one that merges tables, and
/// one for what it does by time; and one that closes it (`closing`).
const THREADS_NEEDED: usize = 4;

/// So many descriptors have to be free: its log, its lists of files and a few tables. With fewer it would come
/// back without what it reads from.
const DESCRIPTORS_NEEDED: usize = 32;

/// Whether the system still gives so many threads at once.
///
/// # Errors
/// What it says instead.
pub(super) fn check_threads() -> io::Result<()> {
    let mut started = Vec::with_capacity(THREADS_NEEDED);
    let mut refusal = Ok(());
    while started.len() < THREADS_NEEDED && refusal.is_ok() {
        let probe = thread::Builder::new().name("store-probe".to_owned());
        match probe.spawn(thread::park) {
            Ok(thread) => started.push(thread),
            Err(error) => refusal = Err(error),
        }
    }
    for probe in started {
        probe.thread().unpark();
        // Nothing in it panics.
        let _ = probe.join();
    }
    refusal
}

/// Whether the process may still open so many files.
pub(super) fn has_descriptors() -> bool {
    let opened = (0..DESCRIPTORS_NEEDED).map(|_| File::open("/dev/null"));
    opened.collect::<Result<Vec<_>, _>>().is_ok()
}
