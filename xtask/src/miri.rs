//! The pools' tests under Miri, which knows every rule of memory that a compiler may rely on.
//!
//! The pools take their chunks from the allocator there, since Miri knows no `mmap` at an address
//! of one's choice, and the tests do little of what they otherwise do often: Miri is a thousand
//! times slower. Absent on purpose: other crates. Their unsafe code is calls of the system.

use crate::step::{TestCount, run_command};
use crate::toolchain::{Toolchain, target_directory};

/// Runs the tests of the pools whose path contains one of `filter`, or all.
pub(crate) fn run(filter: &[&str]) -> Result<(), String> {
    let toolchain = Toolchain::most_able();
    if !toolchain.has_miri() {
        return Err(
            "Miri is missing: `rustup toolchain install nightly --component miri,rust-src`"
                .to_owned(),
        );
    }
    let mut command = toolchain.cargo();
    command
        .args(["miri", "test", "--locked", "--package", "millpond-mempool"])
        .args(["--lib", "--tests", "--"])
        .args(filter);
    // Addresses are never made from numbers; blocks cross threads in orders drawn from a seed; the
    // seeds of property tests must not be looked for in files.
    command
        .env(
            "MIRIFLAGS",
            "-Zmiri-strict-provenance -Zmiri-disable-isolation",
        )
        .env("CARGO_TARGET_DIR", target_directory()?.join("miri"));
    match run_command(&mut command, &mut TestCount::default())? {
        true => Ok(()),
        false => Err("Miri found what is printed above".to_owned()),
    }
}
