//! One thread's blocks of all classes, as malloc needs them: bounded, and never torn down.
//!
//! Malloc pops from the front list of the size's class, free pushes to it. A heap has one owner:
//! the thread whose slot names it, or, while it is abandoned, the lock of the abandoned heaps.
//!
//! Pools are swept by their users; a malloc has to sweep itself. So after a number of frees a front list is checked,
//! and blocks beyond a bound go back to their chunks; a chunk that is whole again goes back to the store at once, where
//! any thread finds it. When [`Pace`] decides, all lists go back and the classes are swept, as those of a pool are. How
//! many blocks are lent follows from the counts of their chunks.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::{ptr, thread};

use crate::batch::{LINE_BYTES, ReturnedBlocks};
use crate::block_class::BlockClass;
use crate::chunk::CHUNK_BYTES;
use crate::chunk::ChunkHeader;
use crate::chunk_store;
use crate::chunk_store::GiveBack;
use crate::coarse_clock::now_ms;
use crate::free_list::FreeList;
use crate::outbox::AbandonedMark;
use crate::outbox::{AddressedBatch, Outbox};
use crate::remote_free::RemoteFrees;
use crate::size_class::{BLOCK_BYTES, CLASS_COUNT, SizeClass};

use super::thread_slot::Stage;
use super::{give_up_heap, hold_for_fork, release_after_fork, thread_slot};

/// Bytes of one class that a front list may keep beyond what a refill brought.
const FRONT_BYTES: u32 = 16 * 1024;
const FRONT_COUNT_MIN: u32 = 4;
const FRONT_COUNT_MAX: u32 = 128;

/// Weights of a free and an allocation until their list is checked. A pair of them counts a little, so that lists are
/// also checked now and then in a steady state.
const PUSH_COUNTS: i32 = 16;
const POP_COUNTS: i32 = 15;

/// The first class of blocks that are longer than a cache line.
const LONG_CLASS: u16 = SizeClass::of(LINE_BYTES + 1).index() as u16;

/// The free blocks of a class that the next allocations get.
struct Front {
    free: FreeList,
    /// The rest to count until the list is checked again: when it is below 0, which the subtraction's flags show.
    until_look: i32,
    /// As many blocks as the list may keep.
    kept_count: u32,
}

impl Front {
    const fn new(block_bytes: u32) -> Self {
        let count = FRONT_BYTES / block_bytes;
        let kept_count = if count < FRONT_COUNT_MIN {
            FRONT_COUNT_MIN
        } else if count > FRONT_COUNT_MAX {
            FRONT_COUNT_MAX
        } else {
            count
        };
        let mut front = Self {
            free: FreeList::new(),
            until_look: 0,
            kept_count,
        };
        front.start_count();
        front
    }

    /// Schedules the check of the list after as many frees as it may keep blocks.
    const fn start_count(&mut self) {
        self.until_look = self.kept_count as i32 * PUSH_COUNTS - 1;
    }
}

/// The part that only the owner uses. Invariant: `fronts[index]` holds unused blocks of `classes[index]` only.
#[repr(C)]
pub(super) struct OwnerPart {
    fronts: [Front; CLASS_COUNT],
    outbox: Outbox,
    pace: Pace,
    /// The class at which the sweep under way is; `CLASS_COUNT` when there is none.
    next_swept: usize,
    classes: [BlockClass; CLASS_COUNT],
}

/// A thread's heap. Lives forever: its blocks may outlive the thread, and name it as their home.
#[repr(C)]
pub(super) struct ThreadHeap {
    /// First, so that a block's home and its heap are one address.
    remote: RemoteFrees,
    owned: UnsafeCell<OwnerPart>,
    /// Whether no thread owns it, so that threads that return blocks have to handle them.
    pub(super) abandoned: AbandonedMark,
    /// The next abandoned heap. Under the lock of the abandoned heaps.
    pub(super) next: UnsafeCell<*mut ThreadHeap>,
}

/// `RemoteFrees` needs to know which thread frees a closed home. Heaps are never closed.
unsafe fn never_buried(_home: NonNull<RemoteFrees>) {}

