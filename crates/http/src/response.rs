//! What a service answers with: written at once, behind the answers before it, into the
//! connection's output.

use crate::date::StandingLines;
use crate::encode::{Persistence, ResponseParts, encode_response};
use crate::status::StatusCode;
use millpond_mempool::{BlockPool, Buffer, PoolError};

/// The answer to one request. Exactly one `send` per request; the server adds `Date`,
/// `Content-Length` and `Connection`, and leaves the body out for HEAD.
pub struct Response<'a> {
    pub(crate) output: &'a mut Buffer,
    pub(crate) blocks: &'a BlockPool,
    pub(crate) standing_lines: &'a StandingLines,
    pub(crate) persistence: Persistence,
    pub(crate) is_head: bool,
    pub(crate) sent: Option<StatusCode>,
}

impl Response<'_> {
    /// Answers with a body. An error means that memory ran out and nothing was sent: returning
    /// `Flow::Done` then makes the server answer 503.
    ///
    /// # Panics
    /// If this request was answered already: a second answer would be taken for the next
    /// request's.
    #[inline]
    pub fn send(
        &mut self,
        status: StatusCode,
        content_type: Option<&'static str>,
        body: &[u8],
    ) -> Result<(), PoolError> {
        self.encode(status, content_type.map(str::as_bytes), &[], body)
    }

    /// Answers with fields of the service's own. They must not be those the server adds.
    ///
    /// # Panics
    /// Like [`Self::send`].
    pub fn send_with(
        &mut self,
        status: StatusCode,
        fields: &[(&str, &[u8])],
        body: &[u8],
    ) -> Result<(), PoolError> {
        self.encode(status, None, fields, body)
    }

    /// The connection closes after this answer.
    pub fn close_after(&mut self) {
        self.persistence = Persistence::Close;
    }

    /// Whether the answer was written.
    pub fn is_sent(&self) -> bool {
        self.sent.is_some()
    }

    #[inline]
    fn encode(
        &mut self,
        status: StatusCode,
        content_type: Option<&[u8]>,
        fields: &[(&str, &[u8])],
        body: &[u8],
    ) -> Result<(), PoolError> {
        assert!(self.sent.is_none(), "a request has exactly one response");
        assert!(!status.is_informational(), "a final response is not 1xx");
        encode_response(
            self.output,
            self.blocks,
            &ResponseParts {
                status,
                standing_lines: self.standing_lines,
                content_type,
                fields,
                persistence: self.persistence,
                body,
                is_head: self.is_head,
            },
        )?;
        self.sent = Some(status);
        Ok(())
    }
}
