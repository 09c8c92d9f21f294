//! The allocators that were asked for: out of the words of a list, in its order, each with its
//! settings.
//!
//! On the path: what the user wrote, against what [`super::discover`] found. A word that cannot be
//! taken is answered with what there is and how to get more.
//! Absent on purpose: looking for libraries.

use super::{
    ALL, Allocator, AllocatorError, GLIBC, NATIVE, NOT_TO_BE_HAD, discover, known, remedy, tuning,
    user,
};
use std::fmt::Write as _;

/// The allocators of a list of names, in its order. Settings are refused: see
/// [`select_with_settings`].
pub fn select(wanted: &[String]) -> Result<Vec<Allocator>, AllocatorError> {
    let selected = select_with_settings(wanted)?;
    match selected.iter().find(|one| !one.environment.is_empty()) {
        None => Ok(selected),
        Some(tuned) => Err(AllocatorError::NoSettingsHere {
            word: tuned.name.clone(),
            name: base_name(&tuned.name).to_owned(),
        }),
    }
}

/// The allocators of a `--allocators` list, in its order, with their settings: the words are what
/// stood between commas, and so are the settings behind the first one of an allocator.
pub fn select_with_settings(wanted: &[String]) -> Result<Vec<Allocator>, AllocatorError> {
    let found = discover();
    let mut selected: Vec<Allocator> = Vec::with_capacity(wanted.len());
    for word in regroup(wanted) {
        let meant = if word == ALL {
            found.clone()
        } else {
            vec![resolve(&word, &found)?]
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
/// settings belongs to it, unless the value is a path, which makes it a library of the user's.
fn regroup(words: &[String]) -> Vec<String> {
    let mut grouped: Vec<String> = Vec::with_capacity(words.len());
    for word in words.iter().map(|word| word.trim()) {
        let is_setting = word
            .split_once('=')
            .is_some_and(|(key, value)| !key.contains(':') && !value.contains('/'));
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

/// The allocator's name without its settings.
fn base_name(name: &str) -> &str {
    name.split(':').next().unwrap_or(name)
}

fn resolve(word: &str, found: &[Allocator]) -> Result<Allocator, AllocatorError> {
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
    let parsed = tuning::parse(settings).map_err(|part| AllocatorError::NoSetting {
        word: word.to_owned(),
        part,
    })?;
    let Some(known) = known::find(&allocator.name) else {
        return Err(AllocatorError::Unknown {
            name: name.to_owned(),
            found: names(found),
        });
    };
    tuning::ask(known, allocator.library.as_deref(), &parsed).map_err(|reason| {
        AllocatorError::Setting {
            word: word.to_owned(),
            name: allocator.name.clone(),
            reason,
        }
    })?;
    allocator.environment = tuning::environment(known.dialect, &parsed);
    allocator.name = format!("{}:{settings}", allocator.name);
    Ok(allocator)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocator::MEMPOOL;
    use std::fs;

    fn select_one(word: &str) -> Result<Allocator, AllocatorError> {
        select(&[word.to_owned()]).map(|mut list| list.remove(0))
    }

    /// Goal: a typing error is answered with what exists and how to give another one.
    #[test]
    fn unknown_name_lists_what_there_is() {
        let sentence = select_one("jemaloc").unwrap_err().to_string();
        assert!(
            sentence.contains("\"jemaloc\"") && sentence.contains("glibc"),
            "{sentence}"
        );
        assert!(sentence.contains("NAME=/PATH"), "{sentence}");
    }

    /// Goal: a library that cannot work is refused before anything runs, with the reason.
    #[test]
    fn unusable_libraries_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let text = directory.path().join("notes.so");
        fs::write(&text, "hello").unwrap();
        let reason = |path: &str| select_one(&format!("mine={path}")).unwrap_err().to_string();
        assert!(reason("/nowhere/lib.so").contains("/nowhere/lib.so cannot be opened"));
        assert!(reason(text.to_str().unwrap()).contains("not a 64-bit ELF"));
        assert!(reason("/a b.so").contains("blank"));
        let own = std::env::current_exe().unwrap();
        assert!(reason(own.to_str().unwrap()).contains("does not export malloc"));
    }

    /// Goal: settings stay with their allocator wherever the list was split, and libraries do not
    /// become settings.
    #[test]
    fn settings_stay_with_their_allocator() {
        let words = "glibc,jemalloc:narenas=2,dirty_decay_ms=0,tcmalloc,mine=/a.so,x=/b.so:A=1,B=2";
        let words: Vec<String> = words.split(',').map(str::to_owned).collect();
        assert_eq!(
            regroup(&words),
            [
                "glibc",
                "jemalloc:narenas=2,dirty_decay_ms=0",
                "tcmalloc",
                "mine=/a.so",
                "x=/b.so:A=1,B=2"
            ]
        );
    }

    /// Goal: a tuned allocator is another candidate, with its settings in name and environment; what
    /// is not understood is refused, and so are settings where nothing would give them.
    #[test]
    fn a_tuned_allocator_is_a_candidate_of_its_own() {
        let words = ["glibc", "glibc:arena_max=1", "trim_threshold=4096"].map(str::to_owned);
        let selected = select_with_settings(&words).unwrap();
        assert_eq!(selected.len(), 2);
        assert!(selected[0].is_plain() && !selected[1].is_plain());
        assert_eq!(selected[1].name, "glibc:arena_max=1,trim_threshold=4096");
        let tunables = "glibc.malloc.arena_max=1:glibc.malloc.trim_threshold=4096";
        assert_eq!(
            selected[1].environment,
            [("GLIBC_TUNABLES".to_owned(), tunables.to_owned())]
        );
        let refused = |word: &str| {
            select_with_settings(&[word.to_owned()])
                .unwrap_err()
                .to_string()
        };
        assert!(refused("glibc:arena_min=1").contains("has no tunable"));
        assert!(refused("glibc:arena_max").contains("is no setting"));
        assert!(refused("frobnicator:x=1").contains("unknown allocator"));
        let sentence = select(&words).unwrap_err().to_string();
        assert!(sentence.contains("here it is glibc alone"), "{sentence}");
    }

    /// Goal: a library of the user's takes variables as they stand.
    #[test]
    fn a_users_library_takes_variables() {
        let mempool = select_one(MEMPOOL).unwrap();
        let library = mempool.library.as_ref().unwrap().display().to_string();
        let word = format!("mine={library}:MEMPOOL_STATS=1");
        let mine = select_with_settings(&[word, "OTHER=2".to_owned()]).unwrap();
        assert_eq!(mine[0].name, "mine:MEMPOOL_STATS=1,OTHER=2");
        assert_eq!(mine[0].library, mempool.library);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            mine[0].environment,
            [pair("MEMPOOL_STATS", "1"), pair("OTHER", "2")]
        );
    }

    /// Goal: who asks for the allocator that nobody packages is told so.
    #[test]
    fn lockless_is_in_no_registry() {
        let sentence = select_one("lockless").unwrap_err().to_string();
        assert!(sentence.contains("in no package registry"), "{sentence}");
    }
}
