//! The shard's side of the access log: open connections, requests without a response yet, one push for
//! each request.
//!
//! `server::refusing` calls this where a response is complete or begins in parts, a request is refused, or its
//! connection is lost. Only raw bytes are copied; text is the writer's work.
//!
//! Entries that do not fit are counted.

use super::entry::{
    Asker, Flags, REQUEST_TEXTS, RequestEnd, RequestText, STATUS_CLOSED, TEXT_BYTES_MAX, pack,
};
use super::ring::RingWriter;
use super::writer::WriterNotifier;
use super::{Fault, PACKED_BYTES_MAX, Relayed};
use crate::proxy::Failure;
use millpond_io::{Peer, monotonic_ns};
use millpond_mempool::{BlockPool, Buffer, Pool, PoolMode, PoolStats, Pooled};
use std::sync::Arc;

/// Counters of one shard's log.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct AccessLogCounters {
    /// Entries handed to the writer.
    pub(crate) queued: u64,
    /// Entries that found no room.
    pub(crate) dropped: u64,
}

/// One shard's end of the log.
#[derive(Debug)]
pub(crate) struct ShardLog {
    ring: RingWriter,
    bell: Arc<WriterNotifier>,
    /// By the socket's slot.
    places: Vec<LoggedConnection>,
    unanswered: Pool<Unanswered>,
    connection_count: u64,
    counters: AccessLogCounters,
    /// Entries were pushed since the last tick ended.
    has_fresh: bool,
    /// Others are asked for responses.
    is_relaying: bool,
    at_hand: CallEntry,
}

/// The request that the service is called for.
#[derive(Debug, Default)]
pub(crate) struct CallEntry {
    /// Its texts, one behind the other, in memory that is used again for the next.
    text: Box<[u8]>,
    ends: [usize; REQUEST_TEXTS],
    flags: Flags,
    pub(crate) call: Call,
    pub(crate) started_ns: u64,
    /// Length of the connection's output before it.
    pub(crate) output_bytes_before: usize,
}

/// Where that request is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Call {
    /// Nowhere: whatever ends was kept before.
    #[default]
    None,
    /// With the service.
    Running,
    /// Ended, with this status.
    Ended { status: u16, is_complete: bool },
}

/// State that the log keeps for a connection.
#[derive(Debug)]
struct LoggedConnection {
    asker: Asker,
    unanswered: Option<Pooled<Unanswered>>,
}

/// A request between its head and the end of its response.
#[derive(Debug)]
struct Unanswered {
    /// Its texts, one behind the other.
    text: Buffer,
    ends: [usize; REQUEST_TEXTS],
    flags: Flags,
    started_ns: u64,
    /// 0: no response yet.
    status: u16,
    body_bytes: u64,
    relayed: Option<Relayed>,
}

impl ShardLog {
    pub(super) fn new(ring: RingWriter, bell: Arc<WriterNotifier>, mode: PoolMode) -> Self {
        Self {
            ring,
            bell,
            places: Vec::new(),
            unanswered: Pool::new("http_unanswered", mode),
            connection_count: 0,
            counters: AccessLogCounters::default(),
            has_fresh: false,
            is_relaying: false,
            at_hand: CallEntry {
                text: vec![0; TEXT_BYTES_MAX].into(),
                ..CallEntry::default()
            },
        }
    }

    /// Whether the service is a proxy: if so, a request that it does not pass on because of a fault gets the side at
    /// fault.
    pub(crate) fn relaying(mut self, is_relaying: bool) -> Self {
        self.is_relaying = is_relaying;
        self
    }

    /// The service is about to be called. Copied once more, so that the path of a request need not
    /// hold on to its head for us.
    pub(crate) fn begin_call(
        &mut self,
        text: &RequestText<'_>,
        started_ns: u64,
        output_bytes_before: usize,
    ) {
        let at_hand = &mut self.at_hand;
        let mut start = 0;
        for (part, end) in text.texts.iter().zip(&mut at_hand.ends) {
            *end = start + part.len();
            at_hand.text[start..*end].copy_from_slice(part);
            start = *end;
        }
        at_hand.flags = text.flags;
        at_hand.call = Call::Running;
        at_hand.started_ns = started_ns;
        at_hand.output_bytes_before = output_bytes_before;
    }

