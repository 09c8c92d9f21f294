//! Memory for blocks of ordinary size: chunks cut into equal slots.
//!
//! A free slot contains only poison, so that a stray write is found even in a slot that left the quarantine; separate
//! tables record which slots are free.
#![allow(unsafe_code)]
use super::page_run;
use super::page_run::MappedVec;
use super::page_run::Slot;
use crate::PoolError;
use crate::chunk::{CHUNK_BYTES, Chunk};
use std::ops::Range;
use std::ptr::NonNull;

/// The largest slot; two fill a chunk.
pub(super) const SLOT_BYTES_MAX: usize = CHUNK_BYTES / 2;
const SLOT_BYTES_MIN: usize = 64;
const STEPS_PER_DOUBLING: usize = 4;
/// Slot sizes: four per doubling, and the smallest.
const SIZE_COUNT: usize =
    1 + STEPS_PER_DOUBLING * (SLOT_BYTES_MAX / SLOT_BYTES_MIN).ilog2() as usize;
const WORDS: usize = CHUNK_BYTES / SLOT_BYTES_MIN / 64;

/// End of a list of chunks.
const NONE: u32 = u32::MAX;

/// A chunk cut into slots, or, without memory, a free place in the table. Invariant: bit `n` of `free` is set if slot
/// `n` is not lent and full of poison.
struct SlotChunk {
    memory: Option<Chunk>,
    slot_bytes: usize,
    free: [u64; WORDS],
    used_count: u32,
    /// The next chunk of the same size with a free slot, or the next free place.
    next: u32,
}

/// A free slot's byte that is not poison any more. The slot has been mended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Damage {
    /// The slot's first byte.
    pub(super) address: usize,
    pub(super) slot_bytes: usize,
    pub(super) offset_bytes: usize,
}

/// Slots of all sizes.
/// Invariant: a chunk is in the list of its size exactly when it has a free slot.
pub(super) struct SlotStore {
    chunks: MappedVec<SlotChunk>,
    with_room: [u32; SIZE_COUNT],
    vacant: u32,
    chunk_count: usize,
    free_bytes: usize,
    tail_bytes: usize,
}

impl SlotStore {
    /// Without memory.
    pub(super) const fn new() -> Self {
        Self {
            chunks: MappedVec::new(),
            with_room: [NONE; SIZE_COUNT],
            vacant: NONE,
            chunk_count: 0,
            free_bytes: 0,
            tail_bytes: 0,
        }
    }

    /// A slot of at least `bytes`, at most `SLOT_BYTES_MAX`, and the damage found in it.
    pub(super) fn take(&mut self, bytes: usize) -> Result<(Slot, Option<Damage>), PoolError> {
        let (size_index, slot_bytes) = size_of_slot(bytes);
        if self.with_room[size_index] == NONE {
            self.add_chunk(size_index, slot_bytes)?;
        }
        let chunk_index = self.with_room[size_index];
        let chunk = &mut self.chunks[chunk_index as usize];
        let index = chunk.lowest_free();
        chunk.free[index / 64] &= !(1 << (index % 64));
        chunk.used_count += 1;
        if chunk.used_count == chunk.slot_count() {
            self.with_room[size_index] = chunk.next;
        }
        self.free_bytes -= slot_bytes;
        let start = chunk.slot_start(index);
        let slot = Slot {
            start,
            bytes: slot_bytes,
            chunk_index,
        };
        // SAFETY: the slot was free, so it is poisoned and exclusive.
        Ok((slot, unsafe { mend_free_slot(start, slot_bytes) }))
    }

