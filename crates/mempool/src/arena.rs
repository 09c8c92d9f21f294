//! Bump memory of one request, freed whole.
//!
//! `http` copies decoded values here and handlers keep their temporaries here; the owner resets the
//! arena once the response is encoded.
#![allow(unsafe_code)]
use crate::heap;
use crate::heap::DirectMemory;
use crate::pool_mode::Budget;
use crate::violation::Violation;
use crate::{PoolError, PoolMode, PoolStats};
use std::alloc::Layout;
use std::cell::Cell;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::{fmt, ptr, slice};

/// One page: few requests need more, and those that need less touch no second page.
const ARENA_CHUNK_BYTES: usize = 4096;
/// Header before the lent bytes of a chunk or a direct slice.
const HEADER_BYTES: usize = size_of::<Header>();
/// Longer slices go to malloc: a chunk that cannot take one more loses at most a quarter.
/// Likewise what is aligned to more.
const CHUNKED_BYTES_MAX: usize = ARENA_CHUNK_BYTES / 4;

/// Begins every piece of memory the arena holds.
#[repr(align(16))]
struct Header {
    next: Option<NonNull<Header>>,
    size_bytes: usize,
}

/// Memory lent from low to high and freed at once by [`reset`](Self::reset).
///
/// Slices up to 1 KiB come from chunks of 4 KiB, longer ones from malloc until the reset. With
/// pools off every slice is one malloc, freed by the reset. Any type without a destructor may be
/// kept here, at any alignment. Not `Sync`: one thread owns it.
///
/// ```
/// use millpond_mempool::{Arena, PoolMode};
/// let mut arena = Arena::new("request", PoolMode::On);
/// let host = arena.copy_in(b"example.org")?;
/// host.make_ascii_uppercase();
/// assert_eq!(host, b"EXAMPLE.ORG");
/// let limits: &mut [u64] = arena.copy_slice(&[8, 16])?;
/// limits[0] += 1;
/// arena.reset();
/// # Ok::<(), millpond_mempool::PoolError>(())
/// ```
pub struct Arena {
    name: &'static str,
    mode: PoolMode,
    /// Invariant: `room_start..room_end` is the part of the newest chunk that is not lent; both are null without one.
    room_start: Cell<*mut u8>,
    room_end: Cell<*mut u8>,
    /// Chunks lent from since the reset, then spare ones, then slices straight from malloc.
    chunks: HeaderList,
    spare_chunks: HeaderList,
    direct: HeaderList,
    /// The fewest spare chunks since the last sweep: these were unused.
    spare_min: Cell<usize>,
    budget: Cell<Budget>,
    /// Checked memory gives every slice a block of its own, without a header to be overwritten.
    memory: DirectMemory,
    books: Cell<Books>,
}

/// Counters of the arena. `live`, `tail` and `direct` are since the reset.
#[derive(Clone, Copy, Default)]
struct Books {
    live_count: usize,
    live_bytes: usize,
    /// Ends of full chunks, and gaps before aligned slices.
    tail_bytes: usize,
    high_water_bytes: usize,
    hits: u64,
    misses: u64,
}

impl Arena {
    /// An empty arena without memory and without a limit.
    #[must_use]
    pub const fn new(name: &'static str, mode: PoolMode) -> Self {
        Self::with_budget(name, mode, usize::MAX)
    }

    /// An empty arena whose `reserved_bytes` never pass `limit_bytes`. Before it refuses, it gives
    /// its spare chunks back.
    #[must_use]
    pub const fn with_budget(name: &'static str, mode: PoolMode, limit_bytes: usize) -> Self {
        const NO_ENTRIES: Books = Books {
            live_count: 0,
            live_bytes: 0,
            tail_bytes: 0,
            high_water_bytes: 0,
            hits: 0,
            misses: 0,
        };
        Self {
            name,
            mode,
            room_start: Cell::new(ptr::null_mut()),
            room_end: Cell::new(ptr::null_mut()),
            chunks: HeaderList::new(),
            spare_chunks: HeaderList::new(),
            direct: HeaderList::new(),
            spare_min: Cell::new(0),
            budget: Cell::new(Budget::new(limit_bytes)),
            memory: DirectMemory::new(name, mode),
            books: Cell::new(NO_ENTRIES),
        }
    }

