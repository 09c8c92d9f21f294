//! Which allocators can be compared here: those of the distribution, and any object the user names.
//!
//! On the path: the first thing a comparison does. Everything that can be known to fail is refused
//! here with a sentence, because the dynamic linker only mumbles into the target's stderr and goes
//! on without the library.
//! Absent on purpose: building or downloading allocators.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::elf::Elf;

/// An allocator a target can be given.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Allocator {
    /// `glibc`, `jemalloc`, or the user's name for it.
    pub name: String,
    /// What is preloaded; `None` for what the target has by itself.
    pub library: Option<PathBuf>,
}

/// The name for "preload nothing" on a system with the GNU C library.
pub const GLIBC: &str = "glibc";
/// The name for "preload nothing", whatever the target brings along.
pub const NATIVE: &str = "native";

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
    /// A known allocator that is not installed.
    #[error("{name} is not installed (this system has {found}): apt-get install {package}")]
    Missing {
        /// As given.
        name: String,
        /// What would work.
        found: String,
        /// The Debian package that has it.
        package: &'static str,
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
    let mut found = vec![Allocator {
        name: GLIBC.to_owned(),
        library: None,
    }];
    found.extend(KNOWN.iter().filter_map(|known| {
        find_library(known.sonames).map(|path| Allocator {
            name: known.name.to_owned(),
            library: Some(path),
        })
    }));
    found
}

/// The allocators of a `--allocators` list, in its order.
pub fn select(wanted: &[String]) -> Result<Vec<Allocator>, AllocatorError> {
    let found = discover();
    let mut selected: Vec<Allocator> = Vec::with_capacity(wanted.len());
    for word in wanted {
        let allocator = resolve(word.trim(), &found)?;
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
    Ok(selected)
}

/// Known allocators that are not installed, as `name (package)`, for the report.
#[must_use]
pub fn missing() -> Vec<String> {
    let found = discover();
    KNOWN
        .iter()
        .filter(|known| found.iter().all(|allocator| allocator.name != known.name))
        .map(|known| format!("{} (apt-get install {})", known.name, known.package))
        .collect()
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
        return Ok(Allocator {
            name: GLIBC.to_owned(),
            library: None,
        });
    }
    if let Some(allocator) = found.iter().find(|allocator| allocator.name == word) {
        return Ok(allocator.clone());
    }
    let list = names(found);
    match KNOWN.iter().find(|known| known.name == word) {
        Some(known) => Err(AllocatorError::Missing {
            name: word.to_owned(),
            found: list,
            package: known.package,
        }),
        None => Err(AllocatorError::Unknown {
            name: word.to_owned(),
            found: list,
        }),
    }
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
    if name.is_empty() || name == GLIBC || name == NATIVE {
        return Err(unusable(
            "needs a name of its own (NAME=/PATH/TO/LIBRARY.so)",
        ));
    }
    // LD_PRELOAD splits at colons and blanks; such a path would be two wrong ones.
    if path.to_str().is_none_or(|text| text.contains([':', ' '])) {
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
        Ok(Some(_)) => Ok(Allocator {
            name: name.to_owned(),
            library: Some(library),
        }),
    }
}

/// The first file whose name begins with one of `sonames`, best soname first.
fn find_library(sonames: &[&str]) -> Option<PathBuf> {
    sonames.iter().find_map(|soname| {
        in_directories(soname)
            .or_else(|| in_linker_cache(soname))
            .filter(|path| {
                Elf::read(path).is_ok_and(|elf| {
                    elf.is_some_and(|elf| elf.is_for_this_machine() && elf.exports("malloc"))
                })
            })
    })
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
