//! A block with known contents.
//!
//! Programs that hold many blocks at once write a tag to both ends of each block and check it
//! before they free it, so that an allocator that hands out overlapping memory, or loses what is in
//! it, is caught and not timed.

#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{hint, thread};

use crate::memory::Bytes;

/// Both tags fit: malloc gives no less either.
pub(crate) const TAGGED_BYTES_MIN: usize = 2 * WORD_BYTES;
const WORD_BYTES: usize = size_of::<u64>();
/// The smallest page of any system this runs on.
const PAGE_BYTES: usize = 4096;

/// A block with its tag at the beginning and the tag's complement at the end.
/// Invariant: bytes `..8` and `size_bytes - 8..size_bytes` of the block's room are initialised.
pub(crate) struct Tagged<B> {
    block: B,
    /// Size above, the lower half of the tag below: one word, because a value that is written in
    /// parts and moved as a whole stalls the processor, which is not what is to be timed.
    notes: u64,
}

impl<B: Bytes> Tagged<B> {
    /// Tags a block of at least `size_bytes`, and writes into every page of it, as a program does
    /// that uses what it asked for. Always inlined: passed as an argument, a block of more than two
    /// words would go through the stack, and the passing would be timed.
    #[inline(always)]
    pub(crate) fn new(mut block: B, size_bytes: usize, tag: u64) -> Self {
        let Some(room) = block.room().get_mut(..size_bytes) else {
            damaged(size_bytes);
        };
        for page in room.chunks_mut(PAGE_BYTES).skip(1) {
            if let Some(byte) = page.first_mut() {
                byte.write(0);
            }
        }
        let Some(first) = room.first_chunk_mut::<WORD_BYTES>() else {
            damaged(size_bytes);
        };
        first.write_copy_of_slice(&tag.to_ne_bytes());
        let Some(last) = room.last_chunk_mut::<WORD_BYTES>() else {
            damaged(size_bytes);
        };
        last.write_copy_of_slice(&(!tag).to_ne_bytes());
        Self {
            block,
            notes: (size_bytes as u64) << 32 | u64::from(tag as u32),
        }
    }

    /// Bytes that were asked for.
    #[inline]
    pub(crate) const fn size_bytes(&self) -> usize {
        (self.notes >> 32) as usize
    }

    /// The lower half of the tag, from the holder's own notes.
    #[inline]
    pub(crate) const fn tag_half(&self) -> u32 {
        self.notes as u32
    }

    /// The tag; ends the program if the block no longer holds what was written.
    #[inline(always)]
    pub(crate) fn tag(&mut self) -> u64 {
        match self.whole_tag() {
            Some(tag) => tag,
            None => damaged(self.size_bytes()),
        }
    }

    /// The tag, if both ends have it and it is the noted one.
    #[inline(always)]
    fn whole_tag(&mut self) -> Option<u64> {
        let (size_bytes, tag_half) = (self.size_bytes(), self.tag_half());
        let room = self.block.room().get(..size_bytes)?;
        let (first, last) = (room.first_chunk()?, room.last_chunk()?);
        // SAFETY: by the invariant both words are initialised: `new` wrote them, and only the
        // holder of the block reaches its memory.
        let (first, last) = unsafe { (word(first), word(last)) };
        (first == !last && first as u32 == tag_half).then_some(first)
    }
}

/// Reads a word.
///
/// # Safety
/// All its bytes are initialised.
#[inline(always)]
unsafe fn word(bytes: &[MaybeUninit<u8>; WORD_BYTES]) -> u64 {
    // SAFETY: the caller's promise, for each byte.
    u64::from_ne_bytes(bytes.map(|byte| unsafe { byte.assume_init() }))
}

/// Ends the program: nothing that it measures counts any more. Not a panic, whose way out would
/// have to free the block and therefore keep it in memory instead of registers.
#[cold]
extern "C" fn damaged(size_bytes: usize) -> ! {
    eprintln!("a block of {size_bytes} bytes does not hold what was written into it");
    std::process::abort();
}

// A bounded ring that one thread fills with batches and another empties.

/// Batches that may wait.
const SLOT_COUNT: usize = 16;
/// Polls before a waiting thread yields its CPU.
const SPIN_COUNT: u32 = 64;

/// Slots from `taken` to `given` are full. Each count has one writer.
pub(crate) struct Handover<T> {
    slots: [Mutex<Vec<T>>; SLOT_COUNT],
    given: Padded,
    taken: Padded,
}

/// Two cache lines, as processors fetch them in pairs.
#[repr(align(128))]
struct Padded(AtomicUsize);

impl<T> Handover<T> {
    pub(crate) fn new(batch_count: usize) -> Self {
        Self {
            slots: std::array::from_fn(|_| Mutex::new(Vec::with_capacity(batch_count))),
            given: Padded(AtomicUsize::new(0)),
            taken: Padded(AtomicUsize::new(0)),
        }
    }

    /// Swaps a full batch for an empty one; waits while all slots are full. One thread only.
    pub(crate) fn give(&self, batch: &mut Vec<T>) {
        let given = self.given.0.load(Ordering::Relaxed);
        let mut looks = 0;
        while given - self.taken.0.load(Ordering::Acquire) == SLOT_COUNT {
            wait(&mut looks);
        }
        std::mem::swap(&mut *self.slot(given), batch);
        self.given.0.store(given + 1, Ordering::Release);
    }

    /// Swaps an empty batch for a full one; `on_idle` is called each time there is none. One thread
    /// only.
    pub(crate) fn take(&self, batch: &mut Vec<T>, mut on_idle: impl FnMut()) {
        let taken = self.taken.0.load(Ordering::Relaxed);
        let mut looks = 0;
        while self.given.0.load(Ordering::Acquire) == taken {
            on_idle();
            wait(&mut looks);
        }
        std::mem::swap(&mut *self.slot(taken), batch);
        self.taken.0.store(taken + 1, Ordering::Release);
    }

    fn slot(&self, number: usize) -> MutexGuard<'_, Vec<T>> {
        let slot = &self.slots[number % SLOT_COUNT];
        slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wait(looks: &mut u32) {
    *looks += 1;
    if looks.is_multiple_of(SPIN_COUNT) {
        thread::yield_now();
    } else {
        hint::spin_loop();
    }
}

#[cfg(test)]
#[path = "tests/tagged.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/handover.rs"]
mod handover_tests;
