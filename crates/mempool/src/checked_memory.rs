//! Memory that catches what programs do wrong with it: the pools' mode for debugging.
//!
//! A pool in `PoolMode::Checked` takes each of its blocks here and brings it back here, on whatever
//! thread, and so does malloc when it is checked.
//!
//! | fault | how it is seen | when |
//! |---|---|---|
//! | use before initialising | the block is full of 0xCD | by its reader |
//! | write beside the block | canaries of 0xFD on both sides | at its free, and by `verify` |
//! | write after free | poison of 0xDD is not intact | leaving quarantine, reuse, `verify`, drop |
//! | double free, foreign pointer, wrong size | the ledger knows every block | at the free |
//! | any access beyond, or after free, with guard pages | the page is not there | at the access |
//! | memory runs out | `fail_at` refuses one allocation | at the allocation |
//!
//! One lock and no cache: this mode is for finding faults, not for speed. Tables lie on mappings of
//! their own, and a violation can be written without memory.
#![allow(unsafe_code)]
mod page_run;
mod slot_store;
mod books;

pub(crate) use books::CheckedFigures;

use crate::heap::Freed;
use crate::violation::{Origin, Violation};
use crate::{Checks, PoolError};
use books::Refusal;
use page_run::Entry;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Blocks with their checks. Shared by all threads of a pool.
/// Invariant: `entry` is null until the first allocation, then the directory's entry of this
/// memory, which lives as long as this does.
pub(crate) struct CheckedMemory {
    name: &'static str,
    checks: Checks,
    on_violation: fn(&Violation) -> !,
    entry: AtomicPtr<Entry>,
}

impl CheckedMemory {
    /// Without memory. `on_violation` is called with no lock held.
    pub(crate) const fn new(
        name: &'static str,
        checks: Checks,
        on_violation: fn(&Violation) -> !,
    ) -> Self {
        Self {
            name,
            checks,
            on_violation,
            entry: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// A block of `size_bytes` at a multiple of `align_bytes`, which is a power of two; at least of
    /// 16. Full of 0xCD.
    pub(crate) fn allocate(
        &self,
        size_bytes: usize,
        align_bytes: usize,
    ) -> Result<NonNull<u8>, PoolError> {
        assert!(
            align_bytes.is_power_of_two(),
            "alignments are powers of two"
        );
        let allocated = self.entry()?.books().allocate(size_bytes, align_bytes);
        match allocated {
            Ok(start) => Ok(start),
            Err(Refusal::Pool(error)) => Err(error),
            Err(Refusal::Violation(violation)) => self.report(&violation),
        }
    }

    /// Takes a block back. `size_bytes` is what it was asked for with, where that is known.
    /// Whatever else `start` is, is a violation.
    ///
    /// # Safety
    /// If `start` is a block this memory has lent, its holder does not use it any more.
    pub(crate) unsafe fn free(&self, start: NonNull<u8>, size_bytes: Option<usize>) {
        // SAFETY: the caller's promise.
        let freed = unsafe { self.free_quietly(start, size_bytes) };
        if let Some(violation) = freed.violation {
            self.report(&violation);
        }
    }

    /// The same for a caller that has something to count before the violation is reported.
    ///
    /// # Safety
    /// As for [`free`](Self::free).
    pub(crate) unsafe fn free_quietly(
        &self,
        start: NonNull<u8>,
        size_bytes: Option<usize>,
    ) -> Freed {
        let address = start.addr().get();
        let freed = match self.entry_if_any() {
            // SAFETY: the caller's promise.
            Some(entry) => unsafe { entry.books().free(address, size_bytes) },
            None => Freed {
                bytes: None,
                violation: Some(Violation::ForeignPointer {
                    pool: self.name,
                    address,
                    origin: Origin::Unknown,
                }),
            },
        };
        Freed {
            violation: freed.violation.map(|found| self.with_other_pool(found)),
            ..freed
        }
    }

    /// Takes all blocks back at once; the violation found, for a caller that has something to count
    /// before it is reported. O(most blocks ever).
    ///
    /// # Safety
    /// None of them is in use any more.
    pub(crate) unsafe fn free_all_quietly(&self) -> Option<Violation> {
        // SAFETY: the caller's promise.
        unsafe { self.entry_if_any()?.books().free_all() }
    }

    /// A foreign pointer may be at home elsewhere.
    fn with_other_pool(&self, violation: Violation) -> Violation {
        match violation {
            Violation::ForeignPointer {
                pool,
                address,
                origin: Origin::Unknown,
            } => Violation::ForeignPointer {
                pool,
                address,
                origin: page_run::origin_of(address),
            },
            other => other,
        }
    }

    /// Bytes that were asked for with the block at `start`; none where no block is lent.
    pub(crate) fn size_of(&self, start: NonNull<u8>) -> Option<usize> {
        self.entry_if_any()?.books().size_of(start.addr().get())
    }

    /// Checks all canaries and all free memory, now.
    pub(crate) fn verify(&self) {
        if let Some(entry) = self.entry_if_any() {
            let found = entry.books().verify();
            if let Some(violation) = found {
                self.report(&violation);
            }
        }
    }

    /// The sweep of a pool: [`verify`](Self::verify), then returns idle memory to the system; returns how many bytes.
    /// The quarantine stays.
    pub(crate) fn trim(&self) -> usize {
        self.verify();
        self.entry_if_any()
            .map_or(0, |entry| entry.books().release_idle())
    }

    /// Its current numbers.
    pub(crate) fn figures(&self) -> CheckedFigures {
        self.entry_if_any()
            .map_or(CheckedFigures::NONE, |entry| entry.books().figures())
    }

    fn report(&self, violation: &Violation) -> ! {
        (self.on_violation)(violation)
    }

    fn entry_if_any(&self) -> Option<&Entry> {
        // SAFETY: by the invariant it lives as long as `self`. Acquire: the thread that made it is
        // done with that.
        unsafe { self.entry.load(Ordering::Acquire).as_ref() }
    }

    fn entry(&self) -> Result<&Entry, PoolError> {
        match self.entry_if_any() {
            Some(entry) => Ok(entry),
            None => page_run::enter(&self.entry, self.name, self.checks),
        }
    }
}

impl Drop for CheckedMemory {
    /// Checks everything once more, except on a thread that is panicking already. Blocks still lent keep their memory.
    fn drop(&mut self) {
        let found = match self.entry_if_any() {
            Some(entry) if !std::thread::panicking() => entry.books().verify(),
            _ => None,
        };
        if let Some(entry) = NonNull::new(*self.entry.get_mut()) {
            // SAFETY: this is the only holder of the entry, and it forgets it now.
            unsafe { page_run::leave(entry) };
        }
        if let Some(violation) = found {
            self.report(&violation);
        }
    }
}

impl fmt::Debug for CheckedMemory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("CheckedMemory")
            .field("name", &self.name)
            .field("checks", &self.checks)
            .field("figures", &self.figures())
            .finish()
    }
}

#[cfg(test)]
#[path = "checked_memory/tests/faults.rs"]
mod tests;
