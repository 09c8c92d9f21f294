//! What an observer that is preloaded in front of malloc and the program that reads what it saw have
//! to agree on: which allocations are taken as samples and what a sample stands for, and the layout
//! of the heap trace's file.
//!
//! On the path: `preload/trace` counts and samples by these rules inside somebody else's program;
//! `lab::trace` reads by the same ones.
//! Absent on purpose: the standard library, the heap, and unsafe code.
#![cfg_attr(not(test), no_std)]

pub mod sampling;
pub mod heap_file;
