use super::*;
use std::collections::BTreeSet;

const LISTS: [(&str, &[Choice]); 4] = [
    ("glibc", GLIBC_CHOICES),
    ("jemalloc", JEMALLOC_CHOICES),
    ("mimalloc", MIMALLOC_CHOICES),
    ("tcmalloc", TCMALLOC_CHOICES),
];

/// Goal: each list says of every setting what it changes, briefly, and has none twice.
#[test]
fn lists_say_what_changes_and_have_nothing_twice() {
    for (name, list) in LISTS {
        let found = choices(crate::allocator::known::find(name).unwrap().dialect);
        assert_eq!(found.len(), list.len(), "{name}");
        let mut seen = BTreeSet::new();
        for choice in list {
            assert!(
                (8..=64).contains(&choice.changes.len()),
                "{}",
                choice.changes
            );
            assert!(seen.insert(choice.changes), "{}", choice.changes);
            for spelling in choice.spellings {
                assert!(seen.insert(spelling), "{spelling}");
            }
        }
    }
    let mempool = crate::allocator::known::find("mempool").unwrap().dialect;
    assert!(choices(mempool).is_empty());
}

/// Goal: the default comes first and alone is plain; each other candidate has a setting that its allocator took, a
/// reason, and a name of its own; few are not understood by what is here.
#[test]
fn lists_are_taken_by_what_is_installed() {
    for (name, list) in LISTS {
        if !discover().iter().any(|one| one.name == name) {
            eprintln!("skipped: {name} is not installed; scripts/setup installs it");
            continue;
        }
        let found = settings_of(name).unwrap();
        let (default, others) = found.allocators.split_first().unwrap();
        assert_eq!((default.name.as_str(), default.changes), (name, ""));
        assert_eq!(others.len() + found.left_out.len(), list.len());
        assert!(others.len() >= 8, "{name}: {:?}", found.left_out);
        let names: BTreeSet<&str> = others.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names.len(), others.len());
        for one in others {
            assert!(one.name.starts_with(name) && !one.changes.is_empty());
            assert!(!one.environment.is_empty(), "{}", one.name);
        }
    }
}

/// Goal: settings of glibc 2.36 and jemalloc 5.3 are taken as a whole: a wrong spelling would be left out silently.
#[test]
fn current_versions_take_all_settings() {
    for (name, version) in [("glibc", "2.36"), ("jemalloc", "5.3")] {
        let Ok(found) = settings_of(name) else {
            continue;
        };
        let here = found.allocators[0].version().unwrap_or_default();
        if here.starts_with(version) {
            assert!(found.left_out.is_empty(), "{name}: {:?}", found.left_out);
        }
    }
}

/// Goal: an allocator without a list gives those with one, and how to compare custom settings.
#[test]
fn allocators_without_a_list_are_refused() {
    for name in ["rpmalloc", "mempool", "jemalloc:narenas=2", "nothing", ""] {
        let told = settings_of(name).unwrap_err().to_string();
        for part in ["glibc, jemalloc", "mimalloc3", "--allocators"] {
            assert!(told.contains(part), "{name}: {told}");
        }
    }
}
