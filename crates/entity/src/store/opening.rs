//! Opening the engine, and its sentences when it refuses.

use std::fs::File;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use millpond_http::log;
use millpond_http::log::LogLevel;
use rocksdb::{DB, DBRecoveryMode, ErrorKind, Options};

use crate::data_dir::DataDirError;

use super::Failure;
use super::rocksdb::RocksDbOptions;

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

/// Opens it. Reports a torn end of its log.
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

/// The permitted use of an engine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Access {
    Full,
    ReadOnly,
}

/// Opens it again in the process that wrote it. Its log may end in a write that failed and was not acknowledged; the
/// caller compares the content with the acknowledged writes.
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
    // An older library that reads newer files reports "not supported" or "corruption", depending on which file it read
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
/// not a later one. Opens an engine elsewhere to find out: only for directories that are refused anyway.
pub(super) fn newer_format(path: &Path, written_by: &str) -> Option<DataDirError> {
    let running = probe_version()?;
    (version_of(written_by) > version_of(&running)).then(|| DataDirError::NewerFormat {
        path: path.to_owned(),
        found: format!("RocksDB {written_by}"),
        supported: format!("RocksDB {running}"),
    })
}

/// The version of the linked library, found by opening a new, empty database in the temporary directory. The binding
/// has no call for it.
pub(crate) fn probe_version() -> Option<String> {
    let scratch = new_directory(&std::env::temp_dir(), "probe")?;
    let mut options = Options::default();
    options.create_if_missing(true);
    let version = DB::open(&options, &scratch)
        .ok()
        .and_then(|_open| newest_options_version(&scratch));
    // Best effort: a leftover is an empty database in the temporary directory.
    let _ = fs::remove_dir_all(&scratch);
    version
}

/// An unused name in `parent`: not used by another thread of ours, which may do the same, nor by an ended process with
/// our id.
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

// The engine's needs before it is opened, tried out: threads and descriptors.
//
// RocksDB starts its threads with `std::thread`, which throws where the system has none left; no exception may leave
// its C interface, so the process is aborted. So as many threads are started first. If threads run out between the two,
// [`crate::abort_note`] explains the abort.

/// Threads that the engine starts when it is opened: one that writes memtables out, one that merges tables, and
/// one for what it does by time; and one that closes it (`closing`).
const THREADS_NEEDED: usize = 4;

/// So many descriptors have to be free: its log, its lists of files and a few tables. With fewer it would come
/// back without what it reads from.
const DESCRIPTORS_NEEDED: usize = 32;

/// Whether the system still gives so many threads at once.
///
/// # Errors
/// The error returned instead.
pub(super) fn check_threads() -> io::Result<()> {
    let mut started = Vec::with_capacity(THREADS_NEEDED);
    let mut refusal = Ok(());
    while started.len() < THREADS_NEEDED && refusal.is_ok() {
        let probe = thread::Builder::new().name("store-probe".to_owned());
        match probe.spawn(thread::park) {
            Ok(thread) => started.push(thread),
            Err(error) => refusal = Err(error),
        }
    }
    for probe in started {
        probe.thread().unpark();
        // Nothing in it panics.
        let _ = probe.join();
    }
    refusal
}

/// Whether the process may still open so many files.
pub(super) fn has_descriptors() -> bool {
    let opened = (0..DESCRIPTORS_NEEDED).map(|_| File::open("/dev/null"));
    opened.collect::<Result<Vec<_>, _>>().is_ok()
}

// Which failures of the engine are temporary, by their message.
//
// RocksDB puts the system's error text at the end of its message, and its operation before the file's name. The binding
// has no number for either.

/// Resources that may run out and come back: EMFILE, ENFILE, ENOMEM, ENOSPC, EDQUOT.
const PASSING: [&str; 5] = [
    "Too many open files",
    "Too many open files in system",
    "Cannot allocate memory",
    "No space left on device",
    "Disk quota exceeded",
];

/// Decides by the engine's message. A failed sync is permanent, whatever the cause: the kernel may have dropped the
/// unwritten pages, and report success the next time. After a failed `sync` call only a file that could not be opened
/// is temporary, since that came before the sync.
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

/// The engine's operation: "While open a file for appending". Before the file's name, which may contain any words.
fn doing(cause: &str) -> &str {
    let from = cause.find("While ").unwrap_or(cause.len());
    let rest = &cause[from..];
    rest.split_once(": ").map_or("", |(doing, _)| doing)
}

// Room on the disk of a directory: the reserve that writes leave, memtables that fit, and when the engine is reopened
// to get some back.

/// With less a memtable would be written out after a few hundred values.
const MEMTABLE_BYTES_MIN: u64 = 3 << 20;

/// From one opening for lack of room to the next: requests are refused meanwhile, for some milliseconds. Doubled as long
/// as the disk stays full.
const ROOM_REOPENING_WAIT_MIN: Duration = Duration::from_secs(5);
const ROOM_REOPENING_WAIT_MAX: Duration = Duration::from_secs(300);

/// When the engine may be opened again because its merges were refused for lack of room.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoomReopening {
    next: Instant,
    wait: Duration,
}

impl RoomReopening {
    pub(super) fn new() -> Self {
        Self {
            next: Instant::now(),
            wait: ROOM_REOPENING_WAIT_MIN,
        }
    }

