//! A call whose answer is gathered: one future, with tries and redirects as it is told.

use super::upstream::{Call, Draft, LocalEnd, UpstreamError, UpstreamReply};
use crate::client::Timeouts;
use crate::head::Framing;
use crate::head_text::{FieldValue, RequestTarget};
use crate::method::Method;
use crate::status::StatusCode;
use millpond_mempool::{BlockPool, Buffer, Handle, PoolError};
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Tries after the first, where the request may be made again.
const TRIES_AGAIN: u32 = 2;

/// An answer to wait for. Nothing happens until it is awaited; dropping it closes the connection it
/// would have come over.
pub struct UpstreamCall {
    local: LocalEnd,
    blocks: BlockPool,
    draft: Result<Draft, PoolError>,
    body: Buffer,
    state: State,
    tries_left: u32,
    redirects_left: u32,
}

impl fmt::Debug for UpstreamCall {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("UpstreamCall")
            .field("tries_left", &self.tries_left)
            .field("redirects_left", &self.redirects_left)
            .finish_non_exhaustive()
    }
}

enum State {
    Start,
    Asked(Handle<Call>),
    Done,
}

impl UpstreamCall {
    pub(super) fn new(
        local: LocalEnd,
        blocks: BlockPool,
        draft: Result<Draft, PoolError>,
        body: &[u8],
    ) -> Self {
        let mut kept = Buffer::new();
        let draft = draft.and_then(|mut draft| {
            kept.extend_from_slice(&blocks, body)?;
            if !body.is_empty() || draft.method.announces_empty_body() {
                draft.framing = Framing::Length(body.len() as u64);
            }
            Ok(draft)
        });
        Self {
            local,
            blocks,
            draft,
            body: kept,
            state: State::Start,
            tries_left: TRIES_AGAIN,
            redirects_left: 0,
        }
    }

    /// How long each phase may take.
    #[must_use]
    pub fn with_timeouts(mut self, timeouts: Timeouts) -> Self {
        if let Ok(draft) = &mut self.draft {
            draft.timeouts = timeouts;
        }
        self
    }

    /// How often the request may be made again; each time only if the upstream cannot have served it, or
    /// if serving it twice means the same. Twice unless set.
    #[must_use]
    pub fn with_retries(mut self, count: u32) -> Self {
        self.tries_left = count;
        self
    }

    /// Follows so many redirects to other paths of the same server. None unless set.
    #[must_use]
    pub fn with_redirects(mut self, count: u32) -> Self {
        self.redirects_left = count;
        self
    }

    /// Makes the request.
    fn ask(&mut self) -> Result<Handle<Call>, UpstreamError> {
        let draft = match &self.draft {
            Ok(draft) => draft,
            Err(error) => return Err((*error).into()),
        };
        let mut lines = Buffer::new();
        // With room for what frames the body.
        lines.reserve(&self.blocks, draft.lines.len() + 64)?;
        lines.append_within_capacity(&draft.lines);
        let (handle, exchange) = self.local.begin(draft, lines, true, &self.blocks)?;
        let client = &self.local.client;
        let written = client.write(exchange, &self.body, &self.blocks);
        if written
            .and_then(|()| client.finish(exchange, &[], &self.blocks))
            .is_err()
        {
            self.local.forget_call(handle);
            return Err(UpstreamError::BodyLength);
        }
        Ok(handle)
    }

    /// Whether a failure leaves it another try.
    fn may_try_again(&mut self, error: &UpstreamError) -> bool {
        let (UpstreamError::Exchange(failure), Ok(draft)) = (error, &self.draft) else {
            return false;
        };
        let may = self.tries_left > 0 && failure.may_repeat(draft.method);
        self.tries_left -= u32::from(may);
        may
    }

    /// Turns the request towards where an answer points, if that is to be followed.
    fn follow(&mut self, reply: &UpstreamReply) -> Result<bool, PoolError> {
        let Ok(draft) = &mut self.draft else {
            return Ok(false);
        };
        let code = reply.status.code();
        if self.redirects_left == 0 || !matches!(code, 301 | 302 | 303 | 307 | 308) {
            return Ok(false);
        }
        let Some(target) = reply.field("location").and_then(path_of) else {
            return Ok(false);
        };
        self.redirects_left -= 1;
        let becomes_get = code == 303 && draft.method != Method::Head
            || matches!(code, 301 | 302) && draft.method == Method::Post;
        if becomes_get {
            draft.method = Method::Get;
            draft.framing = Framing::None;
            self.body.release();
        }
        let fields_at = draft.lines.iter().position(|&byte| byte == b'\n');
        let fields = &draft.lines[fields_at.map_or(0, |at| at + 1)..];
        let mut lines = Buffer::new();
        let method = draft.method.as_str().as_bytes();
        let parts = [method, b" ", target.as_bytes(), b" HTTP/1.1\r\n", fields];
        lines.extend_from_slices(&self.blocks, parts)?;
        draft.lines = lines;
        Ok(true)
    }
}

/// The target of a `Location` on the same server: a path, perhaps with a query; a fragment is the
/// client's own (RFC 9110 10.2.2).
fn path_of(location: FieldValue<'_>) -> Option<RequestTarget<'_>> {
    let location = location.as_bytes();
    let is_path = location.starts_with(b"/") && !location.starts_with(b"//");
    let path = location.split(|&byte| byte == b'#').next()?;
    let target = RequestTarget::new(path).ok()?;
    is_path.then_some(target)
}

impl Future for UpstreamCall {
    type Output = Result<UpstreamReply, UpstreamError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            let handle = match this.state {
                State::Start => match this.ask() {
                    Ok(handle) => {
                        this.state = State::Asked(handle);
                        handle
                    }
                    Err(error) => {
                        this.state = State::Done;
                        return Poll::Ready(Err(error));
                    }
                },
                State::Asked(handle) => handle,
                State::Done => return Poll::Ready(Err(UpstreamError::Over)),
            };
            let looked = this.local.look(handle, context.waker(), |call, _| {
                let is_over = call.is_ended || call.failure.is_some();
                is_over.then_some(())
            });
            if looked.is_pending() {
                return Poll::Pending;
            }
            this.state = State::Done;
            let Some(call) = this.local.forget_call(handle) else {
                return Poll::Ready(Err(UpstreamError::Over));
            };
            if let Some(error) = call.failure {
                if this.may_try_again(&error) {
                    this.state = State::Start;
                    continue;
                }
                return Poll::Ready(Err(error));
            }
            let reply = UpstreamReply {
                status: call.status.unwrap_or(StatusCode::BAD_GATEWAY),
                head: call.head,
                body: call.body,
            };
            match this.follow(&reply) {
                Ok(true) => this.state = State::Start,
                Ok(false) => return Poll::Ready(Ok(reply)),
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }
}

impl Drop for UpstreamCall {
    fn drop(&mut self) {
        if let State::Asked(handle) = self.state {
            self.local.forget_call(handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: only paths of the same server are followed, and nothing that could end a request line.
    #[test]
    fn redirects_lead_to_paths() {
        for (location, path) in [
            (&b"/a?b=c"[..], Some(&b"/a?b=c"[..])),
            (b"/a#part", Some(b"/a")),
            (b"/", Some(b"/")),
            (b"//other.test/a", None),
            (b"http://other.test/a", None),
            (b"a", None),
            (b"", None),
            (b"/a b", None),
            (b"/a\xe4", None),
        ] {
            let found = path_of(FieldValue::known(location)).map(RequestTarget::as_bytes);
            assert_eq!(found, path, "{}", location.escape_ascii());
        }
    }
}
