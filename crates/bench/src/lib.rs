//! The pools against malloc: the same programs on either, under every allocator.
//!
//! To begin: [`run`](fn@run) a [`BenchConfig`]; `millpond bench pools` is flags around that. Each program
//! is a file of [`program`].
//!
//! Read in this order, which is the order of a benchmark:
//!
//! ```text
//! candidate                what is measured
//! run                      every program on every candidate, in shuffled repetitions
//!   subject                a child process: started, listened to, never left behind
//!     child                the other side: one program, and a line of JSON (sample)
//!       program/*          what is done with memory; sizes, tagged, handover serve them
//!       memory             the pools, malloc, or no allocation at all, behind one trait
//!       stopwatch, counters, resident   what it took
//!   heap_calls, flamegraph passes of their own, since both cost time
//!   machine                whether somebody else used it meanwhile
//! record, statistics       what was found, as JSON has it
//! report                   the same for a terminal
//! ```
//!
//! `loopback` is another benchmark on the same children: client and server in one process.
//!
//! Invariants: the work around the allocations is the same code for every candidate; what is in
//! memory is checked, and a candidate whose contents differ is not timed; a child runs under the
//! allocator that its figures are named after, by the kernel's word; no child outlives its parent.

pub mod candidate;
pub mod run;
mod subject;
pub mod child;
pub mod sample;
pub mod program;
mod sizes;
mod tagged;
mod memory;
pub mod counters;
mod flamegraph;
pub mod record;
pub mod statistics;
pub mod report;
pub mod loopback;
pub mod error;

pub use error::{BenchError, RunError};
pub use program::Program;
pub use record::BenchRecord;
pub use run::{BenchConfig, BenchEvent, BenchOutcome, run};