    /// The service was called; `end_with` is due.
    pub(crate) fn end_call(&mut self) -> CallEntry {
        std::mem::take(&mut self.at_hand)
    }

    /// Gives the memory of an entry back.
    pub(crate) fn end_with(&mut self, entry: CallEntry) {
        self.at_hand.text = entry.text;
    }

    pub(crate) fn counters(&self) -> AccessLogCounters {
        self.counters
    }

    pub(crate) fn stats(&self) -> PoolStats {
        self.unanswered.stats()
    }

    pub(crate) fn trim(&mut self) -> usize {
        self.unanswered.trim()
    }

    /// A connection was taken. Without memory for its place its requests are counted as dropped.
    pub(crate) fn accepted(&mut self, slot: usize, peer: Peer) {
        self.connection_count += 1;
        let asker = Asker {
            peer,
            connection: self.connection_count,
            request: 0,
        };
        let place = LoggedConnection {
            asker,
            unanswered: None,
        };
        if let Some(old) = self.places.get_mut(slot) {
            *old = place;
            return;
        }
        let added_count = slot + 1 - self.places.len();
        if self.places.try_reserve(added_count).is_ok() {
            let unknown = || LoggedConnection {
                asker,
                unanswered: None,
            };
            self.places.resize_with(slot, unknown);
            self.places.push(place);
        }
    }

    /// A peer was sent away at the door.
    pub(crate) fn turned_away(&mut self, peer: Peer, status: u16, body_bytes: u64) {
        let asker = Asker {
            peer,
            connection: 0,
            request: 0,
        };
        let outcome = RequestEnd {
            status,
            is_complete: true,
            started_ns: monotonic_ns(),
            duration_ns: 0,
            body_bytes,
        };
        self.push(
            &asker,
            &RequestText::default(),
            &outcome,
            self.own(status, None).as_ref(),
        );
    }

    /// A request whose response is known at once.
    pub(crate) fn answered(
        &mut self,
        slot: usize,
        text: &RequestText<'_>,
        started_ns: u64,
        (status, is_complete): (u16, bool),
        body_bytes: u64,
        told: Option<Failure>,
    ) {
        let Some(place) = self.places.get_mut(slot) else {
            self.counters.dropped += 1;
            return;
        };
        place.asker.request = place.asker.request.wrapping_add(1);
        let asker = place.asker;
        let outcome = RequestEnd {
            status,
            is_complete,
            started_ns,
            duration_ns: monotonic_ns().saturating_sub(started_ns),
            body_bytes,
        };
        self.push(&asker, text, &outcome, self.own(status, told).as_ref());
    }

    /// The note for a response for which no upstream was contacted, in a service that is a proxy.
    fn own(&self, status: u16, told: Option<Failure>) -> Option<Relayed> {
        let fault = Fault::of_own_response(status, told).filter(|_| self.is_relaying);
        fault.map(|fault| Relayed::nowhere(fault, told))
    }

    /// A request whose response, or the rest of it, comes later.
    pub(crate) fn keep(
        &mut self,
        slot: usize,
        text: &RequestText<'_>,
        started_ns: u64,
        blocks: &BlockPool,
    ) {
        let Some(place) = self.places.get_mut(slot) else {
            self.counters.dropped += 1;
            return;
        };
        place.asker.request = place.asker.request.wrapping_add(1);
        let mut ends = [0; REQUEST_TEXTS];
        let mut bytes = Buffer::new();
        for (part, end) in text.texts.iter().zip(&mut ends) {
            if bytes.extend_from_slice(blocks, part).is_err() {
                self.counters.dropped += 1;
                return;
            }
            *end = bytes.len();
        }
        debug_assert!(bytes.len() <= TEXT_BYTES_MAX);
        let unanswered = Unanswered {
            text: bytes,
            ends,
            flags: text.flags,
            started_ns,
            status: 0,
            body_bytes: 0,
            relayed: None,
        };
        match self.unanswered.insert(unanswered) {
            Ok(kept) => place.unanswered = Some(kept),
            Err(_) => self.counters.dropped += 1,
        }
    }

