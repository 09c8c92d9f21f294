//! Which allocators can be compared here: those of the distribution, ours, those that were built
//! from their crates, and any object the user names.
//!
//! On the path: the first thing a comparison does. Everything that can be known to fail is refused
//! here with a sentence, because the dynamic linker only mumbles into the target's stderr and goes
//! on without the library.
//! Absent on purpose: building or downloading allocators (`cargo xtask allocators` does).

mod error;
mod known;
mod system;
mod built;
mod user;
mod tuning;
mod version;
mod catalogue;

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::embedded::{self, PrivateDirectory};
use known::{KNOWN, USUAL};

pub use built::DIRECTORY_VARIABLE;
pub use catalogue::{CatalogueEntry, NOT_TO_BE_HAD, catalogue};
pub use error::AllocatorError;

/// An allocator a target can be given.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Allocator {
    /// `glibc`, `jemalloc`, or the user's name for it.
    pub name: String,
    /// What is preloaded; `None` for what the target has by itself. A file of ours is there as long
    /// as this value or a clone of it.
    pub library: Option<PathBuf>,
    /// Its settings, as variables of the target's environment; empty for what it does by itself.
    pub environment: Vec<(String, String)>,
    /// Where `library` was written, if it is part of this program.
    written: Option<Arc<PrivateDirectory>>,
}

impl Allocator {
    /// What a target has by itself, under the name `name`.
    #[must_use]
    pub fn native(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            library: None,
            environment: Vec::new(),
            written: None,
        }
    }

    /// The allocator in `library`, which must be a path as memory maps show it: absolute, without
    /// links.
    #[must_use]
    pub fn preloaded(name: &str, library: PathBuf) -> Self {
        Self {
            name: name.to_owned(),
            library: Some(library),
            environment: Vec::new(),
            written: None,
        }
    }

    /// True for what a target has by itself, with no settings of ours.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.library.is_none() && self.environment.is_empty()
    }

    /// The version, as exactly as it can be told without running it.
    #[must_use]
    pub fn version(&self) -> Option<String> {
        match &self.library {
            None => version::of_c_library(),
            // Ours, and part of this program.
            Some(_) if self.written.is_some() => Some(env!("CARGO_PKG_VERSION").to_owned()),
            Some(library) => version::of_library(library),
        }
    }

    /// The library as a report names it: the file of one that is part of this program is gone by
    /// then.
    #[must_use]
    pub fn library_title(&self) -> Option<String> {
        let library = self.library.as_deref()?;
        let file = library.file_name().filter(|_| self.written.is_some());
        Some(match file {
            Some(file) => format!("{} in millpond itself", file.display()),
            None => library.display().to_string(),
        })
    }

    /// True for one that is not among the usual ones: there may be many of them, so a comparison
    /// that names no allocators takes them only if its time allows.
    #[must_use]
    pub fn is_extra(&self) -> bool {
        !USUAL.contains(&self.name.as_str())
    }
}

/// The name for "preload nothing" on a system with the GNU C library.
pub const GLIBC: &str = "glibc";
/// The name for "preload nothing", whatever the target brings along.
pub const NATIVE: &str = "native";
/// The name for every allocator that is found.
pub const ALL: &str = "all";
/// Our own pools as malloc.
pub const MEMPOOL: &str = "mempool";

/// Every allocator found on this system, what the target has by itself first.
#[must_use]
pub fn discover() -> Vec<Allocator> {
    let mut found = vec![Allocator::native(GLIBC)];
    for known in KNOWN {
        if known.name == MEMPOOL {
            // If it cannot be written, `missing` says why.
            found.extend(mempool());
            continue;
        }
        let library = system::find_library(known.sonames)
            .or_else(|| system::find_pattern(known.patterns))
            .or_else(|| built::find(known.name));
        found.extend(library.map(|library| Allocator::preloaded(known.name, library)));
    }
    found
}

/// The allocators of a list of names, in its order. Settings are refused: see
/// [`select_with_settings`].
pub fn select(wanted: &[String]) -> Result<Vec<Allocator>, AllocatorError> {
    let selected = select_with_settings(wanted)?;
    match selected.iter().find(|one| !one.environment.is_empty()) {
        None => Ok(selected),
        Some(tuned) => Err(AllocatorError::NoSettingsHere {
            word: tuned.name.clone(),
            name: base_name(&tuned.name).to_owned(),
        }),
    }
}

