//! One budget for memory, and its shares.
//!
//! ```text
//! 1/2    values that shards keep, with their indexes and stamps          cache_bytes
//! 1/8    the engine's blocks, indexes and filters                        block_cache_bytes
//! 3/16   writes not yet in tables: three memtables                       memtable_bytes
//! 1/16   requests that wait for the store: ids and values                bytes_in_flight_max
//! 1/16   large values and parts on their way in, and as many out         large_bytes_max
//! 1/32   a batch on its way into the log, which holds it twice           batch_bytes_max
//! 1/64   turns of range reads, and a block of output for each            scans_max
//! ```
//! The rest is for the gaps between blocks that `malloc` leaves. Place: `cli` splits `--memory`; `server` hands out the
//! shares. Not included: the process itself (its code, stacks and the engine's own structures, 32 MiB), memory of
//! connections, which their limits bound, and the engine's memory for the longest record (`parts::PART_BYTES`) while
//! others use all of the shares: up to 18 times its length, however many clients there are. It is twice in a batch
//! under way, once in each of three memtables, twice where one of these becomes a table, six times where tables are
//! merged, twice for each of two read threads and twice for the scan thread.

use std::time::{Duration, Instant};

/// Below this, memtables would be written out after a few hundred values.
pub const MEMORY_BYTES_MIN: u64 = 16 << 20;

/// The default.
pub const MEMORY_BYTES_DEFAULT: u64 = 256 << 20;

/// A range read under way: a turn of records, and as much on its way out.
const SCAN_BYTES: u64 = 64 << 10;

/// However much memory there is: the engine copies a batch while others wait.
const BATCH_BYTES_MAX: u64 = 8 << 20;

/// The shares.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MemoryBudget {
    /// See [`EntityConfig`](crate::EntityConfig), as for all of them.
    pub cache_bytes: u64,
    /// The engine's blocks.
    pub block_cache_bytes: u64,
    /// All memtables.
    pub memtable_bytes: u64,
    /// Requests that wait.
    pub bytes_in_flight_max: u64,
    /// Large values on their way in, and as many bytes of them on their way out.
    pub large_bytes_max: u64,
    /// One batch.
    pub batch_bytes_max: u64,
    /// Range reads.
    pub scans_max: usize,
}

impl MemoryBudget {
    /// Splits `memory_bytes`, [`MEMORY_BYTES_MIN`] or more.
    #[must_use]
    pub fn split(memory_bytes: u64) -> Self {
        let scans = (memory_bytes / 64 / SCAN_BYTES).clamp(4, 64);
        Self {
            cache_bytes: memory_bytes / 2,
            block_cache_bytes: memory_bytes / 8,
            memtable_bytes: memory_bytes / 16 * 3,
            bytes_in_flight_max: memory_bytes / 16,
            large_bytes_max: memory_bytes / 32,
            batch_bytes_max: (memory_bytes / 64).min(BATCH_BYTES_MAX),
            scans_max: usize::try_from(scans).unwrap_or(4),
        }
    }

    /// Sum of the shares.
    #[must_use]
    pub fn sum_bytes(&self) -> u64 {
        let scans_bytes = self.scans_max as u64 * SCAN_BYTES;
        self.cache_bytes
            + self.block_cache_bytes
            + self.memtable_bytes
            + self.bytes_in_flight_max
            + 2 * self.large_bytes_max
            + 2 * self.batch_bytes_max
            + scans_bytes
    }
}

// Threshold at which a store thread gives back unused memory.

const INTERVAL: Duration = Duration::from_secs(1);
/// The first sweep after the last use ends the interval of that use; the next one ends one in which
/// nothing happened, and gives back.
const SWEEPS_AFTER_USE: u8 = 2;

/// When the next sweep is due, if any.
#[derive(Debug, Default)]
pub(crate) struct Sweeps {
    due: Option<Instant>,
    left: u8,
}

impl Sweeps {
    /// When to call [`sweep_if_due`](Self::sweep_if_due) at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.due
    }

    /// The memory is being used.
    pub(crate) fn note_use(&mut self, now: Instant) {
        self.left = SWEEPS_AFTER_USE;
        self.due.get_or_insert(now + INTERVAL);
    }

    /// Calls `sweep` where its time has come; it returns how many bytes it gave back, and as long
    /// as that is any, the next sweep follows.
    pub(crate) fn sweep_if_due(&mut self, now: Instant, sweep: impl FnOnce() -> usize) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        self.left -= 1;
        if sweep() > 0 {
            self.left = self.left.max(1);
        }
        self.due = (self.left > 0).then(|| now + INTERVAL);
    }
}

#[cfg(test)]
#[path = "tests/budget.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/sweeps.rs"]
mod sweeps_tests;
