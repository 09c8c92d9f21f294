//! A service's response: written at once, after the responses before it, into the connection's output.
//!
//! Bytes are copied once, into the block that leaves with the tick; only files bypass it ([`Response::send_file`]).

use crate::encode::{
    AnnouncedBody, ResponseParts, encode_chunk, encode_chunk_part, encode_chunk_size,
    encode_last_chunk, encode_response, encode_response_head,
};
use crate::handler::HandlerError;
use crate::head::ResponseFraming;
use crate::head_text::{Field, FieldName, FieldValue};
use crate::log::{FixedHeaderLines, GivenLines};
use crate::proxy::Failure;
use crate::status::StatusCode;
use crate::streaming::{Outgoing, room_bytes};
use millpond_mempool::{BlockPool, Buffer, BufferWriter, PoolError};
use std::fmt;
use std::ops::Range;
use std::os::fd::BorrowedFd;

/// The response to one request: either one `send`, or `start`, any number of `write` and `finish`.
/// The server adds `Date` and `Server` where the service gives none, what frames the body, and `Connection`, and
/// leaves the body out for HEAD.
pub struct Response<'a> {
    pub(crate) output: &'a mut Buffer,
    pub(crate) blocks: &'a BlockPool,
    pub(crate) standing_lines: &'a mut FixedHeaderLines,
    pub(crate) manner: ResponseFraming,
    pub(crate) sent: Option<StatusCode>,
    pub(crate) outgoing: Outgoing,
    /// Why the response was made here and not by an upstream, where the proxy knows.
    pub(crate) failure: Option<Failure>,
    /// The connection itself, where the response may go past the output.
    pub(crate) wire: Option<&'a mut dyn Wire>,
}

impl fmt::Debug for Response<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Response")
            .field("sent", &self.sent)
            .finish_non_exhaustive()
    }
}

/// A connection that takes bytes of files without a copy.
pub(crate) trait Wire {
    /// See [`millpond_io::Driver::send_file`].
    fn send_file(&mut self, file: BorrowedFd<'_>, range: Range<u64>) -> Option<u64>;
}

/// The length of a body that is written in parts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BodyLength {
    /// So many bytes, no more and no fewer.
    Known(u64),
    /// Sent in chunks; to an HTTP/1.0 client until the connection closes.
    Unknown,
}

/// Why a part of a body was not written. The response cannot be completed any more: return
/// [`crate::Flow::Done`], which cuts it, so that the client sees that something is missing.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// No memory for it.
    #[error(transparent)]
    Memory(#[from] PoolError),
    /// More than was announced.
    #[error("{given_bytes} bytes given where {left_bytes} were left of the length announced")]
    PastLength {
        /// Bytes to be written.
        given_bytes: usize,
        /// Bytes of room.
        left_bytes: u64,
    },
    /// Less than was announced.
    #[error("the body ends {left_bytes} bytes before the length announced")]
    Missing {
        /// Bytes of room.
        left_bytes: u64,
    },
    /// Its head was not sent.
    #[error(transparent)]
    Head(#[from] SendError),
    /// The body is complete, or was never begun.
    #[error("there is no body to write to: call start first, and finish last")]
    NotOpen,
}

/// Why a response was not sent; nothing of it was.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// No memory for it.
    #[error(transparent)]
    Memory(#[from] PoolError),
    /// A second response would be taken for that of the next request.
    #[error("the request was answered with {sent} already: send one response")]
    Answered {
        /// The status of the written response.
        sent: StatusCode,
    },
    /// A second one would frame the message, or end the connection, otherwise than the server does.
    #[error(
        "{name} is written by the server, from the length of the body and from close_after: leave it out"
    )]
    Reserved {
        /// The field's name.
        name: &'static str,
    },
    /// A receiver may take the one or the other.
    #[error("{name} is given twice: give it once, or leave it to the server")]
    Repeated {
        /// The field's name.
        name: &'static str,
    },
    /// 1xx: the client would wait for the response behind it.
    #[error("{status} is no final response: send a status from 200 on")]
    Informational {
        /// Bytes to be sent.
        status: StatusCode,
    },
}

