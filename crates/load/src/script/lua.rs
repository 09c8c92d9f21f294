//! Scripts with Lua: a main state, and one state for each thread.
//!
//! Whether a script makes its requests itself, delays them or reads responses is decided once, from
//! the first thread after its `init`: a thread never calls Lua for functions that are not there.
//! The string that `request()` returns is sent unchanged.

mod runner;
mod state;
mod stats;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use memchr::memchr;
use millpond_http::Method;
use millpond_io::Address;
use mlua::{FromLua, Lua, MetaMethod, UserData, UserDataMethods, Value};
use runner::ScriptNeeds;
use runner::{ThreadFacts, ThreadHandle};
use state::{ScriptState, Scripted, sentence};
use stats::{Length, Stats};

use crate::config::{LoadConfig, Mode, PIPELINE_MAX};
use crate::error::LoadError;
use crate::record::LoadRecord;

use super::{ScriptConfig, ScriptErrors};

pub(crate) use runner::Runner;

/// A loaded script, ready for a run.
#[derive(Debug)]
pub struct Script {
    main: ScriptState,
    /// One per thread; lent to the workers during a run.
    runners: Vec<Runner>,
    length: Length,
    errors: ScriptErrors,
}

impl Script {
    /// Loads the script for the threads of `load`, up to and with the proof of its first request.
    ///
    /// # Errors
    /// If the file cannot be run, `setup` or `init` fail, or the first request is not whole.
    pub fn load(config: &ScriptConfig, load: &LoadConfig) -> Result<Self, LoadError> {
        Self::try_load(config, load).map_err(|problem| LoadError::Script {
            file: config.file.clone(),
            problem,
        })
    }

    fn try_load(config: &ScriptConfig, load: &LoadConfig) -> Scripted<Self> {
        let main = ScriptState::new(config, load, 0)?;
        let mut runners: Vec<Runner> = Vec::new();
        for place in 1..=load.threads.min(load.connections) {
            let state = ScriptState::new(config, load, place as u64)?;
            let facts = Arc::new(ThreadFacts::new(load.target.addresses[0].clone()));
            let handle = ThreadHandle {
                lua: state.lua.weak(),
                facts: Arc::clone(&facts),
            };
            state.set_thread(handle.clone())?;
            main.setup(handle)?;
            state.init(config)?;
            let first = runners.first().map(Runner::wishes);
            let wishes = first.unwrap_or_else(|| ScriptNeeds::of(&state));
            let mut runner = Runner::new(state, facts, wishes);
            // wrk proves the first thread only, and what a script counts then begins at 1 there.
            if first.is_none() || !wishes.is_dynamic {
                runner.prove()?;
            }
            runners.push(runner);
        }
        let script = Self {
            main,
            runners,
            length: match load.mode {
                Mode::ClosedLoop => Length::Distinct,
                _ => Length::Total,
            },
            errors: ScriptErrors::default(),
        };
        script.flush();
        Ok(script)
    }

    /// Lends a runner to each worker, which has so many connections.
    pub(crate) fn lend(&mut self, shares: impl Iterator<Item = usize>) -> Vec<Runner> {
        let mut runners = std::mem::take(&mut self.runners);
        for (runner, share) in runners.iter_mut().zip(shares) {
            runner.begin(share);
        }
        runners
    }

    /// Takes the runners back when their workers have ended.
    pub(crate) fn take_back(&mut self, runners: impl Iterator<Item = Box<Runner>>) {
        for mut runner in runners {
            runner.ended();
            self.errors.merge(std::mem::take(&mut runner.errors));
            self.runners.push(*runner);
        }
        self.flush();
    }

    /// The errors of the script during the run.
    pub fn errors(&self) -> &ScriptErrors {
        &self.errors
    }

