//! Newest-first list of free blocks, linked through the blocks themselves.
//!
//! `local_pool` pops to allocate and pushes to free. Newest first, because that block's lines are
//! most likely still in the cache. Counting costs an instruction on every allocate and every free,
//! and only figures and sweeps want it, which walk the list.
#![allow(unsafe_code)]
use std::ptr::NonNull;

/// Content of a free block's first bytes.
struct Link {
    next: Option<NonNull<Link>>,
}

/// Free blocks of one size, newest first. Invariant: every listed block is at least 8 bytes, 8-aligned, writable, and
/// not lent.
pub(crate) struct FreeList {
    newest: Option<NonNull<Link>>,
}

impl FreeList {
    /// A list without blocks.
    pub(crate) const fn new() -> Self {
        Self { newest: None }
    }

    /// Whether there is no block in it.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.newest.is_none()
    }

    /// Adds a block. One store into it.
    ///
    /// # Safety
    /// The block fulfils the list's invariant until it is popped or removed.
    #[inline(always)]
    pub(crate) unsafe fn push(&mut self, block: NonNull<u8>) {
        let link = block.cast::<Link>();
        // SAFETY: by the caller's promise the block is writable, aligned, large enough and unused.
        unsafe { link.write(Link { next: self.newest }) };
        self.newest = Some(link);
    }

    /// Takes the newest block. One load from it.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<NonNull<u8>> {
        let link = self.newest?;
        // SAFETY: a listed block begins with the link `push` wrote.
        self.newest = unsafe { link.as_ref() }.next;
        Some(link.cast())
    }

    /// Takes all blocks out.
    #[inline]
    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new())
    }

    /// Takes all blocks but the newest `keep_count` out, in their order. O(`keep_count`).
    fn split_off(&mut self, keep_count: usize) -> Self {
        let Some(last_kept) = keep_count.checked_sub(1) else {
            return self.take();
        };
        let mut link = self.newest;
        for _ in 0..last_kept {
            // SAFETY: as in `pop`.
            link = link.and_then(|link| unsafe { link.as_ref() }.next);
        }
        let Some(mut last) = link else {
            return Self::new();
        };
        // SAFETY: a listed block's link may be written by the list's holder.
        let newest = unsafe { last.as_mut() }.next.take();
        Self { newest }
    }

    /// Takes up to `count` blocks out after leaving out the newest `skip_count`, which is not 0; the
    /// older ones stay. O(`skip_count` + `count`).
    pub(crate) fn cut_out(&mut self, skip_count: usize, count: usize) -> Self {
        let mut taken = self.split_off(skip_count);
        let rest = taken.split_off(count);
        let mut last = self.newest;
        while let Some(link) = last {
            // SAFETY: as in `pop`, and a listed block's link may be written by the list's holder.
            let next = unsafe { &mut (*link.as_ptr()).next };
            if next.is_none() {
                *next = rest.newest;
                break;
            }
            last = *next;
        }
        taken
    }

    /// How many blocks there are. O(blocks).
    pub(crate) fn count(&self) -> usize {
        self.iter().count()
    }

    /// The blocks, newest first. None may be written to while this runs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = NonNull<u8>> {
        let next = |link: &NonNull<Link>| {
            // SAFETY: as in `pop`.
            unsafe { link.as_ref() }.next
        };
        std::iter::successors(self.newest, next).map(NonNull::cast)
    }
}

#[cfg(test)]
#[path = "tests/free_list.rs"]
mod tests;
