use super::*;
use crate::record::{CandidateRounds, LoadReport};

fn record() -> ComparisonRecord {
    let mut record = ComparisonRecord::new("1.2.3");
    record.candidates = vec![CandidateRounds {
        name: "a<b> & \"c\"".to_owned(),
        ..CandidateRounds::default()
    }];
    record
}

/// Goal: the record comes back whole from its file and from its page.
#[test]
fn a_record_comes_back_from_file_and_page() {
    let record = record();
    let file = ComparisonRecord::from_text(&record.to_json().unwrap()).unwrap();
    assert_eq!(file, record);
    let page = crate::report::html::render(&record);
    assert_eq!(ComparisonRecord::from_text(&page).unwrap(), record);
}

/// Goal: a file that is no record of a comparison is named as such, whatever it is.
#[test]
fn other_files_are_refused() {
    let load = serde_json::to_string(&LoadReport::default()).unwrap();
    let newer = record().to_json().unwrap();
    let newer = newer.replace("\"format_version\": 1", "\"format_version\": 9");
    for (text, part) in [
        ("", "no record"),
        ("{}", "no candidates"),
        ("[1]", "no record"),
        ("<html></html>", "page holds no record"),
        (load.as_str(), "no candidates"),
        (newer.as_str(), "version 9"),
    ] {
        let error = ComparisonRecord::from_text(text).unwrap_err().to_string();
        assert!(error.contains(part), "{text:.40}: {error}");
    }
}
