//! The allocators that were asked for: out of the words of a list, in its order, each with its
//! settings.
//!
//! Resolves the user's word against the list of [`super::discover`]. A word that does not match
//! gives an error that lists what there is and how to get more.

use std::fmt::Write as _;

use super::known::{Known, find};
use super::settings_spelling::{canonical, misplaced, settings};
use super::{
    ALL, Allocator, AllocatorError, GLIBC, NATIVE, NOT_TO_BE_HAD, base_name, discover, remedy,
    trim, tuning, user, version, without_settings,
};

/// The allocators of a list of names, in its order. Settings are refused: see
/// [`select_with_settings`].
pub fn select(wanted: &[String]) -> Result<Vec<Allocator>, AllocatorError> {
    let selected = select_with_settings(wanted)?;
    match selected.iter().find(|one| one.name.contains(':')) {
        None => Ok(selected),
        Some(tuned) => Err(AllocatorError::NoSettingsHere {
            word: tuned.name.clone(),
            name: without_settings(&tuned.name).to_owned(),
        }),
    }
}

/// The allocators of a `--allocators` list, in its order, with their settings: the words are what
/// stood between commas, and so are the settings behind the first one of an allocator.
pub fn select_with_settings(wanted: &[String]) -> Result<Vec<Allocator>, AllocatorError> {
    let found = discover();
    let mut selected: Vec<Allocator> = Vec::with_capacity(wanted.len());
    for word in regroup(wanted) {
        let meant = match word.as_str() {
            ALL => found.clone(),
            REMEDIES => all()?,
            _ => vec![resolve(&word, &found)?],
        };
        for allocator in meant {
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
    }
    Ok(selected)
}

/// Puts settings that a list was split at back to their allocator: `KEY=VALUE` behind a word with
/// settings belongs to it, unless the value is a path, which makes it a library of the user's. So does
/// `KEY:VALUE` whose key is no allocator.
fn regroup(words: &[String]) -> Vec<String> {
    let mut grouped: Vec<String> = Vec::with_capacity(words.len());
    for word in words.iter().map(|word| word.trim()) {
        let is_setting = match word.split_once('=') {
            Some((key, _)) if key.ends_with(trim::MARK) => false,
            Some((key, value)) => !key.contains(':') && !value.contains('/'),
            None => word
                .split_once(':')
                .is_some_and(|(key, _)| find(base_name(key)).is_none()),
        };
        match grouped.last_mut() {
            Some(last) if is_setting && last.contains(':') => {
                last.push(',');
                last.push_str(word);
            }
            _ => grouped.push(word.to_owned()),
        }
    }
    grouped
}

pub(super) fn resolve(word: &str, found: &[Allocator]) -> Result<Allocator, AllocatorError> {
    if let Some(right) = misplaced(word) {
        return Err(AllocatorError::Spelling {
            word: word.to_owned(),
            right,
        });
    }
    if let Some((name, rest)) = word.split_once(trim::MARK) {
        return trimmed(word, name, rest, found);
    }
    // Whichever comes first: `mine=/a.so:X=1` is a library, `jemalloc:narenas=2` has settings.
    match word.find(['=', ':']).map(|at| word.split_at(at)) {
        Some((name, rest)) if rest.starts_with('=') => user::resolve(word, name, &rest[1..]),
        Some((name, rest)) => tuned(word, name, &rest[1..], found),
        None => named(word, found),
    }
}

fn named(word: &str, found: &[Allocator]) -> Result<Allocator, AllocatorError> {
    if word == NATIVE || word == "malloc" {
        return Ok(Allocator::native(GLIBC));
    }
    if let Some(allocator) = found.iter().find(|allocator| allocator.name == word) {
        return Ok(allocator.clone());
    }
    if let Some(allocator) = found.iter().find(|one| one.name == base_name(word)) {
        return of_version(word, allocator);
    }
    let (name, found) = (word.to_owned(), names(found));
    if let Some(remedy) = remedy(word) {
        return Err(AllocatorError::Missing {
            name,
            found,
            remedy,
        });
    }
    if ["lockless", "llalloc"].contains(&word) {
        return Err(AllocatorError::Missing {
            name,
            found,
            remedy: NOT_TO_BE_HAD.to_owned(),
        });
    }
    Err(AllocatorError::Unknown { name, found })
}

/// A known allocator with settings, once it has said that it takes them.
fn tuned(
    word: &str,
    name: &str,
    settings: &str,
    found: &[Allocator],
) -> Result<Allocator, AllocatorError> {
    let mut allocator = named(name, found)?;
    let Some(known) = allocator.family.and_then(find) else {
        return Err(AllocatorError::Unknown {
            name: name.to_owned(),
            found: names(found),
        });
    };
    give_settings(&mut allocator, known, word, settings)?;
    Ok(allocator)
}

/// `glibc+trim=30s`, and settings behind it.
fn trimmed(
    word: &str,
    name: &str,
    rest: &str,
    found: &[Allocator],
) -> Result<Allocator, AllocatorError> {
    let (interval, settings) = match rest.split_once(':') {
        Some((interval, settings)) => (interval, Some(settings)),
        None => (rest, None),
    };
    let mut allocator = match settings {
        Some(settings) => tuned(word, name, settings, found)?,
        None => resolve(name, found)?,
    };
    trim::give(&mut allocator, word, interval)?;
    Ok(allocator)
}

/// Gives an allocator of a known family its settings, once it has said that it takes them. `word` is what the
/// user wrote.
pub(super) fn give_settings(
    allocator: &mut Allocator,
    known: &Known,
    word: &str,
    settings: &str,
) -> Result<(), AllocatorError> {
    let parsed = self::settings(known.dialect, settings);
    let parsed = parsed.map_err(|part| AllocatorError::NoSetting {
        word: word.to_owned(),
        part,
    })?;
    let refused = |reason| AllocatorError::Setting {
        word: word.to_owned(),
        name: known.name.to_owned(),
        reason,
    };
    tuning::ask(known, allocator.library.as_deref(), &parsed).map_err(refused)?;
    allocator.environment = tuning::environment(known.dialect, &parsed);
    allocator.name = format!("{}:{}", allocator.name, canonical(&parsed));
    allocator.settings = parsed;
    Ok(())
}

/// The allocator that is here under the name `word`, which says a version, if it is of that.
fn of_version(word: &str, here: &Allocator) -> Result<Allocator, AllocatorError> {
    let wanted = word.split_once('@').map_or("", |(_, version)| version);
    let found = here.version_alone().unwrap_or_else(|| "unknown".to_owned());
    if !wanted.is_empty() && found.starts_with(wanted) && version::is_of(&found, wanted) {
        return Ok(Allocator {
            name: word.to_owned(),
            ..here.clone()
        });
    }
    Err(AllocatorError::OtherVersion {
        name: word.to_owned(),
        found,
        remedy: format!("another one is given as {word}=/PATH/TO/LIBRARY.so"),
    })
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

// Common advice against memory that a service keeps, as one list of candidates: `--allocators remedies`.
//
// Each stands for advice that is often given in public: fewer arenas, fixed thresholds, trimming from outside, and the
// allocators that return memory by themselves after a configured time.

/// The name of the list.
pub const REMEDIES: &str = "remedies";

/// In the order of reports. Of several spellings in one line the first is taken that this version understands.
const LIST: &[&[&str]] = &[
    &["glibc"],
    &["glibc:arena_max=2"],
    // One of the two alone would keep the other from moving, at its usual value.
    &["glibc:mmap_threshold=131072,trim_threshold=131072"],
    &["glibc+trim=30s"],
    &["jemalloc"],
    &["jemalloc:background_thread=true,dirty_decay_ms=5000,muzzy_decay_ms=5000"],
    &["mimalloc:purge_delay=0", "mimalloc:decommit_delay=0"],
    &["tcmalloc:release_rate=10"],
];

/// Those that are here. An allocator that is not installed is left out, as `all` leaves it out; what keeps another one
/// from being used is an error.
pub(super) fn all() -> Result<Vec<Allocator>, AllocatorError> {
    let mut found = Vec::with_capacity(LIST.len());
    for spellings in LIST {
        if let Some(allocator) = first_of(spellings)? {
            found.push(allocator);
        }
    }
    Ok(found)
}

fn first_of(spellings: &[&str]) -> Result<Option<Allocator>, AllocatorError> {
    let mut refusal = None;
    for &spelling in spellings {
        let words: Vec<String> = spelling.split(',').map(str::to_owned).collect();
        match select_with_settings(&words) {
            Ok(selected) => return Ok(selected.into_iter().next()),
            Err(AllocatorError::Missing { .. }) => return Ok(None),
            Err(error) => refusal = refusal.or(Some(error)),
        }
    }
    refusal.map_or(Ok(None), Err)
}

#[cfg(test)]
#[path = "tests/selection.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/remedies.rs"]
mod remedies_tests;
