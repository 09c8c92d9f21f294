//! The pools as a Rust program's global allocator: this test program allocates everything from them.
#![allow(unsafe_code)]

use millpond_mempool::{MempoolAlloc, malloc};
use std::alloc::{GlobalAlloc, Layout};
use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread;

/// Under Miri the pages themselves come from the global allocator, which must be another one then.
#[cfg_attr(not(miri), global_allocator)]
static ALLOCATOR: MempoolAlloc = MempoolAlloc;

/// Goal: a program with threads that hand collections to each other computes what it should.
#[test]
fn collections_wander_between_threads() {
    let rounds = if cfg!(miri) { 5 } else { 50 };
    let (sender, receiver) = mpsc::channel::<BTreeMap<usize, String>>();
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let sender = sender.clone();
            thread::spawn(move || {
                for round in 0..rounds {
                    let row = |n: usize| (n, "x".repeat(n * (worker + 1)));
                    sender.send((0..round * 4).map(row).collect()).unwrap();
                }
            })
        })
        .collect();
    drop(sender);
    let total: usize = receiver
        .iter()
        .flatten()
        .map(|(n, text)| {
            assert!(text.len().is_multiple_of(n.max(1)));
            text.len()
        })
        .sum();
    for worker in workers {
        worker.join().unwrap();
    }
    let sum_to = |count: usize| (0..count).sum::<usize>();
    let expected: usize = (0..rounds)
        .map(|round| sum_to(round * 4) * (1 + 2 + 3 + 4))
        .sum();
    assert_eq!(total, expected);
    assert!(malloc::stats().heap_count >= 2);
}

/// Goal: layouts of any alignment are honoured by all four functions, and contents survive.
#[test]
fn layouts_are_honoured() {
    let align_bits = if cfg!(miri) { 17 } else { 24 };
    for align in (0..align_bits).map(|bit| 1_usize << bit) {
        for size in [1, 24, 100, 5000, 40_000, 5 << 20] {
            if cfg!(miri) && (size > 40_000 || align.ilog2() % 4 != 0) {
                continue;
            }
            let layout = Layout::from_size_align(size, align).unwrap();
            // SAFETY: sizes are not 0; blocks are used within their layout and freed once.
            unsafe {
                let block = ALLOCATOR.alloc_zeroed(layout);
                assert!(!block.is_null() && block.addr().is_multiple_of(align));
                assert!((0..size).step_by(61).all(|at| block.add(at).read() == 0));
                block.write_bytes(0xA5, size);
                let longer = ALLOCATOR.realloc(block, layout, size * 2);
                assert!(!longer.is_null() && longer.addr().is_multiple_of(align));
                assert!(
                    (0..size)
                        .step_by(61)
                        .all(|at| longer.add(at).read() == 0xA5)
                );
                let layout = Layout::from_size_align(size * 2, align).unwrap();
                ALLOCATOR.dealloc(longer, layout);
            }
        }
    }
}

/// Goal: an impossible request is a null pointer, not an abort.
#[test]
fn impossible_sizes_are_refused() {
    for size in [1 << 47, isize::MAX as usize, usize::MAX] {
        assert!(malloc::allocate(size).is_null());
        assert!(malloc::allocate_zeroed(size).is_null());
        assert!(malloc::allocate_aligned(1 << 20, size).is_null());
    }
}

/// Goal: heaps of threads that ended are taken over, so their number is that of threads at once.
#[test]
fn heaps_are_adopted() {
    for _ in 0..if cfg!(miri) { 5 } else { 200 } {
        thread::spawn(|| vec![String::from("left behind"); 100].len())
            .join()
            .unwrap();
    }
    let heap_count = malloc::stats().heap_count;
    assert!(
        heap_count < 40,
        "{heap_count} heaps for a handful of threads at once"
    );
}

/// A block that another thread may free.
struct Sent(*mut u8, usize);

// SAFETY: the holder has exclusive access to the block.
unsafe impl Send for Sent {}

/// Goal: blocks that one thread lends and another frees stay whole on the way, and are returned also when the lender is
/// gone.
#[test]
fn blocks_are_freed_elsewhere() {
    let count = if cfg!(miri) { 200 } else { 20_000 };
    let (sender, receiver) = mpsc::channel::<Sent>();
    let lender = thread::spawn(move || {
        for n in 0..count {
            let size = n * 37 % 3000 + 1;
            let block = malloc::allocate(size);
            // SAFETY: as long as asked for, and ours.
            unsafe { block.write_bytes(n as u8, size) };
            sender.send(Sent(block, size)).unwrap();
        }
    });
    for (n, Sent(block, size)) in receiver.iter().enumerate() {
        // SAFETY: the lender wrote all of it and has nothing to do with it any more.
        unsafe {
            assert_eq!(
                (block.read(), block.add(size - 1).read()),
                (n as u8, n as u8)
            );
            malloc::free(block);
        }
    }
    lender.join().unwrap();
}
