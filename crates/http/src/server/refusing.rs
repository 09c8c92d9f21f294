//! Requests and connections that get no service: told so, and closed.

use super::exchange::Exchange;
use super::logging::log_output;
use crate::access_log::body_bytes;
use crate::connection::{Connection, RETRY_SOON, Refusal};
use crate::date::GivenLines;
use crate::encode::{Persistence, ResponseParts, encode_response};
use crate::head_text::FieldValue;
use crate::status::StatusCode;
use millpond_io::{Driver, Peer, SocketId};
use millpond_mempool::{Buffer, PoolError};
use std::io::Write;

/// Longest sentence of a refusal; a longer one is cut.
const REFUSAL_TEXT_BYTES_MAX: usize = 192;

impl Exchange {
    /// A service that answered nothing ran out of memory, or forgot: 503, and the connection is to be
    /// closed.
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
            body: b"the service has no answer: try again later\n",
            is_head,
        };
        let encoded = encode_response(&mut connection.output, &self.blocks, &parts);
        encoded.is_ok().then_some(status)
    }

    /// Answers with the refusal's status and sentence; nothing is read any more.
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
            self.counters.strike(limit);
        }
        let stream = connection.stream.take();
        if stream.is_some_and(|stream| stream.sent.is_some()) {
            // Behind the part of an answer there is no place for another: it ends there.
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

    /// One connection more than allowed: told so and closed, without ever becoming one.
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
            self.counters.strike(limit);
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
