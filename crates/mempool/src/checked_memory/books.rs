//! What checked memory knows and does, under the lock that `checked_memory` holds.
//!
//! A block is lent, then waits in the quarantine, then its area is free. On each step its bytes are
//! looked at. Whatever is found is mended and the step completed before it is reported, so that the
//! books are right also for a program that survives the report.
#![allow(unsafe_code)]
use super::area::Area;
use super::ledger::{Ledger, Record};
use super::page_run::{CANARY_BYTES_MIN, PageRun};
use super::quarantine::Quarantine;
use super::slot_store::{Damage, SLOT_BYTES_MAX, SlotStore};
use crate::direct_memory::Freed;
use crate::violation::{Origin, Violation};
use crate::{Checks, PoolError};
use std::ptr::NonNull;

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

/// What checked memory holds. `reserved = live + cached + waste`, each counted for itself.
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

    /// Takes a block back. Something can be wrong and the block freed all the same.
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
    /// Nobody uses any of them any more.
    pub(super) unsafe fn free_all(&mut self) -> Option<Violation> {
        let mut found = None;
        // Blocks that leave the quarantine leave the ledger too, which moves others in it, perhaps
        // to a place that was looked at: hence as often as there is one left.
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
                    // No mapping left to keep it by. Unmapped it faults all the same, for a while.
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
        // SAFETY: waiting blocks are poisoned, unless guarded, and nobody's.
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
        // SAFETY: the caller's promise: it is poisoned, and nobody's.
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

    /// Looks at every canary, every waiting block and every free slot, and mends them; reports the
    /// first that was damaged.
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

    /// A write to a slot whose last block is forgotten.
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

    /// What is known of an address that is not a block's first byte.
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
    /// Gives everything back but what is still lent, whose holders outlive their pool.
    fn drop(&mut self) {
        // Reported before, by those who may report.
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
