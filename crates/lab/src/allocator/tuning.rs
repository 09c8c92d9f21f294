//! Settings of an allocator: `jemalloc:narenas=2,dirty_decay_ms=0`, as the environment that it reads.
//!
//! Allocators ignore unknown settings, and a candidate named after a setting that was never in
//! force would be a wrong result. So each is asked, with the settings, in a short-lived process:
//! jemalloc and mimalloc print the settings they took, the dynamic linker lists the C library's
//! tunables with their values, scudo complains, and of the others the object must at least know the
//! variable's name. That the environment then arrives in the server is for `presence` to prove.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use millpond_measure::units::parse_bytes;

use super::known::{Dialect, Known};
use super::{Allocator, GLIBC, known, settings_spelling};
use crate::elf::Elf;
use crate::suitability;

/// A program that is on every system, does nothing, and calls malloc.
const SHELL: &str = "/bin/sh";
/// Bound on a reply.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// `KEY` and `VALUE` as given.
pub(super) type Setting = (String, String);
/// A variable and its value.
pub(super) type Variable = (String, String);

/// Splits `KEY=VALUE,KEY=VALUE` without checking keys; `Err` is the part that has another form.
pub(super) fn parse(text: &str) -> Result<Vec<Setting>, String> {
    text.split(',')
        .map(|part| match part.split_once('=') {
            Some((key, value)) if !key.is_empty() && !value.is_empty() => {
                Ok((key.to_owned(), value.to_owned()))
            }
            _ => Err(part.to_owned()),
        })
        .collect()
}

/// The environment that gives a known allocator its settings.
pub(super) fn environment(dialect: Dialect, settings: &[Setting]) -> Vec<Variable> {
    let joined = |variable: &str, separator: &str, pair: &dyn Fn(&Setting) -> String| {
        let pairs: Vec<String> = settings.iter().map(pair).collect();
        vec![(variable.to_owned(), pairs.join(separator))]
    };
    match dialect {
        Dialect::Glibc => joined("GLIBC_TUNABLES", ":", &|(key, value)| {
            format!("{}={value}", tunable(key))
        }),
        Dialect::Jemalloc(variable) => {
            joined(variable, ",", &|(key, value)| format!("{key}:{value}"))
        }
        Dialect::Scudo => joined("SCUDO_OPTIONS", ":", &|(key, value)| {
            format!("{key}={value}")
        }),
        Dialect::Mimalloc => variables("MIMALLOC_", settings),
        Dialect::Variables(prefix) => variables(prefix, settings),
        Dialect::None => Vec::new(),
    }
}

fn variables(prefix: &str, settings: &[Setting]) -> Vec<Variable> {
    let variable =
        |(key, value): &Setting| (format!("{prefix}{}", key.to_uppercase()), value.clone());
    settings.iter().map(variable).collect()
}

/// `arena_max` is glibc.malloc's; `pthread.rseq` names its own part of glibc.
fn tunable(key: &str) -> String {
    if key.contains('.') {
        format!("glibc.{key}")
    } else {
        format!("glibc.malloc.{key}")
    }
}

/// Asks the allocator whether these settings mean something to it. `Err` is the end of a sentence
/// that begins with its name.
pub(super) fn ask(
    known: &Known,
    library: Option<&Path>,
    settings: &[Setting],
) -> Result<(), String> {
    let environment = environment(known.dialect, settings);
    let answer = match (known.dialect, library) {
        (Dialect::None, _) => return Err("reads no settings from the environment".to_owned()),
        (Dialect::Glibc, _) => ask_glibc(&environment, settings),
        (Dialect::Variables(_), Some(library)) => look_for_names(library, &environment)
            .and_then(|()| words_of(library, &environment))
            .map(drop),
        (Dialect::Jemalloc(variable), Some(library)) => ask_jemalloc(library, variable, settings),
        (Dialect::Mimalloc, Some(library)) => ask_mimalloc(library, environment, settings),
        (Dialect::Scudo, Some(library)) => ask_scudo(library, &environment),
        (_, None) => Err("is not here".to_owned()),
    };
    answer.map_err(|reason| format!("{reason} (often used: {})", known.settings))
}

