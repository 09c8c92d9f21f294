//! A thread's script while the thread sends: its next requests, its delays, its view of responses.
//!
//! `worker` asks for the next batch, `connection` feeds responses in, if the script wants to see them. A script without
//! `request()` was called once before the run: then nothing here calls into Lua for a request. Errors of the script are
//! counted and the first one is reported; the request that it concerns has failed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use millpond_http::Method;
use millpond_io::Address;
use mlua::{Lua, UserData, UserDataFields, UserDataMethods, Value, WeakLua};

use crate::script::ScriptErrors;

use super::state::{ScriptState, Scripted};
use super::{Look, Pauses, ScriptAddress, split};

/// A connection whose request could not be made tries again after this long: an error that repeats
/// must not become a busy loop.
const ERROR_PAUSE_NS: u64 = 10_000_000;

/// Arguments of `response`: status, fields.
const WANTS_FIELDS: u8 = 2;
/// And body.
const WANTS_BODY: u8 = 3;

/// The decisions from the first thread's state, for all of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScriptNeeds {
    pub(super) is_dynamic: bool,
    pub(super) has_delay: bool,
    pub(super) wants_responses: bool,
}

impl ScriptNeeds {
    pub(super) fn of(state: &ScriptState) -> Self {
        Self {
            is_dynamic: state.defines("request"),
            has_delay: state.defines("delay"),
            wants_responses: state.defines("response"),
        }
    }
}

/// A response on its way in.
#[derive(Clone, Debug, Default)]
struct Answer {
    head: Vec<u8>,
    body: Vec<u8>,
}

/// One thread's script.
#[derive(Debug)]
pub(crate) struct Runner {
    pub(super) state: ScriptState,
    pub(super) facts: Arc<ThreadFacts>,
    wishes: ScriptNeeds,
    /// The bytes of the batch in hand and the methods of its requests.
    bytes: Vec<u8>,
    methods: Vec<Method>,
    /// Whether they are all of a string that can be sent; else what is wrong with it.
    in_hand: Scripted<()>,
    /// One per connection; none if the script does not read responses.
    answers: Vec<Answer>,
    /// Connections that have to ask for a delay before their next batch.
    owes_delay: Vec<bool>,
    /// How many of status, fields and body `response` took when it last said so.
    wanted: u8,
    /// The head whose fields the state was shown.
    shown: Vec<u8>,
    pauses: Pauses,
    pub(super) errors: ScriptErrors,
}

impl Runner {
    pub(super) fn new(state: ScriptState, facts: Arc<ThreadFacts>, wishes: ScriptNeeds) -> Self {
        Self {
            state,
            facts,
            wishes,
            bytes: Vec::new(),
            methods: Vec::new(),
            in_hand: Ok(()),
            answers: Vec::new(),
            owes_delay: Vec::new(),
            wanted: 0,
            shown: Vec::new(),
            pauses: Pauses::new(0),
            errors: ScriptErrors::default(),
        }
    }

    /// The thread begins to send on so many connections.
    pub(super) fn begin(&mut self, connections: usize) {
        let answers = if self.wishes.wants_responses {
            connections
        } else {
            0
        };
        self.answers = vec![Answer::default(); answers];
        self.owes_delay = vec![self.wishes.has_delay; connections];
        self.pauses = Pauses::new(connections);
        self.facts.set_running(true);
    }

    /// The thread sends no more.
    pub(super) fn ended(&mut self) {
        self.facts.set_running(false);
    }

    pub(super) fn wishes(&self) -> ScriptNeeds {
        self.wishes
    }

    /// Where the next connection goes.
    pub(crate) fn address(&self) -> Address {
        self.facts.address()
    }

    /// The script has said `thread:stop()`.
    pub(crate) fn is_stopped(&self) -> bool {
        self.facts.is_stopped()
    }

    pub(crate) fn wants_responses(&self) -> bool {
        self.wishes.wants_responses
    }

    /// When the next connection's pause ends.
    pub(crate) fn next_pause_end_ns(&self) -> Option<u64> {
        self.pauses.next_end_ns()
    }

    /// A connection whose pause has ended.
    pub(crate) fn end_pause(&mut self, now_ns: u64) -> Option<u32> {
        self.pauses.end(now_ns)
    }

