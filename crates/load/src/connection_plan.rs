//! How connections come and go: what a caller says about them.

use std::fs;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::FileExt;
use std::str::FromStr;
use std::sync::Arc;

use millpond_measure::histogram::LatencyHistogram;
use millpond_measure::noise::ThreadTimes;
use rustix::fs::fstat;

use crate::error::LoadError;

/// When all connections are closed and opened anew.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reconnect {
    /// After so much time of the window.
    EveryNs(u64),
    /// After so many requests on all of them together.
    EveryRequests(u64),
}

/// Which of a target's addresses connections use. Where one refuses, the next is tried in either case.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum AddressUse {
    /// In turn over the connections.
    #[default]
    All,
    /// The first alone.
    First,
}

impl FromStr for AddressUse {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "all" => Ok(Self::All),
            "first" => Ok(Self::First),
            _ => Err("write first or all"),
        }
    }
}

/// Everything about connections but their number and their target.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConnectionPlan {
    /// A connection is closed after so many requests, and another takes its place; `None`: never.
    pub requests_max: Option<u64>,
    /// Connections come one after the other over this time, from the moment sending begins; 0: all
    /// are there before.
    pub ramp_ns: u64,
    /// Where connections come from, in turn; `None`: the kernel's choice.
    pub sources: Option<SourceRange>,
    /// Which of the target's addresses they use.
    pub addresses: AddressUse,
    /// When all connections are closed and opened anew, outside the clocks; `None`: never.
    pub reconnect: Option<Reconnect>,
}

impl ConnectionPlan {
    /// Refuses what cannot be.
    pub(crate) fn check(&self, connections: usize) -> Result<(), LoadError> {
        self.check_reconnect(connections)?;
        if self.requests_max == Some(0) {
            return Err(LoadError::Setting {
                name: "requests-per-connection",
                problem: "a connection without a request measures nothing".to_owned(),
            });
        }
        Ok(())
    }

    fn check_reconnect(&self, connections: usize) -> Result<(), LoadError> {
        let refuse = |problem: String| {
            Err(LoadError::Setting {
                name: "reconnect-every",
                problem,
            })
        };
        match self.reconnect {
            None => Ok(()),
            Some(_) if self.ramp_ns > 0 => refuse(
                "with a connection ramp the connections would never all be there: leave out one of both".into(),
            ),
            Some(Reconnect::EveryNs(0) | Reconnect::EveryRequests(0)) => {
                refuse("connections that stand for no time and no request measure nothing".into())
            }
            Some(Reconnect::EveryRequests(requests)) if requests < connections as u64 => {
                refuse(format!(
                    "{requests} requests are fewer than the {connections} connections, some of which would \
                     send none: give at least {connections}, better a hundred for each"
                ))
            }
            Some(_) => Ok(()),
        }
    }
}

/// Addresses from `first` on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SourceRange {
    first: IpAddr,
    count: u128,
}

impl SourceRange {
    /// How many addresses they are.
    pub(crate) const fn len(&self) -> u128 {
        self.count
    }

    /// The address at `index`, from the first again after the last.
    pub fn at(&self, index: usize) -> IpAddr {
        let step = index as u128 % self.count;
        match self.first {
            IpAddr::V4(first) => Ipv4Addr::from(u32::from(first).wrapping_add(step as u32)).into(),
            IpAddr::V6(first) => Ipv6Addr::from(u128::from(first).wrapping_add(step)).into(),
        }
    }

    fn between(first: IpAddr, last: IpAddr) -> Option<Self> {
        let span = match (first, last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                u128::from(u32::from(last).checked_sub(u32::from(first))?)
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => {
                u128::from(last).checked_sub(u128::from(first))?
            }
            _ => return None,
        };
        Some(Self {
            first,
            count: span.checked_add(1)?,
        })
    }

    /// All addresses of a network but, in IPv4, its own and its broadcast address.
    fn network(address: IpAddr, prefix_bits: u32) -> Option<Self> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let host_bits = bits - u32::min(prefix_bits, bits);
        if prefix_bits > bits || host_bits > 64 {
            return None;
        }
        let hosts = (1u128 << host_bits) - 1;
        match address {
            IpAddr::V4(address) => {
                let network = u32::from(address) & !(hosts as u32);
                let (first, last) = (network, network | hosts as u32);
                let has_edges = host_bits >= 2;
                let (first, last) = if has_edges {
                    (first + 1, last - 1)
                } else {
                    (first, last)
                };
                Self::between(Ipv4Addr::from(first).into(), Ipv4Addr::from(last).into())
            }
            IpAddr::V6(address) => {
                let network = u128::from(address) & !hosts;
                let last = Ipv6Addr::from(network | hosts);
                Self::between(Ipv6Addr::from(network).into(), last.into())
            }
        }
    }
}

