//! The crate from outside: its parsers against oracles, its server over real sockets.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;
mod parsing;
mod table;
mod smuggling;
mod bodies;
mod client;
mod requests;
mod refusals;
mod streaming;
mod files;
mod idle_memory;
mod limits;
mod memory;
mod pipelining;
mod metrics;
mod signals;
mod oracles;
