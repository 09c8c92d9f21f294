//! One thread's blocks of all classes, as malloc needs them: bounded, and never torn down.
//!
//! On the path: malloc pops from the front list of the size's class, free pushes to it. A heap has
//! one owner: the thread whose slot names it, or, while it is an orphan, the orphanage's lock.
//!
//! Pools are swept by their users; nobody sweeps a malloc. So every so many frees a front list is
//! looked at, and what is more than a bound goes back to its chunks; a chunk that is whole again
//! goes back to the store at once, where any thread finds it.
//! Absent on purpose: counting what was lent, ever. How many blocks are lent follows from the counts of
//! their chunks.
#![allow(unsafe_code)]
use crate::batch::{LINE_BYTES, ReturnedBlocks};
use crate::block_class::BlockClass;
use crate::chunk::{CHUNK_BYTES, discard};
use crate::chunk_header::ChunkHeader;
use crate::chunk_store::{self, GiveBack};
use crate::free_list::FreeList;
use crate::orphan_mark::OrphanMark;
use crate::outbox::{Outbox, Parcel};
use crate::remote_free::RemoteFrees;
use crate::size_class::{BLOCK_ALIGN_BYTES, BLOCK_BYTES, CLASS_COUNT, SizeClass};
use std::cell::UnsafeCell;
use std::ptr::{self, NonNull};

/// Bytes of one class that a front list may keep beyond what a refill brought.
const FRONT_BYTES: u32 = 16 * 1024;
const FRONT_COUNT_MIN: u32 = 4;
const FRONT_COUNT_MAX: u32 = 128;

/// Blocks from this size on may give their pages back one by one...
const THINNED_BYTES_MIN: usize = 8 * 1024;
/// ... when less than this share of their class's chunks is in use, and its front list had too much
/// this many times without having had too little in between.
const IN_USE_PERCENT_MIN: usize = 67;
const SURPLUS_COUNT_MIN: u8 = 48;

/// The first class of blocks that are longer than a cache line.
const LONG_CLASS: u16 = SizeClass::of(LINE_BYTES + 1).index() as u16;

/// The free blocks of a class that the next allocations get.
struct Front {
    free: FreeList,
    /// Frees less allocations until the list is looked at again: it then has at least as many
    /// blocks as it may keep.
    until_look: u32,
    /// As many blocks as the list may keep; where `until_look` begins after a look and a refill.
    interval: u32,
}

impl Front {
    const fn new(block_bytes: u32) -> Self {
        let count = FRONT_BYTES / block_bytes;
        let interval = if count < FRONT_COUNT_MIN {
            FRONT_COUNT_MIN
        } else if count > FRONT_COUNT_MAX {
            FRONT_COUNT_MAX
        } else {
            count
        };
        Self {
            free: FreeList::new(),
            until_look: interval,
            interval,
        }
    }
}

/// What the owner alone touches.
/// Invariant: `fronts[index]` holds unused blocks of `classes[index]` only.
#[repr(C)]
pub(super) struct OwnerPart {
    fronts: [Front; CLASS_COUNT],
    outbox: Outbox,
    /// How often each front list had too much since it was last refilled.
    surplus_counts: [u8; CLASS_COUNT],
    classes: [BlockClass; CLASS_COUNT],
}

/// A thread's heap. Lives forever: its blocks may outlive the thread, and name it as their home.
#[repr(C)]
pub(super) struct ThreadHeap {
    /// First, so that a block's home and its heap are one address.
    remote: RemoteFrees,
    owned: UnsafeCell<OwnerPart>,
    /// Whether no thread owns it, so that whoever sends blocks home has to look after them.
    pub(super) orphan: OrphanMark,
    /// The next orphan. Under the orphanage's lock.
    pub(super) next: UnsafeCell<*mut ThreadHeap>,
}

/// `RemoteFrees` wants to know who frees a closed home. Heaps are never closed.
unsafe fn never_buried(_home: NonNull<RemoteFrees>) {}

impl ThreadHeap {
    /// Makes a heap without memory at `place`. Piece by piece: all of it at once would be built on
    /// the stack first, and a thread's stack may be hardly larger.
    ///
    /// # Safety
    /// `place` is writable, aligned, large enough, and nobody else's.
    pub(super) unsafe fn init(place: NonNull<Self>) {
        let heap = place.as_ptr();
        // SAFETY: the caller's promise; every field is written before anyone reads it.
        unsafe {
            (&raw mut (*heap).remote).write(RemoteFrees::new(never_buried, LONG_CLASS));
            (&raw mut (*heap).orphan).write(OrphanMark::new());
            (&raw mut (*heap).next).write(UnsafeCell::new(ptr::null_mut()));
            let owned = UnsafeCell::raw_get(&raw const (*heap).owned);
            (&raw mut (*owned).outbox).write(Outbox::new());
            (&raw mut (*owned).surplus_counts).write([0; CLASS_COUNT]);
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
    /// `home` is the home of a block of class, hence of a heap of this module.
    pub(super) unsafe fn of_home<'a>(home: NonNull<RemoteFrees>) -> &'a Self {
        // SAFETY: homes are the first fields of heaps, named by pointers to all of them, and heaps
        // live forever.
        unsafe { home.cast().as_ref() }
    }

    /// What others freed of this heap's blocks.
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
        front.until_look += 1;
        Some(block)
    }

    /// Takes a block of class `index` back; `true` when the class is to be looked at.
    ///
    /// # Safety
    /// The block is of this heap and class, and nobody uses it any more.
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
        front.until_look -= 1;
        front.until_look == 0
    }