impl FromStr for SourceRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address = |text: &str| text.parse::<IpAddr>().ok();
        let range = if let Some((first, last)) = text.split_once("..") {
            address(first)
                .zip(address(last))
                .and_then(|(first, last)| Self::between(first, last))
        } else if let Some((network, bits)) = text.split_once('/') {
            let bits = bits.parse().ok();
            address(network)
                .zip(bits)
                .and_then(|(network, bits)| Self::network(network, bits))
        } else {
            address(text).and_then(|only| Self::between(only, only))
        };
        range.ok_or_else(|| {
            "write one address, a range 127.0.0.2..127.0.0.200, or a network 127.1.0.0/16"
                .to_owned()
        })
    }
}

// How the requests of a run spread over its connections.

/// Responses on each connection that stood, warm-up included.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ConnectionUse {
    /// How many connections that was.
    pub connections: u64,
    /// Responses on all of them.
    pub requests: u64,
    /// Fewest on one; 0 without connections.
    pub requests_min: u64,
    /// Most on one.
    pub requests_max: u64,
    /// Sum of the squares.
    squares: u128,
}

impl ConnectionUse {
    /// A connection has ended, or the run has.
    pub(crate) fn note(&mut self, requests: u64) {
        self.merge(&Self {
            connections: 1,
            requests,
            requests_min: requests,
            requests_max: requests,
            squares: u128::from(requests).pow(2),
        });
    }

    /// Adds other connections.
    pub(crate) fn merge(&mut self, other: &Self) {
        if other.connections == 0 {
            return;
        }
        self.requests_min = match self.connections {
            0 => other.requests_min,
            _ => self.requests_min.min(other.requests_min),
        };
        self.requests_max = self.requests_max.max(other.requests_max);
        self.connections += other.connections;
        self.requests += other.requests;
        self.squares += other.squares;
    }

    /// Requests on a connection, on average; 0 without connections.
    #[must_use]
    pub fn mean(&self) -> f64 {
        match self.connections {
            0 => 0.0,
            connections => self.requests as f64 / connections as f64,
        }
    }

    /// Variance of the requests on a connection, of all there were.
    #[must_use]
    pub fn variance(&self) -> f64 {
        if self.connections == 0 {
            return 0.0;
        }
        // Whole numbers to the end: the difference of two large ones loses nothing.
        let connections = u128::from(self.connections);
        let spread = connections * self.squares - u128::from(self.requests).pow(2);
        spread as f64 / (connections as f64).powi(2)
    }

    /// Jain's index of fairness: 1 if all carried the same, 1 / n if one carried all.
    #[must_use]
    pub fn fairness(&self) -> f64 {
        if self.squares == 0 {
            return 1.0;
        }
        let sum = self.requests as f64;
        sum * sum / (self.connections as f64 * self.squares as f64)
    }
}

// Which of the target's addresses a connection uses: in turn over the connections, and another where one refuses.

/// One connection's place among the addresses. It stays with an address that took it, and tries each of the others
/// before its attempt counts as failed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct AddressChoice {
    /// How many addresses it has moved on by, below their number.
    moves: usize,
    /// Addresses tried since the last that took it.
    tried: usize,
}

impl AddressChoice {
    /// Which of `count` addresses the connection at `place` uses. Connections whose address refuses spread over all
    /// others.
    pub(crate) const fn index(self, place: usize, count: usize) -> usize {
        let first = place % count;
        if self.moves == 0 || count < 2 {
            return first;
        }
        let step = (place / count + self.moves - 1) % (count - 1) + 1;
        (first + step) % count
    }

    /// The address took the connection.
    pub(crate) const fn succeeded(&mut self) {
        self.tried = 0;
    }

    /// The address did not. True: there is another that has not been tried.
    pub(crate) const fn failed(&mut self, count: usize) -> bool {
        self.moves = (self.moves + 1) % count;
        self.tried = (self.tried + 1) % count;
        self.tried > 0
    }
}

