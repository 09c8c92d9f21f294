//! One run of chunks cut into slots, and what stays of it when its memory has left.
//!
//! [`SlotTable`], below, keeps these by number and finds slots in them. The table has the type of its values; a chunk
//! gets the type with each call.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::mem;
use std::mem::MaybeUninit;

use crate::PoolError;
use crate::chunk::{CHUNK_BYTES, Chunk};
use crate::pool_mode::Budget;

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
        // SAFETY: below `cut_count`, so below SLOTS_PER_RUN of a chunk with memory.
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

// Slots of one type in chunks, found by index and checked by generation.
//
// A chunk without a live slot can leave (`trim`). Its entry stays behind with the highest
// generation of its slots; when the chunk is mapped again they all begin there, so a pair of
// index and generation never comes twice.
//
// ```text
// chunks   0        1        2           3         4
//          full     room     unmapped    current   room
//                    ^          |           |        ^
//   with_room -------+----------|-----------|--------+   lowest first after a sweep
//                               floor       the chunk to insert into
// ```
// There is no single free list over all chunks, because a chunk could not leave it without a walk; and entries (40
// bytes a chunk) are not given back, since handles are valid for ever.

/// Indices have 31 bits, which makes finding the chunk one multiplication: see `chunk_of`.
const INDEX_BITS: u32 = 31;
/// How long a run of chunks may get to hold large slots without much waste.
const RUN_CHUNKS_MAX: usize = 16;
/// Slots are cut from a fresh chunk so many bytes at a time: pages not wanted are not touched.
const CUT_BYTES: usize = 4096;

/// Slots for values. Fills the chunk in hand, newest free slot first, then another that has room.
/// Invariant: every mapped chunk with a free or uncut slot is `current` or on the list that
/// `with_room` begins, and no other is on it.
pub(crate) struct SlotTable<V> {
    chunks: Vec<SlotChunk>,
    current: u32,
    with_room: u32,
    live_count: u32,
    /// The most `live_count` has been since the last sweep, and before it.
    live_max: u32,
    live_max_before: u32,
    mapped_count: u32,
    /// Retired slots of mapped chunks.
    retired_count: u32,
    budget: Budget,
    values: PhantomData<V>,
}

/// A free slot of the current chunk.
pub(crate) struct Room<'a, V> {
    table: &'a mut SlotTable<V>,
    is_hit: bool,
}

impl<V> SlotTable<V> {
    /// Bytes of one slot.
    pub(crate) const SLOT_BYTES: usize = size_of::<Slot<V>>();
    /// Whether slots of this type fit chunks at all; if not, no other function may be called.
    pub(crate) const FITS: bool =
        Self::SLOT_BYTES <= RUN_CHUNKS_MAX * CHUNK_BYTES && align_of::<Slot<V>>() <= CHUNK_BYTES;
    const RUN_BYTES: usize = run_chunks(Self::SLOT_BYTES) * CHUNK_BYTES;
    const SLOTS_PER_RUN: u32 = (Self::RUN_BYTES / Self::SLOT_BYTES) as u32;
    const TAIL_BYTES: usize = Self::RUN_BYTES - Self::SLOTS_PER_RUN as usize * Self::SLOT_BYTES;
    const CUT_COUNT: u32 = (CUT_BYTES / Self::SLOT_BYTES) as u32;

    pub(crate) const fn new(limit_bytes: usize) -> Self {
        Self {
            chunks: Vec::new(),
            current: NONE,
            with_room: NONE,
            live_count: 0,
            live_max: 0,
            live_max_before: 0,
            mapped_count: 0,
            retired_count: 0,
            budget: Budget::new(limit_bytes),
            values: PhantomData,
        }
    }

