//! Checked pools: every fault planted through the pools' own doors and seen with the right words,
//! and the n-th allocation refused for every n.
#![allow(
    clippy::unwrap_used,
    reason = "the helpers of these tests are tests too"
)]
#![allow(unsafe_code)]
mod child;
mod modes;

use allocator_api2::alloc::{Allocator, Layout};
use child::{SIGABRT, SIGSEGV, in_child};
use millpond_mempool::{
    Arena, Block, BlockPool, Buffer, BufferPool, Checks, Pool, PoolError, PoolMode, PoolStats, Slab,
};
use modes::{CHECKED, GUARDED, is_filled};
use std::num::NonZeroU64;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::thread;

/// Of a class, the largest class, and straight from malloc in other modes.
const SIZES: [usize; 5] = [16, 100, 4096, 32 * 1024, 100_000];

/// The report of the pool when `fault` was done.
fn caught<T>(fault: impl FnOnce() -> T) -> String {
    let ended = catch_unwind(AssertUnwindSafe(fault));
    let panic = ended.err().expect("the fault goes unseen");
    *panic.downcast::<String>().unwrap()
}

fn assert_says(sentence: &str, parts: &[&str]) {
    for part in parts {
        assert!(sentence.contains(part), "{part:?} is missing: {sentence}");
    }
}

/// The pointer for injecting a fault. Miri treats writing through a pointer from a reference as the fault, and reports
/// it before the pool can: there it gets the rights of the kernel.
fn planting(pointer: *mut u8) -> *mut u8 {
    #[cfg(miri)]
    let pointer = millpond_mempool::with_rights_of_its_mapping(pointer);
    pointer
}

fn start(block: &mut Block) -> *mut u8 {
    planting(block.as_uninit_mut().as_mut_ptr().cast())
}

fn assert_empty_and_balanced(pool: &BlockPool) {
    pool.drain_remote();
    let stats = pool.stats();
    assert_eq!((stats.live_objects, stats.live_bytes), (0, 0), "{stats:?}");
    assert!(stats.identity_holds(), "{stats:?}");
    pool.verify();
}

/// Goal: a byte beside a block is named when the block is dropped, on the pool's thread and on
/// another, and the books balance afterwards.
#[test]
fn overruns_are_named_on_every_thread() {
    for size_bytes in SIZES {
        for (offset_bytes, name) in [(size_bytes as isize, "overrun"), (-1, "underrun")] {
            for is_elsewhere in [false, true] {
                let pool = BlockPool::new("bodies", CHECKED);
                let mut block = pool.allocate(size_bytes).unwrap();
                let address = format!("at {:p}", start(&mut block));
                // SAFETY: the fault to be found: a byte of a canary, which is mapped memory.
                unsafe { start(&mut block).offset(offset_bytes).write(0) };
                let sentence = caught(|| match is_elsewhere {
                    true => {
                        let dropped = thread::spawn(move || drop(block)).join();
                        std::panic::resume_unwind(dropped.unwrap_err());
                    }
                    false => drop(block),
                });
                let place = format!("{name} in pool bodies: byte 1");
                let size = format!("the block of {size_bytes} bytes");
                assert_says(&sentence, &[&place, &size, &address, "allocation 1"]);
                assert_empty_and_balanced(&pool);
            }
        }
    }
}

/// Goal: a sweep finds a damaged canary of a block that is still lent.
#[test]
fn sweep_finds_what_is_still_lent() {
    let pool = BlockPool::new("swept", CHECKED);
    let mut block = pool.allocate(100).unwrap();
    pool.trim();
    // SAFETY: the fault to be found.
    unsafe { start(&mut block).add(100).write(1) };
    assert_says(&caught(|| pool.trim()), &["overrun in pool swept"]);
    pool.trim();
    drop(block);
    assert_empty_and_balanced(&pool);
}

/// Goal: a write through a pointer that outlived its block is named by `verify`, by the sweep, and
/// at the latest when the pool is gone, also when its last block outlives it elsewhere.
#[test]
fn writes_after_free_are_named() {
    for size_bytes in SIZES {
        let plant = |pool: &BlockPool| {
            let mut block = pool.allocate(size_bytes).unwrap();
            let stale = start(&mut block);
            drop(block);
            // SAFETY: the fault to be found; the quarantine keeps the memory mapped.
            unsafe { stale.add(3).write(1) };
        };
        let size = format!("byte 3 of the block of {size_bytes} bytes");
        let parts = [
            "use after free in pool late",
            &size,
            "after the block was freed",
        ];
        let pool = BlockPool::new("late", CHECKED);
        plant(&pool);
        assert_says(&caught(|| pool.verify()), &parts);
        plant(&pool);
        assert_says(&caught(|| pool.trim()), &parts);
        plant(&pool);
        assert_empty_is_not(&pool, &parts);
        let visitor = pool.allocate(8).unwrap();
        plant(&pool);
        drop(pool);
        let ended = thread::spawn(move || drop(visitor)).join();
        let sentence = ended.unwrap_err().downcast::<String>().unwrap();
        assert_says(&sentence, &parts);
    }
}

