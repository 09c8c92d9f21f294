//! Heaps whose threads ended, and the creation of heaps.
//!
//! A thread's first allocation takes an abandoned heap over, whole, or gets a new heap; its end leaves the heap here.
//! So there are as many heaps as there were threads at once, and the next thread uses the memory of an ended one.
//!
//! An abandoned heap's blocks are still freed by others. A thread that sends a batch to a home asks afterwards
//! whether it is an abandoned heap's, and if so, puts the blocks back to their chunks itself; the abandoned heap's
//! owner, while it is one, is the lock. They are a few pages, and live blocks may name them.
#![allow(unsafe_code)]
use super::thread_heap::{HeapFigures, ThreadHeap};
use crate::chunk::{CHUNK_BYTES, Chunk};
use crate::chunk_store::GiveBack;
use crate::outbox::AddressedBatch;
use crate::size_class::SizeClass;
use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, PoisonError};

struct AbandonedHeaps {
    first: *mut ThreadHeap,
    abandoned_count: usize,
    heap_count: usize,
    /// Memory for heaps to come.
    spare: *mut ThreadHeap,
    spare_count: usize,
}

// SAFETY: the heaps are reached under the lock only.
unsafe impl Send for AbandonedHeaps {}

static ABANDONED: Mutex<AbandonedHeaps> = Mutex::new(AbandonedHeaps {
    first: ptr::null_mut(),
    abandoned_count: 0,
    heap_count: 0,
    spare: ptr::null_mut(),
    spare_count: 0,
});

fn lock() -> MutexGuard<'static, AbandonedHeaps> {
    // Nothing under the lock panics half-way through a change.
    ABANDONED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AbandonedHeaps {
    /// An abandoned heap, or a new heap; the caller owns it. None when the system has no memory.
    fn take(&mut self) -> Option<NonNull<ThreadHeap>> {
        let Some(heap) = NonNull::new(self.first) else {
            return self.make();
        };
        // SAFETY: heaps live forever, and abandoned heaps' links are the lock's.
        unsafe {
            self.first = *heap.as_ref().next.get();
            heap.as_ref().abandoned.clear();
        }
        self.abandoned_count -= 1;
        Some(heap)
    }

    fn make(&mut self) -> Option<NonNull<ThreadHeap>> {
        if self.spare_count == 0 {
            let chunk = ManuallyDrop::new(Chunk::map().ok()?);
            self.spare = chunk.start().as_ptr().cast();
            self.spare_count = CHUNK_BYTES / size_of::<ThreadHeap>();
        }
        let heap = NonNull::new(self.spare)?;
        // SAFETY: `spare_count` heaps fit from `spare` on, in memory that is never given back, and
        // chunks are aligned to more than heaps.
        unsafe {
            ThreadHeap::init(heap);
            self.spare = self.spare.add(1);
        }
        self.spare_count -= 1;
        self.heap_count += 1;
        Some(heap)
    }

    /// Marks a heap as abandoned.
    ///
    /// # Safety
    /// The caller owns the heap, and stops doing so.
    unsafe fn put(&mut self, heap: NonNull<ThreadHeap>) {
        // SAFETY: heaps live forever, and abandoned heaps' links are the lock's.
        unsafe { *heap.as_ref().next.get() = self.first };
        self.first = heap.as_ptr();
        self.abandoned_count += 1;
        // SAFETY: the lock owns it now.
        unsafe {
            // Either this sees what was sent before, or its sender sees the abandoned heap.
            heap.as_ref().abandoned.set();
            settle_abandoned(heap);
        }
    }
}

/// Puts all blocks returned to an abandoned heap back to its chunks.
///
/// # Safety
/// The heap is abandoned, and the caller has the lock.
unsafe fn settle_abandoned(heap: NonNull<ThreadHeap>) {
    // SAFETY: an abandoned heap's owner is the lock.
    unsafe {
        let owned = ThreadHeap::owned(heap);
        owned.absorb(heap.as_ref().remote().take());
        owned.settle(GiveBack::Later);
    }
}

