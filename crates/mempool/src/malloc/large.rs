//! Allocations larger than a block: runs of chunks, and separate mappings.
//!
//! Malloc uses it for more than 32 KiB, or more alignment than a page's worth of blocks has. Up to 63 chunks come from
//! the store, where freed ones wait with their pages for the next taker. Longer ones, or those aligned to more than a
//! chunk, are mapped:
//!
//! ```text
//!   mapping start            block, at a multiple of 4 MiB (or more)
//!        |  MappedHeader ...  |  the holder's bytes ...                 |
//!        <----- 64 KiB ------->
//! ```
//! So an address that is a multiple of a segment's size can only be a mapped block's: the first chunk of a segment of
//! the store is never lent. free needs one test for it, which null shares. There is no cache of mappings: they are
//! rare, and each is worth a system call.
#![allow(unsafe_code)]
use super::checked;
use crate::chunk::CHUNK_BYTES;
use crate::chunk::{ChunkHeader, ChunkUse, SEGMENT_BYTES};
use crate::chunk_store::{self, GiveBack, RUN_CHUNKS_MAX};
use crate::pages::{self, Access};
use crate::remote_free::RemoteFrees;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The longest block that is a run.
pub(super) const RUN_BYTES_MAX: usize = RUN_CHUNKS_MAX * CHUNK_BYTES;

/// Memory before a mapped block, of which only the header's page is ever touched.
const HEADER_ROOM_BYTES: usize = CHUNK_BYTES;

/// Marks the words before an address as a header.
const MAGIC: usize = 0x6d70_6d61_7070_6564;

/// Right before a mapped block.
struct MappedHeader {
    /// Bytes the block has: whole chunks.
    block_bytes: usize,
    magic: usize,
}

/// The home of runs: no heap's, so that no thread takes a run for a block of its own.
static NO_HOME: u8 = 0;

/// Mapped blocks that are lent, and their bytes.
static MAPPED_COUNT: AtomicUsize = AtomicUsize::new(0);
static MAPPED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Memory and whether it is known to be all zero.
pub(super) struct Fresh {
    pub(super) start: NonNull<u8>,
    pub(super) is_zero: bool,
}

/// A large block at a multiple of `align_bytes`, a power of two. None when the system has no memory
/// or the size is more than there can be.
pub(super) fn allocate(size_bytes: usize, align_bytes: usize) -> Option<Fresh> {
    if size_bytes > isize::MAX as usize {
        return None;
    }
    if size_bytes > RUN_BYTES_MAX || align_bytes > CHUNK_BYTES {
        return map(size_bytes, align_bytes);
    }
    let (header, is_zero) = chunk_store::take(size_bytes.div_ceil(CHUNK_BYTES).max(1)).ok()?;
    let no_home = (&raw const NO_HOME).cast_mut().cast::<RemoteFrees>();
    // SAFETY: fresh from the store.
    unsafe { ChunkHeader::dedicate(header, ChunkUse::Run, no_home, u8::MAX, 0) };
    let start = ChunkHeader::chunk_start(header);
    Some(Fresh { start, is_zero })
}

/// Bytes that a run's holder may use.
///
/// # Safety
/// The header is that of a lent run.
pub(super) unsafe fn run_bytes(header: NonNull<ChunkHeader>) -> usize {
    // SAFETY: the caller's promise.
    usize::from(unsafe { header.as_ref() }.chunk_count()) * CHUNK_BYTES
}

/// Takes a run back.
///
/// # Safety
/// The header is that of a lent run, which is not used any more.
pub(super) unsafe fn free_run(header: NonNull<ChunkHeader>) {
    // SAFETY: the caller's promise.
    unsafe { chunk_store::give_back(header, GiveBack::Later) };
}

/// Whether an address can only be that of a mapped block, or null.
#[inline(always)]
pub(super) fn is_mapped(address: usize) -> bool {
    address.is_multiple_of(SEGMENT_BYTES)
}

fn header_of(block: NonNull<u8>) -> NonNull<MappedHeader> {
    // Every mapped block has its header room before it.
    let header = block.as_ptr().wrapping_sub(size_of::<MappedHeader>());
    // SAFETY: a block that is not null lies at 4 MiB or above.
    unsafe { NonNull::new_unchecked(header.cast()) }
}

/// The header of a mapped block. Ends the process when there is none.
///
/// # Safety
/// The block is reported as lent by `map`; the words before it can be read.
unsafe fn read_header(block: NonNull<u8>) -> MappedHeader {
    // SAFETY: the caller's promise; headers are aligned, since blocks are to more.
    let header = unsafe { header_of(block).read() };
    if header.magic != MAGIC {
        checked::foreign_pointer(block.addr().get());
    }
    header
}

