//! An object of the user's: `NAME=/PATH/TO/LIBRARY.so` or `NAME@VERSION=/PATH`, with settings.
//!
//! An object whose family is recognised takes the settings of that, checked as those of a known allocator; any
//! other one takes variables as they stand.
//! Everything that can be known to fail is refused here with a sentence, because the dynamic linker
//! only mumbles into the target's stderr and goes on without the library.

use std::fs;
use std::path::Path;

use super::{
    ALL, Allocator, AllocatorError, GLIBC, NATIVE, base_name, family, selection, tuning, version,
};
use crate::elf::Elf;

/// The allocator of such a word.
pub(super) fn resolve(word: &str, name: &str, rest: &str) -> Result<Allocator, AllocatorError> {
    let (path, settings) = match rest.split_once(':') {
        Some((path, settings)) if settings.contains(['=', ':']) => (path, Some(settings)),
        _ => (rest, None),
    };
    let (mut allocator, elf) = library(name, Path::new(path))?;
    check_version(name, &allocator)?;
    let library = allocator.library.clone().unwrap_or_default();
    let known = family::of_object(name, &library, &elf);
    allocator.family = known.map(|known| known.name);
    let Some(settings) = settings else {
        return Ok(allocator);
    };
    match known {
        Some(known) => selection::give_settings(&mut allocator, known, word, settings)?,
        None => give_variables(&mut allocator, word, settings)?,
    }
    Ok(allocator)
}

/// Nobody here knows what an object of no known family reads: variables go to it as they stand.
fn give_variables(
    allocator: &mut Allocator,
    word: &str,
    settings: &str,
) -> Result<(), AllocatorError> {
    let variables = tuning::parse(settings).map_err(|part| AllocatorError::NoSetting {
        word: word.to_owned(),
        part,
    })?;
    if let Some((key, _)) = variables.iter().find(|(key, _)| !is_variable(key)) {
        return Err(AllocatorError::Setting {
            word: word.to_owned(),
            name: allocator.name.clone(),
            reason: format!(
                "takes only variables as it reads them, NAME=VALUE in capitals, and {key} is none: neither its \
                 file name nor its symbols say of which known allocator it is, whose settings could be checked"
            ),
        });
    }
    allocator.name = format!("{}:{settings}", allocator.name);
    allocator.environment = variables;
    Ok(())
}

fn is_variable(key: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_uppercase() || byte == b'_';
    let is_part = |byte: u8| is_letter(byte) || byte.is_ascii_digit();
    key.bytes().next().is_some_and(is_letter) && key.bytes().all(is_part)
}

/// `NAME@VERSION` must not be another version, where the object says its own.
fn check_version(name: &str, allocator: &Allocator) -> Result<(), AllocatorError> {
    let Some((_, wanted)) = name.split_once('@') else {
        return Ok(());
    };
    let library = allocator.library.as_deref().unwrap_or(Path::new(""));
    match version::told_by(library) {
        Some(told) if !version::is_of(&told, wanted) => Err(AllocatorError::OtherVersion {
            name: name.to_owned(),
            found: told,
            remedy: format!("{} is that", library.display()),
        }),
        _ => Ok(()),
    }
}

fn library(name: &str, path: &Path) -> Result<(Allocator, Elf), AllocatorError> {
    let unusable = |reason: &str| AllocatorError::Unusable {
        name: name.to_owned(),
        path: path.to_owned(),
        reason: reason.to_owned(),
    };
    if ["", GLIBC, NATIVE, ALL].contains(&base_name(name)) {
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
        Ok(Some(elf)) => Ok((Allocator::preloaded(name, library), elf)),
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
