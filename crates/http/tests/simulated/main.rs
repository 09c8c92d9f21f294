//! The server over a simulated network: every split, every fault, deadlines in virtual time.
//!
//! `MILLPOND_SIM_SEEDS=N` and `MILLPOND_SIM_FROM=SEED` make the storm try more or other seeds;
//! `cargo xtask simulate` sets them.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../relay/mod.rs"]
mod relay;
mod stage;
mod service;
mod streams;
mod responses;
mod splits;
mod conversation;
mod client;
mod line;
mod storm;
mod flood;
mod relayed;
mod proxied;
mod broken_off;
mod informed;
mod trailers;
mod tunnels;
mod deadlines;
mod regressions;
