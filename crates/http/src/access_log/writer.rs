//! The thread that turns entries into lines and lines into a file.
//!
//! A batch is taken out of the queues, written, and only then is the next one taken: a file that
//! cannot be written to holds what it was to get, the queues fill, and what finds no room in them
//! is counted by the shards. So a full disk costs entries, and neither memory nor answers. What was
//! not written is tried again every second, from the byte where it stopped, so that no line is cut.

use super::bell::{Bell, Rest};
use super::entry::Entry;
use super::format::{AccessLogFormat, write_line};
use super::ring::{Record, RingReader};
use crate::log::{self, Grouped, LogLevel, Repeated, Told};
use crate::thread_panics::{self, HelperThread};
use millpond_io::monotonic_ns;
use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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
    /// What to call it.
    fn name(&self) -> String;
}

/// What the writer has counted, for `/metrics`.
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
    bell: Arc<Bell>,
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
        bell: Arc<Bell>,
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

    /// Until it is told to stop and has written what the queues held then, or cannot; returns how
    /// many entries it could not write.
    pub(super) fn run(&mut self) -> u64 {
        let mut record = Record::default();
        let mut idle_naps = 0;
        loop {
            // Before looking into the queues: what was put into them before that is then seen.
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

    /// The same, whatever panics: the entry at hand and what is half of a line are lost.
    pub(super) fn run_on(mut self) -> u64 {
        loop {
            if let Some(lost_count) = thread_panics::catch(HelperThread::AccessLog, || self.run()) {
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
            Some(Told::First(_)) => log::write(
                LogLevel::Error,
                format_args!(
                    "the access log {name} cannot be written to: {error}; it is tried again every \
                     second, and entries that find no room meanwhile are dropped and counted"
                ),
            ),
            Some(Told::More { count, seconds }) => log::write(
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
        // What can still be written belongs into the file that was there.
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

/// The calendar's time at a moment of the shards' clock. Looked at once a batch: the calendar may
/// be set while a server runs.
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

#[cfg(test)]
mod tests {
    use super::super::entry::{Asker, Outcome, RequestText, pack};
    use super::super::ring::ring;
    use super::*;
    use millpond_io::Peer;
    use std::collections::VecDeque;
    use std::sync::Mutex;

    /// A disk that takes so many bytes at a time, or none; then all. Keeps each file's bytes.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<DiskState>>);

    #[derive(Default)]
    struct DiskState {
        takes: VecDeque<usize>,
        files: Vec<Vec<u8>>,
    }

    impl Disk {
        fn taking(counts: &[usize]) -> Self {
            let disk = Self::default();
            *disk.0.lock().unwrap() = DiskState {
                takes: counts.iter().copied().collect(),
                files: vec![Vec::new()],
            };
            disk
        }

        fn files(&self) -> Vec<Vec<u8>> {
            self.0.lock().unwrap().files.clone()
        }
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let DiskState { takes, files } = &mut *self.0.lock().unwrap();
            let count = takes.pop_front().unwrap_or(bytes.len()).min(bytes.len());
            if count == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            files.last_mut().unwrap().extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Sink for Disk {
        fn reopen(&mut self) -> io::Result<()> {
            self.0.lock().unwrap().files.push(Vec::new());
            Ok(())
        }

        fn name(&self) -> String {
            "of a test".to_owned()
        }
    }

    /// A writer over `disk` with `count` entries in its queue.
    fn writer(disk: &Disk, count: u32) -> Writer {
        let (mut pushing, reader) = ring(1 << 16);
        for request in 1..=count {
            let asker = Asker {
                peer: Peer::Unix,
                connection: 1,
                request,
            };
            let outcome = Outcome {
                status: 200,
                is_complete: true,
                started_ns: monotonic_ns(),
                duration_ns: 0,
                body_bytes: 5,
            };
            let text = RequestText::of_line(b"GET / HTTP/1.1\r\n");
            assert!(pushing.push(
                &pack(&asker, &text, &outcome),
                [text.texts[0], &[], &[], &[]]
            ));
        }
        let (bell, counters) = (Arc::default(), Arc::default());
        let sink = Box::new(disk.clone());
        Writer::new(sink, AccessLogFormat::Json, vec![reader], bell, counters)
    }

    fn requests(file: &[u8]) -> Vec<u64> {
        let lines = std::str::from_utf8(file).unwrap().lines();
        lines
            .map(|line| {
                let entry: serde_json::Value = serde_json::from_str(line).unwrap();
                entry["request_number"].as_u64().unwrap()
            })
            .collect()
    }

    /// Goal: a disk that takes a few bytes, then none, then some again gets every line once and
    /// whole, and each failure is counted.
    #[test]
    fn lines_survive_a_disk_that_fills() {
        let disk = Disk::taking(&[10, 300, 0, 1, 0, 7]);
        let mut writer = writer(&disk, 10);
        assert!(writer.take_batch(&mut Record::default()) > 1000);
        assert!(!writer.write_batch());
        assert!(!writer.write_batch());
        assert_eq!(
            writer.take_batch(&mut Record::default()),
            0,
            "one batch at a time"
        );
        assert!(writer.write_batch());
        assert_eq!(requests(&disk.files()[0]), (1..=10).collect::<Vec<_>>());
        assert_eq!(writer.counters.failures.load(Ordering::Relaxed), 2);
        assert_eq!(writer.counters.lines.load(Ordering::Relaxed), 10);
    }

    /// Goal: a new file begins with a whole line, also where the old one has a part of it.
    #[test]
    fn a_new_file_begins_with_a_line() {
        let disk = Disk::taking(&[500, 0, 0]);
        let mut writer = writer(&disk, 10);
        writer.take_batch(&mut Record::default());
        assert!(!writer.write_batch());
        writer.reopen();
        assert!(writer.write_batch());
        let [old, new] = &disk.files()[..] else {
            panic!("two files")
        };
        let old = &old[..memchr::memrchr(b'\n', old).unwrap() + 1];
        let both = [requests(old), requests(new)].concat();
        assert_eq!(both, (1..=10).collect::<Vec<_>>());
    }

    /// A sink that panics once.
    struct Panicking(Disk, bool);

    impl Write for Panicking {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            assert!(!std::mem::take(&mut self.1), "planted panic");
            self.0.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Sink for Panicking {
        fn reopen(&mut self) -> io::Result<()> {
            Ok(())
        }

        fn name(&self) -> String {
            self.0.name()
        }
    }

    /// Goal: a panic in the middle of the writer's work is counted and costs no line that is whole.
    #[test]
    fn the_writer_goes_on_after_a_panic() {
        let disk = Disk::taking(&[]);
        let mut writer = writer(&disk, 10);
        writer.sink = Box::new(Panicking(disk.clone(), true));
        writer.bell.ask_to_stop();
        let before = thread_panics::counts()[0].1;
        assert_eq!(writer.run_on(), 0);
        assert!(thread_panics::counts()[0].1 > before);
        assert_eq!(requests(&disk.files()[0]), (1..=10).collect::<Vec<_>>());
    }

    /// Goal: what cannot be written at the end is counted to the last entry.
    #[test]
    fn what_is_lost_is_counted() {
        let disk = Disk::taking(&[500, 0]);
        let mut writer = writer(&disk, 10);
        writer.take_batch(&mut Record::default());
        assert!(!writer.write_batch());
        let lost_count = writer.give_up(&mut Record::default());
        let whole = disk.files()[0].iter().filter(|&&b| b == b'\n').count() as u64;
        assert!(whole > 0);
        assert_eq!(whole + lost_count, 10);
    }
}
