//! What a request wishes: its conditions, how many copies are to acknowledge it, and the record that
//! a PUT asks for.
//!
//! On the path: `handler` reads it from a request before anything is begun for it.
//! Absent on purpose: whether it can be had, which the store and `executor` decide.

use millpond_http::{BodyHold, Request, SendError, ServiceContext};
use millpond_mempool::{Buffer, PoolError};

use crate::api::Reply;
use crate::condition::Condition;
use crate::executor::Overloaded;
use crate::expiry::expiry_ms;
use crate::record::{HEAD_BYTES_MAX, Head, Versions};
use crate::replicas::acks;
use crate::uploads::copy_of;

/// Values up to this are copied behind their heads at once. A larger one stays where it was received,
/// and the writer thread puts it behind its head.
const COPIED_BYTES_MAX: usize = 64 * 1024;

/// What a request asks for besides an entity.
pub(crate) struct Wishes {
    pub(crate) condition: Condition,
    pub(crate) acks: u16,
}

impl Wishes {
    pub(crate) fn of(request: &Request<'_>, kept: u16) -> Result<Self, Refusal> {
        Ok(Self {
            condition: condition_of(request)?,
            acks: acks_of(request, kept)?,
        })
    }
}

/// How many of the copies that are kept the request wants to hear from.
pub(crate) fn acks_of(request: &Request<'_>, kept: u16) -> Result<u16, Refusal> {
    let parameter = request.query_parameter(b"replicas");
    Ok(acks(parameter, kept).map_err(Reply::BadReplicas)?)
}

/// Why a request ends here without a value.
pub(crate) enum Refusal {
    Reply(Reply),
    /// The shard's pool has no block left.
    NoMemory,
}

impl From<Reply> for Refusal {
    fn from(reply: Reply) -> Self {
        Self::Reply(reply)
    }
}

impl From<Overloaded> for Refusal {
    fn from(_: Overloaded) -> Self {
        Self::Reply(Reply::Overloaded)
    }
}

impl From<PoolError> for Refusal {
    fn from(_: PoolError) -> Self {
        Self::NoMemory
    }
}

/// All statuses here are final, and each request is answered once: it was the memory.
impl From<SendError> for Refusal {
    fn from(_: SendError) -> Self {
        Self::NoMemory
    }
}

pub(crate) fn copy(key: &[u8], context: &ServiceContext<'_>) -> Result<Buffer, PoolError> {
    copy_of(key, &context.pools.blocks)
}

/// The first id that can be behind this one: no bytes lie between the two.
pub(crate) fn first_after(key: &[u8], context: &ServiceContext<'_>) -> Result<Buffer, PoolError> {
    let mut first = Buffer::with_capacity(&context.pools.blocks, key.len() + 1)?;
    first.append_all_within_capacity([key, &[0]]);
    Ok(first)
}

/// Both fields of a request that has any: one pass over its fields.
fn condition_of(request: &Request<'_>) -> Result<Condition, Refusal> {
    let mut condition = Condition::default();
    for (name, value) in request.headers() {
        let is_match = name.eq_ignore_ascii_case(b"If-Match");
        if is_match || name.eq_ignore_ascii_case(b"If-None-Match") {
            let added = condition.add_field(is_match, value);
            added.map_err(Reply::BadCondition)?;
        }
    }
    Ok(condition)
}

/// The head of the record that a PUT asks for, written into `room`; returns how long it is.
fn write_head(
    request: &Request<'_>,
    versions: &mut Versions,
    room: &mut [u8; HEAD_BYTES_MAX],
) -> Result<usize, Refusal> {
    let content_type = request.header("Content-Type").unwrap_or_default();
    let expires_ms = expiry_ms(
        request.query_parameter(b"expires"),
        request.header("Expires"),
    );
    let head = Head {
        version: versions.unused(),
        expires_ms: expires_ms.map_err(Reply::BadExpiry)?,
        content_type,
        content_encoding: match request.header("Content-Encoding") {
            Some(encoding) if !encoding.eq_ignore_ascii_case(b"identity") => encoding,
            Some(_) | None => b"",
        },
    };
    if !head.fits() {
        return Err(Reply::LongContentType.into());
    }
    Ok(head.write(room))
}

/// The head of the record that a PUT asks for, whose value comes in parts.
pub(crate) fn head_of(
    request: &Request<'_>,
    versions: &mut Versions,
    context: &ServiceContext<'_>,
) -> Result<Buffer, Refusal> {
    let mut room = [0; HEAD_BYTES_MAX];
    let len = write_head(request, versions, &mut room)?;
    Ok(copy(&room[..len], context)?)
}

/// The record that a PUT asks for: in one piece, or a large value, its head and its hold.
pub(crate) fn record_of(
    request: &mut Request<'_>,
    versions: &mut Versions,
    context: &ServiceContext<'_>,
) -> Result<(Buffer, Buffer, Option<BodyHold>), Refusal> {
    let mut room = [0; HEAD_BYTES_MAX];
    let head_len = write_head(request, versions, &mut room)?;
    let head = &room[..head_len];
    let blocks = &context.pools.blocks;
    let body = request.body();
    if body.len() > COPIED_BYTES_MAX {
        let mut kept = Buffer::with_capacity(blocks, head.len())?;
        kept.append_within_capacity(head);
        let (value, hold) = request.take_held_body(blocks)?;
        return Ok((kept, value, hold));
    }
    let mut record = Buffer::with_capacity(blocks, head.len() + body.len())?;
    record.append_all_within_capacity([head, body]);
    Ok((Buffer::new(), record, None))
}
