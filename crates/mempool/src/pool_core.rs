//! State shared by a pool's handles and its lent blocks, and when it is freed.
//!
//! Every lent block names its core. Freeing it compares the thread with the core's owner: the same
//! goes to the owner's part, another through `outbox` to `remote`.
//!
//! A core lives until its last handle is gone and its last block is back, whichever comes later and on whatever thread:
//! `remote` keeps that count. If calls must not take the fast path (pools are off, or objects are too large), there are
//! no ready blocks and `quick_owner` matches no thread.
#![allow(unsafe_code)]
use crate::PoolMode;
use crate::batch::{LINE_BYTES, ReturnedBlocks};
use crate::heap::DirectMemory;
use crate::local_pool;
use crate::local_pool::NOBODY;
use crate::remote_free::RemoteFrees;
use std::cell::{Cell, UnsafeCell};
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// The part of a pool that its owner's thread alone touches.
pub(crate) trait OwnerPart {
    /// Keeps blocks of the classes that other threads freed until they are wanted. Nothing is held.
    fn hold(&mut self, returned: ReturnedBlocks);
    /// Whether there are such blocks.
    fn is_holding(&self) -> bool;
    /// Makes all held blocks ready.
    fn absorb_held(&mut self);
    /// Notes that blocks straight from `direct` were freed, on this thread or, by the argument, on others.
    fn note_direct_freed(&mut self, count: usize, bytes: usize, freed_by: FreedBy);
    /// Gives all memory without live blocks back; returns how many blocks are lent.
    fn shut(&mut self) -> usize;
    /// Whether frees on the owner's thread may take the fast path, in a pool of this mode.
    fn is_quick(&self, mode: PoolMode) -> bool;

    /// Takes home what other threads freed, unless blocks of an earlier time are still held: more of
    /// them are wanted when those have gone out again.
    #[inline]
    fn drain(&mut self, remote: &RemoteFrees) {
        let (count, bytes) = remote.take_direct();
        if count > 0 {
            self.note_direct_freed(count, bytes, FreedBy::Others);
        }
        if !self.is_holding() {
            self.hold(remote.take());
        }
    }

    /// Takes home all that other threads freed until now, and makes it ready.
    fn settle(&mut self, remote: &RemoteFrees) {
        self.absorb_held();
        self.drain(remote);
        self.absorb_held();
    }
}

/// Pools send a block with what was asked for as its tag: from this on it is longer than a line.
const LONG_TAG: u16 = LINE_BYTES as u16 + 1;

/// On whose thread a block was freed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FreedBy {
    Owner,
    Others,
}

/// A pool. Invariant: `local` and `handle_count` are used only by the thread numbered `owner`, or, once `remote`
/// permits it, by the one that frees the pool.
#[repr(C)]
pub(crate) struct PoolCore<L> {
    /// The owner's number where its frees may take the fast path, else `NOBODY`. Only the owner's
    /// own view counts, so no ordering is needed: no other thread ever finds its own number here.
    quick_owner: AtomicU64,
    /// Never changes but to `NOBODY`, when the last handle is gone.
    owner: AtomicU64,
    pub(crate) mode: PoolMode,
    pub(crate) name: &'static str,
    /// Where blocks outside the classes come from.
    pub(crate) direct: DirectMemory,
    owned: OwnLines<Owned<L>>,
    remote: RemoteFrees,
}

/// The fields that the owner writes on every allocation. On separate cache lines: a thread that frees reads the numbers
/// above, and must not wait for the owner's line to do it.
#[repr(align(128))]
struct OwnLines<T>(T);

struct Owned<L> {
    local: UnsafeCell<L>,
    handle_count: Cell<usize>,
}

impl<L> PoolCore<L> {
    /// Whether the calling thread may free into `local` without further checks.
    #[inline(always)]
    pub(crate) fn is_quick_here(&self) -> bool {
        local_pool::is_current(self.quick_owner.load(Ordering::Relaxed))
    }

    /// Whether the calling thread is the owner of a pool that still has a handle.
    pub(crate) fn is_owned_here(&self) -> bool {
        local_pool::is_current(self.owner.load(Ordering::Relaxed))
    }

    /// The owner's part.
    ///
    /// # Safety
    /// The calling thread is the owner, and no other reference from here lives: callers hold it for
    /// one call that runs no code of the pool's user.
    #[inline(always)]
    #[expect(
        clippy::mut_from_ref,
        reason = "the owner's thread is alone with it; see Safety"
    )]
    pub(crate) unsafe fn local(&self) -> &mut L {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.owned.0.local.get() }
    }

    /// Where other threads send blocks: an address that may be used for all of the core.
    #[inline(always)]
    pub(crate) fn home(this: NonNull<Self>) -> NonNull<RemoteFrees> {
        // SAFETY: callers hold a handle or a block, so the core lives; this only computes an
        // address inside it.
        unsafe { NonNull::new_unchecked(&raw mut (*this.as_ptr()).remote) }
    }
}

