//! One run of chunks cut into slots, and what stays of it when its memory has left.
//!
//! On the path: `slot_table` keeps these by number and finds slots in them.
//! Absent on purpose: how many slots there are. The table knows, from the type of its values; a
//! chunk is told the type with each call.
#![allow(unsafe_code)]
use crate::chunk::Chunk;
use std::mem::MaybeUninit;

/// End of a list of slots or chunks, and no chunk.
pub(crate) const NONE: u32 = u32::MAX;
/// In `SlotChunk::next_with_room`: on no list, because nothing in it is free, or no memory is.
pub(crate) const UNLISTED: u32 = u32::MAX - 1;
/// In `SlotChunk::next_with_room`: on no list, because it is the current chunk.
pub(crate) const CURRENT: u32 = u32::MAX - 2;
/// The generation after the last one, even like that of every empty slot.
pub(crate) const RETIRED: u32 = u32::MAX - 1;

/// One place for a value.
pub(crate) struct Slot<V> {
    pub(crate) generation: u32,
    pub(crate) next_free: u32,
    pub(crate) value: MaybeUninit<V>,
}

/// A run of chunks cut into slots; without memory where it left, or was never there.
/// Invariant: slots below `cut_count` are initialised but for their values; `value` holds one
/// exactly where `generation` is odd. `cut_count = live + free + retired`, and 0 without memory.
/// The table keeps it: here the fields are open, and only what depends on them alone is done.
pub(crate) struct SlotChunk {
    pub(crate) memory: Option<Chunk>,
    pub(crate) newest_free: u32,
    pub(crate) cut_count: u32,
    pub(crate) live_count: u32,
    /// Where the generations of slots begin that are cut next; `RETIRED`: never map it again.
    pub(crate) floor: u32,
    pub(crate) next_with_room: u32,
}

impl SlotChunk {
    /// One that has never had memory.
    pub(crate) const NEW: Self = Self {
        memory: None,
        newest_free: NONE,
        cut_count: 0,
        live_count: 0,
        floor: 0,
        next_with_room: UNLISTED,
    };

    /// The slot, where it is cut.
    #[inline]
    pub(crate) fn slot<V>(&self, place: u32) -> Option<*mut Slot<V>> {
        // SAFETY: below `cut_count`, hence below SLOTS_PER_RUN of a chunk with memory.
        (place < self.cut_count).then(|| unsafe { self.slot_start::<V>(place) })
    }

    /// Where a slot lies.
    ///
    /// # Safety
    /// The chunk has memory, of a table of `V`, and `place` is below its SLOTS_PER_RUN.
    #[inline]
    pub(crate) unsafe fn slot_start<V>(&self, place: u32) -> *mut Slot<V> {
        // SAFETY: by the caller's promise.
        unsafe {
            let memory = self.memory.as_ref().unwrap_unchecked();
            memory
                .start()
                .cast::<Slot<V>>()
                .add(place as usize)
                .as_ptr()
        }
    }

    /// Gives the memory of a chunk without values back; returns how many of its slots were retired.
    pub(crate) fn unmap<V>(&mut self) -> u32 {
        let mut retired_count = 0;
        for place in 0..self.cut_count {
            let slot = self.slot::<V>(place).expect("the slot is cut");
            // SAFETY: a cut slot is initialised; the chunk is borrowed mutably.
            let generation = unsafe { (*slot).generation };
            retired_count += u32::from(generation == RETIRED);
            self.floor = self.floor.max(generation);
        }
        *self = Self {
            floor: self.floor,
            ..Self::NEW
        };
        retired_count
    }
}

/// Whether a slot of this generation holds a value.
#[inline]
pub(crate) const fn is_live(generation: u32) -> bool {
    generation % 2 == 1
}
