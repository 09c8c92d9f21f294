//! The thread that turns entries into lines and lines into a file.
//!
//! A batch is taken out of the queues, written, and only then is the next one taken: a file that cannot be written to
//! keeps the batch, the queues fill, and the shards count the entries that do not fit. So a full disk costs entries,
//! but neither memory nor responses. Unwritten bytes are tried again every second, from the byte where the write
//! stopped, so no line is cut.

use std::fs::{File, OpenOptions};
use std::io;
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millpond_io::file_modes::share_new_file;
use millpond_io::monotonic_ns;

use crate::error::HelperThread;
use crate::log::{EventNotice, Grouped, LogLevel, Repeated};
use crate::{error, log};

use super::AccessLogTarget;
use super::entry::{AccessLogFormat, Entry, write_line};
use super::ring::{Record, RingReader};

/// A batch is written as soon as it has so much.
const BATCH_BYTES: usize = 128 * 1024;
/// How long entries gather while some come.
const NAP: Duration = Duration::from_millis(50);
/// So many naps without an entry, and the writer sleeps until it is woken.
const IDLE_NAPS_MAX: u32 = 20;
/// Entries taken from one queue before the next has its turn.
const ENTRIES_PER_TURN: usize = 64;
/// Between two attempts at a file that cannot be written to.
const RETRY: Duration = Duration::from_secs(1);

/// Where lines go.
pub(super) trait Sink: Write + Send {
    /// Begins a new file of the same name, if it is one that has a name.
    fn reopen(&mut self) -> io::Result<()>;
    /// Name of the file in messages.
    fn name(&self) -> String;
}

/// Counters of the writer, for `/metrics`.
#[derive(Debug, Default)]
pub(crate) struct WriterCounters {
    pub(crate) lines: AtomicU64,
    pub(crate) failures: AtomicU64,
}

/// The thread's state.
pub(super) struct Writer {
    sink: Box<dyn Sink>,
    format: AccessLogFormat,
    readers: Vec<RingReader>,
    bell: Arc<WriterNotifier>,
    counters: Arc<WriterCounters>,
    batch: Batch,
    failures: Repeated,
    is_failing: bool,
}

/// Lines on their way, and how much of them has arrived.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    written_bytes: usize,
    lines: u64,
}

impl Writer {
    pub(super) fn new(
        sink: Box<dyn Sink>,
        format: AccessLogFormat,
        readers: Vec<RingReader>,
        bell: Arc<WriterNotifier>,
        counters: Arc<WriterCounters>,
    ) -> Self {
        Self {
            sink,
            format,
            readers,
            bell,
            counters,
            batch: Batch::default(),
            failures: Repeated::default(),
            is_failing: false,
        }
    }

    /// Runs until it is stopped and has written the entries that were queued then, or cannot write; returns how many
    /// entries it could not write.
    pub(super) fn run(&mut self) -> u64 {
        let mut record = Record::default();
        let mut idle_naps = 0;
        loop {
            // Before the queues are read: entries pushed before that are then seen.
            let is_stopping = self.bell.is_stopping();
            if self.bell.takes_reopening() {
                self.reopen();
            }
            let taken_bytes = self.take_batch(&mut record);
            if !self.write_batch() {
                if is_stopping {
                    return self.give_up(&mut record);
                }
                self.bell.rest(Rest::Retry(RETRY), || false);
                continue;
            }
            idle_naps = if taken_bytes > 0 { 0 } else { idle_naps + 1 };
            if is_stopping && taken_bytes == 0 {
                return 0;
            }
            if is_stopping || taken_bytes >= BATCH_BYTES {
                continue;
            }
            if idle_naps < IDLE_NAPS_MAX {
                self.bell.rest(Rest::Nap(NAP), || false);
            } else {
                let readers = &self.readers;
                let has_something = || readers.iter().any(|reader| !reader.is_empty());
                self.bell.rest(Rest::Sleep, has_something);
            }
        }
    }

    /// The same, also after a panic: the current entry and a partial line are lost.
    pub(super) fn run_on(mut self) -> u64 {
        loop {
            if let Some(lost_count) = error::catch(HelperThread::AccessLog, || self.run()) {
                return lost_count;
            }
            self.batch.cut_after_last_line();
            // It may come again at once.
            self.bell.rest(Rest::Retry(RETRY), || false);
        }
    }

