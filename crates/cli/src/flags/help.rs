//! Output made from the definitions of the flags: help on a terminal, 80 columns wide and with each default behind the
//! words about its flag; manual pages; shell completions; and the reference pages in docs/reference/commands.

use super::{Cli, Failure};
use crate::output::Exit;
use clap::builder::StyledStr;
use clap::{Arg, Args, Command, CommandFactory};
use clap_complete::Shell;
use std::fmt::Display;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

/// Longer lines are hard to read, and examples are written for this width.
pub(super) const WIDTH: usize = 80;

/// The command line, as it parses words and shows help.
pub(super) fn command() -> Command {
    with_short_help_of_load(arranged(Cli::command()).max_term_width(WIDTH))
}

/// The flags that `millpond load -h` shows, by their long names, each with a line about it. All others, and all about these, are in `--help`.
const LOAD_FLAGS_SHORT: [(&str, &str); 13] = [
    ("threads", "Threads [default: 2]"),
    (
        "connections",
        "Connections of all threads together [default: 10]",
    ),
    ("duration", "How long requests are counted [default: 10s]"),
    ("requests", "Stop after so many requests"),
    ("rate", "Requests per second, as 2000 or 20k"),
    ("header", "A header field `Name: value`; repeatable"),
    ("method", "Method of the request [default: GET]"),
    ("body", "Body of the request; @FILE reads it from there"),
    ("script", "A Lua script of wrk's"),
    ("slo", "Objectives, as 'p99<5ms'; else exit status 3"),
    ("latency", "Print the whole spectrum of latencies"),
    ("json", "Write the record of the run to FILE"),
    ("print", "What to print: wrk, wrk2, ab, json, csv, ..."),
];

/// `load` has more flags than fit a screen.
fn with_short_help_of_load(command: Command) -> Command {
    let shorten = |arg: Arg| {
        let name = arg.get_long().unwrap_or_default();
        match LOAD_FLAGS_SHORT.iter().find(|(shown, _)| *shown == name) {
            Some((_, help)) => {
                let long = arg.get_long_help().or(arg.get_help()).cloned();
                arg.long_help(long.unwrap_or_default()).help(*help)
            }
            None => {
                let is_url = is_the_url(&arg);
                arg.hide_short_help(!is_url)
            }
        }
    };
    command.mut_subcommand("load", |load| {
        let examples = load.get_after_help().cloned().unwrap_or_default();
        load.mut_args(shorten).after_long_help(examples).after_help(
            "Example:\n  millpond load -t 2 -c 64 -d 30s -R 2000 -L http://127.0.0.1:8080/",
        )
    })
}

fn is_the_url(arg: &Arg) -> bool {
    arg.is_positional() && arg.get_id() == "url"
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

// `millpond pages`: manual pages, shell completions and reference pages, as files.
//
// Hidden: `cargo xtask dist` calls it for packagers, and a test compares docs/reference/commands with it. The other way
// round, linking this command into `xtask`, would keep the checks from running while the command does not compile.

/// Write manual pages, shell completions and the reference of all commands, for packagers
#[derive(Args, Debug)]
#[command(
    hide = true,
    after_help = "Examples:
  millpond pages share

makes share/man/man1, share/bash-completion and the like, and
share/doc/millpond/docs/reference/commands."
)]
pub(crate) struct PagesFlags {
    /// Where to; what is missing of it is made
    directory: PathBuf,
}

/// Where each shell reads completions below a prefix's `share`, and the file's name there.
const COMPLETIONS: [(Shell, &str, &str); 3] = [
    (Shell::Bash, "bash-completion/completions", "millpond"),
    (Shell::Zsh, "zsh/site-functions", "_millpond"),
    (Shell::Fish, "fish/vendor_completions.d", "millpond.fish"),
];

