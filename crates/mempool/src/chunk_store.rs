//! All chunks that are cut into blocks, of all pools of the process, in segments of 4 MiB.
//!
//! A class of blocks that runs dry takes a chunk here, and a sweep gives idle ones back; the malloc heap also takes
//! runs of chunks for larger allocations. One lock, taken once per 64 KiB. Chunks given back `Later` keep their pages
//! for the next taker, up to a share of the lent chunks, since the kernel zeroes every page it gives out again. The
//! lock is seldom taken, and memory that one thread gave back is at once available to others.
#![allow(unsafe_code)]
use crate::PoolError;
use crate::chunk::{self, CHUNK_BYTES, Chunk};
use crate::chunk::{CHUNKS_PER_SEGMENT, ChunkHeader, SEGMENT_BYTES};
use crate::coarse_clock::now_ms;
use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The longest run of chunks a segment can lend: all but the one with the headers.
pub(crate) const RUN_CHUNKS_MAX: usize = CHUNKS_PER_SEGMENT - 1;

/// Free chunks that may keep their pages whatever is lent: 2 MiB.
const DIRTY_CHUNKS_MIN: usize = 32;
/// Else one chunk may for so many that are lent.
const LENT_PER_DIRTY: usize = 12;
/// Time in which half of what was not wanted goes.
const SHRINK_PAUSE_MS: u64 = 1000;

/// When the pages of returned chunks go back to the system.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum GiveBack {
    /// At once: the caller has waited already.
    Now,
    /// When more of them are kept than a share of what is lent, or [`purge`] is called.
    Later,
}

/// Current numbers of the store, in chunks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct StoreFigures {
    pub(crate) segment_count: usize,
    pub(crate) lent_count: usize,
    pub(crate) dirty_count: usize,
}

/// The first bytes of a segment, instead of the header that its first chunk does not need. Invariant: bit `n` of `free`
/// is set if the store has chunk `n`; of `dirty`, which is within `free`, if it has pages. Bit 0 is never set.
#[repr(C, align(128))]
struct Segment {
    next: *mut Segment,
    previous: *mut Segment,
    free: u64,
    dirty: u64,
    is_listed: bool,
}

const _: () = assert!(size_of::<Segment>() == size_of::<ChunkHeader>());
const ALL_FREE: u64 = !1;

struct Store {
    /// Segments with a free chunk.
    open: *mut Segment,
    segment_count: usize,
    lent_count: usize,
    dirty_count: usize,
    /// The minimum of kept chunks since the last check of their number, and the time of that check.
    dirty_low_count: usize,
    shrunk_at_ms: u64,
}

// SAFETY: segments are reached through the lock only, by whatever thread holds it.
unsafe impl Send for Store {}

static STORE: Mutex<Store> = Mutex::new(Store {
    open: ptr::null_mut(),
    segment_count: 0,
    lent_count: 0,
    dirty_count: 0,
    dirty_low_count: 0,
    shrunk_at_ms: 0,
});

/// One bit for each segment-sized part of the 47-bit user address space: 4 MiB of zeroes, of which
/// only touched pages exist.
static SEGMENT_MAP: [AtomicU64; (1 << 47) / SEGMENT_BYTES / 64] =
    [const { AtomicU64::new(0) }; (1 << 47) / SEGMENT_BYTES / 64];

/// Lends `count` chunks in a row, at most [`RUN_CHUNKS_MAX`]. Content undefined; `true` when it is
/// known to be all zero. One lock; every 4 MiB a system call.
pub(crate) fn take(count: usize) -> Result<(NonNull<ChunkHeader>, bool), PoolError> {
    assert!(
        (1..=RUN_CHUNKS_MAX).contains(&count),
        "a run of chunks fits a segment"
    );
    lock().take(count)
}

/// Takes a run of chunks back.
///
/// # Safety
/// `first` came from [`take`], and memory of the run is not used any more.
pub(crate) unsafe fn give_back(first: NonNull<ChunkHeader>, when: GiveBack) {
    // SAFETY: lent chunks lie in mapped segments.
    let count = usize::from(unsafe { first.as_ref() }.chunk_count());
    if when == GiveBack::Now {
        // Before the lock: the pages are still exclusive. SAFETY: the run is the caller's and unused, by its promise.
        unsafe { discard(first, count) };
    }
    let mut store = lock();
    store.put_back(first, count, when);
    store.shrink();
}

/// Gives back what the store has kept for long, if it is time for it. One lock.
pub(crate) fn decay() {
    lock().shrink();
}

/// Gives the pages of free chunks back to the system until at most `keep_count` have some.
pub(crate) fn purge(keep_count: usize) {
    lock().purge(keep_count);
}

/// Current numbers of the store.
pub(crate) fn figures() -> StoreFigures {
    let store = lock();
    StoreFigures {
        segment_count: store.segment_count,
        lent_count: store.lent_count,
        dirty_count: store.dirty_count,
    }
}

