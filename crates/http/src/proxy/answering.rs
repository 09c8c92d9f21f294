//! The upstream's side of a request: its response to the client, or another try, or the reason why not.
//!
//! `service` calls it with every event of an exchange, at the moment its bytes arrive.

use millpond_mempool::{Buffer, Handle};

use crate::access_log::Relayed;
use crate::client::{
    ExchangeFailure, ExchangeId, ExchangeReport, PART_BYTES_MAX, Phase, ReceivedHead,
};
use crate::completions::Completions;
use crate::head::ResponseFraming;
use crate::head::{Framing, HeadFields};
use crate::head_text::Field;
use crate::limits::Limits;
use crate::method::Method;
use crate::parse::parse_trailer_fields;
use crate::response::Response;
use crate::service::{Flow, Interest, RequestToken};
use crate::status::StatusCode;
use crate::streaming::{Outgoing, has_room_for_part};

use super::counters::Cell;
use super::failure::Failure;
use super::mirrors::Copied;
use super::request_head::OutgoingHead;
use super::response_head::FieldChanges;
use super::response_head::HeadMemory;
use super::response_head::{FieldRule, Nominated, begins, is};
use super::response_head::{HeadRefused, forward_head, forward_informational, forward_switch};
use super::service::{Proxy, is_agreed};
use super::upstreams::{Chosen, Tried};

/// Until there was a connection, from then to the first byte, and in all.
fn times_ns(report: &ExchangeReport) -> [u64; 3] {
    [report.connection_ns, report.first_byte_ns, report.total_ns]
}

impl Proxy {
    /// Notes the current try's outcome for the access log, if there is one.
    #[inline]
    fn note_answer(&self, handle: Handle<Proxied>, completions: &mut Completions<'_>) {
        if completions.is_logged() {
            self.note_logged_answer(handle, completions);
        }
    }

    #[cold]
    fn note_logged_answer(&self, handle: Handle<Proxied>, completions: &mut Completions<'_>) {
        if let Some(proxied) = self.requests.get(handle)
            && let Some((chosen, exchange)) = proxied.current
            && let Some(report) = self.client.report(exchange, completions.now_ns())
        {
            let name = self.upstreams.name(chosen.id);
            let relayed = Relayed::new(name, proxied.tries, times_ns(&report));
            completions.note(proxied.token, relayed);
        }
    }

    /// The response's head has come.
    pub(super) fn take_head(
        &mut self,
        handle: Handle<Proxied>,
        answer: &ReceivedHead<'_>,
        completions: &mut Completions<'_>,
    ) {
        self.note_answer(handle, completions);
        let (known_responses, config) = (&mut self.known_responses, &self.config);
        let Some(proxied) = self.requests.get_mut(handle) else {
            return;
        };
        let Some((chosen, exchange)) = proxied.current else {
            return;
        };
        self.upstreams.answered(chosen.id, answer.status());
        let is_quiet = self.config.quiet_errors;
        let mut refused = None;
        let mut has_room = true;
        let mut is_tunnel = false;
        let is_there = completions.continue_with(proxied.token, |response, _pools| {
            let is_switch = answer.status().code() == 101;
            let written = match is_switch {
                true if !is_agreed(proxied.head.asked_protocol(), answer) => {
                    Err(Failure::OtherProtocol)
                }
                true => forward_switch(response, answer)
                    .map(|()| false)
                    .map_err(HeadRefused::failure),
                false => known_responses
                    .forward(response, answer, &config.response_changes)
                    .map_err(HeadRefused::failure),
            };
            match written {
                Ok(_) if is_switch => {
                    is_tunnel = true;
                    proxied.body_state = BodyState::Passing;
                    proxied.is_answering = true;
                    Flow::Stream(proxied.wants())
                }
                Ok(passes_trailers) => {
                    proxied.is_answering = true;
                    proxied.is_answered = !response.outgoing.is_open();
                    proxied.passes_response_trailers = passes_trailers;
                    has_room = has_room_for_part(response.output);
                    match proxied.is_answered {
                        true => Flow::Done,
                        false => Flow::Stream(proxied.wants()),
                    }
                }
                Err(failure) => {
                    failure.answer(response, is_quiet);
                    refused = Some(failure);
                    Flow::Done
                }
            }
        });
        if is_tunnel {
            self.upstreams.count(chosen.id, Cell::Tunnels);
        }
        if let Some(failure) = refused {
            self.client.abort(exchange);
            let now_ns = completions.now_ns();
            self.upstreams
                .failed(chosen.id, failure, None, false, now_ns);
            self.remove_request(handle);
        } else if !is_there {
            self.give_up(handle);
        } else if !has_room {
            self.pause_if_full(handle, completions);
        }
    }

