//! Numbers: what was measured, what it says, and how sure one can be. No sockets, nothing of ours.
//!
//! To begin: [`histogram`] for latencies; [`statistics`] to compare two series of rounds; and for a `results.json`,
//! `examples/read_results.rs`, which analyses one again and writes its reports.
//!
//! `load` records its three clocks into [`histogram`]; `lab` reads [`process`], [`counters`] and
//! [`noise`] at the edges of each phase, fills the types of [`record`], asks [`analysis`] for the
//! verdicts and hands the record to [`report`], which only reads it. Samples of stacks become
//! pictures in [`flamegraph`].
//!
//! A number comes in, a sentence with its uncertainty goes out, and the same record always gives
//! the same sentence.

pub mod units;
pub mod histogram;
pub mod series;
pub mod statistics;
pub mod environment;
pub mod process;
pub mod counters;
pub mod noise;
pub mod phases;
pub mod slices;
pub mod growth;
pub mod flamegraph;
pub mod slo;
pub mod record;
pub mod analysis;
pub mod regression;
pub mod report;
