//! Requests and connections that get no service: they get an error response and are closed.

use std::io::Write;

use millpond_io::{Driver, Peer, SocketId};
use millpond_mempool::{Buffer, PoolError};

use crate::access_log::{Call, RequestText, STATUS_CLOSED, ShardLog, body_bytes};
use crate::connection::{Connection, Phase, RETRY_SOON, Refusal};
use crate::encode::{Persistence, ResponseParts, encode_response};
use crate::head::RequestHead;
use crate::head_text::FieldValue;
use crate::kept_input::KeptInput;
use crate::log::GivenLines;
use crate::parse::{Parsed, parse_request_head};
use crate::proxy::Failure;
use crate::status::StatusCode;

use super::exchange::Exchange;

/// Longest sentence of a refusal; a longer one is cut.
const REFUSAL_TEXT_BYTES_MAX: usize = 192;

impl Exchange {
    /// A service without a response ran out of memory, or has a bug: 503, and the connection is to be closed.
    #[cold]
    pub(super) fn send_unanswered(
        &mut self,
        connection: &mut Connection,
        is_head: bool,
    ) -> Option<StatusCode> {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let parts = ResponseParts {
            status,
            standing_lines: &self.standing_lines,
            content_type: Some(FieldValue::TEXT_PLAIN),
            fields: &[RETRY_SOON],
            given: GivenLines::NONE,
            persistence: Persistence::Close,
            body: b"the service has no response: try again later\n",
            is_head,
        };
        let encoded = encode_response(&mut connection.output, &self.blocks, &parts);
        encoded.is_ok().then_some(status)
    }

    /// Responds with the refusal's status and sentence; nothing is read any more.
    #[cold]
    pub(super) fn refuse(&mut self, connection: &mut Connection, refusal: Refusal, is_head: bool) {
        if self.access_log.is_some() {
            self.log_unserved(connection, &[]);
        }
        connection.close(false);
        connection.gathering = None;
        connection.input = None;
        self.marks.mark_dirty(connection);
        let sent = self.send_refusal(connection, refusal, is_head);
        if let Some(log) = self.access_log.as_deref_mut() {
            let slot = connection.socket.slot();
            log.ended(slot, sent.map(StatusCode::code), sent.is_some());
        }
    }

    /// Writes the refusal, where there is a place for it.
    fn send_refusal(
        &mut self,
        connection: &mut Connection,
        refusal: Refusal,
        is_head: bool,
    ) -> Option<StatusCode> {
        if let Some(limit) = refusal.limit() {
            self.counters.count_limit_hit(limit);
        }
        let stream = connection.stream.take();
        if stream.is_some_and(|stream| stream.sent.is_some()) {
            // Behind the part of a response there is no place for another: it ends there.
            return None;
        }
        let output_bytes_before = connection.output.len();
        self.encode_refusal(&mut connection.output, refusal, is_head)
            .ok()?;
        let sent = Some(refusal.status());
        self.counters.count_response(refusal.status());
        log_output(&mut self.access_log, connection, output_bytes_before, sent);
        sent
    }

    /// One connection more than allowed: gets a response and is closed, without ever entering the table.
    #[cold]
    pub(super) fn refuse_connection<D: Driver>(
        &mut self,
        driver: &mut D,
        (socket, peer): (SocketId, Option<Peer>),
        refusal: Refusal,
        now_ns: u64,
    ) {
        self.standing_lines.refresh(now_ns);
        if let Some(limit) = refusal.limit() {
            self.counters.count_limit_hit(limit);
        }
        let mut output = Buffer::new();
        if self.encode_refusal(&mut output, refusal, false).is_ok() {
            self.counters
                .count_response(StatusCode::SERVICE_UNAVAILABLE);
            if let (Some(log), Some(peer)) = (self.access_log.as_deref_mut(), peer) {
                log.turned_away(peer, refusal.status().code(), body_bytes(&output));
            }
            // Blocked or not: the driver sends what it can before it closes.
            let _ = driver.send(socket, output);
        }
        driver.close_after_send(socket);
    }

    fn encode_refusal(
        &self,
        output: &mut Buffer,
        refusal: Refusal,
        is_head: bool,
    ) -> Result<(), PoolError> {
        let mut text = [0; REFUSAL_TEXT_BYTES_MAX];
        let mut rest = &mut text[..];
        // A sentence that does not fit is cut, which is all that can go wrong.
        let _ = writeln!(rest, "{refusal}");
        let text_bytes = REFUSAL_TEXT_BYTES_MAX - rest.len();
        let parts = ResponseParts {
            status: refusal.status(),
            standing_lines: &self.standing_lines,
            content_type: Some(FieldValue::TEXT_PLAIN),
            fields: refusal.fields(),
            given: GivenLines::NONE,
            persistence: Persistence::Close,
            body: &text[..text_bytes],
            is_head,
        };
        encode_response(output, &self.blocks, &parts)
    }
}

