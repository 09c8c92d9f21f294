//! A body that comes in pieces, or in chunks, and is wanted whole: gathered in pooled memory until it
//! is, with the head of its request.
//!
//! `Connection::advance` says that a body begins; the server has it gathered here unless the service takes it
//! in parts. What arrives beyond [`SHORT_BYTES`] is charged to the budget of all bodies; where there is
//! nothing left, a body of known length waits, and one in chunks is refused. Deadlines and rates are the
//! server's.

use super::{Advance, Connection, HeadBytes, Ready, Refusal};
use crate::body::BodyDecoder;
use crate::body_budget::{BodyBudget, BodyHold};
use crate::head::{HeadFields, RequestHead};
use crate::limits::Limits;
use crate::parse::{Parsed, parse_request_head};
use crate::request::GatheredBody;
use crate::server::SHORT_BYTES;
use millpond_io::Waker;
use millpond_mempool::{BlockPool, Buffer, Pool, Pooled};

/// First room for a body whose length only the peer knows; what it claims is not believed at once.
const BODY_FIRST_BYTES: usize = 4 * 1024;

/// Where bodies are gathered, of one shard.
pub(crate) struct GatheringRoom<'a> {
    pub(crate) blocks: &'a BlockPool,
    pub(crate) gatherings: &'a Pool<Gathering>,
    pub(crate) bodies: &'a BodyBudget,
    pub(crate) now_ns: u64,
    /// What wakes the shard when one of its bodies is to be cut.
    pub(crate) waker: &'a dyn Fn() -> Waker,
}

/// A body being gathered.
#[derive(Debug)]
pub(crate) struct Gathering {
    decoder: BodyDecoder,
    /// Of a body of which more has arrived than a short one has.
    pub(crate) hold: Option<BodyHold>,
    /// The server knows that there is a hold.
    pub(crate) is_noted: bool,
    /// The head, kept for the request that it will be.
    pub(crate) head: Buffer,
    body: Buffer,
    /// Input since the head, framing included, for the rate.
    pub(crate) received_bytes: u64,
    /// The client waits for 100 Continue before it sends any of the body.
    pub(crate) wants_continue: bool,
}

/// How far a body came.
enum Gathered {
    Complete,
    NeedMore,
    /// There is no memory for its next bytes.
    AwaitsMemory,
}

impl Connection {
    /// Gathers a body that is not whole, or in chunks. `fields` still describes the head.
    pub(crate) fn begin_body<'s>(
        &mut self,
        head: &RequestHead,
        source: &'s [u8],
        at: &mut usize,
        limits: &Limits,
        room: &GatheringRoom<'_>,
    ) -> Advance<'s> {
        let blocks = room.blocks;
        let (head_bytes, rest) = source[*at..].split_at(head.head_bytes);
        *at += head_bytes.len();
        let Some(decoder) = BodyDecoder::new(head.framing, limits) else {
            return Advance::NeedMore;
        };
        let mut gathering = Gathering {
            decoder,
            hold: None,
            is_noted: false,
            head: Buffer::new(),
            body: Buffer::new(),
            received_bytes: 0,
            wants_continue: head.expects_continue && rest.is_empty(),
        };
        let gathered = match gathering.gather(rest, at, room) {
            Ok(gathered) => gathered,
            Err(refusal) => return Advance::Refused(refusal),
        };
        if let Gathered::Complete = gathered {
            return Advance::Ready(Ready {
                head: *head,
                head_bytes: HeadBytes::Borrowed(head_bytes),
                body: complete(gathering.body, gathering.hold),
            });
        }
        if let Err(error) = gathering.head.extend_from_slice(blocks, head_bytes) {
            return Advance::Refused(error.into());
        }
        match room.gatherings.insert(gathering) {
            Ok(gathering) => self.gathering = Some(gathering),
            Err(error) => return Advance::Refused(error.into()),
        }
        match gathered {
            Gathered::AwaitsMemory => Advance::AwaitsMemory,
            Gathered::Complete | Gathered::NeedMore => Advance::NeedMore,
        }
    }

    #[cold]
    pub(super) fn advance_body<'s>(
        &mut self,
        source: &'s [u8],
        at: &mut usize,
        limits: &Limits,
        fields: &mut HeadFields,
        room: &GatheringRoom<'_>,
    ) -> Advance<'s> {
        let Some(gathering) = self.gathering.as_mut() else {
            return Advance::NeedMore;
        };
        match gathering.gather(&source[*at..], at, room) {
            Err(refusal) => return Advance::Refused(refusal),
            Ok(Gathered::NeedMore) => return Advance::NeedMore,
            Ok(Gathered::AwaitsMemory) => return Advance::AwaitsMemory,
            Ok(Gathered::Complete) => {}
        }
        let Some(Gathering {
            head: head_bytes,
            body,
            hold,
            ..
        }) = self.gathering.take().map(Pooled::into_inner)
        else {
            return Advance::NeedMore;
        };
        // The head was accepted before; parsing it again is cheaper than keeping a table of its
        // fields for every connection.
        match parse_request_head(&head_bytes, limits, fields) {
            Ok(Parsed::Complete(head)) => Advance::Ready(Ready {
                head,
                head_bytes: HeadBytes::Pooled(head_bytes),
                body: complete(body, hold),
            }),
            Ok(Parsed::Partial) => Advance::NeedMore,
            Err(error) => Advance::Refused(error.into()),
        }
    }
}

