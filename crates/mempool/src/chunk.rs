//! Aligned memory from the operating system.
//!
//! `chunk_store` maps segments for the blocks of all pools, `slot_chunk` cuts chunks into slots and unmaps idle ones,
//! and `buffer_pool` takes one long chunk for all its buffers and discards the pages of idle ones. A chunk is 64 KiB at
//! a multiple of 64 KiB, so the chunk of any address is found by clearing 16 bits. It carries no header: 32 KiB blocks
//! fill it twice, and the pages of a tail that no block covers are never touched, so never resident. A returned chunk
//! goes back to the system.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ptr;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU16, AtomicU32, Ordering};

use crate::chunk_shelf::ChunkShelf;
use crate::pages::Access;
use crate::remote_free::RemoteFrees;
use crate::{PoolError, pages};

/// Size and alignment of a chunk.
pub(crate) const CHUNK_BYTES: usize = 64 * 1024;

/// Zeroed memory, aligned to `CHUNK_BYTES`, given back when dropped. Invariant: `start..start + size_bytes` is mapped
/// readable and writable and exclusive.
#[derive(Debug)]
pub(crate) struct Chunk {
    start: NonNull<u8>,
    size_bytes: usize,
}

// SAFETY: a chunk is a range of addresses that only its holder uses; nothing in it depends on the
// thread, and all access goes through its holder's own unsafe code.
unsafe impl Send for Chunk {}
// SAFETY: a shared reference gives away two numbers and no access.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// Maps `CHUNK_BYTES`. One system call, at first use of an address range up to five.
    pub(crate) fn map() -> Result<Self, PoolError> {
        Self::map_long(CHUNK_BYTES)
    }

    /// Maps `size_bytes`, a multiple of `CHUNK_BYTES`, in one piece.
    pub(crate) fn map_long(size_bytes: usize) -> Result<Self, PoolError> {
        Self::map_aligned(size_bytes, CHUNK_BYTES)
    }

    /// Maps `size_bytes`, a multiple of `CHUNK_BYTES`, at a multiple of `align_bytes`, a power of
    /// two that is one as well.
    pub(crate) fn map_aligned(size_bytes: usize, align_bytes: usize) -> Result<Self, PoolError> {
        debug_assert!(size_bytes > 0 && size_bytes.is_multiple_of(CHUNK_BYTES));
        debug_assert!(align_bytes.is_power_of_two() && align_bytes >= CHUNK_BYTES);
        let start = map_pages(size_bytes)?;
        if start.addr().get().is_multiple_of(align_bytes) {
            return Ok(Self { start, size_bytes });
        }
        // The kernel places mappings side by side, so once one is aligned its neighbours are too:
        // this detour is taken seldom.
        unmap_pages(start, size_bytes);
        let long_bytes = size_bytes
            .checked_add(align_bytes)
            .ok_or(PoolError::OutOfMemory {
                requested_bytes: size_bytes,
            })?;
        let long = map_pages(long_bytes)?;
        let before_bytes = long.addr().get().next_multiple_of(align_bytes) - long.addr().get();
        // SAFETY: `before_bytes` is below `align_bytes` and `long` has that many bytes more than the
        // chunk, so both points lie inside the mapping or at its end.
        let (start, end) = unsafe {
            let start = long.add(before_bytes);
            (start, start.add(size_bytes))
        };
        if before_bytes > 0 {
            unmap_pages(long, before_bytes);
        }
        if before_bytes < align_bytes {
            unmap_pages(end, align_bytes - before_bytes);
        }
        Ok(Self { start, size_bytes })
    }

    /// The chunk whose dropping was prevented: it is given back when the returned one is dropped.
    ///
    /// # Safety
    /// `start` and `size_bytes` are those of a chunk that was forgotten, and it is not in use.
    pub(crate) unsafe fn from_raw(start: NonNull<u8>, size_bytes: usize) -> Self {
        Self { start, size_bytes }
    }

    /// The first byte.
    #[inline]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Bytes reserved.
    pub(crate) fn size_bytes(&self) -> usize {
        self.size_bytes
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        unmap_pages(self.start, self.size_bytes);
    }
}