    /// Calls the script's `done(summary, latency, requests)`, if it has one.
    ///
    /// # Errors
    /// If the script's function fails.
    pub fn done(&self, record: &LoadRecord) -> Result<(), String> {
        let summary = self.summary(record).map_err(|error| sentence(&error))?;
        let latency = Stats::of_latencies(&record.response, self.length);
        let requests = Stats::of_rates(&record.thread_rates, self.length);
        let ended = self.main.done((summary, latency, requests));
        self.flush();
        ended
    }

    fn summary(&self, record: &LoadRecord) -> mlua::Result<mlua::Table> {
        let kinds = record.errors;
        let number = |count: u64| count as f64;
        let errors = self.main.lua.create_table()?;
        errors.set("connect", number(kinds.connect))?;
        errors.set("read", number(kinds.read))?;
        errors.set("write", number(kinds.write))?;
        errors.set("status", number(kinds.status))?;
        errors.set("timeout", number(kinds.timeout))?;
        let summary = self.main.lua.create_table()?;
        // All responses, as in wrk: those with a wrong status are responses too.
        let answers = record.requests + kinds.status + kinds.validation;
        summary.set("duration", number(record.duration_ns / 1_000))?;
        summary.set("requests", number(answers))?;
        summary.set("bytes", number(record.bytes_received))?;
        summary.set("errors", errors)?;
        Ok(summary)
    }

    fn flush(&self) {
        // All states write through the same buffer of C's.
        self.main.flush();
    }
}

impl ScriptErrors {
    fn add(&mut self, message: String) {
        self.count += 1;
        self.first.get_or_insert(message);
    }

    fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.first = self.first.take().or(other.first);
    }
}

// Connections that wait before they ask again: for the script's `delay()`, or after its error.

/// Which connections wait until when.
#[derive(Debug)]
struct Pauses {
    /// Per connection; 0: it does not wait.
    until_ns: Vec<u64>,
    ends: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Pauses {
    fn new(connections: usize) -> Self {
        Self {
            until_ns: vec![0; connections],
            ends: BinaryHeap::with_capacity(connections),
        }
    }

    fn begin(&mut self, index: u32, until_ns: u64) {
        self.until_ns[index as usize] = until_ns;
        self.ends.push(Reverse((until_ns, index)));
    }

    fn is_paused(&self, index: u32) -> bool {
        self.until_ns[index as usize] != 0
    }

    /// When the next one ends.
    fn next_end_ns(&self) -> Option<u64> {
        self.ends.peek().map(|&Reverse((until_ns, _))| until_ns)
    }

    /// A connection whose pause has ended.
    fn end(&mut self, now_ns: u64) -> Option<u32> {
        while self.next_end_ns()? <= now_ns {
            let Reverse((until_ns, index)) = self.ends.pop()?;
            // A pause that was replaced by a later one has not ended.
            let until = &mut self.until_ns[index as usize];
            if *until == until_ns {
                *until = 0;
                return Some(index);
            }
        }
        None
    }
}

// Addresses as scripts see them: what `wrk.lookup` finds, `wrk.connect` tries and `thread.addr` is.

/// How long `wrk.connect` waits for an address that does not respond at all.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// An address in the hands of a script.
#[derive(Clone, Debug, Eq, PartialEq)]
struct ScriptAddress(Address);

impl ScriptAddress {
    /// Whether something listens there.
    fn accepts_connections(&self) -> bool {
        match &self.0 {
            Address::Inet(address) => TcpStream::connect_timeout(address, CONNECT_MAX).is_ok(),
            Address::Unix(path) => std::os::unix::net::UnixStream::connect(path).is_ok(),
        }
    }
}

impl UserData for ScriptAddress {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_meta_method(MetaMethod::ToString, |_, address, ()| {
            // Without brackets around an IPv6 address: as wrk writes it.
            Ok(match &address.0 {
                Address::Inet(inet) => format!("{}:{}", inet.ip(), inet.port()),
                Address::Unix(path) => path.display().to_string(),
            })
        });
    }
}