// Where requests end, as the access log sees it.
//
// All of it is cold: without a log each place costs one branch.

impl Exchange {
    /// A request is about to be handed to the service.
    #[cold]
    #[inline(never)]
    pub(super) fn log_call(
        &mut self,
        connection: &Connection,
        head: &RequestHead,
        head_bytes: &[u8],
        is_gathered: bool,
        now_ns: u64,
    ) {
        if let Some(log) = self.access_log.as_deref_mut() {
            // A body that was gathered began to come with an earlier event.
            let started_ns = match is_gathered && connection.phase != Phase::BetweenRequests {
                true => connection.since_ns,
                false => now_ns,
            };
            let text = RequestText::of_head(head, head_bytes, &self.fields);
            log.begin_call(&text, started_ns, connection.output.len());
        }
    }

    /// The service's call has ended. `failure`: why a proxy responded by itself.
    #[cold]
    #[inline(never)]
    pub(super) fn log_answer(&mut self, connection: &Connection, failure: Option<Failure>) {
        let slot = connection.socket.slot();
        let Some(log) = self.access_log.as_deref_mut() else {
            return;
        };
        let entry = log.end_call();
        let (text, started_ns) = (entry.text(), entry.started_ns);
        let output = written_since(connection, entry.output_bytes_before);
        let is_pending = entry.call == Call::Running && connection.pending.is_some();
        if is_pending {
            log.keep(slot, &text, started_ns, &self.blocks);
            let sent = connection.stream.as_deref().and_then(|stream| stream.sent);
            log.wrote(slot, sent.map(StatusCode::code), output);
        } else {
            let end = match entry.call {
                Call::Ended {
                    status,
                    is_complete,
                } => (status, is_complete),
                // Without memory there is no response.
                _ => written_status(output).map_or((STATUS_CLOSED, false), |status| (status, true)),
            };
            log.answered(slot, &text, started_ns, end, body_bytes(output), failure);
        }
        log.end_with(entry);
    }

    /// Opens an entry for the connection's request, unless there is one: from `bytes` if there are any, or from the
    /// kept bytes.
    #[cold]
    pub(super) fn log_unserved(&mut self, connection: &Connection, bytes: &[u8]) {
        let Self {
            access_log,
            fields,
            limits,
            blocks,
            ..
        } = self;
        let Some(log) = access_log.as_deref_mut() else {
            return;
        };
        let slot = connection.socket.slot();
        if log.has_open(slot) {
            return;
        }
        let bytes: &[u8] = match &connection.gathering {
            Some(gathering) => &gathering.head,
            None if bytes.is_empty() => connection.input.as_deref().map_or(&[], KeptInput::first),
            None => bytes,
        };
        let text = match parse_request_head(bytes, limits, fields) {
            Ok(Parsed::Complete(head)) => RequestText::of_head(&head, bytes, fields),
            _ => RequestText::of_line(bytes),
        };
        let started_ns = match connection.phase {
            Phase::BetweenRequests => millpond_io::monotonic_ns(),
            _ => connection.since_ns,
        };
        log.keep(slot, &text, started_ns, blocks);
    }

    /// The connection is gone: its waiting request gets no more of its response.
    #[cold]
    pub(super) fn log_forgotten(&mut self, connection: &Connection) {
        if connection.gathering.is_some() {
            self.log_unserved(connection, &[]);
        }
        if let Some(log) = self.access_log.as_deref_mut() {
            log.ended(connection.socket.slot(), None, false);
        }
    }
}

/// The status of the response that `output` begins with. It is read from the written bytes: storing it would cost each
/// request, logged or not.
fn written_status(output: &[u8]) -> Option<u16> {
    let digits = output.get("HTTP/1.1 ".len()..)?.first_chunk::<3>()?;
    Some(digits.iter().fold(0, |status, &digit| {
        status * 10 + u16::from(digit.wrapping_sub(b'0'))
    }))
}

/// Bytes added to the output since then; none of it has left in between.
fn written_since(connection: &Connection, output_bytes_before: usize) -> &[u8] {
    connection.output.get(output_bytes_before..).unwrap_or(&[])
}

/// Bytes written to an exchange that began earlier.
#[inline]
pub(crate) fn log_output(
    log: &mut Option<Box<ShardLog>>,
    connection: &Connection,
    output_bytes_before: usize,
    sent: Option<StatusCode>,
) {
    if let Some(log) = log.as_deref_mut() {
        let output = written_since(connection, output_bytes_before);
        log.wrote(connection.socket.slot(), sent.map(StatusCode::code), output);
    }
}
