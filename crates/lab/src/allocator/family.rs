//! Which allocator an object is of: by its file name, or by a symbol that only this allocator has.
//!
//! `user` gives an object of the user's the rules of its family, so that its settings are checked
//! as those of a known one; `presence` names the allocator that a program brings along.

use std::path::Path;

use super::known::{self, Known};
use super::{MEMPOOL, base_name};
use crate::elf::Elf;

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

/// Whose rules hold for the settings of the object at `path`, which the user calls `name`. A name that is
/// known here says which member of a family it is (`mimalloc3`), and counts alone where nothing else tells.
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
mod tests {
    use super::*;
    use crate::allocator::{Allocator, discover};

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

    /// Goal: what is installed is recognised under its own name, and, where it says so itself, under any.
    #[test]
    fn installed_allocators_are_recognised() {
        let mut recognised = 0;
        for Allocator { name, library, .. } in discover() {
            let Some(library) = library else { continue };
            let elf = Elf::read(&library).unwrap().unwrap();
            let found = of_object("mine", &library, &elf).unwrap_or_else(|| panic!("{name}"));
            assert!(name.starts_with(found.name), "{name}: {}", found.name);
            let renamed = of_object("mine", Path::new("/a/x.so"), &elf);
            // What cargo builds keeps its symbols to itself.
            let tells = ["jemalloc", "tcmalloc", "mimalloc", "tbb", "scudo"];
            if tells.contains(&name.as_str()) {
                assert_eq!(renamed.map(|one| one.name), Some(found.name), "{name}");
                recognised += 1;
            }
        }
        if recognised == 0 {
            eprintln!("skipped: no allocator is installed; scripts/setup installs them");
        }
    }

    /// Goal: a member of a family is the one that the user names, and a name alone does not make an object of
    /// one family another's.
    #[test]
    fn a_name_says_which_member_of_a_family_it_is() {
        let elf = Elf::read(&std::env::current_exe().unwrap())
            .unwrap()
            .unwrap();
        let name =
            |name: &str, path: &str| of_object(name, Path::new(path), &elf).map(|it| it.name);
        assert_eq!(
            name("mimalloc3@3.4.3", "/x/libmimalloc.so"),
            Some("mimalloc3")
        );
        assert_eq!(name("jemalloc", "/x/libmimalloc.so"), Some("mimalloc"));
        assert_eq!(name("jemalloc", "/x/y.so"), Some("jemalloc"));
        assert_eq!(name("mine", "/x/y.so"), None);
    }
}
