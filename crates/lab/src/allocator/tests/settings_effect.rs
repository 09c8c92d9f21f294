use super::*;

/// Goal: jemalloc's and mimalloc's own lists are read as they write them.
#[test]
fn lists_of_options_are_read() {
    let said = "  opt.narenas: 2\n  opt.thp: \"default\"\n  opt.dirty_decay_ms: 0 (arenas.dirty_decay_ms: 0)\n";
    assert_eq!(jemalloc_option(said, "narenas"), Some("2"));
    assert_eq!(jemalloc_option(said, "thp"), Some("default"));
    assert_eq!(jemalloc_option(said, "dirty_decay_ms"), Some("0"));
    assert_eq!(jemalloc_option(said, "lg_chunk"), None);
    assert!(is_same("2", "2") && is_same("true", "true") && is_same("-1", "-1"));
    assert!(is_same("4k", "4096") && !is_same("3", "2") && !is_same("always", "default"));
}

/// Goal: a version with reported trouble gives a warning, whatever its name; another version does not.
#[test]
fn reports_of_others_are_said() {
    let directory = tempfile::tempdir().unwrap();
    let of = |name: &str, version: &str| {
        let library = directory.path().join("libx.so");
        let origin = format!("{{\"version\": \"{version}\"}}");
        fs::write(library.with_extension("json"), origin).unwrap();
        Allocator::preloaded(name, library).public_reports()
    };
    let said = of("mimalloc3", "3.3.2").unwrap();
    assert!(
        said.starts_with("mimalloc3: ") && said.contains("81 %"),
        "{said}"
    );
    assert_eq!(of("mimalloc3", "3.4.1"), None);
    assert_eq!(of("mimalloc2", "2.3.2"), None);
    assert_eq!(of("rpmalloc", "3.3.2"), None);
}

/// Goal: setting one threshold of the C library reports the effect on the other.
#[test]
fn one_threshold_freezes_the_other() {
    let told = |word: &str| {
        let words: Vec<String> = word.split(',').map(str::to_owned).collect();
        super::super::select_with_settings(&words).unwrap()[0].frozen_threshold()
    };
    let alone = told("glibc:mmap_threshold=131072").unwrap();
    assert!(alone.contains("stops trim_threshold"), "{alone}");
    let alone = told("glibc:trim_threshold=131072").unwrap();
    assert!(alone.contains("stops mmap_threshold"), "{alone}");
    assert_eq!(
        told("glibc:mmap_threshold=131072,trim_threshold=131072"),
        None
    );
    assert_eq!(told("glibc:arena_max=2"), None);
}

/// Goal: the version of the C library decides which bounds hold; background threads are found by their names.
#[test]
fn bounds_depend_on_the_version() {
    assert!(!is_older_than((2, 0)) && is_older_than((9, 0)));
    let own = i32::try_from(std::process::id()).unwrap();
    assert_eq!(has_background_thread(own), Some(false));
    assert_eq!(has_background_thread(i32::MAX), None);
}