fn map(size_bytes: usize, align_bytes: usize) -> Option<Fresh> {
    let align_bytes = align_bytes.max(SEGMENT_BYTES);
    let block_bytes = size_bytes.max(1).checked_next_multiple_of(CHUNK_BYTES)?;
    let start = map_aligned(block_bytes, align_bytes)?;
    // SAFETY: the header's room lies before the block.
    unsafe {
        header_of(start).write(MappedHeader {
            block_bytes,
            magic: MAGIC,
        });
    }
    MAPPED_COUNT.fetch_add(1, Ordering::Relaxed);
    MAPPED_BYTES.fetch_add(block_bytes, Ordering::Relaxed);
    let is_zero = true;
    Some(Fresh { start, is_zero })
}

/// Maps a header's room and `block_bytes` after it, these at a multiple of `align_bytes`.
fn map_aligned(block_bytes: usize, align_bytes: usize) -> Option<NonNull<u8>> {
    let kept_bytes = block_bytes.checked_add(HEADER_ROOM_BYTES)?;
    let mapped_bytes = kept_bytes.checked_add(align_bytes)?;
    if mapped_bytes > isize::MAX as usize {
        return None;
    }
    let mapped = pages::map(mapped_bytes, Access::Full)?.as_ptr();
    let first = (mapped.addr() + HEADER_ROOM_BYTES).next_multiple_of(align_bytes);
    let before_bytes = first - HEADER_ROOM_BYTES - mapped.addr();
    let after_bytes = mapped_bytes - before_bytes - kept_bytes;
    // SAFETY: the three parts together are the mapping: the kept part begins at `before_bytes`, which is at most
    // `align_bytes` and a multiple of the page size, as are the other values.
    unsafe {
        unmap(mapped, before_bytes);
        unmap(mapped.add(before_bytes + kept_bytes), after_bytes);
        NonNull::new(mapped.add(before_bytes + HEADER_ROOM_BYTES))
    }
}

/// # Safety
/// The range is whole pages of ours that are not used; it may be empty.
unsafe fn unmap(start: *mut u8, size_bytes: usize) {
    if size_bytes > 0 {
        // SAFETY: the caller's promise, and ours are not at null. Refused only when it would cut a
        // mapping in two and there are too many already; then the pages stay, unused.
        let _ = unsafe { pages::unmap(NonNull::new_unchecked(start), size_bytes) };
    }
}

/// Bytes that a mapped block's holder may use.
///
/// # Safety
/// The block is lent by `map`.
pub(super) unsafe fn mapped_bytes(block: NonNull<u8>) -> usize {
    // SAFETY: the caller's promise.
    unsafe { read_header(block) }.block_bytes
}

/// Takes a mapped block back.
///
/// # Safety
/// The block is lent by `map`, and it is not used any more.
pub(super) unsafe fn free_mapped(block: NonNull<u8>) {
    // SAFETY: the caller's promise; the mapping begins with the header's room.
    unsafe {
        let block_bytes = read_header(block).block_bytes;
        // Freed again, it is found out as long as the room is not mapped anew.
        let start = block.as_ptr().sub(HEADER_ROOM_BYTES);
        unmap(start, HEADER_ROOM_BYTES + block_bytes);
        MAPPED_COUNT.fetch_sub(1, Ordering::Relaxed);
        MAPPED_BYTES.fetch_sub(block_bytes, Ordering::Relaxed);
    }
}

/// Gives a mapped block another length without copying: in place, else by moving its pages to
/// another address. None when the system refuses; the block is then as it was.
///
/// # Safety
/// The block is lent by `map`, and the holder uses only the result from now on, if there is one.
pub(super) unsafe fn resize_mapped(block: NonNull<u8>, size_bytes: usize) -> Option<NonNull<u8>> {
    if size_bytes > isize::MAX as usize {
        return None;
    }
    let new_bytes = size_bytes.max(1).checked_next_multiple_of(CHUNK_BYTES)?;
    // SAFETY: the caller's promise.
    let old_bytes = unsafe { read_header(block) }.block_bytes;
    let (from_bytes, to_bytes) = (old_bytes + HEADER_ROOM_BYTES, new_bytes + HEADER_ROOM_BYTES);
    // SAFETY: the mapping begins with the header's room; in place nothing else can be touched, since
    // the kernel refuses to grow over another mapping. The other place is one that `map_aligned` has
    // just mapped for this, and which is replaced.
    let moved = unsafe {
        let start = block.sub(HEADER_ROOM_BYTES);
        if pages::resize(start, from_bytes, to_bytes) {
            block
        } else {
            let place = map_aligned(new_bytes, SEGMENT_BYTES)?;
            let target = place.sub(HEADER_ROOM_BYTES);
            if !pages::move_to(start, from_bytes, target, to_bytes) {
                unmap(target.as_ptr(), to_bytes);
                return None;
            }
            place
        }
    };
    // SAFETY: the header came along.
    unsafe { (*header_of(moved).as_ptr()).block_bytes = new_bytes };
    MAPPED_BYTES.fetch_add(new_bytes.wrapping_sub(old_bytes), Ordering::Relaxed);
    Some(moved)
}

/// How many blocks are mapped, and their bytes.
pub(super) fn mapped_figures() -> (usize, usize) {
    (
        MAPPED_COUNT.load(Ordering::Relaxed),
        MAPPED_BYTES.load(Ordering::Relaxed),
    )
}
