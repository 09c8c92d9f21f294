//! The first use of malloc by many threads at once: a program of its own, since a process has one
//! first moment only.
//!
//! Found by Miri in the second order of threads it tried: while one thread made the key for threads' ends, another went
//! on without it, and its heap was lost to the process when it ended.
#![allow(unsafe_code)]

use millpond_mempool::malloc;
use std::sync::Barrier;
use std::thread;

const THREADS: usize = if cfg!(miri) { 3 } else { 16 };

/// Goal: whichever thread comes first, the heap of each that ends is there for the next.
#[test]
fn no_heap_is_lost_when_all_threads_begin_at_once() {
    let barrier = Barrier::new(THREADS);
    let live = || {
        barrier.wait();
        let block = malloc::allocate(100);
        assert!(!block.is_null(), "the system has memory");
        // SAFETY: lent, and given up here.
        unsafe { malloc::free(block) };
        // No thread ends before all have begun, so none takes over another's heap.
        barrier.wait();
    };
    let threads: Vec<_> = thread::scope(|scope| {
        // Joined one by one: a scope's own end does not wait for what threads do at theirs.
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(live)).collect();
        threads
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect()
    });
    assert!(threads.iter().all(Result::is_ok));
    let stats = malloc::stats();
    assert_eq!(
        (stats.heap_count, stats.abandoned_count),
        (THREADS, THREADS)
    );
    assert_eq!(stats.live_count, 0);
}