/// The allocators of a `--allocators` list, in its order, with their settings: the words are what
/// stood between commas, and so are the settings behind the first one of an allocator.
pub fn select_with_settings(wanted: &[String]) -> Result<Vec<Allocator>, AllocatorError> {
    let found = discover();
    let mut selected: Vec<Allocator> = Vec::with_capacity(wanted.len());
    for word in regroup(wanted) {
        let meant = if word == ALL {
            found.clone()
        } else {
            vec![resolve(&word, &found)?]
        };
        for allocator in meant {
            if selected
                .iter()
                .any(|earlier| earlier.name == allocator.name)
            {
                return Err(AllocatorError::Twice {
                    name: allocator.name,
                });
            }
            selected.push(allocator);
        }
    }
    Ok(selected)
}

/// Puts settings that a list was split at back to their allocator: `KEY=VALUE` behind a word with
/// settings belongs to it, unless the value is a path, which makes it a library of the user's.
fn regroup(words: &[String]) -> Vec<String> {
    let mut grouped: Vec<String> = Vec::with_capacity(words.len());
    for word in words.iter().map(|word| word.trim()) {
        let is_setting = word
            .split_once('=')
            .is_some_and(|(key, value)| !key.contains(':') && !value.contains('/'));
        match grouped.last_mut() {
            Some(last) if is_setting && last.contains(':') => {
                last.push(',');
                last.push_str(word);
            }
            _ => grouped.push(word.to_owned()),
        }
    }
    grouped
}

/// The allocator's name without its settings.
fn base_name(name: &str) -> &str {
    name.split(':').next().unwrap_or(name)
}

/// Known allocators that are not here and how to get them, for the report: `name (remedy)`.
#[must_use]
pub fn missing() -> Vec<String> {
    let found = discover();
    let is_missing = |name: &&str| found.iter().all(|allocator| allocator.name != *name);
    let not_built = |known: &&known::Known| !built::NAMES.contains(&known.name);
    let mut lines: Vec<String> = KNOWN
        .iter()
        .filter(not_built)
        .map(|known| known.name)
        .filter(is_missing)
        .filter_map(|name| Some(format!("{name} ({})", remedy(name)?)))
        .collect();
    let unbuilt: Vec<&str> = built::NAMES.iter().copied().filter(is_missing).collect();
    if !unbuilt.is_empty() {
        lines.push(format!("{} ({BUILD})", unbuilt.join(", ")));
    }
    lines
}

/// How to get what is built from crates.
const BUILD: &str = "cargo xtask allocators";

/// How to get a known allocator that is not here; `None` for a name that is not known.
fn remedy(name: &str) -> Option<String> {
    if let Some(remedy) = known::find(name)?.remedy() {
        return Some(remedy);
    }
    let error = mempool().err().filter(|_| name == MEMPOOL)?;
    Some(format!("its object cannot be written: {error}"))
}

/// Our own pools as malloc, out of this program: one file for all who have it at the same time.
fn mempool() -> io::Result<Allocator> {
    static WRITTEN: Mutex<Weak<PrivateDirectory>> = Mutex::new(Weak::new());
    let mut written = WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = match written.upgrade() {
        Some(directory) => directory,
        None => {
            let directory = Arc::new(PrivateDirectory::create()?);
            embedded::MEMPOOL.write_into(&directory.path)?;
            *written = Arc::downgrade(&directory);
            directory
        }
    };
    Ok(Allocator {
        name: MEMPOOL.to_owned(),
        library: Some(embedded::MEMPOOL.path_in(&directory.path)),
        environment: Vec::new(),
        written: Some(directory),
    })
}

/// The allocator a library file belongs to, by its name: used for what a target brings along.
#[must_use]
pub fn name_of_library(path: &Path) -> Option<&'static str> {
    let file = path.file_name()?.to_str()?;
    [
        "jemalloc",
        "tcmalloc",
        "mimalloc",
        "snmalloc",
        "rpmalloc",
        "tbbmalloc",
        "scudo",
        "hardened",
        "hoard",
    ]
    .into_iter()
    .find(|name| file.starts_with("lib") && file.contains(name))
}

fn resolve(word: &str, found: &[Allocator]) -> Result<Allocator, AllocatorError> {
    // Whichever comes first: `mine=/a.so:X=1` is a library, `jemalloc:narenas=2` has settings.
    match word.find(['=', ':']).map(|at| word.split_at(at)) {
        Some((name, rest)) if rest.starts_with('=') => user::resolve(word, name, &rest[1..]),
        Some((name, rest)) => tuned(word, name, &rest[1..], found),
        None => named(word, found),
    }
}

