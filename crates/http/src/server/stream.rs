//! Exchanges in parts: the body's next part to the service, the response's next part from it.
//!
//! Back-pressure in both directions: a part is handed over only when the service wants one and the
//! output has room, and while none is wanted nothing is received; room is offered only when what was
//! written before has left.

use super::exchange::Exchange;
use super::refusing::log_output;
use crate::body::BodyDecoder;
use crate::connection::{Connection, Pending, Phase, Refusal};
use crate::head::RequestHead;
use crate::head::ResponseFraming;
use crate::request::RequestBody;
use crate::response::{Response, Wire};
use crate::service::{Flow, Interest, RequestToken, Service, ServiceContext, StreamEvent};
use crate::status::StatusCode;
use crate::streaming::{
    Incoming, Outgoing, STREAM_OUTPUT_BYTES, Streaming, UNREAD_BYTES_MAX, room_bytes,
};
use millpond_io::{Driver, SendOutcome, ShardContext, SocketId};
use std::ops::Range;
use std::os::fd::BorrowedFd;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Less room than this in the output is none for the response to a part of a body.
const PART_ROOM_BYTES_MIN: usize = 4 * 1024;

/// A connection's own socket, for responses that go past its output.
struct SocketWire<'a, D> {
    driver: &'a mut D,
    socket: SocketId,
    sent_bytes: u64,
}

impl<D: Driver> Wire for SocketWire<'_, D> {
    fn send_file(&mut self, file: BorrowedFd<'_>, range: Range<u64>) -> Option<u64> {
        let sent_bytes = self.driver.send_file(self.socket, file, range)?;
        self.sent_bytes += sent_bytes;
        Some(sent_bytes)
    }
}

/// How far a response is after the service had its turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    pub(crate) sent: Option<StatusCode>,
    pub(crate) outgoing: Outgoing,
    pub(crate) manner: ResponseFraming,
}

impl Written {
    #[inline]
    pub(crate) fn of(response: &Response<'_>) -> Self {
        Self {
            sent: response.sent,
            outgoing: response.outgoing,
            manner: response.manner,
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.sent.is_some() && !self.outgoing.is_open()
    }
}

/// Minimum cost of a chunk in an ignored body: thousands of small ones are as much work as a long one. The client does
/// not control how the network splits a chunk, or a body of known length: those pieces count with their length.
const UNREAD_CHUNK_BYTES_MIN: usize = 512;

impl Exchange {
    /// Calls the service for a request whose body it takes in parts.
    #[cold]
    pub(super) fn open_stream<S: Service, D: Driver>(
        &mut self,
        service: &mut S,
        connection: &mut Connection,
        head: &RequestHead,
        head_bytes: &[u8],
        has_body_bytes: bool,
        shard: &mut ShardContext<'_, D>,
    ) {
        let incoming =
            BodyDecoder::new(head.framing, &self.limits).map_or(Incoming::AtEnd, Incoming::Reading);
        let mut stream = Streaming::new(incoming);
        stream.wants_continue = head.expects_continue && !has_body_bytes;
        match self.streams.insert(stream) {
            Ok(stream) => connection.stream = Some(stream),
            Err(error) => {
                if self.access_log.is_some() {
                    self.log_unserved(connection, head_bytes);
                }
                return self.refuse(connection, error.into(), head.method == crate::Method::Head);
            }
        }
        let body = RequestBody::Received(&[]);
        self.call(service, connection, head, head_bytes, body, shard);
    }

