//! The figures every pool reports.
//!
//! On the path: `/metrics` and SIGUSR1 print these figures for each pool of each shard, and the lab
//! reads them to say what the pools cost in memory.
//! Absent on purpose: totals over pools or threads. A pool has one owner, so its counters are plain
//! numbers; whoever prints them adds them up.

use crate::PoolMode;
use crate::direct_memory::DirectMemory;

/// What one pool holds at this moment.
///
/// Identity: `reserved_bytes = live_bytes + cached_bytes + waste_bytes`. The four are counted apart
/// (`reserved` where memory is taken from and given back to the system, `live` where objects are
/// lent and returned, `cached` from the free lists, `waste` from the layout), so a block that is
/// lost or counted twice breaks it. [`PoolStats::identity_holds`] checks it; debug builds check it
/// whenever figures are taken.
///
/// Bytes are addresses reserved; a buffer pool counts only those that can have pages, since its
/// region is addressed for ever. Pages never written to are not resident, so RSS may be lower. The
/// pools' own tables that grow with use (entries of chunks, lists of ids) are waste; the few hundred
/// bytes a pool is made of are not counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PoolStats {
    /// The name the pool was given.
    pub name: &'static str,
    /// `slab`, `block`, `arena` or `buffer`.
    pub kind: &'static str,
    /// Whether the pool reuses memory.
    pub mode: PoolMode,
    /// Objects lent. Asking for the figures takes home what other threads freed and sent.
    pub live_objects: u64,
    /// Bytes the holders of those objects asked for.
    pub live_bytes: u64,
    /// Bytes ready to be lent without asking anyone. 0 in [`PoolMode::Off`]; in
    /// [`PoolMode::Checked`] with those of the quarantine.
    pub cached_bytes: u64,
    /// Bytes that serve nobody: rounding up to a size class, headers, tails of chunks, tables,
    /// canaries, guard pages.
    pub waste_bytes: u64,
    /// Bytes taken from the operating system or from malloc and not given back.
    pub reserved_bytes: u64,
    /// The most `live_bytes` has ever been, with those that other threads freed until the owner needed
    /// them or asked.
    pub high_water_bytes: u64,
    /// Objects lent from memory the pool already had.
    pub hits: u64,
    /// Objects for which the pool asked the operating system or malloc.
    pub misses: u64,
    /// Objects that were freed by a thread other than the owner and have come home.
    pub remote_frees: u64,
}

impl PoolStats {
    /// Whether reserved = live + cached + waste, and nothing is cached while pools are off.
    #[must_use]
    pub const fn identity_holds(&self) -> bool {
        self.reserved_bytes == self.live_bytes + self.cached_bytes + self.waste_bytes
            && (!matches!(self.mode, PoolMode::Off) || self.cached_bytes == 0)
            && self.live_bytes <= self.high_water_bytes
    }

    /// Adds what checked memory holds beside the blocks that the pool counts for itself.
    pub(crate) fn with_memory_of(self, direct: &DirectMemory) -> Self {
        let Some(memory) = direct.figures() else {
            return self;
        };
        // A block freed elsewhere is known there at once, here when it is drained.
        debug_assert!(memory.live_bytes <= self.live_bytes, "{memory:?}, {self:?}");
        Self {
            cached_bytes: self.cached_bytes + memory.cached_bytes,
            waste_bytes: self.waste_bytes + memory.waste_bytes,
            reserved_bytes: self.reserved_bytes + memory.reserved_bytes - memory.live_bytes,
            ..self
        }
    }

    /// Passes the figures on after the check that debug builds make.
    pub(crate) fn checked(self) -> Self {
        debug_assert!(
            self.identity_holds(),
            "reserved = live + cached + waste is broken: {self:?}"
        );
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BALANCED: PoolStats = PoolStats {
        name: "test",
        kind: "block",
        mode: PoolMode::On,
        live_objects: 1,
        live_bytes: 60,
        cached_bytes: 36,
        waste_bytes: 4,
        reserved_bytes: 100,
        high_water_bytes: 60,
        hits: 0,
        misses: 1,
        remote_frees: 0,
    };

    /// Goal: the check that the other tests lean on can fail, in each of its three parts.
    #[test]
    fn identity_check_sees_each_kind_of_error() {
        assert!(BALANCED.identity_holds());
        assert!(
            !PoolStats {
                reserved_bytes: 101,
                ..BALANCED
            }
            .identity_holds()
        );
        assert!(
            !PoolStats {
                mode: PoolMode::Off,
                ..BALANCED
            }
            .identity_holds()
        );
        assert!(
            !PoolStats {
                high_water_bytes: 59,
                ..BALANCED
            }
            .identity_holds()
        );
    }
}
