//! Settings in force by their effect: those that an allocator takes silently and then passes over.
//!
//! That a name and a value are right is asked before (`tuning`), that they reach the server is proved in it
//! (`presence`). A value can still change nothing: glibc keeps no block above the size of a heap in the arenas of
//! threads, whatever `mmap_threshold` says, and jemalloc clips what is out of its range. So a program of a moment
//! (`launch::probe`) is started with the settings, and shows what malloc does there or what the allocator says of
//! itself. A setting known to have no effect becomes a warning; invisible effects are not claimed either way.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use millpond_measure::units::format_bytes;

use crate::launch::{BlockOrigin, PROBE_STAGE, read_answer};
use crate::subject::Launcher;

use super::known::Dialect;
use super::tuning::{Setting, answer, mimalloc_option, number};
use super::{Allocator, GLIBC, base_name, known, tuning, version};

/// Above so many bytes glibc maps a block by default.
const MMAP_THRESHOLD_BYTES: u64 = 128 << 10;
/// The size of a heap of an arena on 64 bit.
const HEAP_BYTES: u64 = 64 << 20;
/// A threshold nearer to the usual one is not probed: a block between both could lie on either side.
const PROBED_DIFFERENCE_BYTES_MIN: u64 = 16 << 10;
/// Larger blocks may be refused for lack of address space.
const PROBED_BYTES_MAX: u64 = 256 << 20;

/// The most that glibc takes of a tunable, though the dynamic linker's list has no bound, and what holds then.
const GLIBC_BOUNDS: &[(&str, u64, &str)] = &[
    ("tcache_max", 1032, "blocks of up to 1032 bytes are cached"),
    ("tcache_count", 65_535, "7 blocks of a size are cached"),
    ("mxfast", 160, "fast bins hold blocks of up to 128 bytes"),
];
/// The versions of mimalloc that users report trouble with.
const MIMALLOC_WITH_REPORTS: (u32, u32) = (3, 3);
/// From this version on these bounds are others.
const GLIBC_OTHER_BOUNDS: (u32, u32) = (2, 42);

impl Allocator {
    /// One sentence for each setting that is known to have no effect, with what holds instead.
    pub(crate) fn without_effect(&self, launcher: &Launcher) -> Vec<String> {
        let Some(known) = self.family.and_then(known::find) else {
            return Vec::new();
        };
        let probe = Probe {
            launcher,
            allocator: self,
        };
        let found = match known.dialect {
            _ if self.settings.is_empty() => Vec::new(),
            Dialect::Glibc => glibc(&probe, &self.settings),
            Dialect::Jemalloc(_) => jemalloc(&probe, &self.settings),
            Dialect::Mimalloc => mimalloc(&probe, &self.settings),
            _ => Vec::new(),
        };
        let sentence = |((key, value), holds): (&Setting, String)| {
            format!("{}: {key}={value} {holds}", self.name)
        };
        found.into_iter().map(sentence).collect()
    }

    /// A setting's side effect: either threshold of the C library ends the adjusting of both.
    pub(crate) fn frozen_threshold(&self) -> Option<String> {
        let other = match (
            self.setting("mmap_threshold"),
            self.setting("trim_threshold"),
        ) {
            (Some(_), None) => "trim_threshold",
            (None, Some(_)) => "mmap_threshold",
            _ => return None,
        };
        (self.family == Some(GLIBC)).then(|| {
            format!(
                "{}: this also stops {other} from being adjusted, which stays at 128 KiB; without either, the C library \
                 raises both to what is freed: set both, or neither",
                self.name
            )
        })
    }

    /// Publicly known facts about this version that a comparison of minutes may not show.
    pub(crate) fn public_reports(&self) -> Option<String> {
        let known = self.family.and_then(known::find)?;
        // A version may take a question to the package manager.
        let version = (known.dialect == Dialect::Mimalloc).then(|| self.version())??;
        let is_it = version::major_and_minor(&version) == Some(MIMALLOC_WITH_REPORTS);
        is_it.then(|| {
            format!(
                "{}: this is mimalloc {version}; of the versions 3.3 there are public reports of more memory (81 % \
                 more than 3.1.5 in one server, github.com/microsoft/mimalloc/issues/1282) and of stalls with huge \
                 pages: look at its memory over time before you deploy it",
                self.name
            )
        })
    }

