//! A command line with what the file named in it adds.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, FromArgMatches};
use toml::de::{DeTable, DeValue};

use crate::flags::help;
use crate::flags::serve::is_server_flag;
use crate::output::Failure;

use super::{Cli, ServerKind};

/// Why a command line was not taken.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Because of its own words, or because help was asked for.
    Words(clap::Error),
    /// Because of the file it names.
    File(Failure),
}

/// The words clap gets.
#[derive(Debug)]
pub(in crate::flags) struct CommandLine {
    words: Vec<OsString>,
    file: Option<ConfigFile>,
}

impl CommandLine {
    /// Reads the file, if the words start a server and name one.
    pub(in crate::flags) fn of(mut words: Vec<OsString>) -> Result<Self, Failure> {
        let Some(mut start) = Start::of(&words) else {
            return Ok(Self { words, file: None });
        };
        let Some((at, count, path)) = flag_with_value(&words[start.flags_at..], "--config") else {
            return Ok(Self { words, file: None });
        };
        if words.iter().any(|word| word == "--help" || word == "-h") {
            // Help is the same with every file, and without one.
            words.drain(start.flags_at + at..start.flags_at + at + count);
            return Ok(Self { words, file: None });
        }
        let file = ConfigFile::read(Path::new(&path))?;
        let kind = match start.kind {
            Some(kind) => kind,
            None => {
                let kind = file.kind()?;
                // `millpond serve --config FILE`: the file says which; that of a proxy is no file for
                // `serve`, which the sentence says.
                if kind == ServerKind::Proxy {
                    file.check_kind(ServerKind::Plaintext)?;
                }
                words.insert(start.flags_at, kind.name().into());
                start.flags_at += 1;
                kind
            }
        };
        file.check_kind(kind)?;
        let command = kind.command();
        let given = Given::of(&words[start.flags_at..], &command);
        let mut added = Vec::new();
        for setting in file.flags_of(kind) {
            let arg = argument(&command, &setting.key).ok_or_else(|| {
                let name = kind.words().join(" ");
                let kind = kind.name();
                file.fault(
                    setting,
                    format!(
                        "`millpond {name}` has no such flag: see `millpond config example {kind}`"
                    ),
                )
            })?;
            if !given.has(arg) {
                let words = words_of(arg, setting).map_err(|why| file.fault(setting, why))?;
                added.extend(words);
            }
        }
        words.splice(start.flags_at..start.flags_at, added);
        Ok(Self {
            words,
            file: Some(file),
        })
    }

    /// What clap makes of the words.
    pub(in crate::flags) fn read(&self) -> Result<Cli, Refusal> {
        let mut matches = self.matches()?;
        Cli::from_arg_matches_mut(&mut matches)
            .map_err(|error| self.explain(error.format(&mut help::command())))
    }

    pub(super) fn matches(&self) -> Result<ArgMatches, Refusal> {
        let matches = help::command().try_get_matches_from(&self.words);
        matches.map_err(|error| self.explain(error))
    }

    /// An error in a word of the file is an error of the file.
    fn explain(&self, error: clap::Error) -> Refusal {
        let Some(file) = &self.file else {
            return Refusal::Words(error);
        };
        let names = [ContextKind::InvalidArg, ContextKind::PriorArg]
            .into_iter()
            .filter_map(|kind| error.get(kind))
            .flat_map(|value| match value {
                ContextValue::String(text) => vec![text.clone()],
                ContextValue::Strings(texts) => texts.clone(),
                _ => Vec::new(),
            });
        let names: Vec<String> = names.collect();
        let mut keys = names.iter().map(|name| key_of(name));
        let setting = keys.find_map(|key| file.settings.iter().find(|one| one.key == key));
        match setting {
            _ if error.kind() == ErrorKind::MissingRequiredArgument => {
                Refusal::File(file.lacks(&names))
            }
            Some(setting) => Refusal::File(file.fault(setting, first_paragraph(&error))),
            None => Refusal::Words(error),
        }
    }
}

/// `listen` of `--listen <ADDR:PORT>`.
fn key_of(shown: &str) -> &str {
    let name = shown.trim_start_matches("--");
    name.split([' ', '=', '[']).next().unwrap_or(name)
}

fn first_paragraph(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.split("\n\n").next().unwrap_or_default();
    let text = text.strip_prefix("error: ").unwrap_or(text).trim();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.join(" ")
}

/// How a server is started.
struct Start {
    /// `None`: `serve` without saying what.
    kind: Option<ServerKind>,
    /// The first word behind that.
    flags_at: usize,
}

