//! Our own C program, which uses every function of the family: see `exercise.c`.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use crate::harness::{find_program, preloaded, run};

/// Compiles the program once for all tests of this file.
pub(crate) fn program() -> Option<PathBuf> {
    static PROGRAM: OnceLock<Option<(tempfile::TempDir, PathBuf)>> = OnceLock::new();
    let compiled = PROGRAM.get_or_init(|| {
        let compiler = find_program("cc")?;
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/preloaded/exercise.c");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let program = directory.path().join("exercise");
        run(Command::new(compiler)
            .args(["-O1", "-g", "-Wall", "-Wextra", "-fno-builtin", "-pthread"])
            .arg("-o")
            .arg(&program)
            .arg(source)
            .arg("-ldl"))
        .expect_ok();
        Some((directory, program))
    });
    compiled.as_ref().map(|(_, program)| program.clone())
}

#[track_caller]
fn exercise(part: &str) {
    exercise_with(part, &[]);
}

/// Runs a part with more in its environment.
#[track_caller]
pub(crate) fn exercise_with(part: &str, environment: &[(&str, &str)]) {
    let Some(program) = program() else { return };
    let mut command = preloaded(&program);
    let output = run(command.arg(part).envs(environment.iter().copied())).expect_ok();
    assert_eq!(output, format!("ok {part}\n"));
}

/// Goal: every size is aligned, writable to its last usable byte, zeroed by calloc even where the
/// memory was written before, and kept by realloc.
#[test]
fn sizes() {
    exercise("sizes");
}

/// Goal: any power of two up to 64 MiB is an alignment, by all five functions.
#[test]
fn alignment() {
    exercise("alignment");
}

/// Goal: null pointers, zero sizes, overflows, impossible sizes and errno are as the manual says.
#[test]
fn edges() {
    exercise("edges");
}

/// Goal: a block keeps its bytes however it grows and shrinks; shrinking gives memory back.
#[test]
fn realloc() {
    exercise("realloc");
}

/// Goal: blocks that wander between threads stay whole.
#[test]
fn threads() {
    exercise("threads");
}

/// Goal: thousands of threads that come and go, leaving blocks to each other, leave no memory behind.
#[test]
fn storm() {
    exercise("storm");
}

/// Goal: memory is bounded when one thread only allocates and another only frees.
#[test]
fn producer() {
    exercise("producer");
}

/// Goal: allocation works in thread-specific destructors, after main's thread ended, and at exit.
#[test]
fn ends() {
    exercise("ends");
}

/// Goal: a child forked while other threads allocate can allocate, free, start threads, and fork.
#[test]
fn fork() {
    exercise("fork");
}

/// Goal: signals at any instruction of the allocator do it no harm.
#[test]
fn signals() {
    exercise("signals");
}

/// Goal: most of the memory goes back to the system once it is freed.
#[test]
fn returned() {
    exercise("returned");
}

/// Goal: libraries that come and go at run time, and the C library's own blocks, are served.
#[test]
fn loader() {
    exercise("loader");
}

/// Goal: calloc is zero in a process whose pages are locked, where they do not go back.
#[test]
fn locked() {
    exercise("locked");
}