    /// Takes bytes of the current body off the front of `bytes`, as far as they are wanted; returns how many.
    #[cold]
    pub(super) fn feed_stream<S: Service, D: Driver>(
        &mut self,
        service: &mut S,
        connection: &mut Connection,
        bytes: &[u8],
        shard: &mut ShardContext<'_, D>,
    ) -> usize {
        let mut at = 0;
        while at < bytes.len() && !connection.must_wait() {
            if room_bytes(&connection.output) < PART_ROOM_BYTES_MIN {
                // Not at the end of the tick: the rest of the receive would have to be kept.
                self.send_output(connection, shard);
                continue;
            }
            let Some(stream) = connection.stream.as_deref_mut() else {
                break;
            };
            let room_bytes = room_bytes(&connection.output);
            let part = &bytes[at..bytes.len().min(at + room_bytes)];
            match &mut stream.incoming {
                Incoming::Unread {
                    decoder,
                    left_bytes,
                } => {
                    let part = &bytes[at..];
                    let step = decoder.decode(part).map(|step| {
                        let is_piece =
                            step.data.is_empty() || step.data.len() == step.consumed_bytes;
                        let cost_bytes = match is_piece {
                            true => step.consumed_bytes as u64,
                            false => step.consumed_bytes.max(UNREAD_CHUNK_BYTES_MIN) as u64,
                        };
                        let left = left_bytes.checked_sub(cost_bytes);
                        (step.consumed_bytes, step.is_complete, left)
                    });
                    // The response is out: an error in the rest only ends the connection.
                    let Ok((consumed_bytes, is_complete, Some(left))) = step else {
                        connection.close(false);
                        self.marks.mark_dirty(connection);
                        break;
                    };
                    *left_bytes = left;
                    stream.received_bytes += consumed_bytes as u64;
                    at += consumed_bytes;
                    if is_complete {
                        connection.stream = None;
                    }
                }
                Incoming::Reading(_) => {
                    let consumed_bytes = self.hand_over(service, connection, part, shard);
                    at += consumed_bytes;
                }
                Incoming::AtEnd | Incoming::Read => break,
            }
        }
        at
    }

    /// Decodes one part and gives it to the service; returns the bytes used.
    fn hand_over<S: Service, D: Driver>(
        &mut self,
        service: &mut S,
        connection: &mut Connection,
        bytes: &[u8],
        shard: &mut ShardContext<'_, D>,
    ) -> usize {
        let Some(stream) = connection.stream.as_deref_mut() else {
            return 0;
        };
        let Incoming::Reading(decoder) = &mut stream.incoming else {
            return 0;
        };
        let kept = decoder
            .decode(bytes)
            .map_err(Refusal::from)
            .and_then(|step| {
                stream
                    .trailer
                    .extend_from_slice(&self.blocks, step.trailer)?;
                Ok(step)
            });
        let step = match kept {
            Ok(step) => step,
            Err(refusal) => {
                let is_head = connection.is_head_request();
                self.refuse(connection, refusal, is_head);
                return bytes.len();
            }
        };
        stream.received_bytes += step.consumed_bytes as u64;
        stream.wants_continue = false;
        if step.is_complete {
            stream.incoming = Incoming::AtEnd;
            connection.phase = connection.phase.with_reading(false);
        }
        if !step.data.is_empty() {
            self.stream_event(service, connection, StreamEvent::Body(step.data), shard);
        }
        self.deliver_end(service, connection, shard);
        step.consumed_bytes
    }

    /// Reports that the body is complete, once the service reads.
    pub(super) fn deliver_end<S: Service, D: Driver>(
        &mut self,
        service: &mut S,
        connection: &mut Connection,
        shard: &mut ShardContext<'_, D>,
    ) {
        let Some(stream) = connection.stream.as_deref_mut() else {
            return;
        };
        if stream.wants.body && matches!(stream.incoming, Incoming::AtEnd) {
            stream.incoming = Incoming::Read;
            let trailer = std::mem::take(&mut stream.trailer);
            let event = StreamEvent::BodyEnd { trailer: &trailer };
            self.stream_event(service, connection, event, shard);
        }
    }

    /// The written bytes have left: a response that waits for that continues. One that is continued from outside
    /// ([`crate::Completions::continue_with`]) may have written more than a block, and continued too early.
    pub(super) fn offer_room(&mut self, connection: &mut Connection) {
        let waits = connection
            .stream
            .as_deref()
            .is_some_and(|stream| stream.wants.room);
        if waits && !connection.is_blocked {
            self.marks.mark_backlogged(connection);
        }
    }

    /// A reason to wait is gone: lets the service go on with what it resumed, or write on.
    pub(super) fn advance_stream<S: Service, D: Driver>(
        &mut self,
        service: &mut S,
        connection: &mut Connection,
        shard: &mut ShardContext<'_, D>,
    ) {
        let Some(stream) = connection.stream.as_deref_mut() else {
            return;
        };
        let has_room = !connection.is_blocked && connection.output.len() < STREAM_OUTPUT_BYTES;
        if std::mem::take(&mut stream.is_resumed) {
            self.stream_event(service, connection, StreamEvent::Resumed, shard);
        } else if stream.wants.room && has_room {
            self.stream_event(service, connection, StreamEvent::Room, shard);
        }
        self.deliver_end(service, connection, shard);
    }

