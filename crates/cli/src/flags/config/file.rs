//! A server's file as settings, each with its line.

use super::ServerKind;
use crate::flags::serve::is_server_flag;
use crate::output::Failure;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

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
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ConfigFile, String> {
        ConfigFile::parse(Path::new("a.toml"), text).map_err(|failure| match failure {
            Failure::Usage(sentence) | Failure::Failed(sentence) => sentence,
        })
    }

    /// Goal: every form of a value is taken, in the order of the lines; tables are told apart.
    #[test]
    fn values_and_lines() {
        let text = "server = \"entity\"\n\nlisten = \"[::1]:1\"\nshards = 0x10\nno-pin = true\n\
                    tls-key = [\"a\", 1_000]\n[health]\npath = \"/\"\n";
        let file = parse(text).unwrap();
        assert_eq!(file.kind.map(|(kind, _)| kind), Some(ServerKind::Entity));
        let found: Vec<_> = file
            .settings
            .iter()
            .map(|one| (one.line, one.key.as_str(), one.value.clone()))
            .collect();
        let keys = ["a".to_owned(), "1000".to_owned()];
        let expected = [
            (3, "listen", Value::Text("[::1]:1".to_owned())),
            (4, "shards", Value::Text("16".to_owned())),
            (5, "no-pin", Value::Switch(true)),
            (6, "tls-key", Value::Texts(keys.to_vec())),
            (7, "health", Value::Other("table")),
        ];
        assert_eq!(found, expected);
        let of_proxy: Vec<_> = file
            .flags_of(ServerKind::Proxy)
            .map(|one| one.line)
            .collect();
        assert_eq!(of_proxy, [3, 4, 5, 6]);
    }

    /// Goal: what is no TOML, and a server that there is not, are named with line and key.
    #[test]
    fn faults_name_line_and_key() {
        for (text, begin, part) in [
            ("\nlisten = ", "a.toml:2: listen: ", ""),
            ("listen = 1\nlisten = 2", "a.toml:2: listen: ", "duplicate"),
            ("server = \"web\"", "a.toml:1: server: ", "\"files\""),
            ("\n\nserver = 1", "a.toml:3: server: ", "\"files\""),
        ] {
            let error = parse(text).unwrap_err();
            assert!(
                error.starts_with(begin) && error.contains(part),
                "{text:?}: {error}"
            );
            assert!(!error.contains('\n'), "{error}");
        }
        let file = parse("\nserver = \"files\"").unwrap();
        let Err(Failure::Usage(error)) = file.check_kind(ServerKind::Proxy) else {
            unreachable!()
        };
        assert!(
            error.starts_with("a.toml:2: server: ") && error.contains("millpond proxy"),
            "{error}"
        );
        assert!(parse("").unwrap().kind().is_err());
    }
}
