//! Which version of an allocator an object is, as exactly as it is known without running it.
//!
//! In this order: what was written beside an object that we built, what the system's package
//! manager says of the file, what some allocators have of it in the object, and the digits of its name.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use regex::bytes::Regex;

use super::built;

/// The version of a library.
pub(super) fn of_library(library: &Path) -> Option<String> {
    built::version(library)
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

/// The version that the object itself contains, or the builder or package: not its name, which says at most the version
/// of its interface.
pub(super) fn told_by(library: &Path) -> Option<String> {
    built::version(library)
        .or_else(|| of_contents(library))
        .or_else(|| of_package(library))
}

/// True if `told` begins with the numbers of `wanted`: `5.3.0-1 (libjemalloc2)` is `5.3` and `5.3.0`.
pub(super) fn is_of(told: &str, wanted: &str) -> bool {
    let end = told.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let digits = told.get(..end.unwrap_or(told.len())).unwrap_or_default();
    // A version that is no number (a commit, a date) is left to the user.
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

/// The form of the version in the objects of jemalloc and gperftools: `5.3.0-0-g54eaed1d...`, `gperftools 2.10`.
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

/// The C library's own text: `2.36 (Debian GLIBC 2.36-9+deb12u13)`.
pub(super) fn of_c_library() -> Option<String> {
    banner(&c_library()?)
}

/// The version in the file at `path`, if it is a C library of GNU.
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

#[cfg(test)]
#[path = "tests/version.rs"]
mod tests;
