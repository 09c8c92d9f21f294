//! A well-behaved client of the entity server that writes, and afterwards reads back what was acknowledged.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{Answer, Client};
use super::scene::{Extra, GAP_MAX, Outcome, STOP_MAX, Scene, Stop, beside};

/// Failures that are quoted; all are counted.
const QUOTED_MAX: usize = 3;
/// Between two tries of one write.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The possible values of a key.
#[derive(Clone, Debug, Default)]
struct Told {
    /// The number of the last write that was acknowledged.
    stored: Option<u64>,
    /// Later ones, whose outcome is unknown.
    unknown: Vec<u64>,
}

/// How it writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writing {
    pub(crate) prefix: &'static str,
    pub(crate) value_bytes: usize,
    /// Keys, written in turn.
    pub(crate) keys: u64,
    /// Each write on a connection of its own.
    pub(crate) reconnects: bool,
}

/// The client, with all the responses it got.
pub(crate) struct Writer {
    client: Client,
    writing: Writing,
    serial: u64,
    told: BTreeMap<u64, Told>,
    statuses: BTreeMap<u16, u64>,
    without_retry_after: u64,
    failures: u64,
    quoted: Vec<String>,
    last_stored: Instant,
    longest_gap: Duration,
}

/// The value of a number: the number, and so many bytes that follow from it.
fn value_of(number: u64, length_bytes: usize) -> Vec<u8> {
    let mut value = format!("{number:016x}").into_bytes();
    value.resize(length_bytes.max(value.len()), b'a' + (number % 26) as u8);
    value
}

fn number_in(value: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(value.get(..16)?).ok()?;
    u64::from_str_radix(digits, 16).ok()
}

impl Writer {
    pub(crate) fn new(address: SocketAddr, writing: Writing) -> Self {
        Self::over(Client::new(address), writing)
    }

    pub(crate) fn over(client: Client, writing: Writing) -> Self {
        Self {
            client,
            writing,
            serial: 0,
            told: BTreeMap::new(),
            statuses: BTreeMap::new(),
            without_retry_after: 0,
            failures: 0,
            quoted: Vec::new(),
            last_stored: Instant::now(),
            longest_gap: Duration::ZERO,
        }
    }

    /// One write of the next number; whether it was acknowledged.
    pub(crate) fn write(&mut self) -> bool {
        self.serial += 1;
        let key = self.serial % self.writing.keys;
        let target = self.target(key);
        let value = value_of(self.serial, self.writing.value_bytes);
        if self.writing.reconnects {
            self.client.close();
        }
        let answer = self.client.request("PUT", &target, &value);
        self.note(key, answer)
    }

    /// Leaves its place to others until the next write.
    pub(crate) fn disconnect(&mut self) {
        self.client.close();
    }

    /// One write; a pause behind one that was not acknowledged.
    pub(crate) fn write_or_pause(&mut self) {
        if !self.write() {
            std::thread::sleep(RETRY_PAUSE);
        }
    }

    fn target(&self, key: u64) -> String {
        format!("/v0/entity?id={}-{key}", self.writing.prefix)
    }

    fn note(&mut self, key: u64, answer: Result<Answer, String>) -> bool {
        let told = self.told.entry(key).or_default();
        match answer {
            Ok(answer) => {
                *self.statuses.entry(answer.status).or_default() += 1;
                if answer.status == 201 {
                    (told.stored, told.unknown) = (Some(self.serial), Vec::new());
                    self.longest_gap = self.longest_gap.max(self.last_stored.elapsed());
                    self.last_stored = Instant::now();
                    return true;
                }
                self.without_retry_after +=
                    u64::from(answer.status == 503 && !answer.has_retry_after);
                told.unknown.push(self.serial);
            }
            Err(sentence) => {
                told.unknown.push(self.serial);
                self.failures += 1;
                if self.quoted.len() < QUOTED_MAX {
                    self.quoted.push(sentence);
                }
            }
        }
        false
    }

    /// One write, tried until it is acknowledged; an error after `time_max`.
    pub(crate) fn write_through(
        &mut self,
        time_max: Duration,
        has_ended: impl Fn() -> bool,
    ) -> Result<(), String> {
        let begun = Instant::now();
        while !self.write() {
            if begun.elapsed() > time_max || has_ended() {
                return Err(format!(
                    "no write was acknowledged for {:?}: {}",
                    begun.elapsed(),
                    self.summary()
                ));
            }
            std::thread::sleep(RETRY_PAUSE);
        }
        Ok(())
    }

    pub(crate) fn stored(&self) -> u64 {
        self.statuses.get(&201).copied().unwrap_or_default()
    }

    /// Keys that hold a value for certain.
    pub(crate) fn stored_keys(&self) -> usize {
        self.told
            .values()
            .filter(|told| told.stored.is_some())
            .count()
    }