/// What is wrong with the settings that the variable `name` gives to an allocator of `family`, in the object at
/// `library`; for the C library, the one of this system is asked. `None` if nothing is wrong, or if it cannot be
/// checked. The end of a sentence that begins with the allocator's name.
pub(crate) fn complaint(
    family: &str,
    library: Option<&Path>,
    name: &str,
    value: &str,
) -> Option<String> {
    let mut known = known::find(family)?;
    if let Dialect::Jemalloc(_) = known.dialect {
        let mut builds = known::KNOWN.iter();
        known = builds.find(|one| matches!(one.dialect, Dialect::Jemalloc(own) if own == name))?;
    }
    if known.dialect == Dialect::None || (library.is_none() && known.dialect != Dialect::Glibc) {
        return None;
    }
    let word = format!("{name}={value}");
    let settings = match known.dialect {
        // Only of those that are malloc's; a value may hold anything that is not read here.
        Dialect::Glibc if name == "GLIBC_TUNABLES" => malloc_tunables(value),
        Dialect::Variables(_) | Dialect::Mimalloc => {
            let key = name.split_once('_')?.1;
            let key = key.strip_prefix("MALLOC_").unwrap_or(key);
            vec![(key.to_lowercase(), value.to_owned())]
        }
        _ => match settings_spelling::settings(known.dialect, &word) {
            Ok(settings) => settings,
            Err(part) => return Some(format!("cannot take \"{part}\", which is no setting")),
        },
    };
    let mut asked = settings.into_iter();
    asked.find_map(|one| ask(known, library, &[one]).err())
}

/// `glibc.malloc.KEY=VALUE` of all tunables.
fn malloc_tunables(value: &str) -> Vec<Setting> {
    let parts = value.split(':').filter_map(|part| part.split_once('='));
    let own = parts.filter_map(|(key, value)| {
        Some((
            key.strip_prefix("glibc.malloc.")?.to_owned(),
            value.to_owned(),
        ))
    });
    own.collect()
}

fn ask_jemalloc(library: &Path, variable: &str, settings: &[Setting]) -> Result<(), String> {
    let mut conf = String::from("confirm_conf:true");
    for (key, value) in settings {
        let _ = write!(conf, ",{key}:{value}");
    }
    let said = words_of(library, &[(variable.to_owned(), conf)])?;
    for (key, value) in settings {
        let taken = format!("Set conf value: {key}:{value}");
        if said.lines().any(|line| line.ends_with(&taken)) {
            continue;
        }
        let pair = format!("{key}:{value}");
        let complaint = said
            .lines()
            .find(|line| line.contains("onf") && line.ends_with(&pair));
        return Err(match complaint {
            Some(line) => format!("does not take {key}={value}: it says \"{line}\""),
            None => format!("does not say that it took {key}={value}"),
        });
    }
    Ok(())
}

fn ask_mimalloc(
    library: &Path,
    mut environment: Vec<Variable>,
    settings: &[Setting],
) -> Result<(), String> {
    environment.push(("MIMALLOC_VERBOSE".to_owned(), "1".to_owned()));
    let said = words_of(library, &environment)?;
    let options: Vec<&str> = said.lines().filter_map(mimalloc_option).collect();
    for (key, value) in settings {
        let key = key.to_lowercase();
        if !options.contains(&key.as_str()) {
            return Err(format!(
                "has no setting \"{key}\"; it lists {}",
                options.join(", ")
            ));
        }
        let complaint = format!("mimalloc_{key} has an invalid value");
        if said.contains(&complaint) {
            return Err(format!(
                "does not take {key}={value}: it calls the value invalid"
            ));
        }
    }
    Ok(())
}

/// The name in `mimalloc: option 'purge_delay': 10 ms`.
pub(super) fn mimalloc_option(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("option '")?;
    Some(rest.split_once('\'')?.0)
}

