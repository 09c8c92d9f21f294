//! A number for every thread, never used twice.
//!
//! On the path: a dropped block compares it to its pool's owner to choose between the free list and
//! the remote free. An address in thread-local storage would be as quick but is reused by later
//! threads, and `std::thread::ThreadId` cannot be read while a thread's own values are dropped.
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// No thread's number: a pool without an owner.
pub(crate) const NOBODY: u64 = 0;

/// The calling thread's number. One thread-local load after a thread's first call.
#[inline]
pub(crate) fn current() -> u64 {
    // Constant start and nothing to drop: usable until the thread's very last instruction.
    thread_local!(static NUMBER: Cell<u64> = const { Cell::new(NOBODY) });
    NUMBER.with(|number| match number.get() {
        NOBODY => {
            let fresh = next();
            number.set(fresh);
            fresh
        }
        known => known,
    })
}

#[cold]
fn next() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(NOBODY);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: stable inside a thread, different between threads, also when one follows the other.
    #[test]
    fn numbers_are_stable_and_never_reused() {
        let mut seen = vec![current()];
        for _ in 0..8 {
            let pair = std::thread::spawn(|| (current(), current()))
                .join()
                .unwrap();
            assert_eq!(pair.0, pair.1);
            assert!(!seen.contains(&pair.0) && pair.0 != NOBODY);
            seen.push(pair.0);
        }
    }
}
