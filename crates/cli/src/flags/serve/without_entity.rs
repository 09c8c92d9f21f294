//! `millpond serve entity` where the command was built without it: says how to get it.

use crate::output::{Exit, Failure};
use clap::Args;

/// Keep values under ids, durably (not in this build)
#[derive(Args, Debug)]
pub(super) struct EntityFlags {
    /// Whatever it would take.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    words: Vec<String>,
}

impl EntityFlags {
    pub(super) fn check(&self) -> Result<(), Failure> {
        let asked = self.words.join(" ");
        Err(Failure::usage(format!(
            "`serve entity {asked}` is not in this build: it was made with --no-default-features; \
             build it with --features entity"
        )))
    }

    pub(super) fn run(self) -> Result<Exit, Failure> {
        self.check().map(|()| Exit::Success)
    }
}