    /// Whether an entry of this connection waits for its response to end.
    pub(crate) fn has_open(&self, slot: usize) -> bool {
        let place = self.places.get(slot);
        self.at_hand.call != Call::None || place.is_some_and(|place| place.unanswered.is_some())
    }

    /// The outcome of a request that was kept; the last note counts.
    pub(crate) fn note(&mut self, slot: usize, relayed: Relayed) {
        let place = self.places.get_mut(slot);
        if let Some(kept) = place.and_then(|place| place.unanswered.as_deref_mut()) {
            kept.relayed = Some(relayed);
        }
    }

    /// `output` was written to a request that was kept; `status` is that of its response, once begun.
    pub(crate) fn wrote(&mut self, slot: usize, status: Option<u16>, output: &[u8]) {
        let place = self.places.get_mut(slot);
        let Some(kept) = place.and_then(|place| place.unanswered.as_deref_mut()) else {
            return;
        };
        let Some(status) = status else {
            return;
        };
        let body_bytes = match kept.status {
            0 => body_bytes(output),
            _ => output.len() as u64,
        };
        kept.status = status;
        kept.body_bytes += body_bytes;
    }

    /// So many bytes of the body went out of a file, past the output.
    pub(crate) fn sent_file(&mut self, slot: usize, bytes: u64) {
        let place = self.places.get_mut(slot);
        if let Some(kept) = place.and_then(|place| place.unanswered.as_deref_mut()) {
            kept.body_bytes += bytes;
        }
    }

    /// The current exchange is over: its response is as complete as it will be.
    pub(crate) fn ended(&mut self, slot: usize, status: Option<u16>, is_complete: bool) {
        if self.at_hand.call != Call::None {
            let status = status.unwrap_or(STATUS_CLOSED);
            self.at_hand.call = Call::Ended {
                status,
                is_complete,
            };
            return;
        }
        let Some(place) = self.places.get_mut(slot) else {
            return;
        };
        let Some(kept) = place.unanswered.take() else {
            return;
        };
        let begun = (kept.status != 0).then_some(kept.status);
        let outcome = RequestEnd {
            status: status.or(begun).unwrap_or(STATUS_CLOSED),
            is_complete,
            started_ns: kept.started_ns,
            duration_ns: monotonic_ns().saturating_sub(kept.started_ns),
            body_bytes: kept.body_bytes,
        };
        let asker = place.asker;
        let text = text_of(&kept.text, kept.ends, kept.flags);
        let relayed = kept.relayed.or_else(|| self.own(outcome.status, None));
        self.push(&asker, &text, &outcome, relayed.as_ref());
    }

    /// Wakes the writer if it sleeps and there is something for it.
    #[inline]
    pub(crate) fn tick_ended(&mut self) {
        if self.has_fresh {
            self.has_fresh = false;
            self.bell.ring_if_asleep();
        }
    }

    fn push(
        &mut self,
        asker: &Asker,
        text: &RequestText<'_>,
        outcome: &RequestEnd,
        relayed: Option<&Relayed>,
    ) {
        let mut room = [0; PACKED_BYTES_MAX];
        let note = relayed.map_or(&[][..], |relayed| relayed.pack(&mut room));
        let [line, referer, user_agent, host, traceparent] = text.texts;
        let texts = [line, referer, user_agent, host, traceparent, note];
        match self.ring.push(&pack(asker, text, outcome), texts) {
            true => self.counters.queued += 1,
            false => self.counters.dropped += 1,
        }
        self.has_fresh = true;
        if self.ring.is_crowded() {
            self.bell.ring_if_idle();
        }
    }
}

impl CallEntry {
    pub(crate) fn text(&self) -> RequestText<'_> {
        text_of(&self.text, self.ends, self.flags)
    }
}

/// Texts that lie one behind the other.
fn text_of(bytes: &[u8], ends: [usize; REQUEST_TEXTS], flags: Flags) -> RequestText<'_> {
    let mut start = 0;
    let texts = ends.map(|end| {
        let text = &bytes[start..end];
        start = end;
        text
    });
    RequestText { texts, flags }
}

/// Length of the response after its head.
pub(crate) fn body_bytes(output: &[u8]) -> u64 {
    let head_end = memchr::memmem::find(output, b"\r\n\r\n");
    head_end.map_or(0, |at| (output.len() - at - 4) as u64)
}
