use super::*;

fn shell(names: &[&str]) -> Vec<Variable> {
    names.iter().map(|name| (name.into(), "1".into())).collect()
}

/// Goal: every allocator's variables are known for what they are, prefixed builds of jemalloc among
/// them, and others are left alone.
#[test]
fn variables_of_allocators_are_known() {
    for name in [
        "LD_PRELOAD",
        "GLIBC_TUNABLES",
        "MALLOC_ARENA_MAX",
        "MALLOC_TRIM_THRESHOLD_",
        "MALLOC_CONF",
        "JE_MALLOC_CONF",
        "_RJEM_MALLOC_CONF",
        "MIMALLOC_PURGE_DELAY",
        "TCMALLOC_RELEASE_RATE",
        "HEAPPROFILE",
        "SCUDO_OPTIONS",
        "RPMALLOC_ENABLE",
        "TBB_MALLOC_USE_HUGE_PAGES",
        "MEMPOOL_CHECKS",
    ] {
        assert!(is_allocators(name.as_ref()), "{name}");
    }
    for name in [
        "PATH",
        "LD_LIBRARY_PATH",
        "MALLOC",
        "MY_MALLOC_ARENA_MAX",
        "PYTHONMALLOC",
    ] {
        assert!(!is_allocators(name.as_ref()), "{name}");
    }
}

/// Goal: without the user's word nothing of an allocator's is kept, with it all is, what is preloaded as
/// objects; both are said, and so are switches of a runtime, which stay either way.
#[test]
fn what_is_dropped_and_what_is_kept_is_told() {
    let names = ["PATH", "MALLOC_CONF", "MALLOC_ARENA_MAX", "PYTHONMALLOC"];
    let dropped = Inherited::of(shell(&names), false);
    assert_eq!(dropped.dropped(), ["MALLOC_ARENA_MAX", "MALLOC_CONF"]);
    assert_eq!(dropped.kept(), shell(&["PYTHONMALLOC"]));
    assert!(dropped.preload().is_empty());
    let lines = dropped.lines();
    assert!(lines[0].starts_with("MALLOC_ARENA_MAX=1 MALLOC_CONF=1 of the shell are dropped"));
    assert!(lines[1].starts_with("PYTHONMALLOC=1 of the shell is part of every candidate"));
    let mut variables = shell(&names);
    variables.push((PRELOAD.into(), "/a.so: /b.so".into()));
    let kept = Inherited::of(variables, true);
    assert!(kept.dropped().is_empty());
    assert_eq!(
        kept.kept(),
        shell(&["MALLOC_ARENA_MAX", "MALLOC_CONF", "PYTHONMALLOC"])
    );
    assert_eq!(
        kept.preload(),
        [PathBuf::from("/a.so"), PathBuf::from("/b.so")]
    );
    assert!(kept.lines()[0].contains("part of every candidate (--keep-env)"));
    assert!(kept.record().kept && kept.record().allocator.len() == 3);
    let empty = Inherited::of([("MALLOC_CONF".into(), OsString::new())], false);
    assert!(empty.lines().is_empty() && empty.record().describe().is_none());
}
