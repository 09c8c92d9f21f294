//! `git gc`: processes that start processes and threads, over the history of this very project.

use std::path::Path;
use std::process::Command;

use crate::harness::{demand_bound, find_program, preloaded, run};

fn git(program: &Path, at: &Path, words: &[&str], under_test: bool) -> String {
    let mut command = if under_test {
        preloaded(program)
    } else {
        Command::new(program)
    };
    // Nothing of the machine's or a surrounding git's configuration takes part.
    let settings = [
        "-c",
        "gc.auto=0",
        "-c",
        "pack.threads=3",
        // Less than the 250 that it compares each object with otherwise, which takes four times as long.
        "-c",
        "gc.aggressiveWindow=40",
        "-c",
        "safe.directory=*",
    ];
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(name);
    }
    run(command
        .current_dir(at)
        .args(settings)
        .args(words)
        .env("GIT_CONFIG_NOSYSTEM", "1"))
    .expect_ok()
}

/// Goal: a clone is packed anew by several threads, nothing of it is lost, and all of it is sound.
#[test]
fn git_packs_a_history() {
    let Some(program) = find_program("git") else {
        return;
    };
    demand_bound(&program, &["--version"]);
    let directory = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let inside = Command::new(&program)
        .current_dir(source)
        .args(["-c", "safe.directory=*", "rev-parse", "--show-toplevel"])
        .output()
        .expect("git starts");
    if !inside.status.success() {
        eprintln!("skipped: these sources are not in a git repository");
        return;
    }
    let top = String::from_utf8(inside.stdout).unwrap();
    let clone = [
        "clone",
        "--quiet",
        "--bare",
        // As over a network: files of these sources may change during the test.
        "--no-local",
        top.trim(),
        "copy",
    ];
    git(&program, directory.path(), &clone, true);
    let copy = directory.path().join("copy");
    let everything = ["rev-list", "--all", "--objects", "--no-object-names"];
    let expected = git(&program, &copy, &everything, false);
    let words = ["gc", "--quiet", "--aggressive", "--prune=now"];
    git(&program, &copy, &words, true);
    git(&program, &copy, &["fsck", "--full", "--strict"], true);
    assert_eq!(git(&program, &copy, &everything, true), expected);
    assert!(expected.lines().count() > 100);
    let log = ["log", "-p", "-n", "40", "--stat"];
    assert_eq!(
        git(&program, &copy, &log, true),
        git(&program, &copy, &log, false)
    );
}