    /// All of the response has come, and the exchange is over.
    pub(super) fn take_whole(
        &mut self,
        handle: Handle<Proxied>,
        (answer, body): (&ReceivedHead<'_>, &[u8]),
        report: &ExchangeReport,
        completions: &mut Completions<'_>,
    ) {
        let (known_responses, config) = (&mut self.known_responses, &self.config);
        let Some(proxied) = self.requests.get(handle) else {
            return;
        };
        let Some((chosen, _)) = proxied.current else {
            return;
        };
        let token = proxied.token;
        if completions.is_logged() {
            let name = self.upstreams.name(chosen.id);
            let relayed = Relayed::new(name, proxied.tries, times_ns(report));
            completions.note(token, relayed);
        }
        let is_quiet = self.config.quiet_errors;
        let mut refused = None;
        let is_there = completions.continue_with(token, |response, _pools| {
            match known_responses.forward(response, answer, &config.response_changes) {
                Ok(_) => {
                    // Without memory for it the response is cut, so that the client sees it.
                    let _ = response.write(body);
                }
                Err(error) => {
                    let failure = error.failure();
                    failure.answer(response, is_quiet);
                    refused = Some(failure);
                }
            }
            Flow::Done
        });
        let now_ns = completions.now_ns();
        match refused {
            Some(failure) => self
                .upstreams
                .failed(chosen.id, failure, None, false, now_ns),
            None if is_there => {
                let status = answer.status();
                self.upstreams.answered_whole(chosen.id, status, report);
            }
            None => self.upstreams.client_gone(chosen.id),
        }
        self.discard_request(handle);
    }

    /// A client that takes nothing has its upstream paused.
    #[cold]
    fn pause_if_full(&mut self, handle: Handle<Proxied>, completions: &mut Completions<'_>) {
        let Some(proxied) = self.requests.get_mut(handle) else {
            return;
        };
        let Some((_, exchange)) = proxied.current else {
            return;
        };
        if !proxied.is_answered && !proxied.is_paused && completions.is_full(proxied.token) {
            proxied.is_paused = true;
            self.client.pause(exchange);
            completions.continue_with(proxied.token, |_, _| Flow::Stream(proxied.wants()));
        }
    }

    /// 100 Continue lets the client go on; others are passed on to clients that support them and read.
    pub(super) fn take_informational(
        &mut self,
        handle: Handle<Proxied>,
        answer: &ReceivedHead<'_>,
        completions: &mut Completions<'_>,
    ) {
        let Some(proxied) = self.requests.get_mut(handle) else {
            return;
        };
        if answer.status() == StatusCode::CONTINUE {
            if proxied.body_state == BodyState::AwaitsContinue {
                // Reading on makes the server send it to the client.
                proxied.body_state = BodyState::Passing;
                completions.continue_with(proxied.token, |_, _| Flow::Stream(proxied.wants()));
            }
        } else if proxied.is_new_version && !completions.is_full(proxied.token) {
            // Before its response an upstream is never paused: informational responses without room in the client's
            // output are left out. Otherwise an upstream would decide how much memory is kept for it.
            completions.continue_with(proxied.token, |response, _| {
                // One that cannot be passed on is no loss: the response is still to come.
                let _ = forward_informational(response, answer);
                Flow::Stream(proxied.wants())
            });
        }
    }

    pub(super) fn take_part(
        &mut self,
        handle: Handle<Proxied>,
        part: &[u8],
        completions: &mut Completions<'_>,
    ) {
        self.note_answer(handle, completions);
        let Some(proxied) = self.requests.get_mut(handle) else {
            return;
        };
        let mut is_written = false;
        let mut has_room = true;
        completions.continue_with(proxied.token, |response, _pools| {
            is_written = response.write(part).is_ok();
            if !is_written {
                return Flow::Done;
            }
            has_room = has_room_for_part(response.output);
            proxied.is_answered = !response.outgoing.is_open();
            match proxied.is_answered {
                true => Flow::Done,
                false => Flow::Stream(proxied.wants()),
            }
        });
        if !is_written {
            // The client has gone, or there is no memory for what it should get.
            self.give_up(handle);
        } else if !has_room {
            self.pause_if_full(handle, completions);
        }
    }

    pub(super) fn take_end(
        &mut self,
        handle: Handle<Proxied>,
        trailer: &[u8],
        report: &ExchangeReport,
        completions: &mut Completions<'_>,
    ) {
        let Some(proxied) = self.remove_request(handle) else {
            return;
        };
        let trailers = &mut self.trailers;
        if !proxied.is_answered {
            completions.continue_with(proxied.token, |response, _pools| {
                let _ = match proxied.passes_response_trailers && !trailer.is_empty() {
                    true => response.finish_passing(trailers.passing(trailer)),
                    false => response.finish(),
                };
                Flow::Done
            });
        }
        if let Some((chosen, _)) = proxied.current {
            self.upstreams.completed(chosen.id, report);
        }
    }

    /// There is no response, or its rest is missing: tries another upstream, or the client gets an error.
    pub(super) fn take_failure(
        &mut self,
        handle: Handle<Proxied>,
        failed: &ExchangeFailure,
        report: &ExchangeReport,
        completions: &mut Completions<'_>,
    ) {
        let now_ns = completions.now_ns();
        let Some(proxied) = self.requests.get_mut(handle) else {
            return;
        };
        let mut failure = Failure::from(failed);
        let is_idle_tunnel = failed.phase == Phase::Tunnel && failed.is_timeout();
        let chosen = proxied.current.filter(|_| completions.is_logged());
        let relayed = chosen.map(|(chosen, _)| {
            let name = self.upstreams.name(chosen.id);
            Relayed::new(name, proxied.tries, times_ns(report))
        });
        let is_stale = failed.is_stale_connection();
        if let Some((chosen, _)) = proxied.current.take() {
            match is_idle_tunnel {
                true => self.upstreams.tunnel_idle(chosen.id),
                false => {
                    self.upstreams
                        .failed(chosen.id, failure, Some(failed), is_stale, now_ns);
                }
            }
        }
        let has_time = now_ns.saturating_sub(proxied.started_ns) < self.config.timeouts.total_ns;
        // Once it costs nothing: that connections end while they are kept is no sign of an outage.
        let is_free = is_stale && !proxied.met_stale && self.config.tries_max > 1;
        let paid_tries = proxied.tries - u32::from(proxied.met_stale);
        proxied.met_stale |= is_stale;
        let is_retried = !proxied.is_answering
            && has_time
            && may_retry(proxied.method, &proxied.head, failed, proxied.is_body_lost)
            && (is_free || paid_tries < self.config.tries_max && self.budget.spend());
        if is_retried {
            match self.begin_try(handle, now_ns, &completions.pools().blocks.clone()) {
                Ok(()) => return,
                // The first failure is more useful than "no other upstream is left".
                Err(Failure::Local) => failure = Failure::Local,
                Err(_) => {}
            }
        }
        let Some(proxied) = self.remove_request(handle) else {
            return;
        };
        if let Some(relayed) = relayed {
            let relayed = match is_idle_tunnel {
                true => relayed,
                false => relayed.failed_by(failure),
            };
            completions.note(proxied.token, relayed);
        }
        if proxied.is_answering && !proxied.is_answered {
            // Cut, so that the client sees that something is missing.
            completions.continue_with(proxied.token, |_, _| Flow::Done);
        } else if !proxied.is_answering {
            let is_quiet = self.config.quiet_errors;
            completions.respond(proxied.token, |response, _pools| {
                failure.answer(response, is_quiet);
            });
        }
    }

    /// The client has gone, or cannot be given the rest.
    pub(super) fn give_up(&mut self, handle: Handle<Proxied>) {
        if let Some(proxied) = self.remove_request(handle)
            && let Some((chosen, exchange)) = proxied.current
        {
            self.client.abort(exchange);
            self.upstreams.client_gone(chosen.id);
        }
    }
}

// Heads of responses that were written for a client before: they are copied.

/// All that decides what is written for a head, but the head.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct ResponseKey {
    manner: ResponseFraming,
    framing: Framing,
}