    /// Whatever was not acknowledged was refused as the server's own failure, or got no response.
    pub(crate) fn check_refusals(&self) -> Result<(), String> {
        match self
            .statuses
            .keys()
            .all(|&status| status == 201 || status >= 500)
        {
            true => Ok(()),
            false => Err(format!("a write has a wrong response: {}", self.summary())),
        }
    }

    /// The same client, of a server that was started again.
    pub(crate) fn move_to(&mut self, client: Client) {
        self.client = client;
    }

    /// The responses were of these statuses, none without Retry-After where it belongs, and every request had one.
    pub(crate) fn check_statuses(&self, allowed: &[u16]) -> Result<(), String> {
        let is_allowed = self.statuses.keys().all(|status| allowed.contains(status));
        match is_allowed && self.failures == 0 && self.without_retry_after == 0 && self.stored() > 0
        {
            true => Ok(()),
            false => Err(format!(
                "the writing client was to see {allowed:?} alone: {}",
                self.summary()
            )),
        }
    }

    /// Writes continued: no longer than `gap_max` without one.
    pub(crate) fn check_progress(&self, gap_max: Duration) -> Result<(), String> {
        let gap = self.longest_gap.max(self.last_stored.elapsed());
        match gap <= gap_max {
            true => Ok(()),
            false => Err(format!(
                "no write was acknowledged for {gap:?}: {}",
                self.summary()
            )),
        }
    }

    /// Reads every key back: it holds what was acknowledged last, or a later write whose outcome is unknown.
    pub(crate) fn check_stored(&self, address: SocketAddr) -> Result<(), String> {
        match self.read_back(&mut Client::new(address))? {
            None => Ok(()),
            Some(refused) => Err(refused),
        }
    }

    /// The same from a server that may refuse: an error is a wrong response, otherwise the first refusal, if there was one.
    pub(crate) fn read_back(&self, client: &mut Client) -> Result<Option<String>, String> {
        for (key, told) in &self.told {
            let target = self.target(*key);
            let answer = match client.get(&target) {
                Ok(answer) if answer.status < 500 => answer,
                Ok(answer) => return Ok(Some(format!("GET {target}: {}", answer.status))),
                Err(sentence) => return Ok(Some(sentence)),
            };
            let found = self
                .number_of(&answer)
                .map_err(|error| format!("{target}: {error}"))?;
            let is_right =
                found == told.stored || found.is_some_and(|number| told.unknown.contains(&number));
            if !is_right {
                return Err(format!(
                    "{target} holds write {found:?}, and the client was told {told:?}"
                ));
            }
        }
        Ok(None)
    }

    /// Which write a value is of, if there is one.
    fn number_of(&self, answer: &Answer) -> Result<Option<u64>, String> {
        match answer.status {
            404 => Ok(None),
            200 => {
                let number = number_in(&answer.body);
                let is_whole = number.is_some_and(|number| {
                    answer.body == value_of(number, self.writing.value_bytes)
                });
                match is_whole {
                    true => Ok(number),
                    false => Err("a value that was never written".to_owned()),
                }
            }
            status => Err(format!("it is answered {status}")),
        }
    }

    pub(crate) fn summary(&self) -> Value {
        let statuses: BTreeMap<String, u64> = self
            .statuses
            .iter()
            .map(|(status, count)| (status.to_string(), *count))
            .collect();
        let mut summary = json!({
            "statuses": statuses,
            "longest_gap_ns": self.longest_gap.as_nanos() as u64,
        });
        if self.failures > 0 {
            summary["without_answer"] = json!(self.failures);
            summary["why"] = json!(self.quoted);
        }
        if self.without_retry_after > 0 {
            summary["without_retry_after"] = json!(self.without_retry_after);
        }
        summary
    }
}

/// Goal: a write that was acknowledged replaces all doubt, and one that was not adds some; statuses and gaps are
/// judged.
#[test]
fn what_the_writer_was_told_is_kept() {
    let writing = Writing {
        prefix: "t",
        value_bytes: 100,
        keys: 1,
        reconnects: false,
    };
    let mut writer = Writer::new(([127, 0, 0, 1], 1).into(), writing);
    assert!(!writer.write() && writer.failures == 1 && writer.stored_keys() == 0);
    assert_eq!(writer.told[&0].unknown, [1]);
    assert!(writer.check_statuses(&[201]).is_err());
    assert!(writer.check_progress(Duration::ZERO).is_err());
    let value = value_of(77, 100);
    assert_eq!((value.len(), number_in(&value)), (100, Some(77)));
}

// Small requests on 200 connections, each followed by the next as soon as the response came, beside a client that
// writes.
//
// Its share of all requests is reported; how long it waits is not judged.

const CONNECTIONS: usize = 200;
const THREADS: usize = 2;
const REQUEST: &[u8] = b"GET /v0/entity?id=small HTTP/1.1\r\nHost: hostile\r\n\r\n";