/// The damage is seen while the figures, which it does not concern, stay right.
fn assert_empty_is_not(pool: &BlockPool, parts: &[&str]) {
    let stats = pool.stats();
    assert!(stats.identity_holds() && stats.live_objects == 0);
    assert_says(&caught(|| pool.verify()), parts);
}

/// Goal: a free by hand, through the allocator interface, is checked: twice, with another size, inside a block, of
/// another pool, of no pool.
#[test]
fn frees_by_hand_are_checked() {
    for mode in [CHECKED, GUARDED] {
        let (pool, other) = (BlockPool::new("mine", mode), BlockPool::new("theirs", mode));
        let layout = Layout::from_size_align(100, 16).unwrap();
        let lend = |pool: &BlockPool| Allocator::allocate(pool, layout).unwrap().cast::<u8>();
        let free = |start: NonNull<u8>, layout: Layout| {
            // SAFETY: the faults to be found.
            caught(|| unsafe { pool.deallocate(start, layout) })
        };
        let block = lend(&pool);
        // SAFETY: lent above.
        unsafe { pool.deallocate(block, layout) };
        let parts = ["double free in pool mine", "the block of 100 bytes"];
        assert_says(&free(block, layout), &parts);
        let wrong = Layout::from_size_align(96, 16).unwrap();
        let parts = ["wrong size in pool mine", "100 bytes", "as one of 96 bytes"];
        assert_says(&free(lend(&pool), wrong), &parts);
        let kept = lend(&pool);
        let inside = NonNull::new(kept.as_ptr().wrapping_add(16)).unwrap();
        assert_says(
            &free(inside, layout),
            &["foreign pointer", "inside the block of 100"],
        );
        let foreign = lend(&other);
        assert_says(
            &free(foreign, layout),
            &["pool mine", "pool theirs has lent"],
        );
        let mut local = [0_u8; 100];
        let nowhere = NonNull::from(&mut local).cast();
        assert_says(&free(nowhere, layout), &["no checked pool has lent"]);
        // SAFETY: lent above, and not freed by any of the faults.
        unsafe {
            pool.deallocate(kept, layout);
            other.deallocate(foreign, layout);
        }
        assert_empty_and_balanced(&pool);
        assert_empty_and_balanced(&other);
    }
}

/// Goal: a block of another pool is caught though its pool keeps it in a class of its own.
#[test]
fn blocks_of_unchecked_pools_are_foreign() {
    let (pool, other) = (
        BlockPool::new("mine", CHECKED),
        BlockPool::new("fast", PoolMode::On),
    );
    let layout = Layout::from_size_align(100, 16).unwrap();
    let foreign = Allocator::allocate(&other, layout).unwrap().cast::<u8>();
    // SAFETY: the fault to be found.
    let sentence = caught(|| unsafe { pool.deallocate(foreign, layout) });
    assert_says(
        &sentence,
        &["foreign pointer in pool mine", "no checked pool has lent"],
    );
    // SAFETY: lent above.
    unsafe { other.deallocate(foreign, layout) };
    assert_eq!(other.stats().live_objects, 0);
}

/// Goal: memory is lent full of a pattern that is no plausible value.
#[test]
fn fresh_memory_is_poisoned() {
    for mode in [CHECKED, GUARDED] {
        let pool = BlockPool::new("fresh", mode);
        for size_bytes in SIZES {
            let mut block = pool.allocate(size_bytes).unwrap();
            let first = start(&mut block);
            // SAFETY: checked memory is initialised, and the block's alone.
            let bytes = unsafe { std::slice::from_raw_parts(first, size_bytes) };
            assert!(is_filled(bytes, 0xCD));
        }
    }
}

