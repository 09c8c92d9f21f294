//! Slots of one type in chunks, found by index and checked by generation.
//!
//! On the path: `slab` stores its objects here, or the boxes of its objects when pools are off.
//! A slot's generation is odd while it holds a value and grows by 1 whenever one moves in or out,
//! so a handle from an earlier life never matches. A slot whose generation would start again from 0
//! is retired for ever instead; that takes 2^31 lives.
#![allow(unsafe_code)]
use crate::PoolError;
use crate::chunk::{CHUNK_BYTES, Chunk};
use std::marker::PhantomData;
use std::mem::MaybeUninit;

/// End of the free list.
const NONE: u32 = u32::MAX;

struct Slot<V> {
    generation: u32,
    next_free: u32,
    value: MaybeUninit<V>,
}

/// Slots for values, newest free slot first.
/// Invariant: slots below `cut_count` are initialised but for their values; `value` holds one
/// exactly where `generation` is odd. `cut_count = live + free + retired`.
pub(crate) struct SlotTable<V> {
    chunks: Vec<Chunk>,
    cut_count: u32,
    newest_free: u32,
    free_count: u32,
    live_count: u32,
    retired_count: u32,
    values: PhantomData<V>,
}

impl<V> SlotTable<V> {
    /// Bytes of one slot.
    pub(crate) const SLOT_BYTES: usize = size_of::<Slot<V>>();
    const SLOTS_PER_CHUNK: u32 = {
        assert!(
            size_of::<Slot<V>>() <= CHUNK_BYTES,
            "an object must fit in a chunk of 64 KiB"
        );
        assert!(align_of::<Slot<V>>() <= CHUNK_BYTES);
        (CHUNK_BYTES / size_of::<Slot<V>>()) as u32
    };