    /// Takes entries from every queue in turn until the batch is full, unless one waits to be
    /// written; returns how much was taken.
    fn take_batch(&mut self, record: &mut Record) -> usize {
        let Batch { bytes, lines, .. } = &mut self.batch;
        if !bytes.is_empty() {
            return 0;
        }
        let clock = WallClock::now();
        let mut has_more = true;
        while has_more && bytes.len() < BATCH_BYTES {
            has_more = false;
            for (shard, reader) in self.readers.iter_mut().enumerate() {
                for _ in 0..ENTRIES_PER_TURN {
                    if !reader.pop(record) {
                        break;
                    }
                    let entry = Entry::unpack(record);
                    let unix_ms = clock.unix_ms(entry.outcome.started_ns);
                    write_line(bytes, self.format, &entry, shard, unix_ms);
                    *lines += 1;
                    has_more = true;
                }
            }
        }
        bytes.len()
    }

    /// Writes what is left of the batch; false when the file takes no more.
    fn write_batch(&mut self) -> bool {
        let batch = &mut self.batch;
        while batch.written_bytes < batch.bytes.len() {
            let rest = &batch.bytes[batch.written_bytes..];
            match self.sink.write(rest) {
                Ok(0) => {
                    self.failed(&ErrorKind::WriteZero.into());
                    return false;
                }
                Ok(count) => batch.written_bytes += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.failed(&error);
                    return false;
                }
            }
        }
        self.counters
            .lines
            .fetch_add(batch.lines, Ordering::Relaxed);
        batch.bytes.clear();
        batch.written_bytes = 0;
        batch.lines = 0;
        if std::mem::take(&mut self.is_failing) {
            let name = self.sink.name();
            log::write(
                LogLevel::Info,
                format_args!("the access log {name} is written to again"),
            );
        }
        true
    }

    fn failed(&mut self, error: &io::Error) {
        self.is_failing = true;
        self.counters.failures.fetch_add(1, Ordering::Relaxed);
        let name = self.sink.name();
        match self.failures.add(1, monotonic_ns()) {
            Some(EventNotice::First(_)) => log::write(
                LogLevel::Error,
                format_args!(
                    "the access log {name} cannot be written to: {error}; it is tried again every \
                     second, and entries that find no room meanwhile are dropped and counted"
                ),
            ),
            Some(EventNotice::More { count, seconds }) => log::write(
                LogLevel::Error,
                format_args!(
                    "the access log {name} cannot be written to: {error} ({} more failures in the \
                     last {seconds} s)",
                    Grouped(count)
                ),
            ),
            None => {}
        }
    }

    /// From here on lines go to a new file. One that the old file has a part of goes to the new one
    /// whole.
    fn reopen(&mut self) {
        // Bytes that can still be written belong in the old file.
        let has_rest = !self.batch.bytes.is_empty() && !self.write_batch();
        if let Err(error) = self.sink.reopen() {
            let name = self.sink.name();
            return log::write(
                LogLevel::Error,
                format_args!(
                    "the access log {name} cannot be opened again: {error}; the file that is open stays in use"
                ),
            );
        }
        let name = self.sink.name();
        log::write(
            LogLevel::Info,
            format_args!("the access log {name} was opened anew"),
        );
        if has_rest {
            let batch = &mut self.batch;
            let written = &batch.bytes[..batch.written_bytes];
            let line_start = memchr::memrchr(b'\n', written).map_or(0, |at| at + 1);
            batch.written_bytes = line_start;
        }
    }

    /// The end has come and the file takes nothing: counts what is lost.
    fn give_up(&mut self, record: &mut Record) -> u64 {
        let mut lost_count = self.batch.lines_left();
        for reader in &mut self.readers {
            while reader.pop(record) {
                lost_count += 1;
            }
        }
        lost_count
    }
}

impl Batch {
    fn cut_after_last_line(&mut self) {
        let end = memchr::memrchr(b'\n', &self.bytes).map_or(0, |at| at + 1);
        self.bytes.truncate(end.max(self.written_bytes));
        if self.written_bytes == self.bytes.len() {
            self.bytes.clear();
            self.written_bytes = 0;
        }
    }

    fn lines_left(&self) -> u64 {
        memchr::memchr_iter(b'\n', &self.bytes[self.written_bytes..]).count() as u64
    }
}

/// The calendar's time at a moment of the shards' clock. Read once a batch, because the system time may be set while a
/// server runs.
struct WallClock {
    unix_ns: u64,
    monotonic_ns: u64,
}

impl WallClock {
    fn now() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            unix_ns: unix.map_or(0, |since| since.as_nanos() as u64),
            monotonic_ns: monotonic_ns(),
        }
    }

    fn unix_ms(&self, monotonic_ns: u64) -> u64 {
        let age_ns = self.monotonic_ns.saturating_sub(monotonic_ns);
        self.unix_ns.saturating_sub(age_ns) / 1_000_000
    }
}

// How shards wake the writer, and how seldom.
//
// While requests come, the writer sleeps for short periods and then takes all queued entries: it writes large batches,
// and only a queue more than half full wakes it. After a while without entries it sleeps until the end of the next tick
// with an entry wakes it: one system call per quiet period.

