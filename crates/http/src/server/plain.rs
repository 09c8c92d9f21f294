//! The path of nearly all requests: whole in what one receive brought, and answered at once.
//!
//! Everything here is inlined into one loop, whose every instruction each request pays for. What a
//! plain connection cannot have (a request in parts, one that is pending, a close) is not asked for;
//! whatever brings it leaves the loop for `exchange` and `calling`.

use super::exchange::Exchange;
use crate::connection::{Connection, Whole};
use crate::head::RequestHead;
use crate::manner::Manner;
use crate::request::RequestBody;
use crate::service::Service;
use millpond_io::{Driver, ShardContext};

/// How much of what came was served.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    pub(super) bytes: usize,
    pub(super) request_count: usize,
}

/// A client that pipelines more than this is not one that asks and waits: a hundred requests are 4 KiB and
/// 50 us, and a crowd's of whom each had so many held a regular client up for half a millisecond.
const REQUESTS_OF_A_MESSAGE: usize = 8;

impl Progress {
    /// See [`Driver::put_behind`].
    #[inline]
    pub(super) fn is_load(self) -> bool {
        self.request_count > REQUESTS_OF_A_MESSAGE
    }
}

impl Exchange {
    /// Serves requests behind those that were, as long as they are whole and answered at once.
    /// Whether all were: then the connection is as plain as before. What was answered is in its
    /// output, and the caller's to send.
    #[inline(always)]
    pub(super) fn serve_plain<S: Service, D: Driver>(
        &mut self,
        service: &mut S,
        connection: &mut Connection,
        bytes: &[u8],
        served: &mut Progress,
        shard: &mut ShardContext<'_, D>,
    ) -> bool {
        let mut whole = Whole::EMPTY;
        while served.bytes < bytes.len()
            && connection.output.len() < self.limits.output_bytes_max
            && served.request_count < self.requests_per_turn
            && let Some(body) = whole.read(&bytes[served.bytes..], &self.limits, &mut self.fields)
        {
            let (head, head_bytes) = (whole.head(), whole.head_bytes);
            served.bytes += head_bytes.len();
            served.request_count += 1;
            if !body.is_empty() {
                if self.is_streamed(service, head, head_bytes) {
                    self.open_stream(service, connection, head, head_bytes, true, shard);
                    return false;
                }
                served.bytes += body.len();
            }
            if served.request_count == 1 && served.bytes < bytes.len() {
                self.expect_more_output(connection);
            }
            if !self.answer_plain(service, connection, head, head_bytes, body, shard) {
                return false;
            }
        }
        true
    }

    /// Calls the service; whether the connection can go on with its next request at once.
    #[inline(always)]
    fn answer_plain<S: Service, D: Driver>(
        &mut self,
        service: &mut S,
        connection: &mut Connection,
        head: &RequestHead,
        head_bytes: &[u8],
        body: &[u8],
        shard: &mut ShardContext<'_, D>,
    ) -> bool {
        if self.access_log.is_some() {
            self.log_call(connection, head, head_bytes, false, shard.now_ns);
        }
        let token = self.next_token(connection);
        let manner = Manner::of(head, self.is_draining);
        let is_metrics = self.is_metrics(service, connection.socket, (head, head_bytes), shard);
        let mut failure = None;
        let goes_on = if is_metrics {
            self.await_metrics(connection, token, manner);
            false
        } else {
            let (output, body) = (&mut connection.output, RequestBody::Received(body));
            let request = (head, head_bytes, body);
            let turn = self.ask(service, output, request, (token, manner), shard);
            failure = turn.failure;
            match turn.answered() {
                Some(status) if !turn.written.manner.closes() => {
                    self.counters.count_response(status);
                    true
                }
                _ => {
                    self.settle_turn(service, connection, token, turn, shard);
                    false
                }
            }
        };
        if self.access_log.is_some() {
            self.log_answer(connection, failure);
        }
        goes_on
    }
}
