//! Faults that end the process: each in a child of its own.
#[path = "../../../tests/child/mod.rs"]
mod child;

use super::*;
use crate::violation::abort_with;
use child::{SIGABRT, SIGSEGV, in_child};
use std::os::unix::process::ExitStatusExt;

/// Goal: on a violation malloc writes the message on the standard error, and aborts.
#[test]
#[cfg_attr(miri, ignore = "Miri starts no processes")]
fn abort_says_why() {
    let (status, said) = in_child("checked_memory::tests::ends::abort_says_why", || {
        let memory = CheckedMemory::new("malloc", PLAIN, abort_with);
        let start = memory.allocate(100, 16).unwrap();
        // SAFETY: the second is the fault to be found.
        unsafe {
            memory.free(start, None);
            memory.free(start, None);
        }
    });
    assert_eq!(status.signal(), Some(SIGABRT), "{said}");
    assert_says(
        &said,
        &["millpond: double free in pool malloc", "100 bytes"],
    );
}

/// Goal: one byte too far behind a guarded block faults where it is written.
#[test]
#[cfg_attr(miri, ignore = "Miri starts no processes")]
fn guarded_overrun_faults() {
    let (status, said) = in_child(
        "checked_memory::tests::ends::guarded_overrun_faults",
        || {
            let memory = memory("guarded", GUARD);
            let start = memory.allocate(4096, 16).unwrap();
            // SAFETY: the block's last byte; then the fault to be found.
            unsafe {
                start.add(4095).write(1);
                start.add(4096).write(1);
            }
        },
    );
    assert_eq!(status.signal(), Some(SIGSEGV), "{said}");
}

/// Goal: so does the page before it.
#[test]
#[cfg_attr(miri, ignore = "Miri starts no processes")]
fn guarded_underrun_faults() {
    let (status, said) = in_child(
        "checked_memory::tests::ends::guarded_underrun_faults",
        || {
            let memory = memory("guarded", GUARD);
            let start = memory.allocate(100, 16).unwrap();
            // SAFETY: the fault to be found.
            unsafe { start.sub(rustix::param::page_size()).write(1) };
        },
    );
    assert_eq!(status.signal(), Some(SIGSEGV), "{said}");
}

/// Goal: reading a freed guarded block faults where it is read.
#[test]
#[cfg_attr(miri, ignore = "Miri starts no processes")]
fn guarded_use_after_free_faults() {
    let (status, said) = in_child(
        "checked_memory::tests::ends::guarded_use_after_free_faults",
        || {
            let memory = memory("guarded", GUARD);
            let start = memory.allocate(100, 16).unwrap();
            // SAFETY: lent above; the read is the fault to be found.
            unsafe {
                memory.free(start, None);
                std::hint::black_box(start.read_volatile());
            }
        },
    );
    assert_eq!(status.signal(), Some(SIGSEGV), "{said}");
}

/// Goal: when the process has no mapping left, guarded memory refuses like any that ran dry, frees
/// what it lent, and serves again.
#[test]
#[cfg_attr(miri, ignore = "Miri starts no processes")]
fn running_out_of_mappings_is_a_refusal() {
    let (status, said) = in_child(
        "checked_memory::tests::ends::running_out_of_mappings_is_a_refusal",
        || {
            let memory = memory("mappings", GUARD);
            for _ in 0..2 {
                let mut lent = Vec::with_capacity(200_000);
                let refusal = loop {
                    // Every fourth goes at once, so that there is a quarantine to release.
                    match memory.allocate(100, 16) {
                        // SAFETY: just lent.
                        Ok(start) if lent.len() % 4 == 3 => unsafe {
                            memory.free(start, None);
                            lent.push(None);
                        },
                        Ok(start) => lent.push(Some(start)),
                        Err(refusal) => break refusal,
                    }
                    assert!(lent.len() < 200_000, "the kernel has no such limit here");
                };
                let requested_bytes = 100;
                assert_eq!(refusal, PoolError::OutOfMemory { requested_bytes });
                assert!(lent.len() > 1000);
                assert_balanced(&memory);
                for start in lent.into_iter().flatten() {
                    // SAFETY: lent above and not used any more.
                    unsafe { memory.free(start, Some(100)) };
                }
                assert_eq!(memory.figures().live_objects, 0);
                assert_balanced(&memory);
            }
            std::process::exit(7);
        },
    );
    assert_eq!(status.code(), Some(7), "{said}");
}