impl ThreadHeap {
    /// Makes a heap without memory at `place`. Piece by piece: all of it at once would be built on
    /// the stack first, and a thread's stack may be hardly larger.
    ///
    /// # Safety
    /// `place` is writable, aligned, large enough, and exclusive.
    pub(super) unsafe fn init(place: NonNull<Self>) {
        let heap = place.as_ptr();
        // SAFETY: the caller's promise; every field is written before it is read.
        unsafe {
            (&raw mut (*heap).remote).write(RemoteFrees::new(never_buried, LONG_CLASS));
            (&raw mut (*heap).abandoned).write(AbandonedMark::new());
            (&raw mut (*heap).next).write(UnsafeCell::new(ptr::null_mut()));
            let owned = UnsafeCell::raw_get(&raw const (*heap).owned);
            (&raw mut (*owned).outbox).write(Outbox::new());
            (&raw mut (*owned).pace).write(Pace::new());
            (&raw mut (*owned).next_swept).write(CLASS_COUNT);
            let fronts = (&raw mut (*owned).fronts).cast::<Front>();
            let classes = (&raw mut (*owned).classes).cast::<BlockClass>();
            for (index, &block_bytes) in BLOCK_BYTES.iter().enumerate() {
                fronts.add(index).write(Front::new(block_bytes));
                classes
                    .add(index)
                    .write(BlockClass::new(block_bytes, index as u8));
            }
        }
    }

    /// The address that the heap's blocks have as their home.
    #[inline(always)]
    pub(super) fn home(this: NonNull<Self>) -> NonNull<RemoteFrees> {
        this.cast()
    }

    /// The heap that a block's home belongs to.
    ///
    /// # Safety
    /// `home` is the home of a block of class, so of a heap of this module.
    pub(super) unsafe fn of_home<'a>(home: NonNull<RemoteFrees>) -> &'a Self {
        // SAFETY: homes are the first fields of heaps, named by pointers to all of them, and heaps
        // live forever.
        unsafe { home.cast().as_ref() }
    }

    /// Blocks of this heap freed by other threads.
    pub(super) fn remote(&self) -> &RemoteFrees {
        &self.remote
    }

    /// The owner's part.
    ///
    /// # Safety
    /// The caller is the heap's owner, and lets no other reference from here live beside this one.
    #[inline(always)]
    pub(super) unsafe fn owned<'a>(this: NonNull<Self>) -> &'a mut OwnerPart {
        // SAFETY: heaps live forever; the rest is the caller's promise.
        unsafe { &mut *(*this.as_ptr()).owned.get() }
    }
}

impl OwnerPart {
    /// A ready block of a class.
    #[inline(always)]
    pub(super) fn pop(&mut self, class: SizeClass) -> Option<NonNull<u8>> {
        debug_assert!(class.index() < CLASS_COUNT);
        // SAFETY: malloc's requests have a class of the table, whose numbers are below its length.
        let front = unsafe { self.fronts.get_unchecked_mut(class.index()) };
        let block = front.free.pop()?;
        front.until_look += POP_COUNTS;
        Some(block)
    }

    /// Takes a block of class `index` back; `true` when the class is to be checked.
    ///
    /// # Safety
    /// The block is of this heap and class, and it is not used any more.
    #[inline(always)]
    #[must_use]
    pub(super) unsafe fn push(&mut self, index: usize, block: NonNull<u8>) -> bool {
        debug_assert!(index < CLASS_COUNT);
        // SAFETY: a block's class is one of the table. Blocks are at least 16 bytes, 16-aligned,
        // inside a mapped chunk; unused by the caller's promise.
        let front = unsafe {
            let front = self.fronts.get_unchecked_mut(index);
            front.free.push(block);
            front
        };
        front.until_look -= PUSH_COUNTS;
        front.until_look < 0
    }

    /// Puts what the front list has beyond its bound back to its chunks, at most as much again. Wholly
    /// free chunks go to the store.
    pub(super) fn look_at(&mut self, index: usize) {
        let (front, class) = (&mut self.fronts[index], &mut self.classes[index]);
        front.start_count();
        let count = front.kept_count as usize;
        let surplus = front.free.cut_out(count, count);
        if !surplus.is_empty() {
            self.pace.note_spilled(class.spill(surplus));
            class.release_idle(GiveBack::Later);
        }
        self.keep_up(now_ms());
    }

