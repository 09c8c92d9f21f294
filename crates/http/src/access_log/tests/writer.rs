use super::super::entry::{Asker, RequestEnd, RequestText, pack};
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
        let outcome = RequestEnd {
            status: 200,
            is_complete: true,
            started_ns: monotonic_ns(),
            duration_ns: 0,
            body_bytes: 5,
        };
        let text = RequestText::of_line(b"GET / HTTP/1.1\r\n");
        assert!(pushing.push(
            &pack(&asker, &text, &outcome),
            [text.texts[0], &[], &[], &[], &[], &[]]
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
    let before = crate::error::counts()[0].1;
    assert_eq!(writer.run_on(), 0);
    assert!(crate::error::counts()[0].1 > before);
    assert_eq!(requests(&disk.files()[0]), (1..=10).collect::<Vec<_>>());
}

/// Goal: lines that cannot be written at the end are counted to the last entry.
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