    pub(crate) const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            cut_count: 0,
            newest_free: NONE,
            free_count: 0,
            live_count: 0,
            retired_count: 0,
            values: PhantomData,
        }
    }

    /// Makes sure that the next `insert` finds a slot. Whether a chunk was mapped for it.
    #[inline]
    pub(crate) fn make_room(&mut self) -> Result<bool, PoolError> {
        if self.newest_free != NONE || self.cut_count < self.slot_count() {
            return Ok(false);
        }
        self.add_chunk()?;
        Ok(true)
    }

    #[cold]
    fn add_chunk(&mut self) -> Result<(), PoolError> {
        // The last index is the end mark of the free list.
        let count_max = NONE as usize;
        if self
            .slot_count()
            .checked_add(Self::SLOTS_PER_CHUNK)
            .is_none()
        {
            return Err(PoolError::Exhausted { count_max });
        }
        let requested_bytes = CHUNK_BYTES;
        self.chunks
            .try_reserve(1)
            .map_err(|_| PoolError::OutOfMemory { requested_bytes })?;
        self.chunks.push(Chunk::map()?);
        Ok(())
    }

    /// Puts a value into the newest free slot; returns its index and generation.
    ///
    /// # Panics
    /// Without a slot: `make_room` before.
    #[inline]
    pub(crate) fn insert(&mut self, value: V) -> (u32, u32) {
        if self.newest_free == NONE {
            self.cut();
        }
        let index = self.newest_free;
        let slot = self
            .slot_mut(index)
            .expect("`make_room` comes before `insert`");
        slot.generation += 1;
        slot.value.write(value);
        let (generation, next_free) = (slot.generation, slot.next_free);
        self.newest_free = next_free;
        self.free_count -= 1;
        self.live_count += 1;
        (index, generation)
    }

    /// Makes the next slot never used so far a free one.
    fn cut(&mut self) {
        assert!(
            self.cut_count < self.slot_count(),
            "`make_room` comes before `insert`"
        );
        let index = self.cut_count;
        // SAFETY: the slot is inside a chunk of this table; the memory is the table's alone and
        // aligned, as chunks are more aligned than any slot.
        unsafe {
            let slot = self.slot_start(index);
            (&raw mut (*slot).generation).write(0);
            (&raw mut (*slot).next_free).write(NONE);
        }
        self.cut_count += 1;
        self.newest_free = index;
        self.free_count += 1;
    }

    /// The value, where the slot holds one of this generation.
    #[inline]
    pub(crate) fn get(&self, index: u32, generation: u32) -> Option<&V> {
        let slot = self.slot(index)?;
        // SAFETY: an odd generation says that the slot holds a value.
        (is_live(generation) && slot.generation == generation)
            .then(|| unsafe { slot.value.assume_init_ref() })
    }

    /// The value, where the slot holds one of this generation.
    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32, generation: u32) -> Option<&mut V> {
        let slot = self.slot_mut(index)?;
        // SAFETY: an odd generation says that the slot holds a value.
        (is_live(generation) && slot.generation == generation)
            .then(|| unsafe { slot.value.assume_init_mut() })
    }

    /// Moves the value out, where the slot holds one of this generation.
    #[inline]
    pub(crate) fn remove(&mut self, index: u32, generation: u32) -> Option<V> {
        let newest_free = self.newest_free;
        let slot = self.slot_mut(index)?;
        if !is_live(generation) || slot.generation != generation {
            return None;
        }
        // SAFETY: an odd generation says that the slot holds a value; the even one set now, that
        // it has been moved out.
        let value = unsafe { slot.value.assume_init_read() };
        slot.generation = generation.wrapping_add(1);
        if slot.generation == 0 {
            self.retired_count += 1;
        } else {
            slot.next_free = newest_free;
            self.newest_free = index;
            self.free_count += 1;
        }
        self.live_count -= 1;
        Some(value)
    }

    /// Index and generation of every value, in the order of indices. O(slots ever used).
    pub(crate) fn live(&self) -> impl Iterator<Item = (u32, u32)> {
        let generation = |index| self.slot(index).map_or(0, |slot| slot.generation);
        (0..self.cut_count)
            .map(move |index| (index, generation(index)))
            .filter(|(_, generation)| is_live(*generation))
    }

    /// Values in the table.
    pub(crate) const fn len(&self) -> usize {
        self.live_count as usize
    }

    /// Slots that can take a value without a system call.
    pub(crate) const fn cached_count(&self) -> usize {
        (self.free_count + (self.slot_count() - self.cut_count)) as usize
    }

    /// Slots that will never take a value again.
    pub(crate) const fn retired_count(&self) -> usize {
        self.retired_count as usize
    }

    /// Bytes of all chunks.
    pub(crate) const fn reserved_bytes(&self) -> usize {
        self.chunks.len() * CHUNK_BYTES
    }

    /// Bytes at the ends of the chunks, too short for a slot.
    pub(crate) const fn tail_bytes(&self) -> usize {
        self.chunks.len() * (CHUNK_BYTES - Self::SLOTS_PER_CHUNK as usize * Self::SLOT_BYTES)
    }

    #[inline]
    const fn slot_count(&self) -> u32 {
        // `add_chunk` keeps the product within 32 bits.
        self.chunks.len() as u32 * Self::SLOTS_PER_CHUNK
    }

    #[inline]
    fn slot(&self, index: u32) -> Option<&Slot<V>> {
        // SAFETY: slots below `cut_count` are initialised, and writing needs `&mut self`.
        (index < self.cut_count).then(|| unsafe { &*self.slot_start(index) })
    }

    #[inline]
    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot<V>> {
        // SAFETY: slots below `cut_count` are initialised, and the table is borrowed mutably.
        (index < self.cut_count).then(|| unsafe { &mut *self.slot_start(index) })
    }

    /// Where the slot lies.
    #[inline]
    fn slot_start(&self, index: u32) -> *mut Slot<V> {
        let chunk = &self.chunks[(index / Self::SLOTS_PER_CHUNK) as usize];
        let place = (index % Self::SLOTS_PER_CHUNK) as usize;
        // SAFETY: a chunk holds SLOTS_PER_CHUNK slots, and `place` is below that.
        unsafe { chunk.start().cast::<Slot<V>>().add(place).as_ptr() }
    }
}

impl<V> Drop for SlotTable<V> {
    fn drop(&mut self) {
        if !std::mem::needs_drop::<V>() {
            return;
        }
        for index in 0..self.cut_count {
            let generation = self.slot(index).map_or(0, |slot| slot.generation);
            drop(self.remove(index, generation));
        }
    }
}

/// Whether a slot of this generation holds a value.
#[inline]
const fn is_live(generation: u32) -> bool {
    generation % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the last generation is served, then the slot retires and old handles stay dead.
    #[test]
    fn slot_retires_instead_of_repeating_a_generation() {
        let mut table = SlotTable::new();
        table.make_room().unwrap();
        let (index, first) = table.insert('a');
        table.remove(index, first).unwrap();
        table.slot_mut(index).unwrap().generation = u32::MAX - 1;
        assert_eq!(table.insert('b'), (index, u32::MAX));
        assert_eq!(table.remove(index, u32::MAX), Some('b'));
        assert_eq!((table.len(), table.retired_count()), (0, 1));
        assert_eq!(table.get(index, 0), None);
        let (next_index, _) = table.insert('c');
        assert_ne!(next_index, index);
        assert_eq!(table.get(index, first), None);
    }
}