impl Start {
    fn of(words: &[OsString]) -> Option<Self> {
        let kind = match words.get(1)?.to_str()? {
            "proxy" => Some(ServerKind::Proxy),
            "serve" => match words.get(2)?.to_str()? {
                word if word.starts_with('-') => None,
                word => Some(ServerKind::named(word)?),
            },
            _ => return None,
        };
        // A build without it has words of its own for that.
        if kind == Some(ServerKind::Entity) && cfg!(not(feature = "entity")) {
            return None;
        }
        let is_serving = kind.is_some_and(|kind| kind != ServerKind::Proxy);
        Some(Self {
            kind,
            flags_at: if is_serving { 3 } else { 2 },
        })
    }
}

/// Where a flag stands, in how many words, and its value.
fn flag_with_value(words: &[OsString], flag: &str) -> Option<(usize, usize, OsString)> {
    words.iter().enumerate().find_map(|(at, word)| {
        if word == flag {
            return words.get(at + 1).map(|value| (at, 2, value.clone()));
        }
        let (name, value) = word.to_str()?.split_once('=')?;
        (name == flag).then(|| (at, 1, value.into()))
    })
}

/// The name of a word, and whether it contains a value.
fn name_and_value(word: &str) -> (&str, bool) {
    word.split_once('=')
        .map_or((word, false), |(name, _)| (name, true))
}

/// What stands on the command line itself.
struct Given {
    flags: Vec<String>,
    has_positional: bool,
}

impl Given {
    fn of(words: &[OsString], command: &clap::Command) -> Self {
        let mut given = Self {
            flags: Vec::new(),
            has_positional: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let flag = word.to_str().and_then(|word| word.strip_prefix("--"));
            let Some((name, has_value)) = flag.map(name_and_value) else {
                given.has_positional = true;
                continue;
            };
            let arg = command.get_arguments().find(|arg| name_of(arg) == name);
            let takes_value = arg.is_some_and(takes_value);
            if takes_value && !has_value {
                words.next();
            }
            given.flags.push(name.to_owned());
        }
        given
    }

    fn has(&self, arg: &Arg) -> bool {
        match arg.get_long() {
            Some(name) => self.flags.iter().any(|flag| flag == name),
            None => self.has_positional,
        }
    }
}

/// What a key names: a flag, or a word without a flag by its own name.
pub(super) fn argument<'a>(command: &'a clap::Command, key: &str) -> Option<&'a Arg> {
    if ["config", "help", "version"].contains(&key) {
        return None;
    }
    command.get_arguments().find(|arg| name_of(arg) == key)
}

/// The key of an argument.
pub(super) fn name_of(arg: &Arg) -> &str {
    arg.get_long().unwrap_or(arg.get_id().as_str())
}

pub(super) fn takes_value(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
}

fn words_of(arg: &Arg, setting: &Setting) -> Result<Vec<OsString>, String> {
    let key = &setting.key;
    let word = |text: &String| -> OsString {
        match arg.get_long() {
            Some(name) => format!("--{name}={text}").into(),
            // A positional word must not be taken for a flag.
            None if text.starts_with('-') => OsString::from(format!("./{text}")),
            None => OsStr::new(text).to_owned(),
        }
    };
    let is_repeatable = matches!(arg.get_action(), ArgAction::Append);
    match (&setting.value, takes_value(arg)) {
        (Value::Switch(false), false) => Ok(Vec::new()),
        (Value::Switch(true), false) => Ok(vec![format!("--{key}").into()]),
        (_, false) => Err("it is switched on or off: write true or false".to_owned()),
        (Value::Text(text), true) => Ok(vec![word(text)]),
        (Value::Texts(texts), true) if is_repeatable => Ok(texts.iter().map(word).collect()),
        (Value::Texts(_), true) => Err("it takes one value, and no list".to_owned()),
        (Value::Switch(_), true) => Err(format!(
            "it takes a value ({}), and not true or false",
            value_name(arg)
        )),
        (Value::Other(kind), true) => Err(format!(
            "it takes a value ({}), and no {kind}",
            value_name(arg)
        )),
    }
}

/// What help shows instead of the value.
pub(super) fn value_name(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let names: Vec<&str> = names.iter().map(clap::builder::Str::as_str).collect();
    names.join(" ")
}

// A server's file as settings, each with its line.

/// The key that says which server a file is for.
pub(in crate::flags) const SERVER_KEY: &str = "server";

/// What a file says, as far as flags can say it too.
#[derive(Debug)]
pub(super) struct ConfigFile {
    pub(super) path: PathBuf,
    kind: Option<(ServerKind, usize)>,
    pub(super) settings: Vec<Setting>,
}

