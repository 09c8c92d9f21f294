//! Objects in a `Pool`, and collections in a `BlockPool`, instead of boxes and the global allocator.
#![allow(
    unsafe_code,
    clippy::unwrap_used,
    reason = "the helpers of these tests are tests too"
)]
mod modes;

use millpond_mempool::{BlockPool, Pool, PoolError, PoolMode, Pooled, flush_remote_frees};
use modes::{MODES, budgeted_bytes, is_filled};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Adds 1 when dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Goal: it may go wherever its object may go, and is two words.
#[test]
fn bounds_and_size() {
    fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<Pooled<String>>();
    assert_eq!(size_of::<Pooled<String>>(), 16);
    assert_eq!(size_of::<Option<Pooled<String>>>(), 16);
}

/// Goal: every object is dropped once, by any holder, and on any thread.
#[test]
fn objects_are_dropped_once() {
    const HALF: usize = if cfg!(miri) { 40 } else { 500 };
    for mode in MODES {
        let dropped = Arc::new(AtomicUsize::new(0));
        let pool = Pool::new("counted", mode);
        let mut objects: Vec<Pooled<Counted>> = (0..2 * HALF)
            .map(|_| pool.insert(Counted(dropped.clone())).unwrap())
            .collect();
        let elsewhere = objects.split_off(HALF);
        thread::spawn(move || drop(elsewhere)).join().unwrap();
        assert_eq!(dropped.load(Ordering::Relaxed), HALF);
        let kept = objects.pop().unwrap().into_inner();
        drop(objects);
        assert_eq!(dropped.load(Ordering::Relaxed), 2 * HALF - 1);
        drop(kept);
        assert_eq!(dropped.load(Ordering::Relaxed), 2 * HALF);
        pool.drain_remote();
        let stats = pool.stats();
        assert_eq!((stats.live_objects, stats.live_bytes), (0, 0));
        let half = HALF as u64;
        assert_eq!(
            (stats.hits + stats.misses, stats.remote_frees),
            (2 * half, half)
        );
        assert!(stats.identity_holds());
    }
}

/// Goal: objects outlive their pool's last handle and its thread.
#[test]
fn objects_outlive_their_pool_and_thread() {
    for mode in MODES {
        let objects: Vec<Pooled<[u64; 9]>> = thread::spawn(move || {
            let pool = Pool::new("short-lived", mode);
            (0..if cfg!(miri) { 100 } else { 5000 })
                .map(|n| pool.insert([n; 9]).unwrap())
                .collect()
        })
        .join()
        .unwrap();
        for (object, n) in objects.iter().zip(0..) {
            assert_eq!(**object, [n; 9]);
        }
        drop(objects);
        flush_remote_frees();
    }
}

/// Goal: sizes and alignments malloc knows and some it does not: none, odd, huge, over a page.
#[test]
fn every_layout_is_served() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    #[repr(align(64))]
    struct Line([u8; 65]);
    #[derive(Clone, Copy, Debug, PartialEq)]
    #[repr(align(8192))]
    struct Pages([u8; 3]);
    #[derive(Clone, Copy, Debug, PartialEq)]
    #[repr(align(131_072))]
    struct Chunks(u8);

    const COUNT: u8 = if cfg!(miri) { 10 } else { 100 };
    fn check<T: Copy + PartialEq + std::fmt::Debug>(make: impl Fn(u8) -> T) {
        for mode in MODES {
            let pool = Pool::new("layouts", mode);
            let objects: Vec<Pooled<T>> =
                (0..COUNT).map(|n| pool.insert(make(n)).unwrap()).collect();
            for (object, n) in objects.iter().zip(0..) {
                assert_eq!(**object, make(n));
                assert!((&raw const **object).addr().is_multiple_of(align_of::<T>()));
            }
            let stats = pool.stats();
            assert_eq!(stats.live_objects, COUNT.into());
            assert!(stats.live_bytes >= u64::from(COUNT) * size_of::<T>() as u64);
            assert!(stats.identity_holds());
        }
    }
    check(|_| ());
    check(|n| n);
    check(|n| [n; 17]);
    check(|n| [n; 32 * 1024]);
    check(|n| [n; 32 * 1024 + 1]);
    check(|n| Line([n; 65]));
    check(|n| Pages([n; 3]));
    check(Chunks);
}

/// Goal: a budget refuses with a reason, drops what it did not take, and grants again after a free
/// elsewhere; the pool stays usable after a refusal.
#[test]
fn budget_refuses_and_recovers() {
    for mode in MODES {
        let pool = Pool::with_budget("budget", mode, 128 * 1024);
        let dropped = Arc::new(AtomicUsize::new(0));
        let mut objects = Vec::new();
        let refusal = loop {
            match pool.insert((Counted(dropped.clone()), [0_u8; 1000])) {
                Ok(object) => objects.push(object),
                Err(refusal) => break refusal,
            }
        };
        assert!(matches!(
            refusal,
            PoolError::BudgetExhausted {
                limit_bytes: 131_072,
                ..
            }
        ));
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        assert!(objects.len() > 100);
        let gone = objects.pop();
        thread::spawn(move || drop(gone)).join().unwrap();
        objects.push(pool.insert((Counted(dropped.clone()), [0; 1000])).unwrap());
        assert!(budgeted_bytes(&pool.stats()) <= 128 * 1024);
    }
}

