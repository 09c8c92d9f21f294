//! State and operations of checked memory, under the lock that `checked_memory` holds.
//!
//! A block is lent, then waits in the quarantine, then its area is free. At each step its bytes are checked. Damage is
//! repaired and the step completed before it is reported, so that the accounting is correct also for a program that
//! survives the report.

#![allow(unsafe_code)]

use std::ptr::NonNull;

use crate::heap::Freed;
use crate::violation::{Origin, Violation};
use crate::{Checks, PoolError};

use super::page_run::Area;
use super::page_run::MappedVec;
use super::page_run::{CANARY_BYTES_MIN, PageRun};
use super::slot_store::{Damage, SLOT_BYTES_MAX, SlotStore};

/// Why there is no block.
pub(super) enum Refusal {
    Pool(PoolError),
    Violation(Violation),
}

impl From<PoolError> for Refusal {
    fn from(error: PoolError) -> Self {
        Self::Pool(error)
    }
}

/// Current numbers of checked memory. `reserved = live + cached + waste`, each counted separately.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct CheckedFigures {
    /// Blocks lent.
    pub(crate) live_objects: u64,
    /// Bytes asked for them.
    pub(crate) live_bytes: u64,
    /// Bytes of the quarantine and of free slots.
    pub(crate) cached_bytes: u64,
    /// Canaries, rounding, guard pages of lent blocks, and ends of chunks.
    pub(crate) waste_bytes: u64,
    /// Bytes taken from the system.
    pub(crate) reserved_bytes: u64,
    /// Always 0: no block is reused before it waited.
    pub(crate) hits: u64,
    /// Blocks lent, ever.
    pub(crate) misses: u64,
}

impl CheckedFigures {
    /// Of checked memory that never lent anything.
    pub(crate) const NONE: Self = Self {
        live_objects: 0,
        live_bytes: 0,
        cached_bytes: 0,
        waste_bytes: 0,
        reserved_bytes: 0,
        hits: 0,
        misses: 0,
    };
}

pub(super) struct Books {
    pool: &'static str,
    checks: Checks,
    ledger: Ledger,
    quarantine: Quarantine,
    slots: SlotStore,
    /// Allocations asked for, refused ones included, and blocks lent.
    allocations: u64,
    misses: u64,
    live_count: usize,
    live_bytes: usize,
    /// Bytes of lent blocks' areas that were not asked for.
    around_live_bytes: usize,
    waiting_bytes: usize,
    page_run_bytes: usize,
}

// SAFETY: everything in it is memory that the books own; nothing depends on the thread.
unsafe impl Send for Books {}

impl Books {
    pub(super) const fn new(pool: &'static str, checks: Checks) -> Self {
        Self {
            pool,
            checks,
            ledger: Ledger::new(),
            quarantine: Quarantine::new(),
            slots: SlotStore::new(),
            allocations: 0,
            misses: 0,
            live_count: 0,
            live_bytes: 0,
            around_live_bytes: 0,
            waiting_bytes: 0,
            page_run_bytes: 0,
        }
    }

    /// A block of `size_bytes` at a multiple of `align_bytes`, a power of two.
    pub(super) fn allocate(
        &mut self,
        size_bytes: usize,
        align_bytes: usize,
    ) -> Result<NonNull<u8>, Refusal> {
        self.allocations += 1;
        let is_planned = |number: std::num::NonZeroU64| number.get() == self.allocations;
        if self.checks.fail_at.is_some_and(is_planned) {
            return Err(Refusal::Pool(PoolError::OutOfMemory {
                requested_bytes: size_bytes,
            }));
        }
        self.ledger.reserve_one()?;
        self.quarantine.reserve()?;
        let (area, start) = self.find_area(size_bytes, align_bytes)?;
        // SAFETY: a fresh area that holds the block.
        unsafe { area.prepare(start, size_bytes) };
        self.ledger.insert(Record {
            start,
            size_bytes,
            allocation: self.allocations,
            area,
            is_live: true,
        });
        self.misses += 1;
        self.live_count += 1;
        self.live_bytes += size_bytes;
        self.around_live_bytes += area.reserved_bytes() - size_bytes;
        Ok(start)
    }

