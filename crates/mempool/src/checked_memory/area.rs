//! What a block lies in: a slot of a shared chunk, or pages of its own.
#![allow(unsafe_code)]
use super::page_run::PageRun;
use super::poison;
use std::ptr::NonNull;

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

    /// Whether stray accesses fault once the block is freed, so that there is nothing to look for.
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
            self.bytes().0.write_bytes(poison::CANARY, front_bytes);
            block.write_bytes(poison::FRESH, size_bytes);
            behind.write_bytes(poison::CANARY, behind_bytes);
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
            let after = poison::first_change(behind, behind_bytes, poison::CANARY);
            let before = poison::last_change(front, front_bytes, poison::CANARY);
            if after.is_some() || before.is_some() {
                front.write_bytes(poison::CANARY, front_bytes);
                behind.write_bytes(poison::CANARY, behind_bytes);
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
    /// Nobody uses the block any more.
    pub(super) unsafe fn poison(&self) {
        let (start, len) = self.bytes();
        // SAFETY: the caller's promise.
        unsafe { start.write_bytes(poison::FREED, len) };
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
            let offset = poison::first_change(start, len, poison::FREED)?;
            start.write_bytes(poison::FREED, len);
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
