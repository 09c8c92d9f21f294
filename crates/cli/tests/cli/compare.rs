//! Refusals of the comparison; what it measures is tested where it is made.

use crate::support::{millpond, run};
use std::path::Path;

fn compare(words: &[&str], out: &Path) -> crate::support::Finished {
    run(millpond(&["compare", "--out", &out.display().to_string()]).args(words))
}

/// Goal: an allocator that does not exist is one sentence that names it.
#[test]
fn an_unknown_allocator_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("report");
    let finished = compare(&["--allocators", "glibc,frobnicator"], &out);
    assert_eq!(finished.code(), 1, "{finished:?}");
    assert!(finished.sentence().contains("frobnicator"), "{finished:?}");
}

/// Goal: a program that cannot be started is a failure that names it, not an empty report.
#[test]
fn a_missing_program_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("report");
    let words = ["--url", "http://127.0.0.1:9/", "--", "/nowhere/server"];
    let finished = compare(&words, &out);
    assert_eq!(finished.code(), 1, "{finished:?}");
    assert!(finished.stderr.contains("/nowhere/server"), "{finished:?}");
    assert!(!out.join("results.json").exists());
}
