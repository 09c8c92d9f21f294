//! Responses, out of what upstreams send: heads, bodies, ends, one event at a time.

use millpond_io::connection_pool::PoolKey;
use millpond_io::{Driver, ShardContext};
use millpond_mempool::{BlockPool, Buffer, Handle, PoolError};

use crate::body::{BodyDecoder, BodyStep};
use crate::error::{BodyError, ParseError};
use crate::head::{Framing, HeadFields, ResponseHead};
use crate::kept_input::KeptInput;
use crate::limits::Limits;
use crate::method::Method;
use crate::parse::{Parsed, parse_response_head};
use crate::status::StatusCode;

use super::driving::{Exchange, Incoming, Outgoing, Stage};
use super::driving::{Listener, tell};
use super::exchange::{ExchangeEvent, FailureCause, ReceivedHead};
use super::shard_client::{Client, ClientShared};
use super::{ClientError, Expected, IdenticalResponses};

/// Longest part of a body that is reported at once: two of them fit a pooled block, framing included.
pub(crate) const PART_BYTES_MAX: usize = 15 * 1024;

/// Result for received bytes.
enum Joined {
    /// They are not behind any others.
    Alone,
    /// They are behind the beginning of a head.
    Head(Buffer),
    /// They wait behind others.
    Kept,
}

/// Effect of the upstream's FIN on an exchange.
enum Finished {
    /// It is complete.
    Whole,
    /// Of another protocol: the direction to the upstream stays open. With the exchange's user data.
    OneSide(u64),
    /// Something is missing.
    Early,
    /// Something may be missing.
    Truncated,
}

/// The next item in the received bytes.
enum ReadStep<'b> {
    /// The exchange is over.
    Gone,
    /// Needs more bytes; the rest begins a head. Or nothing is wanted.
    NeedMore,
    Informational(ResponseHead),
    Head(ResponseHead, Framing),
    Body(&'b [u8]),
    /// Nothing to report: framing.
    Silent,
    End,
    Failed(FailureCause),
}

impl Client {
    /// Bytes for an exchange.
    pub(super) fn received<D: Driver>(
        &self,
        shard: &mut ShardContext<'_, D>,
        handle: Handle<Exchange>,
        received: &[u8],
        on: &mut impl Listener,
    ) {
        let joined = match self.join(shard, handle, received) {
            Ok(Joined::Kept) => return,
            Ok(Joined::Alone) => None,
            Ok(Joined::Head(joined)) => Some(joined),
            Err(cause) => return self.fail(shard, handle, cause, on),
        };
        let bytes = match &joined {
            Some(joined) => joined.as_slice(),
            None => received,
        };
        let at = self.read(shard, handle, bytes, false, on);
        let mut shared = self.shared.borrow_mut();
        shared.match_pause(shard, handle);
        // The rest of a response may have less time than its first byte had: the timer is late, then.
        let has_just_begun = |exchange: &Exchange| {
            exchange.since_ns == exchange.connected_ns + exchange.report.first_byte_ns
        };
        if shared.exchanges.get(handle).is_some_and(has_just_begun) {
            shared.set_timer(shard, handle);
        }
        if at == bytes.len() {
            return;
        }
        if let Err(error) = shared.keep(handle, &bytes[at..], &shard.pools.blocks) {
            drop(shared);
            self.fail(shard, handle, error.into(), on);
        }
    }

    /// Reports kept bytes, as far as they are wanted now.
    pub(super) fn catch_up<D: Driver>(
        &self,
        shard: &mut ShardContext<'_, D>,
        handle: Handle<Exchange>,
        on: &mut impl Listener,
    ) {
        loop {
            let kept = {
                let shared = &mut *self.shared.borrow_mut();
                let exchange = shared.exchanges.get_mut(handle);
                let exchange = exchange.filter(|exchange| !exchange.is_paused);
                exchange.and_then(|exchange| exchange.kept.take())
            };
            let Some(kept) = kept else {
                return;
            };
            let at = self.read(shard, handle, kept.first(), kept.has_more(), on);
            let (is_peer_finished, broken) = {
                let shared = &mut *self.shared.borrow_mut();
                let Some(exchange) = shared.exchanges.get_mut(handle) else {
                    return;
                };
                exchange.kept = KeptInput::without_front(kept, at);
                match exchange.kept.is_none() {
                    true => (exchange.is_peer_finished, exchange.broken),
                    false => (false, None),
                }
            };
            if is_peer_finished {
                return self.peer_finished(shard, handle, on);
            }
            if let Some(error) = broken {
                return self.fail(shard, handle, FailureCause::Broken(error), on);
            }
        }
    }

