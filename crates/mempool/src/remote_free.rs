//! Returning blocks from other threads, and freeing a pool without owner with the last block.
//!
//! `outbox` pushes batches of blocks that were dropped away from home; the owner takes all of them
//! once per tick. A block straight from malloc is freed where it is dropped, as malloc's own users
//! do, and only its figures are left here.
//!
//! While the owner lives, `outstanding` is `OWNER_SHARE` minus the returns noted by others, so it cannot reach 0.
//! `close` replaces the list by a mark; from then on each batch takes its number of blocks from `outstanding`. `leave`
//! replaces the share by the number of blocks still lent, and the one that reaches 0, be it a batch or the owner, frees
//! the pool. One counter serves both phases, so that the owner's own frees never touch an atomic. The list is only
//! pushed to, or taken whole.
#![allow(unsafe_code)]
use crate::batch::{Batch, Container, ReturnedBlocks};
use crate::sync::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::fmt;
use std::ptr::{self, NonNull};

/// More than there can ever be blocks, far from wrapping around.
const OWNER_SHARE: usize = 1 << (usize::BITS - 2);

/// Instead of the list's head: the list will not be taken again.
const CLOSED: *mut Container = ptr::without_provenance_mut(1);

/// The part of a pool that every thread may touch: the home of its blocks. On cache lines of its
/// own, because other threads' writes must not slow the owner down.
#[repr(align(128))]
pub(crate) struct RemoteFrees {
    newest: AtomicPtr<Container>,
    direct_bytes: AtomicU64,
    outstanding: AtomicUsize,
    long_tag: u16,
    free_pool: unsafe fn(NonNull<RemoteFrees>),
}

impl RemoteFrees {
    /// `free_pool` frees the whole pool. It is called once, by the last thread that uses the pool, on that thread,
    /// after all accesses of all others. Blocks sent with `long_tag` or a higher tag are longer than a cache line.
    pub(crate) fn new(free_pool: unsafe fn(NonNull<RemoteFrees>), long_tag: u16) -> Self {
        Self {
            newest: AtomicPtr::new(ptr::null_mut()),
            direct_bytes: AtomicU64::new(0),
            outstanding: AtomicUsize::new(OWNER_SHARE),
            long_tag,
            free_pool,
        }
    }