/// Whether the system has ever kept pages that were to be discarded, as it does in a process that has locked its
/// memory: free chunks may then not be zero.
static DISCARD_REFUSED: AtomicBool = AtomicBool::new(false);

/// Gives the pages of a run of chunks back to the system.
///
/// # Safety
/// The run is exclusive to the caller, and its content is not needed.
unsafe fn discard(first: NonNull<ChunkHeader>, count: usize) {
    // SAFETY: the caller's promise.
    if !unsafe { chunk::discard(ChunkHeader::chunk_start(first), count * CHUNK_BYTES) } {
        DISCARD_REFUSED.store(true, Ordering::Relaxed);
    }
}

/// Whether `address` lies in a segment of this store. One load.
#[inline]
#[allow(
    dead_code,
    reason = "for code that checks pointers before it trusts them"
)]
pub(crate) fn is_ours(address: usize) -> bool {
    let index = address / SEGMENT_BYTES;
    SEGMENT_MAP
        .get(index / 64)
        .is_some_and(|word| word.load(Ordering::Relaxed) >> (index % 64) & 1 == 1)
}

fn mark_ours(segment: *mut Segment, ours: bool) {
    let index = segment.addr() / SEGMENT_BYTES;
    let word = &SEGMENT_MAP[index / 64];
    if ours {
        word.fetch_or(1 << (index % 64), Ordering::Relaxed);
    } else {
        word.fetch_and(!(1 << (index % 64)), Ordering::Relaxed);
    }
}

fn lock() -> MutexGuard<'static, Store> {
    // Nothing under the lock panics half-way through a change.
    STORE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    fn take(&mut self, count: usize) -> Result<(NonNull<ChunkHeader>, bool), PoolError> {
        let (segment, index) = match self.find(count) {
            Some(found) => found,
            None => (self.add_segment()?, 1),
        };
        let run = run_mask(index, count);
        // SAFETY: listed segments are mapped, and the lock makes this reference the only one.
        let books = unsafe { &mut *segment };
        let dirty = books.dirty & run;
        books.free &= !run;
        books.dirty &= !run;
        self.lent_count += count;
        self.dirty_count -= dirty.count_ones() as usize;
        self.dirty_low_count = self.dirty_low_count.min(self.dirty_count);
        if books.free == 0 {
            self.unlist(segment);
        }
        // SAFETY: `index` is below CHUNKS_PER_SEGMENT, whose headers are in the first chunk.
        let first = unsafe { NonNull::new_unchecked(segment.cast::<ChunkHeader>().add(index)) };
        // SAFETY: the header is initialised: zero is a value of each of its parts.
        unsafe { first.as_ref() }.note_lent(count as u16);
        Ok((
            first,
            dirty == 0 && !DISCARD_REFUSED.load(Ordering::Relaxed),
        ))
    }

    /// The first place for a run, preferring one that has pages already.
    fn find(&self, count: usize) -> Option<(*mut Segment, usize)> {
        let mut clean = None;
        let mut segment = self.open;
        while !segment.is_null() {
            // SAFETY: as in `take`.
            let books = unsafe { &*segment };
            if let Some(index) = first_run(books.dirty, count) {
                return Some((segment, index));
            }
            if clean.is_none() {
                clean = first_run(books.free, count).map(|index| (segment, index));
            }
            if clean.is_some() && self.dirty_count < count {
                break;
            }
            segment = books.next;
        }
        clean
    }

    fn add_segment(&mut self) -> Result<*mut Segment, PoolError> {
        let mapping = ManuallyDrop::new(Chunk::map_aligned(SEGMENT_BYTES, SEGMENT_BYTES)?);
        let segment = mapping.start().as_ptr().cast::<Segment>();
        // SAFETY: fresh memory, large and aligned enough.
        unsafe {
            segment.write(Segment {
                next: ptr::null_mut(),
                previous: ptr::null_mut(),
                free: ALL_FREE,
                dirty: 0,
                is_listed: false,
            });
        }
        self.segment_count += 1;
        mark_ours(segment, true);
        self.list(segment);
        Ok(segment)
    }

    fn put_back(&mut self, first: NonNull<ChunkHeader>, count: usize, when: GiveBack) {
        let segment = segment_of(first);
        let index = first.as_ptr().addr() % SEGMENT_BYTES / size_of::<ChunkHeader>();
        let run = run_mask(index, count);
        // SAFETY: as in `take`.
        let books = unsafe { &mut *segment };
        assert_eq!(books.free & run, 0, "chunks given back twice");
        // SAFETY: as in `take`.
        unsafe { first.as_ref() }.note_lent(0);
        books.free |= run;
        self.lent_count -= count;
        if when == GiveBack::Later {
            books.dirty |= run;
            self.dirty_count += count;
        }
        if !books.is_listed {
            self.list(segment);
        }
        if books.free == ALL_FREE && books.dirty == 0 {
            self.remove_segment(segment);
        }
    }

    /// Unmaps a segment nothing of which is lent, unless it is the only one that could serve the
    /// next taker: all it holds is two pages of headers.
    fn remove_segment(&mut self, segment: *mut Segment) {
        // SAFETY: as in `take`.
        let needs_own_connection = self.open == segment && unsafe { (*segment).next.is_null() };
        if needs_own_connection {
            return;
        }
        self.unlist(segment);
        self.segment_count -= 1;
        mark_ours(segment, false);
        // SAFETY: `add_segment` mapped it, no chunk of it is lent, and it is in no list.
        drop(unsafe { Chunk::from_raw(NonNull::new_unchecked(segment.cast()), SEGMENT_BYTES) });
    }

    /// Gives pages back if too many chunks are kept: beyond as many as are lent at once, beyond a small share of them
    /// with time, half of those unused since the last time. A program mostly needs freed memory again soon, and giving
    /// a page back and taking it again costs more than all other work here.
    fn shrink(&mut self) {
        let young_max = DIRTY_CHUNKS_MIN.max(self.lent_count);
        if self.dirty_count > young_max {
            self.purge(young_max * 3 / 4);
        }
        let old_max = DIRTY_CHUNKS_MIN.max(self.lent_count / LENT_PER_DIRTY);
        if self.dirty_count <= old_max {
            return;
        }
        let now_ms = now_ms();
        if now_ms.saturating_sub(self.shrunk_at_ms) >= SHRINK_PAUSE_MS {
            let leaving_count = self.dirty_low_count.div_ceil(2);
            self.purge(old_max.max(self.dirty_count - leaving_count));
            self.dirty_low_count = self.dirty_count;
            self.shrunk_at_ms = now_ms;
        }
    }

    fn purge(&mut self, keep_count: usize) {
        let mut segment = self.open;
        while !segment.is_null() && self.dirty_count > keep_count {
            // SAFETY: as in `take`; the reference ends before `remove_segment`.
            let (next, is_empty) = unsafe {
                let books = &mut *segment;
                while books.dirty != 0 && self.dirty_count > keep_count {
                    let index = books.dirty.trailing_zeros() as usize;
                    let count = (books.dirty >> index).trailing_ones() as usize;
                    let first = NonNull::new_unchecked(segment.cast::<ChunkHeader>().add(index));
                    discard(first, count);
                    books.dirty &= !run_mask(index, count);
                    self.dirty_count -= count;
                }
                (books.next, books.free == ALL_FREE && books.dirty == 0)
            };
            if is_empty {
                self.remove_segment(segment);
            }
            segment = next;
        }
        self.dirty_low_count = self.dirty_low_count.min(self.dirty_count);
    }

    fn list(&mut self, segment: *mut Segment) {
        // SAFETY: as in `take`.
        unsafe {
            (*segment).previous = ptr::null_mut();
            (*segment).next = self.open;
            (*segment).is_listed = true;
            if !self.open.is_null() {
                (*self.open).previous = segment;
            }
        }
        self.open = segment;
    }

    fn unlist(&mut self, segment: *mut Segment) {
        // SAFETY: as in `take`; neighbours are listed segments.
        unsafe {
            let (previous, next) = ((*segment).previous, (*segment).next);
            (*segment).is_listed = false;
            if previous.is_null() {
                self.open = next;
            } else {
                (*previous).next = next;
            }
            if !next.is_null() {
                (*next).previous = previous;
            }
        }
    }
}

