//! Wrong usage, help, and readers that close the pipe.

use crate::support::{millpond, run};
use std::process::Stdio;

/// Goal: each wrong command line ends with 2, says what is wrong, and does nothing.
#[test]
fn wrong_usage_ends_with_2_and_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    for (words, part) in [
        (&[][..], "Usage"),
        (&["grind"], "grind"),
        (&["serve"], "Usage"),
        (&["serve", "files"], "files"),
        (&["serve", "plaintext", "--listen", "nowhere"], "--listen"),
        (&["serve", "plaintext", "--driver", "kqueue"], "epoll"),
        (&["serve", "entity", "--sync", "maybe"], "interval:MS"),
        (&["load"], "URL"),
        (&["load", "ftp://127.0.0.1/"], "http"),
        (
            &["load", "-t", "3", "-c", "2", "http://127.0.0.1/"],
            "--threads 3",
        ),
        (
            &["load", "--json", "absent/run.json", "http://127.0.0.1/"],
            "does not exist",
        ),
        (&["compare", "--", "true"], "--url"),
        (&["compare", "--pools", "half"], "on, off"),
        (&["profile", "--", "true"], "--url"),
        (&["profile", "--pid", "1", "--", "true"], "cannot be used"),
        (&["profile", "--unwind", "lbr"], "dwarf"),
        (&["proxy"], "--upstream HOST:PORT"),
        (
            &["proxy", "--upstream", "a:1", "--retry-budget", "101"],
            "from 0 to 100",
        ),
        (
            &["serve", "plaintext", "--max-fields", "500"],
            "--max-fields 500: use a value from 1 to 128",
        ),
        (&["serve", "entity", "--max-value", "2GiB"], "at most 1GiB"),
        (&["load", "-R", "-5", "http://127.0.0.1/"], "write 2000"),
        (&["bench"], "Usage"),
        (
            &["bench", "pools", "--programs", "grind"],
            "producer-consumer",
        ),
        (&["bench", "pools", "--iterations", "0"], "at least 1"),
    ] {
        let finished = run(millpond(words).current_dir(&directory));
        assert_eq!(finished.code(), 2, "{words:?}: {finished:?}");
        assert!(finished.stderr.contains(part), "{words:?}: {finished:?}");
        assert_eq!(finished.stdout, "", "{words:?}");
    }
    assert_eq!(
        std::fs::read_dir(&directory).unwrap().count(),
        0,
        "something was written"
    );
}

/// Goal: without the second word the help of the first is shown, and not signed as if it were a sentence; a sentence is
/// signed, and without the number that Rust puts behind the kernel's words.
#[test]
fn help_is_no_sentence() {
    for words in [&[][..], &["serve"], &["bench"]] {
        let finished = run(&mut millpond(words));
        assert!(!finished.stderr.starts_with("millpond:"), "{finished:?}");
        assert!(
            finished.stderr.contains("\nUsage: millpond"),
            "{finished:?}"
        );
    }
    let finished = run(&mut millpond(&["report", "/nowhere.json"]));
    let expected = "/nowhere.json: it cannot be read: No such file or directory";
    assert_eq!(finished.sentence(), expected);
}

/// Goal: help and version are results: on stdout, with status 0.
#[test]
fn help_is_a_result() {
    for words in [
        &["--help"][..],
        &["--version"],
        &["load", "--help"],
        &["serve", "entity", "-h"],
    ] {
        let finished = run(&mut millpond(words));
        assert_eq!(finished.code(), 0, "{words:?}");
        assert!(
            finished.stdout.contains("millpond"),
            "{words:?}: {finished:?}"
        );
        assert_eq!(finished.stderr, "", "{words:?}");
    }
}

/// Goal: a build says what it is, for people and for programs.
#[test]
fn a_build_says_what_it_is() {
    let finished = run(&mut millpond(&["version", "--json", "-"]));
    assert_eq!(finished.code(), 0, "{finished:?}");
    let (text, json) = finished.stdout.split_once("\n{").expect("both");
    for part in [
        "millpond ",
        "commit ",
        "features  entity",
        "engine    rocksdb ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let record: serde_json::Value = serde_json::from_str(&format!("{{{json}")).unwrap();
    assert_eq!(record["version"], env!("CARGO_PKG_VERSION"));
    assert_ne!(record["engine"]["version"], "unknown");
}

/// Goal: objects to be preloaded elsewhere can be extracted, twice too, and no existing file is replaced.
#[test]
fn objects_are_extracted_once() {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().display().to_string();
    for _ in 0..2 {
        let finished = run(&mut millpond(&["allocators", "--extract", &to]));
        assert_eq!(finished.code(), 0, "{finished:?}");
        assert!(
            finished.stdout.contains("libmillpond-trim.so"),
            "{finished:?}"
        );
    }
    let own = directory.path().join("libmillpond-trim.so");
    std::fs::write(&own, "mine").unwrap();
    let finished = run(&mut millpond(&["allocators", "--extract", &to]));
    assert_eq!(finished.code(), 1, "{finished:?}");
    assert!(finished.stderr.contains("is not replaced"), "{finished:?}");
    assert_eq!(std::fs::read(&own).unwrap(), b"mine");
}

/// Goal: a closed pipe, as with `head`, is not an error.
#[test]
fn a_broken_pipe_is_success() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = millpond(&["compare", "--help"]);
    let output = command.stdout(writer).stderr(Stdio::piped()).spawn();
    let output = output.unwrap().wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(output.stderr, b"");
}