    /// Shows that it is what its name says, where its object alone does not, and notes that for the record. The error
    /// is a sentence.
    pub(crate) fn prove_kind(&mut self, launcher: &Launcher) -> Result<(), String> {
        let known = known::find(base_name(&self.name));
        let Some(proof) = known.and_then(|known| known.proof.as_ref()) else {
            return Ok(());
        };
        let probe = Probe {
            launcher,
            allocator: self,
        };
        let mut environment = self.environment.clone();
        environment.push((proof.variable.to_owned(), "1".to_owned()));
        let said = probe.words(&environment).unwrap_or_default();
        if !said.lines().any(|line| line == proof.line) {
            return Err(format!(
                "{} does not show here that it has its {}: {}",
                self.name, proof.fact, proof.remedy
            ));
        }
        self.proved = Some(proof.fact);
        Ok(())
    }

    /// The value of one of its settings.
    pub(crate) fn setting(&self, key: &str) -> Option<&str> {
        let mut settings = self.settings.iter();
        settings
            .find(|(own, _)| own == key)
            .map(|(_, value)| value.as_str())
    }

    /// True for jemalloc in any of its builds.
    pub(crate) fn is_jemalloc(&self) -> bool {
        let known = self.family.and_then(known::find);
        known.is_some_and(|known| matches!(known.dialect, Dialect::Jemalloc(_)))
    }
}

/// A program under the allocator and its settings.
struct Probe<'a> {
    launcher: &'a Launcher,
    allocator: &'a Allocator,
}

impl Probe<'_> {
    fn command(&self, sizes: &[u64]) -> Command {
        let mut command = tuning::program(&self.launcher.program);
        command.args(["launch", PROBE_STAGE]);
        command.args(sizes.iter().map(u64::to_string));
        if let Some(library) = &self.allocator.library {
            command.env("LD_PRELOAD", library);
        }
        command
    }

    /// Where a block of `bytes` lies; `None` if that is unknown.
    fn place(&self, bytes: u64) -> Option<BlockOrigin> {
        let mut command = self.command(&[bytes]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let said = answer(&mut command, &self.allocator.environment, |child| {
            let out = child.stdout.take()?;
            Some(Box::new(out) as Box<dyn Read + Send>)
        });
        read_answer(&said.ok()?, bytes)
    }

    /// The allocator's stderr with `environment`.
    fn words(&self, environment: &[tuning::Variable]) -> Option<String> {
        let mut command = self.command(&[]);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let said = answer(&mut command, environment, |child| {
            let out = child.stderr.take()?;
            Some(Box::new(out) as Box<dyn Read + Send>)
        });
        said.ok()
    }
}

/// The C library says nothing of what it passes over.
fn glibc<'a>(probe: &Probe<'_>, settings: &'a [Setting]) -> Vec<(&'a Setting, String)> {
    let without = |one: &'a Setting| Some((one, glibc_holds(probe, one)?));
    settings.iter().filter_map(without).collect()
}

/// The effective value instead of a setting of the C library: the end of a sentence.
fn glibc_holds(probe: &Probe<'_>, (key, value): &Setting) -> Option<String> {
    let value = number(value)?;
    match key.as_str() {
        "mmap_threshold" => mmap_threshold(probe, value),
        "hugetlb" => hugetlb(value),
        "check" if value > 0 => Some(
            "has no effect: since version 2.34 the C library checks only where libc_malloc_debug.so is \
             preloaded"
                .to_owned(),
        ),
        _ => {
            let &(_, most, holds) = GLIBC_BOUNDS.iter().find(|(name, ..)| name == key)?;
            let is_beyond = value > most && is_older_than(GLIBC_OTHER_BOUNDS);
            is_beyond.then(|| {
                format!("has no effect: the C library takes at most {most} and ignores more; {holds}")
            })
        }
    }
}

fn is_older_than(bound: (u32, u32)) -> bool {
    let version = version::of_c_library();
    let version = version.as_deref().and_then(version::major_and_minor);
    version.is_some_and(|version| version < bound)
}

/// A block between the usual threshold and the one that was set shows which of them is in force. C libraries before
/// 2.35 ignore more than half a heap; later ones take it, but threads other than the first have heaps of one size only,
/// which hold no larger block.
fn mmap_threshold(probe: &Probe<'_>, value: u64) -> Option<String> {
    if value.abs_diff(MMAP_THRESHOLD_BYTES) < PROBED_DIFFERENCE_BYTES_MIN {
        return None;
    }
    let bytes = (value / 2 + MMAP_THRESHOLD_BYTES / 2).min(PROBED_BYTES_MAX);
    let is_raised = value > MMAP_THRESHOLD_BYTES;
    let shown = format_bytes(bytes as f64);
    match (probe.place(bytes)?, is_raised) {
        (BlockOrigin::Mapping, true) if value > HEAP_BYTES / 2 => Some(format!(
            "has no effect: the C library takes at most {} (half of a heap) and ignores more; a block of {shown} \
             is mapped by itself all the same, as by the usual threshold of {MMAP_THRESHOLD_BYTES}, which grows \
             with what is freed",
            HEAP_BYTES / 2
        )),
        (BlockOrigin::Mapping, true) => Some(format!(
            "has no effect: a block of {shown} is mapped by itself all the same"
        )),
        (BlockOrigin::Heap, false) => Some(format!(
            "has no effect: a block of {shown} is not mapped by itself"
        )),
        (BlockOrigin::Heap, true) if value > HEAP_BYTES => Some(format!(
            "has no effect beyond {HEAP_BYTES} in threads other than the first: their heaps are no larger, and \
             larger blocks are mapped by themselves all the same"
        )),
        _ => None,
    }
}

