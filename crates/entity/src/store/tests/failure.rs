use super::*;

/// Goal: temporary failures are recognized by the engine's messages, and a failed sync is never temporary.
#[test]
fn sentences_of_the_engine_are_sorted() {
    let file = "/data/sync open/000012.log";
    let open = format!("IO error: While open a file for appending: {file}");
    for (operation, cause, failure) in [
        (
            "commit",
            format!("{open}: Too many open files"),
            Failure::Passing,
        ),
        (
            "sync",
            format!("{open}: Too many open files"),
            Failure::Passing,
        ),
        (
            "commit",
            format!("{open}: Input/output error"),
            Failure::Lasting,
        ),
        (
            "commit",
            format!(
                "IO error: No space left on device: While appending to file: {file}: No space left on device"
            ),
            Failure::Passing,
        ),
        (
            "sync",
            format!("IO error: While appending to file: {file}: No space left on device"),
            Failure::Lasting,
        ),
        (
            "commit",
            format!("IO error: While fdatasync: {file}: No space left on device"),
            Failure::Lasting,
        ),
        (
            "commit",
            format!("IO error: While fsync: {file}: Input/output error"),
            Failure::Lasting,
        ),
        (
            "commit",
            "Corruption: block checksum mismatch".to_owned(),
            Failure::Lasting,
        ),
        (
            "commit",
            "No space left on device".to_owned(),
            Failure::Lasting,
        ),
    ] {
        assert_eq!(of(operation, &cause), failure, "{operation}: {cause}");
    }
}
