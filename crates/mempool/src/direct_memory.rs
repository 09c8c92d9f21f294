//! Where a pool takes what it does not keep itself: malloc, or memory that is checked.
//!
//! On the path: blocks and objects too large for a class, and with pools off all of them, are one
//! call of this and one back; in checked mode all of them are.
//! Absent on purpose: counting. The owner counts, which another thread that frees is not.
#![allow(unsafe_code)]
use crate::checked_memory::{CheckedFigures, CheckedMemory};
use crate::violation::{Violation, panic_with};
use crate::{PoolError, PoolMode, heap};
use std::alloc::Layout;
use std::ptr::NonNull;

/// A source of memory that any thread may give back to.
pub(crate) enum DirectMemory {
    Heap,
    Checked(CheckedMemory),
}

/// What became of a free. The pool counts what was freed, then reports.
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
    /// What a pool of that mode takes from.
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
            Self::Heap => heap::allocate_aligned(size_bytes, align_bytes),
            Self::Checked(memory) => memory.allocate(size_bytes, align_bytes),
        }
    }

    /// Takes memory back.
    ///
    /// # Safety
    /// `allocate` gave `start` with the same numbers, and nobody uses it any more. Checked memory
    /// catches who breaks the former.
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
            Self::Heap => heap::allocate_layout(layout),
            Self::Checked(memory) => memory.allocate(layout.size(), layout.align()),
        }
    }

    /// As [`free`](Self::free).
    ///
    /// # Safety
    /// `allocate_layout` gave `start` for the same layout, and nobody uses it any more. Checked
    /// memory catches who breaks the former.
    #[inline]
    pub(crate) unsafe fn free_layout(&self, start: NonNull<u8>, layout: Layout) -> Freed {
        let size_bytes = layout.size();
        match self {
            Self::Heap => {
                // SAFETY: the caller's promise.
                unsafe { heap::free_layout(start, layout) };
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

    /// Looks at all of it, where it is checked.
    pub(crate) fn verify(&self) {
        if let Self::Checked(memory) = self {
            memory.verify();
        }
    }

    /// The same, and gives back what is idle; returns how many bytes.
    pub(crate) fn trim(&self) -> usize {
        self.checked().map_or(0, CheckedMemory::trim)
    }

    /// What it holds, where it is checked and knows that.
    pub(crate) fn figures(&self) -> Option<CheckedFigures> {
        match self {
            Self::Heap => None,
            Self::Checked(memory) => Some(memory.figures()),
        }
    }
}
