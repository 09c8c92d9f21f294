//! What is made to fail: every call with which a server acquires something at run time.

use super::subject::Program;

/// A system call and the error that it fails with.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) call: &'static str,
    /// As strace writes it.
    pub(super) error: &'static str,
    /// What somebody reads of it.
    pub(super) text: &'static str,
}

const fn kind(call: &'static str, error: &'static str, text: &'static str) -> Kind {
    Kind { call, error, text }
}

const FILES: &str = "Too many open files";
const MEMORY: &str = "Cannot allocate memory";
const ROOM: &str = "No space left on device";
const BUSY: &str = "Resource temporarily unavailable";

/// Failed syncs, writes and reads are not among them: `cargo xtask crash` fails each of those.
pub(super) const KINDS: &[Kind] = &[
    kind("socket", "EMFILE", FILES),
    kind("accept4", "EMFILE", FILES),
    kind("bind", "EADDRINUSE", "Address already in use"),
    kind("listen", "EADDRINUSE", "Address already in use"),
    kind(
        "connect",
        "EADDRNOTAVAIL",
        "Cannot assign requested address",
    ),
    kind("setsockopt", "ENOBUFS", "No buffer space available"),
    kind("openat", "EMFILE", FILES),
    kind("openat2", "EMFILE", FILES),
    kind("pipe2", "EMFILE", FILES),
    kind("eventfd2", "EMFILE", FILES),
    kind("timerfd_create", "EMFILE", FILES),
    kind("memfd_create", "EMFILE", FILES),
    kind("signalfd4", "EMFILE", FILES),
    kind("epoll_create1", "EMFILE", FILES),
    kind("epoll_ctl", "ENOMEM", MEMORY),
    kind("io_uring_setup", "ENOMEM", MEMORY),
    kind("io_uring_register", "ENOMEM", MEMORY),
    kind("io_uring_enter", "EAGAIN", BUSY),
    kind("clone3", "EAGAIN", BUSY),
    kind("mkdir", "ENOSPC", ROOM),
    kind("rename", "ENOSPC", ROOM),
    kind("fallocate", "ENOSPC", ROOM),
    kind("ftruncate", "ENOSPC", ROOM),
    // brk is not among them: its failure has no error that could be injected, and malloc then asks mmap.
    kind("mmap", "ENOMEM", MEMORY),
];

/// An end that is not ours to change: the process must not hang or lie.
struct Excluded {
    /// What stands on stderr then.
    text: &'static str,
    /// What has to stand there besides.
    note: &'static str,
    why: &'static str,
}

/// Where the store is, and what may help.
const NOTE: &str = "millpond: error: the process is aborted at its work on the store in ";

const EXCLUDED: [Excluded; 4] = [
    Excluded {
        text: "Rust cannot catch foreign exceptions",
        note: NOTE,
        why: "RocksDB: a thread that it cannot start is a C++ exception, which its C interface lets through",
    },
    Excluded {
        text: "terminate called",
        note: NOTE,
        why: "RocksDB: a thread that it cannot start is a C++ exception, which nothing catches",
    },
    Excluded {
        text: "failed to allocate an alternative stack",
        note: "",
        why: "Rust's runtime: no guard stack for a thread, before any code of ours",
    },
    Excluded {
        text: "memory allocation of",
        note: "",
        why: "Rust's runtime: malloc has no error but the end of the process",
    },
];

/// The dynamic loader has no stderr yet when its first memory is refused.
const LOADER: &str = "the dynamic loader, before main";

/// Why an end is excluded, if it is. `number`: of the call that failed, before the server listened.
pub(super) fn excluded(kind: &Kind, number: Option<u64>, said: &str) -> Option<&'static str> {
    if kind.call == "mmap" && number == Some(1) {
        return Some(LOADER);
    }
    let found = EXCLUDED.iter().find(|end| said.contains(end.text));
    found
        .filter(|end| said.contains(end.note))
        .map(|end| end.why)
}

/// The kind of that call.
pub(super) fn named(call: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.call == call)
}

impl Kind {
    /// Whether what a server printed before it ended says what failed: the error's text, or a sentence of the dynamic
    /// loader or of the allocator, which have their own words for it.
    pub(super) fn is_named_in(&self, said: &str, program: Program) -> bool {
        let others = [
            "error while loading shared libraries",
            "cannot allocate memory",
            "out of memory",
            // What pthread_create makes of a stack that cannot be had.
            "resource temporarily unavailable",
            // The dynamic loader, before there is a stderr to speak of.
            "cannot allocate tls data structures",
        ];
        let said = said.to_lowercase();
        // The engine's cause is in its own words, which are not always those of the error.
        let of_store = program == Program::Entity
            && (said.contains("io error") || said.contains("the engine cannot"));
        said.contains(&self.text.to_lowercase())
            || of_store
            || others.iter().any(|other| said.contains(other))
    }
}

/// Goal: an exception of the engine is excluded only where the server says on which store it worked.
#[test]
fn an_excluded_end_has_its_note() {
    let kind = named("clone3").unwrap();
    let said = "terminate called after throwing an instance of 'std::system_error'";
    assert_eq!(excluded(kind, None, said), None);
    let said = format!("{said}\n{NOTE}/data; the line above says why");
    assert!(excluded(kind, None, &said).is_some());
}

/// Goal: a call stands once, and what failed is found in a sentence however it is written.
#[test]
fn kinds_are_found_and_named() {
    let mut calls: Vec<&str> = KINDS.iter().map(|kind| kind.call).collect();
    calls.sort_unstable();
    calls.dedup();
    assert_eq!(calls.len(), KINDS.len());
    let kind = named("socket").unwrap();
    assert!(kind.is_named_in(
        "millpond: no socket: too many open files (os error 24)",
        Program::Files
    ));
    assert!(!kind.is_named_in("stderr: ", Program::Files));
}
