use super::*;

/// Goal: a record file is refused before the run where it could not be written after it.
#[test]
fn a_record_needs_a_directory_that_exists() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    assert!(JsonFile::parse(&path("record.json")).is_ok());
    assert!(JsonFile::parse("record.json").is_ok());
    let error = JsonFile::parse(&path("absent/record.json")).unwrap_err();
    assert!(error.contains("does not exist"), "{error}");
    assert!(JsonFile::parse(&directory.path().display().to_string()).is_err());
    assert!(JsonFile::parse("").is_err());
}

/// Goal: a record replaces the file that was named and no other, whatever is called as its draft could be.
#[test]
fn a_record_writes_over_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("record.json"), "an earlier one").unwrap();
    let strangers = [
        "record.json.partial".to_owned(),
        format!("record.json.{}-0.partial", std::process::id()),
    ];
    for name in &strangers {
        std::fs::write(path(name), "mine").unwrap();
    }
    let file = JsonFile::parse(&path("record.json").display().to_string()).unwrap();
    assert!(file.write("{}").is_ok());
    assert_eq!(std::fs::read_to_string(path("record.json")).unwrap(), "{}");
    for name in &strangers {
        assert_eq!(std::fs::read_to_string(path(name)).unwrap(), "mine");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 3);
}

/// Goal: a sentence is broken between words and hangs behind its sign, what is set in stays, and
/// nothing of it is lost.
#[test]
fn sentences_hang_behind_their_sign() {
    let text = hanging("one two three four five six seven\n    own lines stay", 30);
    let expected = "one two three four\n          five six seven\n              own lines stay";
    assert_eq!(text, expected);
    let word = "w".repeat(90);
    assert_eq!(hanging(&word, 80), word);
}

/// Goal: numbers of errors are removed wherever they stand; text that only resembles one stays.
#[test]
fn numbers_of_errors_are_left_out() {
    for (sentence, expected) in [
        ("a: No such file (os error 2)", "a: No such file"),
        ("b (os error 111); try (os error 4)!", "b; try!"),
        ("c (os error x)", "c (os error x)"),
        ("d (os error )", "d (os error )"),
        ("e (os error 12", "e (os error 12"),
        ("f", "f"),
    ] {
        assert_eq!(without_numbers(sentence), expected);
    }
}

/// Goal: a wait is never shown as shorter than it is, and reads as a person would say it.
#[test]
fn waits_are_rounded_up() {
    for (duration_ns, text) in [
        (0, "0 s"),
        (1, "1 s"),
        (59_000_000_000, "59 s"),
        (59_000_000_001, "1 min"),
        (245_000_000_000, "4 min 5 s"),
    ] {
        assert_eq!(whole_seconds(duration_ns), text);
    }
}

/// Goal: an older record stays whole until the new one is, and no partial file is left.
#[test]
fn a_record_replaces_an_older_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("record.json");
    let file = JsonFile::parse(&path.display().to_string()).unwrap();
    for number in [1, 2] {
        file.write(&format!("record {number}\n")).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "record 2\n");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}
