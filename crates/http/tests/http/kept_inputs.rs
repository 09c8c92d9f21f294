//! Inputs that the fuzzer invented, kept because each reaches code that no other does; those that once
//! broke something have its story as their name.

use crate::fuzz::{chunks, differential, heads, target};
use std::path::Path;

/// Runs a harness on every file of its directory.
fn replay(name: &str, run: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpus")
        .join(name);
    let mut count = 0;
    for entry in std::fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        run(&std::fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count > 0, "{} is empty", directory.display());
}

/// Goal: results for these inputs when they were found still hold.
#[test]
fn heads_hold() {
    replay("heads", heads::run);
}

/// Goal: the same for chunked bodies.
#[test]
fn chunks_hold() {
    replay("chunks", chunks::run);
}

/// Goal: the same for targets.
#[test]
fn targets_hold() {
    replay("target", target::run);
}

/// Goal: the same for disagreements with httparse.
#[test]
fn differences_hold() {
    replay("differential", differential::run);
}