// How long the target was kept from its CPU by other programs, read while it is loaded.
//
// The kernel counts for each thread how long it was ready and did not run. Behind another thread of the target that is
// the target's own cost; behind anybody else it is the machine's. So of what a thread waited, the CPU time that the
// target's other threads used meanwhile is taken off, and only the rest is called a stall. On several CPUs that takes
// off too much: then a stall is missed, never invented.
//
// A wait is counted when it ends, so all that the others used since it began has to be known: readings of the last
// [`READINGS`] are kept. Nothing is called a stall that began before them, or while threads came or went.

/// Reading more takes longer than it may while requests are due.
const THREADS_MAX: usize = 16;
/// Time between two readings for each thread that is read, which takes about a microsecond.
const PERIOD_NS_PER_THREAD: u64 = 50_000;
const PERIOD_NS_MIN: u64 = 100_000;
/// The first response after so long a silence, for each thread that is read, is handled only after a reading: it and
/// those that come with it are the ones that a stall delayed most.
const SILENCE_NS_PER_THREAD: u64 = 20_000;
const SILENCE_NS_MIN: u64 = 50_000;
const READINGS: usize = 128;
/// Waiting for less is in every distribution.
const STALL_NS_MIN: u64 = 50_000;

/// The counters of all threads of a target, open.
#[derive(Debug)]
pub struct TargetThreads {
    /// `/proc/PID/task` of each process; its links count the threads.
    processes: Vec<File>,
    /// `schedstat` of each thread.
    counters: Vec<File>,
}

impl TargetThreads {
    /// Opens those of these processes. `None` if that is not permitted, if the kernel does not count, or if they have
    /// more than 16 threads.
    #[must_use]
    pub fn open(pids: &[u32]) -> Option<Self> {
        let mut all = Self {
            processes: Vec::new(),
            counters: Vec::new(),
        };
        for pid in pids {
            let directory = format!("/proc/{pid}/task");
            all.processes.push(File::open(&directory).ok()?);
            for thread in fs::read_dir(&directory).ok()?.flatten() {
                if all.counters.len() == THREADS_MAX {
                    return None;
                }
                let counter = File::open(thread.path().join("schedstat")).ok()?;
                read_counter(&counter)?;
                all.counters.push(counter);
            }
        }
        (!all.counters.is_empty()).then_some(all)
    }

    /// True if no thread came or went since the counters were opened.
    fn are_complete(&self) -> bool {
        // Two links are the directory's own.
        let links =
            |process| fstat(process).map_or(0, |stat| (stat.st_nlink as usize).saturating_sub(2));
        self.processes.iter().map(links).sum::<usize>() == self.counters.len()
    }
}

fn read_counter(counter: &File) -> Option<ThreadTimes> {
    let mut buffer = [0_u8; 64];
    let count = counter.read_at(&mut buffer, 0).ok()?;
    ThreadTimes::parse(str::from_utf8(buffer.get(..count)?).ok()?)
}

/// All threads at one moment.
#[derive(Clone, Debug)]
struct Reading {
    at_ns: u64,
    times: Box<[ThreadTimes]>,
}

/// One generator thread's view of the target.
#[derive(Clone, Debug)]
pub(crate) struct TargetWatch {
    threads: Arc<TargetThreads>,
    next_ns: u64,
    /// When the last event came.
    event_ns: u64,
    history: History,
}

/// A time in which the target was kept from its CPU.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Kept {
    pub(crate) from_ns: u64,
    pub(crate) length_ns: u64,
}

impl TargetWatch {
    pub(crate) fn new(threads: &Arc<TargetThreads>) -> Self {
        Self {
            history: History::new(threads.counters.len()),
            threads: Arc::clone(threads),
            next_ns: 0,
            event_ns: 0,
        }
    }

    /// The time that the target waited for its CPU since the last reading, if it is time for the next; `has_events`:
    /// responses may have come.
    #[inline]
    pub(crate) fn look(&mut self, has_events: bool, now_ns: u64) -> Option<Kept> {
        let count = self.threads.counters.len() as u64;
        let silence_ns_max = (SILENCE_NS_PER_THREAD * count).max(SILENCE_NS_MIN);
        let is_after_silence = has_events && now_ns.saturating_sub(self.event_ns) >= silence_ns_max;
        if has_events {
            self.event_ns = now_ns;
        }
        if now_ns < self.next_ns && !is_after_silence {
            return None;
        }
        self.next_ns = now_ns + (PERIOD_NS_PER_THREAD * count).max(PERIOD_NS_MIN);
        self.read(now_ns)
    }