/// A key and what it is set to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Setting {
    pub(super) key: String,
    pub(super) line: usize,
    pub(super) value: Value,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Value {
    Switch(bool),
    Text(String),
    Texts(Vec<String>),
    /// Nothing that a flag could be set to: a table, say.
    Other(&'static str),
}

impl ConfigFile {
    /// Reads `path`; what is wrong with it as a file of this kind is named with its line and key.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::usage(format!("cannot read {shown}: {error}")))?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, Failure> {
        let line_at = |offset: usize| text[..offset.min(text.len())].matches('\n').count() + 1;
        let table = DeTable::parse(text).map_err(|error| {
            let line = line_at(error.span().map_or(0, |span| span.start));
            let key = text.lines().nth(line - 1).unwrap_or_default();
            let key = key.split('=').next().unwrap_or_default().trim();
            let problem = error.message().trim().replace('\n', "; ");
            fault(path, line, key, problem)
        })?;
        let mut file = Self {
            path: path.to_owned(),
            kind: None,
            settings: Vec::new(),
        };
        for (key, value) in table.into_inner() {
            let line = line_at(key.span().start);
            let key = key.into_inner().into_owned();
            let value = Value::of(value.get_ref());
            if key != SERVER_KEY {
                file.settings.push(Setting { key, line, value });
                continue;
            }
            let kind = match &value {
                Value::Text(name) => ServerKind::named(name),
                _ => None,
            };
            let problem = "it is \"plaintext\", \"entity\", \"files\" or \"proxy\"";
            let kind = kind.ok_or_else(|| fault(path, line, &key, problem))?;
            file.kind = Some((kind, line));
        }
        file.settings.sort_by_key(|setting| setting.line);
        Ok(file)
    }

    /// Which server it is for.
    pub(super) fn kind(&self) -> Result<ServerKind, Failure> {
        let missing = || {
            Failure::usage(format!(
                "{} does not say for which server it is: write server = \"entity\", \"files\", \
                 \"plaintext\" or \"proxy\" into it",
                self.path.display()
            ))
        };
        self.kind.map(|(kind, _)| kind).ok_or_else(missing)
    }

    /// Refuses another server than the file's.
    pub(super) fn check_kind(&self, wanted: ServerKind) -> Result<(), Failure> {
        match self.kind {
            Some((kind, line)) if kind != wanted => Err(fault(
                &self.path,
                line,
                SERVER_KEY,
                format!(
                    "this file is for `millpond {}`, and not for `millpond {}`",
                    kind.words().join(" "),
                    wanted.words().join(" ")
                ),
            )),
            _ => Ok(()),
        }
    }

    /// The settings that are flags of this server; the others of a proxy's file are for it to read.
    pub(super) fn flags_of(&self, kind: ServerKind) -> impl Iterator<Item = &Setting> {
        let all = kind != ServerKind::Proxy;
        let settings = self.settings.iter();
        settings.filter(move |setting| all || is_server_flag(&setting.key))
    }

    /// For what neither the file nor the command line says.
    pub(super) fn lacks(&self, names: &[String]) -> Failure {
        let kind = self.kind.map_or("SERVER", |(kind, _)| kind.name());
        Failure::usage(format!(
            "{}: {} is missing: write it into the file, as `millpond config example {kind}` shows it, or on \
             the command line",
            self.path.display(),
            names.join(" and "),
        ))
    }

    pub(super) fn fault(&self, setting: &Setting, problem: impl Display) -> Failure {
        fault(&self.path, setting.line, &setting.key, problem)
    }
}

/// As compilers and `millpond proxy` write it.
fn fault(path: &Path, line: usize, key: &str, problem: impl Display) -> Failure {
    let key = match key {
        "" => String::new(),
        key => format!("{key}: "),
    };
    Failure::usage(format!("{}:{line}: {key}{problem}", path.display()))
}

impl Value {
    fn of(value: &DeValue<'_>) -> Self {
        if let DeValue::Boolean(is_on) = value {
            return Self::Switch(*is_on);
        }
        if let Some(text) = scalar(value) {
            return Self::Text(text);
        }
        let Some(values) = value.as_array() else {
            return Self::Other(value.type_str());
        };
        let texts = values.iter().map(|value| scalar(value.get_ref()));
        texts
            .collect::<Option<_>>()
            .map_or(Self::Other("list of other things than texts"), Self::Texts)
    }
}

fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .ok()
            .map(|number| number.to_string()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        _ => None,
    }
}

#[cfg(test)]
#[path = "tests/command_line.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/file.rs"]
mod file_tests;
