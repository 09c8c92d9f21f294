//! How blocks come home from other threads, and how the last one buries a pool whose owner is gone.
//!
//! On the path: a block dropped away from home is pushed here; the owner takes the whole list once
//! per tick. A block straight from malloc is freed where it is dropped, as malloc's own users do,
//! and only its figures are left here.
//!
//! While the owner lives, `outstanding` is `OWNER_SHARE` minus what others note in it, so nobody
//! can bring it to 0. `close` replaces the share by the number of blocks still away; from then on
//! each of them takes 1, and the one that reaches 0 frees the pool. This is one counter for two
//! lives, so that the owner's own frees never touch an atomic.
//! Absent on purpose: popping single blocks, and with it the ABA problem. The list is only pushed
//! to, or taken whole.
#![allow(unsafe_code)]
use crate::size_class::SizeClass;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// More than there can ever be blocks, far from wrapping around.
const OWNER_SHARE: usize = 1 << (usize::BITS - 2);

/// In place of the list's head: nobody will ever take the list again.
const CLOSED: *mut RemoteBlock = ptr::without_provenance_mut(1);

/// What a block waiting here holds in its first bytes.
struct RemoteBlock {
    next: *mut RemoteBlock,
    asked_bytes: u32,
    class: SizeClass,
}

/// The part of a pool that every thread may touch. On cache lines of its own: other threads'
/// writes must not slow the owner down.
#[repr(align(128))]
pub(crate) struct RemoteFrees {
    newest: AtomicPtr<RemoteBlock>,
    direct_bytes: AtomicU64,
    outstanding: AtomicUsize,
}

/// Whether the pool must now be freed by the caller, who was the last to know it.
#[must_use]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Last {
    Yes,
    No,
}

impl RemoteFrees {
    pub(crate) const fn new() -> Self {
        Self {
            newest: AtomicPtr::new(ptr::null_mut()),
            direct_bytes: AtomicU64::new(0),
            outstanding: AtomicUsize::new(OWNER_SHARE),
        }
    }

    /// Sends a block of a class home: one successful compare-and-swap. After the owner is gone the
    /// block is only counted; its memory goes with the pool's.
    ///
    /// # Safety
    /// `this` is the remote frees of the pool that lent the block from `class`; nobody uses the
    /// block any more. Unless the answer is `Last::Yes`, the pool may be gone before this returns,
    /// which is why `this` is no reference.
    pub(crate) unsafe fn push(
        this: NonNull<Self>,
        block: NonNull<u8>,
        asked_bytes: u32,
        class: SizeClass,
    ) -> Last {
        let node = block.cast::<RemoteBlock>().as_ptr();
        // SAFETY: the block is not back yet, so the pool lives; the reference is of the atomic
        // alone and ends with the operation that brings the block back.
        let newest = unsafe { &(*this.as_ptr()).newest };
        let mut next = newest.load(Ordering::Relaxed);
        loop {
            if next == CLOSED {
                // SAFETY: as above; the block is not on the list.
                return unsafe { Self::retire(this) };
            }
            // SAFETY: the block is unused, writable, 16-aligned and at least 64 bytes.
            unsafe {
                node.write(RemoteBlock {
                    next,
                    asked_bytes,
                    class,
                });
            };
            // Release: the owner, taking the list, sees the node and all its user's last accesses.
            let pushed =
                newest.compare_exchange_weak(next, node, Ordering::Release, Ordering::Relaxed);
            match pushed {
                Ok(_) => return Last::No,
                Err(seen) => next = seen,
            }
        }
    }

    /// Notes that a block straight from malloc was freed by a thread other than the owner.
    ///
    /// # Safety
    /// As for [`push`](Self::push), but for the block's memory, which is free already.
    pub(crate) unsafe fn note_direct(this: NonNull<Self>, asked_bytes: u32) -> Last {
        // SAFETY: the block is not counted as back yet, so the pool lives.
        unsafe {
            (*this.as_ptr())
                .direct_bytes
                .fetch_add(u64::from(asked_bytes), Ordering::Relaxed);
            Self::retire(this)
        }
    }

