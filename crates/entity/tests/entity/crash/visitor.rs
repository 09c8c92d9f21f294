//! One connection's load: its requests, and its records in the histories.
//!
//! Connections share all keys. Each value repeats the number of its put, so that a torn or a mixed one matches no put.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::history::{Action, Answer, Condition, Moment, Operation, Put, PutNumber};
use crate::support::{Client, Reply, request_with, target};

/// Enough that few operations on one key are under way at once, few enough that most keys see many.
pub(crate) const KEYS: usize = 48;

/// The name of a key; they sort as their numbers do.
pub(crate) fn key(index: usize) -> String {
    format!("key{index:03}")
}

/// Observations of all connections of a server.
pub(crate) struct Visit {
    pub(crate) address: SocketAddr,
    pub(crate) start: Instant,
    /// Requests with a response.
    pub(crate) answered: AtomicU64,
    /// Whether writes may be refused: its disk fails.
    pub(crate) may_refuse: bool,
    /// Whether a client got the refusal of writes until a restart.
    pub(crate) is_refusing: AtomicBool,
}

impl Visit {
    pub(crate) fn now(&self) -> Moment {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Moment {
            since_start_ns: u64::try_from(self.start.elapsed().as_nanos()).unwrap(),
            clock_ms: u64::try_from(since_1970.as_millis()).unwrap(),
        }
    }
}

/// An operation on the key of that index.
pub(crate) type Seen = (usize, Operation);

/// The request, until the response comes.
#[derive(Clone, Copy)]
struct Asked {
    invoked: Moment,
    /// A client had been refused a write before.
    is_late: bool,
    question: Question,
}

impl Asked {
    fn now(visit: &Visit, question: Question) -> Self {
        Self {
            // In this order: a late one is late for certain.
            is_late: visit.is_refusing.load(Ordering::SeqCst),
            invoked: visit.now(),
            question,
        }
    }
}

/// The response to a write that may be refused.
enum Verdict {
    Taken,
    /// It was not done, but it may be found behind the restart.
    Lost,
    /// It was not done and never will be.
    Never,
}

#[derive(Clone, Copy)]
enum Question {
    Put(usize, Put, Condition),
    Delete(usize),
    Get(usize),
    /// From one key on and before another.
    Range(usize, usize),
}

/// A connection, and what it remembers across deaths of the server.
pub(crate) struct Visitor {
    number: u64,
    random: fastrand::Rng,
    puts: u64,
    /// Requests sent before the first response is read.
    pipeline: usize,
    /// The put and its tag that this connection last saw of a key.
    last_seen: HashMap<usize, (PutNumber, String)>,
    /// The tag of a put, as far as this connection got it.
    pub(crate) tags: HashMap<PutNumber, String>,
    pub(crate) seen: Vec<Seen>,
}

impl Visitor {
    pub(crate) fn new(number: u64, seed: u64) -> Self {
        Self {
            number,
            random: fastrand::Rng::with_seed(seed ^ number),
            puts: 0,
            pipeline: 1 + number as usize % 3,
            last_seen: HashMap::new(),
            tags: HashMap::new(),
            seen: Vec::new(),
        }
    }

    /// Reads every key, and then all in one range: the content of a server that has just started.
    pub(crate) fn look(&mut self, visit: &Visit) {
        let mut client = Client::connect(visit.address);
        let questions = (0..KEYS).map(Question::Get);
        for question in questions.chain([Question::Range(0, KEYS)]) {
            let asked = Asked::now(visit, question);
            client.send(&self.bytes(&asked)).unwrap();
            self.read_answer(&mut client, visit, asked).unwrap();
        }
    }

    /// Asks until the connection ends, which is the only way it ends.
    pub(crate) fn ask(&mut self, mut client: Client, visit: &Visit) {
        let mut asked = std::collections::VecDeque::new();
        while asked.len() < self.pipeline {
            let next = Asked::now(visit, self.next_question());
            let bytes = self.bytes(&next);
            asked.push_back(next);
            let is_sent = client.send(&bytes).is_ok();
            if is_sent && asked.len() < self.pipeline {
                continue;
            }
            let oldest = asked.pop_front().unwrap();
            if !is_sent || self.read_answer(&mut client, visit, oldest).is_err() {
                break;
            }
        }
        let returned = visit.now();
        for Asked {
            invoked, question, ..
        } in asked
        {
            self.note_unanswered(invoked, returned, question);
        }
    }

