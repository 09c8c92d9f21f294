//! The crate from outside: its parsers against oracles, its server over real sockets.

mod support;
mod parsing;
mod bodies;
mod client;
mod requests;
mod refusals;
mod pipelining;
mod metrics;
mod oracles;
