//! Blocks of other threads that a thread has freed and not returned yet.
//!
//! A block dropped away from home is added to the batch of its home here, at the price of a store;
//! a full batch goes home by `remote_free`, at the price of one atomic operation.
//!
//! A thread that frees and then sleeps keeps its gathered blocks, at most 64 blocks or 64 KiB for each of a few homes.
//! So it calls [`flush_remote_frees`] before it sleeps; a thread that ends does so automatically. There is no timer:
//! the freeing thread knows when it is done, and reading the clock would cost more than the free.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ptr;
use std::ptr::NonNull;

use crate::batch::{Batch, GrowingBatch, SMALL_BYTES_MAX, Slots};
use crate::remote_free::RemoteFrees;
use crate::sync::{AtomicBool, Ordering, fence, thread_local};

/// Batches under way at once. A thread mostly frees for one or two others; with more homes than
/// this, batches leave before they are full.
const HOMES_MAX: usize = 4;

/// A thread's batches under way, one for each of the last homes it freed blocks of. Sent when dropped. Invariant:
/// without a `quick_home` there are no `quick_slots`; else they are of the batch of that home, which is the `recent`
/// entry's, and it has not counted the blocks written to them yet.
pub(crate) struct Outbox {
    quick_home: *mut RemoteFrees,
    quick_slots: Slots,
    entries: [Entry; HOMES_MAX],
    /// Which entry the last block went to: where the next one most likely goes.
    recent: usize,
    /// Which entry must go when another home needs one: each in turn.
    leaving: usize,
}

/// Invariant: without a `home` the batch is empty.
struct Entry {
    home: *mut RemoteFrees,
    batch: GrowingBatch,
}

impl Entry {
    const fn new() -> Self {
        Self {
            home: ptr::null_mut(),
            batch: GrowingBatch::new(),
        }
    }

    /// The batch of the entry, if any. Without one it has no home: a home that has all its blocks back may be gone.
    fn take(&mut self) -> Option<AddressedBatch> {
        let home = NonNull::new(std::mem::replace(&mut self.home, ptr::null_mut()))?;
        let batch = self.batch.take()?;
        Some(AddressedBatch { home, batch })
    }
}

/// A batch and where it belongs. It comes out of the outbox before it is sent, because its home may
/// be freed by that, which may free blocks again.
#[must_use = "blocks that are not sent are lost"]
pub(crate) struct AddressedBatch {
    home: NonNull<RemoteFrees>,
    batch: Batch,
}

impl AddressedBatch {
    /// A batch of a single block, for a thread that has no outbox.
    ///
    /// # Safety
    /// As for [`Outbox::add`].
    pub(crate) unsafe fn of_one(home: NonNull<RemoteFrees>, block: NonNull<u8>, tag: u16) -> Self {
        // SAFETY: the caller's promise, passed on.
        let batch = unsafe { Batch::of_one(block, tag) };
        Self { home, batch }
    }

    /// Where it belongs.
    pub(crate) fn home(&self) -> NonNull<RemoteFrees> {
        self.home
    }

    /// Hands the batch over.
    pub(crate) fn send(self) {
        // SAFETY: `Outbox::add` was promised that the blocks are this home's and not in use; they
        // have been in the outbox since.
        unsafe { RemoteFrees::push(self.home, self.batch) };
    }
}

impl Outbox {
    /// Without blocks.
    pub(crate) const fn new() -> Self {
        Self {
            quick_home: ptr::null_mut(),
            quick_slots: Slots::NONE,
            entries: [const { Entry::new() }; HOMES_MAX],
            recent: 0,
            leaving: 0,
        }
    }

    /// Adds a freed block to its home's batch. The caller sends the returned batch, after the outbox's borrow has
    /// ended: this batch, when it is full, or another one that made room.
    ///
    /// # Safety
    /// The block was lent by the pool whose remote frees `home` is, and it is not used any more. It is 8-aligned and at
    /// least `block_bytes`, which is at least 16.
    #[inline(always)]
    pub(crate) unsafe fn add(
        &mut self,
        home: NonNull<RemoteFrees>,
        block: NonNull<u8>,
        block_bytes: usize,
        tag: u16,
    ) -> Option<AddressedBatch> {
        if self.quick_home == home.as_ptr()
            && !self.quick_slots.is_empty()
            && block_bytes <= SMALL_BYTES_MAX
        {
            // SAFETY: the caller's promise; by the invariant the slots are of this home's batch.
            unsafe { self.quick_slots.write(block, tag) };
            return None;
        }
        // SAFETY: the caller's promise, passed on.
        unsafe { self.add_slow(home, block, block_bytes, tag) }
    }

