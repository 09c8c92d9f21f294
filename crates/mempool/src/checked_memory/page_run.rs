//! A block on pages of its own: one too large for a slot, and with guard pages every block.
//!
//! ```text
//!   guard page | data pages: front canary, block, rear canary | guard page
//! ```
//! The block lies as far back as its alignment allows, so that the first byte behind it is, but for less than the
//! alignment, the guard page's first. When it is freed its data pages become inaccessible like the guard pages: an
//! access faults at once. Without guards the pages on either side belong to other owners, and freed data pages are
//! poisoned like other blocks. There is no handler for the fault: a debugger or the core file shows the instruction,
//! and a library should not handle the process's signals.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{ptr, slice};

use crate::chunk::{CHUNK_BYTES, Chunk};
use crate::pages::Access;
use crate::violation::Origin;
use crate::{Checks, PoolError, pages};

use super::books::Books;

/// The pages of one block. The holder of the only copy releases it.
/// Invariant: `data_bytes` from `data` are inside the `mapped_bytes` from `mapped`.
#[derive(Clone, Copy)]
pub(super) struct PageRun {
    mapped: NonNull<u8>,
    mapped_bytes: usize,
    data: NonNull<u8>,
    data_bytes: usize,
    pub(super) is_guarded: bool,
}

/// How many bytes of canary a block has at least on either side of it, guard pages or not.
pub(super) const CANARY_BYTES_MIN: usize = 16;

impl PageRun {
    /// Pages for `size_bytes` at a multiple of `align_bytes`, a power of two; returns the block's
    /// first byte too. Two system calls. The data pages are zero.
    pub(super) fn map(
        size_bytes: usize,
        align_bytes: usize,
        is_guarded: bool,
    ) -> Result<(Self, NonNull<u8>), PoolError> {
        let refused = PoolError::OutOfMemory {
            requested_bytes: size_bytes,
        };
        let page_bytes = rustix::param::page_size();
        let guard_bytes = if is_guarded { page_bytes } else { 0 };
        let behind_bytes = if is_guarded { 0 } else { CANARY_BYTES_MIN };
        // Moving the block forward to its alignment costs less than `align_bytes`.
        let mapped_bytes = size_bytes
            .checked_add(align_bytes)
            .and_then(|bytes| bytes.checked_add(CANARY_BYTES_MIN + behind_bytes))
            .and_then(|bytes| bytes.checked_next_multiple_of(page_bytes))
            .and_then(|bytes| bytes.checked_add(2 * guard_bytes))
            .ok_or(refused)?;
        let mapped = pages::map(mapped_bytes, Access::None).ok_or(refused)?;
        let mapped_start = mapped.addr().get();
        let data_end = mapped_start + mapped_bytes - guard_bytes;
        let block = (data_end - behind_bytes - size_bytes) & !(align_bytes - 1);
        let data_start = (block - CANARY_BYTES_MIN) & !(page_bytes - 1);
        debug_assert!(data_start >= mapped_start + guard_bytes);
        // SAFETY: both addresses were computed to lie inside the mapping.
        let (data, block) = unsafe {
            (
                mapped.add(data_start - mapped_start),
                mapped.add(block - mapped_start),
            )
        };
        let run = Self {
            mapped,
            mapped_bytes,
            data,
            data_bytes: data_end - data_start,
            is_guarded,
        };
        match run.protect(Access::Full) {
            true => Ok((run, block)),
            false => {
                // SAFETY: mapped above and not handed out.
                unsafe { run.release() };
                Err(refused)
            }
        }
    }

    /// The pages that hold the block and its canaries.
    pub(super) fn data(&self) -> (NonNull<u8>, usize) {
        (self.data, self.data_bytes)
    }

    /// Bytes reserved.
    pub(super) fn mapped_bytes(&self) -> usize {
        self.mapped_bytes
    }

    /// Makes the data pages inaccessible and gives their memory back. Returns whether the kernel did: it has a limit on
    /// the number of mappings.
    ///
    /// # Safety
    /// The block is not used any more.
    pub(super) unsafe fn forbid(&self) -> bool {
        if !self.protect(Access::None) {
            return false;
        }
        // SAFETY: the pages are this run's, and what is in them can never be read again. Where the
        // kernel refuses, as for locked memory, they stay, which harms nothing.
        let _ = unsafe { pages::discard(self.data, self.data_bytes) };
        true
    }

    fn protect(&self, access: Access) -> bool {
        // SAFETY: the pages are this run's alone. Access is removed by `forbid`, whose caller promises that there is
        // none.
        unsafe { pages::protect(self.data, self.data_bytes, access) }
    }