    /// The requests that leave next, and their methods; `None` if the script made none.
    pub(crate) fn next_batch(&mut self) -> Option<(&[u8], &[Method])> {
        if self.wishes.is_dynamic
            && let Err(message) = self.ask(Look::Brief)
        {
            self.errors.add(message);
            return None;
        }
        Some((&self.bytes, &self.methods))
    }

    /// Asks for the first time, before the run.
    pub(super) fn prove(&mut self) -> Scripted<()> {
        self.ask(Look::Close)
    }

    /// Calls `request()` and checks its result.
    fn ask(&mut self, look: Look) -> Scripted<()> {
        let Some(text) = self.state.request()? else {
            return self.in_hand.clone();
        };
        let bytes = text.as_bytes();
        self.in_hand = split(&bytes, look, &mut self.methods)
            .map_err(|error| format!("request() returned what cannot be sent: {error}"));
        self.bytes.clear();
        self.bytes.extend_from_slice(&bytes);
        self.in_hand.clone()
    }

    /// Whether this connection, on which nothing is on its way if `is_idle`, may ask for requests
    /// now. If not, it will be among `pauses`, or its next response lets it ask again.
    pub(crate) fn lets_ask(&mut self, index: u32, is_idle: bool, now_ns: u64) -> bool {
        if self.pauses.is_paused(index) {
            return false;
        }
        if !self.owes_delay[index as usize] {
            return true;
        }
        if !is_idle {
            return false;
        }
        match self.state.delay_ms() {
            Ok(delay_ms) => {
                self.owes_delay[index as usize] = false;
                // A cast of what is negative or no number is 0: no delay, as in wrk.
                let delay_ns = (delay_ms * 1e6) as u64;
                if delay_ns > 0 {
                    self.pauses.begin(index, now_ns.saturating_add(delay_ns));
                }
                delay_ns == 0
            }
            Err(message) => {
                self.errors.add(message);
                self.pauses.begin(index, now_ns + ERROR_PAUSE_NS);
                false
            }
        }
    }

    /// A batch leaves on this connection, or it was opened anew: a delay comes before the next one.
    pub(crate) fn owe_delay(&mut self, index: u32) {
        self.owes_delay[index as usize] = self.wishes.has_delay;
    }

    /// The script made no request for this connection.
    pub(crate) fn pause_after_error(&mut self, index: u32, now_ns: u64) {
        self.pauses.begin(index, now_ns + ERROR_PAUSE_NS);
    }

    /// Of the response on this connection, the head has come.
    pub(crate) fn head(&mut self, index: u32, head: &[u8]) {
        let answer = &mut self.answers[index as usize];
        answer.head.clear();
        answer.head.extend_from_slice(head);
        answer.body.clear();
    }

    /// The next bytes of its body have come.
    pub(crate) fn part(&mut self, index: u32, part: &[u8]) {
        self.answers[index as usize].body.extend_from_slice(part);
    }

    /// It is complete.
    pub(crate) fn answered(&mut self, index: u32, status: u16) {
        if let Err(message) = self.tell(index, status) {
            self.errors.add(message);
        }
    }

    /// Fields and body are copied into Lua only if the script's function takes them, and fields only when the head
    /// differs from the last one.
    fn tell(&mut self, index: u32, status: u16) -> Scripted<()> {
        let Answer { head, body } = &self.answers[index as usize];
        // A function with which the script replaced another may take more.
        for _ in 0..2 {
            if self.wanted >= WANTS_FIELDS && *head != self.shown {
                self.shown.clear();
                self.state.show_fields(fields_of(head))?;
                self.shown.extend_from_slice(head);
            }
            let has_fields = *head == self.shown;
            let body = (self.wanted >= WANTS_BODY).then_some(&body[..]);
            match self.state.response(status, has_fields, body)? {
                None => break,
                Some(wanted) => self.wanted = wanted,
            }
        }
        Ok(())
    }
}

/// The fields of a head that the parser has accepted, names and values as received.
fn fields_of(head: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let lines = head.split(|&byte| byte == b'\n').skip(1);
    lines.filter_map(|line| {
        let colon = memchr::memchr(b':', line)?;
        Some((&line[..colon], line[colon + 1..].trim_ascii()))
    })
}

