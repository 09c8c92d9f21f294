//! The proof that a cached value is current: a number per group of ids that changes with every write.
//!
//! The writer thread makes the stamps of a batch odd before the engine sees it and even again after
//! it succeeded; a shard serves what it cached (`value_cache`) only under the stamp it cached it
//! with. Ids share stamps by hash: a shared stamp costs a miss, never an error.
//!
//! Why no stale value is ever served. One thread writes stamps ([`StampWriter`] is not `Clone`)
//! and the engine, so a stamp only rises, and 64 bits never come round again.
//! 1. *An even stamp names one value of an id.* A write of the id under stamp `s` takes it to
//!    `s + 1` before the engine has the batch and to `s + 2` after it. Between two changes nothing
//!    writes the id, so all reads of it that lie between see the same value.
//! 2. *A fill caches that value.* It takes even `s` before its read of the engine and finds `s`
//!    again after it. Every write up to `s` is in what it read: its first load (acquire) saw
//!    `s`, stored (release) after the engine's commit had returned. No later write is in it: to
//!    show one, the engine must have been handed the batch after the store of `s + 1` and a
//!    release fence; a thread that read the batch and passes an acquire fence then loads `s + 1` or more
//!    and does not fill. A read by a store thread is the same: the queue and the mailbox order its
//!    two loads around the read.
//! 3. *A write caches that value too.* Its job returns with the even stamp that ended its batch, but only the batch's
//!    last job of each stamp does: an earlier one may have been overwritten by it, in the same batch and under the same
//!    stamp.
//! 4. *Acknowledged writes are seen.* The store of the even stamp comes before the response, which comes before the
//!    client's next request, on whatever connection; the sockets between them order memory as locks do. So a shard that
//!    handles that request loads this stamp or a later one, and values cached under an earlier one are stale. The same
//!    holds for a client that saw a value before it was acknowledged: the engine showed it after the odd stamp was
//!    stored.
//! 5. *A failed batch proves nothing*, so its stamps stay odd: its ids are read from the engine alone, until a restart,
//!    or until the engine has recovered (`commit`), which then shows the batch whole or not at all. Then they are even
//!    again, and newer than all cached values. A panic leaves them odd.
//!
//! A reader pays one load.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::commit::Job;
use crate::key::{KeyHash, KeyHasher};

/// An even stamp: names one value of each id that shares it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stamp(u64);

/// The table of one server, read by every shard.
pub struct Stamps {
    hasher: KeyHasher,
    table: Box<[AtomicU64]>,
}

impl Stamps {
    /// A table of `count` stamps and the one handle that may change them. The more there are, the
    /// fewer values die because of a neighbour's write.
    #[must_use]
    pub fn new(count: usize) -> (Arc<Self>, StampWriter) {
        assert!(count > 0, "every id has a stamp");
        let stamps = Arc::new(Self {
            hasher: KeyHasher::random(),
            table: (0..count).map(|_| AtomicU64::new(0)).collect(),
        });
        let writer = StampWriter {
            stamps: Arc::clone(&stamps),
            places: Vec::new(),
        };
        (stamps, writer)
    }

    /// The hash by which ids share stamps; the same on every thread of this server.
    #[inline]
    #[must_use]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.hasher.hash(key)
    }

    /// The stamp now: take it before reading the engine. `None` while a write is under way.
    #[inline]
    #[must_use]
    pub fn current(&self, hash: KeyHash) -> Option<Stamp> {
        let stamp = self.table[self.place(hash)].load(Ordering::Acquire);
        stamp.is_multiple_of(2).then_some(Stamp(stamp))
    }

    /// Whether `stamp` is still current: call it after reading the engine. Only then may the value be cached under it.
    #[inline]
    #[must_use]
    pub fn is_current(&self, hash: KeyHash, stamp: Stamp) -> bool {
        // Orders the engine's read before the load, whatever the engine itself uses.
        fence(Ordering::Acquire);
        self.current(hash) == Some(stamp)
    }

    #[inline]
    fn place(&self, hash: KeyHash) -> usize {
        hash.scale_high(self.table.len())
    }
}

/// The right to change stamps; the committer has it.
pub struct StampWriter {
    stamps: Arc<Stamps>,
    /// The stamps of the batch under way, by job. Kept for its memory.
    places: Vec<usize>,
}

impl StampWriter {
    /// Before the engine is handed `batch`: nothing is cached of its ids from now on.
    pub fn begin(&mut self, batch: &[Job]) {
        let stamps = &*self.stamps;
        self.places.clear();
        let places = batch.iter().map(|job| stamps.place(stamps.hash(&job.key)));
        self.places.extend(places);
        for &place in &self.places {
            let stamp = &stamps.table[place];
            // This thread alone stores: no read-modify-write is needed.
            stamp.store(stamp.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
        }
        // Orders the stores before whatever the engine publishes.
        fence(Ordering::Release);
    }

    /// After the engine has committed the batch of the last [`begin`](Self::begin), and before any result is returned:
    /// marks the jobs whose values may be cached.
    pub fn finish(&mut self, batch: &mut [Job]) {
        debug_assert_eq!(batch.len(), self.places.len(), "another batch than begun");
        // From the last job back, so that the last of each stamp finds it odd and gets it.
        for (job, &place) in batch.iter_mut().zip(&self.places).rev() {
            let stamp = &self.stamps.table[place];
            let odd = stamp.load(Ordering::Relaxed);
            job.stamp = None;
            if !odd.is_multiple_of(2) {
                stamp.store(odd + 1, Ordering::Release);
                job.stamp = Some(Stamp(odd + 1));
            }
        }
    }

    /// After the batch of the last [`begin`](Self::begin) failed and the engine has recovered: its state of these ids
    /// is final now. Nothing of the batch is cached.
    pub fn finish_failed(&mut self) {
        for place in self.places.drain(..) {
            let stamp = &self.stamps.table[place];
            let odd = stamp.load(Ordering::Relaxed);
            if !odd.is_multiple_of(2) {
                stamp.store(odd + 1, Ordering::Release);
            }
        }
    }
}
