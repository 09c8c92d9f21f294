//! A body that comes in pieces, or in chunks, and is wanted whole: gathered in pooled memory until it
//! is, with the head of its request.
//!
//! On the path: `Connection::advance` says that a body begins; the server has it gathered here unless
//! the service takes it in parts.
//! Absent on purpose: deadlines and rates, which are the server's.

use super::{Advance, Connection, HeadBytes, Ready, Refusal};
use crate::body::BodyDecoder;
use crate::head::{HeadFields, RequestHead};
use crate::limits::Limits;
use crate::parse::{Parsed, parse_request_head};
use crate::request::RequestBody;
use millpond_mempool::{BlockPool, Buffer, Pool, PoolError, Pooled};

/// First room for a body whose length only the peer knows; what it claims is not believed at once.
const BODY_FIRST_BYTES: usize = 4 * 1024;

/// A body being gathered.
#[derive(Debug)]
pub(crate) struct Gathering {
    decoder: BodyDecoder,
    /// The head, kept for the request that it will be.
    pub(crate) head: Buffer,
    body: Buffer,
    /// Input since the head, framing included, for the rate.
    pub(crate) received_bytes: u64,
    /// The client waits for 100 Continue before it sends any of the body.
    pub(crate) wants_continue: bool,
}

impl Connection {
    /// Gathers a body that is not whole, or in chunks. `fields` still describes the head.
    pub(crate) fn begin_body<'s>(
        &mut self,
        head: &RequestHead,
        source: &'s [u8],
        at: &mut usize,
        limits: &Limits,
        blocks: &BlockPool,
        gatherings: &Pool<Gathering>,
    ) -> Advance<'s> {
        let (head_bytes, rest) = source[*at..].split_at(head.head_bytes);
        *at += head_bytes.len();
        let Some(decoder) = BodyDecoder::new(head.framing, limits) else {
            return Advance::NeedMore;
        };
        let mut gathering = Gathering {
            decoder,
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
                body: RequestBody::Pooled(gathering.body),
            }),
            Ok(false) => {
                if let Err(error) = gathering.head.extend_from_slice(blocks, head_bytes) {
                    return Advance::Refused(error.into());
                }
                match gatherings.insert(gathering) {
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
                body: RequestBody::Pooled(body),
            }),
            Ok(Parsed::Partial) => Advance::NeedMore,
            Err(error) => Advance::Refused(error.into()),
        }
    }
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

    /// Doubles as it grows, but never past what a known length still needs.
    fn keep(&mut self, data: &[u8], blocks: &BlockPool) -> Result<(), PoolError> {
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
            self.body
                .reserve(blocks, doubled.min(most).max(data.len()))?;
        }
        self.body.append_within_capacity(data);
        Ok(())
    }
}