/// Goal: an object that panics while it is dropped leaves the pool whole.
#[test]
fn panicking_drop_frees_its_memory() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("as planned");
        }
    }
    let pool = Pool::new("bombs", PoolMode::On);
    let bomb = pool.insert(Bomb).unwrap();
    thread::scope(|_| {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(bomb)));
        assert!(caught.is_err());
    });
    assert_eq!(pool.stats().live_objects, 0);
}

/// Goal: an object may own others of its own pool: freeing re-enters the pool.
#[test]
fn objects_can_own_objects_of_their_pool() {
    struct Node {
        next: Option<Pooled<Node>>,
        dropped: Rc<Cell<usize>>,
    }
    impl Drop for Node {
        fn drop(&mut self) {
            self.dropped.set(self.dropped.get() + 1);
        }
    }
    const COUNT: usize = if cfg!(miri) { 200 } else { 1000 };
    let pool = Pool::new("nodes", PoolMode::On);
    let dropped = Rc::new(Cell::new(0));
    let mut list = None;
    for _ in 0..COUNT {
        let dropped = dropped.clone();
        list = Some(
            pool.insert(Node {
                next: list,
                dropped,
            })
            .unwrap(),
        );
    }
    let length = std::iter::successors(list.as_deref(), |node| node.next.as_deref()).count();
    assert_eq!(length, COUNT);
    drop(list);
    assert_eq!(dropped.get(), COUNT);
    assert_eq!(pool.stats().live_objects, 0);
}

/// Goal: a hash map and a vector that live in a block pool keep their contents, show up in its figures, and give all of
/// it back.
#[test]
fn collections_run_on_a_block_pool() {
    const COUNT: u64 = if cfg!(miri) { 300 } else { 20_000 };
    for mode in MODES {
        let pool = BlockPool::new("collections", mode);
        let mut map = hashbrown::HashMap::new_in(pool.clone());
        let mut list = allocator_api2::vec::Vec::new_in(pool.clone());
        for n in 0..COUNT {
            map.insert(n, n * n);
            list.push(n);
            if n % 3 == 0 {
                map.remove(&(n / 2));
            }
        }
        assert!(list.iter().copied().eq(0..COUNT));
        assert!(map.iter().all(|(n, square)| n * n == *square));
        let stats = pool.stats();
        assert!(stats.live_bytes >= COUNT * 8 && stats.identity_holds());
        list.truncate(10);
        list.shrink_to_fit();
        assert!(list.iter().copied().eq(0..10));
        drop((map, list));
        assert_eq!((pool.stats().live_objects, pool.stats().live_bytes), (0, 0));
    }
}

/// Goal: a collection that the budget refuses gets an error, and is unchanged.
#[test]
fn collections_meet_the_budget_as_an_error() {
    let pool = BlockPool::with_budget("small", PoolMode::On, 64 * 1024);
    let mut list = allocator_api2::vec::Vec::new_in(pool.clone());
    list.extend_from_slice(&[7_u8; 1000]);
    assert!(list.try_reserve(100_000).is_err());
    assert_eq!(&list[..], &[7; 1000]);
    assert!(pool.stats().identity_holds());
}

/// Goal: a collection of over-aligned things gets aligned memory, also where it grows in place.
#[test]
fn collections_respect_alignment() {
    #[derive(Clone, Copy, PartialEq, Debug)]
    #[repr(align(256))]
    struct Wide(u8);
    for mode in MODES {
        let pool = BlockPool::new("wide", mode);
        let mut list = allocator_api2::vec::Vec::new_in(pool.clone());
        for n in 0..200 {
            list.push(Wide(n));
            assert!(list.as_ptr().addr().is_multiple_of(256));
        }
        assert!(list.iter().copied().eq((0..200).map(Wide)));
        drop(list);
        assert_eq!(pool.stats().live_objects, 0);
    }
}

/// Goal: aligned blocks are aligned, hold their size, and do not overlap.
#[test]
fn aligned_blocks_are_aligned() {
    for mode in MODES {
        let pool = BlockPool::new("aligned", mode);
        let mut blocks = Vec::new();
        for shift in 0..=16 {
            for size_bytes in [1, 64, 100, 1000, 5000, 40_000] {
                let mut block = pool.allocate_aligned(size_bytes, 1 << shift).unwrap();
                assert!(block.capacity() >= size_bytes);
                let bytes = block.as_uninit_mut();
                assert!(bytes.as_ptr().addr().is_multiple_of(1 << shift));
                bytes.write_copy_of_slice(&vec![shift; bytes.len()]);
                blocks.push((block, shift));
            }
        }
        for (block, shift) in &mut blocks {
            // SAFETY: `fill` wrote all of it.
            let bytes = unsafe { block.as_uninit_mut().assume_init_ref() };
            assert!(is_filled(bytes, *shift));
        }
        assert!(pool.stats().identity_holds());
        drop(blocks);
        assert_eq!((pool.stats().live_objects, pool.stats().live_bytes), (0, 0));
    }
}
