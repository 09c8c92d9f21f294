//! `millpond config`: the file of a server, checked or begun; and `--config`, which takes it.
//!
//! [`CommandLine`] reads the words before clap does, and adds those of the file that they name. So
//! a key is a flag, with the same parser, help and errors; the command line wins because the file's
//! word is left out.

mod command_line;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, CommandFactory, Subcommand, ValueEnum};
use command_line::ConfigFile;
use command_line::{argument, name_of, takes_value, value_name};
use millpond_measure::report::terminal::wrapped;

use crate::flags::serve::is_server_flag;
use crate::output;
use crate::output::{Exit, Failure};

use super::{Cli, Command};

pub(crate) use command_line::Refusal;

pub(super) use command_line::CommandLine;
pub(super) use command_line::SERVER_KEY;

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
    /// Says where settings come from that are not on the command line.
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
            Verb::Example { server } => output::print(example(server))?,
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
    // A certificate that cannot be read, say: to a check of the file, the file is wrong.
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
    output::print(effective(&file, kind, &matches, &extra))
}

// The settings of a server as text: those that a file makes, and all there are.
//
// Both are files again: what is shown can be written to one, and says the same.

const WIDTH: usize = 80;
/// Notes stand one behind, if the setting leaves them the room.
const SETTING_WIDTH: usize = 43;

/// What holds where `file` does, as `matches` have it; `extra` are lines about what is no flag.
fn effective(
    file: &ConfigFile,
    kind: ServerKind,
    matches: &ArgMatches,
    extra: &[String],
) -> String {
    let words = kind.words();
    let mut text = format!(
        "# millpond {}, by {}\n",
        words.join(" "),
        file.path.display()
    );
    // A String takes any text.
    let _ = writeln!(text, "server = \"{}\"", kind.name());
    let command = kind.command();
    let mut matches = matches;
    while let Some((_, inner)) = matches.subcommand() {
        matches = inner;
    }
    for arg in settable(&command, kind) {
        let Some(setting) = setting_of(arg, matches) else {
            continue;
        };
        let source = match matches.value_source(arg.get_id().as_str()) {
            Some(ValueSource::CommandLine) => {
                let line = file.settings.iter().find(|one| one.key == name_of(arg));
                line.map(|one| format!("line {}", one.line))
            }
            _ => None,
        };
        let _ = match source {
            Some(line) => writeln!(text, "{setting:<SETTING_WIDTH$} # {line}"),
            None => writeln!(text, "{:<SETTING_WIDTH$} # default", format!("# {setting}")),
        };
    }
    for line in extra {
        let _ = writeln!(text, "# {line}");
    }
    text
}

/// `None` for what is neither set nor has a default.
fn setting_of(arg: &Arg, matches: &ArgMatches) -> Option<String> {
    let id = arg.get_id().as_str();
    let name = name_of(arg);
    if !takes_value(arg) {
        let is_on = matches.get_flag(id);
        return Some(format!("{name} = {is_on}"));
    }
    let values: Vec<String> = matches
        .get_raw(id)?
        .map(|value| quoted(&value.to_string_lossy()))
        .collect();
    Some(match (arg.get_action(), values.as_slice()) {
        (ArgAction::Append, values) => format!("{name} = [{}]", values.join(", ")),
        (_, values) => format!("{name} = {}", values.join(", ")),
    })
}

/// As TOML writes it.
fn quoted(text: &str) -> String {
    let escaped = text.chars().flat_map(|letter| match letter {
        '"' | '\\' => vec!['\\', letter],
        letter => vec![letter],
    });
    format!("\"{}\"", escaped.collect::<String>())
}

/// All that a file may set, with help, none of it set.
fn example(kind: ServerKind) -> String {
    let words = kind.words().join(" ");
    let mut text = comment(&format!(
        "Settings of `millpond {words}`: the names of its flags, and their defaults. Take the # away in \
         front of what is to be another. `millpond config check FILE` reads it as the server will; a \
         flag on the command line wins over it."
    ));
    let _ = writeln!(text, "server = \"{}\"", kind.name());
    let command = kind.command();
    let mut heading = None;
    for arg in settable(&command, kind) {
        if arg.get_help_heading() != heading {
            heading = arg.get_help_heading();
            let title = heading.unwrap_or("Other settings");
            let _ = write!(text, "\n# --- {title} ---\n");
        }
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        text.push('\n');
        text += &comment(&help);
        let _ = writeln!(text, "# {} = {}", name_of(arg), default_of(arg));
    }
    if kind == ServerKind::Proxy {
        text.push_str(PROXY_EXAMPLE);
    }
    text
}

/// A sentence in lines that no setting is read from.
fn comment(sentence: &str) -> String {
    let lines = wrapped(sentence, WIDTH - 2, "");
    lines.lines().map(|line| format!("# {line}\n")).collect()
}

fn default_of(arg: &Arg) -> String {
    if !takes_value(arg) {
        return "false".to_owned();
    }
    let default = arg.get_default_values().first();
    let value = match default {
        Some(value) => quoted(&value.to_string_lossy()),
        None => quoted(&value_name(arg)),
    };
    match arg.get_action() {
        ArgAction::Append => format!("[{value}]"),
        _ => value,
    }
}

/// The arguments that a file may set, those under a heading behind those without.
fn settable(command: &clap::Command, kind: ServerKind) -> Vec<&Arg> {
    let all = kind != ServerKind::Proxy;
    let mut args: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set() && argument(command, name_of(arg)).is_some())
        .filter(|arg| all || is_server_flag(name_of(arg)))
        .collect();
    args.sort_by_key(|arg| arg.get_help_heading().is_some());
    args
}

/// What is no flag of its own, and read again at SIGHUP.
const PROXY_EXAMPLE: &str = r#"
# --- Upstreams: SIGHUP reads these again, no request fails ---

# balance = "round-robin"
# host = "keep"
# forwarded = "both"
# trust = ["10.0.0.0/8"]
# upgrade = []
# connections = 1024
# pending = 4096
# tries = 2
# retry-percent = 20
# half-close = "cancel"
# quiet-errors = false
# upstream-max-head = "32KiB"
# upstream-max-fields = 128
# request-headers = ["X-Site: a", "-X-Debug"]
# response-headers = ["-Server"]

# [timeouts]
# connect = "10s"
# first-byte = "1m"
# between-bytes = "30s"
# total = "5m"
# tunnel-idle = "1h"
# half-close = "10s"
# idle = "4s"

# [health]
# path = "/health"
# interval = "2s"
# timeout = "1s"
# successes = 2
# failures = 3

# [ejection]
# failures = 5
# base = "1s"
# longest = "1m"

# [tls]
# ca = "ca.pem"

# [mirroring]
# methods = "safe"
# max-body = "64KiB"
# timeout = "10s"

# [[mirror]]
# address = "127.0.0.1:9000"
# percent = 5

[[upstream]]
address = "127.0.0.1:8081"
# weight = 1
"#;

#[cfg(test)]
#[path = "tests/listing.rs"]
mod listing_tests;