/// Goal: objects of a typed pool are watched like blocks.
#[test]
fn objects_are_watched_too() {
    let pool = Pool::new("objects", CHECKED);
    let mut object = pool.insert([1_u64; 5]).unwrap();
    let place = planting((&raw mut *object).cast());
    // SAFETY: the fault to be found: 40 bytes are the object's.
    unsafe { place.add(40).write(0) };
    assert_says(
        &caught(|| drop(object)),
        &["overrun in pool objects: byte 1", "40 bytes"],
    );
    assert_eq!(pool.stats().live_objects, 0);
    // SAFETY: the fault to be found; the quarantine keeps the memory mapped.
    unsafe { place.add(8).write(0) };
    assert_says(
        &caught(|| pool.verify()),
        &["use after free in pool objects: byte 8"],
    );
    let object = pool.insert([2; 5]).unwrap();
    assert_eq!(
        thread::spawn(move || object.into_inner()).join().unwrap(),
        [2; 5]
    );
    pool.trim();
    let stats = pool.stats();
    assert!(
        stats.identity_holds() && stats.live_objects == 0,
        "{stats:?}"
    );
}

/// Goal: objects of a slab are checked: writes beside one, writes to a removed one, and a stale handle, which still
/// finds nothing.
#[test]
fn slabs_are_watched_too() {
    let mut slab = Slab::new("connections", CHECKED);
    let handles = [1_u64, 2, 3].map(|number| slab.insert([number; 3]).unwrap());
    let places = handles.map(|handle| planting((&raw mut *slab.get_mut(handle).unwrap()).cast()));
    // SAFETY: the fault to be found: 24 bytes are the object's.
    unsafe { places[0].add(24).write(0) };
    let parts = [
        "overrun in pool connections: byte 1",
        "24 bytes",
        "allocation 1",
    ];
    assert_says(&caught(|| slab.verify()), &parts);
    assert_eq!(slab.remove(handles[0]), Some([1; 3]));
    assert!(slab.get(handles[0]).is_none() && slab.remove(handles[0]).is_none());
    // SAFETY: the fault to be found; the quarantine keeps the memory mapped.
    unsafe { places[0].add(16).write(0) };
    let parts = [
        "use after free in pool connections: byte 16",
        "allocation 1",
    ];
    assert_says(&caught(|| slab.trim()), &parts);
    // SAFETY: the fault to be found, seen when the object is removed.
    unsafe { places[1].sub(1).write(0) };
    let parts = ["underrun in pool connections: byte 1 before"];
    assert_says(&caught(|| slab.remove(handles[1])), &parts);
    assert!(slab.stats().identity_holds() && slab.len() == 1);
    // SAFETY: the fault to be found, seen when the slab ends.
    unsafe { places[2].add(30).write(0) };
    assert_says(
        &caught(|| drop(slab)),
        &["overrun in pool connections: byte 7"],
    );
}

/// Goal: slices of an arena are apart: a write beside one is seen at the reset, and a write after the reset by the next
/// sweep; each once.
#[test]
fn arenas_are_watched_too() {
    for size_bytes in [5, 100, 1024, 3000] {
        let mut arena = Arena::new("request", CHECKED);
        let mut lend = |offset_bytes: isize| {
            arena.alloc_slice(7).unwrap();
            let slice = planting(arena.alloc_slice(size_bytes).unwrap().as_mut_ptr());
            arena.copy_in(b"another").unwrap();
            // SAFETY: the fault to be found.
            unsafe { slice.offset(offset_bytes).write(1) };
            let sentence = caught(|| arena.reset());
            assert_eq!(arena.stats().live_objects, 0);
            arena.reset();
            (sentence, slice)
        };
        let size = format!("the block of {size_bytes} bytes");
        let parts = ["overrun in pool request: byte 1", &size];
        assert_says(&lend(size_bytes as isize).0, &parts);
        let (sentence, stale) = lend(-3);
        assert_says(
            &sentence,
            &["underrun in pool request: byte 3 before", &size],
        );
        // SAFETY: the fault to be found; the quarantine keeps the memory mapped.
        unsafe { stale.add(2).write(1) };
        let sentence = caught(|| arena.trim());
        assert_says(
            &sentence,
            &["use after free in pool request: byte 2", &size],
        );
        arena.alloc_slice_aligned(50, 256).unwrap();
        assert!(arena.stats().identity_holds());
        arena.verify();
        // The rest is checked when the arena ends.
        let last = planting(arena.alloc_slice(10).unwrap().as_mut_ptr());
        // SAFETY: the fault to be found.
        unsafe { last.add(10).write(1) };
        assert_says(
            &caught(|| drop(arena)),
            &["overrun in pool request: byte 1"],
        );
    }
}

