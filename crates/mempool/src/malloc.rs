//! The pools as malloc: any size, any thread, no handle.
//!
//! `preload/mempool` exports these functions under C's names, and [`MempoolAlloc`] is the door for
//! Rust programs.
//!
//! ```text
//!   malloc ─ class? ─ front list of the thread's heap ─┬─ refill ─ chunks ─┐
//!                                                      │                   ├─ chunk_store
//!   free ─ header of the chunk ─ mine: front list      └─ over the bound: spill
//!                              └ another's: outbox ─ batch ─ its home
//!   over 32 KiB: runs of chunks;  over 3.9 MiB: mappings of their own   (large)
//!   a thread ends: its heap, whole, to the abandoned heaps; the next thread adopts it
//! ```
//! No function here allocates elsewhere, formats, or unwinds into its caller. Locks are held for a few instructions, on
//! slow paths only, and across a fork. In the child of a fork, heaps of the parent's other threads are left unchanged:
//! their free memory is lost to the child.
//!
//! With [`check`] every block is checked instead, at the price of a lock and a table for each call.
#![allow(unsafe_code)]

mod thread_slot;
mod thread_heap;
mod orphanage;
mod large;
mod checked;

use crate::Checks;
use crate::chunk::CHUNK_BYTES;
use crate::chunk::{ChunkHeader, ChunkUse};
use crate::chunk_store::{self, GiveBack};
use crate::remote_free::RemoteFrees;
use crate::size_class::{BLOCK_ALIGN_BYTES, BLOCK_BYTES, POOLED_BYTES_MAX, SizeClass};
use checked::KeptErrno;
use std::alloc::{GlobalAlloc, Layout};
use std::ptr::{self, NonNull};
use thread_heap::{HeapFigures, ThreadHeap, class_of};
use thread_slot::Stage;

pub use thread_heap::prepare;

/// A block of at least `size_bytes`, aligned to 16, if the calling thread has one ready; else [`allocate`] has to find
/// one. For callers that do a part of the work in between.
#[inline(always)]
#[must_use]
pub fn allocate_ready(size_bytes: usize) -> Option<NonNull<u8>> {
    if size_bytes > POOLED_BYTES_MAX {
        return None;
    }
    let class = SizeClass::of(size_bytes);
    let heap = NonNull::new(thread_slot::heap())?;
    // SAFETY: the slot's heap is this thread's, and the reference ends here.
    unsafe { ThreadHeap::owned(heap) }.pop(class)
}

/// A block of at least `size_bytes`, aligned to 16; null when the system has no memory.
#[inline]
#[must_use]
pub fn allocate(size_bytes: usize) -> *mut u8 {
    match allocate_ready(size_bytes) {
        Some(block) => block.as_ptr(),
        None => allocate_slow(size_bytes),
    }
}

/// The same, all zero.
#[inline]
#[must_use]
pub fn allocate_zeroed(size_bytes: usize) -> *mut u8 {
    if size_bytes > POOLED_BYTES_MAX {
        return allocate_large_zeroed(size_bytes, BLOCK_ALIGN_BYTES);
    }
    let block = allocate(size_bytes);
    if !block.is_null() {
        // SAFETY: the block has this size and is the caller's.
        unsafe { block.write_bytes(0, size_bytes) };
    }
    block
}

/// A block of at least `size_bytes` at a multiple of `align_bytes`, a power of two of any size;
/// null when the system has no memory.
#[inline]
#[must_use]
pub fn allocate_aligned(align_bytes: usize, size_bytes: usize) -> *mut u8 {
    debug_assert!(align_bytes.is_power_of_two());
    if align_bytes <= BLOCK_ALIGN_BYTES {
        return allocate(size_bytes);
    }
    if let Some(block) = checked::allocate(size_bytes, align_bytes) {
        return block;
    }
    if size_bytes > POOLED_BYTES_MAX || align_bytes > POOLED_BYTES_MAX {
        return allocate_large(size_bytes, align_bytes);
    }
    let class = SizeClass::of_aligned(size_bytes, align_bytes);
    allocate(BLOCK_BYTES[class.index()] as usize)
}

