//! Newest-first list of free blocks, linked through the blocks themselves.
//!
//! On the path: `block_class` pops to allocate and pushes to free. Newest first, because that
//! block's lines are most likely still in the cache.
#![allow(unsafe_code)]
use std::ptr::NonNull;

/// What a free block's first bytes hold.
struct Link {
    next: Option<NonNull<Link>>,
}

/// Free blocks of one size, newest first.
/// Invariant: every listed block is at least 16 bytes, 16-aligned, writable, and lent to nobody;
/// there are at most `u32::MAX`.
pub(crate) struct FreeList {
    newest: Option<NonNull<Link>>,
    /// 32 bits wide, so that the compiler cannot update it together with a 64-bit count beside it:
    /// loading both at once right after one was stored stalls the processor.
    len: u32,
}

impl FreeList {
    /// A list without blocks.
    pub(crate) const fn new() -> Self {
        Self {
            newest: None,
            len: 0,
        }
    }

    /// Blocks in the list.
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.len as usize
    }

    /// Adds a block. One store into it.
    ///
    /// # Safety
    /// The block fulfils the list's invariant until it is popped or removed.
    #[inline]
    pub(crate) unsafe fn push(&mut self, block: NonNull<u8>) {
        let link = block.cast::<Link>();
        // SAFETY: by the caller's promise the block is writable, aligned, large enough and unused.
        unsafe { link.write(Link { next: self.newest }) };
        self.newest = Some(link);
        self.len += 1;
    }

    /// Takes the newest block. One load from it.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<NonNull<u8>> {
        let link = self.newest?;
        // SAFETY: a listed block begins with the link `push` or `retain` wrote.
        self.newest = unsafe { link.as_ref() }.next;
        self.len -= 1;
        Some(link.cast())
    }

    /// Shows every block, newest first.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(NonNull<u8>)) {
        let mut next = self.newest;
        while let Some(link) = next {
            visit(link.cast());
            // SAFETY: as in `pop`; `visit` gets an address and no right to write through it.
            next = unsafe { link.as_ref() }.next;
        }
    }

    /// Removes the blocks for which `keep` says no; the others stay in their order.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(NonNull<u8>) -> bool) {
        let mut next = self.newest.take();
        let mut kept_last: Option<NonNull<Link>> = None;
        self.len = 0;
        while let Some(link) = next {
            // SAFETY: as in `pop`.
            next = unsafe { link.as_ref() }.next;
            if !keep(link.cast()) {
                continue;
            }
            match kept_last {
                None => self.newest = Some(link),
                // SAFETY: `kept_last` is still a listed block, so its link may be written.
                Some(last) => unsafe { last.write(Link { next: Some(link) }) },
            }
            kept_last = Some(link);
            self.len += 1;
        }
        if let Some(last) = kept_last {
            // SAFETY: as above.
            unsafe { last.write(Link { next: None }) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(16))]
    struct Cell(#[expect(dead_code, reason = "only its bytes are used")] [u8; 64]);

    /// Goal: last in, first out, and `retain` keeps order and length wherever the gaps are.
    #[test]
    fn newest_first_and_retain_keeps_order() {
        for pattern in 0_u32..32 {
            let mut cells: Vec<Cell> = (0..5).map(|_| Cell([0; 64])).collect();
            let blocks: Vec<NonNull<u8>> = cells
                .iter_mut()
                .map(|cell| NonNull::from(cell).cast())
                .collect();
            let mut list = FreeList::new();
            for block in &blocks {
                // SAFETY: the cells outlive the list and are touched by nobody else.
                unsafe { list.push(*block) };
            }
            let kept = |block: &NonNull<u8>| {
                let index = blocks.iter().position(|known| known == block).unwrap();
                pattern >> index & 1 == 1
            };
            list.retain(|block| kept(&block));
            let expected: Vec<NonNull<u8>> = blocks.iter().rev().copied().filter(kept).collect();
            let mut seen = Vec::new();
            list.for_each(|block| seen.push(block));
            assert_eq!(seen, expected);
            assert_eq!(list.len(), expected.len());
            let popped: Vec<NonNull<u8>> = std::iter::from_fn(|| list.pop()).collect();
            assert_eq!(popped, expected);
            assert_eq!(list.len(), 0);
        }
    }
}