    fn find_area(
        &mut self,
        size_bytes: usize,
        align_bytes: usize,
    ) -> Result<(Area, NonNull<u8>), Refusal> {
        let align_bytes = align_bytes.max(16);
        let front_bytes = CANARY_BYTES_MIN.max(align_bytes);
        let slot_bytes = size_bytes.saturating_add(front_bytes + CANARY_BYTES_MIN);
        // A slot's own alignment is 16.
        let slot_bytes = slot_bytes.saturating_add(align_bytes - 16);
        if self.checks.guard_pages || slot_bytes > SLOT_BYTES_MAX {
            return self.find_pages(size_bytes, align_bytes);
        }
        let (slot, damage) = self.slots.take(slot_bytes)?;
        if let Some(damage) = damage {
            // SAFETY: just taken, and mended.
            unsafe { self.slots.put(slot) };
            return Err(Refusal::Violation(self.late_write(damage)));
        }
        let earliest = slot.start.addr().get() + CANARY_BYTES_MIN;
        let before_bytes = earliest.next_multiple_of(align_bytes) - slot.start.addr().get();
        // SAFETY: `slot_bytes` has room for the canaries and any move to the alignment.
        let start = unsafe { slot.start.add(before_bytes) };
        Ok((Area::Slot(slot), start))
    }

    fn find_pages(
        &mut self,
        size_bytes: usize,
        align_bytes: usize,
    ) -> Result<(Area, NonNull<u8>), Refusal> {
        let is_guarded = self.checks.guard_pages;
        let mapped = PageRun::map(size_bytes, align_bytes, is_guarded).or_else(|_| {
            // The process may have no mapping left: those of blocks in quarantine can go.
            match self.empty_quarantine() {
                None => Ok(PageRun::map(size_bytes, align_bytes, is_guarded)?),
                Some(violation) => Err(Refusal::Violation(violation)),
            }
        });
        let (run, start) = mapped?;
        self.page_run_bytes += run.mapped_bytes();
        Ok((Area::Pages(run), start))
    }

    /// Takes a block back. The block is freed even if an error is returned.
    ///
    /// # Safety
    /// If `start` is the first byte of a lent block, its holder is gone.
    pub(super) unsafe fn free(&mut self, address: usize, freed_bytes: Option<usize>) -> Freed {
        let pool = self.pool;
        let nothing = |violation| Freed {
            bytes: None,
            violation: Some(violation),
        };
        let Some(record) = self.ledger.get_mut(address) else {
            return nothing(Violation::ForeignPointer {
                pool,
                address,
                origin: self.origin_of(address),
            });
        };
        if !record.is_live {
            return nothing(Violation::DoubleFree {
                pool,
                address,
                size_bytes: record.size_bytes,
                allocation: record.allocation,
            });
        }
        record.is_live = false;
        let record = *record;
        // SAFETY: the block was lent, and its holder is gone.
        let damage = unsafe { record.area.mend_canaries(record.start, record.size_bytes) };
        let overrun = damage.map(|offset_bytes| overrun(pool, &record, offset_bytes));
        let wrong_size = freed_bytes.filter(|&bytes| bytes != record.size_bytes);
        let wrong_size = wrong_size.map(|freed_bytes| Violation::WrongSize {
            pool,
            address,
            size_bytes: record.size_bytes,
            freed_bytes,
            allocation: record.allocation,
        });
        self.live_count -= 1;
        self.live_bytes -= record.size_bytes;
        self.around_live_bytes -= record.area.reserved_bytes() - record.size_bytes;
        // SAFETY: as above.
        let late_write = unsafe { self.retire(&record) };
        Freed {
            bytes: Some(record.size_bytes),
            violation: overrun.or(wrong_size).or(late_write),
        }
    }

    /// Takes every lent block back; the first fault found.
    ///
    /// # Safety
    /// None of them is in use any more.
    pub(super) unsafe fn free_all(&mut self) -> Option<Violation> {
        let mut found = None;
        // Blocks that leave the quarantine leave the ledger too, which moves others in it, perhaps to a place already
        // checked: so this repeats until none is left.
        while self.live_count > 0 {
            for place in 0..self.ledger.place_count() {
                if self.live_count == 0 {
                    break;
                }
                let live = self.ledger.at(place).filter(|record| record.is_live);
                if let Some(address) = live.map(Record::address) {
                    // SAFETY: the caller's promise.
                    let freed = unsafe { self.free(address, None) };
                    found = found.or(freed.violation);
                }
            }
        }
        found
    }

