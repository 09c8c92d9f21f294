//! An object of the user's: `NAME=/PATH/TO/LIBRARY.so`, with settings `:VARIABLE=VALUE,...`.
//!
//! Everything that can be known to fail is refused here with a sentence, because the dynamic linker
//! only mumbles into the target's stderr and goes on without the library.

use std::fs;
use std::path::Path;

use super::{ALL, Allocator, AllocatorError, GLIBC, NATIVE, tuning};
use crate::elf::Elf;

/// The allocator of such a word.
pub(super) fn resolve(word: &str, name: &str, rest: &str) -> Result<Allocator, AllocatorError> {
    let (path, settings) = match rest.split_once(':') {
        // Of a library that is not known here, settings are variables as they stand.
        Some((path, settings)) if settings.contains('=') => (path, Some(settings)),
        _ => (rest, None),
    };
    let mut allocator = library(name, Path::new(path))?;
    if let Some(settings) = settings {
        allocator.environment =
            tuning::parse(settings).map_err(|part| AllocatorError::NoSetting {
                word: word.to_owned(),
                part,
            })?;
        allocator.name = format!("{name}:{settings}");
    }
    Ok(allocator)
}

fn library(name: &str, path: &Path) -> Result<Allocator, AllocatorError> {
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
pub(super) fn can_be_malloc(path: &Path) -> bool {
    let good = |elf: Elf| {
        elf.is_for_this_machine() && elf.is_shared() && elf.exports("malloc") && elf.exports("free")
    };
    is_expressible(path) && Elf::read(path).is_ok_and(|elf| elf.is_some_and(good))
}