    /// `len` zeroed bytes, without alignment. An addition and the zeroing; one malloc for every
    /// 4 KiB of growth, over 1 KiB, or with pools off. No memory at all for `len` 0.
    #[inline]
    pub fn alloc_slice(&self, len: usize) -> Result<&mut [u8], PoolError> {
        self.zeroed(len, NonZeroUsize::MIN)
    }

    /// As [`alloc_slice`](Self::alloc_slice), beginning at a multiple of `align_bytes`. The gap
    /// before it is waste; aligned to more than 1 KiB it is one malloc.
    ///
    /// # Panics
    /// When `align_bytes` is no power of two.
    #[inline]
    pub fn alloc_slice_aligned(
        &self,
        len: usize,
        align_bytes: usize,
    ) -> Result<&mut [u8], PoolError> {
        let align = NonZeroUsize::new(align_bytes).filter(|align| align.is_power_of_two());
        self.zeroed(len, align.expect("an alignment is a power of two"))
    }

    #[inline]
    #[expect(clippy::mut_from_ref, reason = "slices never overlap; see SAFETY")]
    fn zeroed(&self, len: usize, align: NonZeroUsize) -> Result<&mut [u8], PoolError> {
        let start = self.lend(len, align)?;
        // SAFETY: `lend` lends `len` writable bytes once until `reset`, which needs `&mut self` and so outlasts the
        // borrow; they are initialised before they are a slice.
        unsafe {
            start.write_bytes(0, len);
            Ok(slice::from_raw_parts_mut(start.as_ptr(), len))
        }
    }

    /// A copy of `source`, so that no slice ever shows an earlier request's bytes. Costs the copy
    /// and what [`alloc_slice`](Self::alloc_slice) costs.
    #[inline]
    pub fn copy_in(&self, source: &[u8]) -> Result<&mut [u8], PoolError> {
        self.copy_slice(source)
    }

    /// A copy of `source`, aligned for its elements.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "slices never overlap; see SAFETY")]
    pub fn copy_slice<T: Copy>(&self, source: &[T]) -> Result<&mut [T], PoolError> {
        let start = self.lend_for(Layout::for_value(source))?.cast::<T>();
        // SAFETY: as in `zeroed`; fresh bytes cannot overlap `source`, whose layout they have.
        unsafe {
            ptr::copy_nonoverlapping(source.as_ptr(), start.as_ptr(), source.len());
            Ok(slice::from_raw_parts_mut(start.as_ptr(), source.len()))
        }
    }

    /// `value`, moved in. It is never dropped, which the bound requires.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "slices never overlap; see SAFETY")]
    pub fn alloc<T: Copy>(&self, value: T) -> Result<&mut T, PoolError> {
        let start = self.lend_for(Layout::new::<T>())?.cast::<T>();
        // SAFETY: as in `zeroed`; the bytes have the layout of `T`.
        unsafe {
            start.write(value);
            Ok(&mut *start.as_ptr())
        }
    }

    #[inline]
    fn lend_for(&self, layout: Layout) -> Result<NonNull<u8>, PoolError> {
        let align = NonZeroUsize::new(layout.align()).unwrap_or(NonZeroUsize::MIN);
        self.lend(layout.size(), align)
    }

    /// Frees everything lent. The chunks stay for the next request; [`trim`](Self::trim) gives back
    /// those that none needs. O(1) while one chunk is enough.
    #[inline]
    pub fn reset(&mut self) {
        if self.books.get().live_count > 0 {
            self.reset_lent();
        }
    }

