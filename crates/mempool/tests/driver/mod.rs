//! Sequences of operations, drawn from bytes, on every kind of pool, against models of them.
//!
//! One harness for two uses: `fuzz/` feeds it libFuzzer's inputs, `tests/sequences.rs` feeds it seeded noise and the
//! inputs that once found a fault. Any bytes are an input; the first chooses the pool and its mode. After each
//! operation the figures must match the model's, no two lent ranges may overlap, and a holder's bytes must still be
//! there when it gives its block back. The checked mode's reports have separate tests.
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a harness of tests is a test too")]

mod input;
mod ledger;
mod blocks;
mod objects;
mod owned;
mod heap;

use input::Input;
use millpond_mempool::{Checks, PoolMode};
use std::num::NonZeroU64;

/// Runs the operations that `bytes` stand for. Panics where a pool breaks a promise.
pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let subject = input.byte() % 8;
    let mode = mode(&mut input);
    match subject {
        0 | 1 => blocks::run(&mut input, mode),
        2 => objects::run(&mut input, mode),
        3 => owned::slab(&mut input, mode),
        4 => owned::arena(&mut input, mode),
        5 => owned::buffers(&mut input, mode),
        _ => heap::run(&mut input),
    }
}

fn mode(input: &mut Input) -> PoolMode {
    match input.byte() % 8 {
        0..=3 => PoolMode::On,
        4 => PoolMode::Off,
        5 => PoolMode::ArenaOnly,
        6 => PoolMode::Checked(Checks::default()),
        _ => PoolMode::Checked(Checks {
            guard_pages: input.byte().is_multiple_of(4),
            fail_at: NonZeroU64::new(u64::from(input.byte())),
        }),
    }
}

/// Whether a pool of this mode may refuse though it is within its budget.
fn may_fail(mode: PoolMode) -> bool {
    matches!(mode, PoolMode::Checked(checks) if checks.fail_at.is_some())
}