    /// A slot to fill: a free one, else one of a new chunk.
    #[inline]
    pub(crate) fn room(&mut self) -> Result<Room<'_, V>, PoolError> {
        let has_free = |chunk: &SlotChunk| chunk.newest_free != NONE;
        let is_hit = match self.chunks.get(self.current as usize).is_some_and(has_free) {
            true => true,
            false => self.make_room()?,
        };
        Ok(Room {
            table: self,
            is_hit,
        })
    }

    /// Makes `current` a chunk with a free slot. Returns whether no new chunk was needed.
    #[cold]
    fn make_room(&mut self) -> Result<bool, PoolError> {
        let uncut =
            |chunk: &SlotChunk| chunk.memory.is_some() && chunk.cut_count < Self::SLOTS_PER_RUN;
        if self.chunks.get(self.current as usize).is_some_and(uncut) {
            self.cut();
            return Ok(true);
        }
        let is_hit = self.with_room != NONE;
        let next = if is_hit { self.with_room } else { self.map()? };
        if let Some(full) = self.chunks.get_mut(self.current as usize) {
            full.next_with_room = UNLISTED;
        }
        self.current = next;
        let chunk = &mut self.chunks[next as usize];
        if is_hit {
            self.with_room = chunk.next_with_room;
        }
        chunk.next_with_room = CURRENT;
        if chunk.newest_free == NONE {
            self.cut();
        }
        Ok(is_hit)
    }

    /// Maps the lowest chunk without memory; where there is none, one more. Returns its number.
    fn map(&mut self) -> Result<u32, PoolError> {
        let is_unmapped = |chunk: &SlotChunk| chunk.memory.is_none() && chunk.floor != RETIRED;
        let place = if self.mapped_count as usize == self.chunks.len() {
            None
        } else {
            self.chunks.iter().position(is_unmapped)
        };
        if place.is_none() {
            self.make_entry()?;
        }
        let number = place.unwrap_or(self.chunks.len());
        self.budget.take(Self::RUN_BYTES)?;
        let memory = Chunk::map_long(Self::RUN_BYTES)
            .inspect_err(|_| self.budget.give_back(Self::RUN_BYTES))?;
        if place.is_none() {
            self.chunks.push(SlotChunk::NEW);
        }
        self.chunks[number].memory = Some(memory);
        self.mapped_count += 1;
        Ok(number as u32)
    }

    /// Makes sure that one entry can be pushed.
    fn make_entry(&mut self) -> Result<(), PoolError> {
        let slot_count = (self.chunks.len() + 1) * Self::SLOTS_PER_RUN as usize;
        if slot_count > 1 << INDEX_BITS {
            let count_max = self.chunks.len() * Self::SLOTS_PER_RUN as usize;
            return Err(PoolError::Exhausted { count_max });
        }
        if self.chunks.len() < self.chunks.capacity() {
            return Ok(());
        }
        let added_count = self.chunks.len().max(4);
        let requested_bytes = added_count * size_of::<SlotChunk>();
        self.budget.take(requested_bytes)?;
        self.chunks
            .try_reserve_exact(added_count)
            .map_err(|_| PoolError::OutOfMemory { requested_bytes })
            .inspect_err(|_| self.budget.give_back(requested_bytes))
    }

    /// Makes some never used slots of the current chunk free ones, lowest first.
    fn cut(&mut self) {
        let chunk = &mut self.chunks[self.current as usize];
        let first = chunk.cut_count;
        let last = (first + Self::CUT_COUNT.max(1)).min(Self::SLOTS_PER_RUN) - 1;
        for place in first..=last {
            let next_free = if place == last {
                chunk.newest_free
            } else {
                place + 1
            };
            // SAFETY: `place` is below SLOTS_PER_RUN, and a chunk that is cut has memory, which is
            // the table's alone and aligned: chunks are more aligned than any slot that fits.
            unsafe {
                let slot = chunk.slot_start::<V>(place);
                (&raw mut (*slot).generation).write(chunk.floor);
                (&raw mut (*slot).next_free).write(next_free);
            }
        }
        chunk.newest_free = first;
        chunk.cut_count = last + 1;
    }

    /// The value, where the slot holds one of this generation.
    #[inline]
    pub(crate) fn get(&self, index: u32, generation: u32) -> Option<&V> {
        let (number, place) = Self::chunk_of(index);
        let slot = self.chunks.get(number)?.slot::<V>(place)?;
        // SAFETY: a cut slot is initialised, and writing to it needs `&mut self`; an odd generation means that it holds
        // a value.
        unsafe {
            let is_it = is_live(generation) && (*slot).generation == generation;
            is_it.then(|| (*slot).value.assume_init_ref())
        }
    }

    /// The value, where the slot holds one of this generation.
    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32, generation: u32) -> Option<&mut V> {
        let (number, place) = Self::chunk_of(index);
        let slot = self.chunks.get(number)?.slot::<V>(place)?;
        // SAFETY: as in `get`, and the table is borrowed mutably.
        unsafe {
            let is_it = is_live(generation) && (*slot).generation == generation;
            is_it.then(|| (*slot).value.assume_init_mut())
        }
    }

    /// Moves the value out, where the slot holds one of this generation.
    #[inline]
    pub(crate) fn remove(&mut self, index: u32, generation: u32) -> Option<V> {
        let slot = self.release(index, generation)?;
        // SAFETY: the slot held a value until `release`, which hands it over.
        Some(unsafe { (*slot).value.assume_init_read() })
    }

    /// Drops the value where it is, where the slot holds one of this generation.
    #[inline]
    pub(crate) fn discard(&mut self, index: u32, generation: u32) -> bool {
        let Some(slot) = self.release(index, generation) else {
            return false;
        };
        // SAFETY: as in `remove`. Should the value's drop panic, it is not dropped again: the slot
        // counts as free already.
        unsafe { (*slot).value.assume_init_drop() };
        true
    }

    /// Ends the life of a slot's value, which is the caller's to move out or drop before the table is
    /// used again.
    #[inline]
    fn release(&mut self, index: u32, generation: u32) -> Option<*mut Slot<V>> {
        let (number, place) = Self::chunk_of(index);
        let chunk = self.chunks.get_mut(number)?;
        let start = chunk.slot::<V>(place)?;
        // SAFETY: a cut slot is initialised, and the table is borrowed mutably.
        let slot = unsafe { &mut *start };
        if !is_live(generation) || slot.generation != generation {
            return None;
        }
        slot.generation = generation + 1;
        chunk.live_count -= 1;
        self.live_count -= 1;
        if slot.generation == RETIRED {
            self.retired_count += 1;
            return Some(start);
        }
        slot.next_free = chunk.newest_free;
        chunk.newest_free = place;
        if chunk.next_with_room == UNLISTED {
            chunk.next_with_room = self.with_room;
            self.with_room = number as u32;
        }
        Some(start)
    }

    /// Ends an interval: of the chunks that all values of the interval could have done without,
    /// half (rounded up) leave, as far as there are that many without a value; the highest first.
    /// New values go to the lowest chunks from now on, so that the highest fall idle. Returns the
    /// bytes given back. O(chunks), and the slots of those that leave.
    pub(crate) fn trim(&mut self) -> usize {
        let slot_count = self.mapped_count * Self::SLOTS_PER_RUN;
        let unused_count = (slot_count - self.live_max) / Self::SLOTS_PER_RUN;
        self.live_max_before = self.live_max_before.max(self.live_max);
        self.live_max = self.live_count;
        let leaving_count = unused_count.div_ceil(2) as usize;
        let is_idle = |chunk: &&mut SlotChunk| chunk.memory.is_some() && chunk.live_count == 0;
        let mut left_count = 0;
        for chunk in self
            .chunks
            .iter_mut()
            .rev()
            .filter(is_idle)
            .take(leaving_count)
        {
            self.retired_count -= chunk.unmap::<V>();
            left_count += 1;
        }
        self.mapped_count -= left_count as u32;
        self.budget.give_back(left_count * Self::RUN_BYTES);
        self.relist();
        left_count * Self::RUN_BYTES
    }

    /// Sorts the list of chunks with room and makes the lowest of them the current one.
    fn relist(&mut self) {
        (self.current, self.with_room) = (NONE, NONE);
        for (number, chunk) in self.chunks.iter_mut().enumerate().rev() {
            let is_uncut = chunk.cut_count < Self::SLOTS_PER_RUN;
            let has_room = chunk.memory.is_some() && (chunk.newest_free != NONE || is_uncut);
            chunk.next_with_room = if has_room { self.with_room } else { UNLISTED };
            if has_room {
                self.with_room = number as u32;
            }
        }
        if let Some(lowest) = self.chunks.get_mut(self.with_room as usize) {
            self.current = mem::replace(&mut self.with_room, lowest.next_with_room);
            lowest.next_with_room = CURRENT;
        }
    }

    /// Index, generation and place of every value, in the order of indices. O(slots of the chunks that hold any). The
    /// pointers are valid for reading while the table is borrowed, and for writing, each once at a time, while it is
    /// borrowed mutably.
    pub(crate) fn live(&self) -> impl Iterator<Item = (u32, u32, *mut V)> {
        let has_any = |(_, chunk): &(u32, &SlotChunk)| chunk.live_count > 0;
        let chunks = (0..).zip(&self.chunks).filter(has_any);
        chunks.flat_map(|(number, chunk)| {
            let slots = (0..chunk.cut_count).filter_map(move |place| {
                let slot = chunk.slot::<V>(place)?;
                // SAFETY: a cut slot is initialised, and it is not written during the borrow.
                let (generation, value) = unsafe { ((*slot).generation, &raw mut (*slot).value) };
                let index = number * Self::SLOTS_PER_RUN + place;
                is_live(generation).then_some((index, generation, value.cast::<V>()))
            });
            slots.take(chunk.live_count as usize)
        })
    }

    /// Values in the table.
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.live_count as usize
    }

    /// The most values there have ever been.
    pub(crate) fn len_max(&self) -> usize {
        self.live_max.max(self.live_max_before) as usize
    }

    /// Slots that can take a value without a system call.
    pub(crate) const fn cached_count(&self) -> usize {
        let slot_count = self.mapped_count as usize * Self::SLOTS_PER_RUN as usize;
        slot_count - self.live_count as usize - self.retired_count as usize
    }

    /// Bytes of the table that no slot uses or can use: its entries, the ends of chunks, and
    /// slots that will never take a value again.
    pub(crate) const fn overhead_bytes(&self) -> usize {
        self.chunks.capacity() * size_of::<SlotChunk>()
            + self.mapped_count as usize * Self::TAIL_BYTES
            + self.retired_count as usize * Self::SLOT_BYTES
    }

    /// Memory taken by the table and by others that share its budget.
    pub(crate) const fn budget(&mut self) -> &mut Budget {
        &mut self.budget
    }

    /// Bytes taken and not given back.
    pub(crate) const fn reserved_bytes(&self) -> usize {
        self.budget.reserved_bytes()
    }

    /// Number of the chunk and place in it. Any index is safe: one that is out of range gives a
    /// number or a place that is.
    #[inline]
    const fn chunk_of(index: u32) -> (usize, u32) {
        // Exact below 2^31: the factor is too large by less than 2^-SHIFT times SLOTS_PER_RUN, so
        // the product is too large by less than 1 / SLOTS_PER_RUN. Half the instructions of `/`.
        let shift = const { INDEX_BITS + Self::SLOTS_PER_RUN.next_power_of_two().ilog2() };
        let factor = const {
            let shift = INDEX_BITS + Self::SLOTS_PER_RUN.next_power_of_two().ilog2();
            (1_u64 << shift) / Self::SLOTS_PER_RUN as u64 + 1
        };
        let number = (index as u64).wrapping_mul(factor) >> shift;
        let place = index.wrapping_sub((number as u32).wrapping_mul(Self::SLOTS_PER_RUN));
        (number as usize, place)
    }
}

