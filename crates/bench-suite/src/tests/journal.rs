use super::*;

/// Goal: kept lines are found by the next run, also behind a line that a kill cut short.
#[test]
fn kept_comparisons_are_found_again() {
    let directory = tempfile::tempdir().unwrap();
    let comparison = Comparison::of_record(json!({"details": [], "settings": {"rounds_done": 3}}));
    let mut journal = Journal::open(directory.path(), "x").unwrap();
    journal.keep("one", &comparison).unwrap();
    journal.write("{\"key\": \"two\", \"comp").unwrap();
    let mut again = Journal::open(directory.path(), "x").unwrap();
    assert!(again.find("one").is_some() && again.find("two").is_none());
    again.keep("three", &comparison).unwrap();
    let last = Journal::open(directory.path(), "x").unwrap();
    let rounds = last.find("three").unwrap().course()["rounds"].clone();
    assert_eq!((rounds, last.find("one").is_some()), (json!(3), true));
}