/// Takes a block back. Null is none.
///
/// # Safety
/// `block` is null, or one of these functions returned it, and it is not used any more.
#[inline]
pub unsafe fn free(block: *mut u8) {
    let Some(block) = NonNull::new(block).filter(|block| !large::is_mapped(block.addr().get()))
    else {
        // SAFETY: the caller's promise, passed on.
        return unsafe { free_apart(block) };
    };
    let Some(heap) = NonNull::new(thread_slot::heap()) else {
        // SAFETY: as above.
        return unsafe { free_without_heap(block) };
    };
    // SAFETY: the caller's promise, passed on. A block that is not at a multiple of a segment's size lies in a segment
    // of the store, not in its first chunk, so its header can be read; and a header whose home is the slot's heap is
    // that of a chunk of blocks of this thread. Checked blocks are elsewhere, but in that mode no thread has a heap.
    unsafe {
        let header = ChunkHeader::of(block);
        if ptr::eq(header.as_ref().home(), heap.as_ptr().cast()) {
            let index = class_of(header);
            if ThreadHeap::owned(heap).push(index, block) {
                look_at(heap, index);
            }
        } else {
            free_slow(header, block);
        }
    }
}

/// Gives a block another size, keeping its bytes as far as both sizes reach. Null when the system
/// has no memory; the block is then as it was. A null `block` is an empty one.
///
/// # Safety
/// `block` is null, or one of these functions returned it, and unless the result is null the holder uses only the
/// result from now on.
#[must_use]
pub unsafe fn reallocate(block: *mut u8, size_bytes: usize) -> *mut u8 {
    let Some(start) = NonNull::new(block) else {
        return allocate(size_bytes);
    };
    // SAFETY: the caller's promise, passed on.
    let usable_bytes = unsafe { usable_bytes(block) };
    let is_checked = checked::is_on();
    if !is_checked && size_bytes <= usable_bytes && fits_well(size_bytes, usable_bytes) {
        return block;
    }
    if !is_checked && large::is_mapped(block.addr()) && size_bytes > large::RUN_BYTES_MAX {
        // SAFETY: the caller's promise; only mapped blocks have such addresses.
        if let Some(moved) = unsafe { large::resize_mapped(start, size_bytes) } {
            return moved.as_ptr();
        }
    }
    let target = allocate(size_bytes);
    if !target.is_null() {
        // SAFETY: both blocks are at least as long as what is copied, and apart, since both are
        // lent; after it the old one is ours to free, by the caller's promise.
        unsafe {
            ptr::copy_nonoverlapping(block, target, usable_bytes.min(size_bytes));
            free(block);
        }
    }
    target
}

/// Whether a block is not so much too long that moving it to a shorter one is better.
fn fits_well(size_bytes: usize, usable_bytes: usize) -> bool {
    let needed_bytes = if size_bytes <= POOLED_BYTES_MAX {
        BLOCK_BYTES[SizeClass::of(size_bytes).index()] as usize
    } else {
        size_bytes.next_multiple_of(CHUNK_BYTES)
    };
    usable_bytes - needed_bytes.min(usable_bytes) <= usable_bytes / 4
}

/// Bytes that the holder of a block may use: at least those asked for. 0 for null.
///
/// # Safety
/// `block` is null or lent by one of these functions.
#[must_use]
pub unsafe fn usable_bytes(block: *mut u8) -> usize {
    let Some(start) = NonNull::new(block) else {
        return 0;
    };
    if let Some(size_bytes) = checked::size_of(start) {
        return size_bytes;
    }
    // SAFETY: the caller's promise, and as in `free`.
    unsafe {
        if large::is_mapped(block.addr()) {
            return large::mapped_bytes(start);
        }
        let header = ChunkHeader::of(start);
        match header.as_ref().used_for() {
            ChunkUse::Blocks => header.as_ref().block_bytes() as usize,
            ChunkUse::Run => large::run_bytes(header),
            ChunkUse::Free => checked::foreign_pointer(block.addr()),
        }
    }
}