    fn reset_lent(&mut self) {
        if self.memory.checked().is_some() {
            return self.reset_checked();
        }
        while !self.direct.is_empty() {
            // SAFETY: slices lent from it borrow the arena, which is borrowed mutably here.
            unsafe { self.free_newest(&self.direct) };
        }
        // The first chunk stays the one to lend from: its lines are the likeliest in the cache.
        while self.chunks.len() > 1 {
            self.spare_chunks.move_newest_from(&self.chunks);
        }
        if let Some(first) = self.chunks.newest() {
            self.set_room(first);
        }
        self.forget_lent();
    }

    /// In checked mode there are no chunks, and all slices go back together.
    #[cold]
    fn reset_checked(&mut self) {
        let found = self.free_checked();
        self.forget_lent();
        heap::report(found.as_ref());
    }

    /// Takes checked slices back; the fault found in or beside one.
    fn free_checked(&mut self) -> Option<Violation> {
        let memory = self.memory.checked()?;
        self.give_back_to_budget(self.books.get().live_bytes);
        // SAFETY: slices borrow the arena, which is borrowed mutably here.
        unsafe { memory.free_all_quietly() }
    }

    #[inline]
    fn forget_lent(&self) {
        self.books.set(Books {
            live_count: 0,
            live_bytes: 0,
            tail_bytes: 0,
            ..self.books.get()
        });
    }

    /// Gives back half (rounded up) of the chunks that no request needed since the last call, but never the first;
    /// returns how many bytes. Call it about once a second: idle memory halves each time, used memory stays.
    pub fn trim(&mut self) -> usize {
        let checked_bytes = self.memory.trim();
        let leaving_count = self.spare_min.get().div_ceil(2);
        for _ in 0..leaving_count {
            // SAFETY: nothing is lent from a spare chunk.
            unsafe { self.free_newest(&self.spare_chunks) };
        }
        self.spare_min.set(self.spare_chunks.len());
        checked_bytes + leaving_count * ARENA_CHUNK_BYTES
    }

    /// In [`PoolMode::Checked`] checks all memory of the arena for invalid writes. Nothing in other modes. O(slices).
    ///
    /// # Panics
    /// When it finds such a place.
    pub fn verify(&self) {
        self.memory.verify();
    }

    /// Current numbers of the arena. O(1).
    pub fn stats(&self) -> PoolStats {
        let books = self.books.get();
        let room_bytes = self.room_end.get().addr() - self.room_start.get().addr();
        let spare_bytes = self.spare_chunks.len() * (ARENA_CHUNK_BYTES - HEADER_BYTES);
        let header_count = self.chunks.len() + self.spare_chunks.len() + self.direct.len();
        PoolStats {
            name: self.name,
            kind: "arena",
            mode: self.mode,
            live_objects: books.live_count as u64,
            live_bytes: books.live_bytes as u64,
            cached_bytes: (room_bytes + spare_bytes) as u64,
            waste_bytes: (header_count * HEADER_BYTES + books.tail_bytes) as u64,
            reserved_bytes: self.budget.get().reserved_bytes() as u64,
            high_water_bytes: books.high_water_bytes as u64,
            hits: books.hits,
            misses: books.misses,
            remote_frees: 0,
        }
        .with_memory_of(&self.memory)
        .checked()
    }

    /// `len` bytes that stay the caller's until `reset`. Content undefined.
    #[inline]
    fn lend(&self, len: usize, align: NonZeroUsize) -> Result<NonNull<u8>, PoolError> {
        let start = self.room_start.get();
        let room_bytes = self.room_end.get().addr() - start.addr();
        let gap_bytes = gap_before(start, align);
        let is_chunked = self.mode.pools_arenas()
            && len <= CHUNKED_BYTES_MAX
            && align.get() <= CHUNKED_BYTES_MAX;
        let fits = is_chunked && gap_bytes + len <= room_bytes && len > 0;
        match NonNull::new(start) {
            Some(start) if fits => {
                // SAFETY: `gap_bytes + len` bytes from `start` are inside the chunk.
                let start = unsafe {
                    let start = start.add(gap_bytes);
                    self.room_start.set(start.add(len).as_ptr());
                    start
                };
                self.note_lent(len, gap_bytes, true);
                Ok(start)
            }
            _ => self.lend_slow(len, align, is_chunked),
        }
    }