/// A heap for the calling thread. None when the system has no memory.
pub(super) fn adopt() -> Option<NonNull<ThreadHeap>> {
    lock().take()
}

/// Leaves a heap to the next thread.
///
/// # Safety
/// The caller owns the heap, has sent its batches, and stops using it.
pub(super) unsafe fn leave(heap: NonNull<ThreadHeap>) {
    // SAFETY: the caller's promise, passed on.
    unsafe { lock().put(heap) };
}

/// Returns a batch to its heap, and handles it there if the heap has no thread.
pub(super) fn deliver(batch: AddressedBatch) {
    let home = batch.home();
    batch.send();
    // SAFETY: batches of this module go to heaps, which live forever.
    let mark = &unsafe { ThreadHeap::of_home(home) }.abandoned;
    if mark.is_set_after_send() {
        let _guard = lock();
        if mark.is_set() {
            // SAFETY: abandoned heaps stay so while the lock is held.
            unsafe { settle_abandoned(home.cast()) };
        }
    }
}

/// One block of a class for a thread that has no heap any more: an abandoned heap lends it.
pub(super) fn lend(class: SizeClass) -> Option<NonNull<u8>> {
    let mut abandoned = lock();
    let heap = abandoned.take()?;
    // SAFETY: just taken, so ours until it is put back.
    unsafe {
        let owned = ThreadHeap::owned(heap);
        let block = owned
            .pop(class)
            .or_else(|| owned.pop_slow(class, ThreadHeap::home(heap)));
        abandoned.put(heap);
        block
    }
}

/// Gives whole chunks that are free in abandoned heaps to the store, and pages of others to the system;
/// returns how many bytes the latter were.
pub(super) fn trim_all() -> usize {
    let abandoned = lock();
    let mut page_bytes = 0;
    let mut next = abandoned.first;
    while let Some(heap) = NonNull::new(next) {
        // SAFETY: listed heaps are abandoned, and we have the lock.
        unsafe {
            settle_abandoned(heap);
            page_bytes += ThreadHeap::owned(heap).empty_pages();
            next = *heap.as_ref().next.get();
        }
    }
    page_bytes
}

/// The process's heaps.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct AbandonedFigures {
    pub(super) heap_count: usize,
    pub(super) abandoned_count: usize,
    pub(super) abandoned: HeapFigures,
}

/// The figures of all abandoned heaps.
pub(super) fn figures() -> AbandonedFigures {
    let abandoned = lock();
    let mut blocks = HeapFigures::default();
    let mut next = abandoned.first;
    while let Some(heap) = NonNull::new(next) {
        // SAFETY: as in `settle_all`.
        unsafe {
            blocks.add(ThreadHeap::owned(heap).figures());
            next = *heap.as_ref().next.get();
        }
    }
    AbandonedFigures {
        heap_count: abandoned.heap_count,
        abandoned_count: abandoned.abandoned_count,
        abandoned: blocks,
    }
}

/// The lock across a fork, as in `chunk_store`.
struct ForkGuard(UnsafeCell<Option<MutexGuard<'static, AbandonedHeaps>>>);

// SAFETY: written only by the thread that holds the lock.
unsafe impl Sync for ForkGuard {}

static FORK_GUARD: ForkGuard = ForkGuard(UnsafeCell::new(None));

/// Call before a fork, on the thread that forks, and before the store's lock is taken.
pub(super) fn hold_for_fork() {
    let guard = lock();
    // SAFETY: this thread holds the lock, so no other is here or in `release_after_fork`.
    unsafe { *FORK_GUARD.0.get() = Some(guard) };
}

/// Call after a fork, in the parent and in the child, on the thread that forked.
pub(super) fn release_after_fork() {
    // SAFETY: as above: `hold_for_fork` on this thread came before.
    drop(unsafe { (*FORK_GUARD.0.get()).take() });
}

#[cfg(test)]
#[path = "tests/orphanage.rs"]
mod tests;
