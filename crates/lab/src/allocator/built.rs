//! The allocators that `cargo xtask allocators` built from their crates: `libmillpond-NAME.so`, each
//! with its origin in a small file beside it.
//!
//! Searched for in the directory that `MILLPOND_ALLOCATORS` names, in `allocators` beside this
//! program, and in `allocators` of the target directory that this program was built into. What is
//! found here is loaded into every target.

use std::path::{Path, PathBuf};
use std::{env, fs};

use serde::Deserialize;

use super::user::can_be_malloc;

/// The names searched for, in the order of reports.
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
/// A file that cargo leaves in every target directory.
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

/// The description of an object in the file beside it.
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

#[cfg(test)]
#[path = "tests/built.rs"]
mod tests;
