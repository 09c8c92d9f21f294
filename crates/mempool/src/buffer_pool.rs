//! Equal buffers the kernel may hold.
//!
//! `io` leases one to receive into and returns it when the bytes have been processed. With pools on all buffers lie in
//! one mapping, with ids from 0, so that the region can be offered to the kernel as a whole. It keeps its address for
//! ever; the pages of idle buffers do not stay.
//!
//! ```text
//! region   | span 0 | span 1 | span 2 | span 3 |     a span: whole pages, one buffer or, where
//!            open     closed   open     closed       that is smaller than a page, several
//! free_ids   2 | 0            bottom: idle longest; top: lent next
//! ```
//! A span is open from the first lease that needs it until a sweep closes it, and only open spans can have pages: so
//! what is *reserved* is exact, while the region is only *addressed*. The pool does not grow: the number of buffers
//! bounds the bytes in flight, and when it runs out, clients must wait. Buffers are not registered with the kernel for
//! good (io_uring's fixed buffers): it would keep writing to pages that a sweep gave back.

#![allow(unsafe_code)]

use std::cell::{Cell, OnceCell, RefCell};
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::rc::Rc;
use std::{fmt, slice};

use crate::chunk::{CHUNK_BYTES, Chunk, discard};
use crate::heap::HEAP_BYTES_MIN;
use crate::heap::{DirectMemory, Freed};
use crate::pool_mode::Budget;
use crate::size_class::fill_beginning;
use crate::{PoolError, PoolMode, PoolStats};

/// Buffers begin at multiples of this with pools on: no two share a cache line.
const STRIDE_ALIGN_BYTES: usize = 64;

/// At most `count_max` buffers of equal size, lent newest first; one thread owns it.
///
/// Clones are handles of the same pool. A lease keeps the pool's memory alive. With pools on a
/// buffer takes whole pages, or half a page, a quarter and so on: multiples of the page size and
/// powers of two below it waste nothing.
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

/// State shared by handles and leases. Invariant: an id whose span is open is either among the first `free_count` of
/// `free_ids` or held by exactly one lease; one whose span is closed is neither.
struct PoolCore {
    name: &'static str,
    mode: PoolMode,
    buffer_bytes: usize,
    stride_bytes: usize,
    count_max: u16,
    /// All buffers, mapped at the first lease; never with pools off.
    region: OnceCell<Chunk>,
    /// Room for every id, so that a lease can always be dropped.
    free_ids: OnceCell<Box<[Cell<u16>]>>,
    free_count: Cell<usize>,
    /// The least `free_count` has been since the last sweep or, after it, since a span was opened.
    free_min: Cell<usize>,
    /// Buffers of open spans.
    open_count: Cell<usize>,
    /// The most buffers lent before the last sweep.
    live_max_before: Cell<usize>,
    /// Leases, ever, without and with a new span, and leases dropped, ever.
    hits: Cell<u64>,
    misses: Cell<u64>,
    returns: Cell<u64>,
    /// Of this many bytes, and which of them are open.
    span_bytes: usize,
    spans: RefCell<BufferSpans>,
    budget: RefCell<Budget>,
    /// Where buffers come from when there is no region.
    direct: DirectMemory,
}

impl BufferPool {
    /// A pool of at most `count_max` buffers of `buffer_bytes` (at least 16) each, without another
    /// limit. One malloc; memory for its tables and the buffers comes with the first lease.
    #[must_use]
    pub fn new(name: &'static str, mode: PoolMode, buffer_bytes: usize, count_max: u16) -> Self {
        Self::with_budget(name, mode, buffer_bytes, count_max, usize::MAX)
    }

