//! Which version of an allocator an object is, as exactly as it can be told without running it.
//!
//! In this order: what was written beside an object that we built, what the system's package
//! manager says of the file, and the digits of its name.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::built;

/// The version of a library.
pub(super) fn of_library(library: &Path) -> Option<String> {
    built::version(library)
        .or_else(|| of_package(library))
        .or_else(|| of_name(library))
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
    let bytes = fs::read(c_library()?).ok()?;
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
mod tests {
    use super::*;

    #[test]
    fn names_and_banners_hold_versions() {
        let name = |name: &str| of_name(Path::new(name));
        assert_eq!(
            name("/lib/libtcmalloc.so.4.5.10").as_deref(),
            Some("4.5.10")
        );
        assert_eq!(name("/lib/libx.so"), None);
        let banner = "Debian GLIBC 2.36-9+deb12u13) stable release version 2.36.";
        assert_eq!(
            parse_banner(banner).as_deref(),
            Some("2.36 (Debian GLIBC 2.36-9+deb12u13)")
        );
        assert_eq!(parse_banner("no banner"), None);
    }

    /// Goal: the C library of this very process is found and tells its version.
    #[test]
    fn the_c_library_tells_its_version() {
        assert!(c_library().is_some_and(|path| path.is_file()));
        let version = of_c_library().unwrap();
        assert!(version.starts_with("2."), "{version}");
    }
}