    /// One block less away from home. Acquire and release: the last one frees the pool after all
    /// others are done with it.
    ///
    /// # Safety
    /// Called for a block that is not counted as back yet, once.
    unsafe fn retire(this: NonNull<Self>) -> Last {
        // SAFETY: the pool lives until this very operation has counted the block as back.
        match unsafe { (*this.as_ptr()).outstanding.fetch_sub(1, Ordering::AcqRel) } {
            1 => Last::Yes,
            _ => Last::No,
        }
    }

    /// Owner only: the blocks that came home since the last call. One load when there are none.
    #[inline]
    pub(crate) fn take(&self) -> ReturnedBlocks {
        if self.newest.load(Ordering::Relaxed).is_null() {
            return ReturnedBlocks {
                next: ptr::null_mut(),
            };
        }
        ReturnedBlocks {
            next: self.newest.swap(ptr::null_mut(), Ordering::Acquire),
        }
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

    /// Owner only, once: nobody will take the list again; these are its last blocks.
    pub(crate) fn close(&self) -> ReturnedBlocks {
        ReturnedBlocks {
            next: self.newest.swap(CLOSED, Ordering::Acquire),
        }
    }

    /// Owner only, once, after `close`: leaves the pool to its `away_count` blocks that are neither
    /// home nor taken account of. Unless the answer is `Last::Yes`, the pool may be gone before
    /// this returns.
    ///
    /// # Safety
    /// `this` is the remote frees of a living pool whose owner calls.
    pub(crate) unsafe fn leave(this: NonNull<Self>, away_count: usize) -> Last {
        let change = away_count.wrapping_sub(OWNER_SHARE);
        // SAFETY: the owner's share keeps the pool alive until this operation takes it away.
        let outstanding = unsafe {
            (*this.as_ptr())
                .outstanding
                .fetch_add(change, Ordering::AcqRel)
        };
        match outstanding.wrapping_add(change) {
            0 => Last::Yes,
            _ => Last::No,
        }
    }
}

/// Blocks taken off the list, newest first. Those not looked at are lost to the pool, not unsafe.
pub(crate) struct ReturnedBlocks {
    next: *mut RemoteBlock,
}

impl Iterator for ReturnedBlocks {
    type Item = (NonNull<u8>, u32, SizeClass);

    fn next(&mut self) -> Option<Self::Item> {
        let node = NonNull::new(self.next)?;
        // SAFETY: a listed block begins with the node `push` wrote, whose release store we acquired
        // with the list's head; it is off the list and in nobody else's hands.
        let RemoteBlock {
            next,
            asked_bytes,
            class,
        } = unsafe { node.read() };
        self.next = next;
        Some((node.cast(), asked_bytes, class))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: whoever comes last, and only that one, is told so, whether the owner leaves before
    /// the blocks or after them.
    #[test]
    fn exactly_the_last_one_is_told() {
        let pool = RemoteFrees::new();
        let this = NonNull::from(&pool);
        // SAFETY: `pool` outlives its use; the owner's calls and the blocks' come from one thread.
        let (note, leave) = unsafe {
            (
                |bytes| RemoteFrees::note_direct(this, bytes),
                |away_count| RemoteFrees::leave(this, away_count),
            )
        };
        assert_eq!((note(5), note(7)), (Last::No, Last::No));
        assert_eq!(pool.take_direct(), (2, 12));
        assert_eq!(pool.take_direct(), (0, 0));
        assert_eq!(note(9), Last::No);
        assert!(pool.close().next().is_none());
        assert_eq!(leave(3), Last::No);
        assert_eq!((note(1), note(1)), (Last::No, Last::Yes));
    }

    /// Goal: an owner who comes last, after all blocks or without any, is told so.
    #[test]
    fn owner_can_be_the_last() {
        for away_count in 0..3 {
            let pool = RemoteFrees::new();
            let this = NonNull::from(&pool);
            for _ in 0..away_count {
                // SAFETY: `pool` outlives its use.
                assert_eq!(unsafe { RemoteFrees::note_direct(this, 1) }, Last::No);
            }
            assert!(pool.close().next().is_none());
            // SAFETY: as above.
            assert_eq!(unsafe { RemoteFrees::leave(this, away_count) }, Last::Yes);
        }
    }
}