fn ask_scudo(library: &Path, environment: &[Variable]) -> Result<(), String> {
    let said = words_of(library, environment)?;
    let Some(at) = said.find("unrecognized flag") else {
        return Ok(());
    };
    let flags = said
        .get(at..)
        .unwrap_or_default()
        .lines()
        .nth(1)
        .unwrap_or_default();
    Err(format!("does not know {}", flags.trim()))
}

/// An object that never names a variable cannot read it.
fn look_for_names(library: &Path, environment: &[Variable]) -> Result<(), String> {
    let mut objects = vec![library.to_owned()];
    // The proxy of tbb only passes calls on.
    objects.extend(behind_proxy(library));
    let mut bytes = Vec::new();
    for object in &objects {
        bytes.extend(fs::read(object).map_err(|error| format!("cannot be read: {error}"))?);
    }
    for (name, value) in environment {
        let is_word = |at: usize| {
            let before = at.checked_sub(1).and_then(|at| bytes.get(at));
            let after = bytes.get(at + name.len());
            // In a compiled object a name ends with a zero, or with the next string of a Rust one.
            let ends = |byte: Option<&u8>| byte.is_none_or(|byte| !is_name_byte(*byte));
            ends(before) && ends(after)
        };
        if !positions(&bytes, name.as_bytes()).any(is_word) {
            return Err(format!("does not read a variable {name}"));
        }
        let is_number = value.parse::<f64>().is_ok();
        if name.starts_with("TCMALLOC_") && !name.ends_with("_PATH") && !is_number {
            return Err(format!("takes {name} as a number, and {value} is none"));
        }
    }
    Ok(())
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte == b'_'
}

fn positions<'a>(bytes: &'a [u8], wanted: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let windows = bytes.windows(wanted.len()).enumerate();
    windows
        .filter(move |(_, window)| *window == wanted)
        .map(|(at, _)| at)
}

fn behind_proxy(library: &Path) -> Option<PathBuf> {
    let name = library.file_name()?.to_str()?;
    let sibling = library.with_file_name(name.replace("_proxy", ""));
    (sibling != library && sibling.is_file()).then_some(sibling)
}

/// The dynamic linker lists every tunable with the value it would have.
fn ask_glibc(environment: &[Variable], settings: &[Setting]) -> Result<(), String> {
    let interpreter = Elf::read(Path::new(SHELL))
        .ok()
        .flatten()
        .and_then(|elf| elf.interpreter())
        .ok_or_else(|| format!("cannot be asked: {SHELL} has no dynamic linker"))?;
    let mut command = program(&interpreter);
    command
        .arg("--list-tunables")
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let said = answer(&mut command, environment, |child| {
        child
            .stdout
            .take()
            .map(|out| Box::new(out) as Box<dyn Read + Send>)
    })?;
    for (key, value) in settings {
        let name = tunable(key);
        let line = said
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name}: ")));
        let Some(line) = line else {
            return Err(format!("has no tunable {name} in this version"));
        };
        let shown = line.split(' ').next().unwrap_or_default();
        if number(shown).is_none() || number(shown) != number(value) {
            let spelling = match parse_bytes(value) {
                Ok(bytes) if number(value).is_none() => {
                    format!("; write it in bytes, {key}={bytes}")
                }
                _ => String::new(),
            };
            return Err(format!(
                "does not take {key}={value}: {name} would be {line}{spelling}"
            ));
        }
    }
    Ok(())
}

/// `0x10` or `16`.
pub(super) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The library's stderr in a program that does nothing.
pub(super) fn words_of(library: &Path, environment: &[Variable]) -> Result<String, String> {
    let mut command = program(Path::new(SHELL));
    command
        .args(["-c", ":"])
        .env("LD_PRELOAD", library)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    answer(&mut command, environment, |child| {
        child
            .stderr
            .take()
            .map(|out| Box::new(out) as Box<dyn Read + Send>)
    })
}

/// Where a child writes what it is asked for.
type Output = fn(&mut std::process::Child) -> Option<Box<dyn Read + Send>>;