/// Gives the pages of `start..start + size_bytes` back; the addresses stay, and read as zero.
/// `false` where the system refuses, as it does for locked pages: they stay, with what is in them.
///
/// # Safety
/// The range is whole pages of a chunk whose holder is the caller, and its content is not needed.
pub(crate) unsafe fn discard(start: NonNull<u8>, size_bytes: usize) -> bool {
    #[cfg(test)]
    DISCARDS.set(DISCARDS.get() + 1);
    // SAFETY: the caller's promise.
    unsafe { pages::discard(start, size_bytes) }
}

#[cfg(test)]
thread_local! {
    /// How often the calling thread called `discard`.
    pub(crate) static DISCARDS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

fn map_pages(size_bytes: usize) -> Result<NonNull<u8>, PoolError> {
    pages::map(size_bytes, Access::Full).ok_or(PoolError::OutOfMemory {
        requested_bytes: size_bytes,
    })
}

/// Gives back whole pages this file has mapped and that are not in use any more.
fn unmap_pages(start: NonNull<u8>, size_bytes: usize) {
    // SAFETY: private to this file, which passes only ranges it mapped and owns, each once; ends
    // are multiples of the page size, since mappings begin at one and CHUNK_BYTES is one.
    let unmapped = unsafe { pages::unmap(start, size_bytes) };
    // Cutting a mapping in two can pass the kernel's limit on their number. The pages stay mapped
    // then, unused; nothing the caller holds is affected, so there is nothing to report to it.
    debug_assert!(unmapped, "the system keeps {size_bytes} bytes mapped");
}

// Chunks in a row, linked through their headers.

/// How finely chunks are distinguished by how full they are.
const FULLNESS_STEPS: usize = 32;

/// Chunks of one owner, each in at most one list.
/// Invariant: every listed header's chunk belongs to the list's owner, and `next` and `previous` of
/// neighbours name each other.
pub(crate) struct ChunkList {
    first: Option<NonNull<ChunkHeader>>,
    len: u32,
}

impl ChunkList {
    pub(crate) const fn new() -> Self {
        Self {
            first: None,
            len: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Puts a chunk in front.
    ///
    /// # Safety
    /// The chunk is the list owner's and in no list.
    pub(crate) unsafe fn push(&mut self, header: NonNull<ChunkHeader>) {
        // SAFETY: the caller's promise; the two places are of different chunks and no reference to
        // either outlives its statement.
        unsafe {
            *ChunkHeader::place(header) = Place {
                next: self.first,
                previous: None,
            };
            if let Some(second) = self.first {
                ChunkHeader::place(second).previous = Some(header);
            }
        }
        self.first = Some(header);
        self.len += 1;
    }

    /// Takes a chunk out, wherever it is.
    ///
    /// # Safety
    /// The chunk is in this list.
    pub(crate) unsafe fn remove(&mut self, header: NonNull<ChunkHeader>) {
        // SAFETY: listed chunks are the owner's, which calls; one place is referred to at a time.
        unsafe {
            let Place { next, previous } =
                std::mem::replace(ChunkHeader::place(header), Place::NONE);
            match previous {
                Some(previous) => ChunkHeader::place(previous).next = next,
                None => self.first = next,
            }
            if let Some(next) = next {
                ChunkHeader::place(next).previous = previous;
            }
        }
        self.len -= 1;
    }

    /// Takes the first chunk out.
    pub(crate) fn pop(&mut self) -> Option<NonNull<ChunkHeader>> {
        let first = self.first?;
        // SAFETY: it is in this list.
        unsafe { self.remove(first) };
        Some(first)
    }

    /// Puts the chunks with the most blocks away from home in front, roughly: into one of
    /// `FULLNESS_STEPS` steps. O(chunks).
    pub(crate) fn order_by_fullness(&mut self, blocks_per_chunk: u32) {
        let mut steps = [const { Self::new() }; FULLNESS_STEPS];
        while let Some(header) = self.pop() {
            // SAFETY: it was this owner's in no list after `pop`, and is so between the two pushes.
            unsafe {
                let out_count = ChunkHeader::shelf(header).out_count() as usize;
                let step = out_count * (FULLNESS_STEPS - 1) / blocks_per_chunk as usize;
                steps[step].push(header);
            }
        }
        for mut step in steps {
            while let Some(header) = step.pop() {
                // SAFETY: as above.
                unsafe { self.push(header) };
            }
        }
    }

    /// The first chunk.
    pub(crate) fn first(&self) -> Option<NonNull<ChunkHeader>> {
        self.first
    }

    /// The chunk behind one of this list.
    ///
    /// # Safety
    /// The chunk is in this list.
    pub(crate) unsafe fn behind(
        &self,
        header: NonNull<ChunkHeader>,
    ) -> Option<NonNull<ChunkHeader>> {
        // SAFETY: listed chunks are the owner's, which calls.
        unsafe { ChunkHeader::place(header).next }
    }

    /// The chunks, first to last. They must stay in the list while this runs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = NonNull<ChunkHeader>> {
        std::iter::successors(self.first, |header| {
            // SAFETY: listed chunks are the owner's, which calls.
            unsafe { ChunkHeader::place(*header).next }
        })
    }
}

// Properties of a chunk, and how an address finds it.

/// Size and alignment of a segment: one mapping of [`CHUNKS_PER_SEGMENT`] chunks.
pub(crate) const SEGMENT_BYTES: usize = 4 << 20;
/// Chunks of a segment; the first holds the headers of all.
pub(crate) const CHUNKS_PER_SEGMENT: usize = SEGMENT_BYTES / CHUNK_BYTES;

/// The use of a chunk.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum ChunkUse {
    /// Nothing: the store has it.
    Free,
    /// Cut into blocks of one class.
    Blocks,
    /// The first of a run of chunks lent as one.
    Run,
}

/// One chunk's header: a cache line that any thread may read, and one that the owner writes to.
/// Invariant: the numbers outside `place` and `shelf` change only while no block of the chunk is
/// lent, so any thread that holds a block may read them; these two are the owner's alone.
#[repr(C, align(128))]
pub(crate) struct ChunkHeader {
    home: AtomicPtr<RemoteFrees>,
    block_bytes: AtomicU32,
    /// Chunks of a run; 1 for blocks.
    chunk_count: AtomicU16,
    class: AtomicU8,
    used_for: AtomicU8,
    place: UnsafeCell<Place>,
    shelf: OwnersLine,
}

/// Where other threads, reading the rest, do not wait for the owner's writes.
#[repr(C, align(64))]
struct OwnersLine(UnsafeCell<ChunkShelf>);

/// Links of a chunk in a list of its owner.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) next: Option<NonNull<ChunkHeader>>,
    pub(crate) previous: Option<NonNull<ChunkHeader>>,
}

