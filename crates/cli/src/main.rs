//! The `millpond` command: flags, output and exit status. The logic is in the crates below.
//!
//! A command line becomes a configuration in [`flags`], which checks all that can be checked before
//! a file or a socket is opened; a crate does the work; [`output`] shows it.

mod flags;
mod output;

use flags::Refusal;
use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    // The lab's own stage between itself and a target: its words are not for clap to judge.
    if words.get(1).is_some_and(|word| word == "launch") {
        return millpond_lab::launch::main(words.into_iter().skip(2));
    }
    // The same for a benchmark's programs, which must find nothing allocated before them.
    if words.get(1).is_some_and(|word| word == "bench-child") {
        return millpond_bench::child::main(words.into_iter().skip(2));
    }
    match flags::Cli::read(words) {
        Ok(cli) => cli
            .run()
            .unwrap_or_else(|failure| output::report(&failure))
            .into(),
        Err(Refusal::Words(error)) => output::report_usage(&error).into(),
        Err(Refusal::File(failure)) => output::report(&failure).into(),
    }
}