    /// Takes a slot back.
    ///
    /// # Safety
    /// `take` lent the slot, it is not used any more, and it is full of poison.
    pub(super) unsafe fn put(&mut self, slot: Slot) {
        let (size_index, _) = size_of_slot(slot.bytes);
        let chunk = &mut self.chunks[slot.chunk_index as usize];
        let index = (slot.start.addr().get() % CHUNK_BYTES) / slot.bytes;
        chunk.free[index / 64] |= 1 << (index % 64);
        if chunk.used_count == chunk.slot_count() {
            chunk.next = self.with_room[size_index];
            self.with_room[size_index] = slot.chunk_index;
        }
        chunk.used_count -= 1;
        self.free_bytes += slot.bytes;
    }

    fn add_chunk(&mut self, size_index: usize, slot_bytes: usize) -> Result<(), PoolError> {
        if self.vacant == NONE {
            if self.chunks.len() >= NONE as usize {
                return Err(PoolError::OutOfMemory {
                    requested_bytes: CHUNK_BYTES,
                });
            }
            self.chunks.reserve_one()?;
        }
        let memory = Chunk::map()?;
        // SAFETY: fresh memory of that size.
        unsafe { memory.start().write_bytes(page_run::FREED, CHUNK_BYTES) };
        let slot_count = CHUNK_BYTES / slot_bytes;
        let chunk = SlotChunk {
            memory: Some(memory),
            slot_bytes,
            free: first_bits(slot_count),
            used_count: 0,
            next: NONE,
        };
        let index = self.vacant;
        if index == NONE {
            self.with_room[size_index] = self.chunks.len() as u32;
            self.chunks.push(chunk);
        } else {
            let place = &mut self.chunks[index as usize];
            self.vacant = place.next;
            *place = chunk;
            self.with_room[size_index] = index;
        }
        self.chunk_count += 1;
        self.free_bytes += slot_count * slot_bytes;
        self.tail_bytes += CHUNK_BYTES - slot_count * slot_bytes;
        Ok(())
    }

    /// Checks every free slot; repairs them all, reports the first damage. O(free bytes).
    pub(super) fn mend_free_slots(&mut self) -> Option<Damage> {
        let mut found = None;
        for chunk in self.chunks.iter().filter(|chunk| chunk.memory.is_some()) {
            let mut from = 0;
            while let Some(run) = chunk.free_run(from) {
                let start = chunk.slot_start(run.start);
                // SAFETY: free slots are poisoned and exclusive.
                let change = unsafe {
                    page_run::first_change(start, run.len() * chunk.slot_bytes, page_run::FREED)
                };
                from = match change {
                    Some(offset_bytes) => run.start + offset_bytes / chunk.slot_bytes,
                    None => run.end,
                };
                if from < run.end {
                    // SAFETY: as above.
                    let damage =
                        unsafe { mend_free_slot(chunk.slot_start(from), chunk.slot_bytes) };
                    found = found.or(damage);
                    from += 1;
                }
            }
        }
        found
    }

    /// Gives chunks without a lent slot back to the system.
    pub(super) fn release_idle(&mut self) {
        self.with_room = [NONE; SIZE_COUNT];
        for index in (0..self.chunks.len()).rev() {
            let chunk = &mut self.chunks[index];
            if chunk.memory.is_none() {
                continue;
            }
            let (size_index, slot_bytes) = size_of_slot(chunk.slot_bytes);
            if chunk.used_count == 0 {
                let slots_bytes = chunk.slot_count() as usize * slot_bytes;
                self.free_bytes -= slots_bytes;
                self.tail_bytes -= CHUNK_BYTES - slots_bytes;
                self.chunk_count -= 1;
                chunk.memory = None;
                chunk.next = self.vacant;
                self.vacant = index as u32;
            } else if chunk.used_count < chunk.slot_count() {
                chunk.next = self.with_room[size_index];
                self.with_room[size_index] = index as u32;
            }
        }
    }

    /// Drops the memory without giving it back: some of it is still in use.
    pub(super) fn forget_lent(&mut self) {
        for chunk in self.chunks.iter_mut().filter(|chunk| chunk.used_count > 0) {
            std::mem::forget(chunk.memory.take());
        }
    }

