//! What there is, for `millpond allocators`: each allocator with its version and place, or with the
//! way to get it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::{env, fs};

use regex::bytes::Regex;
use serde::Deserialize;

use crate::elf::Elf;

use super::selection::{Dialect, KNOWN, Known};
use super::user::can_be_malloc;
use super::{Allocator, GLIBC, MEMPOOL, base_name, discover, selection};

/// Said to users that look for the one of an earlier comparison.
pub const NOT_TO_BE_HAD: &str = "lockless (llalloc) is in no package registry, only on its author's \
    site: build it yourself and give it as lockless=/path/to/libllalloc.so";

/// One line of the list.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CatalogueEntry {
    /// As `--allocators` takes it.
    pub name: &'static str,
    /// As exactly as it can be told; `None` too if it is not here.
    pub version: Option<String>,
    /// Where it is; `None` if it is not here.
    pub place: Option<String>,
    /// How to get it, if it is not here.
    pub remedy: Option<String>,
    /// Settings that people change most; empty if it reads none.
    pub settings: &'static str,
    /// How it is given settings, e.g. `MALLOC_CONF`.
    pub variable: &'static str,
}

/// Every known allocator, in the order of reports.
#[must_use]
pub fn catalogue() -> Vec<CatalogueEntry> {
    let found = discover();
    KNOWN.iter().map(|known| entry(known, &found)).collect()
}

fn entry(known: &Known, found: &[Allocator]) -> CatalogueEntry {
    let here = found.iter().find(|allocator| allocator.name == known.name);
    let place = match here {
        Some(_) if known.name == GLIBC => c_library().map(|path| path.display().to_string()),
        Some(allocator) => allocator.library_title(),
        None => None,
    };
    CatalogueEntry {
        name: known.name,
        version: here.and_then(Allocator::version),
        place,
        remedy: known.remedy().filter(|_| here.is_none()),
        settings: known.settings,
        variable: match known.dialect {
            Dialect::Glibc => "GLIBC_TUNABLES",
            Dialect::Jemalloc(variable) => variable,
            Dialect::Scudo => "SCUDO_OPTIONS",
            Dialect::Mimalloc => "MIMALLOC_*",
            Dialect::Variables("TCMALLOC_") => "TCMALLOC_*",
            Dialect::Variables("TBB_MALLOC_") => "TBB_MALLOC_*",
            Dialect::Variables(_) => "MEMPOOL_*",
            Dialect::None => "",
        },
    }
}

// Which version of an allocator an object is, as exactly as it can be told without running it.
//
// In this order: what was written beside an object that we built, what the system's package
// manager says of the file, what some allocators have of it in the object, and the digits of its name.

/// The version of a library.
pub(super) fn of_library(library: &Path) -> Option<String> {
    version(library)
        .or_else(|| of_package(library))
        .or_else(|| of_contents(library))
        .or_else(|| of_name(library))
}

/// The version of what a process has mapped as `file` and can be read as `readable`: what the package manager has under the
/// name may be another file, in another root or newer.
pub(crate) fn of_mapped(file: &Path, readable: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;
    let identity = |path: &Path| {
        let found = fs::metadata(path).ok()?;
        Some((found.dev(), found.ino()))
    };
    if identity(file).is_some_and(|own| Some(own) == identity(readable)) {
        return of_library(file);
    }
    of_contents(readable).or_else(|| of_name(file))
}

/// The version that the object itself tells, or who built or packed it: not its name, which says at most the
/// version of its interface.
pub(super) fn told_by(library: &Path) -> Option<String> {
    version(library)
        .or_else(|| of_contents(library))
        .or_else(|| of_package(library))
}

