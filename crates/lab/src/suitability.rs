//! Programs that no preloaded allocator can serve, recognised by their file before anything is started.
//!
//! `compare` refuses such a command at once, and `presence` checks again the program that really
//! serves, since a command may be a script.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use millpond_measure::environment::InheritedVariables;

use crate::elf::Elf;

/// Why a program cannot be given another malloc; a sentence to be continued after the program's name.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Unsuitable {
    /// Nothing reads `LD_PRELOAD`.
    #[error("is statically linked and never looks at LD_PRELOAD; link it dynamically")]
    Static,
    /// Its heap is not malloc's.
    #[error(
        "is a Go program: its heap is the Go runtime's own, and malloc serves at most what it calls \
         in C"
    )]
    Go,
    /// The dynamic linker ignores `LD_PRELOAD` there.
    #[error(
        "is setuid or setgid, where the dynamic linker ignores LD_PRELOAD; compare a copy without \
         these bits"
    )]
    SetId,
    /// The same.
    #[error(
        "has file capabilities, where the dynamic linker ignores LD_PRELOAD; compare a copy of it, \
         which has none"
    )]
    Capabilities,
    /// A sanitizer is an allocator.
    #[error(
        "is built with {0}, which is an allocator itself and checks every access; build it without"
    )]
    Sanitizer(&'static str),
}

/// A symbol that every program of a sanitizer defines or wants.
const SANITIZERS: &[(&str, &str)] = &[
    ("__asan_init", "AddressSanitizer"),
    ("__hwasan_init", "HWAddressSanitizer"),
    ("__msan_init", "MemorySanitizer"),
    ("__tsan_init", "ThreadSanitizer"),
    ("__lsan_init", "LeakSanitizer"),
];
/// Sections that the Go linker writes, stripped or not.
const GO_SECTIONS: &[&str] = &[".go.buildinfo", ".note.go.buildid"];
const SET_ID_BITS: u32 = 0o6000;

/// Why the program at `path` is unsuitable; `None` if it is not, or if it is no program of this
/// machine (a script: what it starts is checked when it serves).
///
/// # Errors
/// If the file cannot be read.
pub fn of_program(path: &Path) -> io::Result<Option<Unsuitable>> {
    let Some(elf) = Elf::read(path)? else {
        return Ok(None);
    };
    of_elf(&elf, path)
}

/// The same for the file at `path` that was read already.
pub(crate) fn of_elf(elf: &Elf, path: &Path) -> io::Result<Option<Unsuitable>> {
    Ok(of_contents(elf).or(of_permissions(path)?))
}

fn of_contents(elf: &Elf) -> Option<Unsuitable> {
    // Before the question of linking: both kinds of Go program are Go.
    if GO_SECTIONS.iter().any(|name| elf.has_section(name)) {
        return Some(Unsuitable::Go);
    }
    if elf.is_static_program() {
        return Some(Unsuitable::Static);
    }
    let found = SANITIZERS.iter().find(|(symbol, _)| elf.mentions(symbol));
    found.map(|&(_, name)| Unsuitable::Sanitizer(name))
}

fn of_permissions(path: &Path) -> io::Result<Option<Unsuitable>> {
    if fs::metadata(path)?.permissions().mode() & SET_ID_BITS != 0 {
        return Ok(Some(Unsuitable::SetId));
    }
    let mut value = [0_u8; 64];
    // A file system without attributes has no capabilities either.
    let has_capabilities =
        rustix::fs::getxattr(path, "security.capability", &mut value[..]).is_ok();
    Ok(has_capabilities.then_some(Unsuitable::Capabilities))
}

// Variables of the shell that change what an allocator does, and what becomes of them in a target.
//
// A target inherits the environment that the lab was started in. With `MALLOC_ARENA_MAX=1` in it every
// candidate would be measured with that setting, under the name of one without. So settings of allocators
// are dropped, and said; `--keep-env` makes them part of every candidate, and of the record. Variables that
// the user gives to the target (`--env`, a command that begins with `env`) are the user's word and stay.
//
// `options` holds one, `started_candidate` builds each target's environment by it, `allocator` asks
// libraries about their settings without them.

/// Objects preloaded into every program that the shell starts.
const PRELOAD: &str = "LD_PRELOAD";