// A thread of the run as scripts see it: `thread.addr`, `thread:get`, `thread:set`, `thread:stop`.
//
// The main state holds one of these for each thread, and each thread has its own as `wrk.thread`.
// Values are copied between states, as in wrk.

/// Tables within tables deeper than this are taken for a table that contains itself.
const DEPTH_MAX: usize = 64;

/// The data shared by a thread's state, the main state and the thread's worker.
#[derive(Debug)]
pub(super) struct ThreadFacts {
    /// Where the thread's next connections go. Read per connection, not per request.
    address: Mutex<Address>,
    is_running: AtomicBool,
    is_stopped: AtomicBool,
}

impl ThreadFacts {
    pub(super) fn new(address: Address) -> Self {
        Self {
            address: Mutex::new(address),
            is_running: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
        }
    }

    pub(super) fn address(&self) -> Address {
        self.address
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set_address(&self, address: Address) {
        *self.address.lock().unwrap_or_else(PoisonError::into_inner) = address;
    }

    pub(super) fn set_running(&self, is_running: bool) {
        self.is_running.store(is_running, Ordering::Relaxed);
    }

    /// As in wrk, a thread that is not running cannot be stopped, and nothing is said about it.
    fn stop(&self) {
        if self.is_running.load(Ordering::Relaxed) {
            self.is_stopped.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }
}

/// The userdata. It does not keep its thread's state alive: that state may own it.
#[derive(Clone)]
pub(super) struct ThreadHandle {
    pub(super) lua: WeakLua,
    pub(super) facts: Arc<ThreadFacts>,
}

impl ThreadHandle {
    fn state(&self) -> mlua::Result<Lua> {
        let lua = self.lua.try_upgrade();
        lua.ok_or_else(|| mlua::Error::runtime("this thread is gone"))
    }
}

impl UserData for ThreadHandle {
    fn add_fields<F: UserDataFields<Self>>(fields: &mut F) {
        fields.add_field_method_get("addr", |_, thread| {
            Ok(ScriptAddress(thread.facts.address()))
        });
        fields.add_field_method_set("addr", |_, thread, address: ScriptAddress| {
            thread.facts.set_address(address.0);
            Ok(())
        });
    }

    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("get", |lua, thread, name: Value| {
            let theirs = thread.state()?;
            let value: Value = theirs.globals().get(copy(&name, &theirs, 0)?)?;
            copy(&value, lua, 0)
        });
        methods.add_method("set", |_, thread, (name, value): (Value, Value)| {
            let theirs = thread.state()?;
            let (name, value) = (copy(&name, &theirs, 0)?, copy(&value, &theirs, 0)?);
            theirs.globals().set(name, value)
        });
        methods.add_method("stop", |_, thread, ()| {
            thread.facts.stop();
            Ok(())
        });
    }
}

/// The same value in another state.
fn copy(value: &Value, to: &Lua, depth: usize) -> mlua::Result<Value> {
    match value {
        Value::Nil => Ok(Value::Nil),
        Value::Boolean(is_true) => Ok(Value::Boolean(*is_true)),
        Value::Integer(number) => Ok(Value::Integer(*number)),
        Value::Number(number) => Ok(Value::Number(*number)),
        Value::String(text) => Ok(Value::String(to.create_string(text.as_bytes())?)),
        Value::Table(_) if depth == DEPTH_MAX => Err(mlua::Error::runtime(format!(
            "cannot transfer a table that is more than {DEPTH_MAX} tables deep"
        ))),
        Value::Table(table) => {
            let copied = to.create_table()?;
            for pair in table.pairs::<Value, Value>() {
                let (key, value) = pair?;
                copied.raw_set(copy(&key, to, depth + 1)?, copy(&value, to, depth + 1)?)?;
            }
            Ok(Value::Table(copied))
        }
        other => Err(mlua::Error::runtime(format!(
            "cannot transfer '{}' to thread",
            other.type_name()
        ))),
    }
}

#[cfg(test)]
#[path = "tests/runner.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/thread.rs"]
mod thread_tests;