/// Gives all free memory that this thread can reach back to the system: that of its own heap, of heaps whose threads
/// ended, and of chunks that wait for their next use. Returns whether there was any.
pub fn trim() -> bool {
    if checked::trim() {
        return false;
    }
    let mut page_bytes = orphanage::trim_all();
    if let Some(heap) = NonNull::new(thread_slot::heap()) {
        // SAFETY: as in `allocate`, one reference at a time; batches are sent between them.
        unsafe {
            while let Some(batch) = ThreadHeap::owned(heap).take_batch() {
                orphanage::deliver(batch);
            }
            let owned = ThreadHeap::owned(heap);
            owned.absorb(heap.as_ref().remote().take());
            owned.settle(GiveBack::Later);
            page_bytes += owned.empty_pages();
        }
    }
    let dirty_count = chunk_store::figures().dirty_count;
    chunk_store::purge(0);
    page_bytes + dirty_count * CHUNK_BYTES > 0
}

#[cold]
#[inline(never)]
fn allocate_slow(size_bytes: usize) -> *mut u8 {
    if let Some(block) = checked::allocate(size_bytes, BLOCK_ALIGN_BYTES) {
        return block;
    }
    if size_bytes > POOLED_BYTES_MAX {
        return allocate_large(size_bytes, BLOCK_ALIGN_BYTES);
    }
    let class = SizeClass::of(size_bytes);
    let block = match heap_of_this_thread() {
        // SAFETY: the heap is this thread's; its home is its own.
        Some(heap) => unsafe { ThreadHeap::owned(heap).pop_slow(class, ThreadHeap::home(heap)) },
        None => orphanage::lend(class),
    };
    block.map_or(ptr::null_mut(), NonNull::as_ptr)
}

#[cold]
#[inline(never)]
fn allocate_large(size_bytes: usize, align_bytes: usize) -> *mut u8 {
    large::allocate(size_bytes, align_bytes).map_or(ptr::null_mut(), |fresh| fresh.start.as_ptr())
}

#[cold]
#[inline(never)]
fn allocate_large_zeroed(size_bytes: usize, align_bytes: usize) -> *mut u8 {
    if let Some(block) = checked::allocate(size_bytes, align_bytes) {
        if !block.is_null() {
            // SAFETY: the block has this size and is the caller's.
            unsafe { block.write_bytes(0, size_bytes) };
        }
        return block;
    }
    let Some(fresh) = large::allocate(size_bytes, align_bytes) else {
        return ptr::null_mut();
    };
    if !fresh.is_zero {
        // SAFETY: the block has this size and is the caller's.
        unsafe { fresh.start.write_bytes(0, size_bytes) };
    }
    fresh.start.as_ptr()
}

/// The calling thread's heap, which it gets with its first call. None after its end, under checks,
/// and when the system has no memory.
fn heap_of_this_thread() -> Option<NonNull<ThreadHeap>> {
    if let Some(heap) = NonNull::new(thread_slot::heap()) {
        return Some(heap);
    }
    if thread_slot::stage() == Stage::Ended || checked::is_on() {
        return None;
    }
    let heap = orphanage::adopt()?;
    thread_slot::set_heap(heap.as_ptr());
    thread_slot::set_stage(Stage::Running);
    // Only now: this may allocate.
    thread_heap::arm();
    Some(heap)
}

/// Sweeps a class of the calling thread's heap, as the heap requested.
///
/// # Safety
/// The heap is the calling thread's.
#[cold]
#[inline(never)]
unsafe fn look_at(heap: NonNull<ThreadHeap>, index: usize) {
    let _kept = KeptErrno::new();
    // SAFETY: the caller's promise; the reference ends here.
    unsafe { ThreadHeap::owned(heap) }.look_at(index);
}

