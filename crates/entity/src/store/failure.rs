//! Which failures of the engine pass, by the sentence in which it says them.
//!
//! RocksDB passes on the system's word for an error at the end of its sentence, and in front of the file's
//! name what it was doing. The binding has no number for either.

use super::Failure;

/// What the machine may be short of now and have again later: EMFILE, ENFILE, ENOMEM, ENOSPC, EDQUOT.
const PASSING: [&str; 5] = [
    "Too many open files",
    "Too many open files in system",
    "Cannot allocate memory",
    "No space left on device",
    "Disk quota exceeded",
];

/// Of the engine's sentence. A sync that failed lasts, whatever for: the kernel may have dropped what it did
/// not write, and say nothing the next time. After a failed `sync` call nothing passes but a file that could
/// not be opened, which came before it.
pub(super) fn of(operation: &str, cause: &str) -> Failure {
    let is_passing = PASSING.iter().any(|words| cause.ends_with(words));
    let doing = doing(cause);
    let is_sync = match operation {
        "sync" => !doing.contains("open"),
        _ => doing.contains("sync") || doing.is_empty(),
    };
    match is_passing && !is_sync {
        true => Failure::Passing,
        false => Failure::Lasting,
    }
}

/// What the engine was doing: "While open a file for appending". In front of the file's name, which may
/// have any words in it.
fn doing(cause: &str) -> &str {
    let from = cause.find("While ").unwrap_or(cause.len());
    let rest = &cause[from..];
    rest.split_once(": ").map_or("", |(doing, _)| doing)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what passes is known by the engine's sentences, and a failed sync never passes.
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
}