    #[cold]
    fn lend_slow(
        &self,
        len: usize,
        align: NonZeroUsize,
        is_chunked: bool,
    ) -> Result<NonNull<u8>, PoolError> {
        if len == 0 {
            return Ok(NonNull::without_provenance(align));
        }
        if !is_chunked {
            return self.lend_direct(len, align);
        }
        let tail_bytes = self.room_end.get().addr() - self.room_start.get().addr();
        let is_hit = !self.spare_chunks.is_empty();
        let chunk = if is_hit {
            let chunk = self.chunks.move_newest_from(&self.spare_chunks);
            let spare_min = self.spare_min.get().min(self.spare_chunks.len());
            self.spare_min.set(spare_min);
            chunk
        } else {
            self.reserve(&self.chunks, ARENA_CHUNK_BYTES)?
        };
        self.set_room(chunk);
        let start = self.room_start.get();
        let gap_bytes = gap_before(start, align);
        // SAFETY: both are at most CHUNKED_BYTES_MAX, a quarter of a fresh chunk, whose room is not
        // at null.
        let start = unsafe {
            let start = start.add(gap_bytes);
            self.room_start.set(start.add(len));
            NonNull::new_unchecked(start)
        };
        self.note_lent(len, tail_bytes + gap_bytes, is_hit);
        Ok(start)
    }

    /// A slice straight from malloc, which aligns to 16, or from checked memory.
    fn lend_direct(&self, len: usize, align: NonZeroUsize) -> Result<NonNull<u8>, PoolError> {
        if let Some(memory) = self.memory.checked() {
            self.take_from_budget(len)?;
            let start = memory
                .allocate(len, align.get())
                .inspect_err(|_| self.give_back_to_budget(len))?;
            self.note_lent(len, 0, false);
            return Ok(start);
        }
        let around_bytes = HEADER_BYTES + align.get().saturating_sub(align_of::<Header>());
        let size_bytes = len.checked_add(around_bytes);
        let header = self.reserve(
            &self.direct,
            size_bytes.ok_or(PoolError::OutOfMemory {
                requested_bytes: len,
            })?,
        )?;
        self.note_lent(len, around_bytes - HEADER_BYTES, false);
        // SAFETY: `len` bytes follow the header, and so many more that an aligned place for them is
        // among all of these.
        unsafe {
            let start = header.add(1).cast::<u8>();
            Ok(start.add(gap_before(start.as_ptr(), align)))
        }
    }

    /// One malloc, put on the list.
    fn reserve(&self, list: &HeaderList, size_bytes: usize) -> Result<NonNull<Header>, PoolError> {
        let mut taken = self.take_from_budget(size_bytes);
        while taken.is_err() && !self.spare_chunks.is_empty() {
            // SAFETY: nothing is lent from a spare chunk.
            unsafe { self.free_newest(&self.spare_chunks) };
            self.spare_min.set(self.spare_chunks.len());
            taken = self.take_from_budget(size_bytes);
        }
        taken?;
        let header = heap::allocate(size_bytes)
            .inspect_err(|_| self.give_back_to_budget(size_bytes))?
            .cast::<Header>();
        // SAFETY: fresh memory from `heap::allocate(size_bytes)`, larger than a header.
        unsafe { list.push_fresh(header, size_bytes) };
        Ok(header)
    }

    /// One free.
    ///
    /// # Safety
    /// The list belongs to the arena, is not empty, and no slice of its newest piece is in use.
    unsafe fn free_newest(&self, list: &HeaderList) {
        // SAFETY: the caller's promise.
        let bytes = unsafe { list.free_newest() };
        self.give_back_to_budget(bytes);
    }

    fn take_from_budget(&self, bytes: usize) -> Result<(), PoolError> {
        let mut budget = self.budget.get();
        budget.take(bytes)?;
        self.budget.set(budget);
        Ok(())
    }

    fn give_back_to_budget(&self, bytes: usize) {
        let mut budget = self.budget.get();
        budget.give_back(bytes);
        self.budget.set(budget);
    }