impl PagesFlags {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let shown = self.directory.display().to_string();
        let failed = |error: &dyn Display| Failure::failed(format!("{shown}: {error}"));
        let make = |place: &str| {
            let directory = self.directory.join(place);
            fs::create_dir_all(&directory)
                .map(|()| directory)
                .map_err(|error| failed(&error))
        };
        let manual = make("man/man1")?;
        clap_mangen::generate_to(Cli::command(), &manual).map_err(|error| failed(&error))?;
        for (shell, place, name) in COMPLETIONS {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "millpond", &mut text);
            fs::write(make(place)?.join(name), text).map_err(|error| failed(&error))?;
        }
        let reference = make("doc/millpond/docs/reference/commands")?;
        for (name, text) in reference_pages() {
            fs::write(reference.join(name), text).map_err(|error| failed(&error))?;
        }
        Ok(Exit::Success)
    }
}

/// Write the completions of a shell to the standard output
///
/// Packages install them; this is for a binary that was installed by cargo.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  source <(millpond completions bash)
  millpond completions zsh > ~/.zfunc/_millpond")]
pub(crate) struct CompletionsFlags {
    /// Which shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl CompletionsFlags {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "millpond", &mut text);
        match std::io::stdout().write_all(&text) {
            // A reader that has seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(Exit::Success),
            Err(error) => Err(Failure::failed(format!("cannot write to stdout: {error}"))),
            Ok(()) => Ok(Exit::Success),
        }
    }
}

/// A page of Markdown for each command and subcommand that is not hidden, with its file name.
fn reference_pages() -> Vec<(String, String)> {
    let mut command = arranged(Cli::command()).max_term_width(WIDTH);
    // Gives each subcommand the words in front of it.
    command.build();
    let mut pages = Vec::new();
    collect_pages(&command, &mut pages);
    pages
}

fn collect_pages(command: &Command, pages: &mut Vec<(String, String)>) {
    pages.push((file_name(command), page_of(command)));
    for inner in shown_subcommands(command) {
        collect_pages(inner, pages);
    }
}

fn shown_subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    let all = command.get_subcommands();
    all.filter(|it| !it.is_hide_set() && it.get_name() != "help")
}

/// `millpond serve entity`.
fn words_of(command: &Command) -> &str {
    command.get_bin_name().unwrap_or_else(|| command.get_name())
}

/// `serve-entity.md`; the page of `millpond` itself is shown for the directory.
fn file_name(command: &Command) -> String {
    match words_of(command).split_once(' ') {
        Some((_, words)) => format!("{}.md", words.replace(' ', "-")),
        None => "README.md".to_owned(),
    }
}

