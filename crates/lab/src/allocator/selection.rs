//! The allocators that were asked for: out of the words of a list, in its order, each with its
//! settings.
//!
//! On the path: what the user wrote, against what [`super::discover`] found. A word that cannot be
//! taken is answered with what there is and how to get more.
//! Absent on purpose: looking for libraries.

use super::known::Known;
use super::{
    ALL, Allocator, AllocatorError, GLIBC, NATIVE, NOT_TO_BE_HAD, REMEDIES, base_name, discover,
    known, remedies, remedy, spelling, trim, tuning, user, version, without_settings,
};
use std::fmt::Write as _;

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
            REMEDIES => remedies::all()?,
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
                .is_some_and(|(key, _)| known::find(base_name(key)).is_none()),
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
    if let Some(right) = spelling::misplaced(word) {
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
    let Some(known) = allocator.family.and_then(known::find) else {
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
    let parsed = spelling::settings(known.dialect, settings);
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
    allocator.name = format!("{}:{}", allocator.name, spelling::canonical(&parsed));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocator::MEMPOOL;
    use crate::embedded;
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
        assert!(refused("glibc:arena_min=1").contains("has no tunable"));
        assert!(refused("glibc:arena_max").contains("is no setting"));
        assert!(refused("frobnicator:x=1").contains("unknown allocator"));
        let sentence = select(&words).unwrap_err().to_string();
        assert!(sentence.contains("here it is glibc alone"), "{sentence}");
    }

    fn refused(word: &str) -> String {
        let error = select_with_settings(&[word.to_owned()]).unwrap_err();
        error.to_string()
    }

    /// Goal: a library of the user's of a known family takes its settings in any spelling, checked; a setting
    /// that means nothing to it is refused, and was once measured under its name.
    #[test]
    fn a_users_library_of_a_known_family_is_asked() {
        let mempool = select_one(MEMPOOL).unwrap();
        let library = mempool.library.as_ref().unwrap().display().to_string();
        for settings in ["checks=1", "MEMPOOL_CHECKS=1"] {
            let word = format!("mine={library}:{settings}");
            let mine = select_with_settings(&[word, "STATS=1".to_owned()]).unwrap();
            assert_eq!(mine[0].name, "mine:checks=1,stats=1");
            assert_eq!(mine[0].library, mempool.library);
            let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
            assert_eq!(
                mine[0].environment,
                [pair("MEMPOOL_CHECKS", "1"), pair("MEMPOOL_STATS", "1")]
            );
        }
        let told = refused(&format!("mine={library}:nonsense_setting=7"));
        assert!(told.contains("MEMPOOL_NONSENSE_SETTING"), "{told}");
        let mut asked = 0;
        for name in ["jemalloc", "mimalloc", "tcmalloc"] {
            let Ok(here) = select_one(name) else { continue };
            let library = here.library.unwrap().display().to_string();
            let told = refused(&format!("mine={library}:nonsense_setting=7"));
            assert!(told.to_lowercase().contains("nonsense_setting"), "{told}");
            assert!(told.contains(&format!(": {name} ")), "{told}");
            asked += 1;
        }
        if asked == 0 {
            eprintln!("skipped: no allocator is installed; scripts/setup installs them");
        }
    }

    /// Goal: a library of no known family takes variables as they stand, and nothing else.
    #[test]
    fn a_users_library_of_no_known_family_takes_variables() {
        let directory = tempfile::tempdir().unwrap();
        let object = embedded::TRACE.write_into(directory.path()).unwrap();
        let library = fs::canonicalize(object).unwrap();
        let word = format!("mine={}:A_B=1", library.display());
        let mine = select_with_settings(&[word, "OTHER2=2".to_owned()]).unwrap();
        assert_eq!(mine[0].name, "mine:A_B=1,OTHER2=2");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(mine[0].environment, [pair("A_B", "1"), pair("OTHER2", "2")]);
        let told = refused(&format!("mine={}:nonsense_setting=7", library.display()));
        assert!(told.contains("takes only variables"), "{told}");
    }

    /// Goal: a version is part of the name, so that two of one family stay two, and is not believed against
    /// what the object says.
    #[test]
    fn versions_are_part_of_names() {
        let mempool = select_one(MEMPOOL).unwrap();
        let library = mempool.library.as_ref().unwrap().display().to_string();
        let words = ["mempool@1.0", "mempool@2.0"].map(|name| format!("{name}={library}"));
        let names: Vec<String> = select(&words)
            .unwrap()
            .into_iter()
            .map(|it| it.name)
            .collect();
        assert_eq!(names, ["mempool@1.0", "mempool@2.0"]);
        let here = env!("CARGO_PKG_VERSION");
        assert_eq!(
            select_one(&format!("mempool@{here}")).unwrap().name,
            format!("mempool@{here}")
        );
        let told = select_one("mempool@99.1").unwrap_err().to_string();
        assert!(
            told.contains(here) && told.contains("mempool@99.1=/PATH"),
            "{told}"
        );
        let Ok(jemalloc) = select_one("jemalloc") else {
            eprintln!("skipped: jemalloc is not installed; scripts/setup installs it");
            return;
        };
        let library = jemalloc.library.unwrap().display().to_string();
        let told = refused(&format!("jemalloc@9.9.9={library}"));
        assert!(told.contains("not the one in its name"), "{told}");
    }

    /// Goal: what people paste is understood behind an allocator, and otherwise answered with the right spelling.
    #[test]
    fn pasted_settings_are_understood_or_answered() {
        let words = ["glibc", "glibc:MALLOC_ARENA_MAX=2"].map(str::to_owned);
        let selected = select_with_settings(&words).unwrap();
        assert_eq!(selected[1].name, "glibc:arena_max=2");
        let twice = ["glibc:arena_max=2", "glibc:glibc.malloc.arena_max=2"].map(str::to_owned);
        assert!(matches!(
            select_with_settings(&twice),
            Err(AllocatorError::Twice { .. })
        ));
        assert!(
            refused("MALLOC_ARENA_MAX=2")
                .contains("write it behind its allocator, glibc:arena_max=2")
        );
        assert!(refused("narenas:2").contains("jemalloc:narenas=2"));
        let split = "jemalloc:MALLOC_CONF=narenas:2,dirty_decay_ms:0,tcmalloc:release_rate=1";
        let split: Vec<String> = split.split(',').map(str::to_owned).collect();
        assert_eq!(
            regroup(&split),
            [
                "jemalloc:MALLOC_CONF=narenas:2,dirty_decay_ms:0",
                "tcmalloc:release_rate=1"
            ]
        );
    }

    /// Goal: who asks for the allocator that nobody packages is told so.
    #[test]
    fn lockless_is_in_no_registry() {
        let sentence = select_one("lockless").unwrap_err().to_string();
        assert!(sentence.contains("in no package registry"), "{sentence}");
    }
}
