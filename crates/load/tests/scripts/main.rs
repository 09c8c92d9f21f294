//! wrk's Lua scripts: what they make leave, what they see, and what becomes of their mistakes.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]
#[path = "../support/mod.rs"]
mod support;
mod scripted;

mod sending;
mod answering;
mod ending;
mod mistakes;