    /// Sends a block into the quarantine; the first late write found in those that leave it.
    ///
    /// # Safety
    /// The block is not lent any more.
    unsafe fn retire(&mut self, record: &Record) -> Option<Violation> {
        self.waiting_bytes += record.area.reserved_bytes();
        let mut counted_bytes = record.area.reserved_bytes();
        match &record.area {
            Area::Pages(run) if run.is_guarded => {
                // SAFETY: the caller's promise.
                if !unsafe { run.forbid() } {
                    // No mapping is left to keep it. Once unmapped it still faults, for a while.
                    self.ledger.remove(record.address());
                    // SAFETY: as above.
                    unsafe { self.release(record.area) };
                    return None;
                }
                counted_bytes = 0;
            }
            // SAFETY: as above.
            area => unsafe { area.poison() },
        }
        self.quarantine.push(record.address(), counted_bytes);
        let mut found = None;
        while self.quarantine.is_over() {
            found = found.or(self.release_oldest());
        }
        found
    }

    /// Ends the oldest waiting block's wait; the late write found in it.
    fn release_oldest(&mut self) -> Option<Violation> {
        let address = self.quarantine.pop()?;
        let record = self.ledger.remove(address);
        let record = record.expect("a waiting block is in the ledger");
        // SAFETY: waiting blocks are poisoned, unless guarded, and exclusive.
        unsafe {
            let found = self.late_write_in(&record);
            self.release(record.area);
            found
        }
    }

    /// # Safety
    /// The record's block waits in the quarantine.
    unsafe fn late_write_in(&self, record: &Record) -> Option<Violation> {
        if record.area.is_guarded() {
            return None;
        }
        // SAFETY: the caller's promise: it is poisoned and exclusive.
        let offset_bytes = unsafe { record.area.mend_poison(record.start) }?;
        Some(Violation::UseAfterFree {
            pool: self.pool,
            address: record.address(),
            size_bytes: record.size_bytes,
            offset_bytes,
            allocation: Some(record.allocation),
        })
    }

    /// # Safety
    /// The area is of a block that waited and is out of ledger and quarantine.
    unsafe fn release(&mut self, area: Area) {
        self.waiting_bytes -= area.reserved_bytes();
        // SAFETY: the caller's promise; slots are full of poison since they were retired.
        unsafe {
            match area {
                Area::Slot(slot) => self.slots.put(slot),
                Area::Pages(run) => {
                    self.page_run_bytes -= run.mapped_bytes();
                    run.release();
                }
            }
        }
    }

    fn empty_quarantine(&mut self) -> Option<Violation> {
        let mut found = None;
        while self.quarantine.len() > 0 {
            found = found.or(self.release_oldest());
        }
        found
    }

    /// Checks every canary, every waiting block and every free slot, and repairs them; reports the first that was
    /// damaged.
    pub(super) fn verify(&mut self) -> Option<Violation> {
        let mut found = None;
        for record in self.ledger.iter() {
            // SAFETY: canaries of lent blocks are the pool's, as is all of a waiting block.
            found = found.or(unsafe {
                match record.is_live {
                    true => record
                        .area
                        .mend_canaries(record.start, record.size_bytes)
                        .map(|offset_bytes| overrun(self.pool, record, offset_bytes)),
                    false => self.late_write_in(record),
                }
            });
        }
        let late_write = self.slots.mend_free_slots();
        found.or(late_write.map(|damage| self.late_write(damage)))
    }

    /// Gives memory without a lent or waiting block back to the system; returns how many bytes.
    pub(super) fn release_idle(&mut self) -> usize {
        let before_bytes = self.slots.reserved_bytes();
        self.slots.release_idle();
        before_bytes - self.slots.reserved_bytes()
    }

    /// A write to a slot whose last block is not known any more.
    fn late_write(&self, damage: Damage) -> Violation {
        Violation::UseAfterFree {
            pool: self.pool,
            address: damage.address + CANARY_BYTES_MIN,
            size_bytes: damage.slot_bytes - 2 * CANARY_BYTES_MIN,
            offset_bytes: damage.offset_bytes as isize - CANARY_BYTES_MIN as isize,
            allocation: None,
        }
    }

    /// Bytes asked for the lent block at `address`.
    pub(super) fn size_of(&self, address: usize) -> Option<usize> {
        let record = self.ledger.get(address)?;
        record.is_live.then_some(record.size_bytes)
    }