    fn stream_event<S: Service, D: Driver>(
        &mut self,
        service: &mut S,
        connection: &mut Connection,
        event: StreamEvent<'_>,
        shard: &mut ShardContext<'_, D>,
    ) {
        let (Some(pending), Some(stream)) = (connection.pending, connection.stream.as_deref())
        else {
            return;
        };
        self.standing_lines.refresh(shard.now_ns);
        let output_bytes_before = connection.output.len();
        let mut wire = SocketWire {
            driver: &mut *shard.driver,
            socket: connection.socket,
            sent_bytes: 0,
        };
        let may_pass = matches!(event, StreamEvent::Room) && !connection.is_blocked;
        let mut response = Response {
            wire: may_pass.then_some(&mut wire as &mut dyn Wire),
            output: &mut connection.output,
            blocks: &self.blocks,
            standing_lines: &mut self.standing_lines,
            manner: pending
                .manner
                .closing_if_answered(stream.closes_if_answered()),
            sent: stream.sent,
            outgoing: stream.outgoing,
            failure: None,
        };
        let mut context = ServiceContext {
            pools: shard.pools,
            now_ns: shard.now_ns,
            token: RequestToken::new(connection.socket.slot() as u32, pending.sequence),
            shard_index: shard.shard_index,
            state: pending.state,
            route: pending.route,
        };
        let flow = service.stream(event, &mut response, &mut context);
        let written = Written::of(&response);
        let pending = Pending {
            state: context.state,
            ..pending
        };
        context.pools.arena.reset();
        let sent = written.sent;
        log_output(&mut self.access_log, connection, output_bytes_before, sent);
        if let Some(log) = self.access_log.as_deref_mut() {
            log.sent_file(connection.socket.slot(), wire.sent_bytes);
        }
        self.take_flow(service, connection, flow, pending, written, shard.now_ns);
    }

    /// The service's next step for an exchange that is not complete after the call.
    #[cold]
    pub(super) fn take_flow<S: Service>(
        &mut self,
        service: &mut S,
        connection: &mut Connection,
        flow: Flow,
        pending: Pending,
        written: Written,
        now_ns: u64,
    ) {
        let wants = match flow {
            Flow::Done => return self.end_exchange(connection, pending, written, now_ns),
            Flow::Pending => Interest::default(),
            Flow::Stream(wants) => wants,
        };
        if written.is_complete() {
            let token = RequestToken::new(connection.socket.slot() as u32, pending.sequence);
            service.abandoned(token, pending.state);
            return self.end_exchange(connection, pending, written, now_ns);
        }
        self.wait_for(connection, wants, pending, written, now_ns);
    }

    /// The exchange goes on when `wants` is there.
    pub(crate) fn wait_for(
        &mut self,
        connection: &mut Connection,
        wants: Interest,
        pending: Pending,
        written: Written,
        now_ns: u64,
    ) {
        connection.pending = Some(Pending {
            manner: written.manner,
            ..pending
        });
        if connection.stream.is_none() {
            match self.streams.insert(Streaming::new(Incoming::AtEnd)) {
                Ok(stream) => connection.stream = Some(stream),
                Err(_) if written.sent.is_some() => {
                    // A refusal behind the head that was written would be taken for its body.
                    connection.close(false);
                    return self.marks.mark_dirty(connection);
                }
                Err(error) => {
                    return self.refuse(connection, error.into(), pending.manner.is_head());
                }
            }
        }
        let Some(stream) = connection.stream.as_deref_mut() else {
            return;
        };
        stream.wants = wants;
        stream.sent = written.sent;
        stream.outgoing = written.outgoing;
        stream.open_tunnel();
        let owes_fin = stream.owes_fin();
        let is_reading = wants.body && matches!(stream.incoming, Incoming::Reading(_));
        let before = connection.phase;
        connection.phase = before.with_reading(is_reading);
        if connection.phase == Phase::ReadingBody && before != Phase::ReadingBody {
            // The time that the service took is not the client's.
            stream.received_bytes = 0;
            connection.since_ns = now_ns;
            // After the head of a response 100 is not allowed, and the client has its response. Whether it sends the
            // body now is known only from its bytes.
            if stream.wants_continue && written.sent.is_none() {
                stream.wants_continue = false;
                let appended = connection.output.extend_from_slice(&self.blocks, CONTINUE);
                if let Err(error) = appended {
                    return self.refuse(connection, error.into(), pending.manner.is_head());
                }
            }
        }
        if wants.room {
            self.marks.mark_backlogged(connection);
        }
        if !connection.output.is_empty() || owes_fin {
            self.marks.mark_dirty(connection);
        }
    }

