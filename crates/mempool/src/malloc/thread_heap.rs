//! One thread's blocks of all classes, as malloc needs them: bounded, and never torn down.
//!
//! On the path: malloc pops from the front list of the size's class, free pushes to it. A heap has
//! one owner: the thread whose slot names it, or, while it is an orphan, the orphanage's lock.
//!
//! Pools are swept by their users; nobody sweeps a malloc. So every so many frees a front list is
//! looked at, and what is more than a bound goes back to its chunks; a chunk that is whole again
//! goes back to the store at once, where any thread finds it. When `pace` says so, all lists go back
//! and the classes are swept, as those of a pool are.
//! Absent on purpose: counting what was lent, ever. How many blocks are lent follows from the counts of
//! their chunks.
#![allow(unsafe_code)]
use super::pace::{CHUNKS_AT_ONCE, Pace};
use crate::batch::{LINE_BYTES, ReturnedBlocks};
use crate::block_class::BlockClass;
use crate::chunk_header::ChunkHeader;
use crate::chunk_store::{self, GiveBack};
use crate::coarse_clock::now_ms;
use crate::free_list::FreeList;
use crate::orphan_mark::OrphanMark;
use crate::outbox::{Outbox, Parcel};
use crate::remote_free::RemoteFrees;
use crate::size_class::{BLOCK_BYTES, CLASS_COUNT, SizeClass};
use std::cell::UnsafeCell;
use std::ptr::{self, NonNull};

/// Bytes of one class that a front list may keep beyond what a refill brought.
const FRONT_BYTES: u32 = 16 * 1024;
const FRONT_COUNT_MIN: u32 = 4;
const FRONT_COUNT_MAX: u32 = 128;

/// What a free and an allocation count until their list is looked at. Pairs of them count a little,
/// so that a program in a steady state has its lists looked at too, now and then.
const PUSH_COUNTS: i32 = 16;
const POP_COUNTS: i32 = 15;

/// The first class of blocks that are longer than a cache line.
const LONG_CLASS: u16 = SizeClass::of(LINE_BYTES + 1).index() as u16;

/// The free blocks of a class that the next allocations get.
struct Front {
    free: FreeList,
    /// What is left to count until the list is looked at again: when it is below 0, which the
    /// subtraction itself tells the processor.
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

    /// Has the list looked at after as many frees as it may keep blocks.
    const fn start_count(&mut self) {
        self.until_look = self.kept_count as i32 * PUSH_COUNTS - 1;
    }
}

/// What the owner alone touches.
/// Invariant: `fronts[index]` holds unused blocks of `classes[index]` only.
#[repr(C)]
pub(super) struct OwnerPart {
    fronts: [Front; CLASS_COUNT],
    outbox: Outbox,
    pace: Pace,
    /// Of the sweep under way, the class whose turn it is; `CLASS_COUNT` when there is none.
    next_swept: usize,
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
        front.until_look += POP_COUNTS;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::Chunk;

    /// What the blocks are filled with.
    const BLOCK_MARK: u8 = 0xAB;
    /// Every so many of these blocks stay alive: one or two in each chunk.
    const LIVE_ONE_IN: usize = 40;
    const SIZE_BYTES: usize = 1000;

    fn is_marked(block: NonNull<u8>) -> bool {
        // SAFETY: the test's blocks stay mapped: each of their chunks has one that is alive.
        unsafe { block.add(SIZE_BYTES - 1).read() == BLOCK_MARK }
    }

    /// Goal: what one live block in a chunk holds back goes to the system, some of it while the heap
    /// shrinks, the rest sweep by sweep as time goes by; every sweep leaves no block ready, so that
    /// the next allocation comes by; live blocks keep their bytes, and the rest can be lent again.
    #[test]
    fn pages_go_as_a_heap_shrinks_and_as_time_goes_by() {
        let memory = Chunk::map().unwrap();
        let heap = memory.start().cast::<ThreadHeap>();
        let home = ThreadHeap::home(heap);
        // SAFETY: a chunk has room for a heap, and this one is nobody else's.
        let owned = unsafe {
            ThreadHeap::init(heap);
            ThreadHeap::owned(heap)
        };
        let class = SizeClass::of(SIZE_BYTES);
        // Of 80, the pages that the two live ones reach into are more than a quarter.
        let count = if cfg!(miri) { 120 } else { 16_000 };
        let take = |owned: &mut OwnerPart| {
            let block = owned.pop(class).or_else(|| owned.pop_slow(class, home));
            let block = block.expect("there is memory");
            // SAFETY: the block is this long and ours.
            unsafe { block.write_bytes(BLOCK_MARK, SIZE_BYTES) };
            block
        };
        let blocks: Vec<_> = (0..count).map(|_| take(owned)).collect();
        let is_live = |index: &usize| index.is_multiple_of(LIVE_ONE_IN);
        let (live, freed): (Vec<usize>, Vec<usize>) = (0..count).partition(is_live);
        // As if a sweep had just been, far in the future: none is due by the clock until then.
        let start_ms = u64::MAX / 2;
        owned.pace.begin(start_ms, 0);
        for &index in &freed {
            // SAFETY: taken above, and not used any more.
            if unsafe { owned.push(class.index(), blocks[index]) } {
                owned.look_at(class.index());
            }
        }
        let count_marked = || {
            freed
                .iter()
                .filter(|&&index| is_marked(blocks[index]))
                .count()
        };
        let mut marked_counts = vec![count_marked()];
        // What Miri has the time for is too little to shrink by.
        assert_eq!(marked_counts[0] < freed.len(), !cfg!(miri));
        for second in 1..=8 {
            owned.keep_up(start_ms + second * 1000);
            assert!(owned.pop(class).is_none(), "a block was still ready");
            marked_counts.push(count_marked());
        }
        assert!(
            marked_counts.is_sorted_by(|one, other| one >= other),
            "{marked_counts:?}"
        );
        assert!(
            marked_counts[8] < marked_counts[0] && marked_counts[8] < freed.len() / 4,
            "{marked_counts:?}"
        );
        assert!(live.iter().all(|&index| is_marked(blocks[index])));
        let again: Vec<_> = freed.iter().map(|_| take(owned)).collect();
        let mut all: Vec<_> = live
            .iter()
            .map(|&index| blocks[index])
            .chain(again)
            .collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count, "a block was lent twice");
        for block in all {
            // SAFETY: lent, and not used any more.
            if unsafe { owned.push(class.index(), block) } {
                owned.look_at(class.index());
            }
        }
        owned.settle(GiveBack::Now);
        assert_eq!(owned.figures(), HeapFigures::default());
    }
}