impl Response<'_> {
    /// Responses with a body.
    ///
    /// # Errors
    /// See [`SendError`]. Nothing was sent then, and returning `Flow::Done` makes the server respond with 503 if there
    /// is no response yet.
    #[inline]
    pub fn send(
        &mut self,
        status: StatusCode,
        content_type: Option<FieldValue<'static>>,
        body: &[u8],
    ) -> Result<(), SendError> {
        self.encode(status, content_type, &[], body)
    }

    /// Responses with fields of the service's own. A `Date` or `Server` among them replaces the
    /// server's; `Connection` and what frames the body may not be among them.
    ///
    /// ```
    /// # use millpond_http::{FieldName, FieldValue, HeadTextError, Response, SendError, StatusCode};
    /// # #[derive(Debug, thiserror::Error)]
    /// # enum Error {
    /// #     #[error(transparent)]
    /// #     Text(#[from] HeadTextError),
    /// #     #[error(transparent)]
    /// #     Send(#[from] SendError),
    /// # }
    /// # fn answer(response: &mut Response<'_>, user: &str) -> Result<(), Error> {
    /// const X_POWER: FieldName<'_> = FieldName::from_static("X-Power");
    /// let fields = [
    ///     (FieldName::CACHE_CONTROL, const { FieldValue::from_static("no-store") }),
    ///     // Not known before the program runs: checked here.
    ///     (X_POWER, FieldValue::new(user)?),
    /// ];
    /// response.send_with(StatusCode::OK, &fields, b"")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Like [`Self::send`].
    #[inline]
    pub fn send_with(
        &mut self,
        status: StatusCode,
        fields: &[Field<'_>],
        body: &[u8],
    ) -> Result<(), SendError> {
        self.encode(status, None, fields, body)
    }

    /// Responds with a body that `write` writes: `write!`, or a serializer. It is gathered in pooled memory, so that its length
    /// is known, and copied once. If `write` fails nothing is sent.
    ///
    /// ```
    /// # use millpond_http::{FieldName, FieldValue, HandlerError, Response, StatusCode};
    /// # fn answer(response: &mut Response<'_>, value: &serde_json::Value) -> Result<(), HandlerError> {
    /// let fields = [(FieldName::CONTENT_TYPE, FieldValue::JSON)];
    /// response.send_written(StatusCode::OK, &fields, |out| serde_json::to_writer(out, value))
    /// # }
    /// ```
    ///
    /// # Errors
    /// That of `write`, or a [`SendError`].
    pub fn send_written<E: Into<HandlerError>>(
        &mut self,
        status: StatusCode,
        fields: &[Field<'_>],
        write: impl FnOnce(&mut BufferWriter<'_>) -> Result<(), E>,
    ) -> Result<(), HandlerError> {
        let mut body = Buffer::new();
        write(&mut body.writer(self.blocks)).map_err(Into::into)?;
        Ok(self.send_with(status, fields, &body)?)
    }

    /// Begins a response whose body follows through [`Self::write`].
    ///
    /// # Errors
    /// Like [`Self::send`].
    pub fn start(
        &mut self,
        status: StatusCode,
        fields: &[Field<'_>],
        length: BodyLength,
    ) -> Result<(), SendError> {
        self.check_unanswered(status)?;
        let given = given_lines(fields)?;
        let (announced, outgoing) = match length {
            BodyLength::Known(bytes) => (
                AnnouncedBody::Length(bytes),
                Outgoing::Length {
                    remaining_bytes: bytes,
                },
            ),
            BodyLength::Unknown if self.manner.is_old_version() => {
                (AnnouncedBody::UntilClose, Outgoing::UntilClose)
            }
            BodyLength::Unknown => (AnnouncedBody::Chunked, Outgoing::Chunked),
        };
        let has_no_body = self.manner.is_head() || status.forbids_body();
        if outgoing == Outgoing::UntilClose && !has_no_body {
            self.manner = self.manner.closing();
        }
        let parts = ResponseParts {
            status,
            standing_lines: self.standing_lines,
            content_type: None,
            fields,
            given,
            persistence: self.manner.persistence(),
            body: &[],
            is_head: self.manner.is_head(),
        };
        encode_response_head(self.output, self.blocks, &parts, announced)?;
        self.sent = Some(status);
        self.outgoing = match has_no_body {
            true => Outgoing::Bodyless,
            false => outgoing,
        };
        Ok(())
    }

    /// Begins a chunk of so many bytes, which follow through [`Self::write`] in parts of any length: for a client that
    /// depends on chunk boundaries, where a whole chunk is more than [`Self::room_bytes`]. Writes nothing if the body
    /// is not chunked.
    ///
    /// # Errors
    /// [`WriteError::Missing`] within another such chunk.
    pub fn start_chunk(&mut self, bytes: u64) -> Result<(), WriteError> {
        match self.outgoing {
            Outgoing::Chunked if bytes > 0 => {
                encode_chunk_size(self.output, self.blocks, bytes)?;
                self.outgoing = Outgoing::Chunk {
                    remaining_bytes: bytes,
                };
                Ok(())
            }
            Outgoing::Chunk { remaining_bytes } => Err(WriteError::Missing {
                left_bytes: remaining_bytes,
            }),
            Outgoing::Whole | Outgoing::TunnelFinished | Outgoing::Finished => {
                Err(WriteError::NotOpen)
            }
            _ => Ok(()),
        }
    }

    /// Writes the next part of the body. [`Self::room_bytes`] is the recommended maximum; more is accepted, but costs
    /// memory until it has left.
    pub fn write(&mut self, part: &[u8]) -> Result<(), WriteError> {
        match &mut self.outgoing {
            Outgoing::Bodyless => Ok(()),
            Outgoing::Length { remaining_bytes } => {
                let remaining = left_after(*remaining_bytes, part)?;
                self.output.extend_from_slice(self.blocks, part)?;
                *remaining_bytes = remaining;
                Ok(())
            }
            Outgoing::Chunk { remaining_bytes } => {
                let remaining = left_after(*remaining_bytes, part)?;
                encode_chunk_part(self.output, self.blocks, part, remaining == 0)?;
                self.outgoing = match remaining {
                    0 => Outgoing::Chunked,
                    remaining_bytes => Outgoing::Chunk { remaining_bytes },
                };
                Ok(())
            }
            Outgoing::Chunked => Ok(encode_chunk(self.output, self.blocks, part)?),
            Outgoing::UntilClose | Outgoing::Tunnel => {
                Ok(self.output.extend_from_slice(self.blocks, part)?)
            }
            Outgoing::Whole | Outgoing::TunnelFinished | Outgoing::Finished => {
                Err(WriteError::NotOpen)
            }
        }
    }

    /// Sends the next part of a body of known length straight from a file, as many bytes of the range
    /// as the kernel takes at once; returns how many. 0: here and now it cannot be done, because what
    /// was written before has not left, some of the bytes are not in memory, the client reads too
    /// slowly, or the connection is encrypted: read them and [`Self::write`] them.
    ///
    /// It works for what is sent with [`crate::StreamEvent::Room`], and never waits for the disk.
    pub fn send_file(&mut self, file: BorrowedFd<'_>, range: Range<u64>) -> u64 {
        let (Outgoing::Length { remaining_bytes }, Some(wire)) =
            (&mut self.outgoing, self.wire.as_deref_mut())
        else {
            return 0;
        };
        let bytes_max = range.end.saturating_sub(range.start).min(*remaining_bytes);
        if !self.output.is_empty() || bytes_max == 0 {
            return 0;
        }
        let range = range.start..range.start + bytes_max;
        let sent_bytes = wire.send_file(file, range).unwrap_or(0);
        debug_assert!(sent_bytes <= bytes_max);
        *remaining_bytes = remaining_bytes.saturating_sub(sent_bytes);
        sent_bytes
    }

    /// How much [`Self::write`] should be given now: the rest of the pooled block that the connection's output may fill
    /// until it is sent.
    #[must_use]
    pub fn room_bytes(&self) -> usize {
        room_bytes(self.output)
    }

    /// Ends the body. One of known length is complete without it. Of another protocol, after 101, it is
    /// the bytes to the client that end, with a FIN; the client's own still come.
    pub fn finish(&mut self) -> Result<(), WriteError> {
        self.finish_with(&[])
    }

    /// Ends the body, with fields behind it. They are left out where it is not chunked. `Connection` and what
    /// frames the body may not be among them, as in a head.
    pub fn finish_with(&mut self, trailers: &[Field<'_>]) -> Result<(), WriteError> {
        given_lines(trailers)?;
        self.finish_passing(trailers.iter().copied())
    }

    /// The same with fields that were received.
    pub(crate) fn finish_passing<'t>(
        &mut self,
        trailers: impl Iterator<Item = Field<'t>> + Clone,
    ) -> Result<(), WriteError> {
        match self.outgoing {
            Outgoing::Length { remaining_bytes: 0 } | Outgoing::UntilClose | Outgoing::Bodyless => {
            }
            Outgoing::Tunnel | Outgoing::TunnelFinished => {
                self.outgoing = Outgoing::TunnelFinished;
                return Ok(());
            }
            Outgoing::Chunked => encode_last_chunk(self.output, self.blocks, trailers)?,
            Outgoing::Length { remaining_bytes } | Outgoing::Chunk { remaining_bytes } => {
                let left_bytes = remaining_bytes;
                return Err(WriteError::Missing { left_bytes });
            }
            Outgoing::Whole | Outgoing::Finished => return Err(WriteError::NotOpen),
        }
        self.outgoing = Outgoing::Finished;
        Ok(())
    }

    /// The connection closes after this response.
    pub fn close_after(&mut self) {
        self.manner = self.manner.closing();
    }

    /// Whether a body is sent: not in response to HEAD.
    #[must_use]
    pub fn sends_body(&self) -> bool {
        !self.manner.is_head()
    }

    /// Whether the response was written, its head at least.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        self.sent.is_some()
    }

    /// Always inlined into the service's code: the status and body known there are then constants here, and the usual
    /// response is two copies. Other responses are rare.
    #[inline(always)]
    fn encode(
        &mut self,
        status: StatusCode,
        content_type: Option<FieldValue<'static>>,
        fields: &[Field<'_>],
        body: &[u8],
    ) -> Result<(), SendError> {
        self.check_unanswered(status)?;
        let is_usual = status == StatusCode::OK && fields.is_empty() && self.manner.is_usual();
        if is_usual && let Some(head) = self.standing_lines.ok_head(content_type, body.len()) {
            self.output.extend_from_slices(self.blocks, [head, body])?;
        } else {
            let given = given_lines(fields)?;
            self.manner = self.manner.answered();
            let parts = ResponseParts {
                status,
                standing_lines: self.standing_lines,
                content_type,
                fields,
                given,
                persistence: self.manner.persistence(),
                body,
                is_head: self.manner.is_head(),
            };
            encode_response(self.output, self.blocks, &parts)?;
        }
        self.sent = Some(status);
        Ok(())
    }

    #[inline]
    fn check_unanswered(&self, status: StatusCode) -> Result<(), SendError> {
        if let Some(sent) = self.sent {
            return Err(SendError::Answered { sent });
        }
        match status.is_informational() {
            true => Err(SendError::Informational { status }),
            false => Ok(()),
        }
    }
}

/// The rest of an announced length after this part.
#[inline]
fn left_after(left_bytes: u64, part: &[u8]) -> Result<u64, WriteError> {
    let given_bytes = part.len();
    let left = left_bytes.checked_sub(given_bytes as u64);
    left.ok_or(WriteError::PastLength {
        given_bytes,
        left_bytes,
    })
}

/// Which of the server's lines a service gave; an error for those that it may not give, or gave twice.
#[inline]
fn given_lines(fields: &[Field<'_>]) -> Result<GivenLines, SendError> {
    let mut given = GivenLines::NONE;
    for &(name, _) in fields {
        // Of each name that is compared; most fields have another.
        if matches!(name.len(), 4 | 6 | 10 | 14 | 17) {
            note_given(&mut given, name)?;
        }
    }
    Ok(given)
}

#[inline(never)]
fn note_given(given: &mut GivenLines, name: FieldName<'_>) -> Result<(), SendError> {
    const RESERVED: [&str; 3] = ["Connection", "Content-Length", "Transfer-Encoding"];
    let is = |text: &str| name.as_bytes().eq_ignore_ascii_case(text.as_bytes());
    if let Some(name) = RESERVED.into_iter().find(|text| is(text)) {
        return Err(SendError::Reserved { name });
    }
    for (text, is_given) in [("Date", &mut given.date), ("Server", &mut given.server)] {
        if is(text) && std::mem::replace(is_given, true) {
            return Err(SendError::Repeated { name: text });
        }
    }
    Ok(())
}