fn segment_of(header: NonNull<ChunkHeader>) -> *mut Segment {
    header
        .as_ptr()
        .map_addr(|address| address & !(SEGMENT_BYTES - 1))
        .cast()
}

const fn run_mask(index: usize, count: usize) -> u64 {
    (u64::MAX >> (64 - count)) << index
}

/// Index of the lowest `count` set bits in a row.
fn first_run(bits: u64, count: usize) -> Option<usize> {
    // After this, a bit is set where a run of `count` begins.
    let mut starts = bits;
    let mut length = 1;
    while length < count {
        let step = length.min(count - length);
        starts &= starts >> step;
        length += step;
    }
    (starts != 0).then(|| starts.trailing_zeros() as usize)
}

/// The store's lock across a fork: taken before, released after in parent and child, so that the
/// child never finds it held by a thread it does not have.
struct ForkGuard(UnsafeCell<Option<MutexGuard<'static, Store>>>);

// SAFETY: written only by the thread that holds the store's lock.
unsafe impl Sync for ForkGuard {}

static FORK_GUARD: ForkGuard = ForkGuard(UnsafeCell::new(None));

/// Call before a fork, on the thread that forks.
pub(crate) fn hold_for_fork() {
    let guard = lock();
    // SAFETY: this thread holds the lock, so no other is here or in `release_after_fork`.
    unsafe { *FORK_GUARD.0.get() = Some(guard) };
}

/// Call after a fork, in the parent and in the child, on the thread that forked.
pub(crate) fn release_after_fork() {
    // SAFETY: as above: `hold_for_fork` on this thread came before.
    drop(unsafe { (*FORK_GUARD.0.get()).take() });
}

#[cfg(test)]
#[path = "tests/chunk_store.rs"]
mod tests;