/// How the response goes on behind its head.
#[derive(Clone, Copy, Debug)]
struct ResponseRest {
    manner: ResponseFraming,
    outgoing: Outgoing,
    passes_trailers: bool,
}

/// Response heads that were passed on, to be copied when equal ones come.
#[derive(Debug)]
pub(super) struct KnownResponses {
    memory: HeadMemory<ResponseKey, ResponseRest>,
}

impl KnownResponses {
    pub(super) fn new() -> Self {
        Self {
            memory: HeadMemory::new(),
        }
    }

    /// Writes the final head of a response; `changes` are the same every time. On failure nothing was written. True: fields behind its body
    /// may go on.
    pub(super) fn forward(
        &mut self,
        response: &mut Response<'_>,
        answer: &ReceivedHead<'_>,
        changes: &FieldChanges,
    ) -> Result<bool, HeadRefused> {
        let key = ResponseKey {
            manner: response.manner,
            framing: answer.framing,
        };
        if let Some((written, rest)) = self.memory.find(answer.bytes, |it| *it == key, 0) {
            let body_bytes = match answer.framing {
                Framing::Length(length) => length.min(PART_BYTES_MAX as u64) as usize,
                _ => 0,
            };
            let room_bytes = written.len() + body_bytes;
            let reserved = response.output.reserve(response.blocks, room_bytes);
            reserved.map_err(HeadRefused::Memory)?;
            response.output.append_within_capacity(written);
            response.sent = Some(answer.status());
            (response.manner, response.outgoing) = (rest.manner, rest.outgoing);
            return Ok(rest.passes_trailers);
        }
        let written_from = response.output.len();
        let passes_trailers = forward_head(response, answer, changes)?;
        if answer.value_of(b"date").is_some() {
            let rest = ResponseRest {
                manner: response.manner,
                outgoing: response.outgoing,
                passes_trailers,
            };
            let written = &response.output[written_from..];
            self.memory.remember((answer.bytes, key, 0), written, rest);
        }
        Ok(passes_trailers)
    }
}

