use super::*;
use crate::allocator::MEMPOOL;
use crate::embedded;
use std::fs;

fn select_one(word: &str) -> Result<Allocator, AllocatorError> {
    select(&[word.to_owned()]).map(|mut list| list.remove(0))
}

/// Goal: a typing error gives what exists and how to give another one.
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

/// Goal: a version is part of the name, so that two of one family stay two, and does not override the object's own
/// version.
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

/// Goal: what people paste is understood behind an allocator, and otherwise gives the right spelling.
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
        refused("MALLOC_ARENA_MAX=2").contains("write it behind its allocator, glibc:arena_max=2")
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

/// Goal: a request for the allocator without a package gives the reason.
#[test]
fn lockless_is_in_no_registry() {
    let sentence = select_one("lockless").unwrap_err().to_string();
    assert!(sentence.contains("in no package registry"), "{sentence}");
}
