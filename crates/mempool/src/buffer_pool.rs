//! Equal buffers the kernel may hold.
//!
//! On the path: `io` leases one to receive into and returns it when the bytes have been looked at.
//! With pools on all buffers lie in one mapping, with ids from 0, so that the region can be offered
//! to the kernel as a whole.
//! Absent on purpose: growth. The number of buffers is what bounds the bytes in flight; running out
//! means that someone must be made to wait.
#![allow(unsafe_code)]
use crate::chunk::{CHUNK_BYTES, Chunk};
use crate::fill::fill_beginning;
use crate::heap::{self, HEAP_BYTES_MIN};
use crate::{PoolError, PoolMode, PoolStats};
use std::cell::{Cell, OnceCell, RefCell};
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::Rc;
use std::{fmt, slice};

/// Buffers begin at multiples of this with pools on: no two share a cache line.
const STRIDE_ALIGN_BYTES: usize = 64;

/// At most `count_max` buffers of equal size, lent newest first; one thread owns it.
///
/// Clones are handles of the same pool. A lease keeps the pool's memory alive.
///
/// ```
/// use millpond_mempool::{BufferPool, PoolMode};
/// let pool = BufferPool::new("receive", PoolMode::On, 64 * 1024, 4);
/// let mut lease = pool.lease()?;
/// // In earnest: `|room| rustix::net::recv(fd, room, flags).map(|((filled, _), _)| filled)`.
/// lease.fill_from(|room| Ok::<_, std::io::Error>(room[..3].write_copy_of_slice(b"GET")))?;
/// assert_eq!(&*lease, b"GET");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct BufferPool {
    core: Rc<PoolCore>,
}

/// What handles and leases share.
/// Invariant: an id is either in `free_ids`, or `fresh_id` or above (never lent), or held by
/// exactly one lease.
struct PoolCore {
    name: &'static str,
    mode: PoolMode,
    buffer_bytes: usize,
    count_max: u16,
    /// All buffers, mapped at the first lease; never with pools off.
    region: OnceCell<Chunk>,
    free_ids: RefCell<Vec<u16>>,
    fresh_id: Cell<u16>,
    live_count: Cell<usize>,
    live_count_max: Cell<usize>,
    hits: Cell<u64>,
    misses: Cell<u64>,
}

impl BufferPool {
    /// A pool of at most `count_max` buffers of `buffer_bytes` (at least 16) each. One malloc for
    /// its list of ids; the buffers' memory comes with the first lease.
    pub fn new(name: &'static str, mode: PoolMode, buffer_bytes: usize, count_max: u16) -> Self {
        let core = PoolCore {
            name,
            mode,
            buffer_bytes: buffer_bytes.max(HEAP_BYTES_MIN),
            count_max,
            region: OnceCell::new(),
            free_ids: RefCell::new(Vec::with_capacity(usize::from(count_max))),
            fresh_id: Cell::new(0),
            live_count: Cell::new(0),
            live_count_max: Cell::new(0),
            hits: Cell::new(0),
            misses: Cell::new(0),
        };
        Self {
            core: Rc::new(core),
        }
    }

    /// Lends the buffer returned last, its content undefined. A pop; the first lease maps all
    /// buffers; with pools off one malloc.
    #[inline]
    pub fn lease(&self) -> Result<Lease, PoolError> {
        let core = &self.core;
        let id = core.next_id()?;
        let start = match core.mode {
            PoolMode::On => core.buffer_start(id)?,
            PoolMode::Off | PoolMode::ArenaOnly | PoolMode::Checked(_) => {
                heap::allocate(core.buffer_bytes)?
            }
        };
        core.note_lent(id);
        Ok(Lease {
            core: Rc::clone(core),
            start,
            filled_bytes: 0,
            id,
        })
    }

    /// Size of every buffer.
    pub fn buffer_bytes(&self) -> usize {
        self.core.buffer_bytes
    }

    /// The most buffers that can be lent at a time.
    pub fn count_max(&self) -> usize {
        usize::from(self.core.count_max)
    }

    /// What the pool holds. O(1).
    pub fn stats(&self) -> PoolStats {
        let core = &self.core;
        let live_count = core.live_count.get();
        let live_bytes = live_count * core.buffer_bytes;
        let count_max = usize::from(core.count_max);
        let (reserved_bytes, cached_count, waste_bytes) = match (core.mode, core.region.get()) {
            (PoolMode::Off | PoolMode::ArenaOnly | PoolMode::Checked(_), _) => (live_bytes, 0, 0),
            (PoolMode::On, None) => (0, 0, 0),
            (PoolMode::On, Some(region)) => {
                let fresh_count = count_max - usize::from(core.fresh_id.get());
                let cached_count = core.free_ids.borrow().len() + fresh_count;
                let between_bytes = (core.stride_bytes() - core.buffer_bytes) * count_max;
                let tail_bytes = region.size_bytes() - core.stride_bytes() * count_max;
                (
                    region.size_bytes(),
                    cached_count,
                    between_bytes + tail_bytes,
                )
            }
        };
        PoolStats {
            name: core.name,
            kind: "buffer",
            mode: core.mode,
            live_objects: live_count as u64,
            live_bytes: live_bytes as u64,
            cached_bytes: (cached_count * core.buffer_bytes) as u64,
            waste_bytes: waste_bytes as u64,
            reserved_bytes: reserved_bytes as u64,
            high_water_bytes: (core.live_count_max.get() * core.buffer_bytes) as u64,
            hits: core.hits.get(),
            misses: core.misses.get(),
            remote_frees: 0,
        }
        .checked()
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("BufferPool")
            .field(&self.stats())
            .finish()
    }
}