pub(super) fn run(scene: &Scene) -> Result<Outcome, String> {
    let mut stage = scene.entity(&["--sync", "off"])?;
    let address = stage.address();
    let put = Client::new(address).request("PUT", "/v0/entity?id=small", b"v")?;
    if put.status != 201 {
        return Err(format!("PUT is answered {}", put.status));
    }
    let writing = Writing {
        prefix: "beside",
        value_bytes: 200,
        keys: 100,
        reconnects: false,
    };
    let mut writer = Writer::new(address, writing);
    let write = |stop: &Stop| {
        while !stop.is_over() {
            writer.write_or_pause();
        }
    };
    let (rounds, ()) = beside(scene.time(), |stop| flood(address, stop), write)?;
    let requests = rounds?;
    writer.check_statuses(&[201])?;
    writer.check_progress(GAP_MAX)?;
    writer.check_stored(address)?;
    let share = writer.stored() as f64 / (writer.stored() + requests).max(1) as f64;
    let fair_share = 1.0 / (CONNECTIONS + 1) as f64;
    let seen = json!({ "requests": requests, "good_share": share, "fair_share": fair_share,
        "writer": writer.summary() });
    drop(writer);
    let judged = stage.judge(Extra::default(), &seen)?;
    stage.stop(STOP_MAX)?;
    Ok(Outcome::Stood(judged))
}

/// How many requests got a response.
fn flood(address: SocketAddr, stop: &Stop) -> Result<u64, String> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| scope.spawn(|| flood_part(address, stop, CONNECTIONS / THREADS)))
            .collect();
        let answered = threads.into_iter().map(|thread| match thread.join() {
            Ok(answered) => answered.map_err(|error| format!("the flood: {error}")),
            Err(_) => Err("a client panicked".to_owned()),
        });
        answered.sum()
    })
}

fn flood_part(address: SocketAddr, stop: &Stop, count: usize) -> std::io::Result<u64> {
    let mut streams = Vec::new();
    for _ in 0..count {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        streams.push(stream);
    }
    let mut answered = 0;
    while !stop.is_over() {
        for stream in &mut streams {
            stream.write_all(REQUEST)?;
        }
        for stream in &mut streams {
            // A response of a few hundred bytes comes in one piece.
            if stream.read(&mut [0; 1024])? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            answered += 1;
        }
    }
    Ok(answered)
}

// One upload of 260 bytes a second that announces 60 MB, beside writes of 200 KB.
//
// The announced length was reserved, so that every longer write of any client got 503 meanwhile.

const HEAD: &[u8] =
    b"PUT /v0/entity?id=slow HTTP/1.1\r\nHost: hostile\r\nContent-Length: 60000000\r\n\r\n";
const VALUE_BYTES: usize = 200_000;
/// Writes at the same time: alone none waits for memory.
const WRITERS: usize = 4;

pub(super) fn slow_upload_run(scene: &Scene) -> Result<Outcome, String> {
    let mut stage = scene.entity(&[])?;
    let address = stage.address();
    let prefixes: [&'static str; WRITERS] = ["a", "b", "c", "d"];
    let mut writers = prefixes.map(|prefix| {
        let writing = Writing {
            prefix,
            value_bytes: VALUE_BYTES,
            keys: 20,
            reconnects: false,
        };
        Writer::new(address, writing)
    });
    let write = |stop: &Stop| {
        std::thread::scope(|scope| {
            for writer in &mut writers {
                scope.spawn(|| {
                    while !stop.is_over() {
                        writer.write_or_pause();
                    }
                });
            }
        });
    };
    let (uploads, ()) = beside(scene.time() * 3 / 2, |stop| upload(address, stop), write)?;
    for writer in &writers {
        writer.check_statuses(&[201])?;
        writer.check_progress(GAP_MAX)?;
        writer.check_stored(address)?;
    }
    let summaries: Vec<_> = writers.iter().map(Writer::summary).collect();
    drop(writers);
    // The engine's memory for the longest values, beside the shares.
    let extra = Extra {
        resident_bytes: 16 * VALUE_BYTES as u64,
        ..Extra::default()
    };
    let seen = json!({ "uploads": uploads, "writers": summaries });
    let judged = stage.judge(extra, &seen)?;
    stage.stop(STOP_MAX)?;
    Ok(Outcome::Stood(judged))
}

/// One upload after the other, should the server cut them; how many.
fn upload(address: SocketAddr, stop: &Stop) -> u64 {
    let mut uploads = 0;
    while !stop.is_over() {
        let Ok(mut stream) = TcpStream::connect(address) else {
            continue;
        };
        uploads += u64::from(stream.write_all(HEAD).is_ok());
        while !stop.is_over() && stream.write_all(&[b'x'; 26]).is_ok() {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    uploads
}
