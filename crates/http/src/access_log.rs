//! The access log: one line for each request, written by a thread of its own.
//!
//! ```text
//! shard 0: answered -> entry -> ring --+
//! shard 1: answered -> entry -> ring --+--> writer: line -> batch -> file, or stdout
//! ```
//!
//! `server::refusing` gives a shard's `shard_log` what a request was and how it ended; that copies a
//! few numbers and the peer's own bytes into a bounded ring. The writer makes text of them
//! (`entry`) and writes it in batches.
//!
//! Invariants: a shard never waits for the log, whatever the disk does; an entry is either written
//! or counted as dropped; no peer can make a line that is not one request's.

mod ring;
pub(crate) mod entry;
mod shard_log;
mod writer;

use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;
use std::{fmt, io};

use millpond_mempool::PoolMode;
use ring::{RingWriter, ring};
use writer::{Writer, WriterNotifier};

use crate::proxy::Failure;

pub use entry::AccessLogFormat;

pub(crate) use entry::{RequestText, STATUS_CLOSED};
pub(crate) use shard_log::{AccessLogCounters, Call, ShardLog, body_bytes};
pub(crate) use writer::WriterCounters;

/// How long a stopping server waits for its last lines: a pipe without a reader must not delay it.
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
    /// Format of the lines.
    pub format: AccessLogFormat,
    /// Memory of each shard for entries that are not written yet, some 200 bytes for a short one.
    pub queue_bytes: usize,
}

impl AccessLogConfig {
    /// Default size for each shard.
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
    bell: Arc<WriterNotifier>,
    counters: Arc<WriterCounters>,
    /// The shards' ends, until they take them.
    rings: Vec<Mutex<Option<RingWriter>>>,
    /// The writer's last report: how many entries it could not write.
    ended: Mutex<Receiver<u64>>,
}

impl AccessLog {
    /// Opens the file and starts the writer.
    pub(crate) fn open(config: &AccessLogConfig, shard_count: usize) -> io::Result<Self> {
        let sink = writer::open(&config.target)?;
        let (rings, readers) = (0..shard_count)
            .map(|_| {
                let (writer, reader) = ring(config.queue_bytes);
                (Mutex::new(Some(writer)), reader)
            })
            .unzip();
        let bell = Arc::new(WriterNotifier::default());
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
                // The server stopped waiting because the last lines took too long.
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

    /// Called when no shard writes any more: waits until all is written. The message reports the loss.
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

// Outcome of a request that was passed on to another server: which server, how many tries, the times, and which side
// failed if it did.

/// Longest name of an upstream; the rest is cut.
const NAME_BYTES_MAX: usize = 64;

/// Tries, fault, failure, three times, name.
const FIXED_BYTES: usize = 3 + 3 * 4;

/// Longest packed form.
const PACKED_BYTES_MAX: usize = FIXED_BYTES + NAME_BYTES_MAX;

/// The side at fault in a failure.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fault {
    Client,
    Proxy,
    Upstream,
}

impl Fault {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Proxy => "proxy",
            Self::Upstream => "upstream",
        }
    }

    /// The side at fault for a response that was made here and not by an upstream; `None`: no fault. `told`: the cause
    /// that the proxy recorded.
    fn of_own_response(status: u16, told: Option<Failure>) -> Option<Self> {
        match (told, status) {
            (Some(told), _) => Some(told.fault()),
            // The client left, which is its good right.
            (None, STATUS_CLOSED) => None,
            (None, 400..500) => Some(Self::Client),
            (None, 500..) => Some(Self::Proxy),
            (None, _) => None,
        }
    }
}

/// The packed outcome of a request that was passed on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Relayed {
    name: [u8; NAME_BYTES_MAX],
    name_bytes: u8,
    tries: u8,
    fault: Option<Fault>,
    /// The cause of the failure, if known.
    failure: Option<Failure>,
    /// From the last try's beginning until it had a connection.
    connect_us: u32,
    /// From then to the first byte of the response; 0: there was none.
    first_byte_us: u32,
    /// The last try, in all.
    total_us: u32,
}

/// Saturates after an hour and eleven minutes, which no try takes.
fn microseconds(time_ns: u64) -> u32 {
    u32::try_from(time_ns / 1000).unwrap_or(u32::MAX)
}