const AWAKE: u8 = 0;
const NAPPING: u8 = 1;
const ASLEEP: u8 = 2;

/// How the writer waits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rest {
    /// For more entries; a queue that fills ends it.
    Nap(Duration),
    /// For the first entry.
    Sleep,
    /// For a file that cannot be written to: entries change nothing about that.
    Retry(Duration),
}

/// State shared by the writer and the other threads.
#[derive(Debug, Default)]
pub(super) struct WriterNotifier {
    writer: OnceLock<Thread>,
    state: AtomicU8,
    reopens: AtomicBool,
    stops: AtomicBool,
}

impl WriterNotifier {
    /// The writer registers its thread before the first notification.
    pub(super) fn belongs_to(&self, writer: Thread) {
        // There is one writer, which comes once.
        let _ = self.writer.set(writer);
    }

    /// A queue is filling.
    pub(super) fn ring_if_idle(&self) {
        if self.state.load(Ordering::Relaxed) != AWAKE {
            self.ring();
        }
    }

    /// Entries were put into a queue.
    pub(super) fn ring_if_asleep(&self) {
        // Pairs with the one in `rest`: either the writer sees the entry, or we see it asleep.
        fence(Ordering::SeqCst);
        if self.state.load(Ordering::Relaxed) == ASLEEP {
            self.ring();
        }
    }

    pub(super) fn ask_to_reopen(&self) {
        self.reopens.store(true, Ordering::Release);
        self.ring();
    }

    pub(super) fn ask_to_stop(&self) {
        self.stops.store(true, Ordering::Release);
        self.ring();
    }

    pub(super) fn takes_reopening(&self) -> bool {
        self.reopens.swap(false, Ordering::Acquire)
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stops.load(Ordering::Acquire)
    }

    /// Waits; not at all if `has_something` returns true after the wait is visible to the other threads.
    pub(super) fn rest(&self, rest: Rest, has_something: impl Fn() -> bool) {
        self.state.store(
            match rest {
                Rest::Nap(_) => NAPPING,
                Rest::Sleep => ASLEEP,
                Rest::Retry(_) => AWAKE,
            },
            Ordering::Relaxed,
        );
        fence(Ordering::SeqCst);
        let is_asked = self.is_stopping() || self.reopens.load(Ordering::Acquire);
        if !is_asked && !has_something() {
            match rest {
                Rest::Nap(duration) | Rest::Retry(duration) => std::thread::park_timeout(duration),
                Rest::Sleep => std::thread::park(),
            }
        }
        self.state.store(AWAKE, Ordering::Relaxed);
    }

    fn ring(&self) {
        self.state.store(AWAKE, Ordering::Relaxed);
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }
}

// The file behind an access log, or stdout.

/// Opens the log; a file that is there is continued.
pub(super) fn open(target: &AccessLogTarget) -> io::Result<Box<dyn Sink>> {
    Ok(match target {
        AccessLogTarget::File(path) => Box::new(LogFile {
            file: open_file(path)?,
            path: path.clone(),
        }),
        // Not through the standard library's handle, which searches for line ends and has a lock.
        AccessLogTarget::Stdout => {
            Box::new(Stdout(io::stdout().as_fd().try_clone_to_owned()?.into()))
        }
    })
}

struct LogFile {
    file: File,
    path: PathBuf,
}

struct Stdout(File);

fn open_file(path: &Path) -> io::Result<File> {
    // Requests and their clients concern the server's group at most.
    const MODE: u32 = 0o640;
    let mut options = OpenOptions::new();
    options.append(true).mode(MODE);
    let file = match options.clone().create_new(true).open(path) {
        Ok(file) => {
            share_new_file(path, MODE)?;
            file
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            options.create(true).open(path)?
        }
        Err(error) => return Err(error),
    };
    if file.metadata()?.is_file() && ends_within_line(path)? {
        (&file).write_all(b"\n")?;
    }
    Ok(file)
}

/// Whether an earlier server was killed while it wrote: its last line must not swallow our first.
fn ends_within_line(path: &Path) -> io::Result<bool> {
    // A log may be writable and not readable: then this is unknown.
    let Ok(file) = File::open(path) else {
        return Ok(false);
    };
    let length = file.metadata()?.len();
    let mut last = [b'\n'];
    if length > 0 {
        file.read_exact_at(&mut last, length - 1)?;
    }
    Ok(last != *b"\n")
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for LogFile {
    fn reopen(&mut self) -> io::Result<()> {
        self.file = open_file(&self.path)?;
        Ok(())
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for Stdout {
    fn reopen(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn name(&self) -> String {
        "on stdout".to_owned()
    }
}

#[cfg(test)]
#[path = "tests/writer.rs"]
mod tests;