fn page_of(command: &Command) -> String {
    let about = command.get_long_about().or_else(|| command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let mut text = format!(
        "<!-- Made from the definitions of the flags. To make it again: UPDATE_DOCS=1 cargo test -p millpond --test docs -->\n\n\
         # `{}`\n\n{}\n\n```text\n{}\n```\n",
        words_of(command),
        markdown(about.trim_end()),
        usage.trim_end()
    );
    push_section(&mut text, "Commands", &links_below(command, ""));
    for (heading, items) in sections_of(command) {
        push_section(&mut text, &heading, &items);
    }
    let after = command.get_after_long_help();
    let after = after.or_else(|| command.get_after_help());
    let after = after.map(ToString::to_string);
    let after = after.unwrap_or_default();
    let (heading, block) = match after.strip_prefix("Examples:\n") {
        Some(examples) => ("Examples", examples),
        None => ("More", &*after),
    };
    if !block.is_empty() {
        let block = format!("```\n{}\n```\n", block.trim_end());
        push_section(&mut text, heading, &block);
    }
    text
}

fn push_section(text: &mut String, heading: &str, body: &str) {
    if !body.is_empty() {
        *text += &format!("\n## {heading}\n\n{body}");
    }
}

/// All that is below a command, so that each page is one click from the first.
fn links_below(command: &Command, indent: &str) -> String {
    let link = |inner: &Command| {
        let about = inner.get_about().map(ToString::to_string);
        let about = markdown(&about.unwrap_or_default());
        let below = links_below(inner, &format!("{indent}  "));
        let (words, file) = (words_of(inner), file_name(inner));
        format!("{indent}- [`{words}`]({file}): {about}\n{below}")
    };
    shown_subcommands(command).map(link).collect()
}

/// Arguments under the headings of help, in the order of help.
fn sections_of(command: &Command) -> Vec<(String, String)> {
    let mut sections = vec![
        ("Arguments".to_owned(), String::new()),
        ("Flags".to_owned(), String::new()),
    ];
    for arg in command.get_arguments() {
        // The common flags of every command; `load` has a version flag of its own, as wrk does.
        let is_common = arg.get_id() == "help" || arg.get_short() == Some('V');
        if arg.is_hide_set() || is_common {
            continue;
        }
        let heading = match (arg.is_positional(), arg.get_help_heading()) {
            (true, _) => "Arguments",
            (false, Some(heading)) => heading,
            (false, None) => "Flags",
        };
        let place = sections.iter().position(|(name, _)| name == heading);
        let place = place.unwrap_or_else(|| {
            sections.push((heading.to_owned(), String::new()));
            sections.len() - 1
        });
        sections[place].1 += &item_of(arg);
    }
    sections
}

/// An item of a list: names and value, all of the long help, and the values that there are.
fn item_of(arg: &Arg) -> String {
    let help = arg.get_long_help().or_else(|| arg.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let mut paragraphs = help.trim_end().split("\n\n").map(with_default_as_sentence);
    let first = paragraphs.next().unwrap_or_default();
    let mut item = format!("- {}: {}\n", names_of(arg), markdown(&first));
    for paragraph in paragraphs {
        item += &format!("\n  {}\n", markdown(&paragraph));
    }
    if arg.get_action().takes_values() {
        for value in arg.get_possible_values() {
            let help = value.get_help().map(ToString::to_string);
            let help = help.map(|it| format!(": {}", markdown(&it)));
            item += &format!("  - `{}`{}\n", value.get_name(), help.unwrap_or_default());
        }
    }
    item
}

/// `` `-t`, `--threads N` ``.
fn names_of(arg: &Arg) -> String {
    let values = arg.get_value_names().unwrap_or_default();
    let values: Vec<&str> = values.iter().map(clap::builder::Str::as_str).collect();
    let mut value = values.join(" ");
    if arg
        .get_num_args()
        .is_some_and(|count| count.max_values() > values.len().max(1))
    {
        value += "...";
    }
    if arg.is_positional() {
        return format!("`{value}`");
    }
    let longs = arg.get_long().into_iter();
    let longs = longs.chain(arg.get_visible_aliases().unwrap_or_default());
    let mut names: Vec<String> = arg
        .get_short()
        .map(|it| format!("-{it}"))
        .into_iter()
        .collect();
    names.extend(longs.map(|it| format!("--{it}")));
    if let Some(last) = names.last_mut().filter(|_| arg.get_action().takes_values()) {
        let may_be_left_out = arg
            .get_num_args()
            .is_some_and(|count| count.min_values() == 0);
        *last += &match may_be_left_out {
            true => format!(" [{value}]"),
            false => format!(" {value}"),
        };
    }
    format!("`{}`", names.join("`, `"))
}

fn with_default_as_sentence(paragraph: &str) -> String {
    let split = paragraph
        .strip_suffix(']')
        .and_then(|it| it.rsplit_once(" [default: "));
    match split {
        Some((words, default)) => format!("{words}. Default: {default}"),
        None => paragraph.to_owned(),
    }
}

/// Text in which nothing is markup but code in backticks.
fn markdown(text: &str) -> String {
    let parts = text
        .split('`')
        .enumerate()
        .map(|(index, part)| match index % 2 {
            0 => part.replace('*', "\\*").replace('<', "\\<"),
            _ => part.to_owned(),
        });
    parts.collect::<Vec<_>>().join("`")
}

#[cfg(test)]
#[path = "tests/help.rs"]
mod tests;