impl FromLua for ScriptAddress {
    fn from_lua(value: Value, _: &Lua) -> mlua::Result<Self> {
        let found = value.type_name();
        let given = match &value {
            Value::UserData(data) => data.borrow::<Self>().ok(),
            _ => None,
        };
        given.map(|address| address.clone()).ok_or_else(|| {
            mlua::Error::runtime(format!(
                "an address that wrk.lookup() returned is wanted here, not a {found}"
            ))
        })
    }
}

/// All addresses of a host and a service, which may be a number or a name of /etc/services.
fn look_up(host: &str, service: &str) -> Result<Vec<ScriptAddress>, String> {
    let fail = |cause: &str| format!("unable to resolve {host}:{service} {cause}");
    let port = service.parse().ok().or_else(|| port_of(service));
    let port: u16 = port.ok_or_else(|| fail("the service is unknown"))?;
    let found = (host, port)
        .to_socket_addrs()
        .map_err(|error| fail(&error.to_string()))?;
    let wrap = |address: SocketAddr| ScriptAddress(address.into());
    Ok(found.map(wrap).collect())
}

fn port_of(service: &str) -> Option<u16> {
    match service {
        "http" => Some(80),
        "https" => Some(443),
        _ => port_in(&std::fs::read_to_string("/etc/services").ok()?, service),
    }
}

/// The TCP port of `service` in a table like /etc/services: `name port/tcp alias... # comment`.
fn port_in(table: &str, service: &str) -> Option<u16> {
    table.lines().find_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let name = words.next()?;
        let port = words.next()?.strip_suffix("/tcp")?;
        let is_meant = name == service || words.any(|alias| alias == service);
        port.parse().ok().filter(|_| is_meant)
    })
}

// The requests in a string that a script returned: how many, and with which methods.

/// Why a string cannot be sent: its responses could not be matched.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
enum BatchError {
    /// A place where no request can be recognised.
    #[error("{problem} at {line}:{column}")]
    Malformed {
        problem: &'static str,
        line: usize,
        column: usize,
    },
    /// More than a connection may have in flight.
    #[error(
        "it holds more than {PIPELINE_MAX} requests, the most that may be on their way on a \
         connection: return fewer at a time"
    )]
    TooMany,
}

/// How strictly fields are checked that say nothing about a request's length.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Look {
    /// Each has to be one: for the first request of a script, which is to find its mistakes.
    Close,
    /// Not at all: for those that leave.
    Brief,
}

/// Fills `methods` with those of the requests in `bytes`, in order.
fn split(bytes: &[u8], look: Look, methods: &mut Vec<Method>) -> Result<(), BatchError> {
    methods.clear();
    let mut scan = Scan { bytes, at: 0, look };
    loop {
        scan.skip_blank_lines();
        if scan.at == bytes.len() && !methods.is_empty() {
            return Ok(());
        }
        let request = scan.request();
        let method = request.map_err(|problem| scan.malformed(problem))?;
        if methods.len() == PIPELINE_MAX {
            return Err(BatchError::TooMany);
        }
        methods.push(method);
    }
}

const INCOMPLETE: &str = "incomplete request";

/// How long a request's body is.
enum BodyLen {
    Bytes(usize),
    Chunked,
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    look: Look,
}

impl<'a> Scan<'a> {
    fn malformed(&self, problem: &'static str) -> BatchError {
        let read = &self.bytes[..self.at];
        let line_start = read.iter().rposition(|&byte| byte == b'\n');
        BatchError::Malformed {
            problem,
            line: 1 + read.iter().filter(|&&byte| byte == b'\n').count(),
            column: 1 + read.len() - line_start.map_or(0, |at| at + 1),
        }
    }

