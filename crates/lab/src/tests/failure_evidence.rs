use super::*;
use std::path::PathBuf;

fn explained(exit: Exit, line: &str, has_library: bool) -> RunError {
    let last_words = LastWords {
        log: PathBuf::new(),
        lines: vec![line.to_owned(), "last".to_owned()],
    };
    let evidence = Evidence {
        cgroup: None,
        memory_group: None,
        title: "server",
        log: Path::new("/nowhere"),
        address_space_bytes: Some(2_048_000_000),
        memory_limit_bytes: None,
        has_library,
    };
    evidence.explain(RunError::Subject(SubjectError::Ended {
        title: "server".to_owned(),
        when: "ended before it served",
        exit,
        last_words: Box::new(last_words),
    }))
}

/// hardened and snmalloc under `ulimit -v` were called crashes, without the limit.
///
/// Goal: an end for lack of address space is recognised by the allocators' messages, with the limit.
#[test]
fn want_of_address_space_is_told() {
    for line in [
        "mimalloc: error: unable to allocate 64 MiB (Cannot allocate memory)",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "fatal allocator error: failed to reserve slab region",
        "Failed to initialise snmalloc.",
        "error while loading shared libraries: libm.so.6: failed to map segment from shared object",
    ] {
        let error = explained(Exit::Signal(6), line, true);
        assert!(error.to_string().contains("ulimit -v"), "{error}");
        let label = error.cause().label();
        assert!(
            label.starts_with("no address space (limit 1.91 GiB"),
            "{label}"
        );
    }
}

/// PHP died under every preloaded allocator, and no message said why.
///
/// Goal: the C library's message about foreign memory is explained where an allocator is preloaded, and is the server's
/// own fault where none is.
#[test]
fn two_allocators_in_one_program_are_told() {
    let line = "munmap_chunk(): invalid pointer";
    let error = explained(Exit::Signal(6), line, true);
    assert!(error.to_string().contains("RTLD_DEEPBIND"), "{error}");
    assert_eq!(error.cause().label(), "crashed (SIGABRT)");
    let own = explained(Exit::Signal(6), line, false);
    assert!(matches!(own, RunError::Subject(_)), "{own:?}");
}

/// Goal: where the kernel counts nothing, a SIGKILL is likely for memory, and no more than that.
#[test]
fn a_kill_that_nobody_counts_is_likely_for_memory() {
    let label = explained(Exit::Signal(SIGKILL), "hello", true)
        .cause()
        .label();
    assert!(
        label.starts_with("killed (SIGKILL), likely for memory"),
        "{label}"
    );
}