    /// Lends from the beginning of this chunk from now on.
    fn set_room(&self, chunk: NonNull<Header>) {
        // SAFETY: a chunk is ARENA_CHUNK_BYTES long and begins with its header.
        unsafe {
            self.room_start.set(chunk.add(1).cast::<u8>().as_ptr());
            self.room_end
                .set(chunk.cast::<u8>().add(ARENA_CHUNK_BYTES).as_ptr());
        }
    }

    #[inline]
    fn note_lent(&self, len: usize, tail_bytes: usize, is_hit: bool) {
        let mut books = self.books.get();
        books.live_count += 1;
        books.live_bytes += len;
        books.tail_bytes += tail_bytes;
        books.high_water_bytes = books.high_water_bytes.max(books.live_bytes);
        books.hits += u64::from(is_hit);
        books.misses += u64::from(!is_hit);
        self.books.set(books);
    }
}

impl Drop for Arena {
    /// Checks the lent memory, as a reset does: it cannot be in use any more.
    fn drop(&mut self) {
        if let Some(violation) = self.free_checked()
            && !std::thread::panicking()
        {
            heap::report(Some(&violation));
        }
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Arena").field(&self.stats()).finish()
    }
}

/// Pieces of memory from `heap`, each begun by its header. Frees them when dropped.
/// Invariant: every listed header begins `size_bytes` from `heap::allocate`, on no other list.
struct HeaderList {
    newest: Cell<Option<NonNull<Header>>>,
    len: Cell<usize>,
}

impl HeaderList {
    const fn new() -> Self {
        Self {
            newest: Cell::new(None),
            len: Cell::new(0),
        }
    }

    fn len(&self) -> usize {
        self.len.get()
    }

    fn is_empty(&self) -> bool {
        self.len.get() == 0
    }

    fn newest(&self) -> Option<NonNull<Header>> {
        self.newest.get()
    }

    /// # Safety
    /// `piece` is fresh from `heap::allocate(size_bytes)`, which is at least `HEADER_BYTES`.
    unsafe fn push_fresh(&self, piece: NonNull<Header>, size_bytes: usize) {
        // SAFETY: by the caller's promise there is room for a header.
        unsafe {
            piece.write(Header {
                next: self.newest.get(),
                size_bytes,
            });
        };
        self.newest.set(Some(piece));
        self.len.set(self.len.get() + 1);
    }

    fn pop(&self) -> Option<NonNull<Header>> {
        let piece = self.newest.get()?;
        // SAFETY: a listed piece begins with its header; lent bytes begin behind it.
        self.newest.set(unsafe { piece.as_ref() }.next);
        self.len.set(self.len.get() - 1);
        Some(piece)
    }

    /// Moves the newest piece of `other` here.
    fn move_newest_from(&self, other: &Self) -> NonNull<Header> {
        let piece = other
            .pop()
            .expect("moved only from lists that are not empty");
        // SAFETY: it was listed, so it is as `heap::allocate` gave it, and is on no list now.
        unsafe { self.push_fresh(piece, piece.as_ref().size_bytes) };
        piece
    }

    /// One free; returns how many bytes.
    ///
    /// # Safety
    /// No slice of the newest piece is in use.
    unsafe fn free_newest(&self) -> usize {
        let piece = self
            .pop()
            .expect("freed only from lists that are not empty");
        // SAFETY: a listed piece is `size_bytes` from `heap::allocate`; it is on no list any more,
        // and unused by the caller's promise.
        unsafe {
            let size_bytes = piece.as_ref().size_bytes;
            heap::free(piece.cast(), size_bytes);
            size_bytes
        }
    }
}

impl Drop for HeaderList {
    fn drop(&mut self) {
        while !self.is_empty() {
            // SAFETY: slices borrow the arena, which is being dropped.
            unsafe { self.free_newest() };
        }
    }
}

/// Bytes from `start` to the next multiple of `align`.
#[inline]
fn gap_before(start: *const u8, align: NonZeroUsize) -> usize {
    start.addr().wrapping_neg() & (align.get() - 1)
}