    /// # Safety
    /// As for `add`.
    #[inline(never)]
    unsafe fn add_slow(
        &mut self,
        home: NonNull<RemoteFrees>,
        block: NonNull<u8>,
        block_bytes: usize,
        tag: u16,
    ) -> Option<AddressedBatch> {
        self.settle();
        let mut batch = None;
        if self.entries[self.recent % HOMES_MAX].home != home.as_ptr() {
            batch = self.turn_to(home);
        }
        let entry = &mut self.entries[self.recent % HOMES_MAX];
        // SAFETY: the caller's promise, passed on.
        let is_full = unsafe { entry.batch.add(block, block_bytes, tag) };
        // A huge block can fill a batch that has just got its place from another: it then waits for
        // the next one.
        if is_full && batch.is_none() {
            return entry.take();
        }
        self.quick_home = home.as_ptr();
        self.quick_slots = entry.batch.slots();
        batch
    }

    /// Adds the blocks written through its slots to the recent batch.
    fn settle(&mut self) {
        if !self.quick_home.is_null() {
            self.quick_home = ptr::null_mut();
            let slots = std::mem::replace(&mut self.quick_slots, Slots::NONE);
            // SAFETY: by the invariant the slots are of this batch, which has not changed since.
            unsafe {
                self.entries[self.recent % HOMES_MAX]
                    .batch
                    .note_written(&slots);
            };
        }
    }

    /// Makes `recent` the entry of this home; returns what had to leave for it.
    #[inline(never)]
    fn turn_to(&mut self, home: NonNull<RemoteFrees>) -> Option<AddressedBatch> {
        let find = |wanted: *mut RemoteFrees| self.entries.iter().position(|e| e.home == wanted);
        if let Some(index) = find(home.as_ptr()) {
            self.recent = index;
            return None;
        }
        let index = find(ptr::null_mut()).unwrap_or_else(|| {
            self.leaving = (self.leaving + 1) % HOMES_MAX;
            self.leaving
        });
        self.recent = index;
        let batch = self.entries[index].take();
        self.entries[index].home = home.as_ptr();
        batch
    }

    /// One of the batches, whichever. To be sent after the outbox's borrow has ended.
    pub(crate) fn take_any(&mut self) -> Option<AddressedBatch> {
        self.settle();
        self.entries.iter_mut().find_map(Entry::take)
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        while let Some(batch) = self.take_any() {
            batch.send();
        }
    }
}

thread_local!(static OUTBOX: UnsafeCell<Outbox> = const { UnsafeCell::new(Outbox::new()) });

/// Runs `work` on the calling thread's outbox; returns `None` once that has been dropped.
#[inline]
fn with_outbox<R>(work: impl FnOnce(&mut Outbox) -> R) -> Option<R> {
    OUTBOX
        // SAFETY: private to this file, whose two users pass in a call of `add` and of `take_any`: neither calls back
        // here, nor runs foreign code.
        .try_with(|outbox| work(unsafe { &mut *outbox.get() }))
        .ok()
}

/// Adds a freed block to the calling thread's next batch for its home; sends it alone when the thread has reached its
/// end and has no batches any more.
///
/// # Safety
/// As for [`Outbox::add`]. `home` may be gone when this returns.
#[inline]
pub(crate) unsafe fn free_away(
    home: NonNull<RemoteFrees>,
    block: NonNull<u8>,
    block_bytes: usize,
    tag: u16,
) {
    // SAFETY: the caller's promise, passed on.
    match with_outbox(|outbox| unsafe { outbox.add(home, block, block_bytes, tag) }) {
        Some(None) => {}
        Some(Some(batch)) => batch.send(),
        // SAFETY: as above; `add` has not run.
        None => unsafe { RemoteFrees::push(home, Batch::of_one(block, tag)) },
    }
}

/// Sends home what the calling thread has freed of other threads' blocks.
///
/// Such blocks travel in batches, and one that is not full waits. Call this once per tick, or before sleeping: until
/// then the blocks count as lent, and their pool may run dry while they lie here (at most 64 blocks or 64 KiB for each
/// of four pools). A thread that ends does it automatically.
///
/// ```
/// use millpond_mempool::{BlockPool, PoolMode, flush_remote_frees};
/// use std::sync::mpsc;
/// let pool = BlockPool::new("bodies", PoolMode::On);
/// let (sender, receiver) = mpsc::channel();
/// let (told, tell) = mpsc::channel();
/// std::thread::spawn(move || {
///     for block in receiver {
///         drop(block);
///         flush_remote_frees();
///         told.send(()).unwrap();
///     }
/// });
/// sender.send(pool.allocate(1000)?).unwrap();
/// tell.recv().unwrap();
/// pool.drain_remote();
/// assert_eq!(pool.stats().live_objects, 0);
/// # Ok::<(), millpond_mempool::PoolError>(())
/// ```
pub fn flush_remote_frees() {
    while let Some(Some(batch)) = with_outbox(Outbox::take_any) {
        batch.send();
    }
}