    /// Begins a sweep if one is due, or goes on with it.
    fn keep_up(&mut self, now_ms: u64) {
        if self.next_swept == CLASS_COUNT {
            if !self.pace.is_due(now_ms) {
                return;
            }
            let chunk_count = self.classes.iter().map(BlockClass::chunk_count).sum();
            self.pace.begin(now_ms, chunk_count);
            chunk_store::decay();
            self.next_swept = 0;
        }
        let mut seen_count = 0;
        while self.next_swept < CLASS_COUNT && seen_count < CHUNKS_AT_ONCE {
            let index = self.next_swept;
            self.next_swept += 1;
            self.settle_class(index, GiveBack::Later);
            seen_count += self.classes[index].unswept_count();
            if self.pace.is_hollow() {
                self.classes[index].sweep();
            } else {
                self.classes[index].put_fullest_first();
            }
        }
    }

    /// Puts a class's ready blocks back to their chunks and gives the wholly free ones to the store;
    /// returns how many.
    fn settle_class(&mut self, index: usize, when: GiveBack) -> usize {
        let (front, class) = (&mut self.fronts[index], &mut self.classes[index]);
        self.pace.note_spilled(class.spill(front.free.take()));
        front.start_count();
        class.release_idle(when)
    }

    /// A block of a class when none is ready: a returned one, else one from the chunks, else one from a new chunk. None
    /// when the system has no memory.
    pub(super) fn pop_slow(
        &mut self,
        class: SizeClass,
        home: NonNull<RemoteFrees>,
    ) -> Option<NonNull<u8>> {
        // SAFETY: the home is this heap's, which lives forever.
        self.absorb(unsafe { home.as_ref() }.take());
        if let Some(block) = self.pop(class) {
            return Some(block);
        }
        self.keep_up(now_ms());
        let index = class.index();
        let (front, chunks) = (&mut self.fronts[index], &mut self.classes[index]);
        let out_count = chunks.out_count();
        if !chunks.refill(&mut front.free) {
            let (header, is_zero) = chunk_store::take(1).ok()?;
            // SAFETY: fresh from the store.
            unsafe { chunks.add_chunk(header, is_zero, home) };
            chunks.refill(&mut front.free);
        }
        front.start_count();
        let filled_bytes = (chunks.out_count() - out_count) * chunks.block_bytes();
        self.pace.note_filled(filled_bytes);
        self.pop(class)
    }

    /// Takes home what other threads freed.
    pub(super) fn absorb(&mut self, returned: ReturnedBlocks) {
        for (block, class) in returned {
            let index = usize::from(class);
            // SAFETY: only blocks of this heap are sent home to it, when their holder gave them up,
            // with their class as their tag.
            if unsafe { self.push(index, block) } {
                self.look_at(index);
            }
        }
    }

    /// Adds a block of another heap to the outgoing batches. The caller sends the returned batch.
    ///
    /// # Safety
    /// The block is lent by the heap whose `home` it is, as class `index`; it is not used any more.
    pub(super) unsafe fn send(
        &mut self,
        home: NonNull<RemoteFrees>,
        block: NonNull<u8>,
        index: usize,
    ) -> Option<AddressedBatch> {
        let block_bytes = BLOCK_BYTES[index] as usize;
        // SAFETY: the caller's promise, passed on; blocks are at least 16 bytes.
        unsafe { self.outbox.add(home, block, block_bytes, index as u16) }
    }

    /// One of the batches under way, whichever.
    pub(super) fn take_batch(&mut self) -> Option<AddressedBatch> {
        self.outbox.take_any()
    }

    /// Puts all ready blocks back to their chunks and gives wholly free chunks to the store; returns
    /// how many.
    pub(super) fn settle(&mut self, when: GiveBack) -> usize {
        (0..CLASS_COUNT)
            .map(|index| self.settle_class(index, when))
            .sum()
    }