/// Goal: a buffer that is written to beyond its end, or after it was returned, as by a system call
/// that is still under way, is named.
#[test]
fn buffers_are_watched_too() {
    let pool = BufferPool::new("receive", CHECKED, 64 * 1024, 4);
    let mut lease = pool.lease().unwrap();
    let start = planting(lease.as_uninit_mut().as_mut_ptr().cast());
    // SAFETY: the fault to be found.
    unsafe { start.add(64 * 1024 + 1).write(1) };
    assert_says(
        &caught(|| drop(lease)),
        &["overrun in pool receive: byte 2", "65536 bytes"],
    );
    assert_eq!(
        (pool.stats().live_objects, pool.stats().identity_holds()),
        (0, true)
    );
    // SAFETY: the fault to be found; the quarantine keeps the memory mapped.
    unsafe { start.add(999).write(1) };
    let parts = [
        "use after free in pool receive: byte 999",
        "with guard pages",
    ];
    assert_says(&caught(|| pool.verify()), &parts);
    let leases = [(); 4].map(|()| pool.lease().unwrap());
    assert!(pool.lease().is_err());
    drop(leases);
    pool.trim();
    assert!(pool.stats().identity_holds());
}

/// Goal: the n-th allocation of a slab, an arena or a buffer pool is refused, for each n; lent memory stays valid, and
/// the next allocation is served.
#[test]
fn every_pool_survives_each_failure() {
    const COUNT: u64 = 6;
    fn check(stats: PoolStats, live_objects: u64) {
        assert!(stats.identity_holds(), "{stats:?}");
        assert_eq!(stats.live_objects, live_objects);
    }
    for guard_pages in [false, true] {
        for number in 1..=COUNT {
            let mode = PoolMode::Checked(Checks {
                guard_pages,
                fail_at: NonZeroU64::new(number),
            });
            let refused = |error| matches!(error, PoolError::OutOfMemory { .. });
            let mut slab = Slab::new("slab", mode);
            let mut arena = Arena::new("arena", mode);
            let buffers = BufferPool::new("buffers", mode, 2000, COUNT as u16);
            let (mut handles, mut slices, mut leases) = (Vec::new(), Vec::new(), Vec::new());
            for allocation in 1..=COUNT {
                match slab.insert(allocation.to_string()) {
                    Ok(handle) => handles.push((handle, allocation)),
                    Err(error) => assert!(refused(error) && allocation == number),
                }
                match arena.copy_in(&[allocation as u8; 70]) {
                    Ok(slice) => slices.push((slice, allocation)),
                    Err(error) => assert!(refused(error) && allocation == number),
                }
                match buffers.lease() {
                    Ok(lease) => leases.push(lease),
                    Err(error) => assert!(refused(error) && allocation == number),
                }
            }
            assert_eq!((handles.len(), slices.len(), leases.len()), (5, 5, 5));
            check(slab.stats(), 5);
            check(arena.stats(), 5);
            check(buffers.stats(), 5);
            for (slice, allocation) in slices {
                assert_eq!(slice, [allocation as u8; 70]);
            }
            for (handle, allocation) in handles {
                assert_eq!(slab.remove(handle), Some(allocation.to_string()));
            }
            drop(leases);
            arena.reset();
            check(slab.stats(), 0);
            check(arena.stats(), 0);
            check(buffers.stats(), 0);
        }
    }
}

/// Goal: collections on a checked pool, growing and shrinking by copies, are no violation.
#[test]
fn collections_on_checked_pools_are_silent() {
    for mode in [CHECKED, GUARDED] {
        let pool = BlockPool::new("collections", mode);
        let mut numbers = allocator_api2::vec::Vec::new_in(pool.clone());
        numbers.extend(0..if cfg!(miri) { 600 } else { 20_000_u32 });
        numbers.truncate(100);
        numbers.shrink_to_fit();
        assert!(numbers.iter().copied().eq(0..100));
        let boxed = allocator_api2::boxed::Box::new_in([7_u8; 5000], pool.clone());
        assert!(is_filled(&*boxed, 7));
        drop((numbers, boxed));
        assert_empty_and_balanced(&pool);
    }
}

