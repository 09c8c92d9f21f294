//! Memory from malloc. The only file that calls it.
//!
//! Requests over 32 KiB, the 4 KiB chunks of `arena`, and with pools off everything. It would turn
//! malloc into aligned_alloc, and with pools off the comparison is against malloc.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;

use crate::checked_memory::{CheckedFigures, CheckedMemory};
use crate::violation::{Violation, panic_with};
use crate::{PoolError, PoolMode};

/// Requests are raised to this: malloc gives no less, and below it would have to be asked for the
/// alignment by another call.
pub(crate) const HEAP_BYTES_MIN: usize = HEAP_ALIGN_BYTES;
const HEAP_ALIGN_BYTES: usize = 16;

/// One malloc of `size_bytes`, which is at least `HEAP_BYTES_MIN`. The content is undefined.
#[inline]
pub(crate) fn allocate(size_bytes: usize) -> Result<NonNull<u8>, PoolError> {
    allocate_aligned(size_bytes, HEAP_ALIGN_BYTES)
}

/// As [`allocate`], at a multiple of `align_bytes`, a power of two of at least 16.
#[inline]
pub(crate) fn allocate_aligned(
    size_bytes: usize,
    align_bytes: usize,
) -> Result<NonNull<u8>, PoolError> {
    assert!(size_bytes >= HEAP_BYTES_MIN && align_bytes >= HEAP_ALIGN_BYTES);
    let layout = Layout::from_size_align(size_bytes, align_bytes);
    allocate_layout(layout.map_err(|_| PoolError::OutOfMemory {
        requested_bytes: size_bytes,
    })?)
}

/// One malloc of exactly that layout, whose size is not 0.
#[inline]
pub(crate) fn allocate_layout(layout: Layout) -> Result<NonNull<u8>, PoolError> {
    assert!(layout.size() > 0);
    // SAFETY: the layout's size is not 0.
    NonNull::new(unsafe { alloc(layout) }).ok_or(PoolError::OutOfMemory {
        requested_bytes: layout.size(),
    })
}

/// One free.
///
/// # Safety
/// `start` came from [`allocate`] with the same `size_bytes`, and is not used again.
#[inline]
pub(crate) unsafe fn free(start: NonNull<u8>, size_bytes: usize) {
    // SAFETY: the caller's promise, of the numbers that `allocate` passed on.
    unsafe { free_aligned(start, size_bytes, HEAP_ALIGN_BYTES) };
}

/// One free.
///
/// # Safety
/// `start` came from [`allocate_aligned`] with the same numbers, and is not used again.
#[inline]
pub(crate) unsafe fn free_aligned(start: NonNull<u8>, size_bytes: usize, align_bytes: usize) {
    // SAFETY: the same layout passed the checks of `allocate_aligned`; the rest is the caller's
    // promise.
    unsafe {
        let layout = Layout::from_size_align_unchecked(size_bytes, align_bytes);
        free_layout(start, layout);
    }
}

/// One free.
///
/// # Safety
/// `start` came from [`allocate_layout`] with the same layout, and is not used again.
#[inline]
pub(crate) unsafe fn free_layout(start: NonNull<u8>, layout: Layout) {
    // SAFETY: the caller's promise.
    unsafe { dealloc(start.as_ptr(), layout) };
}

/// From here on malloc maps every block of `size_bytes` or more separately and unmaps it when it is freed.
///
/// By default glibc keeps the first such block that is freed, and each thread's arena the next ones of that
/// size: for what a program holds now and then on many threads that is many times what it holds. A block
/// costs two system calls and a fault for each page then. Nothing where malloc is not glibc's.
pub fn map_large_blocks(size_bytes: u32) {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer; malloc reads the threshold without a lock, and any value is allowed. A result of 0
    // means that the default stays, which only costs memory.
    unsafe {
        libc::mallopt(
            libc::M_MMAP_THRESHOLD,
            size_bytes.min(i32::MAX as u32) as i32,
        );
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = size_bytes;
}

/// Bytes of malloc's free memory, all threads' arenas together, whether they have pages or not. Visits each free block,
/// under the arenas' locks. 0 if malloc is not glibc's.
pub fn free_heap_bytes() -> usize {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer and locks what it walks.
    unsafe {
        libc::mallinfo2().fordblks
    }
    #[cfg(not(target_env = "gnu"))]
    0
}

/// Makes malloc give the pages of its free memory back to the system, all threads' arenas included. It does so by
/// itself only at an arena's end: below one block in use everything stays. Walks all free memory, so call it after much
/// was freed. Does nothing if malloc is not glibc's.
pub fn give_back_free_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer and locks what it walks.
    unsafe {
        libc::malloc_trim(0);
    }
}