    /// The beginning of a head that came before, with what came now behind it.
    fn join<D: Driver>(
        &self,
        shard: &mut ShardContext<'_, D>,
        handle: Handle<Exchange>,
        received: &[u8],
    ) -> Result<Joined, FailureCause> {
        let shared = &mut *self.shared.borrow_mut();
        let Some(exchange) = shared.exchanges.get_mut(handle) else {
            return Ok(Joined::Alone);
        };
        exchange.since_ns = shard.now_ns;
        if !exchange.has_response_begun {
            exchange.has_response_begun = true;
            exchange.report.first_byte_ns = shard.now_ns.saturating_sub(exchange.connected_ns);
        }
        if exchange.kept.is_some() {
            shared.keep(handle, received, &shard.pools.blocks)?;
            return Ok(Joined::Kept);
        }
        if exchange.partial.is_empty() {
            return Ok(Joined::Alone);
        }
        let mut joined = std::mem::take(&mut exchange.partial);
        joined.extend_from_slice(&shard.pools.blocks, received)?;
        Ok(Joined::Head(joined))
    }

    /// Works through `bytes` and reports events; returns how many are consumed. `has_more`: more bytes have arrived
    /// after them.
    fn read<D: Driver>(
        &self,
        shard: &mut ShardContext<'_, D>,
        handle: Handle<Exchange>,
        bytes: &[u8],
        has_more: bool,
        on: &mut impl Listener,
    ) -> usize {
        // Not there only if an event is handled within another, which does not happen.
        let lent = self.shared.borrow_mut().heads.take();
        let mut heads = lent.unwrap_or_default();
        let mut at = 0;
        let done_bytes = loop {
            let rest = &bytes[at..];
            let (step, taken_bytes, user) = {
                let shared = &mut *self.shared.borrow_mut();
                let user = shared.exchanges.get(handle).map(|exchange| exchange.user);
                let blocks = &shard.pools.blocks;
                let (step, taken_bytes) = shared.next_step(handle, rest, &mut heads, blocks);
                (step, taken_bytes, user.unwrap_or_default())
            };
            at += taken_bytes;
            let head_bytes = &rest[..taken_bytes];
            match step {
                ReadStep::Gone => break bytes.len(),
                ReadStep::NeedMore => break at,
                ReadStep::Silent => {}
                ReadStep::Informational(head) => {
                    let head = answer_head(head_bytes, &head, heads.fields(), Framing::None);
                    let event = ExchangeEvent::Informational(head);
                    tell(shard, handle, user, event, on);
                }
                ReadStep::Head(head, framing) => {
                    let head = answer_head(head_bytes, &head, heads.fields(), framing);
                    let event = ExchangeEvent::Head(head);
                    tell(shard, handle, user, event, on);
                }
                ReadStep::Body(part) => tell(shard, handle, user, ExchangeEvent::Body(part), on),
                ReadStep::End => {
                    let is_all_read = at == bytes.len() && !has_more;
                    self.end(shard, handle, is_all_read, on);
                    break bytes.len();
                }
                ReadStep::Failed(cause) => {
                    self.fail(shard, handle, cause, on);
                    break bytes.len();
                }
            }
        };
        self.shared.borrow_mut().heads = Some(heads);
        done_bytes
    }

    /// The response is complete: the connection goes back to the pool if it may, and the caller gets the event.
    pub(super) fn end<D: Driver>(
        &self,
        shard: &mut ShardContext<'_, D>,
        handle: Handle<Exchange>,
        is_all_read: bool,
        on: &mut impl Listener,
    ) {
        // By reference, since it is long: moved, it is copied.
        let removed = self.shared.borrow_mut().exchanges.remove(handle);
        let Some(exchange) = &removed else {
            return;
        };
        let is_clean = is_all_read && exchange.keeps_alive && exchange.is_request_complete();
        let holdings = exchange.holdings();
        self.shared.borrow_mut().leave(shard, holdings, is_clean);
        let report = exchange.report_at(shard.now_ns);
        let event = ExchangeEvent::End {
            trailer: &exchange.trailer,
            report: &report,
        };
        tell(shard, handle, exchange.user, event, on);
    }

