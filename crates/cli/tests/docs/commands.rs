//! The valid commands in this repository, from the programs themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Flags in sentences about other programs.
const FLAGS_OF_OTHERS: [&str; 0] = [];

/// Placeholders for a value in a sentence, and a value.
const PLACEHOLDERS: [(&str, &str); 12] = [
    ("URL", "http://127.0.0.1:8080/"),
    ("ADDR", "127.0.0.1:8080"),
    ("ADDR:PORT", "127.0.0.1:8080"),
    ("N", "4"),
    ("US", "50"),
    ("SIZE", "1MiB"),
    ("TIME", "1s"),
    ("MS", "10"),
    ("LEVEL", "info"),
    ("FORMAT", "wrk"),
    ("RATE", "1000"),
    ("MODE", "on"),
];

pub(crate) struct Commands {
    root: PathBuf,
    /// Of all commands of `millpond`, `cargo` for what is built here, and setup.
    flags: BTreeSet<String>,
    make_targets: BTreeSet<String>,
    /// Verbs of `cargo xtask` and `cargo bench-suite`, by these names.
    maintainers: BTreeMap<&'static str, BTreeSet<String>>,
}

impl Commands {
    pub(crate) fn new(root: &Path) -> Self {
        let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
        let phony = read("Makefile");
        let phony = phony.lines().find_map(|line| line.strip_prefix(".PHONY: "));
        let mut flags: BTreeSet<String> = helps().values().flat_map(|it| flags_in(it)).collect();
        let mut maintainers = BTreeMap::new();
        for (program, folder) in [("xtask", "xtask"), ("bench-suite", "crates/bench-suite")] {
            let usage = read(&format!("{folder}/src/main.rs"));
            flags.extend(flags_in(&usage));
            let verbs = usage.lines().filter_map(|line| {
                let (_, words) = line.split_once(&format!("cargo {program} "))?;
                words.split_whitespace().next().map(str::to_owned)
            });
            maintainers.insert(program, verbs.collect());
        }
        flags.extend(flags_in(&read("scripts/setup")));
        Self {
            root: root.to_owned(),
            flags,
            make_targets: words_of(phony.unwrap_or_default()),
            maintainers,
        }
    }

    /// Whether a command would be understood; what is wrong with it.
    pub(crate) fn check(&self, command: &str) -> Result<(), String> {
        let split = split(command);
        let words: Vec<&str> = split.iter().map(|word| &*word.text).collect();
        match *words.as_slice() {
            ["millpond", ..] => variants(&split[1..])
                .iter()
                .try_for_each(|it| understood(it)),
            ["make", target, ..] => is_in(&self.make_targets, target),
            ["cargo", program @ ("xtask" | "bench-suite"), verb, ..] => {
                is_in(&self.maintainers[program], verb)
            }
            ["cargo", ref words @ ..] => self.has_example(words),
            ["scripts/setup", ..] => Ok(()),
            [flag, ..] if flag.starts_with("--") => self.has_flag(flag),
            _ => Err("nothing that is known".to_owned()),
        }
    }

    fn has_example(&self, words: &[&str]) -> Result<(), String> {
        let after = |flag| {
            let at = words.iter().position(|word| *word == flag)?;
            words.get(at + 1).filter(|word| **word != "NAME").copied()
        };
        let Some(name) = after("--example") else {
            return Ok(());
        };
        let package = after("-p").or_else(|| after("--package"));
        let directory = package.and_then(|name| name.strip_prefix("millpond-"));
        let file = format!("crates/{}/examples/{name}.rs", directory.unwrap_or("cli"));
        match self.root.join(&file).is_file() {
            true => Ok(()),
            false => Err(format!("there is no {file}")),
        }
    }

    fn has_flag(&self, flag: &str) -> Result<(), String> {
        let name: String = flag.chars().take_while(|&it| is_of_flag(it)).collect();
        // `--max-...` stands for several.
        let is_known = self.flags.contains(&name)
            || FLAGS_OF_OTHERS.contains(&&*name)
            || flag.contains("...") && self.flags.iter().any(|it| it.starts_with(&name));
        match is_known || name == "--" {
            true => Ok(()),
            false => Err("no command has this flag".to_owned()),
        }
    }
}

fn is_of_flag(character: char) -> bool {
    matches!(character, '-' | '_' | 'a'..='z' | '0'..='9')
}

fn is_in(known: &BTreeSet<String>, word: &str) -> Result<(), String> {
    match known.contains(word) {
        true => Ok(()),
        false => Err(format!("{word} is none of {known:?}")),
    }
}

fn words_of(text: &str) -> BTreeSet<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn flags_in(text: &str) -> impl Iterator<Item = String> + '_ {
    let words = text.split(|it| !is_of_flag(it));
    words
        .filter(|word| word.starts_with("--"))
        .map(str::to_owned)
}

