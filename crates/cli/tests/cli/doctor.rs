//! `millpond doctor`: the page, its record, and the exit status.

use crate::support::{millpond, run};

/// Goal: where servers and comparisons run (tests do) nothing essential is missing; the page fits a
/// terminal, and the record says the same.
#[test]
fn this_machine_is_fit() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("doctor.json").display().to_string();
    let finished = run(&mut millpond(&["doctor", "--json", &file]));
    assert_eq!(finished.code(), 0, "{finished:?}");
    for part in [
        "Serving",
        "Measuring",
        "Comparing",
        "Running the winner",
        "page size",
        "io_uring",
        "open files",
        "Everything essential",
    ] {
        assert!(finished.stdout.contains(part), "{part}: {finished:?}");
    }
    let widest = finished
        .stdout
        .lines()
        .map(|line| line.chars().count())
        .max();
    assert!(widest <= Some(80), "{finished:?}");
    let record: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(record["essential_missing"], false);
    let findings = record["findings"].as_array().unwrap();
    for finding in findings {
        let name = finding["name"].as_str().unwrap();
        assert!(finished.stdout.contains(name), "{name}: {finished:?}");
    }
}

/// Goal: a process that may open next to nothing gets the limits to raise, with status 1; and so does one whose shared
/// objects have no place.
#[test]
fn what_is_missing_is_status_one() {
    for (script, parts) in [
        (
            "ulimit -n 40; exec \"$0\" doctor",
            ["MISSING open files", "ulimit -n 16500"],
        ),
        (
            "TMPDIR=/nowhere exec \"$0\" doctor",
            ["MISSING temporary files", "TMPDIR=/var/tmp"],
        ),
    ] {
        let mut shell = std::process::Command::new("sh");
        let shell = shell.args(["-c", script, env!("CARGO_BIN_EXE_millpond")]);
        let finished = run(shell);
        assert_eq!(finished.code(), 1, "{finished:?}");
        for part in parts {
            assert!(finished.stdout.contains(part), "{part}: {finished:?}");
        }
    }
}

/// Goal: one machine reads another one's output: the page has its meaning for an allocator, and nothing of this
/// machine's own; a file of something else is refused with what writes it.
#[test]
fn the_machine_of_the_winner_is_told_by_its_facts() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("facts.txt");
    let finished = run(&mut millpond(&["doctor", "--print-facts"]));
    assert_eq!(finished.code(), 0, "{finished:?}");
    assert!(finished.stdout.contains("page_bytes="), "{finished:?}");
    let facts = finished
        .stdout
        .replace("page_bytes=4096", "page_bytes=65536");
    std::fs::write(&file, facts).unwrap();
    let own = env!("CARGO_BIN_EXE_millpond");
    let deploy = || run(millpond(&["doctor", "--program", own, "--deploy"]).arg(&file));
    let finished = deploy();
    assert_eq!(finished.code(), 0, "{finished:?}");
    let text = finished
        .stdout
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    for part in [
        "Running the winner",
        "64 KiB",
        "--with-lg-page=16",
        "(this machine: page_bytes 4096)",
        "takes a preloaded allocator",
    ] {
        assert!(text.contains(part), "{part}: {finished:?}");
    }
    assert!(!finished.stdout.contains("Serving"), "{finished:?}");
    std::fs::write(&file, "nothing of the kind\n").unwrap();
    let finished = deploy();
    assert_eq!(finished.code(), 1, "{finished:?}");
    assert!(
        finished.sentence().contains("--print-facts"),
        "{finished:?}"
    );
}

/// Goal: of a running process the first lines say which allocator it has; the page fits a terminal, the record has the
/// same; an unused id is status 1 and a sentence, and what contradicts itself is wrong usage.
#[test]
fn a_running_process_is_examined() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("process.json").display().to_string();
    let own = std::process::id().to_string();
    let finished = run(&mut millpond(&["doctor", "--pid", &own, "--json", &file]));
    assert_eq!(finished.code(), 0, "{finished:?}");
    for part in [
        "serves malloc",
        "Allocator",
        "Settings",
        "resident",
        "not touched",
    ] {
        assert!(finished.stdout.contains(part), "{part}: {finished:?}");
    }
    let is_path = |line: &&str| line.trim_start().starts_with('/');
    let lines = finished.stdout.lines().filter(|line| !is_path(line));
    let widest = lines.map(|line| line.chars().count()).max();
    assert!(widest <= Some(80), "{finished:?}");
    let text = std::fs::read_to_string(&file).unwrap();
    let record: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(record["process"]["pid"].to_string(), own);
    assert_eq!(record["process"]["allocator"]["served"][0]["name"], "glibc");
    let none = run(&mut millpond(&["doctor", "--pid", "2147483647"]));
    assert_eq!(none.code(), 1, "{none:?}");
    assert!(none.stderr.contains("there is no process"), "{none:?}");
    for words in [["--pid", "0"], ["--pid", "x"], ["--pid=1", "--print-facts"]] {
        let wrong = run(millpond(&["doctor"]).args(words));
        assert_eq!(wrong.code(), 2, "{wrong:?}");
    }
}