/// Frees null, or a mapped block.
///
/// # Safety
/// As for `free`, of such a block.
#[cold]
#[inline(never)]
unsafe fn free_apart(block: *mut u8) {
    let Some(block) = NonNull::new(block) else {
        return;
    };
    let _kept = KeptErrno::new();
    // SAFETY: the caller's promise.
    unsafe {
        if !checked::free(block) {
            large::free_mapped(block);
        }
    }
}

/// Frees a block on a thread that has no heap, or not yet.
///
/// # Safety
/// As for `free`, of a block that is not mapped.
#[cold]
#[inline(never)]
unsafe fn free_without_heap(block: NonNull<u8>) {
    let _kept = KeptErrno::new();
    // SAFETY: the caller's promise; as in `free` for what is no checked block.
    unsafe {
        if !checked::free(block) {
            free_slow(ChunkHeader::of(block), block);
        }
    }
}

/// Frees what is not a block of the calling thread's own heap.
///
/// # Safety
/// As for `free`; `header` is that of the block's chunk.
#[cold]
#[inline(never)]
unsafe fn free_slow(header: NonNull<ChunkHeader>, block: NonNull<u8>) {
    let _kept = KeptErrno::new();
    // SAFETY: the caller's promise.
    unsafe {
        match header.as_ref().used_for() {
            ChunkUse::Blocks => {
                let home = NonNull::new_unchecked(header.as_ref().home());
                free_away(home, class_of(header), block);
            }
            ChunkUse::Run if ChunkHeader::chunk_start(header) == block => large::free_run(header),
            ChunkUse::Run | ChunkUse::Free => checked::foreign_pointer(block.addr().get()),
        }
    }
}

/// Sends a block of another heap home, soon.
///
/// # Safety
/// As for `free`; the block is of this home and class.
unsafe fn free_away(home: NonNull<RemoteFrees>, index: usize, block: NonNull<u8>) {
    let batch = match heap_of_this_thread() {
        // SAFETY: the heap is this thread's, and the reference ends before anything is sent. The
        // rest is the caller's promise.
        Some(heap) => unsafe { ThreadHeap::owned(heap).send(home, block, index) },
        // SAFETY: the caller's promise.
        None => Some(unsafe { crate::outbox::AddressedBatch::of_one(home, block, index as u16) }),
    };
    if let Some(batch) = batch {
        orphanage::deliver(batch);
    }
}

/// Leaves the calling thread's heap to the next thread.
fn give_up_heap() {
    let Some(heap) = NonNull::new(thread_slot::heap()) else {
        return;
    };
    // SAFETY: the heap is this thread's until it is left, and the slot no longer names it then; one
    // reference at a time.
    unsafe {
        while let Some(batch) = ThreadHeap::owned(heap).take_batch() {
            orphanage::deliver(batch);
        }
        thread_slot::set_heap(ptr::null_mut());
        orphanage::leave(heap);
    }
}

/// Takes every lock, in the order that all other code takes them.
fn hold_for_fork() {
    checked::hold_for_fork();
    orphanage::hold_for_fork();
    chunk_store::hold_for_fork();
}

fn release_after_fork() {
    chunk_store::release_after_fork();
    orphanage::release_after_fork();
    checked::release_after_fork();
}

/// Checks every block from now on, permanently, like [`PoolMode::Checked`](crate::PoolMode::Checked) for a pool. A
/// violation is written to the standard error, and aborts.
///
/// Call it before the process has a second thread: other threads keep their heaps. Blocks lent before are not checked.
pub fn check(checks: Checks) {
    thread_heap::prepare();
    if checked::switch_on(checks) {
        give_up_heap();
    }
}

/// Checks all free memory and the edges of all lent blocks, now. Does nothing without [`check`].
pub fn verify() {
    checked::verify();
}

