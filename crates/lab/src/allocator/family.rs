//! Which allocator an object is of: by its file name, or by a symbol that only this allocator has.
//!
//! `user` gives an object of the user's the rules of its family, so that its settings are checked
//! as those of a known one; `presence` names the allocator that a program brings along.

use std::path::Path;

use crate::elf::Elf;

use super::known::Known;
use super::{MEMPOOL, base_name, known};

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

/// The family whose rules hold for the settings of the object at `path`, which the user calls `name`. A known name says
/// which member of a family it is (`mimalloc3`), and counts alone if there is no other evidence.
pub(super) fn of_object(name: &str, path: &Path, elf: &Elf) -> Option<&'static Known> {
    let own = path.file_name().and_then(|file| file.to_str());
    let is_own = own.is_some_and(|file| file.contains(MEMPOOL));
    let family = by_file(path)
        .map(|(_, family)| family)
        .or_else(|| family_by_symbol(|symbol| elf.exports(symbol)))
        .or(is_own.then_some(MEMPOOL));
    let named = known::find(base_name(name));
    match family {
        None => named,
        Some(family) => {
            let found = known::find(family);
            let is_member = |one: &&Known| found.is_some_and(|it| it.dialect == one.dialect);
            named.filter(is_member).or(found)
        }
    }
}

#[cfg(test)]
#[path = "tests/family.rs"]
mod tests;