    /// The upstream sends no more.
    pub(super) fn peer_finished<D: Driver>(
        &self,
        shard: &mut ShardContext<'_, D>,
        handle: Handle<Exchange>,
        on: &mut impl Listener,
    ) {
        let told = {
            let shared = &mut *self.shared.borrow_mut();
            let Some(exchange) = shared.exchanges.get_mut(handle) else {
                return;
            };
            exchange.keeps_alive = false;
            exchange.is_peer_finished = true;
            if exchange.kept.is_some() {
                return;
            }
            match &exchange.incoming {
                Incoming::Raw => {
                    exchange.incoming = Incoming::RawFinished;
                    exchange.since_ns = shard.now_ns;
                    match exchange.is_fin_sent {
                        true => Finished::Whole,
                        false => Finished::OneSide(exchange.user),
                    }
                }
                Incoming::RawFinished | Incoming::Complete => Finished::Whole,
                Incoming::Body(decoder) if decoder.ends_with_close() => match exchange.stage {
                    Stage::Open(socket) if shard.driver.is_truncated(socket) => Finished::Truncated,
                    _ => Finished::Whole,
                },
                Incoming::Body(_) | Incoming::Head => Finished::Early,
            }
        };
        match told {
            Finished::Whole => self.end(shard, handle, true, on),
            Finished::OneSide(user) => {
                tell(shard, handle, user, ExchangeEvent::PeerFinished, on);
            }
            Finished::Early => self.fail(shard, handle, FailureCause::ClosedEarly, on),
            Finished::Truncated => self.fail(shard, handle, FailureCause::Truncated, on),
        }
    }
}

impl ClientShared {
    /// The next thing in `bytes`, and how many of them it takes.
    fn next_step<'b>(
        &mut self,
        handle: Handle<Exchange>,
        bytes: &'b [u8],
        heads: &mut KnownResponseHeads,
        blocks: &BlockPool,
    ) -> (ReadStep<'b>, usize) {
        let Some(exchange) = self.exchanges.get_mut(handle) else {
            return (ReadStep::Gone, 0);
        };
        match &mut exchange.incoming {
            Incoming::Complete => (ReadStep::End, 0),
            Incoming::RawFinished => (ReadStep::NeedMore, 0),
            _ if bytes.is_empty() => (ReadStep::NeedMore, 0),
            Incoming::Raw | Incoming::Body(_) if exchange.is_paused => (ReadStep::NeedMore, 0),
            Incoming::Raw => {
                let part = part_of(bytes);
                exchange.report.body_bytes += part.len() as u64;
                (ReadStep::Body(part), part.len())
            }
            Incoming::Head => match heads.read(exchange.key, bytes, &self.limits) {
                Ok(Parsed::Partial) => (ReadStep::NeedMore, 0),
                Ok(Parsed::Complete(head)) => {
                    let head_bytes = head.head_bytes;
                    (self.head(handle, head), head_bytes)
                }
                Err(error) => (ReadStep::Failed(answer_error(ClientError::Head(error))), 0),
            },
            Incoming::Body(decoder) => match decoder.decode(part_of(bytes)) {
                Err(error) => (ReadStep::Failed(answer_error(ClientError::Body(error))), 0),
                Ok(step) => {
                    let consumed_bytes = step.consumed_bytes;
                    (self.body(handle, step, blocks), consumed_bytes)
                }
            },
        }
    }

    /// Keeps bytes that are not wanted yet.
    fn keep(
        &mut self,
        handle: Handle<Exchange>,
        bytes: &[u8],
        blocks: &BlockPool,
    ) -> Result<(), PoolError> {
        let Some(exchange) = self.exchanges.get_mut(handle) else {
            return Ok(());
        };
        match exchange.incoming {
            Incoming::Head => exchange.partial.extend_from_slice(blocks, bytes),
            _ => KeptInput::keep(&mut exchange.kept, bytes, blocks, &self.kept_inputs),
        }
    }

    /// Effect of a complete head on the exchange.
    fn head<'b>(&mut self, handle: Handle<Exchange>, head: ResponseHead) -> ReadStep<'b> {
        let Some(exchange) = self.exchanges.get_mut(handle) else {
            return ReadStep::Gone;
        };
        if head.status.code() == 101 {
            if !exchange.may_upgrade {
                return ReadStep::Failed(answer_error(ClientError::SwitchedProtocols));
            }
            exchange.incoming = Incoming::Raw;
            exchange.outgoing = Outgoing::Raw;
            return ReadStep::Head(head, Framing::UntilClose);
        }
        if head.status.is_informational() {
            exchange.awaits_continue = false;
            return ReadStep::Informational(head);
        }
        let framing = head.framing(exchange.method);
        exchange.keeps_alive = head.keep_alive(exchange.method);
        exchange.incoming = match framing {
            Framing::Length(0) => Incoming::Complete,
            framing => {
                BodyDecoder::new(framing, &self.limits).map_or(Incoming::Complete, Incoming::Body)
            }
        };
        ReadStep::Head(head, framing)
    }

    /// Effect of a part of a body on the exchange.
    fn body<'b>(
        &mut self,
        handle: Handle<Exchange>,
        step: BodyStep<'b>,
        blocks: &BlockPool,
    ) -> ReadStep<'b> {
        let limit_bytes = self.limits.body_bytes_max;
        let Some(exchange) = self.exchanges.get_mut(handle) else {
            return ReadStep::Gone;
        };
        exchange.report.body_bytes += step.data.len() as u64;
        if exchange.report.body_bytes > limit_bytes {
            let error = BodyError::TooLong { limit_bytes };
            return ReadStep::Failed(answer_error(ClientError::Body(error)));
        }
        if step.is_complete {
            exchange.incoming = Incoming::Complete;
        }
        if !step.trailer.is_empty() {
            let kept = exchange.trailer.extend_from_slice(blocks, step.trailer);
            if let Err(error) = kept {
                return ReadStep::Failed(error.into());
            }
        }
        match step.data.is_empty() {
            true => ReadStep::Silent,
            false => ReadStep::Body(step.data),
        }
    }
}

