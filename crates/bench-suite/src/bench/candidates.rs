//! Allocators that can be preloaded into a third-party program, and the proof that it uses them.
//!
//! Debian's, those that `cargo xtask allocators` built, the C library's own and ours. All are
//! preloaded, the C library too: a program that is linked with an allocator has that one otherwise,
//! as Debian's redis has jemalloc.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};

use super::{Bench, Machine, first_line, text_of};
use xtask::{TestTally, cargo, run_command};

/// Ours.
pub(super) const MEMPOOL: &str = "mempool";

/// Where the dynamic linker finds the distribution's.
const DIRECTORIES: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
];
/// Names, and files that may be there.
const KNOWN: [(&str, &str); 4] = [
    ("glibc", "libc.so.6"),
    ("jemalloc", "libjemalloc.so.2"),
    ("tcmalloc", "libtcmalloc_minimal.so.4"),
    ("mimalloc", "libmimalloc.so.2.0"),
];
/// Where `millpond` searches for built allocators, when it is set.
const BUILT_VARIABLE: &str = "MILLPOND_ALLOCATORS";

/// An object to preload.
pub(super) struct Candidate {
    pub(super) name: String,
    pub(super) library: PathBuf,
}

/// Ours, which is built now, and all others that are here.
pub(super) fn find(bench: &Bench) -> Result<Vec<Candidate>, String> {
    let mut found = vec![ours(bench)?];
    for (name, file) in KNOWN {
        let paths = DIRECTORIES
            .iter()
            .map(|directory| Path::new(directory).join(file));
        if let Some(library) = paths.filter_map(|path| path.canonicalize().ok()).next() {
            let name = name.to_owned();
            found.push(Candidate { name, library });
        }
    }
    let directory = std::env::var_os(BUILT_VARIABLE)
        .map_or_else(|| bench.target.join("allocators"), PathBuf::from);
    let mut built: Vec<Candidate> = std::fs::read_dir(&directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let library = entry.path().canonicalize().ok()?;
            let file = library.file_name()?.to_str()?;
            let name = file.strip_prefix("libmillpond-")?.strip_suffix(".so")?;
            Some(Candidate {
                name: name.to_owned(),
                library,
            })
        })
        .collect();
    built.sort_by(|one, other| one.name.cmp(&other.name));
    found.extend(built);
    Ok(found)
}

fn ours(bench: &Bench) -> Result<Candidate, String> {
    let mut build = cargo();
    build.args(["build", "--locked", "--profile", "preload"]);
    build.args(["--package", "millpond-preload-mempool"]);
    if !run_command(&mut build, &mut TestTally::default())? {
        return Err("the pools as malloc do not build".to_owned());
    }
    let path = bench.target.join("preload/libmillpond_mempool_malloc.so");
    let library = path
        .canonicalize()
        .map_err(|error| format!("{}: {error}", path.display()))?;
    let name = MEMPOOL.to_owned();
    Ok(Candidate { name, library })
}

impl Candidate {
    /// Asks the dynamic linker whose `malloc` a program calls when this is preloaded.
    pub(super) fn prove(&self, program: &str) -> Result<(), String> {
        let mut command = Command::new("sh");
        // The linker writes to standard error.
        command.args(["-c", "exec \"$0\" --version 2>&1", program]);
        command.env("LD_PRELOAD", &self.library);
        command.env("LD_DEBUG", "bindings");
        let text = text_of(&mut command)?;
        let object = bound_to(&text, program, "malloc")
            .ok_or_else(|| format!("{program} calls no malloc that the linker knows of"))?;
        let is_bound = Path::new(object).canonicalize().ok().as_ref() == Some(&self.library);
        is_bound.then_some(()).ok_or_else(|| {
            let (name, library) = (&self.name, self.library.display());
            format!("{name}: {program} takes malloc from {object}, not from {library}")
        })
    }
}

/// Reads `binding file PROGRAM [0] to OBJECT [0]: normal symbol `malloc'`.
fn bound_to<'a>(text: &'a str, program: &str, symbol: &str) -> Option<&'a str> {
    let quoted = format!("symbol `{symbol}'");
    text.lines()
        .filter(|line| line.contains(&quoted))
        .find_map(|line| {
            let (file, rest) = line.split_once("binding file ")?.1.split_once(" [0] to ")?;
            let is_program = Path::new(file).file_name()? == program;
            is_program.then(|| rest.split(" [").next())?
        })
}

// The record of a measurement, small enough to be read: `benches/records/DATE-NAME.json`.
//
// A record holds what was measured as a [`Spread`], never as a list of runs or samples: those would
// be thousands of lines that no reader compares. Each element of a list or of a table is one line,
// so the diff of two records shows which figures changed.

const DIRECTORY: &str = "benches/records";

/// Members that stand first in a line, in this order: what an element is called, and what was found.
const KEYS_FIRST: [&str; 13] = [
    "name",
    "attack",
    "driver",
    "server",
    "candidate",
    "measure",
    "value",
    "target",
    "met",
    "median",
    "min",
    "max",
    "count",
];