    fn skip_blank_lines(&mut self) {
        while let Some(b'\r' | b'\n') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    /// The next line without its end.
    fn line(&mut self) -> Result<&'a [u8], &'static str> {
        let rest = &self.bytes[self.at..];
        let Some(end) = memchr(b'\n', rest) else {
            self.at = self.bytes.len();
            return Err(INCOMPLETE);
        };
        self.at += end + 1;
        let line = &rest[..end];
        Ok(line.strip_suffix(b"\r").unwrap_or(line))
    }

    fn skip(&mut self, count_bytes: usize) -> Result<(), &'static str> {
        if count_bytes > self.bytes.len() - self.at {
            self.at = self.bytes.len();
            return Err(INCOMPLETE);
        }
        self.at += count_bytes;
        Ok(())
    }

    fn request(&mut self) -> Result<Method, &'static str> {
        let start = self.at;
        let line = self.line()?;
        let Some(method) = method_of(line) else {
            self.at = start;
            return Err("this is no request line, which is METHOD PATH HTTP/1.1");
        };
        match self.fields()? {
            BodyLen::Bytes(count) => self.skip(count)?,
            BodyLen::Chunked => self.chunks()?,
        }
        Ok(method)
    }

    fn fields(&mut self) -> Result<BodyLen, &'static str> {
        let mut body = BodyLen::Bytes(0);
        loop {
            let start = self.at;
            let line = self.line()?;
            // Of all fields only these two matter, and few others begin like them.
            match line.first() {
                None => return Ok(body),
                Some(b'c' | b'C') => {
                    if let Some(value) = value_of(line, b"content-length") {
                        let length = std::str::from_utf8(value).ok();
                        let length = length.and_then(|text| text.parse().ok());
                        let Some(length) = length else {
                            self.at = start;
                            return Err("this Content-Length is no number");
                        };
                        if matches!(body, BodyLen::Bytes(_)) {
                            body = BodyLen::Bytes(length);
                        }
                    }
                }
                Some(b't' | b'T') => {
                    if let Some(value) = value_of(line, b"transfer-encoding")
                        && value.to_ascii_lowercase().ends_with(b"chunked")
                    {
                        body = BodyLen::Chunked;
                    }
                }
                Some(_) => {}
            }
            if self.look == Look::Close && memchr(b':', line).is_none() {
                self.at = start;
                return Err("this is no header field, which is Name: value");
            }
        }
    }

    fn chunks(&mut self) -> Result<(), &'static str> {
        loop {
            let start = self.at;
            let line = self.line()?;
            let digits = line.split(|&byte| byte == b';').next().unwrap_or_default();
            let size = std::str::from_utf8(digits.trim_ascii()).ok();
            let size = size.and_then(|text| usize::from_str_radix(text, 16).ok());
            match size {
                Some(0) => break,
                Some(size) => self.skip(size)?,
                None => {
                    self.at = start;
                    return Err("this is no size of a chunk");
                }
            }
            if !self.line()?.is_empty() {
                return Err("a chunk is longer than its size says");
            }
        }
        while !self.line()?.is_empty() {}
        Ok(())
    }
}

/// The method of `METHOD TARGET HTTP/1.x`.
fn method_of(line: &[u8]) -> Option<Method> {
    let token_end = memchr(b' ', line)?;
    let (token, rest) = (&line[..token_end], &line[token_end + 1..]);
    let target = rest[..rest.len().checked_sub(1)?].strip_suffix(b" HTTP/1.")?;
    let is_request = !token.is_empty()
        && token.iter().all(u8::is_ascii_graphic)
        && !target.is_empty()
        && rest.last().is_some_and(u8::is_ascii_digit);
    is_request.then(|| Method::from_token(token))
}

fn value_of<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (found, rest) = line.split_at_checked(name.len())?;
    let value = rest.strip_prefix(b":")?;
    found
        .eq_ignore_ascii_case(name)
        .then_some(value.trim_ascii())
}

#[cfg(test)]
#[path = "tests/lua.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/pauses.rs"]
mod pauses_tests;

#[cfg(test)]
#[path = "tests/address.rs"]
mod address_tests;

#[cfg(test)]
#[path = "tests/batch.rs"]
mod batch_tests;