    /// Knowledge about an address that is not a block's first byte.
    pub(super) fn origin_of(&self, address: usize) -> Origin {
        let inside = self
            .ledger
            .iter()
            .find(|record| record.area.contains(address));
        match inside {
            Some(record) => Origin::Inside {
                address: record.address(),
                size_bytes: record.size_bytes,
            },
            None if self.slots.contains(address) => Origin::Forgotten,
            None => Origin::Unknown,
        }
    }

    pub(super) fn figures(&self) -> CheckedFigures {
        CheckedFigures {
            live_objects: self.live_count as u64,
            live_bytes: self.live_bytes as u64,
            cached_bytes: (self.waiting_bytes + self.slots.free_bytes()) as u64,
            waste_bytes: (self.around_live_bytes + self.slots.tail_bytes()) as u64,
            reserved_bytes: (self.slots.reserved_bytes() + self.page_run_bytes) as u64,
            hits: 0,
            misses: self.misses,
        }
    }
}

impl Drop for Books {
    /// Gives everything back except lent blocks, whose holders outlive their pool.
    fn drop(&mut self) {
        // Reported before, by the code that may report.
        let _ = self.empty_quarantine();
        self.slots.forget_lent();
    }
}

fn overrun(pool: &'static str, record: &Record, offset_bytes: isize) -> Violation {
    Violation::Overrun {
        pool,
        address: record.address(),
        size_bytes: record.size_bytes,
        offset_bytes,
        allocation: record.allocation,
    }
}

// Records of every block that is lent or in quarantine, found by its first byte.
//
// Open addressing on memory of its own: a free must find its block without trusting one byte of
// it, and without calling malloc.

/// Entries of the first table. Under Miri few, since it is filled one by one.
const ENTRIES_MIN: usize = if cfg!(miri) { 16 } else { 512 };

/// One block.
#[derive(Clone, Copy)]
pub(super) struct Record {
    /// The block's first byte.
    pub(super) start: NonNull<u8>,
    /// Bytes asked for.
    pub(super) size_bytes: usize,
    /// Which allocation made it.
    pub(super) allocation: u64,
    /// Where the block is.
    pub(super) area: Area,
    /// Whether it is lent; else it waits in the quarantine.
    pub(super) is_live: bool,
}

impl Record {
    /// The block's first byte as a number.
    pub(super) fn address(&self) -> usize {
        self.start.addr().get()
    }
}

/// Records by address. Invariant: at most half of `table`, whose length is 0 or a power of two, is used; from the place
/// of a record's hash up to the record no entry is empty.
pub(super) struct Ledger {
    table: MappedVec<Option<Record>>,
    len: usize,
}

impl Ledger {
    /// Without memory.
    pub(super) const fn new() -> Self {
        Self {
            table: MappedVec::new(),
            len: 0,
        }
    }

    /// Makes sure that the next `insert` finds room.
    pub(super) fn reserve_one(&mut self) -> Result<(), PoolError> {
        if (self.len + 1) * 2 <= self.table.len() {
            return Ok(());
        }
        let entry_count = (self.table.len() * 2).max(ENTRIES_MIN);
        let table = MappedVec::filled(None, entry_count)?;
        let old = std::mem::replace(&mut self.table, table);
        self.len = 0;
        for record in old.iter().flatten() {
            self.insert(*record);
        }
        Ok(())
    }

    /// Adds a record whose address no other has.
    ///
    /// # Panics
    /// Without room: `reserve_one` before.
    pub(super) fn insert(&mut self, record: Record) {
        assert!(
            (self.len + 1) * 2 <= self.table.len(),
            "room is reserved before an insertion"
        );
        let mut place = self.place_of(record.address());
        while self.table[place].is_some() {
            place = self.after(place);
        }
        self.table[place] = Some(record);
        self.len += 1;
    }

    /// The block at `address`.
    pub(super) fn get(&self, address: usize) -> Option<&Record> {
        self.table[self.find(address)?].as_ref()
    }

    /// The block at `address`.
    pub(super) fn get_mut(&mut self, address: usize) -> Option<&mut Record> {
        let place = self.find(address)?;
        self.table[place].as_mut()
    }

    /// Forgets the block at `address`.
    pub(super) fn remove(&mut self, address: usize) -> Option<Record> {
        let mut gap = self.find(address)?;
        let removed = self.table[gap].take();
        self.len -= 1;
        // Records after the gap that are not at their own place move up.
        let mut place = gap;
        loop {
            place = self.after(place);
            let Some(record) = self.table[place] else {
                return removed;
            };
            let home = self.place_of(record.address());
            let mask = self.table.len() - 1;
            let is_reached_through_gap =
                place.wrapping_sub(home) & mask >= place.wrapping_sub(gap) & mask;
            if is_reached_through_gap {
                self.table[gap] = self.table[place].take();
                gap = place;
            }
        }
    }