    /// Gives the system what a settled heap's chunks have beside lent blocks; returns how many bytes.
    pub(super) fn empty_pages(&mut self) -> usize {
        self.classes.iter_mut().map(BlockClass::empty_pages).sum()
    }

    /// Current numbers of the heap. Walks the front lists and the chunks with room.
    pub(super) fn figures(&self) -> HeapFigures {
        let mut sum = HeapFigures::default();
        for (index, class) in self.classes.iter().enumerate() {
            let front_count = self.fronts[index].free.count();
            let block_bytes = class.block_bytes();
            sum.live_count += class.out_count() - front_count;
            sum.live_bytes += (class.out_count() - front_count) * block_bytes;
            sum.cached_bytes += (front_count + class.home_count()) * block_bytes;
            sum.waste_bytes += class.tail_bytes();
            sum.chunk_count += class.chunk_count();
        }
        sum
    }
}

/// Current block numbers of a heap, or of several together.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct HeapFigures {
    pub(super) live_count: usize,
    pub(super) live_bytes: usize,
    pub(super) cached_bytes: usize,
    pub(super) waste_bytes: usize,
    pub(super) chunk_count: usize,
}

impl HeapFigures {
    pub(super) fn add(&mut self, other: Self) {
        self.live_count += other.live_count;
        self.live_bytes += other.live_bytes;
        self.cached_bytes += other.cached_bytes;
        self.waste_bytes += other.waste_bytes;
        self.chunk_count += other.chunk_count;
    }
}

/// The class of a block, from its chunk.
///
/// # Safety
/// The block is lent, from a chunk of blocks.
#[inline(always)]
pub(super) unsafe fn class_of(header: NonNull<ChunkHeader>) -> usize {
    // SAFETY: while one of its blocks is lent, a chunk's header does not change.
    usize::from(unsafe { header.as_ref() }.class())
}

// Notices the end of a thread, and holds the locks across a fork.

/// No key yet, or being made.
const NONE: u32 = u32::MAX;
const MAKING: u32 = u32::MAX - 1;
/// The system has no key to spare: heaps of threads that end are lost to the process.
const REFUSED: u32 = u32::MAX - 2;

static KEY: AtomicU32 = AtomicU32::new(NONE);
/// The thread that makes the key: its system calls may come back here before it is made.
static MAKER: AtomicUsize = AtomicUsize::new(0);
/// How often to let others go on while one of them makes the key. Bounded, because that one may be
/// missing: in the child of a fork.
const YIELDS_MAX: usize = 10_000;

/// Values of the key: how often its destructor has been called for this thread.
const FIRST_TIME: *const c_void = ptr::without_provenance(1);
const SECOND_TIME: *const c_void = ptr::without_provenance(2);

/// Makes the key and registers the fork handlers, once. May allocate, so the caller already has a
/// heap, or is the only thread.
pub fn prepare() {
    if KEY.load(Ordering::Acquire) != NONE
        || KEY
            .compare_exchange(NONE, MAKING, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
    {
        return;
    }
    MAKER.store(this_thread(), Ordering::Relaxed);
    let mut key = 0;
    // SAFETY: `key` may be written, and the destructor is a function of this object.
    let made = unsafe { libc::pthread_key_create(&raw mut key, Some(at_thread_end)) };
    KEY.store(if made == 0 { key } else { REFUSED }, Ordering::Release);
    if !thread_slot::heap().is_null() {
        // The call above asked for memory, and there was no key to arm yet.
        set(FIRST_TIME);
    }
    // Miri does not support fork.
    #[cfg(not(miri))]
    // SAFETY: functions of this object. Refused only without memory; forks of a process with threads
    // are then as unsafe as they are without an allocator's help.
    let _ = unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork)) };
}

/// Registers `at_thread_end` for the calling thread. May allocate: the caller has set the slot.
pub(super) fn arm() {
    prepare();
    set(FIRST_TIME);
}