/// The front of the received bytes, as much as is reported at once.
fn part_of(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(PART_BYTES_MAX)]
}

const fn answer_head<'a>(
    bytes: &'a [u8],
    head: &'a ResponseHead,
    fields: &'a HeadFields,
    framing: Framing,
) -> ReceivedHead<'a> {
    ReceivedHead {
        bytes,
        head,
        fields,
        framing,
    }
}

fn answer_error(error: ClientError) -> FailureCause {
    FailureCause::Answer(error)
}

// Heads of responses, parsed: those that came last of some upstreams are compared first.

/// Longer heads are parsed each time.
const KNOWN_BYTES_MAX: usize = 1024;
/// Upstreams share them by their number.
const PLACES: usize = 4;

/// One head.
#[derive(Debug)]
struct KnownHead {
    /// As received; empty: `head` and `fields` are not valid.
    bytes: Vec<u8>,
    head: ResponseHead,
    fields: HeadFields,
}

/// The heads of recent responses, so that equal ones are not parsed again. One per client, always with the same limits.
#[derive(Debug)]
pub(super) struct KnownResponseHeads {
    places: [KnownHead; PLACES],
    /// Where the head is that was asked for last.
    at: usize,
}

impl Default for KnownResponseHeads {
    fn default() -> Self {
        let place = |_| KnownHead {
            bytes: Vec::with_capacity(KNOWN_BYTES_MAX),
            head: ResponseHead::EMPTY,
            fields: HeadFields::new(),
        };
        Self {
            places: std::array::from_fn(place),
            at: 0,
        }
    }
}

impl KnownResponseHeads {
    /// The head at the beginning of what came from one upstream. Allocates nothing.
    #[inline]
    pub(super) fn read(
        &mut self,
        from: PoolKey,
        bytes: &[u8],
        limits: &Limits,
    ) -> Result<Parsed<ResponseHead>, ParseError> {
        self.at = from.to_bits() as usize % PLACES;
        let place = &mut self.places[self.at];
        if !place.bytes.is_empty() && bytes.starts_with(&place.bytes) {
            return Ok(Parsed::Complete(place.head));
        }
        place.bytes.clear();
        let parsed = parse_response_head(bytes, limits, &mut place.fields);
        if let Ok(Parsed::Complete(head)) = &parsed
            && head.head_bytes <= KNOWN_BYTES_MAX
        {
            place.head = *head;
            place.bytes.extend_from_slice(&bytes[..head.head_bytes]);
        }
        parsed
    }

    /// The fields of the head that was read last.
    #[inline]
    pub(super) fn fields(&self) -> &HeadFields {
        &self.places[self.at].fields
    }
}

// Meaning of the last head: the next one need not be parsed if it is the same.

/// Longer heads are parsed each time.
const LAST_HEAD_BYTES_MAX: usize = 512;