    /// A pool whose `reserved_bytes`, its tables included, never pass `limit_bytes`.
    #[must_use]
    pub fn with_budget(
        name: &'static str,
        mode: PoolMode,
        buffer_bytes: usize,
        count_max: u16,
        limit_bytes: usize,
    ) -> Self {
        let buffer_bytes = buffer_bytes.max(HEAP_BYTES_MIN);
        let page_bytes = rustix::param::page_size();
        let stride_bytes = if buffer_bytes < page_bytes {
            buffer_bytes.next_power_of_two().max(STRIDE_ALIGN_BYTES)
        } else {
            let whole_pages = buffer_bytes.checked_next_multiple_of(page_bytes);
            whole_pages.unwrap_or(usize::MAX)
        };
        let span_bytes = stride_bytes.max(page_bytes);
        // Only where pages are larger than 8 KiB can there be more buffers in one.
        let buffers_shift = (span_bytes / stride_bytes).ilog2();
        let buffers_shift = buffers_shift.min(BufferSpans::BUFFERS_SHIFT_MAX);
        let core = PoolCore {
            name,
            mode,
            buffer_bytes,
            stride_bytes: span_bytes >> buffers_shift,
            span_bytes,
            count_max,
            region: OnceCell::new(),
            free_ids: OnceCell::new(),
            free_count: Cell::new(0),
            free_min: Cell::new(0),
            open_count: Cell::new(0),
            live_max_before: Cell::new(0),
            hits: Cell::new(0),
            misses: Cell::new(0),
            returns: Cell::new(0),
            spans: RefCell::new(BufferSpans::new(buffers_shift, count_max)),
            budget: RefCell::new(Budget::new(limit_bytes)),
            direct: DirectMemory::new(name, mode),
        };
        Self {
            core: Rc::new(core),
        }
    }

    /// Lends the buffer returned last, its content undefined. A pop; the first lease maps all
    /// buffers; with pools off one malloc.
    #[inline]
    pub fn lease(&self) -> Result<Lease, PoolError> {
        let core = &*self.core;
        let has_free = core.free_count.get() > 0;
        if !has_free {
            core.open_span()?;
        }
        let free_count = core.free_count.get() - 1;
        let id = core.free_ids()[free_count].get();
        let (start, is_hit) = match core.region.get() {
            // SAFETY: the region holds `count_max` strides, and ids are below `count_max`.
            Some(region) => (
                unsafe { region.start().add(usize::from(id) * core.stride_bytes) },
                has_free,
            ),
            None => (core.allocate_direct()?, false),
        };
        core.free_count.set(free_count);
        if free_count < core.free_min.get() {
            core.free_min.set(free_count);
        }
        core.hits.set(core.hits.get() + u64::from(is_hit));
        core.misses.set(core.misses.get() + u64::from(!is_hit));
        Ok(Lease {
            core: Rc::clone(&self.core),
            start,
            filled_bytes: 0,
            id,
        })
    }