impl Relayed {
    pub(crate) fn new(name: &str, tries: u32, times_ns: [u64; 3]) -> Self {
        let mut bytes = [0; NAME_BYTES_MAX];
        let name_bytes = name.len().min(NAME_BYTES_MAX);
        bytes[..name_bytes].copy_from_slice(&name.as_bytes()[..name_bytes]);
        let [connect_us, first_byte_us, total_us] = times_ns.map(microseconds);
        Self {
            name: bytes,
            name_bytes: name_bytes as u8,
            tries: u8::try_from(tries).unwrap_or(u8::MAX),
            fault: None,
            failure: None,
            connect_us,
            first_byte_us,
            total_us,
        }
    }

    /// Of a request that went to no upstream.
    fn nowhere(fault: Fault, failure: Option<Failure>) -> Self {
        Self {
            fault: Some(fault),
            failure,
            ..Self::new("", 0, [0; 3])
        }
    }

    /// The same of one that failed.
    pub(crate) fn failed_by(self, failure: Failure) -> Self {
        Self {
            fault: Some(failure.fault()),
            failure: Some(failure),
            ..self
        }
    }

    fn name(&self) -> &[u8] {
        &self.name[..usize::from(self.name_bytes)]
    }

    /// Its packed form, in `room`.
    fn pack<'r>(&self, room: &'r mut [u8; PACKED_BYTES_MAX]) -> &'r [u8] {
        room[0] = self.tries;
        room[1] = match self.fault {
            None => 0,
            Some(Fault::Client) => 1,
            Some(Fault::Proxy) => 2,
            Some(Fault::Upstream) => 3,
        };
        // Their number is far below 255.
        room[2] = self.failure.map_or(0, |failure| failure as u8 + 1);
        let times = [self.connect_us, self.first_byte_us, self.total_us];
        for (place, time) in room[3..].chunks_exact_mut(4).zip(times) {
            place.copy_from_slice(&time.to_le_bytes());
        }
        let end = FIXED_BYTES + usize::from(self.name_bytes);
        room[FIXED_BYTES..end].copy_from_slice(self.name());
        &room[..end]
    }

    /// `None` of nothing.
    fn unpack(packed: &[u8]) -> Option<Self> {
        let (fixed, name) = packed.split_first_chunk::<FIXED_BYTES>()?;
        let mut bytes = [0; NAME_BYTES_MAX];
        bytes.get_mut(..name.len())?.copy_from_slice(name);
        let time = |at: usize| {
            u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]])
        };
        Some(Self {
            name: bytes,
            name_bytes: name.len() as u8,
            tries: fixed[0],
            fault: match fixed[1] {
                1 => Some(Fault::Client),
                2 => Some(Fault::Proxy),
                3 => Some(Fault::Upstream),
                _ => None,
            },
            failure: usize::from(fixed[2])
                .checked_sub(1)
                .and_then(|index| Failure::ALL.get(index).copied()),
            connect_us: time(3),
            first_byte_us: time(7),
            total_us: time(11),
        })
    }
}

/// Goal: the cause that the proxy gives is used; without one, the status decides.
#[test]
fn own_answers_have_their_fault() {
    for (told, of_503) in [
        (Some(Failure::NoneUsable), Fault::Upstream),
        (Some(Failure::TooManyOptions), Fault::Client),
        (None, Fault::Proxy),
    ] {
        assert_eq!(Fault::of_own_response(503, told), Some(of_503), "{told:?}");
    }
    assert_eq!(Fault::of_own_response(408, None), Some(Fault::Client));
    for status in [200, STATUS_CLOSED] {
        assert_eq!(Fault::of_own_response(status, None), None);
    }
}

/// Goal: every packed value unpacks to itself, with any name and any failure; an empty value stays empty.
#[test]
fn notes_come_out_as_they_went_in() {
    let failures = Failure::ALL.iter().copied().map(Some);
    for (index, failure) in failures.chain([None]).enumerate() {
        let name = "n".repeat(index * 3);
        let times_ns = [1_000, 2_500_000, u64::MAX];
        let relayed = Relayed::new(&name, 300, times_ns);
        let relayed = failure.map_or(relayed, |failure| relayed.failed_by(failure));
        let mut room = [0; PACKED_BYTES_MAX];
        let again = Relayed::unpack(relayed.pack(&mut room));
        assert_eq!(again, Some(relayed));
        assert_eq!(relayed.name().len(), name.len().min(NAME_BYTES_MAX));
        assert_eq!((relayed.tries, relayed.first_byte_us), (u8::MAX, 2_500));
        assert_eq!(relayed.total_us, u32::MAX);
    }
    assert_eq!(Relayed::unpack(&[]), None);
}