    /// Whether it may be now.
    pub(super) fn is_due(&self) -> bool {
        Instant::now() >= self.next
    }

    /// It is opened again now.
    pub(super) fn begin(&mut self) {
        self.next = Instant::now() + self.wait;
        self.wait = (2 * self.wait).min(ROOM_REOPENING_WAIT_MAX);
    }
}

/// Size of the engine's write-ahead logs.
pub(super) fn log_bytes(path: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(path) else {
        return 0;
    };
    let logs = entries.filter_map(Result::ok).filter(|entry| {
        let name = entry.path();
        name.extension().is_some_and(|kind| kind == "log")
    });
    logs.filter_map(|entry| Some(entry.metadata().ok()?.len()))
        .sum()
}

/// Room that writes leave on a disk of that size. Memtables are written out beside the logs that they come from, which are
/// as much again, and merging takes what it gives back first: the first level is 256 MiB, and what lies over it is not
/// much more. Of a small disk it is a sixteenth, but what memtables and their logs may take in any case.
pub(super) fn default_reserve_bytes(memtable_bytes: u64, whole_bytes: u64) -> u64 {
    let written_bytes = memtable_bytes.saturating_mul(2);
    let merging_bytes = 1 << 30;
    (whole_bytes / 16)
        .max(written_bytes)
        .min(written_bytes.saturating_add(merging_bytes))
}

/// Memtables that fit on the disk of `path` beside their logs, with as much left for tables as for both: `asked` or
/// less, with a line in the log. A given reserve is kept as it is.
pub(super) fn fitting_memtables(path: &Path, asked: RocksDbOptions) -> RocksDbOptions {
    let Ok(found) = rustix::fs::statvfs(path) else {
        return asked;
    };
    let whole_bytes = found.f_blocks.saturating_mul(found.f_frsize);
    let fitting_bytes = (whole_bytes / 8).max(MEMTABLE_BYTES_MIN);
    if asked.disk_reserve_bytes.is_some() || asked.memtable_bytes <= fitting_bytes {
        return asked;
    }
    log::write(
        LogLevel::Warn,
        format_args!(
            "memory for writes is {} MiB instead of {}: the disk of {} has {} MiB, and they are written out beside \
             their logs (--memtable, --disk-reserve)",
            fitting_bytes >> 20,
            asked.memtable_bytes >> 20,
            path.display(),
            whole_bytes >> 20
        ),
    );
    RocksDbOptions {
        memtable_bytes: fitting_bytes,
        ..asked
    }
}

// An engine that is closed within a time, whatever it waits for.
//
// Place: [`super::rocksdb`] keeps its database in it. RocksDB before 8.7, Debian 12's among them, may wait for ever in
// its closing after a sync that failed for lack of room: it takes a finished recovery for one under way
// (facebook/rocksdb issue 11440). A server on a full disk could then not be stopped. Acknowledged writes are in the log
// by then, so the process may end without closing: the next opening finds the same state as after a kill. A hanging
// engine keeps its thread and its lock on the directory until the process ends.

/// An engine that is well stops its merging and is closed within moments. With the 30 s that a stop
/// leaves to requests it stays below the 60 s after which systemd kills.
const CLOSE_MAX: Duration = Duration::from_secs(20);

/// A value that is dropped on its own thread, with a wait of at most [`CLOSE_MAX`].
pub(super) struct Closing<T: Send + 'static> {
    /// There until it is dropped.
    engine: Option<T>,
    close_max: Duration,
}

impl<T: Send + 'static> Closing<T> {
    pub(super) fn new(engine: T) -> Self {
        Self {
            engine: Some(engine),
            close_max: CLOSE_MAX,
        }
    }
}

impl<T: Send + 'static> Deref for Closing<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.engine {
            Some(engine) => engine,
            None => unreachable!("only its drop takes the engine away"),
        }
    }
}

impl<T: Send + 'static> Closing<T> {
    /// Closes it now. False: not within the time.
    pub(super) fn close(mut self) -> bool {
        self.close_in_time()
    }

    fn close_in_time(&mut self) -> bool {
        let Some(engine) = self.engine.take() else {
            return true;
        };
        let (closed, wait) = mpsc::channel::<()>();
        let close = move || {
            drop(engine);
            // Its end is what is waited for, by a panic too.
            drop(closed);
        };
        // Where no thread can be had it was dropped with the closure, in place.
        if thread::Builder::new()
            .name("close".to_owned())
            .spawn(close)
            .is_err()
        {
            return true;
        }
        let is_closed = wait.recv_timeout(self.close_max) != Err(mpsc::RecvTimeoutError::Timeout);
        if !is_closed {
            log::write(
                LogLevel::Error,
                format_args!(
                    "the store was not closed within {} s and is left as it is: what was acknowledged is \
                     in its log, and read from there at the next start",
                    self.close_max.as_secs()
                ),
            );
        }
        is_closed
    }
}

impl<T: Send + 'static> Drop for Closing<T> {
    fn drop(&mut self) {
        self.close_in_time();
    }
}

#[cfg(test)]
#[path = "tests/opening.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/failure.rs"]
mod failure_tests;

#[cfg(test)]
#[path = "tests/closing.rs"]
mod closing_tests;
