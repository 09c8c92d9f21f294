//! The allocators of the distribution, found where the dynamic linker would find them.

use std::fs;
use std::path::{Path, PathBuf};

use super::user::can_be_malloc;

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

/// Searches for the library among the strings of the dynamic linker's cache, which lists every
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
#[path = "tests/system.rs"]
mod tests;
