//! `millpond config`: the file of a server, checked or begun; and `--config`, which takes it.
//!
//! On the path: [`CommandLine`] looks at the words before clap does, and adds those of the file that
//! they name. So a key is a flag, with the same parser, help and errors, and whatever is given on the
//! command line wins because the file's word is left out.
//!
//! Absent on purpose: keys of its own, other than `server`; the upstreams of a proxy, which are tables
//! that SIGHUP reads again, are in `proxy::settings`.

mod command_line;
mod file;
mod listing;

pub(super) use command_line::CommandLine;
pub(crate) use command_line::Refusal;
pub(super) use file::SERVER_KEY;

use super::{Cli, Command};
use crate::output::{self, Exit, Failure};
use clap::{Args, CommandFactory, Subcommand, ValueEnum};
use file::ConfigFile;
use std::ffi::OsString;
use std::path::PathBuf;

/// Check the configuration file of a server, or begin one
///
/// A file (TOML) has the names of the flags as keys, and says for which server it is. A flag on the
/// command line wins over the file.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  millpond config example entity > millpond.toml
  millpond config check millpond.toml
  millpond serve --config millpond.toml
  millpond serve entity --config millpond.toml --listen 127.0.0.1:9090

A file:
  server = \"entity\"
  listen = \"0.0.0.0:8080\"
  max-connections = 10000
  reuse-port = true
  tls-cert = [\"a.pem\", \"b.pem\"]
  tls-key = [\"a.key\", \"b.key\"]")]
pub(crate) struct ConfigFlags {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Read a file as its server would, and show the settings that follow from it
    ///
    /// What is wrong is named with line and key, with status 2; nothing is started and no data is touched.
    #[command(after_help = "Examples:
  millpond config check millpond.toml")]
    Check {
        /// The file
        file: PathBuf,
    },
    /// Print a file with every setting of a server, its help, and its default
    #[command(after_help = "Examples:
  millpond config example entity > millpond.toml")]
    Example {
        /// Which server
        server: ServerKind,
    },
}

/// The flag that takes such a file.
#[derive(Args, Debug)]
pub(super) struct ConfigFlag {
    /// Take settings from FILE (TOML), where they have the names of these flags; what is given on the
    /// command line wins. `millpond config example` begins one, `millpond config check` reads it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl ConfigFlag {
    /// Says where settings come from that nobody sees on the command line.
    pub(super) fn announce(&self) {
        if let Some(file) = &self.config {
            output::note(format!("{} has settings of this server", file.display()));
        }
    }
}

/// The servers there are.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(super) enum ServerKind {
    Plaintext,
    Entity,
    Files,
    Proxy,
}

impl ServerKind {
    const ALL: [Self; 4] = [Self::Plaintext, Self::Entity, Self::Files, Self::Proxy];

    const fn name(self) -> &'static str {
        match self {
            Self::Plaintext => "plaintext",
            Self::Entity => "entity",
            Self::Files => "files",
            Self::Proxy => "proxy",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The words that start it.
    const fn words(self) -> &'static [&'static str] {
        match self {
            Self::Plaintext => &["serve", "plaintext"],
            Self::Entity => &["serve", "entity"],
            Self::Files => &["serve", "files"],
            Self::Proxy => &["proxy"],
        }
    }

    /// Its flags.
    fn command(self) -> clap::Command {
        let mut command = Cli::command();
        command.build();
        for word in self.words() {
            let next = command.find_subcommand(word).cloned();
            command = next.unwrap_or(command);
        }
        command
    }
}

impl ConfigFlags {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        match self.verb {
            Verb::Check { file } => check(file)?,
            Verb::Example { server } => output::print(listing::example(server))?,
        }
        Ok(Exit::Success)
    }
}

fn check(path: PathBuf) -> Result<(), Failure> {
    let file = ConfigFile::read(&path)?;
    let kind = file.kind()?;
    let start = ["millpond"].iter().chain(kind.words()).map(OsString::from);
    let words = start.chain(["--config".into(), path.into_os_string()]);
    let line = CommandLine::of(words.collect())?;
    let refused = |refusal| match refusal {
        Refusal::File(failure) => failure,
        Refusal::Words(error) => Failure::usage(error),
    };
    let matches = line.matches().map_err(refused)?;
    // A certificate that cannot be read, say: for who checks a file, the file is wrong.
    let in_file = |failure| match failure {
        Failure::Usage(sentence) | Failure::Failed(sentence) => {
            let begins = sentence.starts_with(&file.path.display().to_string());
            let place = if begins {
                String::new()
            } else {
                format!("{}: ", file.path.display())
            };
            Failure::usage(format!("{place}{sentence}"))
        }
    };
    let extra = match line.read().map_err(refused)?.command {
        Command::Serve(flags) => {
            flags.check().map_err(in_file)?;
            Vec::new()
        }
        Command::Proxy(flags) => flags.check().map_err(in_file)?,
        _ => Vec::new(),
    };
    output::print(listing::effective(&file, kind, &matches, &extra))
}