/// Huge pages that the kernel does not have, or not for this.
fn hugetlb(value: u64) -> Option<String> {
    if value == 1 {
        let modes = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok()?;
        return (!modes.contains("[madvise]")).then(|| {
            format!(
                "has no effect: it asks for transparent huge pages only where their mode is madvise, and here it is {}",
                modes.trim()
            )
        });
    }
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let has_none = text
        .lines()
        .filter_map(|line| line.strip_prefix("HugePages_Total:"))
        .any(|count| count.trim() == "0");
    let more = fs::read_to_string("/proc/sys/vm/nr_overcommit_hugepages");
    let is_fixed = more.is_ok_and(|count| count.trim() == "0");
    (value > 1 && has_none && is_fixed).then(|| {
        "has no effect: this machine has no huge pages set aside (vm.nr_hugepages is 0), so ordinary ones are used".to_owned()
    })
}

/// jemalloc prints the options that hold when a program ends.
fn jemalloc<'a>(probe: &Probe<'_>, settings: &'a [Setting]) -> Vec<(&'a Setting, String)> {
    let mut environment = probe.allocator.environment.clone();
    for (name, conf) in &mut environment {
        if name.ends_with("MALLOC_CONF") {
            conf.push_str(",stats_print:true");
        }
    }
    let said = probe.words(&environment).unwrap_or_default();
    let differs = |setting: &'a Setting| {
        let shown = jemalloc_option(&said, &setting.0)?;
        let holds = || {
            format!(
                "is not what holds: jemalloc says that {} is {shown}",
                setting.0
            )
        };
        (!is_same(&setting.1, shown)).then(|| (setting, holds()))
    };
    settings.iter().filter_map(differs).collect()
}

/// `2` in `  opt.narenas: 2` or `"never"` in `opt.thp: "never"`.
fn jemalloc_option<'a>(said: &'a str, key: &str) -> Option<&'a str> {
    let start = format!("opt.{key}: ");
    let line = said
        .lines()
        .find_map(|line| line.trim().strip_prefix(&start))?;
    Some(line.split(' ').next()?.trim_matches('"'))
}

/// Two ways to write one number, or one word.
fn is_same(given: &str, shown: &str) -> bool {
    let signed = |text: &str| text.parse::<i64>().ok();
    match (signed(given), signed(shown)) {
        (Some(given), Some(shown)) => given == shown,
        // A size with a unit is not read here.
        (None, Some(_)) => true,
        _ => given == shown,
    }
}

/// mimalloc lists its options at the start, with what holds.
fn mimalloc<'a>(probe: &Probe<'_>, settings: &'a [Setting]) -> Vec<(&'a Setting, String)> {
    let mut environment = probe.allocator.environment.clone();
    environment.push(("MIMALLOC_VERBOSE".to_owned(), "1".to_owned()));
    let said = probe.words(&environment).unwrap_or_default();
    let differs = |setting: &'a Setting| {
        let mut lines = said.lines();
        let line = lines.find(|line| mimalloc_option(line) == Some(setting.0.as_str()))?;
        let (_, shown) = line.split_once("': ")?;
        let shown = shown.trim().split(' ').next()?;
        let (given, holds) = (setting.1.parse::<i64>().ok()?, shown.parse::<i64>().ok()?);
        let says = || {
            format!(
                "is not what holds: mimalloc says that {} is {holds}",
                setting.0
            )
        };
        (given != holds).then(|| (setting, says()))
    };
    settings.iter().filter_map(differs).collect()
}

/// jemalloc's own threads, which give memory back while the program does nothing.
const BACKGROUND_THREAD: &str = "jemalloc_bg_thd";

/// Whether the process has a background thread of jemalloc's; `None` if its threads cannot be read.
pub(crate) fn has_background_thread(pid: i32) -> Option<bool> {
    let threads = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task")).ok()?;
    let mut names = threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
    Some(names.any(|name| name.trim() == BACKGROUND_THREAD))
}

#[cfg(test)]
#[path = "tests/settings_effect.rs"]
mod tests;