    /// Gives everything back to the system.
    ///
    /// # Safety
    /// The block is not used any more, and no other copy of this will be released.
    pub(super) unsafe fn release(self) {
        // SAFETY: the caller's promise; the range is one mapping made in `map`.
        let unmapped = unsafe { pages::unmap(self.mapped, self.mapped_bytes) };
        debug_assert!(unmapped, "the system keeps the pages mapped");
    }

    /// For tests of tables: pages that are not there.
    #[cfg(test)]
    pub(super) fn placeholder(start: NonNull<u8>) -> Self {
        Self {
            mapped: start,
            mapped_bytes: 0,
            data: start,
            data_bytes: 0,
            is_guarded: false,
        }
    }
}

// Where a block is: a slot of a shared chunk, or pages of its own.

/// A slot lent by the slot store.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) start: NonNull<u8>,
    pub(super) bytes: usize,
    /// Which chunk of the store it is of.
    pub(super) chunk_index: u32,
}

/// Where a block and its canaries are.
#[derive(Clone, Copy)]
pub(super) enum Area {
    Slot(Slot),
    Pages(PageRun),
}

impl Area {
    /// The bytes that are the block's and its canaries'.
    pub(super) fn bytes(&self) -> (NonNull<u8>, usize) {
        match self {
            Self::Slot(slot) => (slot.start, slot.bytes),
            Self::Pages(run) => run.data(),
        }
    }

    /// Bytes of the pool's reservation that serve this block.
    pub(super) fn reserved_bytes(&self) -> usize {
        match self {
            Self::Slot(slot) => slot.bytes,
            Self::Pages(run) => run.mapped_bytes(),
        }
    }

    /// Whether stray accesses fault once the block is freed, so that there is nothing to check.
    pub(super) fn is_guarded(&self) -> bool {
        matches!(self, Self::Pages(run) if run.is_guarded)
    }

    /// Whether `address` lies in it.
    pub(super) fn contains(&self, address: usize) -> bool {
        let (start, len) = self.bytes();
        address.wrapping_sub(start.addr().get()) < len
    }

    /// Writes the canaries around a block and the pattern of fresh memory into it.
    ///
    /// # Safety
    /// The area is the pool's alone, and the block lies in it.
    pub(super) unsafe fn prepare(&self, block: NonNull<u8>, size_bytes: usize) {
        let (front_bytes, behind, behind_bytes) = self.beside(block, size_bytes);
        // SAFETY: the three parts make up the area.
        unsafe {
            self.bytes().0.write_bytes(CANARY, front_bytes);
            block.write_bytes(FRESH, size_bytes);
            behind.write_bytes(CANARY, behind_bytes);
        }
    }

    /// The overwritten canary byte nearest to a lent block, counted from its first byte; the one
    /// behind it where there are two. Repairs what it found.
    ///
    /// # Safety
    /// As for [`prepare`](Self::prepare), which came before.
    pub(super) unsafe fn mend_canaries(
        &self,
        block: NonNull<u8>,
        size_bytes: usize,
    ) -> Option<isize> {
        let (front_bytes, behind, behind_bytes) = self.beside(block, size_bytes);
        let front = self.bytes().0;
        // SAFETY: the canaries are the pool's alone; `prepare` initialised them.
        unsafe {
            let after = first_change(behind, behind_bytes, CANARY);
            let before = last_change(front, front_bytes, CANARY);
            if after.is_some() || before.is_some() {
                front.write_bytes(CANARY, front_bytes);
                behind.write_bytes(CANARY, behind_bytes);
            }
            match after {
                Some(offset) => Some((size_bytes + offset) as isize),
                None => before.map(|offset| offset as isize - front_bytes as isize),
            }
        }
    }

    /// Poisons the whole area.
    ///
    /// # Safety
    /// The block is not used any more.
    pub(super) unsafe fn poison(&self) {
        let (start, len) = self.bytes();
        // SAFETY: the caller's promise.
        unsafe { start.write_bytes(FREED, len) };
    }

    /// The first byte of a poisoned area that changed, counted from the block's first byte.
    /// Repairs it.
    ///
    /// # Safety
    /// As for [`poison`](Self::poison), which came before.
    pub(super) unsafe fn mend_poison(&self, block: NonNull<u8>) -> Option<isize> {
        let (start, len) = self.bytes();
        // SAFETY: the area is the pool's alone; `poison` initialised it.
        unsafe {
            let offset = first_change(start, len, FREED)?;
            start.write_bytes(FREED, len);
            Some(offset as isize - block.offset_from(start))
        }
    }

