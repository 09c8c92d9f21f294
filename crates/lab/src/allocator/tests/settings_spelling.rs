use super::*;

const JEMALLOC: Dialect = Dialect::Jemalloc("MALLOC_CONF");

/// Goal: the spelling of manuals and scripts becomes the same settings as the short spelling, for every family.
#[test]
fn pasted_spellings_are_understood() {
    let read = |dialect, text: &str| settings(dialect, text).map(|found| canonical(&found));
    let cases = [
        (
            JEMALLOC,
            "narenas=2,dirty_decay_ms=0",
            "narenas=2,dirty_decay_ms=0",
        ),
        (
            JEMALLOC,
            "narenas:2,dirty_decay_ms:0",
            "narenas=2,dirty_decay_ms=0",
        ),
        (
            JEMALLOC,
            "MALLOC_CONF=narenas:2,thp:never",
            "narenas=2,thp=never",
        ),
        (JEMALLOC, "_RJEM_MALLOC_CONF=narenas:2", "narenas=2"),
        (JEMALLOC, "opt.narenas:2", "narenas=2"),
        (Dialect::Glibc, "arena_max=2", "arena_max=2"),
        (
            Dialect::Glibc,
            "MALLOC_ARENA_MAX=2,MALLOC_TOP_PAD_=0",
            "arena_max=2,top_pad=0",
        ),
        (
            Dialect::Glibc,
            "M_MMAP_THRESHOLD=4096",
            "mmap_threshold=4096",
        ),
        (Dialect::Glibc, "glibc.malloc.arena_max=2", "arena_max=2"),
        (
            Dialect::Glibc,
            "GLIBC_TUNABLES=glibc.malloc.arena_max=2:glibc.pthread.rseq=0",
            "arena_max=2,pthread.rseq=0",
        ),
        (
            Dialect::Glibc,
            "glibc.malloc.arena_max=2:glibc.malloc.perturb=1",
            "arena_max=2,perturb=1",
        ),
        (Dialect::Mimalloc, "MIMALLOC_PURGE_DELAY=0", "purge_delay=0"),
        (
            Dialect::Mimalloc,
            "mi_option_purge_delay=0",
            "purge_delay=0",
        ),
        (
            Dialect::Variables("TCMALLOC_"),
            "TCMALLOC_RELEASE_RATE=10",
            "release_rate=10",
        ),
        (
            Dialect::Variables("MEMPOOL_"),
            "checks=fail=2",
            "checks=fail=2",
        ),
        (Dialect::Scudo, "SCUDO_OPTIONS=a=1:b=2", "a=1,b=2"),
    ];
    for (dialect, text, expected) in cases {
        assert_eq!(read(dialect, text).as_deref(), Ok(expected), "{text}");
    }
    assert_eq!(read(Dialect::Glibc, "a=1,b"), Err("b".to_owned()));
    assert_eq!(read(Dialect::Glibc, "=1"), Err("=1".to_owned()));
    assert_eq!(read(JEMALLOC, "MALLOC_CONF="), Err(String::new()));
}

/// Goal: a setting without its allocator gives where it belongs; names of allocators and of libraries are not taken for
/// settings.
#[test]
fn a_setting_without_its_allocator_is_known() {
    for (word, right) in [
        ("MALLOC_ARENA_MAX=2", "glibc:arena_max=2"),
        ("glibc.malloc.arena_max=2", "glibc:arena_max=2"),
        ("narenas:2", "jemalloc:narenas=2"),
        ("MALLOC_CONF=narenas:2", "jemalloc:narenas=2"),
        ("MIMALLOC_PURGE_DELAY=0", "mimalloc:purge_delay=0"),
        ("release_rate=10", "tcmalloc:release_rate=10"),
    ] {
        assert_eq!(misplaced(word).as_deref(), Some(right), "{word}");
    }
    for word in [
        "glibc",
        "jemalloc:narenas=2",
        "mine=/a/b.so",
        "mine=b.so",
        "x=/b.so:A=1",
    ] {
        assert_eq!(misplaced(word), None, "{word}");
    }
}