    /// The client of a tunnel has sent its FIN, and all earlier bytes are passed on: the service gets the end.
    pub(super) fn finish_tunnel_input<S: Service, D: Driver>(
        &mut self,
        service: &mut S,
        connection: &mut Connection,
        shard: &mut ShardContext<'_, D>,
    ) {
        let is_at_end = connection.is_peer_finished && connection.input.is_none();
        if !is_at_end || connection.is_closing() || !connection.is_tunnel() {
            return;
        }
        if let Some(stream) = connection.stream.as_deref_mut()
            && matches!(stream.incoming, Incoming::Reading(_))
        {
            stream.incoming = Incoming::AtEnd;
            connection.phase = connection.phase.with_reading(false);
        }
        self.deliver_end(service, connection, shard);
    }

    /// Sends a FIN to the client of a tunnel once all bytes have left.
    #[cold]
    pub(super) fn finish_tunnel_output<D: Driver>(
        &self,
        connection: &mut Connection,
        shard: &mut ShardContext<'_, D>,
    ) {
        let is_due = !connection.is_blocked && connection.output.is_empty();
        if let Some(stream) = connection.stream.as_deref_mut()
            && stream.owes_fin()
            && is_due
        {
            let outcome = shard.driver.finish_send(connection.socket);
            stream.is_fin_sent = outcome == SendOutcome::Done;
            if outcome == SendOutcome::Blocked {
                connection.is_blocked = true;
                self.watch_write(connection, shard, 0);
            }
        }
    }

    /// The service is done with the exchange: sees that its response is whole, and what becomes of a
    /// body that was not read.
    pub(crate) fn end_exchange(
        &mut self,
        connection: &mut Connection,
        pending: Pending,
        mut written: Written,
        now_ns: u64,
    ) {
        connection.pending = None;
        connection.phase = connection.phase.with_reading(false);
        if written.sent.is_none() {
            let output_bytes_before = connection.output.len();
            written.sent = self.send_unanswered(connection, pending.manner.is_head());
            written.manner = written.manner.closing();
            let sent = written.sent;
            log_output(&mut self.access_log, connection, output_bytes_before, sent);
        }
        if let Some(log) = self.access_log.as_deref_mut() {
            let is_whole =
                !written.outgoing.is_open() || written.outgoing == Outgoing::TunnelFinished;
            let is_complete = written.sent.is_some() && is_whole;
            let status = written.sent.map(StatusCode::code);
            log.ended(connection.socket.slot(), status, is_complete);
        }
        if let Some(status) = written.sent {
            self.counters.count_response(status);
            if pending.is_of_service {
                let Pending {
                    route, started_ns, ..
                } = pending;
                self.durations.count_late(route, status, started_ns, now_ns);
            }
        }
        // A body that stops before its end is cut, so that the client sees it: one that ends with the
        // connection by a reset, since a FIN would be its end.
        connection.ends_by_reset |= written.outgoing == Outgoing::UntilClose;
        if written.manner.closes() || written.outgoing.is_open() {
            connection.close(written.manner.is_last_of_client());
        }
        self.marks.mark_dirty(connection);
        self.leave_unread(connection, now_ns);
        // The bytes after it are handled next, and show whether another request has begun.
        let is_mid_request = connection.stream.is_some() || connection.input.is_some();
        if !is_mid_request && connection.set_mid_request(false) {
            connection.since_ns = now_ns;
        }
    }

    fn leave_unread(&mut self, connection: &mut Connection, now_ns: u64) {
        let Some(mut stream) = connection.stream.take() else {
            return;
        };
        let closes = stream.closes_if_answered();
        if let Incoming::Reading(decoder) = std::mem::replace(&mut stream.incoming, Incoming::Read)
        {
            if closes || connection.is_closing() {
                // Bytes of it may be on their way: a plain close would destroy the response.
                connection.close(false);
            } else {
                stream.incoming = Incoming::Unread {
                    decoder,
                    left_bytes: UNREAD_BYTES_MAX,
                };
                stream.received_bytes = 0;
                connection.since_ns = now_ns;
                connection.stream = Some(stream);
            }
        }
    }
}
