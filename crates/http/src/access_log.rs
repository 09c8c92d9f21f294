//! The access log: one line for each request, written by a thread of its own.
//!
//! ```text
//! shard 0: answered -> entry -> ring --+
//! shard 1: answered -> entry -> ring --+--> writer: line -> batch -> file, or stdout
//! ```
//!
//! On the path: `server::logging` gives a shard's `shard_log` what a request was and how it ended;
//! that copies a few numbers and the peer's own bytes into a bounded ring. The writer makes text of
//! them (`format`) and writes it in batches.
//!
//! Invariants: a shard never waits for the log, whatever the disk does; an entry is either written
//! or counted as dropped; no peer can make a line that is not one request's.
//!
//! Absent on purpose: an order of lines across shards (each shard's are in the order in which its
//! requests ended), and rotation, which is another program's work: see
//! [`crate::Running::reread`].

mod ring;
mod relayed;
mod entry;
mod bell;
mod shard_log;
mod format;
pub(crate) mod calendar;
mod sink;
mod writer;

pub use format::AccessLogFormat;

pub(crate) use entry::{RequestText, STATUS_CLOSED};
pub(crate) use relayed::{Fault, Relayed};
pub(crate) use shard_log::{AccessLogCounters, Call, ShardLog, body_bytes};
pub(crate) use writer::WriterCounters;

use bell::Bell;
use millpond_mempool::PoolMode;
use ring::{RingWriter, ring};
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;
use writer::Writer;

/// How long a stopping server waits for its last lines: a pipe that nobody reads must not keep it.
const LAST_LINES_WAIT: Duration = Duration::from_secs(5);

/// Where lines go.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AccessLogTarget {
    /// Appended to; made if it is not there.
    File(PathBuf),
    /// The process's.
    Stdout,
}

impl fmt::Display for AccessLogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Stdout => f.write_str("stdout"),
        }
    }
}

impl FromStr for AccessLogTarget {
    type Err = Infallible;

    /// `-` is stdout.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "-" => Self::Stdout,
            path => Self::File(path.into()),
        })
    }
}

/// An access log that is wanted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AccessLogConfig {
    /// Where.
    pub target: AccessLogTarget,
    /// How lines look.
    pub format: AccessLogFormat,
    /// Memory of each shard for entries that are not written yet, some 200 bytes for a short one.
    pub queue_bytes: usize,
}

impl AccessLogConfig {
    /// What each shard has if nobody says otherwise.
    pub const QUEUE_BYTES: usize = 1 << 20;

    /// Combined, with queues of 1 MiB.
    #[must_use]
    pub fn new(target: AccessLogTarget) -> Self {
        Self {
            target,
            format: AccessLogFormat::default(),
            queue_bytes: Self::QUEUE_BYTES,
        }
    }
}

/// A log that is open: the writer runs.
#[derive(Debug)]
pub(crate) struct AccessLog {
    bell: Arc<Bell>,
    counters: Arc<WriterCounters>,
    /// The shards' ends, until they take them.
    rings: Vec<Mutex<Option<RingWriter>>>,
    /// The writer's last word: how many entries it could not write.
    ended: Mutex<Receiver<u64>>,
}

impl AccessLog {
    /// Opens the file and starts the writer.
    pub(crate) fn open(config: &AccessLogConfig, shard_count: usize) -> io::Result<Self> {
        let sink = sink::open(&config.target)?;
        let (rings, readers) = (0..shard_count)
            .map(|_| {
                let (writer, reader) = ring(config.queue_bytes);
                (Mutex::new(Some(writer)), reader)
            })
            .unzip();
        let bell = Arc::new(Bell::default());
        let counters = Arc::new(WriterCounters::default());
        let writer = Writer::new(
            sink,
            config.format,
            readers,
            Arc::clone(&bell),
            Arc::clone(&counters),
        );
        let (sender, ended) = channel();
        let thread = Builder::new()
            .name("access-log".to_owned())
            .spawn(move || {
                // Nobody waits any more if the last lines took too long.
                let _ = sender.send(writer.run_on());
            })?;
        bell.belongs_to(thread.thread().clone());
        Ok(Self {
            bell,
            counters,
            rings,
            ended: Mutex::new(ended),
        })
    }

    /// A shard's end; each has one.
    pub(crate) fn shard(&self, index: usize, mode: PoolMode) -> Option<ShardLog> {
        let ring = self.rings.get(index)?.lock();
        let ring = ring.unwrap_or_else(PoisonError::into_inner).take()?;
        Some(ShardLog::new(ring, Arc::clone(&self.bell), mode))
    }

    pub(crate) fn counters(&self) -> Arc<WriterCounters> {
        Arc::clone(&self.counters)
    }

    /// Opens the file anew, by its name.
    pub(crate) fn reopen(&self) {
        self.bell.ask_to_reopen();
    }

    /// No shard has anything more to say: waits until all is written. The sentence says what is
    /// lost.
    pub(crate) fn finish(&self) -> Result<(), String> {
        self.bell.ask_to_stop();
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        match ended.recv_timeout(LAST_LINES_WAIT) {
            Ok(0) => Ok(()),
            Ok(lost_count) => Err(format!(
                "the last {lost_count} entries of the access log could not be written"
            )),
            Err(_) => Err(format!(
                "the access log took no lines for {} s: those that were left are lost",
                LAST_LINES_WAIT.as_secs()
            )),
        }
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.bell.ask_to_stop();
    }
}