/// A program without what the shell says to allocators.
pub(super) fn program(path: &Path) -> Command {
    let mut command = Command::new(path);
    suitability::remove_from(&mut command);
    command
}

/// Runs `command` with `environment` beside what it has already, and returns what it wrote where
/// `output` says; an error if it does not end well.
pub(super) fn answer(
    command: &mut Command,
    environment: &[Variable],
    output: Output,
) -> Result<String, String> {
    answer_within(ANSWER_TIMEOUT, command, environment, output)
}

fn answer_within(
    bound: Duration,
    command: &mut Command,
    environment: &[Variable],
    output: Output,
) -> Result<String, String> {
    let failed = |error: io::Error| format!("cannot be asked: {error}");
    let pairs = environment.iter().map(|(name, value)| (name, value));
    let mut child = command
        .envs(pairs)
        .stdin(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let reader = output(&mut child).map(|mut out| {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            // The output before an error is used.
            let _ = out.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    });
    let deadline = Instant::now() + bound;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        if Instant::now() >= deadline {
            // It may have ended just now; either way it is collected.
            let _ = child.kill();
            let _ = child.wait();
            return Err("hangs with these settings".to_owned());
        }
        thread::sleep(Duration::from_millis(1));
    };
    let said = reader
        .and_then(|reader| reader.join().ok())
        .unwrap_or_default();
    if status.success() {
        return Ok(said);
    }
    let last = said
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default();
    Err(format!(
        "refuses these settings: \"{}\" ({status})",
        last.trim()
    ))
}

// The setting of an allocator that follows from the number of CPUs, and its value on another machine.

/// Arenas that glibc's malloc may make for each CPU on 64 bit.
const GLIBC_ARENAS_PER_CPU: u32 = 8;
/// Arenas that jemalloc makes for each CPU, where there are several.
const JEMALLOC_ARENAS_PER_CPU: u32 = 4;

/// A setting with the value that it would have.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct CpuSetting {
    /// `arena_max`.
    pub(crate) key: &'static str,
    pub(crate) value: String,
    /// The variables that the allocator reads it from.
    pub(crate) read_from: Vec<&'static str>,
}

impl Allocator {
    /// The values that it derives from the number of CPUs, as if there were `cpus` of them. `None` if nothing, or if
    /// its variables are ones that no rule is known for.
    pub(crate) fn setting_for_cpus(&self, cpus: u32) -> Option<CpuSetting> {
        let has_unknown = self.settings.is_empty() && !self.environment.is_empty();
        let (key, arenas, read_from) = match self.dialect()? {
            _ if has_unknown => return None,
            Dialect::Glibc => (
                "arena_max",
                cpus.saturating_mul(GLIBC_ARENAS_PER_CPU),
                vec!["MALLOC_ARENA_MAX", "GLIBC_TUNABLES"],
            ),
            Dialect::Jemalloc(variable) => (
                "narenas",
                match cpus {
                    0 | 1 => 1,
                    _ => cpus.saturating_mul(JEMALLOC_ARENAS_PER_CPU),
                },
                vec![variable],
            ),
            _ => return None,
        };
        Some(CpuSetting {
            key,
            value: arenas.to_string(),
            read_from,
        })
    }

    /// Adds `setting` to the settings that the user gave it; its name stays.
    pub(crate) fn add_cpu_setting(&mut self, setting: &CpuSetting) {
        let Some(dialect) = self.dialect() else {
            return;
        };
        let own = (setting.key.to_owned(), setting.value.clone());
        let all: Vec<Setting> = self.settings.iter().cloned().chain([own]).collect();
        self.environment = environment(dialect, &all);
    }

    /// How it reads its settings: without a library, as the C library does.
    fn dialect(&self) -> Option<Dialect> {
        let name = match self.library {
            Some(_) => self.family?,
            None => GLIBC,
        };
        known::find(name).map(|known| known.dialect)
    }
}

#[cfg(test)]
#[path = "tests/tuning.rs"]
mod tests;
