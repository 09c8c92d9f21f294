//! Modes, errors and figures every pool shares.

/// Whether pools keep memory for reuse, or pass every call on to malloc and free.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Hash)]
pub enum PoolMode {
    /// Freed memory is kept for reuse.
    #[default]
    On,
    /// Every pool call is exactly one malloc or free.
    Off,
}

impl PoolMode {
    /// `on` or `off`, as the flag `--pools` and the metrics label write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// Why a pool handed out no memory. A refusal leaves the pool as it was.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The operating system or malloc gave no memory.
    #[error("no memory for {requested_bytes} bytes: free some or raise the memory limit")]
    OutOfMemory {
        /// What was asked for.
        requested_bytes: usize,
    },
    /// The pool's own limit would be passed.
    #[error(
        "{requested_bytes} more bytes would pass the pool's budget of {limit_bytes}: \
         answer 503 or wait until memory is freed, or raise the budget"
    )]
    BudgetExhausted {
        /// What was asked for.
        requested_bytes: usize,
        /// The pool's limit.
        limit_bytes: usize,
    },
    /// All objects the pool may have are lent.
    #[error("all {count_max} objects of the pool are in use: wait until one is returned")]
    Exhausted {
        /// The most objects the pool may have.
        count_max: usize,
    },
    /// More than a block can ever hold.
    #[error("{requested_bytes} bytes do not fit in one block of at most {limit_bytes}: split it")]
    TooLarge {
        /// What was asked for.
        requested_bytes: usize,
        /// The largest block.
        limit_bytes: usize,
    },
}

/// What one pool holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PoolStats {
    /// The pool's name, as given to its constructor.
    pub name: &'static str,
    /// `slab`, `block`, `arena` or `buffer`.
    pub kind: &'static str,
    /// The pool's mode.
    pub mode: PoolMode,
    /// Objects lent.
    pub live_objects: u64,
    /// Bytes asked for by the objects lent.
    pub live_bytes: u64,
    /// Bytes ready for reuse.
    pub cached_bytes: u64,
    /// Bytes that can serve no request.
    pub waste_bytes: u64,
    /// Bytes held from malloc and the operating system.
    pub reserved_bytes: u64,
    /// The most `live_bytes` ever.
    pub high_water_bytes: u64,
    /// Requests served from memory the pool already held.
    pub hits: u64,
    /// Requests that went to malloc or the operating system.
    pub misses: u64,
    /// Objects that came back from another thread.
    pub remote_frees: u64,
}
