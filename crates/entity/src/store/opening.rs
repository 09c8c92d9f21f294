//! The engine's opening: what its log and its files say about what is there, in sentences.
//!
//! Place: [`super::rocksdb`] opens a directory by it. Absent on purpose: what the engine is told to be,
//! which is the options that it is given.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rocksdb::{DB, DBRecoveryMode, ErrorKind, Options};

use millpond_http::log::{self, LogLevel};

use super::shortage::has_descriptors;
use crate::data_dir::DataDirError;

/// Opens it, and says so if its log could not be read to the end.
pub(super) fn open_logged(options: Options, path: &Path) -> Result<DB, rocksdb::Error> {
    let (db, damage) = open_with_damage(options, path, Access::Full)?;
    if let Some(cause) = damage {
        log::write(
            LogLevel::Warn,
            format_args!(
                "the write-ahead log of {} cannot be read to its end ({cause}), and what stood behind is \
                 gone: after a crash that is what nobody was promised; if there was none, the disk has \
                 lost acknowledged writes, and a backup has them",
                path.display()
            ),
        );
    }
    Ok(db)
}

/// Opens it again in the process that wrote it. Its log may end in a write that failed and was acknowledged to
/// nobody; the caller compares what is there with what was acknowledged.
pub(super) fn open_again(
    options: Options,
    path: &Path,
    access: Access,
) -> Result<DB, rocksdb::Error> {
    let (db, _) = open_with_damage(options, path, access)?;
    Ok(db)
}

/// What may be done with what is opened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Access {
    Full,
    /// Nothing is written, and nothing locked: the log's changes are taken into memory, as far as they are whole.
    ReadOnly,
}

impl Access {
    fn open(self, options: &Options, path: &Path) -> Result<DB, rocksdb::Error> {
        match self {
            Self::Full => DB::open(options, path),
            Self::ReadOnly => DB::open_for_read_only(options, path, false),
        }
    }
}

/// Opens it, and tells what of its log cannot be read. Behind such a place the engine reads nothing more.
/// A log ends like that when a crash comes in the middle of a write, which was promised to nobody. But its
/// middle is like that when the disk has lost it, and then what stood behind was promised. The engine
/// cannot tell one from the other, and says nothing of its own: it has to be told to refuse first.
fn open_with_damage(
    mut options: Options,
    path: &Path,
    access: Access,
) -> Result<(DB, Option<String>), rocksdb::Error> {
    options.set_wal_recovery_mode(DBRecoveryMode::AbsoluteConsistency);
    match access.open(&options, path) {
        Ok(db) => Ok((db, None)),
        Err(refusal) if refusal.kind() == ErrorKind::Corruption => {
            options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
            Ok((access.open(&options, path)?, Some(refusal.into_string())))
        }
        Err(error) => Err(error),
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
    if cause.contains("Permission denied") || cause.contains("Read-only file system") {
        return DataDirError::PermissionDenied {
            path,
            operation: "write to",
        };
    }
    if !has_descriptors() {
        return DataDirError::Descriptors { path, cause };
    }
    // An older library meeting newer files says "not supported" or "corruption", depending on
    // which file it read first. Which one wrote them last tells the two apart.
    let refused = matches!(
        error.kind(),
        ErrorKind::NotSupported | ErrorKind::Corruption
    );
    let versions = if refused {
        written_by.zip(probe_version())
    } else {
        None
    };
    match versions {
        Some((found, running)) if version_of(found) > version_of(&running) => {
            DataDirError::NewerFormat {
                path,
                found: format!("RocksDB {found}"),
                supported: format!("RocksDB {running}"),
            }
        }
        _ => DataDirError::Engine { path, cause },
    }
}

/// The version of the linked library, when the data directory did not open and so could not tell:
/// a new, empty directory elsewhere does. The binding has no call that answers this.
fn probe_version() -> Option<String> {
    let scratch = new_directory(&std::env::temp_dir())?;
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
fn new_directory(parent: &Path) -> Option<PathBuf> {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    const TRIES_MAX: usize = 100;
    let names = std::iter::repeat_with(|| {
        let number = TRIED.fetch_add(1, Ordering::Relaxed);
        parent.join(format!("millpond-probe-{}-{number}", std::process::id()))
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

    fn options() -> Options {
        let mut options = Options::default();
        options.create_if_missing(true);
        options
    }

    /// Entities of a directory whose log was changed, and what its opening said.
    fn after(change: impl FnOnce(&mut Vec<u8>)) -> (usize, Option<String>) {
        let data = tempfile::tempdir().unwrap();
        let (db, damage) = open_with_damage(options(), data.path(), Access::Full).unwrap();
        assert_eq!(damage, None, "new");
        for key in 0..100_u8 {
            db.put([key], [key; 100]).unwrap();
        }
        db.flush_wal(true).unwrap();
        drop(db);
        let files = fs::read_dir(data.path()).unwrap();
        let mut paths = files.map(|entry| entry.unwrap().path());
        let log = paths.find(|path| path.extension().is_some_and(|kind| kind == "log"));
        let log = log.unwrap();
        let mut bytes = fs::read(&log).unwrap();
        change(&mut bytes);
        fs::write(&log, bytes).unwrap();
        let (db, damage) = open_with_damage(options(), data.path(), Access::Full).unwrap();
        let left = db.iterator(rocksdb::IteratorMode::Start).count();
        drop(db);
        let (_, again) = open_with_damage(options(), data.path(), Access::Full).unwrap();
        assert_eq!(again, None, "it is said once");
        (left, damage)
    }

    /// A log that the disk had damaged was read up to there: half of what had been acknowledged was gone, and
    /// nobody was told.
    ///
    /// Goal: what is lost is said, and what is whole is opened without a word.
    #[test]
    fn damage_within_the_log_is_said() {
        assert_eq!(after(|_| {}), (100, None));
        let (left, damage) = after(|log| log.truncate(log.len() - 10));
        assert_eq!((left, damage.is_some()), (99, true));
        let (left, damage) = after(|log| {
            let middle = log.len() / 2;
            log[middle] ^= 0xff;
        });
        assert!((40..60).contains(&left), "{left}");
        assert!(damage.is_some());
    }

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