    /// Sends a batch home: one successful compare-and-swap. After the owner is gone the blocks are
    /// only counted; their memory goes with the pool's.
    ///
    /// # Safety
    /// `this` is the remote frees of the pool that lent the batch's blocks, and may be used for all of that pool; the
    /// blocks are not used any more. The pool may be gone when this returns, which is why `this` is no reference.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the sender has no batch any more"
    )]
    pub(crate) unsafe fn push(this: NonNull<Self>, batch: Batch) {
        // SAFETY: the blocks are not back yet, so the pool lives; the reference is of the atomic
        // alone and ends with the operation that brings the blocks back.
        let newest = unsafe { &(*this.as_ptr()).newest };
        // A guess instead of a load: mostly the owner has taken what was there, and loading would
        // fetch the line twice, first to read and then to write.
        let mut below = ptr::null_mut();
        loop {
            batch.put_onto(below);
            // Release: the owner, taking the list, sees the containers and all last accesses of
            // the blocks' users.
            let pushed = newest.compare_exchange_weak(
                below,
                batch.first(),
                Ordering::Release,
                Ordering::Relaxed,
            );
            match pushed {
                Ok(_) => return,
                // SAFETY: as above; the batch is not on the list.
                Err(CLOSED) => return unsafe { Self::retire(this, batch.block_count()) },
                Err(seen) => below = seen,
            }
        }
    }

    /// Notes that a block straight from malloc was freed by a thread other than the owner.
    ///
    /// # Safety
    /// As for [`push`](Self::push), but for the block's memory, which is free already.
    pub(crate) unsafe fn note_direct(this: NonNull<Self>, asked_bytes: u32) {
        // SAFETY: the block is not counted as back yet, so the pool lives.
        unsafe {
            (*this.as_ptr())
                .direct_bytes
                .fetch_add(u64::from(asked_bytes), Ordering::Relaxed);
            Self::retire(this, 1);
        }
    }

    /// So many blocks less away from home. Acquire and release: the last one frees the pool after
    /// all others are done with it.
    ///
    /// # Safety
    /// Called for blocks that are not counted as back yet, once for each.
    unsafe fn retire(this: NonNull<Self>, block_count: usize) {
        // SAFETY: the pool lives until this very operation has counted the blocks as back, and
        // beyond it for the last one only.
        unsafe {
            let outstanding = (*this.as_ptr())
                .outstanding
                .fetch_sub(block_count, Ordering::AcqRel);
            debug_assert!(outstanding >= block_count, "a block came back twice");
            if outstanding == block_count {
                Self::free_pool(this);
            }
        }
    }

    /// # Safety
    /// Called once, by the last user of the pool.
    #[cold]
    unsafe fn free_pool(this: NonNull<Self>) {
        // SAFETY: the pool lives until `free_pool` frees it, which its maker promised it does.
        unsafe {
            let free_pool = (*this.as_ptr()).free_pool;
            free_pool(this);
        }
    }

    /// Owner only: the blocks returned since the last call. One load when there are none.
    #[inline]
    pub(crate) fn take(&self) -> ReturnedBlocks {
        if self.newest.load(Ordering::Relaxed).is_null() {
            return ReturnedBlocks::NONE;
        }
        // SAFETY: whole batches are on the list, whose release stores this acquires; it is exclusive from now on.
        unsafe { self.returned(ptr::null_mut()) }
    }

    /// # Safety
    /// The list consists of whole batches, and the value that replaces it determines whether it is taken again: the
    /// caller is the owner.
    unsafe fn returned(&self, in_place: *mut Container) -> ReturnedBlocks {
        let list = self.newest.swap(in_place, Ordering::Acquire);
        // SAFETY: the caller's promise; the swap acquires what the senders released.
        unsafe { ReturnedBlocks::new(list, self.long_tag) }
    }

    /// Owner only: how many malloc'ed blocks others freed since the last call, and their bytes.
    #[inline]
    pub(crate) fn take_direct(&self) -> (usize, usize) {
        let noted = OWNER_SHARE - self.outstanding.load(Ordering::Acquire);
        if noted == 0 {
            return (0, 0);
        }
        self.outstanding.fetch_add(noted, Ordering::Relaxed);
        // Bytes are noted before the count, so these are at least the counted blocks' bytes; a
        // block noted in between is counted next time.
        (noted, self.direct_bytes.swap(0, Ordering::Relaxed) as usize)
    }

    /// Owner only, once: the list is not taken again; these are its last blocks.
    pub(crate) fn close(&self) -> ReturnedBlocks {
        // SAFETY: as in `take`.
        unsafe { self.returned(CLOSED) }
    }

    /// Owner only, once, after `close`: leaves the pool to its `away_count` blocks that are neither
    /// home nor taken account of.
    ///
    /// # Safety
    /// `this` is the remote frees of a living pool whose owner calls, and may be used for all of
    /// that pool, which may be gone when this returns.
    pub(crate) unsafe fn leave(this: NonNull<Self>, away_count: usize) {
        let change = away_count.wrapping_sub(OWNER_SHARE);
        // SAFETY: the owner's share keeps the pool alive until this operation takes it away, and
        // beyond it only when no block is away.
        unsafe {
            let outstanding = (*this.as_ptr())
                .outstanding
                .fetch_add(change, Ordering::AcqRel);
            if outstanding.wrapping_add(change) == 0 {
                Self::free_pool(this);
            }
        }
    }
}

impl fmt::Debug for RemoteFrees {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RemoteFrees")
            .field("newest", &self.newest)
            .field("outstanding", &self.outstanding)
            .finish_non_exhaustive()
    }
}

#[cfg(all(loom, test))]
pub(crate) mod models;

#[cfg(test)]
#[path = "tests/remote_free.rs"]
mod tests;
