//! One program on one kind of memory, as a process of its own: what `millpond bench-child` runs.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Called as `PROGRAM bench-child ...`, as the real binary is.
    millpond_bench::child::main(std::env::args_os().skip(2))
}