// Where a pool takes what it does not keep itself: malloc, or memory that is checked.

/// A source of memory that any thread may give back to.
pub(crate) enum DirectMemory {
    Heap,
    Checked(CheckedMemory),
}

/// Result of a free. The pool counts the freed bytes, then reports.
#[must_use]
pub(crate) struct Freed {
    /// Bytes that were asked for with the block that is now free; none where no block is.
    pub(crate) bytes: Option<usize>,
    pub(crate) violation: Option<Violation>,
}

impl Freed {
    /// Panics where the free broke a rule.
    #[inline(always)]
    pub(crate) fn report(&self) {
        report(self.violation.as_ref());
    }
}

/// Panics where there is something to report.
#[inline(always)]
pub(crate) fn report(violation: Option<&Violation>) {
    if let Some(violation) = violation {
        panic_with(violation);
    }
}

impl DirectMemory {
    /// The source of memory for a pool of that mode.
    pub(crate) const fn new(name: &'static str, mode: PoolMode) -> Self {
        match mode {
            PoolMode::Checked(checks) => {
                Self::Checked(CheckedMemory::new(name, checks, panic_with))
            }
            _ => Self::Heap,
        }
    }

    /// `size_bytes`, at least 16, at a multiple of `align_bytes`, a power of two of at least 16.
    #[inline]
    pub(crate) fn allocate(
        &self,
        size_bytes: usize,
        align_bytes: usize,
    ) -> Result<NonNull<u8>, PoolError> {
        match self {
            Self::Heap => allocate_aligned(size_bytes, align_bytes),
            Self::Checked(memory) => memory.allocate(size_bytes, align_bytes),
        }
    }

    /// Takes memory back.
    ///
    /// # Safety
    /// `allocate` gave `start` with the same numbers, and it is not used any more. Checked memory catches code that
    /// breaks the former.
    #[inline]
    pub(crate) unsafe fn free(
        &self,
        start: NonNull<u8>,
        size_bytes: usize,
        align_bytes: usize,
    ) -> Freed {
        // SAFETY: `allocate` took these numbers, so they make a layout; the rest is the caller's
        // promise.
        unsafe {
            let layout = Layout::from_size_align_unchecked(size_bytes, align_bytes);
            self.free_layout(start, layout)
        }
    }

    /// As [`allocate`](Self::allocate), of exactly that layout, whose size is not 0.
    pub(crate) fn allocate_layout(&self, layout: Layout) -> Result<NonNull<u8>, PoolError> {
        match self {
            Self::Heap => allocate_layout(layout),
            Self::Checked(memory) => memory.allocate(layout.size(), layout.align()),
        }
    }

    /// As [`free`](Self::free).
    ///
    /// # Safety
    /// `allocate_layout` gave `start` for the same layout, and it is not used any more. Checked memory catches code
    /// that breaks the former.
    #[inline]
    pub(crate) unsafe fn free_layout(&self, start: NonNull<u8>, layout: Layout) -> Freed {
        let size_bytes = layout.size();
        match self {
            Self::Heap => {
                // SAFETY: the caller's promise.
                unsafe { free_layout(start, layout) };
                Freed {
                    bytes: Some(size_bytes),
                    violation: None,
                }
            }
            // SAFETY: as above.
            Self::Checked(memory) => unsafe { memory.free_quietly(start, Some(size_bytes)) },
        }
    }

    /// The checked memory, where it is that.
    pub(crate) fn checked(&self) -> Option<&CheckedMemory> {
        match self {
            Self::Heap => None,
            Self::Checked(memory) => Some(memory),
        }
    }

    /// Checks all of it, in checked mode.
    pub(crate) fn verify(&self) {
        if let Self::Checked(memory) = self {
            memory.verify();
        }
    }

    /// The same, and gives back what is idle; returns how many bytes.
    pub(crate) fn trim(&self) -> usize {
        self.checked().map_or(0, CheckedMemory::trim)
    }

    /// Its current numbers, in checked mode.
    pub(crate) fn figures(&self) -> Option<CheckedFigures> {
        match self {
            Self::Heap => None,
            Self::Checked(memory) => Some(memory.figures()),
        }
    }
}
