//! The mode every pool is built in, and how it is written on a command line.
//!
//! `--pools` is parsed here once, and every pool of every shard is made with it.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use crate::heap::DirectMemory;

/// Whether a pool keeps freed memory, chosen when the pool is made.
///
/// ```
/// use millpond_mempool::{Checks, PoolMode};
/// assert_eq!("arena-only".parse(), Ok(PoolMode::ArenaOnly));
/// assert_eq!("checked".parse(), Ok(PoolMode::Checked(Checks::default())));
/// let mode: PoolMode = "checked,guard,fail=100".parse()?;
/// assert_eq!(mode.to_string(), "checked,guard,fail=100");
/// # Ok::<(), millpond_mempool::PoolModeError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum PoolMode {
    /// Freed memory is kept and reused, newest first.
    #[default]
    On,
    /// Arenas keep and reuse their memory; every other pool is as in [`PoolMode::Off`].
    ArenaOnly,
    /// Every allocation is exactly one malloc and every return exactly one free, through the
    /// global allocator. Same calls, same results; it shows what the pools give.
    Off,
    /// For debugging: invalid use of the memory is caught, and the pool panics with a [`Violation`](crate::Violation).
    /// Many times slower than any other mode, and blocks take more memory; budgets count the requested bytes, as with
    /// pools off.
    Checked(Checks),
}

/// A text that names no mode.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolModeError {
    /// The word before the first comma.
    #[error("{text:?} is no mode of the pools: write on, off, arena-only, or checked")]
    UnknownMode {
        /// The text given.
        text: String,
    },
    /// The text after `checked,`.
    #[error(transparent)]
    Checks(#[from] ChecksError),
}

impl PoolMode {
    /// The mode without its options: the value of the metrics label `mode`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::ArenaOnly => "arena-only",
            Self::Off => "off",
            Self::Checked(_) => "checked",
        }
    }

    /// Whether pools of blocks and objects keep freed memory.
    #[must_use]
    pub const fn pools_blocks(self) -> bool {
        matches!(self, Self::On)
    }

    /// Whether arenas keep freed memory.
    #[must_use]
    pub const fn pools_arenas(self) -> bool {
        matches!(self, Self::On | Self::ArenaOnly)
    }
}

impl FromStr for PoolMode {
    type Err = PoolModeError;

    /// `on`, `off`, `arena-only`, `checked`, or `checked` with options after a comma.
    fn from_str(text: &str) -> Result<Self, PoolModeError> {
        match text {
            "on" => Ok(Self::On),
            "arena-only" => Ok(Self::ArenaOnly),
            "off" => Ok(Self::Off),
            "checked" => Ok(Self::Checked(Checks::default())),
            _ => match text.strip_prefix("checked,") {
                // A comma without a word after it is an error.
                Some("") => Err(PoolModeError::Checks(ChecksError::UnknownOption {
                    option: String::new(),
                })),
                Some(options) => Ok(Self::Checked(options.parse()?)),
                None => Err(PoolModeError::UnknownMode {
                    text: text.to_owned(),
                }),
            },
        }
    }
}

impl fmt::Display for PoolMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())?;
        match self {
            Self::Checked(checks) if *checks != Checks::default() => {
                write!(formatter, ",{checks}")
            }
            _ => Ok(()),
        }
    }
}

// Options of a checked pool, and their form on a command line.

/// Options of a pool in [`PoolMode::Checked`](crate::PoolMode::Checked).
///
/// Poison, canaries on both sides, double free, foreign pointer and wrong size are always on.
///
/// ```
/// use millpond_mempool::Checks;
/// let checks: Checks = "guard,fail=100".parse()?;
/// assert!(checks.guard_pages);
/// assert_eq!(checks.to_string(), "guard,fail=100");
/// # Ok::<(), millpond_mempool::ChecksError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Checks {
    /// Every block ends at an inaccessible guard page, and becomes inaccessible when it is freed: a stray access faults
    /// at that instruction. Costs at least a page and a few system calls for each block.
    pub guard_pages: bool,
    /// The pool refuses this allocation, counted from 1, and no other.
    pub fail_at: Option<NonZeroU64>,
}

/// A word that is not an option of checked pools.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ChecksError {
    /// An unknown option.
    #[error("checked pools know no {option:?}: write guard, fail=N, or both with a comma")]
    UnknownOption {
        /// The word.
        option: String,
    },
    /// The value of `fail=` is not a count.
    #[error("fail={text:?} names no allocation: write a whole number from 1 on")]
    BadNumber {
        /// The text after the sign.
        text: String,
    },
    /// The same option twice.
    #[error("{option} is given twice: leave one out")]
    Repeated {
        /// The option.
        option: &'static str,
    },
}

impl FromStr for Checks {
    type Err = ChecksError;