fn set(value: *const c_void) {
    let mut key = KEY.load(Ordering::Acquire);
    let mut yields_left = YIELDS_MAX;
    while key == MAKING && MAKER.load(Ordering::Relaxed) != this_thread() && yields_left > 0 {
        thread::yield_now();
        yields_left -= 1;
        key = KEY.load(Ordering::Acquire);
    }
    if key < REFUSED {
        // SAFETY: a key that was created and is never deleted. Refused only without memory: the
        // heap is then lost to the process when the thread ends.
        let _ = unsafe { libc::pthread_setspecific(key, value) };
    }
}

fn this_thread() -> usize {
    // SAFETY: no condition. Never 0 on Linux, where it is an address.
    unsafe { libc::pthread_self() as usize }
}

extern "C" fn at_thread_end(value: *mut c_void) {
    if value.cast_const() == FIRST_TIME {
        set(SECOND_TIME);
        return;
    }
    thread_slot::set_stage(Stage::Ended);
    give_up_heap();
}

#[cfg_attr(miri, allow(dead_code))]
extern "C" fn before_fork() {
    hold_for_fork();
}

#[cfg_attr(miri, allow(dead_code))]
extern "C" fn after_fork() {
    release_after_fork();
}

// When a heap is swept.

/// A heap is swept after this time. A tenth of it cost redis, whose values change size in waves of a second, a tenth of
/// its throughput: pages were returned in one wave and taken back in the next.
const PAUSE_MS: u64 = 1000;
/// A large one less often, one millisecond for so many chunks: checking them takes a hundredth of that.
const CHUNKS_PER_PAUSE_MS: usize = 128;
/// At once when more than this share of the most that was lent since the last sweep, as one in so
/// many bytes, is not lent any more, ...
const SHRUNK_PART: usize = 2;
/// ... and at least this much.
const SHRUNK_BYTES_MIN: usize = 1 << 20;
/// Less than this share of a heap's chunks is lent in one that gives single pages back.
const LENT_PERCENT_MIN: usize = 40;

/// Chunks to check in one slow path: about ten microseconds.
pub(super) const CHUNKS_AT_ONCE: usize = 256;

/// State of a heap between sweeps.
pub(super) struct Pace {
    /// Bytes that chunks have given out, now and at most since the last sweep began.
    out_bytes: usize,
    out_bytes_max: usize,
    /// Chunks the heap had then.
    chunk_count: usize,
    began_at_ms: u64,
}

impl Pace {
    pub(super) const fn new() -> Self {
        Self {
            out_bytes: 0,
            out_bytes_max: 0,
            chunk_count: 0,
            began_at_ms: 0,
        }
    }

    /// Notes that blocks were taken out of their chunks.
    pub(super) fn note_filled(&mut self, bytes: usize) {
        self.out_bytes += bytes;
        self.out_bytes_max = self.out_bytes_max.max(self.out_bytes);
    }

    /// Notes that blocks were put back to their chunks.
    pub(super) fn note_spilled(&mut self, bytes: usize) {
        self.out_bytes -= bytes;
    }

    /// Whether a sweep is due.
    pub(super) fn is_due(&self, now_ms: u64) -> bool {
        let shrunk_bytes = self.out_bytes_max - self.out_bytes;
        if shrunk_bytes > SHRUNK_BYTES_MIN.max(self.out_bytes_max / SHRUNK_PART) {
            return true;
        }
        let wait_ms = PAUSE_MS.max((self.chunk_count / CHUNKS_PER_PAUSE_MS) as u64);
        now_ms.saturating_sub(self.began_at_ms) >= wait_ms
    }

    /// Whether so much of the heap is free that single pages should go. While most of it is lent, free blocks will soon
    /// be lent again: giving their pages back would be wasted work.
    pub(super) fn is_hollow(&self) -> bool {
        self.out_bytes < self.chunk_count * (CHUNK_BYTES / 100 * LENT_PERCENT_MIN)
    }

    /// Notes that a sweep begins, of a heap with so many chunks.
    pub(super) fn begin(&mut self, now_ms: u64, chunk_count: usize) {
        self.out_bytes_max = self.out_bytes;
        self.chunk_count = chunk_count;
        self.began_at_ms = now_ms;
    }
}

#[cfg(test)]
#[path = "tests/thread_heap.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/pace.rs"]
mod pace_tests;
