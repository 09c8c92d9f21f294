//! Feeds the harness of `crates/http/tests/fuzz/heads.rs` with what libFuzzer invents.
#![no_main]
#![allow(
    dead_code,
    reason = "the harnesses are one module, and each target runs one of them"
)]

#[path = "../../crates/http/tests/fuzz/mod.rs"]
mod fuzz;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::heads::run(bytes));