/// The pool operations of one request, which stops at the first refusal.
fn serve(pool: &BlockPool, objects: &Pool<Buffer>) -> Result<usize, PoolError> {
    let mut head = Buffer::with_capacity(pool, 300)?;
    head.extend_from_slice(pool, &[b'h'; 250])?;
    let mut body = Buffer::new();
    for _ in 0..6 {
        body.extend_from_slice(pool, &[b'b'; 3000])?;
    }
    let aligned = pool.allocate_aligned(500, 4096)?;
    let mut kept = objects.insert(head)?;
    kept.extend_from_slice(pool, &[b'x'; 200])?;
    let moved = objects.insert(body)?;
    let bytes = thread::scope(|scope| {
        let worker = scope.spawn(move || {
            drop(aligned);
            assert!(is_filled(&moved, b'b'));
            moved.len()
        });
        worker.join().unwrap()
    });
    let large = Buffer::with_capacity(pool, 100_000)?;
    Ok(bytes + kept.len() + large.len())
}

/// Goal: whichever allocation of a request fails, in whichever pool, the refusal is an error, all
/// that was taken goes back, the books balance, and the next request is served.
#[test]
fn every_single_failure_is_survived() {
    const SERVED: usize = 18_000 + 450;
    let checks = |guard_pages, fail_at| {
        PoolMode::Checked(Checks {
            guard_pages,
            fail_at,
        })
    };
    for guard_pages in [false, true] {
        let unharmed = checks(guard_pages, None);
        let (pool, objects) = (BlockPool::new("all", unharmed), Pool::new("all", unharmed));
        assert_eq!(serve(&pool, &objects), Ok(SERVED));
        for (fails_blocks, allocation_count) in
            [(true, pool.stats().misses), (false, objects.stats().misses)]
        {
            assert!(allocation_count >= 2);
            for number in 1..=allocation_count {
                let planned = checks(guard_pages, NonZeroU64::new(number));
                let (block_mode, object_mode) = match fails_blocks {
                    true => (planned, unharmed),
                    false => (unharmed, planned),
                };
                let pool = BlockPool::new("blocks", block_mode);
                let objects = Pool::new("objects", object_mode);
                let refusal = serve(&pool, &objects).unwrap_err();
                assert!(
                    matches!(refusal, PoolError::OutOfMemory { .. }),
                    "{refusal:?}"
                );
                assert_empty_and_balanced(&pool);
                objects.drain_remote();
                assert_eq!(objects.stats().live_objects, 0);
                assert!(objects.stats().identity_holds());
                objects.verify();
                assert_eq!(serve(&pool, &objects), Ok(SERVED), "fail={number}");
            }
        }
    }
}

/// Goal: with guard pages the first byte behind a block faults where it is written.
#[test]
#[cfg_attr(miri, ignore = "Miri starts no processes")]
fn guard_page_stops_an_overrun() {
    let (status, said) = in_child("guard_page_stops_an_overrun", || {
        let pool = BlockPool::new("guarded", GUARDED);
        let mut block = pool.allocate(1024).unwrap();
        let first = start(&mut block);
        // SAFETY: the block's last byte; then the fault to be found.
        unsafe {
            first.add(1023).write(1);
            println!("inside");
            first.add(1024).write(1);
        }
    });
    assert_eq!(status.signal(), Some(SIGSEGV), "{said}");
    assert_says(&said, &["inside"]);
}

/// Goal: with guard pages a stale reference to an object faults where it is read.
#[test]
#[cfg_attr(miri, ignore = "Miri starts no processes")]
fn guard_page_stops_a_read_after_free() {
    let (status, said) = in_child("guard_page_stops_a_read_after_free", || {
        let pool = Pool::new("guarded", GUARDED);
        let object = pool.insert(7_u64).unwrap();
        let stale = &raw const *object;
        // SAFETY: the object lives; after the drop, the fault to be found.
        unsafe {
            assert_eq!(stale.read_volatile(), 7);
            drop(object);
            println!("freed");
            std::hint::black_box(stale.read_volatile());
        }
    });
    assert_eq!(status.signal(), Some(SIGSEGV), "{said}");
    assert_says(&said, &["freed"]);
}

/// Goal: a violation found while the thread panics already is said before the process ends.
#[test]
#[cfg_attr(miri, ignore = "Miri starts no processes")]
fn violation_in_a_panic_is_said() {
    let (status, said) = in_child("violation_in_a_panic_is_said", || {
        let pool = BlockPool::new("unlucky", CHECKED);
        let mut block = pool.allocate(100).unwrap();
        // SAFETY: the fault to be found.
        unsafe { start(&mut block).add(100).write(1) };
        panic!("something else");
    });
    assert_eq!(status.signal(), Some(SIGABRT), "{said}");
    assert_says(
        &said,
        &["something else", "millpond: overrun in pool unlucky"],
    );
}
