//! A body that comes in pieces, or in chunks, and is wanted whole: gathered in pooled memory until it
//! is, with the head of its request.
//!
//! On the path: `Connection::advance` says that a body begins; the server has it gathered here unless
//! the service takes it in parts.
//! Absent on purpose: deadlines and rates, which are the server's.

use super::{Advance, Connection, HeadBytes, Ready, Refusal};
use crate::body::BodyDecoder;
use crate::body_budget::{BodyBudget, BodyHold};
use crate::head::{HeadFields, RequestHead};
use crate::limits::Limits;
use crate::parse::{Parsed, parse_request_head};
use crate::request::GatheredBody;
use crate::server::SHORT_BYTES;
use millpond_mempool::{BlockPool, Buffer, Pool, Pooled};

/// First room for a body whose length only the peer knows; what it claims is not believed at once.
const BODY_FIRST_BYTES: usize = 4 * 1024;

/// Where bodies are gathered, of one shard.
pub(crate) struct GatheringRoom<'a> {
    pub(crate) blocks: &'a BlockPool,
    pub(crate) gatherings: &'a Pool<Gathering>,
    pub(crate) bodies: &'a BodyBudget,
}

/// A body being gathered.
#[derive(Debug)]
pub(crate) struct Gathering {
    decoder: BodyDecoder,
    /// Of a body that is long, or may be.
    hold: Option<BodyHold>,
    /// What was announced is granted: it can be reserved at once.
    is_granted: bool,
    /// The head, kept for the request that it will be.
    pub(crate) head: Buffer,
    body: Buffer,
    /// Input since the head, framing included, for the rate.
    pub(crate) received_bytes: u64,
    /// The client waits for 100 Continue before it sends any of the body.
    pub(crate) wants_continue: bool,
}

impl Connection {
    /// Gathers a body that is not whole, or in chunks, with the hold that one of its length takes. `fields`
    /// still describes the head.
    pub(crate) fn begin_body<'s>(
        &mut self,
        (head, hold): (&RequestHead, Option<BodyHold>),
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
        let is_chunked = decoder.remaining_bytes().is_none();
        let mut gathering = Gathering {
            decoder,
            is_granted: hold.is_some() && room.bodies.is_limited(),
            hold: match is_chunked {
                true => Some(room.bodies.begin()),
                false => hold,
            },
            head: Buffer::new(),
            body: Buffer::new(),
            received_bytes: 0,
            wants_continue: head.expects_continue && rest.is_empty(),
        };
        match gathering.gather(rest, at, blocks) {
            Err(refusal) => Advance::Refused(refusal),
            Ok(true) => Advance::Ready(Ready {
                head: *head,
                head_bytes: HeadBytes::Borrowed(head_bytes),
                body: gathered(gathering.body, gathering.hold),
            }),
            Ok(false) => {
                if let Err(error) = gathering.head.extend_from_slice(blocks, head_bytes) {
                    return Advance::Refused(error.into());
                }
                match room.gatherings.insert(gathering) {
                    Ok(gathering) => self.gathering = Some(gathering),
                    Err(error) => return Advance::Refused(error.into()),
                }
                Advance::NeedMore
            }
        }
    }

    #[cold]
    pub(super) fn advance_body<'s>(
        &mut self,
        source: &'s [u8],
        at: &mut usize,
        limits: &Limits,
        fields: &mut HeadFields,
        blocks: &BlockPool,
    ) -> Advance<'s> {
        let Some(gathering) = self.gathering.as_mut() else {
            return Advance::NeedMore;
        };
        match gathering.gather(&source[*at..], at, blocks) {
            Err(refusal) => return Advance::Refused(refusal),
            Ok(false) => return Advance::NeedMore,
            Ok(true) => {}
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
                body: gathered(body, hold),
            }),
            Ok(Parsed::Partial) => Advance::NeedMore,
            Err(error) => Advance::Refused(error.into()),
        }
    }
}

/// With a hold on anything at all: a body in chunks may have stayed short.
fn gathered(buffer: Buffer, hold: Option<BodyHold>) -> GatheredBody {
    let hold = hold.filter(|hold| hold.bytes() > 0);
    GatheredBody { buffer, hold }
}

impl Gathering {
    /// Decodes all of `bytes` that belongs to the body; true when the body is complete.
    fn gather(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
        blocks: &BlockPool,
    ) -> Result<bool, Refusal> {
        let mut rest = bytes;
        loop {
            let step = self.decoder.decode(rest)?;
            self.keep(step.data, blocks)?;
            self.received_bytes += step.consumed_bytes as u64;
            *at += step.consumed_bytes;
            rest = &rest[step.consumed_bytes..];
            if step.is_complete {
                return Ok(true);
            }
            if rest.is_empty() {
                return Ok(false);
            }
        }
    }

    /// Doubles as it grows, but never past what a known length still needs. What was granted is reserved
    /// at once: the pages of it come as they are filled, and nothing is there twice while it moves.
    fn keep(&mut self, data: &[u8], blocks: &BlockPool) -> Result<(), Refusal> {
        if self.body.spare_bytes() < data.len() {
            let doubled = self.body.len().max(BODY_FIRST_BYTES);
            let most = self
                .decoder
                .remaining_bytes()
                .map_or(usize::MAX, |remaining| {
                    usize::try_from(remaining)
                        .unwrap_or(usize::MAX)
                        .saturating_add(data.len())
                });
            let more = match self.is_granted {
                true => most,
                false => doubled.min(most).max(data.len()),
            };
            let bytes = (self.body.len() + more) as u64;
            let is_short = bytes <= SHORT_BYTES;
            let mut hold = self.hold.as_mut().filter(|_| !is_short);
            if hold.as_mut().is_some_and(|hold| !hold.grow_to(bytes)) {
                return Err(Refusal::Bodies);
            }
            self.body.reserve(blocks, more)?;
        }
        self.body.append_within_capacity(data);
        Ok(())
    }
}