// One request under way through the proxy: the state kept until its response is complete.

/// The part of the client's body that is still to come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum BodyState {
    /// There is none, or all of it is kept here.
    Kept,
    /// The client waits for the upstream's 100 Continue.
    AwaitsContinue,
    /// Parts are wanted as they come.
    Passing,
    /// The upstream has to take what it was given first.
    Blocked,
    /// All of it was passed on.
    Passed,
}

/// One request under way through the proxy.
#[derive(Debug)]
pub(super) struct Proxied {
    pub(super) token: RequestToken,
    pub(super) method: Method,
    pub(super) head: OutgoingHead,
    pub(super) framing: Framing,
    /// A body that came with the head, or was gathered.
    pub(super) body: Buffer,
    pub(super) body_state: BodyState,
    /// A copy of the body in parts, for mirrors.
    pub(super) copy: Option<Handle<Copied>>,
    /// Parts of the body, or its end, were passed on and not kept.
    pub(super) is_body_lost: bool,
    pub(super) expects_continue: bool,
    pub(super) may_upgrade: bool,
    /// Fields behind the client's body go to the upstream.
    pub(super) passes_trailers: bool,
    /// Fields behind the response's body go to the client.
    pub(super) passes_response_trailers: bool,
    /// The client supports informational responses.
    pub(super) is_new_version: bool,
    pub(super) key_hash: Option<u64>,
    pub(super) tried: Tried,
    pub(super) tries: u32,
    pub(super) started_ns: u64,
    /// A kept connection had ended before this request got a response. The next try has a new one.
    pub(super) met_stale: bool,
    /// The try under way.
    pub(super) current: Option<(Chosen, ExchangeId)>,
    /// The client has the head of the response, or more.
    pub(super) is_answering: bool,
    /// The client has all of the response.
    pub(super) is_answered: bool,
    /// The client has sent a FIN, and still gets its response.
    pub(super) is_half_closed: bool,
    /// The response is not received until the client has taken what there is.
    pub(super) is_paused: bool,
}

impl Proxied {
    /// The event to wait for on the client's side.
    pub(super) fn wants(&self) -> Interest {
        Interest {
            body: self.body_state == BodyState::Passing,
            room: self.is_paused,
        }
    }
}

/// The user data that the server keeps for us: never zero, its initial value.
pub(super) fn state_of(handle: Handle<Proxied>) -> u64 {
    handle.to_bits().wrapping_add(1)
}

pub(super) fn handle_of(state: u64) -> Handle<Proxied> {
    Handle::from_bits(state.wrapping_sub(1))
}

// Whether a request that met with no response may be sent again, and the limit on retries of all requests.

/// Whether another try can do no harm: the request provably did not start, or it is idempotent and the client has
/// received nothing of a response. `is_body_lost`: parts of the client's body were passed on and not kept.
pub(super) fn may_retry(
    method: Method,
    head: &OutgoingHead,
    failure: &ExchangeFailure,
    is_body_lost: bool,
) -> bool {
    // A slow upstream gets no second chance to be slow: the client has waited once.
    let was_slow = failure.may_have_arrived && failure.is_timeout();
    !is_body_lost && !was_slow && failure.may_repeat(method_by_meaning(method, head, failure))
}

/// Fields that make a write depend on what is stored: with the first try done, the second one fails.
const PRECONDITIONS: [&str; 4] = [
    "If-Match",
    "If-None-Match",
    "If-Unmodified-Since",
    "If-Modified-Since",
];