    /// Whether `address` is in one of the chunks. O(chunks).
    pub(super) fn contains(&self, address: usize) -> bool {
        self.chunks
            .iter()
            .filter_map(|chunk| chunk.memory.as_ref())
            .any(|memory| address.wrapping_sub(memory.start().addr().get()) < CHUNK_BYTES)
    }

    /// Bytes taken from the system.
    pub(super) fn reserved_bytes(&self) -> usize {
        self.chunk_count * CHUNK_BYTES
    }

    /// Bytes of free slots.
    pub(super) fn free_bytes(&self) -> usize {
        self.free_bytes
    }

    /// Bytes at the ends of chunks, too short for a slot.
    pub(super) fn tail_bytes(&self) -> usize {
        self.tail_bytes
    }
}

impl SlotChunk {
    fn slot_count(&self) -> u32 {
        (CHUNK_BYTES / self.slot_bytes) as u32
    }

    fn lowest_free(&self) -> usize {
        let word = self.free.iter().position(|&word| word != 0);
        let word = word.expect("a listed chunk has a free slot");
        word * 64 + self.free[word].trailing_zeros() as usize
    }

    /// The first free slots in a row at or behind slot `from`.
    fn free_run(&self, from: usize) -> Option<Range<usize>> {
        let is_free = |index: usize| self.free[index / 64] >> (index % 64) & 1 == 1;
        let mut start = from;
        while start < WORDS * 64 && !is_free(start) {
            // A word without a free slot is skipped at once.
            let rest = self.free[start / 64] >> (start % 64);
            start = match rest {
                0 => (start / 64 + 1) * 64,
                _ => start + rest.trailing_zeros() as usize,
            };
        }
        let mut end = start;
        while end < WORDS * 64 && is_free(end) {
            let rest = self.free[end / 64] >> (end % 64);
            end += rest.trailing_ones() as usize;
        }
        (start < end).then_some(start..end)
    }

    fn slot_start(&self, index: usize) -> NonNull<u8> {
        let memory = self.memory.as_ref().expect("only places in use are listed");
        // SAFETY: `index` is below the number of slots the chunk holds.
        unsafe { memory.start().add(index * self.slot_bytes) }
    }
}

/// Index of the slot size for `bytes`, and the size itself.
fn size_of_slot(bytes: usize) -> (usize, usize) {
    assert!(
        bytes <= SLOT_BYTES_MAX,
        "larger blocks have their own pages"
    );
    if bytes <= SLOT_BYTES_MIN {
        return (0, SLOT_BYTES_MIN);
    }
    let doubling = (bytes - 1).ilog2();
    let step_bytes = (1_usize << doubling) / STEPS_PER_DOUBLING;
    let step = ((bytes - 1) / step_bytes) % STEPS_PER_DOUBLING;
    let doublings = (doubling - SLOT_BYTES_MIN.ilog2()) as usize;
    (
        doublings * STEPS_PER_DOUBLING + step + 1,
        bytes.next_multiple_of(step_bytes),
    )
}

/// The lowest `count` bits.
fn first_bits(count: usize) -> [u64; WORDS] {
    std::array::from_fn(|word| match count.saturating_sub(word * 64) {
        0 => 0,
        rest @ 1..64 => (1 << rest) - 1,
        _ => u64::MAX,
    })
}

/// # Safety
/// The slot is free, so only the store uses it, and initialised.
unsafe fn mend_free_slot(start: NonNull<u8>, slot_bytes: usize) -> Option<Damage> {
    // SAFETY: the caller's promise.
    unsafe {
        let offset_bytes = page_run::first_change(start, slot_bytes, page_run::FREED)?;
        start.write_bytes(page_run::FREED, slot_bytes);
        Some(Damage {
            address: start.addr().get(),
            slot_bytes,
            offset_bytes,
        })
    }
}

#[cfg(test)]
#[path = "tests/slot_store.rs"]
mod tests;