fn named(word: &str, found: &[Allocator]) -> Result<Allocator, AllocatorError> {
    if word == NATIVE || word == "malloc" {
        return Ok(Allocator::native(GLIBC));
    }
    if let Some(allocator) = found.iter().find(|allocator| allocator.name == word) {
        return Ok(allocator.clone());
    }
    let (name, found) = (word.to_owned(), names(found));
    if let Some(remedy) = remedy(word) {
        return Err(AllocatorError::Missing {
            name,
            found,
            remedy,
        });
    }
    if ["lockless", "llalloc"].contains(&word) {
        return Err(AllocatorError::Missing {
            name,
            found,
            remedy: NOT_TO_BE_HAD.to_owned(),
        });
    }
    Err(AllocatorError::Unknown { name, found })
}

/// A known allocator with settings, once it has said that it takes them.
fn tuned(
    word: &str,
    name: &str,
    settings: &str,
    found: &[Allocator],
) -> Result<Allocator, AllocatorError> {
    let mut allocator = named(name, found)?;
    let parsed = tuning::parse(settings).map_err(|part| AllocatorError::NoSetting {
        word: word.to_owned(),
        part,
    })?;
    let Some(known) = known::find(&allocator.name) else {
        return Err(AllocatorError::Unknown {
            name: name.to_owned(),
            found: names(found),
        });
    };
    tuning::ask(known, allocator.library.as_deref(), &parsed).map_err(|reason| {
        AllocatorError::Setting {
            word: word.to_owned(),
            name: allocator.name.clone(),
            reason,
        }
    })?;
    allocator.environment = tuning::environment(known.dialect, &parsed);
    allocator.name = format!("{}:{settings}", allocator.name);
    Ok(allocator)
}