impl<V> Room<'_, V> {
    /// Whether no new chunk was needed.
    #[inline]
    pub(crate) fn is_hit(&self) -> bool {
        self.is_hit
    }

    /// Bytes for what the value points to, from the budget of the table.
    pub(crate) fn budget(&mut self) -> &mut Budget {
        &mut self.table.budget
    }

    /// Puts the value in; returns its index and generation.
    #[inline]
    pub(crate) fn fill(self, value: V) -> (u32, u32) {
        let table = self.table;
        let number = table.current;
        // SAFETY: `room` found a free slot in the current chunk, or made one, and has held the
        // table's only borrow since.
        let (chunk, slot) = unsafe {
            let chunk = table.chunks.get_unchecked_mut(number as usize);
            let slot = &mut *chunk.slot_start::<V>(chunk.newest_free);
            (chunk, slot)
        };
        let index = number * SlotTable::<V>::SLOTS_PER_RUN + chunk.newest_free;
        chunk.newest_free = slot.next_free;
        slot.generation += 1;
        slot.value.write(value);
        chunk.live_count += 1;
        table.live_count += 1;
        table.live_max = table.live_max.max(table.live_count);
        (index, slot.generation)
    }
}

impl<V> Drop for SlotTable<V> {
    fn drop(&mut self) {
        if !mem::needs_drop::<V>() {
            return;
        }
        for chunk in &mut self.chunks {
            for place in 0..chunk.cut_count {
                let slot = chunk.slot::<V>(place).expect("the slot is cut");
                // SAFETY: a cut slot is initialised; an odd generation means that it holds a value; the even one set
                // before the drop means that it does not any more.
                unsafe {
                    if is_live((*slot).generation) {
                        (*slot).generation += 1;
                        (*slot).value.assume_init_drop();
                    }
                }
            }
        }
    }
}

/// How many chunks make a run of slots of this size: the fewest whose end wastes at most an eighth.
const fn run_chunks(slot_bytes: usize) -> usize {
    let mut count = slot_bytes.div_ceil(CHUNK_BYTES);
    while count < RUN_CHUNKS_MAX && (count * CHUNK_BYTES % slot_bytes) * 8 > count * CHUNK_BYTES {
        count += 1;
    }
    count
}

#[cfg(test)]
#[path = "tests/slot_table.rs"]
mod slot_table_tests;
