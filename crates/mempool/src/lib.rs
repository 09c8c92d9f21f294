//! Memory pools with accounting and a run-time switch down to malloc.
//!
//! | for | take | freed |
//! |---|---|---|
//! | objects of one type that own themselves, as boxes do | [`Pooled`] from a [`Pool`] | one by one, on any thread |
//! | objects of one type, named by handles that outlive them | [`Slab`] | one by one, by its owner |
//! | bytes of any length, kept, passed on, sent | [`Buffer`] on a [`BlockPool`] | one by one, on any thread |
//! | temporaries of one request | [`Arena`] | all at once |
//! | what the kernel writes into | [`BufferPool`] | one by one, by its owner |
//! | everything a program allocates | [`MempoolAlloc`], or [`malloc`] for C | one by one, on any thread |
//!
//! Begin with the first block of each type's own page; `docs/how-to/embed-the-crates.md` goes through all of them.
//!
//! ```
//! use millpond_mempool::{Pool, PoolMode};
//! let names = Pool::new("names", PoolMode::On);
//! let name = names.insert(String::from("millpond"))?;
//! assert_eq!(*name, "millpond");
//! # Ok::<(), millpond_mempool::PoolError>(())
//! ```
//!
//! How they lie on each other:
//!
//! ```text
//!   Slab       Pool    Buffer                      Arena       BufferPool
//!     |          |        |                          |             |
//!     |          |     BlockPool                     |             |
//!     |          |        |                          |             |
//!     |       pool_core --+-- outbox, remote_free    |             |
//!     |          |             (other threads)       |             |
//!     |      local_pool                              |             |
//!     |          |                                   |             |
//! slot_chunk  block_class - free_list                |             |
//!     |          |                                   |             |
//!     |      chunk_store (segments of the process)   |             |
//!     |          |                                   |             |
//!     +------- chunk      heap (malloc) -------------+     chunk or heap
//!           (the system)
//! ```
//!
//! Every pool has one owner, the thread that made it, and its fast path has no atomics. Every pool is built in a
//! [`PoolMode`]: `Off` makes each of its calls exactly one malloc or free, with the same results, which shows the real
//! benefit of the pools; `Checked` catches invalid use of their memory and panics with a [`Violation`]. Every pool
//! reports [`PoolStats`], whose identity is checked.
//!
//! Running dry is a [`PoolError`], on which the caller waits or responds with 503. Only the few hundred bytes of a pool
//! itself, taken when it is made, come from the infallible allocator.

#![warn(missing_debug_implementations)]

mod pages;
mod chunk;
mod violation;
mod checked_memory;
mod heap;
mod size_class;
mod free_list;
mod chunk_shelf;
mod chunk_store;
mod coarse_clock;
mod sync;
mod batch;
mod remote_free;
mod outbox;
mod block_class;
mod local_pool;
mod pool_core;
mod block_books;
mod block_pool;
mod pool;
mod block_allocator;
pub mod malloc;
mod buffer;
mod slot_chunk;
mod slab;
mod arena;
mod buffer_pool;
mod pool_mode;

pub use arena::Arena;
pub use block_pool::{BLOCK_ALIGN_MAX, BLOCK_BYTES_MAX, Block, BlockPool, ClassStats};
pub use buffer::{Buffer, BufferWriter};
pub use buffer_pool::{BufferPool, Lease};
pub use heap::{free_heap_bytes, give_back_free_heap, map_large_blocks};
pub use malloc::MempoolAlloc;
pub use outbox::flush_remote_frees;
#[cfg(miri)]
#[doc(hidden)]
pub use pages::with_rights_of_its_mapping;
pub use pool::{Pool, Pooled};
pub use pool_mode::PoolError;
pub use pool_mode::PoolStats;
pub use pool_mode::{Checks, ChecksError};
pub use pool_mode::{PoolMode, PoolModeError};
pub use size_class::POOLED_BYTES_MAX;
pub use slab::PinSlab;
pub use slab::{Handle, Slab};
pub use violation::{Origin, Violation};