impl PoolCore {
    /// The id to lend next; it stays free until `note_lent`.
    #[inline]
    fn next_id(&self) -> Result<u16, PoolError> {
        if let Some(&id) = self.free_ids.borrow().last() {
            return Ok(id);
        }
        let fresh = self.fresh_id.get();
        if fresh == self.count_max {
            return Err(PoolError::Exhausted {
                count_max: usize::from(self.count_max),
            });
        }
        Ok(fresh)
    }

    #[inline]
    fn note_lent(&self, id: u16) {
        let is_hit = self.mode == PoolMode::On && self.hits.get() + self.misses.get() > 0;
        if self.free_ids.borrow_mut().pop().is_none() {
            self.fresh_id.set(id + 1);
        }
        let live_count = self.live_count.get() + 1;
        self.live_count.set(live_count);
        self.live_count_max
            .set(self.live_count_max.get().max(live_count));
        self.hits.set(self.hits.get() + u64::from(is_hit));
        self.misses.set(self.misses.get() + u64::from(!is_hit));
    }

    fn stride_bytes(&self) -> usize {
        self.buffer_bytes.next_multiple_of(STRIDE_ALIGN_BYTES)
    }

    /// Where a buffer lies in the region, which is mapped when nobody has done so yet.
    #[inline]
    fn buffer_start(&self, id: u16) -> Result<NonNull<u8>, PoolError> {
        let region = match self.region.get() {
            Some(region) => region,
            None => self.map_region()?,
        };
        // SAFETY: the region holds `count_max` strides, and ids are below `count_max`.
        Ok(unsafe { region.start().add(usize::from(id) * self.stride_bytes()) })
    }

    #[cold]
    fn map_region(&self) -> Result<&Chunk, PoolError> {
        let count_max = usize::from(self.count_max);
        let region_bytes = self
            .buffer_bytes
            .checked_next_multiple_of(STRIDE_ALIGN_BYTES)
            .and_then(|stride_bytes| stride_bytes.checked_mul(count_max))
            .and_then(|bytes| bytes.checked_next_multiple_of(CHUNK_BYTES))
            .ok_or(PoolError::OutOfMemory {
                requested_bytes: self.buffer_bytes,
            })?;
        let region = Chunk::map_long(region_bytes)?;
        Ok(self.region.get_or_init(|| region))
    }
}

/// One lent buffer. It reads as the bytes filled in so far: none at first. Returns to the pool when
/// dropped; `!Send`, so that happens on the owner's thread, by a push.
pub struct Lease {
    core: Rc<PoolCore>,
    start: NonNull<u8>,
    /// Invariant: at most `buffer_bytes`, and that many bytes from `start` are initialised.
    filled_bytes: usize,
    id: u16,
}

impl Lease {
    /// The buffer's number, below the pool's `count_max`; no two leases have the same.
    #[inline]
    pub const fn id(&self) -> u16 {
        self.id
    }

    /// Bytes it can hold.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.core.buffer_bytes
    }

    /// The whole buffer, for a system call to write to; the lease then reads as empty. The content
    /// is undefined: whatever an earlier holder left.
    #[inline]
    pub fn as_uninit_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        self.filled_bytes = 0;
        let start = self.start.as_ptr().cast::<MaybeUninit<u8>>();
        // SAFETY: the buffer is this lease's alone while it lives, `buffer_bytes` long, and any
        // content is a valid `MaybeUninit`.
        unsafe { slice::from_raw_parts_mut(start, self.core.buffer_bytes) }
    }

    /// Replaces the bytes by what `fill` writes: it is given the whole buffer and returns the part
    /// it initialised, which begins where the buffer begins. On an error the lease reads as empty.
    ///
    /// # Panics
    /// When `fill` returns something else than a beginning of the buffer.
    #[inline]
    pub fn fill_from<E>(
        &mut self,
        fill: impl FnOnce(&mut [MaybeUninit<u8>]) -> Result<&mut [u8], E>,
    ) -> Result<&mut [u8], E> {
        self.filled_bytes = fill_beginning(self.as_uninit_mut(), fill)?;
        Ok(self)
    }
}

impl Deref for Lease {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: that many bytes are initialised, and nobody writes while the lease is shared.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.filled_bytes) }
    }
}

impl DerefMut for Lease {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: that many bytes are initialised, and the lease is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.filled_bytes) }
    }
}

impl Drop for Lease {
    #[inline]
    fn drop(&mut self) {
        if !self.core.mode.pools_blocks() {
            // SAFETY: with pools off the buffer came from `heap::allocate(buffer_bytes)`.
            unsafe { heap::free(self.start, self.core.buffer_bytes) };
        }
        // No growth: the list was made for `count_max` ids.
        self.core.free_ids.borrow_mut().push(self.id);
        self.core.live_count.set(self.core.live_count.get() - 1);
    }
}

impl fmt::Debug for Lease {
    /// Sizes only: buffers hold peers' data, which has no place in a log.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("Lease");
        fields
            .field("id", &self.id)
            .field("filled_bytes", &self.filled_bytes)
            .finish()
    }
}
