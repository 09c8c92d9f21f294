//! A candidate that is no allocator: the server in another environment (`py=env:PYTHONMALLOC=malloc`), or
//! another command instead of the server's (`musl=command:./server-musl {port}`).
//!
//! `config` holds those that the user gave, `matrix` makes candidates of them, `started_candidate` starts
//! them. Nothing of an allocator is proved of a variant that is not crossed with one; that its variables
//! arrived is.

use std::ffi::OsString;
use std::path::Path;

use crate::config::on_path;
use crate::error::LabError;
use crate::target::Target;

/// How one is written.
const FORM: &str =
    "write NAME=env:VARIABLE=VALUE[,VARIABLE=VALUE...] or NAME=command:PROGRAM ARGUMENTS";
/// Names and values of a candidate stand in every table; longer ones are mistakes.
const NAME_BYTES_MAX: usize = 100;

/// The changes of a candidate beside the allocator.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Variant {
    /// The user's name for it.
    pub name: String,
    /// The change.
    pub change: Change,
}

/// The difference from the other candidates.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Change {
    /// More variables.
    Environment(Vec<(OsString, OsString)>),
    /// Other words instead of the server's command.
    Command(Vec<OsString>),
}

impl Variant {
    /// Reads `NAME=env:...` or `NAME=command:...`; the error is a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, rest) = text.split_once('=').ok_or(FORM)?;
        let name = name.trim();
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(format!(
                "the name needs 1 to {NAME_BYTES_MAX} letters: {FORM}"
            ));
        }
        if name.contains(['/', ':', ',']) || name.chars().any(char::is_control) {
            return Err(format!(
                "the name {name:?} may not have / : or , in it: {FORM}"
            ));
        }
        let change = match rest.split_once(':') {
            Some(("env", variables)) => Change::Environment(parse_variables(variables)?),
            Some(("command", line)) => Change::Command(parse_command(line)?),
            _ => return Err(FORM.to_owned()),
        };
        Ok(Self {
            name: name.to_owned(),
            change,
        })
    }

    /// The variables that it adds.
    pub(crate) fn variables(&self) -> &[(OsString, OsString)] {
        match &self.change {
            Change::Environment(variables) => variables,
            Change::Command(_) => &[],
        }
    }

    /// The command that it runs, if it has its own.
    pub(crate) fn command(&self) -> Option<&[OsString]> {
        match &self.change {
            Change::Environment(_) => None,
            Change::Command(words) => Some(words),
        }
    }

    /// The server that it starts instead of `target`.
    pub(crate) fn target(&self, target: &Target) -> Target {
        match (&self.change, target) {
            (Change::Command(words), Target::Command { requests, .. }) => Target::Command {
                words: words.clone(),
                requests: requests.clone(),
            },
            _ => target.clone(),
        }
    }

    /// Refuses what cannot be started where `target` is; `environment` is what all candidates get.
    pub(crate) fn check(
        &self,
        target: &Target,
        environment: &[(OsString, OsString)],
    ) -> Result<(), LabError> {
        let refuse = |what: &str| {
            let name = &self.name;
            Err(LabError::Setting(format!("--candidate {name}: {what}")))
        };
        let Some(words) = self.command() else {
            return Ok(());
        };
        if matches!(target, Target::Entity { .. }) {
            return refuse(
                "a command takes the place of a server of yours: give that after --, with --url",
            );
        }
        if target.takes_its_port(environment) && !self.target(target).takes_its_port(environment) {
            return refuse(
                "its command has no {port}, and the server's has: put it where the command takes its port",
            );
        }
        match words.first() {
            Some(program) if on_path(Path::new(program)).is_none() => {
                refuse(&format!("the command {} was not found", program.display()))
            }
            _ => Ok(()),
        }
    }
}

/// `A=1,B=2`; a part that sets nothing goes on with the value before it: `MALLOC_CONF=narenas:2,thp:never`.
fn parse_variables(text: &str) -> Result<Vec<(OsString, OsString)>, String> {
    let mut variables: Vec<(String, String)> = Vec::new();
    for part in text.split(',') {
        match (part.split_once('='), variables.last_mut()) {
            (Some(("", _)), _) | (None, None) => {
                return Err(format!("{part:?} is no VARIABLE=VALUE: {FORM}"));
            }
            (Some((name, value)), _) => variables.push((name.to_owned(), value.to_owned())),
            (None, Some((_, value))) => {
                value.push(',');
                value.push_str(part);
            }
        }
    }
    if variables.iter().any(|(name, _)| name == "LD_PRELOAD") {
        return Err(
            "LD_PRELOAD is what makes an allocator a candidate: write --allocators \
             NAME=/path/to/library.so"
                .to_owned(),
        );
    }
    let variables = variables.into_iter();
    Ok(variables
        .map(|(name, value)| (name.into(), value.into()))
        .collect())
}

fn parse_command(line: &str) -> Result<Vec<OsString>, String> {
    let words = shell_words(line)?;
    if words.is_empty() {
        return Err(format!("there is no command: {FORM}"));
    }
    Ok(words.into_iter().map(OsString::from).collect())
}

/// Words as a shell splits them: blanks, quotes and backslashes, and nothing else of a shell.
fn shell_words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(end), _) if letter == end => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => {
                let next = letters.next().ok_or("the command ends in a backslash")?;
                // Between double quotes it is itself before what needs no backslash.
                if quote.is_some() && !['"', '\\', '$', '`'].contains(&next) {
                    word.get_or_insert_default().push('\\');
                }
                word.get_or_insert_default().push(next);
            }
            (None, letter) if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    if let Some(quote) = quote {
        return Err(format!("the command has a {quote} without its second one"));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
#[path = "tests/variant.rs"]
mod tests;