/// How the variables of an allocator are named.
#[derive(Clone, Copy, Debug)]
enum Name {
    Is(&'static str),
    Begins(&'static str),
    Ends(&'static str),
}

/// Settings of allocators, with the allocators that read them.
const ALLOCATOR: &[(Name, &str)] = &[
    (Name::Is(PRELOAD), "the dynamic linker"),
    (Name::Is("GLIBC_TUNABLES"), "glibc"),
    // MALLOC_ARENA_MAX, MALLOC_TRIM_THRESHOLD_ and the like; MALLOC_CONF of jemalloc; MALLOC_OPTIONS of BSD's.
    (Name::Begins("MALLOC_"), "glibc, jemalloc"),
    // Where calls have a prefix, so has the variable: JE_MALLOC_CONF, _RJEM_MALLOC_CONF.
    (Name::Ends("MALLOC_CONF"), "jemalloc"),
    (Name::Begins("MIMALLOC_"), "mimalloc"),
    (Name::Begins("TCMALLOC_"), "tcmalloc"),
    (Name::Is("MALLOCSTATS"), "gperftools"),
    (Name::Is("HEAPPROFILE"), "gperftools"),
    (Name::Begins("HEAP_PROFILE_"), "gperftools"),
    (Name::Is("HEAPCHECK"), "gperftools"),
    (Name::Begins("HEAP_CHECK_"), "gperftools"),
    (Name::Begins("PERFTOOLS_"), "gperftools"),
    (Name::Is("BORG_EXPERIMENTS"), "Google's tcmalloc"),
    (Name::Is("BORG_DISABLE_EXPERIMENTS"), "Google's tcmalloc"),
    (Name::Begins("SCUDO_"), "scudo"),
    (Name::Begins("RPMALLOC_"), "rpmalloc"),
    (Name::Begins("TBB_MALLOC_"), "tbb"),
    (Name::Begins("MEMPOOL_"), "mempool"),
    // Puts glibc's heap on huge pages.
    (Name::Begins("HUGETLB_"), "libhugetlbfs"),
];

/// Switches between a runtime's own heap and malloc: they decide what reaches an allocator at all. They are
/// kept, since they are settings of the server, and said.
const RUNTIME: &[&str] = &[
    "PYTHONMALLOC",
    "USE_ZEND_ALLOC",
    "USE_ZEND_ALLOC_HUGE_PAGES",
    "G_SLICE",
    "GLIBCXX_FORCE_NEW",
];

fn is_allocators(name: &OsStr) -> bool {
    reader_of(name).is_some()
}

/// Which allocator reads the variable `name`, if it is a setting of an allocator.
pub(crate) fn reader_of(name: &OsStr) -> Option<&'static str> {
    let name = name.as_bytes();
    let is_it = |pattern: &Name| match pattern {
        Name::Is(whole) => name == whole.as_bytes(),
        Name::Begins(start) => name.starts_with(start.as_bytes()),
        Name::Ends(end) => name.ends_with(end.as_bytes()),
    };
    let mut all = ALLOCATOR.iter();
    all.find(|(pattern, _)| is_it(pattern))
        .map(|&(_, reader)| reader)
}

/// A variable and its value.
type Variable = (OsString, OsString);

/// The findings in the environment of the shell.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Inherited {
    allocator: Vec<Variable>,
    runtime: Vec<Variable>,
    is_kept: bool,
}

impl Inherited {
    /// Of the environment that this process was started in; `is_kept`: targets get settings of allocators.
    #[must_use]
    pub fn of_this_process(is_kept: bool) -> Self {
        Self::of(std::env::vars_os(), is_kept)
    }

    /// Of these variables.
    #[must_use]
    pub fn of(variables: impl IntoIterator<Item = (OsString, OsString)>, is_kept: bool) -> Self {
        let mut found = Self {
            is_kept,
            ..Self::default()
        };
        // An empty one sets nothing.
        for (name, value) in variables.into_iter().filter(|(_, value)| !value.is_empty()) {
            if is_allocators(&name) {
                found.allocator.push((name, value));
            } else if RUNTIME.iter().any(|switch| name == *switch) {
                found.runtime.push((name, value));
            }
        }
        found.allocator.sort();
        found.runtime.sort();
        found
    }

    /// Names of the variables that no target gets.
    pub(crate) fn dropped(&self) -> Vec<OsString> {
        let names = self.allocator.iter().map(|(name, _)| name.clone());
        match self.is_kept {
            true => Vec::new(),
            false => names.collect(),
        }
    }

    /// The variables of every target beside its own settings, which come after these.
    pub(crate) fn kept(&self) -> Vec<Variable> {
        let allocator = self.allocator.iter().filter(|_| self.is_kept);
        let all = allocator.chain(&self.runtime);
        all.filter(|(name, _)| name != PRELOAD).cloned().collect()
    }

    /// The shared objects that every target gets behind its own.
    pub(crate) fn preload(&self) -> Vec<PathBuf> {
        let mut kept = self.allocator.iter().filter(|_| self.is_kept);
        let value = kept
            .find(|(name, _)| name == PRELOAD)
            .map(|(_, value)| value);
        let separators = |byte: &u8| [b':', b' '].contains(byte);
        let objects = value
            .into_iter()
            .flat_map(|value| value.as_bytes().split(separators));
        objects
            .filter(|object| !object.is_empty())
            .map(|object| PathBuf::from(OsStr::from_bytes(object)))
            .collect()
    }

    /// One sentence for each kind of variable that was found.
    pub(crate) fn lines(&self) -> Vec<String> {
        let shown = self.record();
        let mut lines = Vec::new();
        let verb = |variables: &[String]| if variables.len() == 1 { "is" } else { "are" };
        if !shown.allocator.is_empty() {
            let list = shown.allocator.join(" ");
            let verb = verb(&shown.allocator);
            lines.push(match self.is_kept {
                true => format!(
                    "{list} of the shell {verb} part of every candidate (--keep-env), unless the candidate's own \
                     settings replace the variable"
                ),
                false => format!(
                    "{list} of the shell {verb} dropped: settings of allocators reach a candidate by its name \
                     (--allocators jemalloc:narenas=2) or by --env; --keep-env makes what the shell has part of \
                     every candidate"
                ),
            });
        }
        if !shown.runtime.is_empty() {
            let list = shown.runtime.join(" ");
            let verb = verb(&shown.runtime);
            lines.push(format!(
                "{list} of the shell {verb} part of every candidate: it decides whether a runtime's heap is malloc's"
            ));
        }
        lines
    }

    /// For the record.
    pub(crate) fn record(&self) -> InheritedVariables {
        let texts = |variables: &[Variable]| {
            let text = |(name, value): &Variable| format!("{}={}", name.display(), value.display());
            variables.iter().map(text).collect()
        };
        InheritedVariables {
            allocator: texts(&self.allocator),
            kept: self.is_kept,
            runtime: texts(&self.runtime),
        }
    }
}

/// Removes every variable of an allocator from `command`, so that the result of a library is its own.
pub(crate) fn remove_from(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if is_allocators(&name) {
            command.env_remove(name);
        }
    }
}

#[cfg(test)]
#[path = "tests/suitability.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/inherited.rs"]
mod inherited_tests;