impl Place {
    pub(crate) const NONE: Self = Self {
        next: None,
        previous: None,
    };
}

const _: () = assert!(
    size_of::<ChunkHeader>() == 128,
    "a header is a power of two, so that it is found by a shift"
);

impl ChunkHeader {
    /// The header of the chunk that `address` lies in. No load: a mask, a shift and an addition.
    /// Means something only for addresses inside a segment's chunks; to read it, one must hold
    /// memory of that chunk.
    #[inline(always)]
    pub(crate) fn of(address: NonNull<u8>) -> NonNull<Self> {
        let header = address.as_ptr().map_addr(|address| {
            let segment = address & !(SEGMENT_BYTES - 1);
            let index = (address & (SEGMENT_BYTES - 1)) / CHUNK_BYTES;
            segment + index * size_of::<Self>()
        });
        // SAFETY: `address` is not in the lowest page, and clearing bits below a segment's size of
        // an address inside a mapped segment does not lead to null.
        unsafe { NonNull::new_unchecked(header.cast()) }
    }

    /// The first byte of the header's chunk.
    #[inline]
    pub(crate) fn chunk_start(this: NonNull<Self>) -> NonNull<u8> {
        let start = this.as_ptr().map_addr(|header| {
            let segment = header & !(SEGMENT_BYTES - 1);
            let index = (header & (SEGMENT_BYTES - 1)) / size_of::<Self>();
            segment + index * CHUNK_BYTES
        });
        // SAFETY: as in `of`.
        unsafe { NonNull::new_unchecked(start.cast()) }
    }

