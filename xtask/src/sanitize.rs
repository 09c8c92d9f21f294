//! The pools' tests with a compiler that watches every access: for bounds and lifetimes, or for
//! races.
//!
//! Absent on purpose: the whole workspace. The pools are where memory is ours; the other crates'
//! unsafe code is calls of the system.

use crate::metadata::target_directory;
use crate::step::run_command;
use crate::tally::TestTally;
use crate::toolchain::{Toolchain, with_rustflags};
use std::process::Command;

/// What to watch for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Sanitizer {
    /// Out of bounds, use after free, leaks.
    Address,
    /// Unordered accesses of several threads.
    Thread,
}

impl Sanitizer {
    /// `address` or `thread`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "address" => Some(Self::Address),
            "thread" => Some(Self::Thread),
            _ => None,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Thread => "thread",
        }
    }

    /// The variable that its runtime takes options from.
    const fn options_variable(self) -> &'static str {
        match self {
            Self::Address => "ASAN_OPTIONS",
            Self::Thread => "TSAN_OPTIONS",
        }
    }
}

/// Tests of what a sanitizer takes into its own hands: the number of mappings that a process may
/// have.
const NOT_UNDER_IT: &str = "running_out_of_mappings";

/// Their malloc ends the process where the system's refuses, and they report a fault that ends it in
/// words of their own. Refusals and faults are what some tests are about.
const OPTIONS: &str = "allocator_may_return_null=1:handle_segv=0";

/// Runs the tests of the pools.
pub(crate) fn run(sanitizer: Sanitizer) -> Result<(), String> {
    let toolchain = Toolchain::most_able();
    if !toolchain.has_source() && sanitizer == Sanitizer::Thread {
        // The atomics of a standard library that is not watched look like no atomics.
        return Err(
            "the standard library's source is missing: `rustup component add rust-src` for the \
             nightly toolchain, or for the one in use"
                .to_owned(),
        );
    }
    let mut command = tests_under(&toolchain, sanitizer, &["--lib", "--tests"])?;
    match run_command(&mut command, &mut TestTally::default())? {
        true => Ok(()),
        false => Err(format!(
            "the {} sanitizer found what is printed above",
            sanitizer.as_str()
        )),
    }
}

/// The command that runs these of the pools' test programs.
fn tests_under(
    toolchain: &Toolchain,
    sanitizer: Sanitizer,
    programs: &[&str],
) -> Result<Command, String> {
    let name = sanitizer.as_str();
    let has_source = toolchain.has_source();
    let mut command = toolchain.cargo();
    command.args(["test", "--locked", "--package", "millpond-mempool"]);
    command.args(programs);
    command.args(["--no-fail-fast", "--target", &toolchain.host()?]);
    if has_source {
        command.arg("-Zbuild-std");
    }
    command.args(["--", "--skip", NOT_UNDER_IT]);
    // rustix makes system calls by itself, which no sanitizer sees: memory that one pool unmapped
    // and another got again would look like memory that both use. Through the C library's calls
    // they are seen.
    let mut flags = format!("-Zsanitizer={name} --cfg rustix_use_libc");
    if !has_source {
        // The standard library comes without the flag then.
        flags.push_str(" -Cunsafe-allow-abi-mismatch=sanitizer");
    }
    with_rustflags(&mut command, &flags);
    let directory = target_directory()?.join(format!("sanitize-{name}"));
    command.env("CARGO_TARGET_DIR", directory);
    let variable = sanitizer.options_variable();
    let own = std::env::var(variable).unwrap_or_default();
    command.env(variable, format!("{OPTIONS}:{own}"));
    // A stack for each of the panics that tests expect takes longer than all the rest.
    command.env("RUST_BACKTRACE", "0");
    Ok(command)
}
