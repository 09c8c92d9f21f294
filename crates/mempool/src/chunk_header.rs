//! What is known of a chunk, and how an address finds it.
//!
//! On the path: malloc's free finds the home and the class of any block by `of`; the owner keeps a
//! chunk's free blocks here while they are not in its front list.
//! Headers lie together at the start of their segment, not in the chunks: two blocks of 32 KiB fill
//! a chunk, and a header's cache line is not one that blocks of all chunks compete for.
#![allow(unsafe_code)]
use crate::chunk::CHUNK_BYTES;
use crate::chunk_shelf::ChunkShelf;
use crate::remote_free::RemoteFrees;
use std::cell::UnsafeCell;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU16, AtomicU32, Ordering};

/// Size and alignment of a segment: one mapping of [`CHUNKS_PER_SEGMENT`] chunks.
pub(crate) const SEGMENT_BYTES: usize = 4 << 20;
/// Chunks of a segment; the first holds the headers of all.
pub(crate) const CHUNKS_PER_SEGMENT: usize = SEGMENT_BYTES / CHUNK_BYTES;

/// What a chunk is used for.
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

/// Where a chunk stands in a list of its owner's.
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

    /// Says what the chunk will be used for, before any of its memory is lent.
    ///
    /// # Safety
    /// `this` is the header of a chunk the store lent to the caller, who has lent nothing of it.
    pub(crate) unsafe fn dedicate(
        this: NonNull<Self>,
        used_for: ChunkUse,
        home: *mut RemoteFrees,
        class: u8,
        block_bytes: u32,
    ) {
        // SAFETY: the header of a mapped segment; nobody else looks at a chunk that is not lent on.
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

    /// Where the chunk stands in its owner's lists.
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

    /// What the chunk is used for.
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