    /// Size of every buffer.
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        self.core.buffer_bytes
    }

    /// The most buffers that can be lent at a time.
    #[must_use]
    pub fn count_max(&self) -> usize {
        usize::from(self.core.count_max)
    }

    /// Bytes of address space the buffers lie in, with pages or without: 0 before the first lease
    /// and with pools off. `reserved_bytes` of [`stats`](Self::stats) counts only what can have
    /// pages.
    pub fn addressed_bytes(&self) -> usize {
        self.core.region.get().map_or(0, Chunk::size_bytes)
    }

    /// Gives back the pages of half (rounded up) of the buffers that were not lent since the last call, and returns how
    /// many bytes. Call it about once a second: idle memory halves each time, used memory stays. O(`count_max`).
    pub fn trim(&self) -> usize {
        self.core.direct.trim() + self.core.trim()
    }

    /// In [`PoolMode::Checked`] checks all memory of the pool for invalid writes. Nothing in other modes. O(buffers).
    ///
    /// # Panics
    /// When it finds such a place.
    pub fn verify(&self) {
        self.core.direct.verify();
    }

    /// Current numbers of the pool. O(1).
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let core = &self.core;
        let lent_count = core.hits.get() + core.misses.get();
        let live_count = (lent_count - core.returns.get()) as usize;
        let (mut cached_bytes, mut layout_bytes) = (0, 0);
        let spans = core.spans.borrow();
        let table_bytes = size_of_val(core.free_ids()) + spans.table_bytes();
        if core.region.get().is_some() {
            cached_bytes = core.free_count.get() * core.buffer_bytes;
            layout_bytes =
                spans.open_count() * core.span_bytes - core.open_count.get() * core.buffer_bytes;
        }
        PoolStats {
            name: core.name,
            kind: "buffer",
            mode: core.mode,
            live_objects: live_count as u64,
            live_bytes: (live_count * core.buffer_bytes) as u64,
            cached_bytes: cached_bytes as u64,
            waste_bytes: (table_bytes + layout_bytes) as u64,
            reserved_bytes: core.budget.borrow().reserved_bytes() as u64,
            high_water_bytes: (core.live_max() * core.buffer_bytes) as u64,
            hits: core.hits.get(),
            misses: core.misses.get(),
            remote_frees: 0,
        }
        .with_memory_of(&core.direct)
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
    /// The free list: empty before the first lease.
    #[inline]
    fn free_ids(&self) -> &[Cell<u16>] {
        self.free_ids.get().map_or(&[], |ids| ids)
    }

    /// Makes a returned buffer the next to be lent.
    #[inline]
    fn note_returned(&self, id: u16) {
        let free_count = self.free_count.get();
        self.free_ids()[free_count].set(id);
        self.free_count.set(free_count + 1);
        self.returns.set(self.returns.get() + 1);
    }

    /// A buffer straight from malloc, or from checked memory.
    fn allocate_direct(&self) -> Result<NonNull<u8>, PoolError> {
        self.budget.borrow_mut().take(self.buffer_bytes)?;
        self.direct
            .allocate(self.buffer_bytes, HEAP_BYTES_MIN)
            .inspect_err(|_| self.budget.borrow_mut().give_back(self.buffer_bytes))
    }

    /// Takes back what [`allocate_direct`](Self::allocate_direct) gave.
    ///
    /// # Safety
    /// `start` came from it, and is not used again.
    #[cold]
    unsafe fn free_direct(&self, start: NonNull<u8>) -> Freed {
        // SAFETY: the buffer came from `direct` with the same numbers.
        let freed = unsafe { self.direct.free(start, self.buffer_bytes, HEAP_BYTES_MIN) };
        self.budget.borrow_mut().give_back(self.buffer_bytes);
        freed
    }

    /// Makes the buffers of one more span free ones. Only when none is.
    #[cold]
    fn open_span(&self) -> Result<(), PoolError> {
        let mut spans = self.spans.borrow_mut();
        if self.mode.pools_blocks() && self.region.get().is_none() {
            let region = self.map_region(spans.count())?;
            self.region.get_or_init(|| region);
        }
        let free_ids = match self.free_ids.get() {
            Some(free_ids) => free_ids,
            None => self.make_tables(&mut spans)?,
        };
        if self.region.get().is_some() && !spans.all_open() {
            self.budget.borrow_mut().take(self.span_bytes)?;
        }
        let ids = spans.open().ok_or(PoolError::Exhausted {
            count_max: usize::from(self.count_max),
        })?;
        self.open_count.set(self.open_count.get() + ids.len());
        self.free_count.set(ids.len());
        // All buffers are in use now: the count of idle ones for this interval begins here.
        self.free_min.set(ids.len());
        for (place, id) in free_ids.iter().zip(ids.rev()) {
            place.set(id);
        }
        Ok(())
    }

    fn map_region(&self, span_count: usize) -> Result<Chunk, PoolError> {
        let bytes = self.span_bytes.checked_mul(span_count.max(1));
        let bytes = bytes.and_then(|bytes| bytes.checked_next_multiple_of(CHUNK_BYTES));
        Chunk::map_long(bytes.ok_or(PoolError::OutOfMemory {
            requested_bytes: self.buffer_bytes,
        })?)
    }

    /// Makes room for the ids and the spans.
    fn make_tables(&self, spans: &mut BufferSpans) -> Result<&[Cell<u16>], PoolError> {
        let count_max = usize::from(self.count_max);
        let requested_bytes = count_max * size_of::<u16>() + spans.table_bytes_needed();
        self.budget.borrow_mut().take(requested_bytes)?;
        let mut ids = Vec::new();
        ids.try_reserve_exact(count_max)
            .map_err(|_| PoolError::OutOfMemory { requested_bytes })
            .and_then(|()| spans.make_tables())
            .inspect_err(|_| self.budget.borrow_mut().give_back(requested_bytes))?;
        ids.resize(count_max, Cell::new(0));
        Ok(self.free_ids.get_or_init(|| ids.into_boxed_slice()))
    }

    /// See [`BufferPool::trim`].
    fn trim(&self) -> usize {
        let idle_count = self.free_min.get();
        self.live_max_before.set(self.live_max());
        let Some(region) = self.region.get() else {
            self.free_min.set(self.free_count.get());
            return 0;
        };
        let mut spans = self.spans.borrow_mut();
        let free_ids = self.free_ids();
        // Ids at the bottom of the list for the whole interval were not lent.
        let left_count = spans.close_idle(&free_ids[..idle_count], |run| {
            // SAFETY: the spans are whole pages of the region. Their buffers are free, so their content is not read,
            // and it is undefined for the next holder.
            unsafe {
                let start = region.start().add(run.start * self.span_bytes);
                discard(start, run.len() * self.span_bytes)
            }
        });
        let mut kept_count = 0;
        for place in &free_ids[..self.free_count.get()] {
            if !spans.has_left(place.get()) {
                free_ids[kept_count].set(place.get());
                kept_count += 1;
            }
        }
        spans.end_sweep();
        self.open_count
            .set(self.open_count.get() - (self.free_count.get() - kept_count));
        self.free_count.set(kept_count);
        self.free_min.set(kept_count);
        let bytes = left_count * self.span_bytes;
        self.budget.borrow_mut().give_back(bytes);
        bytes
    }

    /// The most buffers ever lent. Free buffers were fewest when lent ones were most, since spans
    /// open only when none is free.
    fn live_max(&self) -> usize {
        let live_max = self.open_count.get() - self.free_min.get();
        live_max.max(self.live_max_before.get())
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
    #[must_use]
    pub const fn id(&self) -> u16 {
        self.id
    }

    /// Bytes it can hold.
    #[inline]
    #[must_use]
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
        // SAFETY: that many bytes are initialised, and they are not written while the lease is shared.
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

impl Lease {
    /// Returns a buffer that came straight from memory.
    #[cold]
    fn drop_direct(&mut self) {
        // SAFETY: a pool without a region lent this lease its buffer from there.
        let freed = unsafe { self.core.free_direct(self.start) };
        self.core.note_returned(self.id);
        freed.report();
    }
}

impl Drop for Lease {
    #[inline]
    fn drop(&mut self) {
        if self.core.region.get().is_none() {
            return self.drop_direct();
        }
        self.core.note_returned(self.id);
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

// Which parts of a buffer pool's region can have pages.

/// In `tally`: the span leaves in the sweep under way. More than a span has buffers.
const LEAVING: u8 = u8::MAX;

/// The spans of one region.
/// Invariant: a span is in `closed` or open; `closed` has room for all. Between sweeps `tally` is
/// all zero.
pub(crate) struct BufferSpans {
    /// A span has 2 to the power of this many buffers; the last one perhaps fewer.
    buffers_shift: u32,
    count_max: u16,
    /// The next to open last: the lowest.
    closed: Vec<u16>,
    /// How many idle buffers the sweep has found in each span.
    tally: Vec<u8>,
}

impl BufferSpans {
    /// A span holds at most 2 to the power of this many buffers.
    pub(crate) const BUFFERS_SHIFT_MAX: u32 = 7;

    /// Spans without tables, as many as `count_max` buffers take.
    pub(crate) const fn new(buffers_shift: u32, count_max: u16) -> Self {
        assert!(buffers_shift <= Self::BUFFERS_SHIFT_MAX);
        Self {
            buffers_shift,
            count_max,
            closed: Vec::new(),
            tally: Vec::new(),
        }
    }

    /// All of them, open and closed.
    pub(crate) fn count(&self) -> usize {
        usize::from(self.count_max).div_ceil(1 << self.buffers_shift)
    }

    /// Bytes the tables will take.
    pub(crate) fn table_bytes_needed(&self) -> usize {
        self.count() * (size_of::<u16>() + size_of::<u8>())
    }

    /// Bytes the tables take.
    pub(crate) fn table_bytes(&self) -> usize {
        self.closed.capacity() * size_of::<u16>() + self.tally.capacity()
    }

    /// Makes the tables. All spans are closed then, and will be opened from the first on.
    pub(crate) fn make_tables(&mut self) -> Result<(), PoolError> {
        let count = self.count();
        let requested_bytes = self.table_bytes_needed();
        let (mut closed, mut tally) = (Vec::new(), Vec::new());
        let reserved = closed
            .try_reserve_exact(count)
            .and_then(|()| tally.try_reserve_exact(count));
        reserved.map_err(|_| PoolError::OutOfMemory { requested_bytes })?;
        closed.extend(Self::numbers(0..count));
        tally.resize(count, 0);
        (self.closed, self.tally) = (closed, tally);
        Ok(())
    }

    /// Open spans.
    pub(crate) fn open_count(&self) -> usize {
        self.tally.len() - self.closed.len()
    }

    /// Whether none is left to open.
    pub(crate) fn all_open(&self) -> bool {
        self.closed.is_empty()
    }

    /// Opens one; returns the ids of its buffers.
    pub(crate) fn open(&mut self) -> Option<Range<u16>> {
        self.closed.pop().map(|span| self.ids(usize::from(span)))
    }

    /// Closes spans of which every buffer is `idle`, those named first first, until half of the idle buffers (rounded
    /// up) have left. `give_back` does it for some spans in a row, or returns that it cannot, and they stay open.
    /// Returns how many were closed; [`has_left`](Self::has_left) returns which until [`end_sweep`](Self::end_sweep).
    pub(crate) fn close_idle(
        &mut self,
        idle: &[Cell<u16>],
        mut give_back: impl FnMut(Range<usize>) -> bool,
    ) -> usize {
        self.mark_leaving(idle);
        let closed_before = self.closed.len();
        let mut rest = self.tally.len();
        while let Some(last) = self.tally[..rest].iter().rposition(|&idle| idle == LEAVING) {
            let staying = self.tally[..last].iter().rposition(|&idle| idle != LEAVING);
            let first = staying.map_or(0, |before| before + 1);
            if give_back(first..last + 1) {
                self.closed.extend(Self::numbers(first..last + 1));
            } else {
                self.tally[first..=last].fill(0);
            }
            rest = first;
        }
        // The lowest will be opened first.
        self.closed.sort_unstable_by(|one, other| other.cmp(one));
        self.closed.len() - closed_before
    }

    fn mark_leaving(&mut self, idle: &[Cell<u16>]) {
        for id in idle {
            self.tally[usize::from(id.get() >> self.buffers_shift)] += 1;
        }
        let mut missing_count = idle.len().div_ceil(2);
        for id in idle {
            let span = usize::from(id.get() >> self.buffers_shift);
            let buffer_count = self.ids(span).len();
            if missing_count > 0 && usize::from(self.tally[span]) == buffer_count {
                self.tally[span] = LEAVING;
                missing_count = missing_count.saturating_sub(buffer_count);
            }
        }
    }

    /// Whether the sweep under way has closed the span of this buffer.
    pub(crate) fn has_left(&self, id: u16) -> bool {
        self.tally[usize::from(id >> self.buffers_shift)] == LEAVING
    }

    /// Forgets what the sweep has found.
    pub(crate) fn end_sweep(&mut self) {
        self.tally.fill(0);
    }

    fn ids(&self, span: usize) -> Range<u16> {
        let count_max = usize::from(self.count_max);
        let id = |span: usize| (span << self.buffers_shift).min(count_max) as u16;
        id(span)..id(span + 1)
    }

    /// The spans' numbers, last one first. They fit, as there are no more spans than ids.
    fn numbers(spans: Range<usize>) -> impl Iterator<Item = u16> {
        spans.rev().map(|span| span as u16)
    }
}

#[cfg(test)]
#[path = "tests/buffer_spans.rs"]
mod buffer_spans_tests;