    fn next_question(&mut self) -> Question {
        let key = self.random.usize(..KEYS);
        match self.random.u8(..100) {
            0..25 => Question::Put(key, self.next_put(), Condition::None),
            25..40 => {
                let condition = match self.last_seen.get(&key) {
                    Some((number, _)) => Condition::Holds(*number),
                    None => Condition::Absent,
                };
                Question::Put(key, self.next_put(), condition)
            }
            40..45 => Question::Put(key, self.next_put(), Condition::Absent),
            45..60 => Question::Delete(key),
            60..97 => Question::Get(key),
            _ => {
                let start = self.random.usize(..KEYS);
                Question::Range(start, KEYS.min(start + 1 + self.random.usize(..16)))
            }
        }
    }

    /// One in five ends within three seconds.
    fn next_put(&mut self) -> Put {
        self.puts += 1;
        let ends = self.random.u8(..5) == 0;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let end = (now.as_secs() + 1 + self.random.u64(..3)) * 1000;
        Put {
            number: self.number << 40 | self.puts,
            expires_ms: if ends { end } else { 0 },
        }
    }

    fn bytes(&mut self, asked: &Asked) -> Vec<u8> {
        match asked.question {
            Question::Put(index, put, condition) => {
                let field = match condition {
                    Condition::None => String::new(),
                    Condition::Absent => "If-None-Match: *\r\n".to_owned(),
                    Condition::Holds(_) => format!("If-Match: {}\r\n", self.last_seen[&index].1),
                };
                let mut target = target(key(index).as_bytes());
                if put.expires_ms != 0 {
                    target.push_str(&format!("&expires={}", put.expires_ms / 1000));
                }
                request_with("PUT", &target, &field, &self.value(put.number))
            }
            Question::Delete(index) => {
                request_with("DELETE", &target(key(index).as_bytes()), "", b"")
            }
            Question::Get(index) => request_with("GET", &target(key(index).as_bytes()), "", b""),
            Question::Range(start, end) => {
                let target = format!("/v0/entities?start={}&end={}", key(start), key(end));
                request_with("GET", &target, "", b"")
            }
        }
    }

    /// Of a length that crosses the blocks of logs and of memory.
    fn value(&mut self, number: PutNumber) -> Vec<u8> {
        let len = [0, 10, 1000, 40_000][self.random.usize(..4)] + self.random.usize(..100);
        let stamp = stamp(number);
        let len = stamp.len() + len;
        stamp.into_iter().cycle().take(len).collect()
    }