/// True if `told` begins with the numbers of `wanted`: `5.3.0-1 (libjemalloc2)` is `5.3` and `5.3.0`.
pub(super) fn is_of(told: &str, wanted: &str) -> bool {
    let end = told.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let digits = told.get(..end.unwrap_or(told.len())).unwrap_or_default();
    // What is no number (a commit, a date) is the user's to know.
    let is_number = wanted
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    if digits.is_empty() || !is_number {
        return true;
    }
    let rest = digits.strip_prefix(wanted);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// `6.1` of `6.1.0-49-amd64`, and of anything else that begins with a version.
pub(crate) fn major_and_minor(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split(|letter: char| !letter.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// What jemalloc and gperftools have of it in their objects: `5.3.0-0-g54eaed1d...`, `gperftools 2.10`.
fn of_contents(library: &Path) -> Option<String> {
    static PATTERN: OnceLock<Option<Regex>> = OnceLock::new();
    const VERSION: &str = r"(?-u)(?:\x00|^)([0-9]+\.[0-9]+\.[0-9]+)-[0-9]+-g[0-9a-f]{8,40}\x00|\x00gperftools ([0-9.]+)\x00";
    // It is a constant, so it compiles always or never.
    let pattern = PATTERN.get_or_init(|| Regex::new(VERSION).ok()).as_ref()?;
    let bytes = fs::read(library).ok()?;
    let found = pattern.captures(&bytes)?;
    let version = found.get(1).or_else(|| found.get(2))?;
    Some(String::from_utf8_lossy(version.as_bytes()).into_owned())
}

/// `libtcmalloc_minimal.so.4.5.10`: what follows `.so.` is the version, as far as it goes.
fn of_name(library: &Path) -> Option<String> {
    let file = library.file_name()?.to_str()?;
    Some(file.split_once(".so.")?.1.to_owned())
}

/// `5.3.0-1 (libjemalloc2)`. A system without dpkg, or a file of no package, has none.
fn of_package(library: &Path) -> Option<String> {
    let owner = dpkg_query(&["--search", library.to_str()?])?;
    // `libjemalloc2:amd64: /usr/lib/...`; a file of several packages is not a library.
    let (package, _) = owner.trim().rsplit_once(": ")?;
    let version = dpkg_query(&["--show", "--showformat", "${Version}", package])?;
    let name = package.split(':').next().unwrap_or(package);
    Some(format!("{} ({name})", version.trim()))
}

fn dpkg_query(words: &[&str]) -> Option<String> {
    let output = Command::new("dpkg-query")
        .args(words)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The C library that this program runs with, and so does every target that is not of another one.
pub(super) fn c_library() -> Option<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines()
        .filter_map(|line| line.find('/').and_then(|at| line.get(at..)))
        .map(Path::new)
        .find(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with("libc.so") || name.starts_with("libc-2"))
        })
        .map(Path::to_owned)
}

/// What the C library says of itself: `2.36 (Debian GLIBC 2.36-9+deb12u13)`.
pub(super) fn of_c_library() -> Option<String> {
    banner(&c_library()?)
}

/// What the file at `path` says of itself, if it is a C library of GNU.
pub(crate) fn banner(path: &Path) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    const BEGINNING: &[u8] = b"GNU C Library (";
    let at = bytes
        .windows(BEGINNING.len())
        .position(|window| window == BEGINNING)?;
    let line = bytes
        .get(at + BEGINNING.len()..)?
        .split(|&byte| byte == b'\n')
        .next()?;
    parse_banner(&String::from_utf8_lossy(line))
}

/// `Debian GLIBC 2.36-9) stable release version 2.36.`
fn parse_banner(line: &str) -> Option<String> {
    let (title, rest) = line.split_once(')')?;
    let (_, version) = rest.split_once("version ")?;
    Some(format!("{} ({title})", version.trim_end_matches('.')))
}

// The allocators of the distribution, found where the dynamic linker would find them.

const LIBRARY_DIRECTORIES: &[&str] = &[
    "/usr/local/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib64",
];
const LINKER_CACHE: &str = "/etc/ld.so.cache";

/// The first file whose name begins with one of `sonames`, best soname first.
pub(super) fn find_library(sonames: &[&str]) -> Option<PathBuf> {
    sonames.iter().find_map(|soname| {
        in_directories(soname)
            .or_else(|| in_linker_cache(soname))
            .filter(|path| can_be_malloc(path))
    })
}

