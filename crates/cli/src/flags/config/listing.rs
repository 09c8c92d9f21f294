//! The settings of a server as text: those that a file makes, and all there are.
//!
//! Both are files again: what is shown can be written to one, and says the same.

use super::ServerKind;
use super::command_line::{argument, name_of, takes_value, value_name};
use super::file::ConfigFile;
use crate::flags::serve::is_server_flag;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches};
use millpond_measure::report::lines::wrapped;
use std::fmt::Write as _;

const WIDTH: usize = 80;
/// Notes stand one behind, if the setting leaves them the room.
const SETTING_WIDTH: usize = 43;

/// What holds where `file` does, as `matches` have it; `extra` are lines about what is no flag.
pub(super) fn effective(
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
pub(super) fn example(kind: ServerKind) -> String {
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
mod tests {
    use super::*;

    /// Goal: the example of each server is a file of that server, fits 80 columns where its words let it,
    /// and shows each flag once with a key that exists.
    #[test]
    fn examples_show_every_flag() {
        for kind in ServerKind::ALL {
            if kind == ServerKind::Entity && cfg!(not(feature = "entity")) {
                continue;
            }
            let text = example(kind);
            let shown: Vec<&str> = text
                .lines()
                .take_while(|line| !line.contains("--- Upstreams"))
                .filter_map(|line| line.strip_prefix("# ")?.split_once(" = "))
                .map(|(key, _)| key)
                .filter(|key| !key.contains(' '))
                .collect();
            let command = kind.command();
            for key in &shown {
                assert!(argument(&command, key).is_some(), "{key} of {kind:?}");
            }
            for key in [
                "listen",
                "reuse-port",
                "max-connections",
                "tls-cert",
                "log-format",
            ] {
                let count = shown.iter().filter(|shown| **shown == key).count();
                assert_eq!(count, 1, "{key} in {text}");
            }
            assert_eq!(shown.contains(&"directory"), kind == ServerKind::Files);
            assert!(!shown.contains(&"config"));
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(WIDTH), "{widest:?}: {text}");
        }
    }

    /// Goal: quotes and backslashes survive.
    #[test]
    fn quoting_is_toml() {
        let text = format!("a = {}", quoted(r#"C:\x "y""#));
        let table: std::collections::BTreeMap<String, String> = toml::from_str(&text).unwrap();
        assert_eq!(table["a"], r#"C:\x "y""#);
    }
}
