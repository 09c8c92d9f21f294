//! Feeds the sequence harness of the memory pools with what libFuzzer invents.
#![no_main]

#[path = "../../crates/mempool/tests/driver/mod.rs"]
mod driver;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| driver::run(bytes));
