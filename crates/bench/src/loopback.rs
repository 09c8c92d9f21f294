//! Client and server in one process, against each other over loopback: the workload of an earlier
//! benchmark, under every allocator, with memory pools and without.
//!
//! Read in this order:
//!
//! ```text
//! run               every combination of allocator and pools, in shuffled repetitions
//!   child           one combination, in a process of its own
//!     pair          http's server shards and load's threads, pinned side by side
//!       service     what the server answers
//!       wire        the answer byte for byte, before anything is timed
//!   heap            heap calls per transaction, in a pass of its own
//! record, report    what was found, beside what was published (earlier)
//! ```
//!
//! It lies in this crate because it needs both sides of a connection and the lab's allocators; `load`
//! and `http` know nothing of each other's threads, and `lab` starts servers as processes.
//!
//! Absent on purpose: a second client or a second server. Both sides are what `millpond load` and
//! `millpond serve` run; and both are under the allocator, as they were in the earlier benchmark, so
//! that a figure here is of a pair, never of a server.

pub mod run;
pub(crate) mod child;
mod pair;
mod service;
mod wire;
mod heap;
pub mod earlier;
pub mod record;
pub mod report;

pub use pair::{PairSample, PairSpec, Spread};
pub use record::LoopbackRecord;
pub use run::{LoopbackConfig, LoopbackEvent, LoopbackOutcome, run};
