//! What an observer that is preloaded in front of malloc and the program that reads what it saw have
//! to agree on: which allocations are taken as samples and what a sample stands for, and the layouts
//! of their files.
//!
//! `preload/trace` and `preload/sample` count and sample by these rules inside somebody else's
//! program; `lab::trace` and `lab::profile` read by the same ones.
#![cfg_attr(not(test), no_std)]

pub mod sampling;
pub mod churn_file;
pub mod heap_file;
pub mod region_table;
pub mod sample_file;
