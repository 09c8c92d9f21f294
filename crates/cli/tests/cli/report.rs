//! `millpond report`: the page again, byte for byte.

use crate::support::{millpond, run};
use crate::synthetic::{nine_plans, record};
use millpond_measure::report::html;
use std::path::Path;

fn written(directory: &Path) -> (String, String) {
    let record = record(&nine_plans(), 10, 0.03, 7);
    let file = directory.join("results.json");
    std::fs::write(&file, record.to_json().unwrap()).unwrap();
    (file.display().to_string(), html::render(&record))
}

/// Goal: the page is the one that was written, beside the record or where one says, from the record
/// and from the page itself; the text is compare's.
#[test]
fn the_page_comes_again_byte_for_byte() {
    let directory = tempfile::tempdir().unwrap();
    let (file, page) = written(directory.path());
    let finished = run(&mut millpond(&["report", &file]));
    assert_eq!(finished.code(), 0, "{finished:?}");
    assert!(finished.stdout.contains("\nThroughput: "), "{finished:?}");
    let beside = directory.path().join("report.html");
    assert!(std::fs::read_to_string(&beside).unwrap() == page);

    let (again, json) = (
        directory.path().join("again.html").display().to_string(),
        directory.path().join("again.json").display().to_string(),
    );
    let beside = beside.display().to_string();
    let words = ["report", &beside, "--out", &again, "--json", &json];
    let finished = run(&mut millpond(&words));
    assert_eq!(finished.code(), 0, "{finished:?}");
    assert!(finished.stdout.contains(&format!("Report: {again}")));
    assert!(std::fs::read_to_string(&again).unwrap() == page);
    let same = std::fs::read(&json).unwrap() == std::fs::read(&file).unwrap();
    assert!(same, "the record differs after reading it out of its page");
}

/// Goal: a file that is missing, or something else, is one sentence that names it.
#[test]
fn other_files_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let other = directory.path().join("other.json").display().to_string();
    for (text, part) in [(None, "cannot be read"), (Some("{}"), "no candidates")] {
        if let Some(text) = text {
            std::fs::write(&other, text).unwrap();
        }
        let finished = run(&mut millpond(&["report", &other]));
        assert_eq!(finished.code(), 1, "{finished:?}");
        let sentence = finished.sentence();
        assert!(
            sentence.contains(part) && sentence.contains("other.json"),
            "{sentence}"
        );
        assert!(!directory.path().join("report.html").exists());
    }
}