fn names(found: &[Allocator]) -> String {
    let mut list = String::new();
    for (index, allocator) in found.iter().enumerate() {
        let _ = write!(
            list,
            "{}{}",
            if index == 0 { "" } else { ", " },
            allocator.name
        );
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn select_one(word: &str) -> Result<Allocator, AllocatorError> {
        select(&[word.to_owned()]).map(|mut list| list.remove(0))
    }

    /// Goal: a typing error is answered with what exists and how to give another one.
    #[test]
    fn unknown_name_lists_what_there_is() {
        let sentence = select_one("jemaloc").unwrap_err().to_string();
        assert!(
            sentence.contains("\"jemaloc\"") && sentence.contains("glibc"),
            "{sentence}"
        );
        assert!(sentence.contains("NAME=/PATH"), "{sentence}");
    }

    /// Goal: a library that cannot work is refused before anything runs, with the reason.
    #[test]
    fn unusable_libraries_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let text = directory.path().join("notes.so");
        fs::write(&text, "hello").unwrap();
        let reason = |path: &str| select_one(&format!("mine={path}")).unwrap_err().to_string();
        assert!(reason("/nowhere/lib.so").contains("/nowhere/lib.so cannot be opened"));
        assert!(reason(text.to_str().unwrap()).contains("not a 64-bit ELF"));
        assert!(reason("/a b.so").contains("blank"));
        let own = std::env::current_exe().unwrap();
        assert!(reason(own.to_str().unwrap()).contains("does not export malloc"));
    }

    /// Goal: nothing preloaded is always possible, under each of its names, but only once.
    #[test]
    fn glibc_is_always_there() {
        assert_eq!(discover()[0].name, GLIBC);
        assert_eq!(select_one("glibc").unwrap().library, None);
        assert_eq!(select_one("native").unwrap().library, None);
        let twice = select(&["glibc".to_owned(), "malloc".to_owned()]).unwrap_err();
        assert_eq!(
            twice,
            AllocatorError::Twice {
                name: GLIBC.to_owned()
            }
        );
    }

    /// Goal: every known allocator is found or can be had: its absence comes with what to do.
    #[test]
    fn what_is_not_here_says_how_to_get_it() {
        let found = discover();
        let lines = missing().join("\n");
        for name in KNOWN.iter().map(|known| known.name) {
            let here = found.iter().any(|allocator| allocator.name == name);
            let named = lines.split([' ', ',', '\n']).any(|word| word == name);
            assert_ne!(here, named, "{name}: {lines}");
            match select_one(name) {
                Ok(allocator) => assert!(here && allocator.name == name),
                Err(error) => {
                    let sentence = error.to_string();
                    let remedy = ["apt-get install", "cargo xtask allocators --only"];
                    assert!(
                        remedy.iter().any(|words| sentence.contains(words)),
                        "{sentence}"
                    );
                }
            }
        }
    }

    /// Goal: our own pools are always there, as one file while anybody holds it and as none after. A
    /// file that others have mapped is never written again.
    #[test]
    fn mempool_is_always_there() {
        let first = select_one(MEMPOOL).unwrap();
        assert!(
            first
                .library_title()
                .unwrap()
                .starts_with("libmillpond-mempool.so in")
        );
        let object = first.library.clone().unwrap();
        assert_eq!(first.version().as_deref(), Some(env!("CARGO_PKG_VERSION")));
        let written = fs::metadata(&object).unwrap().modified().unwrap();
        let second = select_one(MEMPOOL).unwrap();
        assert_eq!(second, first);
        assert_eq!(fs::metadata(&object).unwrap().modified().unwrap(), written);
        drop(first);
        assert!(object.is_file());
        let directory = second.written.clone();
        drop(second);
        let directory = directory.unwrap().path.clone();
        // Another test may hold it just now; it lets go within moments.
        for _ in 0..10_000 {
            if !directory.exists() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("{} stays behind", directory.display());
    }

    /// Goal: `all` is what discovery finds, and not a name for something else.
    #[test]
    fn all_means_everything_that_is_found() {
        assert_eq!(select(&["all".to_owned()]).unwrap(), discover());
        assert!(select(&["all".to_owned(), "glibc".to_owned()]).is_err());
        assert!(
            select_one("all=/lib/x.so")
                .unwrap_err()
                .to_string()
                .contains("name of its own")
        );
    }

    /// Goal: what discovery returns passes the same checks as a user's own library.
    #[test]
    fn discovered_libraries_are_usable() {
        for allocator in discover() {
            let Some(library) = allocator.library else {
                continue;
            };
            let word = format!("again={}", library.display());
            assert_eq!(select_one(&word).unwrap().library, Some(library));
        }
    }

    /// Goal: settings stay with their allocator wherever the list was split, and libraries do not
    /// become settings.
    #[test]
    fn settings_stay_with_their_allocator() {
        let words = "glibc,jemalloc:narenas=2,dirty_decay_ms=0,tcmalloc,mine=/a.so,x=/b.so:A=1,B=2";
        let words: Vec<String> = words.split(',').map(str::to_owned).collect();
        assert_eq!(
            regroup(&words),
            [
                "glibc",
                "jemalloc:narenas=2,dirty_decay_ms=0",
                "tcmalloc",
                "mine=/a.so",
                "x=/b.so:A=1,B=2"
            ]
        );
    }

    /// Goal: a tuned allocator is another candidate, with its settings in name and environment; what
    /// is not understood is refused, and so are settings where nothing would give them.
    #[test]
    fn a_tuned_allocator_is_a_candidate_of_its_own() {
        let words = ["glibc", "glibc:arena_max=1", "trim_threshold=4096"].map(str::to_owned);
        let selected = select_with_settings(&words).unwrap();
        assert_eq!(selected.len(), 2);
        assert!(selected[0].is_plain() && !selected[1].is_plain());
        assert_eq!(selected[1].name, "glibc:arena_max=1,trim_threshold=4096");
        let tunables = "glibc.malloc.arena_max=1:glibc.malloc.trim_threshold=4096";
        assert_eq!(
            selected[1].environment,
            [("GLIBC_TUNABLES".to_owned(), tunables.to_owned())]
        );
        let refused = |word: &str| {
            select_with_settings(&[word.to_owned()])
                .unwrap_err()
                .to_string()
        };
        assert!(refused("glibc:arena_min=1").contains("has no tunable"));
        assert!(refused("glibc:arena_max").contains("is no setting"));
        assert!(refused("frobnicator:x=1").contains("unknown allocator"));
        let sentence = select(&words).unwrap_err().to_string();
        assert!(sentence.contains("here it is glibc alone"), "{sentence}");
    }

    /// Goal: a library of the user's takes variables as they stand.
    #[test]
    fn a_users_library_takes_variables() {
        let mempool = select_one(MEMPOOL).unwrap();
        let library = mempool.library.as_ref().unwrap().display().to_string();
        let word = format!("mine={library}:MEMPOOL_STATS=1");
        let mine = select_with_settings(&[word, "OTHER=2".to_owned()]).unwrap();
        assert_eq!(mine[0].name, "mine:MEMPOOL_STATS=1,OTHER=2");
        assert_eq!(mine[0].library, mempool.library);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            mine[0].environment,
            [pair("MEMPOOL_STATS", "1"), pair("OTHER", "2")]
        );
    }

    /// Goal: who asks for the allocator that nobody packages is told so.
    #[test]
    fn lockless_is_in_no_registry() {
        let sentence = select_one("lockless").unwrap_err().to_string();
        assert!(sentence.contains("in no package registry"), "{sentence}");
    }

    #[test]
    fn library_names() {
        let name = |path: &str| name_of_library(Path::new(path));
        assert_eq!(name("/usr/lib/libjemalloc.so.2"), Some("jemalloc"));
        assert_eq!(
            name("/usr/lib/libtcmalloc_minimal.so.4.5.10"),
            Some("tcmalloc")
        );
        assert_eq!(name("/usr/lib/libc.so.6"), None);
    }
}