    /// How many places there are for records.
    pub(super) fn place_count(&self) -> usize {
        self.table.len()
    }

    /// The record at a place, until the next insertion or removal.
    pub(super) fn at(&self, place: usize) -> Option<&Record> {
        self.table[place].as_ref()
    }

    /// Every record, in no order. O(most records ever).
    pub(super) fn iter(&self) -> impl Iterator<Item = &Record> {
        self.table.iter().flatten()
    }

    fn find(&self, address: usize) -> Option<usize> {
        if self.table.is_empty() {
            return None;
        }
        let mut place = self.place_of(address);
        loop {
            match &self.table[place] {
                None => return None,
                Some(record) if record.address() == address => return Some(place),
                Some(_) => place = self.after(place),
            }
        }
    }

    fn after(&self, place: usize) -> usize {
        (place + 1) & (self.table.len() - 1)
    }

    fn place_of(&self, address: usize) -> usize {
        // Fibonacci hashing: blocks are at equal distances, and the low bits of their addresses are equal.
        let mixed = (address as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 32) as usize & (self.table.len() - 1)
    }
}

// Freed blocks in the order of their freeing: the longer a block waits for its reuse, the more
// stray writes are found in it.

/// The most blocks that wait. With guard pages each may be a mapping of the process, which has
/// 65530 of them, for all pools of all threads.
/// Few under Miri, to be filled in a moment.
pub(super) const QUARANTINE_BLOCKS_MAX: usize = if cfg!(miri) { 64 } else { 2048 };
/// The most bytes of memory that wait. Guarded blocks count nothing: they keep addresses alone.
pub(super) const QUARANTINE_BYTES_MAX: usize = if cfg!(miri) { 512 << 10 } else { 4 << 20 };

/// One waiting block.
#[derive(Clone, Copy)]
struct Entry {
    address: usize,
    bytes: usize,
}

/// A first-in-first-out queue, bounded in blocks and bytes.
/// Invariant: `len` entries from `oldest` on, around the end of `ring`, are the waiting blocks, and
/// `bytes` is their sum.
pub(super) struct Quarantine {
    ring: MappedVec<Entry>,
    oldest: usize,
    len: usize,
    bytes: usize,
}

impl Quarantine {
    /// Without memory.
    pub(super) const fn new() -> Self {
        Self {
            ring: MappedVec::new(),
            oldest: 0,
            len: 0,
            bytes: 0,
        }
    }

    /// Makes room for all that may ever wait: a free cannot fail.
    pub(super) fn reserve(&mut self) -> Result<(), PoolError> {
        if self.ring.is_empty() {
            let nothing = Entry {
                address: 0,
                bytes: 0,
            };
            // One more: a block enters before the oldest leaves.
            self.ring = MappedVec::filled(nothing, QUARANTINE_BLOCKS_MAX + 1)?;
        }
        Ok(())
    }

    /// Blocks waiting.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The newest of all. The caller takes the oldest out while [`is_over`](Self::is_over).
    pub(super) fn push(&mut self, address: usize, bytes: usize) {
        assert!(
            self.len < self.ring.len(),
            "room for every waiting block was reserved"
        );
        let place = (self.oldest + self.len) % self.ring.len();
        self.ring[place] = Entry { address, bytes };
        self.len += 1;
        self.bytes += bytes;
    }

    /// Whether more blocks wait than allowed.
    pub(super) fn is_over(&self) -> bool {
        self.len > QUARANTINE_BLOCKS_MAX || self.bytes > QUARANTINE_BYTES_MAX
    }

    /// Takes the oldest block out.
    pub(super) fn pop(&mut self) -> Option<usize> {
        self.len = self.len.checked_sub(1)?;
        let entry = self.ring[self.oldest];
        self.oldest = (self.oldest + 1) % self.ring.len();
        self.bytes -= entry.bytes;
        Some(entry.address)
    }
}

#[cfg(test)]
#[path = "tests/ledger.rs"]
mod ledger_tests;

#[cfg(test)]
#[path = "tests/quarantine.rs"]
mod quarantine_tests;
