//! The crate from outside: its parsers against oracles, its server over real sockets.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;
#[path = "../relay/mod.rs"]
mod relay;
mod parsing;
mod capacity;
mod head_texts;
#[path = "../fuzz/mod.rs"]
mod fuzz;
mod kept_inputs;
mod smuggling;
mod differential;
mod bodies;
mod client;
mod requests;
mod refusals;
mod streaming;
mod files;
mod hostile;
mod asynchronous;
mod handlers;
mod exchanges;
mod calls;
mod idle_memory;
mod limits;
mod memory;
mod pipelining;
mod metrics;
mod access_log;
mod signals;
mod oracles;
mod proxy;