    /// Puts what the front list has beyond its bound back to its chunks, at most as much again. Wholly
    /// free chunks go to the store.
    pub(super) fn look_at(&mut self, index: usize) {
        let front = &mut self.fronts[index];
        front.until_look = front.interval;
        let count = front.interval as usize;
        let surplus = front.free.cut_out(count, count);
        if surplus.is_empty() {
            return;
        }
        let class = &mut self.classes[index];
        let surplus_count = &mut self.surplus_counts[index];
        *surplus_count = surplus_count.saturating_add(1);
        let is_shrinking = *surplus_count >= SURPLUS_COUNT_MIN && is_hollow(class);
        if class.block_bytes() >= THINNED_BYTES_MIN && is_shrinking {
            spill_thinned(class, surplus);
        } else {
            class.spill(surplus);
        }
        class.release_idle(GiveBack::Later);
    }

    /// A block of a class when none is ready: what came home, else what the chunks have, else
    /// a new chunk. None when the system has no memory.
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
        let index = class.index();
        let (front, chunks) = (&mut self.fronts[index], &mut self.classes[index]);
        if !chunks.refill(&mut front.free) {
            let (header, is_zero) = chunk_store::take(1).ok()?;
            // SAFETY: fresh from the store.
            unsafe { chunks.add_chunk(header, is_zero, home) };
            chunks.refill(&mut front.free);
        }
        front.until_look = front.interval;
        self.surplus_counts[index] = 0;
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

    /// Adds a block of another heap to what goes home. What comes back is to be sent.
    ///
    /// # Safety
    /// The block is lent by the heap whose `home` it is, as class `index`; nobody uses it any more.
    pub(super) unsafe fn send(
        &mut self,
        home: NonNull<RemoteFrees>,
        block: NonNull<u8>,
        index: usize,
    ) -> Option<Parcel> {
        let block_bytes = BLOCK_BYTES[index] as usize;
        // SAFETY: the caller's promise, passed on; blocks are at least 16 bytes.
        unsafe { self.outbox.add(home, block, block_bytes, index as u16) }
    }

    /// One of the parcels under way, whichever.
    pub(super) fn take_parcel(&mut self) -> Option<Parcel> {
        self.outbox.take_any()
    }

    /// Puts all ready blocks back to their chunks and gives wholly free chunks to the store.
    pub(super) fn settle(&mut self, when: GiveBack) -> usize {
        let mut chunk_count = 0;
        for (front, class) in self.fronts.iter_mut().zip(&mut self.classes) {
            class.spill(front.free.take());
            chunk_count += class.release_idle(when);
        }
        chunk_count
    }

    /// What the heap holds. Walks the front lists and the chunks with room.
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

/// Whether so much of a class is free that its free blocks should not keep their pages. While most
/// of it is in use, free blocks are soon used again, and each of their pages would have to be
/// zeroed by the kernel.
fn is_hollow(class: &BlockClass) -> bool {
    let out_bytes = class.out_count() * class.block_bytes();
    out_bytes * 100 < class.chunk_count() * CHUNK_BYTES * IN_USE_PERCENT_MIN
}

/// Puts large blocks back to their chunks one by one, and gives the pages inside each to the system
/// unless its chunk is whole again. Two or three of them fill a chunk, so one that is still lent
/// keeps the others' pages from ever going back with the chunk.
fn spill_thinned(class: &mut BlockClass, mut blocks: FreeList) {
    let page_bytes = rustix::param::page_size();
    while let Some(block) = blocks.pop() {
        let mut alone = FreeList::new();
        // SAFETY: just popped.
        unsafe { alone.push(block) };
        class.spill(alone);
        // SAFETY: the block's chunk is this class's, and the reference ends here.
        let is_whole = unsafe { ChunkHeader::shelf(ChunkHeader::of(block)) }.out_count() == 0;
        if is_whole {
            continue;
        }
        // The free list's link, in the block's first bytes, stays.
        let start = block.addr().get();
        let first = (start + BLOCK_ALIGN_BYTES).next_multiple_of(page_bytes);
        let end = (start + class.block_bytes()) / page_bytes * page_bytes;
        if first < end {
            // SAFETY: whole pages inside a free block, behind its link. Where the system keeps them,
            // nothing is gained and nothing lost.
            let _ = unsafe { discard(block.add(first - start), end - first) };
        }
    }
}

/// What a heap, or several together, hold of blocks.
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