/// Current numbers of malloc, as far as one thread can read them: its own heap and those without a thread. Other
/// threads' heaps are in `chunk_bytes` only.
///
/// Identity, for a process with one thread: `chunk_bytes = run_bytes + live_bytes + cached_bytes +
/// waste_bytes`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MallocStats {
    /// Heaps made, one for each thread there was at once.
    pub heap_count: usize,
    /// Those of them whose thread ended and that no other thread has taken over.
    pub abandoned_count: usize,
    /// Blocks lent now.
    pub live_count: usize,
    /// Their bytes, rounded up to whole blocks.
    pub live_bytes: usize,
    /// Bytes in free blocks.
    pub cached_bytes: usize,
    /// Bytes at the ends of chunks, too short for a block.
    pub waste_bytes: usize,
    /// Chunks lent, to heaps and as runs, in bytes.
    pub chunk_bytes: usize,
    /// Chunks lent to the heaps counted here, in bytes.
    pub heap_chunk_bytes: usize,
    /// Free chunks that still have their pages, in bytes.
    pub dirty_bytes: usize,
    /// Addresses taken from the system for chunks.
    pub reserved_bytes: usize,
    /// Blocks with a mapping of their own.
    pub mapped_count: usize,
    /// Their bytes.
    pub mapped_bytes: usize,
}

/// The figures of now.
#[must_use]
pub fn stats() -> MallocStats {
    let heaps = orphanage::figures();
    let mut blocks: HeapFigures = heaps.abandoned;
    if let Some(heap) = NonNull::new(thread_slot::heap()) {
        // SAFETY: as in `allocate`.
        blocks.add(unsafe { ThreadHeap::owned(heap) }.figures());
    }
    let store = chunk_store::figures();
    let (mapped_count, mapped_bytes) = large::mapped_figures();
    MallocStats {
        heap_count: heaps.heap_count,
        abandoned_count: heaps.abandoned_count,
        live_count: blocks.live_count,
        live_bytes: blocks.live_bytes,
        cached_bytes: blocks.cached_bytes,
        waste_bytes: blocks.waste_bytes,
        chunk_bytes: store.lent_count * CHUNK_BYTES,
        heap_chunk_bytes: blocks.chunk_count * CHUNK_BYTES,
        dirty_bytes: store.dirty_count * CHUNK_BYTES,
        reserved_bytes: store.segment_count * crate::chunk::SEGMENT_BYTES,
        mapped_count,
        mapped_bytes,
    }
}

/// The pools as a Rust program's global allocator.
///
/// ```
/// use millpond_mempool::MempoolAlloc;
/// #[global_allocator]
/// static ALLOCATOR: MempoolAlloc = MempoolAlloc;
/// assert_eq!(vec![7; 100_000].len(), 100_000);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct MempoolAlloc;

// SAFETY: blocks are at least as long as asked for, aligned as asked for, and apart; none of the
// functions unwinds.
unsafe impl GlobalAlloc for MempoolAlloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocate_aligned(layout.align(), layout.size())
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= BLOCK_ALIGN_BYTES {
            return allocate_zeroed(layout.size());
        }
        if layout.size() > POOLED_BYTES_MAX {
            return allocate_large_zeroed(layout.size(), layout.align());
        }
        let block = allocate_aligned(layout.align(), layout.size());
        if !block.is_null() {
            // SAFETY: the block has this size and is the caller's.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { free(block) };
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_bytes: usize) -> *mut u8 {
        if layout.align() <= BLOCK_ALIGN_BYTES {
            // SAFETY: the caller's promise.
            return unsafe { reallocate(block, new_bytes) };
        }
        let target = allocate_aligned(layout.align(), new_bytes);
        if !target.is_null() {
            // SAFETY: the caller's promise about `block`; both are lent, so they are apart.
            unsafe {
                ptr::copy_nonoverlapping(block, target, layout.size().min(new_bytes));
                free(block);
            }
        }
        target
    }
}
