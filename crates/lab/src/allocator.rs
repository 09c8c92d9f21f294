//! Which allocators can be compared here: those of the distribution, ours, those that were built
//! from their crates, and any object the user names.
//!
//! On the path: the first thing a comparison does. Everything that can be known to fail is refused
//! here with a sentence, because the dynamic linker only mumbles into the target's stderr and goes
//! on without the library.
//! Absent on purpose: building or downloading allocators (`cargo xtask allocators` does).

mod system;
mod built;

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::elf::Elf;
use crate::embedded::{self, PrivateDirectory};

pub use built::DIRECTORY_VARIABLE;

/// An allocator a target can be given.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Allocator {
    /// `glibc`, `jemalloc`, or the user's name for it.
    pub name: String,
    /// What is preloaded; `None` for what the target has by itself. A file of ours is there as long
    /// as this value or a clone of it.
    pub library: Option<PathBuf>,
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
            written: None,
        }
    }

    /// The version of the library, as far as it can be told without running it.
    #[must_use]
    pub fn version(&self) -> Option<String> {
        let library = self.library.as_deref()?;
        if self.written.is_some() {
            // Ours, and part of this program.
            return Some(env!("CARGO_PKG_VERSION").to_owned());
        }
        built::version(library).or_else(|| {
            // `libtcmalloc_minimal.so.4.5.10`: what follows `.so.` is the version, as far as it goes.
            let file = library.file_name()?.to_str()?;
            Some(file.split_once(".so.")?.1.to_owned())
        })
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

    /// True for one that was built because somebody wants it compared: there may be many of them, so
    /// a comparison that names no allocators takes them only if its time allows.
    #[must_use]
    pub fn is_extra(&self) -> bool {
        built::NAMES.contains(&self.name.as_str())
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

/// A library of the distribution.
struct Known {
    name: &'static str,
    /// File name prefixes, best first: a soname may be followed by more digits.
    sonames: &'static [&'static str],
    package: &'static str,
}

const KNOWN: &[Known] = &[
    Known {
        name: "jemalloc",
        sonames: &["libjemalloc.so.2"],
        package: "libjemalloc2",
    },
    Known {
        name: "tcmalloc",
        // The full library adds a heap profiler; malloc itself is the same.
        sonames: &["libtcmalloc_minimal.so.4", "libtcmalloc.so.4"],
        package: "libtcmalloc-minimal4",
    },
    Known {
        name: "mimalloc",
        sonames: &["libmimalloc.so.3", "libmimalloc.so.2"],
        package: "libmimalloc2.0",
    },
];

/// Why an allocator cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AllocatorError {
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
    /// The same name twice would make results ambiguous.
    #[error("allocator \"{name}\" is given twice")]
    Twice {
        /// The name.
        name: String,
    },
}

/// Every allocator found on this system, what the target has by itself first.
#[must_use]
pub fn discover() -> Vec<Allocator> {
    let mut found = vec![Allocator::native(GLIBC)];
    found.extend(KNOWN.iter().filter_map(|known| {
        let library = system::find_library(known.sonames)?;
        Some(Allocator::preloaded(known.name, library))
    }));
    // If it cannot be written, `missing` says why.
    found.extend(mempool());
    found.extend(built::NAMES.iter().filter_map(|name| {
        let library = built::find(name)?;
        Some(Allocator::preloaded(name, library))
    }));
    found
}

/// The allocators of a `--allocators` list, in its order.
pub fn select(wanted: &[String]) -> Result<Vec<Allocator>, AllocatorError> {
    let found = discover();
    let mut selected: Vec<Allocator> = Vec::with_capacity(wanted.len());
    for word in wanted {
        let word = word.trim();
        let meant = if word == ALL {
            found.clone()
        } else {
            vec![resolve(word, &found)?]
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

/// Known allocators that are not here and how to get them, for the report: `name (remedy)`.
#[must_use]
pub fn missing() -> Vec<String> {
    let found = discover();
    let is_missing = |name: &&str| found.iter().all(|allocator| allocator.name != *name);
    let mut lines: Vec<String> = KNOWN
        .iter()
        .map(|known| known.name)
        .chain([MEMPOOL])
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
    if let Some(known) = KNOWN.iter().find(|known| known.name == name) {
        return Some(format!("apt-get install {}", known.package));
    }
    if built::NAMES.contains(&name) {
        return Some(format!("{BUILD} --only {name}"));
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
        "hoard",
    ]
    .into_iter()
    .find(|name| file.starts_with("lib") && file.contains(name))
}

fn resolve(word: &str, found: &[Allocator]) -> Result<Allocator, AllocatorError> {
    if let Some((name, path)) = word.split_once('=') {
        return user_library(name, Path::new(path));
    }
    if word == NATIVE || word == "malloc" {
        return Ok(Allocator::native(GLIBC));
    }
    if let Some(allocator) = found.iter().find(|allocator| allocator.name == word) {
        return Ok(allocator.clone());
    }
    let (name, found) = (word.to_owned(), names(found));
    Err(match remedy(word) {
        Some(remedy) => AllocatorError::Missing {
            name,
            found,
            remedy,
        },
        None => AllocatorError::Unknown { name, found },
    })
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

fn user_library(name: &str, path: &Path) -> Result<Allocator, AllocatorError> {
    let unusable = |reason: &str| AllocatorError::Unusable {
        name: name.to_owned(),
        path: path.to_owned(),
        reason: reason.to_owned(),
    };
    if ["", GLIBC, NATIVE, ALL].contains(&name) {
        return Err(unusable(
            "needs a name of its own (NAME=/PATH/TO/LIBRARY.so)",
        ));
    }
    if !is_expressible(path) {
        return Err(unusable(
            "has a colon or blank in its path, which LD_PRELOAD cannot express",
        ));
    }
    let library =
        fs::canonicalize(path).map_err(|error| unusable(&format!("cannot be opened: {error}")))?;
    match Elf::read(&library) {
        Err(error) => Err(unusable(&format!("cannot be read: {error}"))),
        Ok(None) => Err(unusable("is not a 64-bit ELF shared object")),
        Ok(Some(elf)) if !elf.is_for_this_machine() => {
            Err(unusable("is made for another processor"))
        }
        Ok(Some(elf)) if !elf.is_shared() => Err(unusable("is a program, not a shared object")),
        Ok(Some(elf)) if !elf.exports("malloc") || !elf.exports("free") => Err(unusable(
            "does not export malloc and free, so preloading it would change nothing",
        )),
        Ok(Some(_)) => Ok(Allocator::preloaded(name, library)),
    }
}

/// LD_PRELOAD splits at colons and blanks; such a path would be two wrong ones.
fn is_expressible(path: &Path) -> bool {
    path.to_str().is_some_and(|text| !text.contains([':', ' ']))
}

/// True if preloading the file gives a program of this machine another malloc.
fn can_be_malloc(path: &Path) -> bool {
    let good = |elf: Elf| {
        elf.is_for_this_machine() && elf.is_shared() && elf.exports("malloc") && elf.exports("free")
    };
    is_expressible(path) && Elf::read(path).is_ok_and(|elf| elf.is_some_and(good))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for name in KNOWN
            .iter()
            .map(|known| known.name)
            .chain(built::NAMES.iter().copied())
        {
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