/// The last file, in order of names, that matches one of `patterns`: parts of the path that hold a
/// `*` match any directory that begins and ends so. The last one is the newest version.
pub(super) fn find_pattern(patterns: &[&str]) -> Option<PathBuf> {
    patterns
        .iter()
        .flat_map(|pattern| matches(Path::new("/"), pattern.trim_start_matches('/')))
        .filter(|path| can_be_malloc(path))
        .max_by_key(|path| version_order(path))
        .and_then(|path| fs::canonicalize(path).ok())
}

fn matches(directory: &Path, pattern: &str) -> Vec<PathBuf> {
    let (part, rest) = match pattern.split_once('/') {
        Some((part, rest)) => (part, Some(rest)),
        None => (pattern, None),
    };
    let here: Vec<PathBuf> = match part.split_once('*') {
        None => vec![directory.join(part)],
        Some((before, after)) => fs::read_dir(directory)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| {
                let name = entry.file_name();
                let name = name.to_str().and_then(|name| name.strip_prefix(before));
                name.is_some_and(|name| name.ends_with(after))
            })
            .map(|entry| entry.path())
            .collect(),
    };
    match rest {
        Some(rest) => here.iter().flat_map(|path| matches(path, rest)).collect(),
        None => here.into_iter().filter(|path| path.is_file()).collect(),
    }
}

/// The numbers in a path, so that `llvm-9` comes before `llvm-14`.
fn version_order(path: &Path) -> Vec<u64> {
    let text = path.to_string_lossy();
    text.split(|letter: char| !letter.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .collect()
}

fn in_directories(soname: &str) -> Option<PathBuf> {
    LIBRARY_DIRECTORIES.iter().find_map(|directory| {
        let exact = Path::new(directory).join(soname);
        if exact.is_file() {
            return fs::canonicalize(exact).ok();
        }
        // Some packages install only the full version, e.g. libmimalloc.so.2.0.
        let longer = format!("{soname}.");
        let mut matches: Vec<PathBuf> = fs::read_dir(directory)
            .ok()?
            .flatten()
            .filter(|entry| {
                entry
                    .file_name()
                    .to_str()
                    .is_some_and(|n| n.starts_with(&longer))
            })
            .map(|entry| entry.path())
            .collect();
        matches.sort();
        matches.pop().and_then(|path| fs::canonicalize(path).ok())
    })
}

/// Looks for the library among the strings of the dynamic linker's cache, which knows every
/// directory of `/etc/ld.so.conf`.
fn in_linker_cache(soname: &str) -> Option<PathBuf> {
    let cache = fs::read(LINKER_CACHE).ok()?;
    cache
        .split(|&byte| byte == 0)
        .filter(|text| text.starts_with(b"/"))
        .filter_map(|text| str::from_utf8(text).ok())
        .map(Path::new)
        .find(|path| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| {
                    name.strip_prefix(soname)
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                })
        })
        .and_then(|path| fs::canonicalize(path).ok())
}

// The allocators that `cargo xtask allocators` built from their crates: `libmillpond-NAME.so`, each
// with its origin in a small file beside it.
//
// Looked for in the directory that `MILLPOND_ALLOCATORS` names, in `allocators` beside this
// program, and in `allocators` of the target directory that this program was built into. What is
// found here is loaded into every target.

/// What is looked for, in the order of reports.
pub(super) const NAMES: &[&str] = &[
    "jemalloc531",
    "mimalloc2",
    "mimalloc3",
    "snmalloc",
    "rpmalloc",
    "hardened",
    "tcmalloc_percpu",
];

/// The variable that names a directory with more.
pub const DIRECTORY_VARIABLE: &str = "MILLPOND_ALLOCATORS";
/// Where they are, inside another directory.
const DIRECTORY: &str = "allocators";
/// What cargo leaves in every target directory.
const TARGET_MARK: &str = ".rustc_info.json";
/// How deep in its target directory a program may be: `TRIPLE/debug/deps/PROGRAM` at most.
const DEPTH_MAX: usize = 4;

/// The object of that name, if it is in one of the directories.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    if !NAMES.contains(&name) {
        return None;
    }
    directories()
        .iter()
        .find_map(|directory| find_in(directory, name))
}