    /// Options with commas between them; none at all is what is always on.
    fn from_str(text: &str) -> Result<Self, ChecksError> {
        let mut checks = Self::default();
        for option in text.split(',').filter(|_| !text.is_empty()) {
            if option == "guard" {
                if checks.guard_pages {
                    return Err(ChecksError::Repeated { option: "guard" });
                }
                checks.guard_pages = true;
            } else if let Some(number) = option.strip_prefix("fail=") {
                if checks.fail_at.is_some() {
                    return Err(ChecksError::Repeated { option: "fail" });
                }
                let number = number.parse().map_err(|_| ChecksError::BadNumber {
                    text: number.to_owned(),
                })?;
                checks.fail_at = Some(number);
            } else {
                return Err(ChecksError::UnknownOption {
                    option: option.to_owned(),
                });
            }
        }
        Ok(checks)
    }
}

impl fmt::Display for Checks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let comma = match (self.guard_pages, self.fail_at) {
            (true, Some(_)) => ",",
            _ => "",
        };
        if self.guard_pages {
            write!(formatter, "guard{comma}")?;
        }
        match self.fail_at {
            Some(number) => write!(formatter, "fail={number}"),
            None => Ok(()),
        }
    }
}

// How much a pool may hold, and how much it holds.

/// Bytes a pool has reserved, under its limit.
/// Invariant: `reserved_bytes <= limit_bytes`. In this order: see `LocalPool`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Budget {
    reserved_bytes: usize,
    limit_bytes: usize,
}

impl Budget {
    /// Nothing reserved yet; `usize::MAX` means no limit.
    pub(crate) const fn new(limit_bytes: usize) -> Self {
        Self {
            limit_bytes,
            reserved_bytes: 0,
        }
    }

    /// Notes a reservation, or refuses it and notes nothing.
    pub(crate) const fn take(&mut self, requested_bytes: usize) -> Result<(), PoolError> {
        let limit_bytes = self.limit_bytes;
        if requested_bytes > limit_bytes - self.reserved_bytes {
            return Err(PoolError::BudgetExhausted {
                requested_bytes,
                limit_bytes,
            });
        }
        self.reserved_bytes += requested_bytes;
        Ok(())
    }

    /// Notes that `bytes` of what was taken went back to the system.
    pub(crate) const fn give_back(&mut self, bytes: usize) {
        assert!(bytes <= self.reserved_bytes, "more given back than taken");
        self.reserved_bytes -= bytes;
    }

    /// Bytes taken and not given back.
    pub(crate) const fn reserved_bytes(&self) -> usize {
        self.reserved_bytes
    }
}

// The figures every pool reports.

/// Current numbers of one pool.
///
/// Identity: `reserved_bytes = live_bytes + cached_bytes + waste_bytes`. The four are counted apart
/// (`reserved` where memory is taken from and given back to the system, `live` where objects are
/// lent and returned, `cached` from the free lists, `waste` from the layout), so a block that is
/// lost or counted twice breaks it. [`PoolStats::identity_holds`] checks it; debug builds check it
/// whenever figures are taken.
///
/// Bytes are addresses reserved; a buffer pool counts only those that can have pages, since its region is addressed for
/// ever. Pages never written to are not resident, so RSS may be lower. The pools' own tables that grow with use
/// (entries of chunks, lists of ids) are waste; the few hundred bytes of the pool itself are not counted.
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
    /// Bytes ready to be lent without another allocation. 0 in [`PoolMode::Off`]; in [`PoolMode::Checked`] with those
    /// of the quarantine.
    pub cached_bytes: u64,
    /// Overhead bytes: rounding up to a size class, headers, tails of chunks, tables, canaries, guard pages.
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
    /// Objects that were freed by a thread other than the owner and have been returned.
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

// Why a pool handed out no memory.

/// Why a pool handed out no memory. A refusal leaves the pool as it was, so the caller may respond with 503, wait, or
/// request less; nothing needs to be undone.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The operating system or malloc gave no memory.
    #[error("no memory for {requested_bytes} bytes: free some, or raise the memory limit")]
    OutOfMemory {
        /// The size requested.
        requested_bytes: usize,
    },
    /// The pool would hold more than its budget.
    #[error(
        "{requested_bytes} more bytes would pass the pool's budget of {limit_bytes} bytes: wait \
         until memory is freed, answer 503, or raise the budget"
    )]
    BudgetExhausted {
        /// The bytes the pool needed to add: a chunk, or the block itself where it needs no chunk.
        requested_bytes: usize,
        /// The most the pool may hold.
        limit_bytes: usize,
    },
    /// All objects the pool may have are lent.
    #[error("all {count_max} objects of the pool are in use: wait until one is returned")]
    Exhausted {
        /// The most objects the pool may have.
        count_max: usize,
    },
    /// More than one block can hold.
    #[error("{requested_bytes} bytes do not fit in one block of {limit_bytes} bytes: split them")]
    TooLarge {
        /// The size requested.
        requested_bytes: usize,
        /// The largest block.
        limit_bytes: usize,
    },
}

#[cfg(test)]
#[path = "tests/pool_mode.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/checks.rs"]
mod checks_tests;

#[cfg(test)]
#[path = "tests/budget.rs"]
mod budget_tests;

#[cfg(test)]
#[path = "tests/accounting.rs"]
mod accounting_tests;