    /// Bytes of the area before the block, where those behind it begin, and how many they are.
    fn beside(&self, block: NonNull<u8>, size_bytes: usize) -> (usize, NonNull<u8>, usize) {
        let (start, len) = self.bytes();
        let front_bytes = block.addr().get() - start.addr().get();
        // SAFETY: the block lies in the area, so its end is inside it or one past it.
        let behind = unsafe { block.add(size_bytes) };
        (front_bytes, behind, len - front_bytes - size_bytes)
    }
}

// A vector on memory of its own: the tables of checked memory must not call malloc, which they
// may be checking.

/// Items in a row, in whole mappings.
/// Invariant: the first `len` items' worth of `memory` is initialised.
pub(super) struct MappedVec<T> {
    memory: Option<Chunk>,
    len: usize,
    items: PhantomData<T>,
}

impl<T> MappedVec<T> {
    /// Without memory.
    pub(super) const fn new() -> Self {
        const {
            assert!(size_of::<T>() > 0 && align_of::<T>() <= CHUNK_BYTES);
        }
        Self {
            memory: None,
            len: 0,
            items: PhantomData,
        }
    }

    /// `len` times `item`.
    pub(super) fn filled(item: T, len: usize) -> Result<Self, PoolError>
    where
        T: Copy,
    {
        let mut filled = Self::new();
        filled.grow(len)?;
        for _ in 0..len {
            filled.push(item);
        }
        Ok(filled)
    }

    /// Makes sure that the next `push` finds room.
    pub(super) fn reserve_one(&mut self) -> Result<(), PoolError> {
        if self.len < self.capacity() {
            return Ok(());
        }
        self.grow(self.len.saturating_mul(2).max(1))
    }

    /// Appends an item.
    ///
    /// # Panics
    /// Without room: `reserve_one` before.
    pub(super) fn push(&mut self, item: T) {
        assert!(self.len < self.capacity(), "room is reserved before a push");
        // SAFETY: the place is inside the memory and holds no item.
        unsafe { self.start().add(self.len).write(item) };
        self.len += 1;
    }

    fn capacity(&self) -> usize {
        self.memory.as_ref().map_or(0, Chunk::size_bytes) / size_of::<T>()
    }

    fn grow(&mut self, capacity: usize) -> Result<(), PoolError> {
        let wanted_bytes = capacity.checked_mul(size_of::<T>());
        let size_bytes = wanted_bytes
            .and_then(|bytes| bytes.checked_next_multiple_of(CHUNK_BYTES))
            .ok_or(PoolError::OutOfMemory {
                requested_bytes: usize::MAX,
            })?;
        let memory = Chunk::map_long(size_bytes)?;
        // SAFETY: the new memory is larger, and apart from the old; the items move, and the old
        // memory is unmapped without dropping any.
        unsafe {
            let target = memory.start().as_ptr().cast::<T>();
            ptr::copy_nonoverlapping(self.start().cast_const(), target, self.len);
        }
        self.memory = Some(memory);
        Ok(())
    }

    fn start(&self) -> *mut T {
        match &self.memory {
            Some(memory) => memory.start().as_ptr().cast(),
            None => ptr::dangling_mut(),
        }
    }
}

impl<T> Deref for MappedVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: that many items are initialised, and writing needs `&mut self`.
        unsafe { slice::from_raw_parts(self.start(), self.len) }
    }
}

impl<T> DerefMut for MappedVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: that many items are initialised, and the vector is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.start(), self.len) }
    }
}

impl<T> Drop for MappedVec<T> {
    fn drop(&mut self) {
        // SAFETY: those are the items, each dropped once; the memory goes after them.
        unsafe { ptr::drop_in_place(&raw mut **self) };
    }
}

// All checked memories of the process, so that a pointer given to the wrong one finds its home.
//
// Lock order: the directory, then one memory's books; never the other way round.

/// One checked memory's books, at an address of their own that does not change.
pub(super) struct Entry {
    name: &'static str,
    books: Mutex<Books>,
    /// The neighbours; under the directory's lock.
    next: AtomicPtr<Entry>,
    previous: AtomicPtr<Entry>,
    /// The kind of place.
    memory: Chunk,
}

const _: () = assert!(size_of::<Entry>() <= crate::chunk::CHUNK_BYTES);

/// The first of all entries. Under a lock because entries come and go with their pools.
static FIRST: Mutex<First> = Mutex::new(First(ptr::null_mut()));

struct First(*mut Entry);

// SAFETY: an entry is made of parts that any thread may use, and reached under the lock only.
unsafe impl Send for First {}