fn find_in(directory: &Path, name: &str) -> Option<PathBuf> {
    let object = fs::canonicalize(directory.join(format!("libmillpond-{name}.so"))).ok()?;
    can_be_malloc(&object).then_some(object)
}

fn directories() -> Vec<PathBuf> {
    let mut list: Vec<PathBuf> = Vec::new();
    let named = env::var_os(DIRECTORY_VARIABLE).filter(|value| !value.is_empty());
    list.extend(named.map(PathBuf::from));
    if let Ok(program) = env::current_exe().and_then(fs::canonicalize) {
        list.extend(around(&program));
    }
    list
}

/// The directories that belong to a program.
fn around(program: &Path) -> Vec<PathBuf> {
    let mut above = program.ancestors().skip(1);
    let beside = above.next();
    let target = beside
        .into_iter()
        .chain(above)
        .take(DEPTH_MAX)
        .find(|directory| directory.join(TARGET_MARK).is_file());
    let mut list: Vec<PathBuf> = beside
        .into_iter()
        .chain(target)
        .map(Path::to_owned)
        .collect();
    for directory in &mut list {
        directory.push(DIRECTORY);
    }
    list.dedup();
    list
}

/// What is told of an object in the file beside it.
#[derive(Debug, Deserialize)]
struct Origin {
    version: String,
}

/// The version of a built object.
pub(super) fn version(object: &Path) -> Option<String> {
    let text = fs::read_to_string(object.with_extension("json")).ok()?;
    let origin: Origin = serde_json::from_str(&text).ok()?;
    Some(origin.version)
}

// Which allocator an object is of: by its file name, or by a symbol that only this allocator has.
//
// `user` gives an object of the user's the rules of its family, so that its settings are checked
// as those of a known one; `presence` names the allocator that a program brings along.

/// A part of a library's file name, and its family.
const FILES: &[(&str, &str)] = &[
    ("jemalloc", "jemalloc"),
    ("tcmalloc", "tcmalloc"),
    ("mimalloc", "mimalloc"),
    ("snmalloc", "snmalloc"),
    ("rpmalloc", "rpmalloc"),
    ("tbbmalloc", "tbb"),
    ("scudo", "scudo"),
    ("hardened", "hardened"),
    ("hoard", "hoard"),
];

/// Symbols that only one allocator defines.
const SYMBOLS: &[(&str, &str)] = &[
    ("mallctl", "jemalloc"),
    ("je_mallctl", "jemalloc"),
    ("_rjem_mallctl", "jemalloc"),
    ("mi_version", "mimalloc"),
    ("mi_malloc", "mimalloc"),
    ("tc_version", "tcmalloc"),
    ("tc_malloc", "tcmalloc"),
    ("_ZN15MallocExtension8instanceEv", "tcmalloc"),
    ("MallocExtension_Internal_GetNumericProperty", "tcmalloc"),
    ("sn_rust_alloc", "snmalloc"),
    ("sn_malloc", "snmalloc"),
    ("rpmalloc", "rpmalloc"),
    ("__TBB_malloc_proxy", "tbb"),
    ("__scudo_print_stats", "scudo"),
];

/// The part of a library's file name that says whose it is: used for what a target brings along.
#[must_use]
pub fn name_of_library(path: &Path) -> Option<&'static str> {
    by_file(path).map(|(part, _)| part)
}

fn by_file(path: &Path) -> Option<(&'static str, &'static str)> {
    let file = path.file_name()?.to_str()?;
    let is_it = |(part, _): &&(&str, &str)| file.starts_with("lib") && file.contains(part);
    FILES.iter().find(is_it).copied()
}

/// The family of an object that defines such symbols.
pub(crate) fn family_by_symbol(defines: impl Fn(&str) -> bool) -> Option<&'static str> {
    let mut symbols = SYMBOLS.iter();
    symbols
        .find(|(symbol, _)| defines(symbol))
        .map(|&(_, family)| family)
}