/// With a hold on anything at all: a body in chunks may have stayed short.
fn complete(buffer: Buffer, hold: Option<BodyHold>) -> GatheredBody {
    let hold = hold.filter(|hold| hold.bytes() > 0);
    if let Some(hold) = &hold {
        hold.complete();
    }
    GatheredBody { buffer, hold }
}

impl Gathering {
    /// What of the budget the body takes in the end, as far as is known.
    pub(crate) fn total_bytes(&self) -> u64 {
        let remaining_bytes = self.decoder.remaining_bytes().unwrap_or(0);
        (self.body.len() as u64).saturating_add(remaining_bytes)
    }

    /// Decodes all of `bytes` that belongs to the body and that there is memory for.
    fn gather(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
        room: &GatheringRoom<'_>,
    ) -> Result<Gathered, Refusal> {
        let mut rest = bytes;
        loop {
            let granted = self.granted(rest.len(), room);
            if granted == 0 && !rest.is_empty() {
                return Ok(Gathered::AwaitsMemory);
            }
            let step = self.decoder.decode(&rest[..granted])?;
            self.keep(step.data, room)?;
            if let Some(hold) = &self.hold {
                hold.moved(step.consumed_bytes as u64, room.now_ns);
            }
            self.received_bytes += step.consumed_bytes as u64;
            *at += step.consumed_bytes;
            rest = &rest[step.consumed_bytes..];
            if step.is_complete {
                return Ok(Gathered::Complete);
            }
            if rest.is_empty() {
                return Ok(Gathered::NeedMore);
            }
        }
    }

    /// How many of the next bytes may be decoded.
    fn granted(&mut self, count: usize, room: &GatheringRoom<'_>) -> usize {
        let Some(remaining_bytes) = self.decoder.remaining_bytes() else {
            // Of its bytes only some are data: `keep` sees how many.
            return count;
        };
        let here_bytes = self.body.len() as u64;
        let wanted_bytes = here_bytes + remaining_bytes.min(count as u64);
        if wanted_bytes <= SHORT_BYTES {
            return count;
        }
        match self.grow_hold(wanted_bytes, room) {
            true => count,
            false => {
                let held_bytes = self.hold.as_ref().map_or(0, BodyHold::bytes);
                let granted_bytes = held_bytes.max(SHORT_BYTES).saturating_sub(here_bytes);
                usize::try_from(granted_bytes).map_or(count, |granted| granted.min(count))
            }
        }
    }

    fn grow_hold(&mut self, bytes: u64, room: &GatheringRoom<'_>) -> bool {
        let is_known = self.decoder.remaining_bytes().is_some();
        let total_bytes = is_known.then(|| self.total_bytes());
        let begin = || room.bodies.begin(total_bytes, Some((room.waker)()));
        let hold = self.hold.get_or_insert_with(begin);
        hold.grow_to(bytes, room.now_ns)
    }

    /// Doubles as it grows, but never past what a known length still needs. Of one that has a hold all is
    /// reserved at once: the pages of it come as they are filled, and nothing is there twice while it moves.
    fn keep(&mut self, data: &[u8], room: &GatheringRoom<'_>) -> Result<(), Refusal> {
        if self.body.spare_bytes() < data.len() {
            let doubled = self.body.len().max(BODY_FIRST_BYTES);
            let remaining_bytes = self.decoder.remaining_bytes();
            let most = remaining_bytes.map_or(usize::MAX, |remaining| {
                usize::try_from(remaining)
                    .unwrap_or(usize::MAX)
                    .saturating_add(data.len())
            });
            let is_held = self.hold.as_ref().is_some_and(|hold| hold.bytes() > 0);
            let is_granted = is_held && remaining_bytes.is_some() && room.bodies.is_limited();
            let more = match is_granted {
                true => most,
                false => doubled.min(most).max(data.len()),
            };
            let bytes = (self.body.len() + more) as u64;
            let is_charged = remaining_bytes.is_some() || bytes <= SHORT_BYTES;
            if !is_charged && !self.grow_hold(bytes, room) {
                return Err(Refusal::Bodies);
            }
            self.body.reserve(room.blocks, more)?;
        }
        self.body.append_within_capacity(data);
        Ok(())
    }
}