impl Entry {
    /// The books, alone with them.
    pub(super) fn books(&self) -> MutexGuard<'_, Books> {
        // A panic under the lock would be a fault of these files; the figures would show it.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The entry in `place`, made now unless another thread was quicker.
pub(super) fn enter<'a>(
    place: &'a AtomicPtr<Entry>,
    name: &'static str,
    checks: Checks,
) -> Result<&'a Entry, PoolError> {
    let mut first = lock();
    let known = place.load(Ordering::Acquire);
    // SAFETY: the holder of the place keeps what it points to until `leave`.
    if let Some(entry) = unsafe { known.as_ref() } {
        return Ok(entry);
    }
    let memory = Chunk::map()?;
    let entry = memory.start().as_ptr().cast::<Entry>();
    // SAFETY: a fresh chunk is large and aligned enough; entries in the list are alive, since
    // `leave` takes them off under the same lock.
    unsafe {
        entry.write(Entry {
            name,
            books: Mutex::new(Books::new(name, checks)),
            next: AtomicPtr::new(first.0),
            previous: AtomicPtr::new(ptr::null_mut()),
            memory,
        });
        if let Some(next) = first.0.as_ref() {
            next.previous.store(entry, Ordering::Relaxed);
        }
        first.0 = entry;
        place.store(entry, Ordering::Release);
        Ok(&*entry)
    }
}

/// Takes an entry off the list and frees it.
///
/// # Safety
/// `enter` made it, and it is not used any more.
pub(super) unsafe fn leave(entry: NonNull<Entry>) {
    let mut first = lock();
    // SAFETY: the entry and its neighbours are alive, as in `enter`.
    unsafe {
        let this = entry.as_ref();
        let next = this.next.load(Ordering::Relaxed);
        let previous = this.previous.load(Ordering::Relaxed);
        if let Some(next) = next.as_ref() {
            next.previous.store(previous, Ordering::Relaxed);
        }
        match previous.as_ref() {
            Some(previous) => previous.next.store(next, Ordering::Relaxed),
            None => first.0 = next,
        }
    }
    drop(first);
    // SAFETY: it is not reachable any more. Its memory is unmapped after its other parts are dropped, which lie in it.
    let Entry { books, memory, .. } = unsafe { entry.read() };
    drop(books);
    drop(memory);
}

/// Which checked memory lent the block that `address` lies in. O(all blocks).
pub(super) fn origin_of(address: usize) -> Origin {
    let first = lock();
    let mut next = first.0;
    // SAFETY: as in `enter`.
    while let Some(entry) = unsafe { next.as_ref() } {
        if entry.books().origin_of(address) != Origin::Unknown {
            return Origin::OtherPool { pool: entry.name };
        }
        next = entry.next.load(Ordering::Relaxed);
    }
    Origin::Unknown
}

fn lock() -> MutexGuard<'static, First> {
    // Nothing under the lock panics half-way through a change.
    FIRST.lock().unwrap_or_else(PoisonError::into_inner)
}

// The bytes that distinguish fresh, freed and forbidden memory, and finding the one that changed.
//
// The values are known from other systems' debuggers. None is 0 or a letter, which stray writes mostly are, and none
// forms a valid pointer.

/// Fill of a block when it is lent: reading it before writing is visible.
pub(super) const FRESH: u8 = 0xCD;
/// Fill of a freed block.
pub(super) const FREED: u8 = 0xDD;
/// Fill before and after a lent block.
pub(super) const CANARY: u8 = 0xFD;

/// Offset of the first byte that is not `expected`.
///
/// # Safety
/// `len` bytes from `start` are initialised, readable, and not lent.
pub(super) unsafe fn first_change(start: NonNull<u8>, len: usize, expected: u8) -> Option<usize> {
    // SAFETY: the caller's promise. A program that writes to memory it does not hold races with this read: that is the
    // fault being searched.
    let bytes = unsafe { slice::from_raw_parts(start.as_ptr(), len) };
    // All are the same where each is the same as the next one: one call of the C library's
    // comparison, the quickest there is, and one that Miri has not to interpret.
    let first = bytes.first()?;
    let is_intact = *first == expected && bytes[1..] == bytes[..len - 1];
    if is_intact {
        return None;
    }
    bytes.iter().position(|&byte| byte != expected)
}

/// Offset of the last byte that is not `expected`.
///
/// # Safety
/// As for [`first_change`].
pub(super) unsafe fn last_change(start: NonNull<u8>, len: usize, expected: u8) -> Option<usize> {
    // SAFETY: the caller's promise. The first search is the quick one for memory that is intact.
    unsafe {
        first_change(start, len, expected)?;
        let bytes = slice::from_raw_parts(start.as_ptr(), len);
        bytes.iter().rposition(|&byte| byte != expected)
    }
}

#[cfg(test)]
#[path = "tests/page_run.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/mapped_vec.rs"]
mod mapped_vec_tests;

#[cfg(test)]
#[path = "tests/poison.rs"]
mod poison_tests;
