//! How help looks: 80 columns whatever the terminal has, and a default behind the words about its flag.

use super::Cli;
use clap::builder::StyledStr;
use clap::{Arg, Command, CommandFactory};

/// Longer lines are hard to read, and examples are written for this width.
pub(super) const WIDTH: usize = 80;

/// The command line, as it parses words and shows help.
pub(super) fn command() -> Command {
    arranged(Cli::command()).max_term_width(WIDTH)
}

fn arranged(command: Command) -> Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|it| it.get_name().to_owned())
        .collect();
    let command = command.mut_args(with_default_in_its_help);
    names.into_iter().fold(command, |command, name| {
        command.mut_subcommand(name, arranged)
    })
}

/// clap gives a default a paragraph of its own in `--help`, below an empty line.
fn with_default_in_its_help(arg: Arg) -> Arg {
    let defaults: Vec<_> = arg
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy().into_owned())
        .collect();
    let Some(help) = arg.get_help().filter(|_| !defaults.is_empty()) else {
        return arg;
    };
    let help = help.to_string();
    // A flag that is off has "false" by default, which is no news.
    if !arg.get_action().takes_values() {
        return arg;
    }
    let shown = format!("{help} [default: {}]", defaults.join(","));
    let long = arg.get_long_help().map(ToString::to_string);
    let arg = match long {
        // The first paragraph is the short help.
        Some(long) => {
            let rest = long.strip_prefix(&help).unwrap_or(&long).to_owned();
            arg.long_help(StyledStr::from(format!("{shown}{rest}")))
        }
        None => arg,
    };
    arg.help(StyledStr::from(shown)).hide_default_value(true)
}

#[cfg(test)]
#[path = "tests/help.rs"]
mod tests;