    fn read(&mut self, now_ns: u64) -> Option<Kept> {
        let reading = self.history.begin(now_ns);
        for (counter, times) in self.threads.counters.iter().zip(&mut reading.times) {
            match read_counter(counter) {
                Some(read) => *times = read,
                None => return self.history.forget(),
            }
        }
        if !self.threads.are_complete() {
            return self.history.forget();
        }
        self.history.end()
    }
}

/// The last readings, oldest overwritten first.
#[derive(Clone, Debug)]
struct History {
    readings: Vec<Reading>,
    /// Where the next is written.
    next: usize,
    /// How many there are.
    count: usize,
}

impl History {
    fn new(threads: usize) -> Self {
        let empty = Reading {
            at_ns: 0,
            times: vec![ThreadTimes::default(); threads].into(),
        };
        Self {
            readings: vec![empty; READINGS],
            next: 0,
            count: 0,
        }
    }

    /// The place of a new reading, which counts from [`Self::end`] on.
    fn begin(&mut self, at_ns: u64) -> &mut Reading {
        let reading = &mut self.readings[self.next];
        reading.at_ns = at_ns;
        reading
    }

    fn forget(&mut self) -> Option<Kept> {
        self.count = 0;
        None
    }

    /// The reading is complete: the longest wait that it shows for others than the target's own threads.
    fn end(&mut self) -> Option<Kept> {
        let newest = self.next;
        self.next = (self.next + 1) % READINGS;
        self.count = (self.count + 1).min(READINGS);
        let before = self.past(newest, 1)?;
        let (now, last) = (&self.readings[newest], &self.readings[before]);
        let waited = now.times.iter().zip(&last.times);
        let waited = waited.map(|(now, last)| now.since(*last).waited_ns);
        let (thread, waited_ns) = waited.enumerate().max_by_key(|&(_, waited_ns)| waited_ns)?;
        if waited_ns < STALL_NS_MIN {
            return None;
        }
        // It began at most this long before the last reading.
        let from_ns = last.at_ns.checked_sub(waited_ns)?;
        let first = (1..self.count)
            .filter_map(|age| self.past(newest, age))
            .find(|&index| self.readings[index].at_ns <= from_ns)?;
        let others = now
            .times
            .iter()
            .zip(&self.readings[first].times)
            .enumerate();
        let others_ns: u64 = others
            .filter(|&(index, _)| index != thread)
            .map(|(_, (now, first))| now.since(*first).cpu_ns)
            .sum();
        let length_ns = waited_ns.saturating_sub(others_ns);
        (length_ns >= STALL_NS_MIN).then_some(Kept { from_ns, length_ns })
    }

    /// The reading that is so many older than the newest.
    fn past(&self, newest: usize, age: usize) -> Option<usize> {
        (age < self.count).then(|| (newest + READINGS - age) % READINGS)
    }
}

// Opening a connection in its parts, where it has parts: TCP's, and the handshake above it.

/// Of all connections that came up, whenever that was.
#[derive(Clone, Debug, Default)]
pub struct Openings {
    /// From asking for the connection to the first word of the handshake.
    pub transport: LatencyHistogram,
    /// From there to its end.
    pub handshake: LatencyHistogram,
}

impl Openings {
    /// A connection that was asked for at `since_ns` is up.
    pub(crate) fn record(&mut self, since_ns: u64, handshake_began_ns: u64, now_ns: u64) {
        let began_ns = handshake_began_ns.clamp(since_ns, now_ns);
        self.transport.record(began_ns - since_ns);
        self.handshake.record(now_ns - began_ns);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.transport.merge(&other.transport);
        self.handshake.merge(&other.handshake);
    }
}

#[cfg(test)]
#[path = "tests/connection_plan.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/connection_use.rs"]
mod connection_use_tests;

#[cfg(test)]
#[path = "tests/address_choice.rs"]
mod address_choice_tests;

#[cfg(test)]
#[path = "tests/target_threads.rs"]
mod target_threads_tests;

#[cfg(test)]
#[path = "tests/openings.rs"]
mod openings_tests;
