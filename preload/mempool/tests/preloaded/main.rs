//! Programs without knowledge of this object run under it unchanged.
//!
//! Each is started with the object preloaded, does real work whose result is checked, and ends
//! well. Nothing is timed. A program that is not installed is skipped with a line, except in
//! continuous integration, where `scripts/setup test` installs it.

mod harness;
mod exercise;
mod report;
mod checks;
mod python;
mod nginx;
mod redis;
mod node;
mod git;
