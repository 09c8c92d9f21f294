//! Why a target ended, by more than its end: what the kernel counted, limits, and what its output gives away.
//!
//! `session` asks when a run fails, while the control groups of the run are there.

use std::path::Path;

use crate::cgroup::Cgroup;
use crate::error::RunError;
use crate::limits;
use crate::memory_group::MemoryGroup;
use crate::subject::{Exit, LastWords, SIGKILL, SubjectError};

/// What a log says when the kernel gives no more memory: the C library, the dynamic linker, C++, Rust, and the allocators.
const WORDS_OF_NO_MEMORY: [&str; 11] = [
    "cannot allocate memory",
    "out of memory",
    "bad_alloc",
    "memory allocation of",
    "memoryerror",
    "mmap failed",
    "map failure",
    "unable to allocate",
    "failed to reserve",
    "failed to initialise snmalloc",
    "failed to map segment",
];
/// What the C library's `free` says of memory that is not its own.
const WORDS_OF_FOREIGN_MEMORY: [&str; 3] = [
    "free(): invalid pointer",
    "free(): invalid size",
    "munmap_chunk(): invalid pointer",
];

/// What is known of a target beside its end.
pub(crate) struct Evidence<'a> {
    pub(crate) cgroup: Option<&'a Cgroup>,
    pub(crate) memory_group: Option<&'a MemoryGroup>,
    /// The command's short name.
    pub(crate) title: &'a str,
    pub(crate) log: &'a Path,
    /// The address space that its processes may have, as far as that was seen.
    pub(crate) address_space_bytes: Option<u64>,
    /// The memory that all its processes may hold, if the user limits it.
    pub(crate) memory_limit_bytes: Option<u64>,
    /// Whether an allocator is preloaded into it.
    pub(crate) has_library: bool,
}

impl Evidence<'_> {
    /// `error` with the reason that is known of it.
    pub(crate) fn explain(&self, error: RunError) -> RunError {
        if matches!(error, RunError::Interrupted) {
            return error;
        }
        let killed = self.killed_for_memory();
        if let Some(killed) = killed.filter(|&killed| killed > 0) {
            return RunError::KilledForMemory {
                title: self.title.to_owned(),
                killed,
                limit_bytes: self.memory_limit_bytes.or_else(limits::memory_bytes),
                last_words: Box::new(LastWords::read(self.log)),
            };
        }
        let RunError::Subject(SubjectError::Ended {
            exit, last_words, ..
        }) = &error
        else {
            return error;
        };
        if last_words.mention(&WORDS_OF_NO_MEMORY) {
            return RunError::NoAddressSpace {
                limit_bytes: self.address_space_bytes,
                last_lines: last_words.lines.clone(),
                reason: error.to_string(),
            };
        }
        if self.has_library && last_words.mention(&WORDS_OF_FOREIGN_MEMORY) {
            return RunError::TwoAllocators {
                exit: *exit,
                last_lines: last_words.lines.clone(),
                reason: error.to_string(),
            };
        }
        match (exit, killed) {
            (Exit::Signal(SIGKILL), Some(_)) => RunError::KilledByAnother {
                last_lines: last_words.lines.clone(),
                reason: error.to_string(),
            },
            _ => error,
        }
    }

    /// `None` where the kernel does not count.
    fn killed_for_memory(&self) -> Option<u64> {
        let newer = self.cgroup.and_then(Cgroup::killed_for_memory);
        newer.or_else(|| self.memory_group.and_then(MemoryGroup::killed_for_memory))
    }
}

#[cfg(test)]
mod tests {
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
    /// Goal: an end for want of address space is told by what the allocators say of it, with the limit.
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

    /// PHP died under every preloaded allocator, and nothing said why.
    ///
    /// Goal: what the C library says of memory that is not its own is explained where an allocator is preloaded, and
    /// is the server's own fault where none is.
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
}
