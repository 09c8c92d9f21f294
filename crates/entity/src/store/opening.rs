//! Opening the engine, and its sentences when it refuses.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rocksdb::{DB, DBRecoveryMode, ErrorKind, Options};

use millpond_http::log::{self, LogLevel};

use super::shortage::has_descriptors;
use crate::data_dir::DataDirError;

/// How the end of the newest log is read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LogEnd {
    /// All of it, or the engine refuses.
    Whole,
    /// Up to the place at which a crash cut it off.
    Torn,
    /// Up to the first place that cannot be read, whatever was lost behind it.
    Damaged,
}

/// Opens it. Where the end of its log is torn, says so.
pub(super) fn open_logged(
    mut options: Options,
    path: &Path,
    end: LogEnd,
) -> Result<DB, rocksdb::Error> {
    options.set_wal_recovery_mode(recovery_mode(end));
    let db = DB::open(&options, path)?;
    if end == LogEnd::Torn {
        log::write(
            LogLevel::Warn,
            format_args!(
                "the write-ahead log of {} ends in the middle of a write, as after a crash: that write was \
                 acknowledged to nobody and is not there",
                path.display()
            ),
        );
    }
    Ok(db)
}

/// Opens it for reading alone: nothing is written, and nothing locked. The log's changes are taken into memory, as far as
/// they are whole.
pub(super) fn open_read_only(
    mut options: Options,
    path: &Path,
    end: LogEnd,
) -> Result<DB, rocksdb::Error> {
    options.set_wal_recovery_mode(recovery_mode(end));
    options.create_if_missing(false);
    DB::open_for_read_only(&options, path, false)
}

fn recovery_mode(end: LogEnd) -> DBRecoveryMode {
    match end {
        LogEnd::Whole => DBRecoveryMode::AbsoluteConsistency,
        LogEnd::Torn | LogEnd::Damaged => DBRecoveryMode::PointInTime,
    }
}

/// What may be done with what is opened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Access {
    Full,
    ReadOnly,
}

/// Opens it again in the process that wrote it. Its log may end in a write that failed and was acknowledged to
/// nobody; the caller compares what is there with what was acknowledged.
pub(super) fn open_again(
    options: &Options,
    path: &Path,
    access: Access,
) -> Result<DB, rocksdb::Error> {
    let open = |end| match access {
        Access::Full => {
            let mut options = options.clone();
            options.set_wal_recovery_mode(recovery_mode(end));
            DB::open(&options, path)
        }
        Access::ReadOnly => open_read_only(options.clone(), path, end),
    };
    match open(LogEnd::Whole) {
        Err(refusal) if refusal.kind() == ErrorKind::Corruption => open(LogEnd::Torn),
        opened => opened,
    }
}

/// The version in the newest OPTIONS file: the engine writes one each time it opens a directory,
/// so after opening it is the version that runs, and before, the one that ran last.
pub(super) fn newest_options_version(path: &Path) -> Option<String> {
    let newest: PathBuf = fs::read_dir(path)
        .ok()?
        .filter_map(Result::ok)
        .filter_map(|entry| {
            let name = entry.file_name();
            let number = name
                .to_str()?
                .strip_prefix("OPTIONS-")?
                .parse::<u64>()
                .ok()?;
            Some((number, entry.path()))
        })
        .max()?
        .1;
    let text = fs::read_to_string(newest).ok()?;
    let version = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("rocksdb_version="))?;
    Some(version.to_owned())
}

/// Turns the engine's sentence into one that names the directory and what to do.
pub(super) fn open_error(
    path: &Path,
    error: &rocksdb::Error,
    written_by: Option<&str>,
) -> DataDirError {
    let cause = error.to_string();
    let path = path.to_owned();
    if cause.contains("lock")
        && (cause.contains("temporarily unavailable") || cause.contains("current process"))
    {
        return DataDirError::Locked { path };
    }
    if cause.contains("Permission denied") {
        return DataDirError::PermissionDenied {
            path,
            operation: "write to",
        };
    }
    if cause.contains("Read-only file system") {
        return DataDirError::ReadOnlyMount { path };
    }
    if ["No space left on device", "Disk quota exceeded"]
        .iter()
        .any(|sign| cause.contains(sign))
    {
        return DataDirError::NoRoom { path, cause };
    }
    if !has_descriptors() {
        return DataDirError::Descriptors { path, cause };
    }
    // An older library meeting newer files says "not supported" or "corruption", depending on which file it read
    // first.
    let is_refused = matches!(
        error.kind(),
        ErrorKind::NotSupported | ErrorKind::Corruption
    );
    let newer = written_by.filter(|_| is_refused);
    newer
        .and_then(|found| newer_format(&path, found))
        .unwrap_or(DataDirError::Engine { path, cause })
}

/// The refusal of files that a later version of the engine wrote, which look like damage to this one; `None` if it was
/// no later one. Opens an engine elsewhere to find out: only for what is refused anyway.
pub(super) fn newer_format(path: &Path, written_by: &str) -> Option<DataDirError> {
    let running = probe_version()?;
    (version_of(written_by) > version_of(&running)).then(|| DataDirError::NewerFormat {
        path: path.to_owned(),
        found: format!("RocksDB {written_by}"),
        supported: format!("RocksDB {running}"),
    })
}

/// The version of the linked library, without a data directory that could tell: a new, empty one in the temporary
/// directory does. The binding has no call that answers this.
pub(crate) fn probe_version() -> Option<String> {
    let scratch = new_directory(&std::env::temp_dir(), "probe")?;
    let mut options = Options::default();
    options.create_if_missing(true);
    let version = DB::open(&options, &scratch)
        .ok()
        .and_then(|_open| newest_options_version(&scratch));
    // Best effort: what stays behind is an empty database in the temporary directory.
    let _ = fs::remove_dir_all(&scratch);
    version
}

/// One in `parent` that nobody had before: not another thread of ours, which may be asking the same,
/// nor a process that died with our number.
pub(super) fn new_directory(parent: &Path, purpose: &str) -> Option<PathBuf> {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    const TRIES_MAX: usize = 100;
    let names = std::iter::repeat_with(|| {
        let number = TRIED.fetch_add(1, Ordering::Relaxed);
        parent.join(format!(
            "millpond-{purpose}-{}-{number}",
            std::process::id()
        ))
    });
    let mut made = names
        .take(TRIES_MAX)
        .map(|path| (fs::create_dir(&path), path));
    made.find_map(|(made, path)| made.is_ok().then_some(path))
}

fn version_of(text: &str) -> Vec<u32> {
    text.split('.')
        .map_while(|part| part.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: who asks at the same time is answered too. The directory was named by the process alone, and
    /// of two threads one took data of a later engine for damage, in one test run of sixty.
    #[test]
    fn all_who_ask_for_the_version_are_told() {
        let answers = std::thread::scope(|scope| {
            let asking = [0; 4].map(|_| scope.spawn(probe_version));
            asking.map(|thread| thread.join().unwrap())
        });
        assert!(answers[0].is_some());
        assert!(answers.iter().all(|answer| *answer == answers[0]));
    }
}
