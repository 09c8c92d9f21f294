//! The allocators of the distribution, found where the dynamic linker would find them.
//!
//! Absent on purpose: running `ldconfig`, and reading packages' databases: a library that somebody
//! installed by hand counts as well.

use std::fs;
use std::path::{Path, PathBuf};

use super::can_be_malloc;

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