/// The method whose retry rules apply to this request, if it may have arrived: a PUT with a precondition is no more
/// idempotent than a POST (its repetition gets 412, though the write was done), and a request with an `Idempotency-Key`
/// is done once by servers that support it, like a PUT.
fn method_by_meaning(method: Method, head: &OutgoingHead, failure: &ExchangeFailure) -> Method {
    if !failure.may_have_arrived || method.is_safe() {
        return method;
    }
    if PRECONDITIONS.iter().any(|name| head.has_field(name)) {
        return Method::Post;
    }
    match head.has_field("Idempotency-Key") {
        true => Method::Put,
        false => method,
    }
}

/// Retries as a share of requests, so that an outage does not double the load on what is left.
#[derive(Clone, Debug)]
pub(super) struct RetryBudget {
    /// Of a retry, that each request earns.
    per_mille: u32,
    saved_per_mille: u32,
}

/// Retries that may be saved up, and are there at the beginning.
const SAVED_RETRIES_MAX: u32 = 10;

impl RetryBudget {
    pub(super) fn new(percent: u32) -> Self {
        let per_mille = percent.saturating_mul(10);
        Self {
            per_mille,
            saved_per_mille: match per_mille {
                0 => 0,
                _ => SAVED_RETRIES_MAX * 1000,
            },
        }
    }

    #[inline]
    pub(super) fn earn(&mut self) {
        let saved = self.saved_per_mille.saturating_add(self.per_mille);
        self.saved_per_mille = saved.min(SAVED_RETRIES_MAX * 1000);
    }

    /// Whether a retry is left; takes it.
    pub(super) fn spend(&mut self) -> bool {
        let left = self.saved_per_mille.checked_sub(1000);
        self.saved_per_mille = left.unwrap_or(self.saved_per_mille);
        left.is_some()
    }
}

// Fields behind a body: which of them pass, and how they come to the other side.
//
// Where they pass: behind a body that goes out in chunks, so to no HTTP/1.0 client; and only if the message's
// `Connection` names no field. Fields named there must be dropped from the trailers too (RFC 9110 7.6.1), but the head
// is not kept until then; no known sender of trailers names such fields.

/// Whether trailers may follow a body with this framing.
pub(super) fn may_pass(framing: Framing, nominated: &Nominated<'_>) -> bool {
    framing == Framing::Chunked && !nominated.has_fields
}

/// Where one shard takes trailer sections apart: one at a time.
#[derive(Debug)]
pub(super) struct Trailers {
    limits: Limits,
    fields: Box<HeadFields>,
}

impl Trailers {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            fields: Box::default(),
        }
    }

    /// The fields of a section that go on: names and values. None of one that is no sound section.
    pub(super) fn passing<'t>(
        &'t mut self,
        section: &'t [u8],
    ) -> impl Iterator<Item = Field<'t>> + Clone {
        let parsed = parse_trailer_fields(section, &self.limits, &mut self.fields);
        let fields = parsed.unwrap_or_default().into_iter();
        fields.filter(|(name, _)| may_follow_a_body(name.as_bytes()))
    }
}

/// Whether a field may be a trailer: not those that frame or route a message, change what a request asks for,
/// authenticate, control a response or describe the body's coding (RFC 7230 4.1.2), and none that a proxy drops or
/// writes itself. Such a field could be mistaken for one of the head.
fn may_follow_a_body(name: &[u8]) -> bool {
    if FieldRule::of(name) != FieldRule::PassOn {
        return false;
    }
    let is_about_head = match name.len() {
        3 => is(name, b"age"),
        4 => is(name, b"vary"),
        5 => is(name, b"range"),
        6 => is(name, b"cookie") || is(name, b"pragma"),
        7 => is(name, b"expires") || is(name, b"warning"),
        8 => is(name, b"location"),
        10 => is(name, b"set-cookie"),
        11 => is(name, b"retry-after") || is(name, b"set-cookie2"),
        13 => is(name, b"authorization") || is(name, b"cache-control"),
        16 => is(name, b"www-authenticate"),
        _ => false,
    };
    let is_about_head = is_about_head
        || begins(name, b"content-")
        || begins(name, b"if-")
        || begins(name, b"authentication-")
        || begins(name, b"x-http-method");
    !is_about_head
}

#[cfg(test)]
#[path = "tests/known_answer.rs"]
mod known_answer_tests;

#[cfg(test)]
#[path = "tests/retry.rs"]
mod retry_tests;

#[cfg(test)]
#[path = "tests/trailers.rs"]
mod trailers_tests;
