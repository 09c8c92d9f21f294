//! A call in parts: the request's body is written, and the answer's read, as it comes.

use super::upstream::{Call, Draft, LocalEnd, UpstreamError, field_of};
use crate::client::ExchangeWriteError;
use crate::status::StatusCode;
use millpond_mempool::{BlockPool, Buffer, Handle};
use std::fmt;
use std::future::poll_fn;

/// An exchange with an upstream whose bodies are of any length, with back-pressure both ways. Dropping
/// it before the end closes its connection.
pub struct UpstreamConversation {
    local: LocalEnd,
    blocks: BlockPool,
    handle: Handle<Call>,
}

impl fmt::Debug for UpstreamConversation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("UpstreamConversation")
            .field("handle", &self.handle)
            .finish_non_exhaustive()
    }
}

impl UpstreamConversation {
    pub(super) fn begin(
        local: LocalEnd,
        blocks: BlockPool,
        mut draft: Draft,
    ) -> Result<Self, UpstreamError> {
        let lines = std::mem::take(&mut draft.lines);
        let (handle, _) = local.begin(&draft, lines, false, &blocks)?;
        Ok(Self {
            local,
            blocks,
            handle,
        })
    }

    /// Writes the next part of the request's body, as soon as there is room for it.
    pub async fn write(&mut self, part: &[u8]) -> Result<(), UpstreamError> {
        let (local, handle) = (&self.local, self.handle);
        let looked = poll_fn(|context| {
            local.look(handle, context.waker(), |call, client| {
                if let Some(failure) = &call.failure {
                    return Some(Err(failure.clone()));
                }
                match call.exchange {
                    None => Some(Err(UpstreamError::Over)),
                    Some(exchange) => (client.room_bytes(exchange) > 0).then_some(Ok(exchange)),
                }
            })
        });
        let exchange = looked.await.unwrap_or(Err(UpstreamError::Over))?;
        let written = local.client.write(exchange, part, &self.blocks);
        written.map_err(write_error)
    }

    /// Ends the request's body.
    pub fn finish(&mut self) -> Result<(), UpstreamError> {
        let exchange = {
            let upstreams = self.local.upstreams.borrow();
            let call = upstreams.calls.get(self.handle);
            call.and_then(|call| call.exchange)
        };
        // One that is answered already needs no end.
        let Some(exchange) = exchange else {
            return Ok(());
        };
        let finished = self.local.client.finish(exchange, &[], &self.blocks);
        finished.map_err(write_error)
    }

    /// Waits for the head of the answer.
    pub async fn status(&mut self) -> Result<StatusCode, UpstreamError> {
        let (local, handle) = (&self.local, self.handle);
        let looked = poll_fn(|context| {
            local.look(handle, context.waker(), |call, _| {
                match (call.status, &call.failure) {
                    (Some(status), _) => Some(Ok(status)),
                    (None, Some(failure)) => Some(Err(failure.clone())),
                    (None, None) => None,
                }
            })
        });
        looked.await.unwrap_or(Err(UpstreamError::Over))
    }

    /// Value of the first field with this name of the answer's head, if that has come.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<Vec<u8>> {
        let upstreams = self.local.upstreams.borrow();
        let call = upstreams.calls.get(self.handle)?;
        field_of(&call.head, name).map(|value| value.as_bytes().to_vec())
    }

    /// The next part of the answer's body; `None` at its end. While nobody asks, little is received, so
    /// a slow reader slows the upstream down.
    pub async fn next_part(&mut self) -> Result<Option<Buffer>, UpstreamError> {
        let (local, handle) = (&self.local, self.handle);
        let looked = poll_fn(|context| {
            local.look(handle, context.waker(), |call, client| {
                if !call.body.is_empty() {
                    if let Some(exchange) = call.exchange {
                        client.resume(exchange);
                    }
                    return Some(Ok(Some(std::mem::take(&mut call.body))));
                }
                match &call.failure {
                    Some(failure) => Some(Err(failure.clone())),
                    None => call.is_ended.then_some(Ok(None)),
                }
            })
        });
        looked.await.unwrap_or(Err(UpstreamError::Over))
    }
}

/// What is wrong with what was written.
fn write_error(error: ExchangeWriteError) -> UpstreamError {
    match error {
        ExchangeWriteError::Gone => UpstreamError::Over,
        ExchangeWriteError::Memory(error) => error.into(),
        ExchangeWriteError::PastLength { .. } | ExchangeWriteError::Missing { .. } => {
            UpstreamError::BodyLength
        }
    }
}

impl Drop for UpstreamConversation {
    fn drop(&mut self) {
        self.local.forget_call(self.handle);
    }
}