/// Below this, numbers keep six digits. From here on they are whole.
const WHOLE_MIN: f64 = 100_000.0;

/// A summary of many values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) count: usize,
}

impl Spread {
    /// All but the count are NaN, `null` in a record, if there is no value.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = match sorted.len() {
            0 => f64::NAN,
            len if len % 2 == 1 => sorted[middle],
            _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
        };
        Self {
            median,
            min: sorted.first().copied().unwrap_or(f64::NAN),
            max: sorted.last().copied().unwrap_or(f64::NAN),
            count: sorted.len(),
        }
    }

    pub(crate) fn to_json(self) -> Value {
        json!({ "median": self.median, "min": self.min, "max": self.max, "count": self.count })
    }

    /// Of samples over time: the first third is the warm-up, and the last one above the middle one is
    /// growth.
    pub(crate) fn thirds(samples: &[f64]) -> Value {
        let third = samples.len() / 3;
        let of = |samples: &[f64]| Self::of(samples.iter().copied()).to_json();
        json!({
            "first_third": of(&samples[..third]),
            "middle_third": of(&samples[third..2 * third]),
            "last_third": of(&samples[2 * third..]),
        })
    }
}

/// One measurement, with its date, its command and the machine.
pub(crate) struct Record {
    name: String,
    date: String,
    members: Vec<(&'static str, Value)>,
}

impl Record {
    pub(crate) fn new(name: &str, command: String, machine: &Machine) -> Result<Self, String> {
        let date = first_line("date", &["-u", "+%F"]).ok_or("date(1) cannot be run")?;
        let record = Self {
            name: name.to_owned(),
            date,
            members: Vec::new(),
        };
        Ok(record
            .with("command", command)
            .with("environment", machine.describe()))
    }

    pub(crate) fn with(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        self.members.push((key, value.into()));
        self
    }

    pub(crate) fn write(&self) -> Result<(), String> {
        let path = format!("{DIRECTORY}/{}-{}.json", self.date, self.name);
        std::fs::create_dir_all(Path::new(DIRECTORY))
            .and_then(|()| std::fs::write(&path, self.text()))
            .map_err(|error| format!("{path} cannot be written: {error}"))?;
        println!("recorded in {path}");
        Ok(())
    }

    /// JSON, with one line for each member of the record and for each element of a member.
    fn text(&self) -> String {
        let head = [
            ("name", json!(self.name.as_str())),
            ("date", json!(self.date.as_str())),
        ];
        let members = head.iter().chain(&self.members);
        let members: Vec<String> = members
            .map(|(key, value)| format!("  {}: {}", json!(key), in_lines(value)))
            .collect();
        format!("{{\n{}\n}}\n", members.join(",\n"))
    }
}

/// A member of a record: a line for each element that it has.
fn in_lines(value: &Value) -> String {
    let (elements, [open, close]) = match value {
        Value::Array(elements) if !elements.is_empty() => {
            let lines = elements.iter().map(in_one_line);
            (lines.collect::<Vec<_>>(), ["[", "]"])
        }
        Value::Object(members) if !members.is_empty() => {
            let lines = members.iter();
            let lines = lines.map(|(key, value)| format!("{}: {}", json!(key), in_one_line(value)));
            (lines.collect(), ["{", "}"])
        }
        single => return in_one_line(single),
    };
    let lines: Vec<String> = elements.iter().map(|line| format!("    {line}")).collect();
    format!("{open}\n{}\n  {close}", lines.join(",\n"))
}

fn in_one_line(value: &Value) -> String {
    match value {
        Value::Array(elements) => {
            let elements: Vec<String> = elements.iter().map(in_one_line).collect();
            format!("[{}]", elements.join(", "))
        }
        Value::Object(members) => {
            let mut text = String::new();
            for key in keys(members) {
                let separator = if text.is_empty() { "" } else { ", " };
                let value = in_one_line(&members[key]);
                let _ = write!(text, "{separator}{}: {value}", json!(key));
            }
            format!("{{{text}}}")
        }
        Value::Number(number) if number.is_f64() => rounded(number.as_f64().unwrap_or(f64::NAN)),
        other => other.to_string(),
    }
}

fn keys(members: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let is_first = |key: &&str| KEYS_FIRST.contains(key);
    let first = KEYS_FIRST
        .into_iter()
        .filter(|key| members.contains_key(*key));
    let others = members.keys().map(String::as_str);
    first.chain(others.filter(move |key| !is_first(key)))
}

fn rounded(value: f64) -> String {
    if value.abs() >= WHOLE_MIN {
        return format!("{value:.0}");
    }
    let short: f64 = format!("{value:.5e}").parse().unwrap_or(value);
    match short.fract() == 0.0 {
        true => format!("{short:.0}"),
        false => json!(short).to_string(),
    }
}

#[cfg(test)]
#[path = "tests/candidates.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/record.rs"]
mod record_tests;
