//! A number for every thread, never used twice.
//!
//! On the path: a dropped block compares it to its pool's owner to choose between the free list and
//! the remote free. An address in thread-local storage would be as quick but is reused by later
//! threads, and `std::thread::ThreadId` cannot be read while a thread's own values are dropped.
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// No thread's number: a pool without an owner.
pub(crate) const NOBODY: u64 = u64::MAX;
/// The number of every thread that never asked for one, and so owns nothing.
const UNNUMBERED: u64 = 0;

// Constant start and nothing to drop: usable until the thread's very last instruction.
thread_local!(static NUMBER: Cell<u64> = const { Cell::new(UNNUMBERED) });

/// The calling thread's number.
pub(crate) fn current() -> u64 {
    if NUMBER.get() == UNNUMBERED {
        NUMBER.set(next());
    }
    NUMBER.get()
}

/// Whether the calling thread has this number. One thread-local load.
#[inline]
pub(crate) fn is_current(number: u64) -> bool {
    NUMBER.get() == number
}

#[cold]
fn next() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(UNNUMBERED);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a thread that never asked is taken for nobody's owner, not even of an orphaned pool.
    #[test]
    fn unnumbered_thread_owns_nothing() {
        let owner = current();
        assert!(is_current(owner));
        std::thread::spawn(move || assert!(!is_current(owner) && !is_current(NOBODY)))
            .join()
            .unwrap();
    }

    /// Goal: stable inside a thread, different between threads, also when one follows the other.
    #[test]
    fn numbers_are_stable_and_never_reused() {
        let mut seen = vec![current()];
        for _ in 0..8 {
            let pair = std::thread::spawn(|| (current(), current()))
                .join()
                .unwrap();
            assert_eq!(pair.0, pair.1);
            assert!(!seen.contains(&pair.0) && pair.0 != NOBODY && pair.0 != UNNUMBERED);
            seen.push(pair.0);
        }
    }
}