    /// Reads one response and notes it; an error where none came.
    fn read_answer(&mut self, client: &mut Client, visit: &Visit, asked: Asked) -> io::Result<()> {
        let Asked {
            invoked,
            is_late,
            question,
        } = asked;
        let answer = client.read_reply(false).and_then(|reply| {
            let reply = reply.ok_or(io::ErrorKind::UnexpectedEof)?;
            let chunks = match question {
                Question::Range(..) if reply.status == 200 => client.read_chunks()?,
                _ => Vec::new(),
            };
            Ok((reply, chunks))
        });
        let returned = visit.now();
        let (reply, chunks) = match answer {
            Ok(answer) => answer,
            Err(error) => {
                self.note_unanswered(invoked, returned, question);
                return Err(error);
            }
        };
        let moments = (invoked, returned);
        if let Question::Put(..) | Question::Delete(_) = question {
            match verdict(&reply, visit, is_late) {
                Verdict::Taken => {}
                Verdict::Lost => self.note_unanswered(invoked, returned, question),
                // If it is found anyway, it is a value that was never put.
                Verdict::Never => {}
            }
        }
        match question {
            Question::Put(..) | Question::Delete(_) if reply.status == 503 => {}
            // Too many ranges at once: this one has read nothing.
            Question::Range(..) if reply.status == 503 => {}
            Question::Get(_) if is_opened_again(&reply, visit) => {}
            Question::Range(start, end) => self.note_range(moments, start..end, &chunks),
            Question::Get(index) => self.note_get(moments, index, &reply),
            Question::Delete(index) => {
                assert_eq!(reply.status, 202, "{}", text(&reply));
                self.last_seen.remove(&index);
                self.note(moments, index, Action::Delete(Answer::Done));
            }
            Question::Put(index, put, condition) => {
                let answer = match reply.status {
                    201 => Answer::Done,
                    412 => Answer::Refused,
                    other => panic!("a put was answered with {other}: {}", text(&reply)),
                };
                match answer {
                    Answer::Done => self.remember(index, put.number, &reply),
                    _ => drop(self.last_seen.remove(&index)),
                }
                self.note(moments, index, Action::Put(put, condition, answer));
            }
        }
        visit.answered.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn note_get(&mut self, moments: (Moment, Moment), index: usize, reply: &Reply) {
        let found = match reply.status {
            200 => Some(put_of(&reply.body)),
            404 => None,
            other => panic!("a read was answered with {other}: {}", text(reply)),
        };
        match found {
            Some(number) => self.remember(index, number, reply),
            None => drop(self.last_seen.remove(&index)),
        }
        self.note(moments, index, Action::Read(found));
    }

    /// A range reads each of its keys.
    fn note_range(
        &mut self,
        moments: (Moment, Moment),
        keys: std::ops::Range<usize>,
        chunks: &[Vec<u8>],
    ) {
        let mut chunks = chunks.iter().peekable();
        for index in keys {
            let record = format!("{}\n", key(index));
            let value = chunks
                .peek()
                .and_then(|chunk| chunk.strip_prefix(record.as_bytes()));
            let found = value.map(put_of);
            if found.is_some() {
                chunks.next();
            }
            self.note(moments, index, Action::Read(found));
        }
        let left = chunks.next().map(|chunk| String::from_utf8_lossy(chunk));
        assert!(left.is_none(), "{left:?} was not asked for, or comes twice");
    }

    fn note_unanswered(&mut self, invoked: Moment, returned: Moment, question: Question) {
        let (index, action) = match question {
            Question::Put(index, put, condition) => {
                (index, Action::Put(put, condition, Answer::Unknown))
            }
            Question::Delete(index) => (index, Action::Delete(Answer::Unknown)),
            Question::Get(_) | Question::Range(..) => return,
        };
        self.note((invoked, returned), index, action);
    }

    fn note(&mut self, (invoked, returned): (Moment, Moment), index: usize, action: Action) {
        let operation = Operation {
            invoked,
            returned,
            action,
        };
        self.seen.push((index, operation));
    }

    /// A version has one tag, now and behind every death.
    fn remember(&mut self, index: usize, number: PutNumber, reply: &Reply) {
        let tag = reply.field("ETag").expect("a version has a tag").to_owned();
        let known = self.tags.entry(number).or_insert_with(|| tag.clone());
        assert_eq!(*known, tag, "put {number:x} has two tags");
        self.last_seen.insert(index, (number, tag));
    }
}

/// Once a write was refused, no later one is taken.
fn verdict(reply: &Reply, visit: &Visit, is_late: bool) -> Verdict {
    if reply.status != 503 {
        let is_done = [201, 202].contains(&reply.status);
        assert!(
            !(is_late && is_done),
            "a write was taken behind one that was refused"
        );
        return Verdict::Taken;
    }
    if reply.field("Retry-After").is_some() {
        // Full of work, or merging has fallen behind: it was not begun.
        return Verdict::Never;
    }
    assert!(visit.may_refuse, "a write was refused: {}", text(reply));
    visit.is_refusing.store(true, Ordering::SeqCst);
    match is_late {
        true => Verdict::Never,
        false => Verdict::Lost,
    }
}

/// An engine that had no room is closed and opened again, and reads are refused for that moment.
fn is_opened_again(reply: &Reply, visit: &Visit) -> bool {
    visit.may_refuse && reply.status == 503 && reply.field("Retry-After").is_some()
}

fn stamp(number: PutNumber) -> Vec<u8> {
    format!("{number:x};").into_bytes()
}

/// Which put a value is of; it has to be all of it.
fn put_of(value: &[u8]) -> PutNumber {
    whole_put_of(value)
        .unwrap_or_else(|| panic!("torn or foreign: {:?}", String::from_utf8_lossy(value)))
}

fn whole_put_of(value: &[u8]) -> Option<PutNumber> {
    let end = value.iter().position(|&byte| byte == b';')?;
    let digits = std::str::from_utf8(&value[..end]).ok()?;
    let number = PutNumber::from_str_radix(digits, 16).ok()?;
    let is_whole = stamp(number).iter().cycle().zip(value).all(|(a, b)| a == b);
    is_whole.then_some(number)
}

fn text(reply: &Reply) -> String {
    String::from_utf8_lossy(&reply.body).into_owned()
}
