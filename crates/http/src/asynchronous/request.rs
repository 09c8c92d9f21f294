//! What an `async` handler owns of its request, and what it answers with.

use super::call::UpstreamCall;
use super::conversation::UpstreamConversation;
use super::shard::{AsyncShard, Sleep};
use super::upstream::{UpstreamError, UpstreamId};
use crate::head::Framing;
use crate::head::{HeadFields, RequestHead};
use crate::head_text::{Field, FieldValue, RequestTarget};
use crate::limits::Limits;
use crate::method::Method;
use crate::parse::parse_request_head;
use crate::response::{Response, SendError};
use crate::status::StatusCode;
use millpond_mempool::{BlockPool, Buffer, Handle, PoolError};
use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

/// A body on its way from the server to a future.
#[derive(Debug, Default)]
pub(super) struct BodyCell {
    /// The next part, until the future takes it.
    pub(super) part: Buffer,
    pub(super) is_ended: bool,
    /// The future waits for a part.
    pub(super) is_wanted: bool,
}

/// A request, owned: its head was copied once into pooled memory, its body is read when asked for.
pub struct AsyncRequest {
    /// The method; `Extension` for one without a name.
    pub method: Method,
    pub(super) shard: AsyncShard,
    pub(super) blocks: BlockPool,
    pub(super) head_bytes: Buffer,
    pub(super) head: RequestHead,
    pub(super) body: Handle<BodyCell>,
}

impl fmt::Debug for AsyncRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("AsyncRequest")
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

/// Why a body could not be read to its end.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BodyReadError {
    /// Larger than the handler wants to keep: answer 413.
    #[error("the body is larger than the {limit_bytes} bytes this handler takes")]
    TooLong {
        /// What the handler asked for at most.
        limit_bytes: usize,
    },
    /// No memory for it: answer 503.
    #[error(transparent)]
    Memory(#[from] PoolError),
}

impl AsyncRequest {
    /// The path as sent, not decoded.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        match self.head.path.of(&self.head_bytes) {
            [] => b"/",
            path => path,
        }
    }

    /// What follows the first `?`, not decoded.
    #[must_use]
    pub fn query(&self) -> Option<&[u8]> {
        self.head.query.map(|query| query.of(&self.head_bytes))
    }

    /// The whole target as sent, which another request can have.
    #[must_use]
    pub fn target(&self) -> RequestTarget<'_> {
        RequestTarget::received(self.head.target.of(&self.head_bytes))
    }

    /// [`Self::path`] as the target of another request.
    #[must_use]
    pub fn path_target(&self) -> RequestTarget<'_> {
        RequestTarget::received(self.path())
    }

    /// Value of the first field with this name. Looks through the head again: ask once.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.field(name).map(FieldValue::as_bytes)
    }

    /// The same as a value that another message can have.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<FieldValue<'_>> {
        let mut fields = HeadFields::new();
        // It was accepted before, under limits that are no wider.
        parse_request_head(&self.head_bytes, &Limits::OF_ACCEPTED_HEADS, &mut fields).ok()?;
        let value = fields.value_of(&self.head_bytes, name.as_bytes())?;
        Some(FieldValue::known(value))
    }

    /// The shard's pool, for what the handler builds.
    #[must_use]
    pub fn blocks(&self) -> &BlockPool {
        &self.blocks
    }

    /// The next part of the body, at most 32 KiB; `None` at its end. While nobody asks, nothing is
    /// received, so a slow handler slows its client down.
    pub async fn next_part(&mut self) -> Option<Buffer> {
        poll_fn(|_context| self.shard.poll_part(self.body)).await
    }

    /// The whole body.
    pub async fn read_body(&mut self, limit_bytes: usize) -> Result<Buffer, BodyReadError> {
        let mut body = Buffer::new();
        while let Some(part) = self.next_part().await {
            if body.len() + part.len() > limit_bytes {
                return Err(BodyReadError::TooLong { limit_bytes });
            }
            if body.is_empty() {
                body = part;
            } else {
                body.extend_from_slice(&self.blocks, &part)?;
            }
        }
        Ok(body)
    }

    /// Waits for so long, at least, and about 17 ms longer at most.
    #[must_use]
    pub fn sleep(&self, duration_ns: u64) -> Sleep {
        self.shard.sleep(duration_ns)
    }

    /// Asks another server over the shard's own connections. The answer's body is gathered.
    #[must_use]
    pub fn call(
        &self,
        upstream: UpstreamId,
        method: Method,
        target: RequestTarget<'_>,
        fields: &[Field<'_>],
        body: &[u8],
    ) -> UpstreamCall {
        let draft = self
            .shard
            .draft(upstream, &self.blocks, method, target, fields);
        let local = Rc::clone(&self.shard.local);
        UpstreamCall::new(local, self.blocks.clone(), draft, body)
    }

    /// Asks another server with a body that is written in parts, of so many bytes or in chunks, and
    /// reads the answer's in parts.
    pub fn converse(
        &self,
        upstream: UpstreamId,
        method: Method,
        target: RequestTarget<'_>,
        fields: &[Field<'_>],
        body: Framing,
    ) -> Result<UpstreamConversation, UpstreamError> {
        let mut draft = self
            .shard
            .draft(upstream, &self.blocks, method, target, fields)?;
        draft.framing = body;
        let local = Rc::clone(&self.shard.local);
        UpstreamConversation::begin(local, self.blocks.clone(), draft)
    }
}

impl AsyncShard {
    /// Never wakes by itself: the server brings the part, and polls then.
    fn poll_part(&self, body: Handle<BodyCell>) -> Poll<Option<Buffer>> {
        let mut bodies = self.local.bodies.borrow_mut();
        let Some(cell) = bodies.get_mut(body) else {
            return Poll::Ready(None);
        };
        let is_there = !cell.part.is_empty();
        cell.is_wanted = !is_there && !cell.is_ended;
        match is_there {
            true => Poll::Ready(Some(std::mem::take(&mut cell.part))),
            false if cell.is_ended => Poll::Ready(None),
            false => Poll::Pending,
        }
    }
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    status: StatusCode,
    content_type: Option<FieldValue<'static>>,
    body: ReplyBody,
}

#[derive(Debug)]
enum ReplyBody {
    Static(&'static [u8]),
    Pooled(Buffer),
}

impl Reply {
    /// An answer with a text of the program's own.
    #[must_use]
    pub const fn text(status: StatusCode, text: &'static str) -> Self {
        Self {
            status,
            content_type: Some(FieldValue::TEXT_PLAIN),
            body: ReplyBody::Static(text.as_bytes()),
        }
    }

    /// An answer with bytes that were made for it.
    #[must_use]
    pub const fn bytes(
        status: StatusCode,
        content_type: FieldValue<'static>,
        body: Buffer,
    ) -> Self {
        Self {
            status,
            content_type: Some(content_type),
            body: ReplyBody::Pooled(body),
        }
    }

    pub(super) fn send(&self, response: &mut Response<'_>) -> Result<(), SendError> {
        let body: &[u8] = match &self.body {
            ReplyBody::Static(text) => text,
            ReplyBody::Pooled(buffer) => buffer,
        };
        response.send(self.status, self.content_type, body)
    }
}
