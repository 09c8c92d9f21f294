//! A block on pages of its own: what is too large for a slot, and with guard pages everything.
//!
//! ```text
//!   guard page | data pages: front canary, block, rear canary | guard page
//! ```
//! The block lies as far back as its alignment allows, so that the first byte behind it is, but for
//! less than the alignment, the guard page's first. When it is freed its data pages become what the
//! guard pages are: whoever touches them faults there and then. Without guards the pages on either
//! side belong to whoever has them, and what was freed is poisoned like all else.
//! Absent on purpose: a handler for the fault. A debugger or the core file shows the instruction,
//! and a library has no business with the process's signals.
#![allow(unsafe_code)]
use crate::PoolError;
use crate::pages::{self, Access};
use std::ptr::NonNull;

/// The pages of one block. Whoever holds the only copy releases it.
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

    /// Makes the data pages untouchable and gives their memory back. Whether the kernel did: it
    /// has a limit on the number of mappings.
    ///
    /// # Safety
    /// Nobody uses the block any more.
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
        // SAFETY: the pages are this run's alone. Taking the right to touch them away is up to
        // `forbid`, whose caller promises that nobody does.
        unsafe { pages::protect(self.data, self.data_bytes, access) }
    }

    /// Gives everything back to the system.
    ///
    /// # Safety
    /// Nobody uses the block any more, and no other copy of this will be released.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: blocks are aligned, usable to the last byte, have their canaries' room, and a guarded
    /// one ends less than its alignment before the guard page.
    #[test]
    fn runs_hold_their_block() {
        let page_bytes = rustix::param::page_size();
        for is_guarded in [false, true] {
            for align_bytes in (0..19).map(|shift| 1 << shift) {
                for size_bytes in [1, 16, 100, page_bytes - 16, page_bytes, 3 * page_bytes + 1] {
                    let (run, block) = PageRun::map(size_bytes, align_bytes, is_guarded).unwrap();
                    let (data, data_bytes) = run.data();
                    let data_start = data.addr().get();
                    let data_end = data_start + data_bytes;
                    let start = block.addr().get();
                    assert!(start.is_multiple_of(align_bytes));
                    assert!(start - data_start >= CANARY_BYTES_MIN);
                    let behind_bytes = data_end - start - size_bytes;
                    if is_guarded {
                        assert!(behind_bytes < align_bytes);
                    } else {
                        assert!(behind_bytes >= CANARY_BYTES_MIN);
                    }
                    // SAFETY: the data pages are this test's.
                    unsafe {
                        data.write_bytes(7, data_bytes);
                        assert_eq!(block.add(size_bytes - 1).read(), 7);
                        run.release();
                    }
                }
            }
        }
        assert!(PageRun::map(usize::MAX - 5, 16, true).is_err());
        assert!(PageRun::map(1 << 62, 16, false).is_err());
    }
}