    /// Sets the use of the chunk, before any of its memory is lent.
    ///
    /// # Safety
    /// `this` is the header of a chunk the store lent to the caller, which has lent nothing of it.
    pub(crate) unsafe fn dedicate(
        this: NonNull<Self>,
        used_for: ChunkUse,
        home: *mut RemoteFrees,
        class: u8,
        block_bytes: u32,
    ) {
        // SAFETY: the header of a mapped segment; a chunk that is not lent on is not accessed elsewhere.
        let header = unsafe { this.as_ref() };
        header.home.store(home, Ordering::Relaxed);
        header.block_bytes.store(block_bytes, Ordering::Relaxed);
        header.class.store(class, Ordering::Relaxed);
        header.used_for.store(used_for as u8, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe {
            *header.place.get() = Place::NONE;
            *header.shelf.0.get() = ChunkShelf::NONE;
        }
    }

    /// The owner's books.
    ///
    /// # Safety
    /// The caller owns the chunk and holds no other reference to its shelf while this one lives.
    #[inline]
    pub(crate) unsafe fn shelf<'a>(this: NonNull<Self>) -> &'a mut ChunkShelf {
        // SAFETY: the caller's promise; the cell lets it be written beside shared readers of the
        // other numbers.
        unsafe { &mut *(*this.as_ptr()).shelf.0.get() }
    }

    /// The chunk's links in its owner's lists.
    ///
    /// # Safety
    /// As for `shelf`.
    pub(crate) unsafe fn place<'a>(this: NonNull<Self>) -> &'a mut Place {
        // SAFETY: as in `shelf`.
        unsafe { &mut *(*this.as_ptr()).place.get() }
    }

    /// Where the chunk's blocks go when another thread frees them.
    #[inline(always)]
    pub(crate) fn home(&self) -> *mut RemoteFrees {
        self.home.load(Ordering::Relaxed)
    }

    /// The class of the chunk's blocks.
    #[inline(always)]
    pub(crate) fn class(&self) -> u8 {
        self.class.load(Ordering::Relaxed)
    }

    /// Size of the chunk's blocks.
    #[inline(always)]
    pub(crate) fn block_bytes(&self) -> u32 {
        self.block_bytes.load(Ordering::Relaxed)
    }

    /// Chunks lent together with this first one.
    #[inline]
    pub(crate) fn chunk_count(&self) -> u16 {
        self.chunk_count.load(Ordering::Relaxed)
    }

    /// The use of the chunk.
    #[inline(always)]
    pub(crate) fn used_for(&self) -> ChunkUse {
        match self.used_for.load(Ordering::Relaxed) {
            1 => ChunkUse::Blocks,
            2 => ChunkUse::Run,
            _ => ChunkUse::Free,
        }
    }

    /// The store's note: the chunk is lent as the first of `chunk_count`, or free at 0.
    pub(crate) fn note_lent(&self, chunk_count: u16) {
        self.chunk_count.store(chunk_count, Ordering::Relaxed);
        self.used_for.store(ChunkUse::Free as u8, Ordering::Relaxed);
        self.home.store(ptr::null_mut(), Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "tests/chunk.rs"]
mod tests;
