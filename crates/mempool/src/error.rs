//! Why a pool handed out no memory.

/// Why a pool handed out no memory. A refusal leaves the pool as it was, so the caller may answer
/// 503, wait, or ask for less; nothing needs to be undone.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The operating system or malloc gave no memory.
    #[error("no memory for {requested_bytes} bytes: free some, or raise the memory limit")]
    OutOfMemory {
        /// What was asked for.
        requested_bytes: usize,
    },
    /// The pool would hold more than its budget.
    #[error(
        "{requested_bytes} more bytes would pass the pool's budget of {limit_bytes} bytes: wait \
         until memory is freed, answer 503, or raise the budget"
    )]
    BudgetExhausted {
        /// What the pool wanted to add: a chunk, or the block itself where it needs no chunk.
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
        /// What was asked for.
        requested_bytes: usize,
        /// The largest block.
        limit_bytes: usize,
    },
}
