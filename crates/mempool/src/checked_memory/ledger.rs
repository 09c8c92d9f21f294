//! What is known of every block that is lent or in quarantine, found by its first byte.
//!
//! Open addressing on memory of its own: a free must find its block without trusting one byte of
//! it, and without calling malloc.
use super::area::Area;
use super::mapped_vec::MappedVec;
use crate::PoolError;
use std::ptr::NonNull;

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
    /// What the block lies in.
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

/// Records by address.
/// Invariant: at most half of `table`, whose length is 0 or a power of two, is taken; from the
/// place of a record's hash up to the record no entry is empty.
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
        // Records behind the gap that could not stand at their own place move up.
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
        // Fibonacci hashing: blocks stand at equal distances, whose low bits are all alike.
        let mixed = (address as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 32) as usize & (self.table.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checked_memory::page_run::PageRun;
    use std::collections::HashMap;

    fn record(address: usize, allocation: u64) -> Record {
        let start = NonNull::without_provenance(address.try_into().unwrap());
        Record {
            start,
            size_bytes: 16,
            allocation,
            area: Area::Pages(PageRun::placeholder(start)),
            is_live: true,
        }
    }

    /// Goal: the ledger is a map from address to record through growth and removals, whatever the
    /// order; few addresses, so that records meet and gaps are closed.
    #[test]
    fn ledger_is_a_map() {
        let mut ledger = Ledger::new();
        let mut model: HashMap<usize, u64> = HashMap::new();
        let mut state = 1_u64;
        // Miri is a thousand times slower, and learns nothing new after the table has grown twice.
        let (steps, addresses) = if cfg!(miri) {
            (600, 100)
        } else {
            (60_000, 3000)
        };
        for step in 0..steps {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let address = 16 * (1 + (state >> 40) as usize % addresses);
            if let Some(allocation) = model.remove(&address) {
                assert_eq!(ledger.remove(address).unwrap().allocation, allocation);
            } else {
                assert!(ledger.get(address).is_none() && ledger.remove(address).is_none());
                ledger.reserve_one().unwrap();
                ledger.insert(record(address, step));
                model.insert(address, step);
            }
        }
        assert_eq!(ledger.len, model.len());
        assert!(model.len() > addresses / 3);
        for (address, allocation) in &model {
            assert_eq!(ledger.get(*address).unwrap().allocation, *allocation);
        }
        assert_eq!(ledger.iter().count(), model.len());
    }
}