/// The head that came last, on whichever connection of one owner, and what it meant.
///
/// A server's heads differ from one to the next in a date that changes once a second, if at all. One
/// that begins as the last one did, to its empty line, means the same: it is compared, not parsed.
#[derive(Clone, Debug)]
pub struct LastHead {
    pub(super) fields: HeadFields,
    bytes: [u8; LAST_HEAD_BYTES_MAX],
    /// 0: none to compare with.
    length: usize,
    /// Length of a whole response with this head; 0: unknown, or the connection ends with it.
    whole_bytes: usize,
    pub(super) meaning: Meaning,
}

impl Default for LastHead {
    fn default() -> Self {
        Self {
            fields: HeadFields::new(),
            bytes: [0; LAST_HEAD_BYTES_MAX],
            length: 0,
            whole_bytes: 0,
            meaning: Meaning {
                method: Method::Get,
                status: StatusCode::OK,
                keep_alive: false,
                framing: Framing::None,
            },
        }
    }
}

impl LastHead {
    /// Meaning of the head at the beginning of `bytes`, if it equals the last one.
    #[inline]
    pub(super) fn again(&self, bytes: &[u8], method: Method) -> Option<(usize, Meaning)> {
        let is_same = self.length > 0
            && self.meaning.method == method
            && bytes.starts_with(&self.bytes[..self.length]);
        is_same.then_some((self.length, self.meaning))
    }

    /// The whole responses at the beginning of `bytes` that belong to `expected` and have the same head as the last
    /// one, and how many bytes those are; `None`: there are none.
    #[inline]
    pub(super) fn alike(
        &self,
        bytes: &[u8],
        expected: &Expected,
        limits: &Limits,
    ) -> Option<(IdenticalResponses, usize)> {
        let body_bytes = self.meaning.body_bytes();
        if self.whole_bytes == 0
            || self.meaning.method != expected.method
            || body_bytes > limits.body_bytes_max
        {
            return None;
        }
        let alike = |count| IdenticalResponses {
            count,
            status: self.meaning.status,
            body_bytes,
        };
        let head = &self.bytes[..self.length];
        if let Some(count) = self.repetitions(bytes, head)
            && count <= expected.count
        {
            return Some((alike(count), bytes.len()));
        }
        let (mut count, mut rest) = (0, bytes);
        while count < expected.count && rest.len() >= self.whole_bytes && rest.starts_with(head) {
            count += 1;
            rest = &rest[self.whole_bytes..];
        }
        (count > 0).then_some((alike(count), bytes.len() - rest.len()))
    }

    /// How many responses `bytes` are if they are one again and again, its body too, as those of a pipeline mostly are:
    /// one comparison of the bytes with themselves, a response later.
    #[inline]
    fn repetitions(&self, bytes: &[u8], head: &[u8]) -> Option<usize> {
        let later = bytes.get(self.whole_bytes..)?;
        let is_repeated = self.whole_bytes <= LAST_HEAD_BYTES_MAX
            && !later.is_empty()
            && bytes.len().is_multiple_of(self.whole_bytes)
            && bytes.starts_with(head)
            && *later == bytes[..later.len()];
        is_repeated.then(|| bytes.len() / self.whole_bytes)
    }

    pub(super) fn remember(&mut self, head: &[u8], meaning: Meaning) {
        (self.length, self.whole_bytes) = (0, 0);
        if let Some(place) = self.bytes.get_mut(..head.len()) {
            place.copy_from_slice(head);
            self.length = head.len();
            self.whole_bytes = meaning.whole_bytes(head.len()).unwrap_or(0);
            self.meaning = meaning;
        }
    }
}

/// Meaning of a final response's head, for a request of this method.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meaning {
    pub(super) method: Method,
    pub(super) status: StatusCode,
    pub(super) keep_alive: bool,
    pub(super) framing: Framing,
}

impl Meaning {
    /// Length of a whole response, if that is known and another may follow it.
    fn whole_bytes(&self, head_bytes: usize) -> Option<usize> {
        let has_length = matches!(self.framing, Framing::None | Framing::Length(_));
        if !has_length || !self.keep_alive || self.status.is_informational() {
            return None;
        }
        head_bytes.checked_add(usize::try_from(self.body_bytes()).ok()?)
    }

    /// Length of the body if the head gives it.
    pub(super) fn body_bytes(&self) -> u64 {
        match self.framing {
            Framing::Length(length) => length,
            _ => 0,
        }
    }
}

#[cfg(test)]
#[path = "tests/answer_heads.rs"]
mod answer_heads_tests;
