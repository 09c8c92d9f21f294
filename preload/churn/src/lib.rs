//! Ages the heap of any program, in front of any allocator: while switched on, every call of malloc also allocates and
//! frees some blocks of mixed sizes at random.
//!
//! Preloaded before the allocator (`LD_PRELOAD=libmillpond-churn.so:liballocator.so`). The blocks are made and freed by
//! the program's own threads, so they go through the arenas and caches that serve it; a thread of ours would have its own.
//! At any time half of [`SLOTS`] blocks live, about 20 MiB; afterwards one in [`KEPT_ONE_IN`] stays, scattered over what
//! the others held. The program that measures says what is to be done in the file that it names in
//! `MILLPOND_CHURN_FILE` (`millpond_preload_shared::churn_file`).
//!
//! While nothing is to be done, a call costs one load and one jump more. A program that calls malloc rarely is aged
//! slowly: the file counts the blocks.
//!
//! The calls behave as in `preload/sample`, of which this object has the interposed functions. It is `no_std` where it
//! is used (`panic = "abort"`); the workspace's own build, which unwinds, only checks it.
#![cfg_attr(all(panic = "abort", not(test)), no_std)]
#![cfg_attr(
    test,
    allow(dead_code, reason = "a test must not replace its own process's malloc")
)]
#![allow(unsafe_code, reason = "a preloaded malloc is raw pointers by nature")]

#[path = "../../trace/src/bootstrap.rs"]
mod bootstrap;
#[path = "../../sample/src/interposed.rs"]
mod interposed;
#[path = "../../trace/src/mapping.rs"]
mod mapping;
#[path = "../../trace/src/next.rs"]
#[allow(dead_code, reason = "others need errno")]
mod next;
#[path = "../../trace/src/operators.rs"]
mod operators;
#[path = "../../trace/src/passed_on.rs"]
mod passed_on;
#[path = "../../trace/src/runtime.rs"]
mod runtime;

use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use interposed::{free, malloc, memalign, realloc};
use millpond_preload_shared::churn_file::{
    CHURN, ChurnFile, KEPT_ONE_IN, MAGIC, REST, SLOTS, SLOTS_PER_CALL, size_bytes,
};
use millpond_preload_shared::sampling::seed;

const ENOMEM: c_int = 12;
const PATH_VARIABLE: &CStr = c"MILLPOND_CHURN_FILE";
/// The smallest page there is.
const PAGE_BYTES: usize = 4096;

static FILE: AtomicPtr<ChurnFile> = AtomicPtr::new(ptr::null_mut());
/// Blocks, each of whose first word is its size. The thread that takes an address out owns it.
static BLOCKS: [AtomicPtr<c_void>; SLOTS] = [const { AtomicPtr::new(ptr::null_mut()) }; SLOTS];
/// Numbers drawn so far; each is the seed of a random one.
static DRAWN: AtomicU64 = AtomicU64::new(0);
/// The next slot to be settled.
static SETTLED: AtomicUsize = AtomicUsize::new(0);

/// Runs before the program's own constructors.
extern "C" fn start() {
    next::ready();
    let Some((file, _)) = mapping::of_file_in(PATH_VARIABLE, size_of::<ChurnFile>()) else {
        return;
    };
    let file = file.cast::<ChurnFile>();
    // SAFETY: the mapping is page aligned, at least as long as the type, holds only atomics and stays for good.
    if unsafe { &*file }.magic.load(Ordering::Relaxed) == MAGIC {
        FILE.store(file, Ordering::Release);
    }
}

#[used]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
static START: extern "C" fn() = start;

/// Every call that asks for memory comes by here first.
#[inline(always)]
fn asked_for(_size_bytes: usize) {
    // SAFETY: null, or the mapping that `start` checked.
    let Some(file) = (unsafe { FILE.load(Ordering::Acquire).as_ref() }) else {
        return;
    };
    let mode = file.mode.load(Ordering::Relaxed);
    if mode != REST {
        age(file, mode == CHURN);
    }
}

#[cold]
fn age(file: &ChurnFile, is_churning: bool) {
    if !next::ready() {
        return;
    }
    for _ in 0..SLOTS_PER_CALL {
        match is_churning {
            true => change_one(file),
            false => settle_one(file),
        }
    }
}

/// Frees the block of a random slot, or puts one into it.
fn change_one(file: &ChurnFile) {
    SETTLED.store(0, Ordering::Relaxed);
    let random = seed(DRAWN.fetch_add(1, Ordering::Relaxed));
    let Some(slot) = BLOCKS.get(random as usize % SLOTS) else {
        return;
    };
    file.blocks.fetch_add(1, Ordering::Relaxed);
    let old = slot.swap(ptr::null_mut(), Ordering::AcqRel);
    if !old.is_null() {
        return give_back(file, old);
    }
    let new = make(file, size_bytes(seed(random)));
    let empty = ptr::null_mut();
    // Another thread may have been quicker.
    let placed = slot.compare_exchange(empty, new, Ordering::AcqRel, Ordering::Relaxed);
    if placed.is_err() && !new.is_null() {
        give_back(file, new);
    }
}

/// A block whose pages are all in memory, or null.
fn make(file: &ChurnFile, size_bytes: usize) -> *mut c_void {
    // SAFETY: the next allocator is known, and accepts any size.
    let block = unsafe { next::malloc(size_bytes) };
    if block.is_null() {
        return block;
    }
    for offset in (0..size_bytes).step_by(PAGE_BYTES) {
        // SAFETY: `offset` is below the size of the block, which no other code knows yet.
        unsafe { block.cast::<u8>().add(offset).write_volatile(1) };
    }
    // SAFETY: the smallest block has two words, and malloc aligns to that.
    unsafe { block.cast::<usize>().write(size_bytes) };
    file.live_bytes
        .fetch_add(size_bytes as u64, Ordering::Relaxed);
    block
}

fn give_back(file: &ChurnFile, block: *mut c_void) {
    // SAFETY: `make` wrote the size there, and only the thread that took the block out of its slot has its address.
    let size_bytes = unsafe { block.cast::<usize>().read() };
    file.live_bytes
        .fetch_sub(size_bytes as u64, Ordering::Relaxed);
    // SAFETY: as above; it came from this allocator.
    unsafe { next::free(block) };
}

/// Frees the block of the next slot, unless it is one that stays.
fn settle_one(file: &ChurnFile) {
    // No more additions once all are settled.
    if SETTLED.load(Ordering::Relaxed) >= SLOTS {
        return;
    }
    let number = SETTLED.fetch_add(1, Ordering::Relaxed);
    let slot = BLOCKS
        .get(number)
        .filter(|_| !number.is_multiple_of(KEPT_ONE_IN));
    let old = slot.map_or(ptr::null_mut(), |slot| {
        slot.swap(ptr::null_mut(), Ordering::AcqRel)
    });
    if !old.is_null() {
        give_back(file, old);
    }
}
