//! How often the pools call malloc and free, counted in front of the allocator.
//!
//! With pools on: never, once they are warm. With pools off: once per allocation and once per
//! return. The comparison of both modes stands on these two facts.
#![allow(
    clippy::unwrap_used,
    reason = "the helpers of these tests are tests too"
)]
#![allow(unsafe_code)]
use millpond_mempool::{Arena, BlockPool, Buffer, BufferPool, PoolMode, Slab, flush_remote_frees};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::mpsc;
use std::thread;

/// Counts per thread, so that tests side by side do not see each other's calls.
struct CountingAllocator;

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct HeapCalls {
    malloc: u64,
    realloc: u64,
    free: u64,
}

thread_local!(static CALLS: Cell<HeapCalls> = const {
    Cell::new(HeapCalls { malloc: 0, realloc: 0, free: 0 })
});

fn note(change: impl FnOnce(&mut HeapCalls)) {
    let mut calls = CALLS.get();
    change(&mut calls);
    CALLS.set(calls);
}

// SAFETY: all work is the system allocator's; counting touches one thread-local cell, which needs
// neither memory nor a destructor.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(|calls| calls.malloc += 1);
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(|calls| calls.malloc += 1);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size_bytes: usize) -> *mut u8 {
        note(|calls| calls.realloc += 1);
        // SAFETY: as above.
        unsafe { System.realloc(start, layout, size_bytes) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        note(|calls| calls.free += 1);
        // SAFETY: as above.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The calling thread's heap calls during `work`.
fn heap_calls(work: impl FnOnce()) -> HeapCalls {
    let before = CALLS.get();
    work();
    let after = CALLS.get();
    HeapCalls {
        malloc: after.malloc - before.malloc,
        realloc: after.realloc - before.realloc,
        free: after.free - before.free,
    }
}

fn exactly(count: u64) -> HeapCalls {
    HeapCalls {
        malloc: count,
        realloc: 0,
        free: count,
    }
}

const NONE: HeapCalls = HeapCalls {
    malloc: 0,
    realloc: 0,
    free: 0,
};

/// Goal: the instrument works; without it every other test here would pass on silence.
#[test]
fn counter_counts() {
    let calls = heap_calls(|| {
        let mut bytes: Vec<u8> = Vec::with_capacity(10);
        bytes.extend_from_slice(&[0; 100]);
        drop(std::hint::black_box(bytes));
    });
    assert_eq!(
        calls,
        HeapCalls {
            malloc: 1,
            realloc: 1,
            free: 1
        }
    );
}

/// 1000 times: a block of varying size, up to 40,000 bytes, is taken and dropped.
fn a_thousand_blocks(pool: &BlockPool) {
    for round in 0..1000 {
        drop(std::hint::black_box(pool.allocate(round * 40).unwrap()));
    }
}

/// Goal: off means one malloc and one free per block, of every size, and nothing else.
#[test]
fn off_is_one_malloc_and_one_free_per_block() {
    let pool = BlockPool::new("blocks", PoolMode::Off);
    assert_eq!(heap_calls(|| a_thousand_blocks(&pool)), exactly(1000));
    assert_eq!(heap_calls(|| pool.drain_remote()), NONE);
}

/// Goal: the same for the other three pools. A slab's first object also makes its table, a buffer
/// pool's first lease its lists.
#[test]
fn off_is_one_malloc_and_one_free_per_object() {
    let mut slab = Slab::new("objects", PoolMode::Off);
    slab.insert([0_u64; 9]).unwrap();
    let slab_calls = heap_calls(|| {
        for _ in 0..1000 {
            let handle = slab.insert([1; 9]).unwrap();
            slab.remove(handle).unwrap();
        }
    });
    assert_eq!(slab_calls, exactly(1000));

    let mut arena = Arena::new("request", PoolMode::Off);
    let arena_calls = heap_calls(|| {
        for len in 1..=1000 {
            arena.alloc_slice(len).unwrap();
        }
        arena.reset();
    });
    assert_eq!(arena_calls, exactly(1000));

    let buffers = BufferPool::new("io", PoolMode::Off, 64 * 1024, 16);
    drop(buffers.lease().unwrap());
    let buffer_calls = heap_calls(|| {
        for _ in 0..1000 {
            drop(buffers.lease().unwrap());
        }
    });
    assert_eq!(buffer_calls, exactly(1000));
}

/// Goal: a block dropped on another thread is freed there and then, as malloc's users do it.
#[test]
fn off_frees_where_the_block_is_dropped() {
    let pool = BlockPool::new("blocks", PoolMode::Off);
    let blocks = [(); 50].map(|()| pool.allocate(500).unwrap());
    let away = thread::spawn(move || heap_calls(move || drop(blocks)))
        .join()
        .unwrap();
    assert_eq!(away, HeapCalls { free: 50, ..NONE });
    assert_eq!(heap_calls(|| pool.drain_remote()), NONE);
    assert_eq!(pool.stats().live_objects, 0);
}

/// Goal: warm pools call neither malloc nor free, over all the work a request makes.
#[test]
fn on_makes_no_heap_calls_when_warm() {
    let pool = BlockPool::new("blocks", PoolMode::On);
    let mut slab = Slab::new("objects", PoolMode::On);
    let mut arena = Arena::new("request", PoolMode::On);
    let buffers = BufferPool::new("io", PoolMode::On, 64 * 1024, 16);
    let mut request = || {
        let mut received = buffers.lease().unwrap();
        let bytes = [b'x'; 700];
        received
            .fill_from(|room| Ok::<_, std::io::Error>(room[..700].write_copy_of_slice(&bytes)))
            .unwrap();
        let connection = slab.insert([0_u64; 9]).unwrap();
        let mut response = Buffer::new();
        for _ in 0..45 {
            response.extend_from_slice(&pool, &received).unwrap();
            arena.copy_in(&received).unwrap();
        }
        response.consume_front(10_000);
        response.reserve(&pool, 5000).unwrap();
        slab.remove(connection).unwrap();
        arena.reset();
        pool.drain_remote();
        assert!(pool.stats().identity_holds());
        assert!(pool.class_stats().count() > 0);
    };
    let cold = heap_calls(&mut request);
    assert!(
        cold.malloc > 0,
        "the first request is expected to build the tables"
    );
    let warm = heap_calls(|| {
        for _ in 0..1000 {
            request();
        }
    });
    assert_eq!(warm, NONE);
}

/// Goal: that holds for blocks of every class, and for blocks that travel.
#[test]
fn on_makes_no_heap_calls_for_travelling_blocks() {
    let pool = BlockPool::new("blocks", PoolMode::On);
    let (to_traveller, arrivals) = mpsc::sync_channel(64);
    let (to_owner, reports) = mpsc::sync_channel(64);
    let traveller = thread::spawn(move || {
        for block in &arrivals {
            to_owner
                .send(heap_calls(|| drop::<millpond_mempool::Block>(block)))
                .unwrap();
        }
    });
    let trip = |size_bytes: usize| {
        let mut calls = NONE;
        let mut block = None;
        let taken = heap_calls(|| block = Some(pool.allocate(size_bytes).unwrap()));
        to_traveller.send(block.take().unwrap()).unwrap();
        let dropped = reports.recv().unwrap();
        let drained = heap_calls(|| pool.drain_remote());
        for part in [taken, dropped, drained] {
            calls.malloc += part.malloc;
            calls.realloc += part.realloc;
            calls.free += part.free;
        }
        calls
    };
    for size_bytes in (0..=32 * 1024).step_by(64) {
        trip(size_bytes);
    }
    for size_bytes in (0..=32 * 1024).step_by(61) {
        assert_eq!(trip(size_bytes), NONE, "{size_bytes} bytes");
    }
    drop(to_traveller);
    traveller.join().unwrap();
}

/// Goal: a pool that dies before its blocks is freed with the last of them, to the last byte.
#[test]
fn orphaned_pool_is_freed_with_its_last_block() {
    for mode in [PoolMode::On, PoolMode::Off] {
        let mut blocks = Vec::with_capacity(100);
        let calls = heap_calls(|| {
            let pool = BlockPool::new("orphaned", mode);
            blocks.extend((0..100).map(|index| pool.allocate(index * 500).unwrap()));
            drop(pool);
            blocks.clear();
            flush_remote_frees();
        });
        assert!(calls.malloc > 0);
        assert_eq!(calls.malloc, calls.free, "{mode:?}");
    }
}