/// Whose rules hold for the settings of the object at `path`, which the user calls `name`. A name that is
/// known here says which member of a family it is (`mimalloc3`), and counts alone where nothing else tells.
pub(super) fn of_object(name: &str, path: &Path, elf: &Elf) -> Option<&'static Known> {
    let own = path.file_name().and_then(|file| file.to_str());
    let is_own = own.is_some_and(|file| file.contains(MEMPOOL));
    let family = by_file(path)
        .map(|(_, family)| family)
        .or_else(|| family_by_symbol(|symbol| elf.exports(symbol)))
        .or(is_own.then_some(MEMPOOL));
    let named = selection::find(base_name(name));
    match family {
        None => named,
        Some(family) => {
            let found = selection::find(family);
            let is_member = |one: &&Known| found.is_some_and(|it| it.dialect == one.dialect);
            named.filter(is_member).or(found)
        }
    }
}

// Why an allocator cannot be used. Each is one sentence that says what to do.

/// Why an allocator cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AllocatorError {
    /// An object of ours cannot be written.
    #[error("{} cannot be written: {error}; an object that is there is not replaced", path.display())]
    Extract {
        /// Where it was to be.
        path: PathBuf,
        /// Why not.
        error: String,
    },
    /// Not a known name and not NAME=/PATH.
    #[error(
        "unknown allocator \"{name}\": this system has {found}; \
         another one is given as NAME=/PATH/TO/LIBRARY.so"
    )]
    Unknown {
        /// As given.
        name: String,
        /// What would work.
        found: String,
    },
    /// A known allocator that is not here.
    #[error("{name} is not here (this system has {found}): {remedy}")]
    Missing {
        /// As given.
        name: String,
        /// What would work.
        found: String,
        /// How to get it.
        remedy: String,
    },
    /// The user's library cannot be preloaded.
    #[error("allocator {name}: {} {reason}", path.display())]
    Unusable {
        /// As given.
        name: String,
        /// The file.
        path: PathBuf,
        /// The end of the sentence.
        reason: String,
    },
    /// A setting that the allocator does not take.
    #[error("allocator {word}: {name} {reason}")]
    Setting {
        /// As given.
        word: String,
        /// The allocator's name.
        name: String,
        /// The end of the sentence.
        reason: String,
    },
    /// A setting without its allocator.
    #[error("allocator {word}: this is a setting; write it behind its allocator, {right}")]
    Spelling {
        /// As given.
        word: String,
        /// How it is written.
        right: String,
    },
    /// No list of settings is known for it.
    #[error(
        "--settings {name}: there is no such list; lists are for {names}, each named alone; settings of your own are \
         compared with --allocators, as in --allocators jemalloc,jemalloc:narenas=2"
    )]
    NoSettingsList {
        /// As given.
        name: String,
        /// Those that have a list.
        names: String,
    },
    /// Another version than the one that was named.
    #[error("allocator {name}: this is version {found}, not the one in its name: {remedy}")]
    OtherVersion {
        /// As given.
        name: String,
        /// The version that is there.
        found: String,
        /// The end of the sentence.
        remedy: String,
    },
    /// A thread that trims, where or how it cannot be.
    #[error("allocator {word}: {reason}; trimming is written glibc+trim=30s")]
    Trim {
        /// As given.
        word: String,
        /// Why not.
        reason: String,
    },
    /// Not KEY=VALUE.
    #[error(
        "allocator {word}: \"{part}\" is no setting; settings are written \
         jemalloc:narenas=2,dirty_decay_ms=0"
    )]
    NoSetting {
        /// As given.
        word: String,
        /// The wrong part.
        part: String,
    },
    /// Settings where only names are taken.
    #[error("allocator {word}: settings are for `millpond compare`; here it is {name} alone")]
    NoSettingsHere {
        /// As given.
        word: String,
        /// What to write.
        name: String,
    },
    /// The same name twice would make results ambiguous.
    #[error("allocator \"{name}\" is given twice")]
    Twice {
        /// The name.
        name: String,
    },
}

#[cfg(test)]
#[path = "tests/catalogue.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/version.rs"]
mod version_tests;

#[cfg(test)]
#[path = "tests/system.rs"]
mod system_tests;

#[cfg(test)]
#[path = "tests/built.rs"]
mod built_tests;

#[cfg(test)]
#[path = "tests/family.rs"]
mod family_tests;