fn millpond(words: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millpond"));
    command.args(words).stdin(Stdio::null());
    command.env("MILLPOND_LOCK", "").output().unwrap()
}

/// The help of each command and of all below it, by the words that name it.
pub(crate) fn helps() -> &'static BTreeMap<Vec<String>, String> {
    static HELPS: OnceLock<BTreeMap<Vec<String>, String>> = OnceLock::new();
    HELPS.get_or_init(|| {
        let mut helps = BTreeMap::new();
        collect_help(&[], &mut helps);
        helps
    })
}

fn collect_help(command: &[&str], helps: &mut BTreeMap<Vec<String>, String>) {
    let output = millpond(&[command, &["--help"]].concat());
    assert!(output.status.success(), "{command:?}: {output:?}");
    let help = String::from_utf8(output.stdout).unwrap();
    let below = help
        .split_once("\nCommands:\n")
        .map_or("", |(_, below)| below);
    for line in below.lines().take_while(|line| line.starts_with("  ")) {
        // A command's own line is indented by two, what it says beyond that by more.
        let name = line[2..].split_whitespace().next();
        let name = name.filter(|name| !line[2..].starts_with(' ') && *name != "help");
        if let Some(name) = name {
            collect_help(&[command, &[name]].concat(), helps);
        }
    }
    let words = command.iter().map(|word| (*word).to_owned()).collect();
    helps.insert(words, help);
}

/// The flags that a help describes: the first thing in their lines, behind the short form if there is one. Sentences about
/// other flags are set in differently.
pub(crate) fn flags_described(help: &str) -> impl Iterator<Item = &str> {
    help.lines().filter_map(|line| {
        let indent = line.len() - line.trim_start().len();
        let line = line.trim_start();
        if ![2, 6].contains(&indent) {
            return None;
        }
        let long = match line.starts_with("--") {
            true => line,
            false => line.strip_prefix('-')?.split_once(", ")?.1,
        };
        let end = long.find(|it| !is_of_flag(it)).unwrap_or(long.len());
        let is_flag = long.starts_with("--") && end > "--".len();
        is_flag.then_some(&long[..end])
    })
}

/// Reads a command line to its end without doing it: `--help` goes before `--`, behind which everything
/// is another's.
fn understood(words: &[String]) -> Result<(), String> {
    let end = words.iter().position(|word| word == "--");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let own = &words[..end.unwrap_or(words.len())];
    let output = millpond(&[own, &["--help"]].concat());
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(text.lines().next().unwrap_or_default().to_owned())
}

/// A word as the shell hands it on.
struct Word {
    text: String,
    /// Then nothing in it stands for anything else.
    is_quoted: bool,
}

/// The words with values instead of what stands for them: one line for each of `a|b|c`.
fn variants(words: &[Word]) -> Vec<Vec<String>> {
    let mut variants = vec![Vec::new()];
    let mut depth = 0;
    for Word { text, is_quoted } in words {
        // `[flags]` and `[-- ARG...]` may be left out, and so are.
        let opened = depth + usize::from(text.starts_with('[') && !is_quoted);
        depth = opened.saturating_sub(usize::from(text.ends_with(']') && opened > 0));
        if opened > 0 || text == "..." {
            continue;
        }
        let choices: Vec<&str> = match is_quoted {
            true => vec![text],
            false => text
                .split('[')
                .next()
                .unwrap_or_default()
                .split('|')
                .collect(),
        };
        let longer =
            |line: &Vec<String>, choice: &&str| [line.clone(), vec![value_of(choice)]].concat();
        let every = variants
            .iter()
            .flat_map(|line| choices.iter().map(move |it| longer(line, it)));
        variants = every.collect();
    }
    variants
}

fn value_of(word: &str) -> String {
    let placeholder = PLACEHOLDERS.iter().find(|(name, _)| *name == word);
    placeholder.map_or(word, |(_, value)| value).to_owned()
}

/// Words as a shell has them, up to a pipe or whatever else ends a command.
fn split(text: &str) -> Vec<Word> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<Word>, None);
    for character in text.chars() {
        let current = || Word {
            text: String::new(),
            is_quoted: false,
        };
        match quote {
            Some(end) if character == end => quote = None,
            None if character == '\'' || character == '"' => {
                quote = Some(character);
                word.get_or_insert_with(current).is_quoted = true;
            }
            None if character == ' ' => words.extend(word.take()),
            _ => word.get_or_insert_with(current).text.push(character),
        }
    }
    words.extend(word);
    let ends = ["|", ">", ">>", "<", "&&", ";", "&", "2>&1"];
    let end = words
        .iter()
        .position(|word| ends.contains(&&*word.text) && !word.is_quoted);
    words.truncate(end.unwrap_or(words.len()));
    words
}
