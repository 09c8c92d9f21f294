//! `millpond pages`: manual pages and shell completions, made from the flags themselves.
//!
//! Hidden: `cargo xtask dist` calls it for whoever packs Millpond. The other way round, linking this
//! command into `xtask`, would keep the checks from running while the command does not compile.

use super::Cli;
use crate::output::{Exit, Failure};
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::fmt::Display;
use std::fs;
use std::path::PathBuf;

/// Write the manual pages and shell completions, for packagers
#[derive(Args, Debug)]
#[command(
    hide = true,
    after_help = "Examples:
  millpond pages share

makes share/man/man1, share/bash-completion and the like."
)]
pub(crate) struct PagesFlags {
    /// Where to; what is missing of it is made
    directory: PathBuf,
}

/// Where each shell looks below a prefix's `share`, and what it calls the file.
const COMPLETIONS: [(Shell, &str, &str); 3] = [
    (Shell::Bash, "bash-completion/completions", "millpond"),
    (Shell::Zsh, "zsh/site-functions", "_millpond"),
    (Shell::Fish, "fish/vendor_completions.d", "millpond.fish"),
];

impl PagesFlags {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let shown = self.directory.display().to_string();
        let failed = |error: &dyn Display| Failure::failed(format!("{shown}: {error}"));
        let manual = self.directory.join("man/man1");
        fs::create_dir_all(&manual).map_err(|error| failed(&error))?;
        clap_mangen::generate_to(Cli::command(), &manual).map_err(|error| failed(&error))?;
        for (shell, place, name) in COMPLETIONS {
            let directory = self.directory.join(place);
            fs::create_dir_all(&directory).map_err(|error| failed(&error))?;
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "millpond", &mut text);
            fs::write(directory.join(name), text).map_err(|error| failed(&error))?;
        }
        Ok(Exit::Success)
    }
}