impl<L: OwnerPart> PoolCore<L> {
    /// Frees a block straight from `direct`, on whatever thread, and has it counted.
    ///
    /// # Safety
    /// `direct` of the pool at `this` gave `start` with the same numbers; its holder is gone, and it
    /// is not counted as back yet, so the pool lives. On the owner's thread nothing holds a
    /// reference to `local`.
    pub(crate) unsafe fn free_direct(
        this: NonNull<Self>,
        start: NonNull<u8>,
        size_bytes: usize,
        align_bytes: usize,
    ) {
        // SAFETY: the caller's promise. Away from the owner's thread the pool may be gone after the
        // note, and is not used after it.
        unsafe {
            let core = this.as_ref();
            let freed = core.direct.free(start, size_bytes, align_bytes);
            if let Some(freed_bytes) = freed.bytes {
                if core.is_owned_here() {
                    core.local()
                        .note_direct_freed(1, freed_bytes, FreedBy::Owner);
                } else {
                    RemoteFrees::note_direct(Self::home(this), freed_bytes as u32);
                }
            }
            freed.report();
        }
    }
}

/// A counted handle of a core. Not `Send`: it stays on the owner's thread.
pub(crate) struct CoreHandle<L: OwnerPart> {
    core: NonNull<PoolCore<L>>,
}

impl<L: OwnerPart> CoreHandle<L> {
    /// A pool of the calling thread. One malloc.
    pub(crate) fn new(name: &'static str, mode: PoolMode, local: L) -> Self {
        let owner = local_pool::current();
        let quick_owner = if local.is_quick(mode) { owner } else { NOBODY };
        let core = Box::new(PoolCore {
            quick_owner: AtomicU64::new(quick_owner),
            owner: AtomicU64::new(owner),
            mode,
            name,
            direct: DirectMemory::new(name, mode),
            owned: OwnLines(Owned {
                local: UnsafeCell::new(local),
                handle_count: Cell::new(1),
            }),
            remote: RemoteFrees::new(free_pool::<L>, LONG_TAG),
        });
        Self {
            core: NonNull::from(Box::leak(core)),
        }
    }

    /// The core's address, which lent blocks keep.
    #[inline(always)]
    pub(crate) fn core(&self) -> NonNull<PoolCore<L>> {
        self.core
    }

    /// The core.
    #[inline(always)]
    pub(crate) fn get(&self) -> &PoolCore<L> {
        // SAFETY: the core lives at least as long as any handle, and no reference to all of it is
        // ever mutable.
        unsafe { self.core.as_ref() }
    }

    /// The owner's part. No caller holds the result across another call of this or into code that could drop a block.
    #[inline(always)]
    #[expect(
        clippy::mut_from_ref,
        reason = "handles stay on the owner's thread, which is alone with it"
    )]
    pub(crate) fn local(&self) -> &mut L {
        // SAFETY: a handle is neither Send nor Sync, so this is the owner's thread; the users in
        // this crate hold the reference for one call each.
        unsafe { self.get().local() }
    }

    /// Takes home the blocks other threads freed, as far as they are wanted soon.
    #[inline]
    pub(crate) fn drain(&self) {
        self.local().drain(&self.get().remote);
    }

    /// Takes home all blocks other threads freed, and counts them.
    pub(crate) fn settle(&self) {
        self.local().settle(&self.get().remote);
    }
}

impl<L: OwnerPart> Clone for CoreHandle<L> {
    fn clone(&self) -> Self {
        let handle_count = &self.get().owned.0.handle_count;
        handle_count.set(handle_count.get() + 1);
        Self { core: self.core }
    }
}

impl<L: OwnerPart> Drop for CoreHandle<L> {
    fn drop(&mut self) {
        let held = &self.get().owned.0.handle_count;
        let handle_count = held.get() - 1;
        held.set(handle_count);
        if handle_count == 0 {
            close(self.core);
        }
    }
}

/// The last handle is gone: frees the pool, or leaves it to the blocks that are still away.
#[cold]
fn close<L: OwnerPart>(core: NonNull<PoolCore<L>>) {
    let away_count = {
        // SAFETY: a pool with a handle lives; handles never leave the owner's thread, so this is
        // it; and nothing in it holds a reference to `local` while a handle is dropped.
        let (core, local) = unsafe { (core.as_ref(), core.as_ref().local()) };
        local.settle(&core.remote);
        core.quick_owner.store(NOBODY, Ordering::Relaxed);
        core.owner.store(NOBODY, Ordering::Relaxed);
        local.hold(core.remote.close());
        local.absorb_held();
        local.shut()
    };
    // SAFETY: the pool lives until `leave` gives up the owner's share, and is not used after it.
    unsafe { RemoteFrees::leave(PoolCore::home(core), away_count) };
}

/// Frees a pool that is not reachable any more.
///
/// # Safety
/// `remote` is the part of a core made by `CoreHandle::<L>::new`, as an address that may be used for all of it, and has
/// determined that this caller is the last.
unsafe fn free_pool<L: OwnerPart>(remote: NonNull<RemoteFrees>) {
    // SAFETY: by the caller's promise the core lies around its part and came from `Box::leak`.
    unsafe {
        let core = remote.byte_sub(offset_of!(PoolCore<L>, remote));
        drop(Box::from_raw(core.cast::<PoolCore<L>>().as_ptr()));
    }
}
