//! A command line with what the file named in it adds.

use super::file::{ConfigFile, Setting, Value};
use super::{Cli, ServerKind};
use crate::flags::help;
use crate::output::Failure;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, FromArgMatches};
use std::ffi::{OsStr, OsString};
use std::path::Path;

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

    /// An error about a word that stands in the file is the file's.
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

/// The name of a word, and whether a value stands in it too.
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
            // A word by itself must not look like a flag.
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

/// What help shows in the place of the value.
pub(super) fn value_name(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let names: Vec<&str> = names.iter().map(clap::builder::Str::as_str).collect();
    names.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The words after the file was read, without those in front of the flags.
    fn expand(text: &str, line: &str) -> Result<Vec<String>, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.toml");
        fs::write(&path, text).unwrap();
        let path = path.display().to_string();
        let line = line.replace("FILE", &path);
        let words = ["millpond"].into_iter().chain(line.split_whitespace());
        let name = |text: &str| text.replace(&path, "FILE");
        let line = CommandLine::of(words.map(OsString::from).collect());
        let line = line.map_err(|failure| match failure {
            Failure::Usage(sentence) | Failure::Failed(sentence) => name(&sentence),
        })?;
        line.read().map_err(|refusal| match refusal {
            Refusal::File(Failure::Usage(sentence) | Failure::Failed(sentence)) => name(&sentence),
            Refusal::Words(error) => format!("words: {error}"),
        })?;
        let words = line
            .words
            .iter()
            .skip(1)
            .map(|word| name(word.to_str().unwrap()));
        Ok(words.collect())
    }

    /// Goal: the file's settings become flags in front of those that are given; what is given, as one
    /// word or two, leaves the file's out; a command line without a file is left alone.
    #[test]
    fn the_command_line_wins() {
        let text = "listen = \"127.0.0.1:1\"\nshards = 2\nno-pin = true\nreuse-port = false\n\
                    tls-cert = [\"a\", \"b\"]\ntls-key = [\"c\", \"d\"]\n";
        let all = "--listen=127.0.0.1:1 --shards=2 --no-pin --tls-cert=a --tls-cert=b --tls-key=c \
                   --tls-key=d";
        let without_shards = all.replace("--shards=2 ", "");
        for (line, expected) in [
            (
                "serve plaintext --config FILE",
                format!("serve plaintext {all} --config FILE"),
            ),
            (
                "serve plaintext --config=FILE",
                format!("serve plaintext {all} --config=FILE"),
            ),
            (
                "serve plaintext --shards 1 --config FILE",
                format!("serve plaintext {without_shards} --shards 1 --config FILE"),
            ),
            (
                "serve plaintext --config FILE --shards=1",
                format!("serve plaintext {without_shards} --config FILE --shards=1"),
            ),
            (
                "serve plaintext --shards 1",
                "serve plaintext --shards 1".to_owned(),
            ),
        ] {
            assert_eq!(
                expand(text, line).map(|words| words.join(" ")),
                Ok(expected),
                "{line}"
            );
        }
    }

    /// Goal: `serve --config FILE` takes the server from the file; so does the directory of `files`,
    /// unless one is given.
    #[test]
    fn the_file_says_which_server() {
        let text = "server = \"files\"\ndirectory = \"public\"\n";
        for (line, expected) in [
            ("serve --config FILE", "serve files public --config FILE"),
            (
                "serve files --config FILE",
                "serve files public --config FILE",
            ),
            (
                "serve files --config FILE other",
                "serve files --config FILE other",
            ),
        ] {
            assert_eq!(expand(text, line).unwrap().join(" "), expected);
        }
    }

    /// Goal: help is shown whatever the file is, and that of `serve` where nothing says which server.
    #[test]
    fn help_needs_no_file() {
        for line in [
            "serve --config /nowhere --help",
            "serve plaintext --config=/nowhere -h",
            "proxy --config /nowhere --help",
        ] {
            let error = expand("", line).unwrap_err();
            assert!(error.contains("Usage: millpond "), "{line}: {error}");
        }
    }

    /// A file, the words that name it, how the fault begins, and what it says too.
    const FAULTS: &[(&str, &str, &str, &str)] = &[
        (
            "\nlisen = \"x\"",
            "serve plaintext",
            "FILE:2: lisen: ",
            "config example plaintext",
        ),
        (
            "listen = \"nowhere\"",
            "serve plaintext",
            "FILE:1: listen: ",
            "nowhere",
        ),
        (
            "shards = 0",
            "serve plaintext",
            "FILE:1: shards: ",
            "at least 1",
        ),
        (
            "shards = true",
            "serve plaintext",
            "FILE:1: shards: ",
            "a value (N)",
        ),
        (
            "shards = [1]",
            "serve plaintext",
            "FILE:1: shards: ",
            "no list",
        ),
        (
            "no-pin = 1",
            "serve plaintext",
            "FILE:1: no-pin: ",
            "true or false",
        ),
        (
            "\ntls-cert = \"a\"",
            "serve plaintext",
            "FILE: ",
            "--tls-key",
        ),
        (
            "config = \"a\"",
            "serve plaintext",
            "FILE:1: config: ",
            "no such flag",
        ),
        (
            "[limits]\na = 1",
            "serve plaintext",
            "FILE:1: limits: ",
            "no such flag",
        ),
        (
            "server = \"files\"",
            "serve plaintext",
            "FILE:1: server: ",
            "millpond serve files",
        ),
        (
            "server = \"proxy\"",
            "serve",
            "FILE:1: server: ",
            "millpond proxy",
        ),
        ("shards = 1", "serve", "FILE ", "server = "),
        (
            "shards = 1",
            "serve plaintext --driver kqueue",
            "words: ",
            "kqueue",
        ),
    ];

    /// Goal: whatever is wrong with the file is named with its line and key, in one line; what is wrong
    /// with the words is clap's to say.
    #[test]
    fn faults_of_the_file_name_line_and_key() {
        for (text, line, begin, part) in FAULTS {
            let error = expand(text, &format!("{line} --config FILE")).unwrap_err();
            assert!(
                error.starts_with(begin) && error.contains(part),
                "{text:?}: {error}"
            );
            assert!(*begin == "words: " || !error.contains('\n'), "{error}");
        }
    }

    /// Goal: a proxy's file may have the server's flags beside its own tables, and its own are left to it.
    #[test]
    fn a_proxy_reads_its_own_part() {
        let text = "listen = \"127.0.0.1:1\"\ntries = 3\n[[upstream]]\naddress = \"a:1\"\n";
        let words = expand(text, "proxy --config FILE").unwrap();
        assert_eq!(words.join(" "), "proxy --listen=127.0.0.1:1 --config FILE");
    }
}
