//! The launcher as a program of its own: what `millpond launch` runs, for this crate's tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    // The lab calls `PROGRAM launch ...`, as it calls the real binary.
    millpond_lab::launch::main(std::env::args_os().skip(2))
}