// Whether a home has lost its owner: the protocol between the leaving owner and the senders.
//
// ```text
//   the one that leaves            one that sends
//   mark                           push
//   ---- fence ----                ---- fence ----
//   take what came home            marked? take the lock, then what came home
// ```
// Of the two fences one is first in the order of all. If it is the left one, the sender finds the mark; if it is the
// right one, the push is found by the thread that leaves. A batch is never left unhandled. The lock is not here: it
// belongs to the abandoned heaps, and its holder owns all of them.

/// The mark at a home.
pub(crate) struct AbandonedMark(AtomicBool);

impl AbandonedMark {
    /// Of a home with an owner.
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// With the lock: the owner leaves. The senders handle blocks returned from here on; the caller takes earlier ones
    /// after this.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// With the lock: there is an owner again, which takes returned blocks.
    pub(crate) fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Whether the thread that has just returned blocks has to handle them, if that is still so under the lock.
    pub(crate) fn is_set_after_send(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_set()
    }

    /// Whether the home is abandoned. Certain with the lock only.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(all(loom, test))]
mod models {
    use crate::outbox::AbandonedMark;
    use crate::remote_free::models::Handle;
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    /// A home, its mark and the lock, as the abandoned heaps have them.
    struct AbandonedHeaps {
        home: Handle,
        mark: AbandonedMark,
        lock: Mutex<()>,
    }

    // SAFETY: as for `Handle`: all threads of a model are coroutines of one.
    #[expect(unsafe_code, reason = "loom's threads want to be sent what they share")]
    unsafe impl Sync for AbandonedHeaps {}

    impl AbandonedHeaps {
        fn new() -> Arc<Self> {
            Arc::new(Self {
                home: Handle::new(),
                mark: AbandonedMark::new(),
                lock: Mutex::new(()),
            })
        }

        /// As `orphanage::leave`.
        fn leave(&self) {
            let _guard = self.lock.lock().unwrap();
            self.mark.set();
            self.home.take_all();
        }

        /// As `orphanage::deliver`.
        fn deliver(&self, index: usize) {
            self.home.push(&[index]);
            if self.mark.is_set_after_send() {
                let _guard = self.lock.lock().unwrap();
                if self.mark.is_set() {
                    self.home.take_all();
                }
            }
        }

        /// As `orphanage::adopt`, if there is an abandoned heap, and the first thing the new owner does.
        fn adopt(&self) -> bool {
            {
                let _guard = self.lock.lock().unwrap();
                if !self.mark.is_set() {
                    return false;
                }
                self.mark.clear();
            }
            self.home.take_all();
            true
        }
    }

    /// Goal: a block that is sent while its home is left is taken by the thread that leaves or by the one that sends it,
    /// once, and never lies there.
    ///
    /// Caught: either fence missing; a mark that is set after the last check; a sender that takes without the lock.
    #[test]
    fn nothing_lies_at_an_abandoned_heap() {
        loom::model(|| {
            let abandoned = AbandonedHeaps::new();
            let senders = [0, 1].map(|index| {
                let abandoned = Arc::clone(&abandoned);
                thread::spawn(move || abandoned.deliver(index))
            });
            abandoned.leave();
            senders
                .into_iter()
                .for_each(|sender| sender.join().unwrap());
            assert_eq!(abandoned.home.taken_count(), 2);
        });
    }

    /// Goal: the same when another thread takes the abandoned heap over meanwhile; the old owner, the new
    /// one and the sender take in an order.
    ///
    /// Caught: an adoption without the lock; a sender that does not ask again once it has the lock.
    #[test]
    fn adoption_is_in_order() {
        loom::model(|| {
            let abandoned = AbandonedHeaps::new();
            let sender = thread::spawn({
                let abandoned = Arc::clone(&abandoned);
                move || abandoned.deliver(0)
            });
            let heir = thread::spawn({
                let abandoned = Arc::clone(&abandoned);
                move || abandoned.adopt()
            });
            abandoned.leave();
            sender.join().unwrap();
            if heir.join().unwrap() {
                // Its next check finds blocks that came after the first one.
                abandoned.home.take_all();
            }
            assert_eq!(abandoned.home.taken_count(), 1);
        });
    }
}
