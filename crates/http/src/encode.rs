//! Heads out: responses and requests, written straight into pooled memory.
//!
//! `response` and `server` write what leaves here; the load generator writes requests. Room is
//! reserved once per message, then everything is copied; no formatting machinery runs. Texts are
//! not checked here. They were checked when they became a `FieldName`, a `FieldValue`, a
//! `RequestTarget` or an `Authority` (see `head_text`).

use crate::head_text::{Authority, Field, FieldValue, RequestTarget};
use crate::log::{FixedHeaderLines, GivenLines};
use crate::method::Method;
use crate::status::StatusCode;
use millpond_mempool::{BlockPool, Buffer, PoolError};

/// The last field line of a response head, about the connection's reuse.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Persistence {
    /// HTTP/1.1's default needs no field.
    Silent,
    /// An HTTP/1.0 client that asked for keep-alive gets it confirmed.
    KeepAlive,
    /// This is the last response.
    Close,
}

impl Persistence {
    /// The end of the head, from the end of the last field's line on.
    fn head_end(self) -> &'static [u8] {
        match self {
            Self::Silent => b"\r\n\r\n",
            Self::KeepAlive => b"\r\nConnection: keep-alive\r\n\r\n",
            Self::Close => b"\r\nConnection: close\r\n\r\n",
        }
    }
}

/// A response to write.
pub(crate) struct ResponseParts<'a> {
    pub(crate) status: StatusCode,
    pub(crate) standing_lines: &'a FixedHeaderLines,
    pub(crate) content_type: Option<FieldValue<'a>>,
    pub(crate) fields: &'a [Field<'a>],
    /// Of which of the standing lines `fields` has one.
    pub(crate) given: GivenLines,
    pub(crate) persistence: Persistence,
    pub(crate) body: &'a [u8],
    /// The body is announced and left out.
    pub(crate) is_head: bool,
}

const CONTENT_TYPE: &[u8] = b"Content-Type: ";
const CONTENT_LENGTH: &[u8] = b"Content-Length: ";
const LINE_END: &[u8] = b"\r\n";
/// Digits of the largest `u64`.
const DIGITS_MAX: usize = 20;

/// Room for everything but the fields' and the body's own bytes, with the longest of each.
const RESPONSE_FIXED_BYTES_MAX: usize = 256;

/// Appends one response. On failure nothing was appended. `Response` writes the usual ones itself.
#[inline(never)]
pub(crate) fn encode_response(
    output: &mut Buffer,
    blocks: &BlockPool,
    parts: &ResponseParts<'_>,
) -> Result<(), PoolError> {
    let forbids_body = parts.status.forbids_body();
    let body = if parts.is_head || forbids_body {
        &[]
    } else {
        parts.body
    };
    let fields_bytes = fields_bytes(parts.fields.iter().copied());
    let content_type_bytes = parts.content_type.map_or(0, FieldValue::len);
    let head_bytes_max = RESPONSE_FIXED_BYTES_MAX + content_type_bytes + fields_bytes;
    output.reserve(blocks, head_bytes_max + body.len())?;
    let standing_lines = append_begin(output, parts);
    let (type_name, content_type, type_end): (&[u8], &[u8], &[u8]) = match parts.content_type {
        Some(content_type) => (CONTENT_TYPE, content_type.as_bytes(), LINE_END),
        None => (&[], &[], &[]),
    };
    output.append_all_within_capacity([standing_lines, type_name, content_type, type_end]);
    for &field in parts.fields {
        append_field(output, field);
    }
    let end = parts.persistence.head_end();
    if forbids_body {
        output.append_within_capacity(&end[LINE_END.len()..]);
        return Ok(());
    }
    let mut digits = itoa::Buffer::new();
    let length = digits.format(parts.body.len()).as_bytes();
    output.append_all_within_capacity([CONTENT_LENGTH, length, end, body]);
    Ok(())
}

/// How a response head announces a body that is written later, in parts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AnnouncedBody {
    Length(u64),
    Chunked,
    /// No field ends it: the connection closes after it.
    UntilClose,
}

/// Appends the head of a response whose body follows in parts; `parts.body` is ignored. On failure nothing was
/// appended.
pub(crate) fn encode_response_head(
    output: &mut Buffer,
    blocks: &BlockPool,
    parts: &ResponseParts<'_>,
    body: AnnouncedBody,
) -> Result<(), PoolError> {
    let fields_bytes = fields_bytes(parts.fields.iter().copied());
    output.reserve(blocks, RESPONSE_FIXED_BYTES_MAX + fields_bytes)?;
    let standing_lines = append_begin(output, parts);
    output.append_within_capacity(standing_lines);
    for &field in parts.fields {
        append_field(output, field);
    }
    let end = parts.persistence.head_end();
    let without_line = &end[LINE_END.len()..];
    match body {
        _ if parts.status.forbids_body() => output.append_within_capacity(without_line),
        AnnouncedBody::Length(length) => {
            let mut digits = itoa::Buffer::new();
            let length = digits.format(length).as_bytes();
            output.append_all_within_capacity([CONTENT_LENGTH, length, end]);
        }
        AnnouncedBody::Chunked => {
            output.append_all_within_capacity([b"Transfer-Encoding: chunked", end]);
        }
        AnnouncedBody::UntilClose => output.append_within_capacity(without_line),
    }
    Ok(())
}

/// Framing around one chunk, at most.
pub(crate) const CHUNK_FRAMING_BYTES_MAX: usize = CHUNK_DIGITS_MAX + 2 * LINE_END.len();

/// Digits of the longest chunk's size.
const CHUNK_DIGITS_MAX: usize = 2 * size_of::<u64>();

/// Appends one chunk; an empty one would end the body and is left out. On failure nothing was
/// appended.
pub(crate) fn encode_chunk(
    output: &mut Buffer,
    blocks: &BlockPool,
    data: &[u8],
) -> Result<(), PoolError> {
    if data.is_empty() {
        return Ok(());
    }
    output.reserve(blocks, data.len() + CHUNK_FRAMING_BYTES_MAX)?;
    let mut digits = [0; CHUNK_DIGITS_MAX];
    let size = hexadecimal(data.len() as u64, &mut digits);
    output.append_all_within_capacity([size, LINE_END, data, LINE_END]);
    Ok(())
}

/// Appends the size line of a chunk of so many bytes, at least one. On failure nothing was appended.
pub(crate) fn encode_chunk_size(
    output: &mut Buffer,
    blocks: &BlockPool,
    bytes: u64,
) -> Result<(), PoolError> {
    output.reserve(blocks, CHUNK_FRAMING_BYTES_MAX)?;
    let mut digits = [0; CHUNK_DIGITS_MAX];
    let size = hexadecimal(bytes, &mut digits);
    output.append_all_within_capacity([size, LINE_END]);
    Ok(())
}

/// Appends a part of such a chunk, and its end if it is the last one. On failure nothing was appended.
pub(crate) fn encode_chunk_part(
    output: &mut Buffer,
    blocks: &BlockPool,
    part: &[u8],
    is_last: bool,
) -> Result<(), PoolError> {
    let end = if is_last { LINE_END } else { &[] };
    output.reserve(blocks, part.len() + end.len())?;
    output.append_all_within_capacity([part, end]);
    Ok(())
}

/// The digits of a number, without leading zeros.
fn hexadecimal(number: u64, digits: &mut [u8; CHUNK_DIGITS_MAX]) -> &[u8] {
    let digit_count = (u64::BITS - number.leading_zeros()).div_ceil(4) as usize;
    for (index, digit) in digits[..digit_count].iter_mut().rev().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (4 * index) & 0xf) as usize];
    }
    &digits[..digit_count]
}

/// How long the lines of these fields are.
pub(crate) fn fields_bytes<'t>(fields: impl Iterator<Item = Field<'t>>) -> usize {
    fields
        .map(|(name, value)| name.len() + value.len() + 4)
        .sum()
}

/// Appends the end of a chunked body. On failure nothing was appended.
pub(crate) fn encode_last_chunk<'t>(
    output: &mut Buffer,
    blocks: &BlockPool,
    trailers: impl Iterator<Item = Field<'t>> + Clone,
) -> Result<(), PoolError> {
    let room_bytes = fields_bytes(trailers.clone()) + CHUNK_FRAMING_BYTES_MAX;
    output.reserve(blocks, room_bytes)?;
    output.append_within_capacity(b"0\r\n");
    for field in trailers {
        append_field(output, field);
    }
    output.append_within_capacity(LINE_END);
    Ok(())
}

/// Appends the status line, unless it is part of what is returned: what comes next.
#[inline]
fn append_begin<'p>(output: &mut Buffer, parts: &ResponseParts<'p>) -> &'p [u8] {
    if parts.status == StatusCode::OK && parts.given == GivenLines::NONE {
        return parts.standing_lines.after_ok();
    }
    append_status_line(output, parts.status);
    parts.standing_lines.lines(parts.given)
}

#[cold]
fn append_status_line(output: &mut Buffer, status: StatusCode) {
    if let Some(line) = status.status_line() {
        output.append_within_capacity(line);
        return;
    }
    let mut digits = itoa::Buffer::new();
    output.append_within_capacity(b"HTTP/1.1 ");
    output.append_within_capacity(digits.format(status.code()).as_bytes());
    output.append_within_capacity(b" \r\n");
}

/// Appends one field line within room that is there.
fn append_field(output: &mut Buffer, (name, value): Field<'_>) {
    let (name, value) = (name.as_bytes(), value.as_bytes());
    output.append_all_within_capacity([name, b": ", value, LINE_END]);
}

/// Appends one HTTP/1.1 request. `Host` comes first; `Content-Length` is added whenever there is a
/// body or the method announces an empty one. On failure nothing was appended.
pub fn encode_request(
    output: &mut Buffer,
    blocks: &BlockPool,
    method: Method,
    target: RequestTarget<'_>,
    host: Authority<'_>,
    fields: &[Field<'_>],
    body: &[u8],
) -> Result<(), PoolError> {
    const FIXED: usize = "EXTENSION  HTTP/1.1\r\nHost: \r\n\r\n".len();
    let fields_bytes = fields_bytes(fields.iter().copied());
    let length_bytes = CONTENT_LENGTH.len() + DIGITS_MAX + LINE_END.len();
    let head_bytes = FIXED + target.len() + host.len() + fields_bytes + length_bytes;
    output.reserve(blocks, head_bytes + body.len())?;
    output.append_within_capacity(method.as_str().as_bytes());
    output.append_within_capacity(b" ");
    output.append_within_capacity(target.as_bytes());
    output.append_within_capacity(b" HTTP/1.1\r\nHost: ");
    output.append_within_capacity(host.as_bytes());
    output.append_within_capacity(LINE_END);
    for &field in fields {
        append_field(output, field);
    }
    if !body.is_empty() || method.announces_empty_body() {
        let mut digits = itoa::Buffer::new();
        output.append_within_capacity(CONTENT_LENGTH);
        output.append_within_capacity(digits.format(body.len()).as_bytes());
        output.append_within_capacity(LINE_END);
    }
    output.append_within_capacity(LINE_END);
    output.append_within_capacity(body);
    Ok(())
}

/// Appends the request line and the field lines of a request, without what frames its body and without
/// the empty line. `Host` comes first. On failure nothing was appended.
pub(crate) fn encode_request_lines(
    output: &mut Buffer,
    blocks: &BlockPool,
    method: Method,
    target: RequestTarget<'_>,
    host: Authority<'_>,
    fields: &[Field<'_>],
) -> Result<(), PoolError> {
    // Room for what frames the body too.
    const FIXED: usize =
        "EXTENSION  HTTP/1.1\r\nHost: \r\nTransfer-Encoding: chunked\r\n\r\n".len() + DIGITS_MAX;
    let fields_bytes = fields_bytes(fields.iter().copied());
    output.reserve(blocks, FIXED + target.len() + host.len() + fields_bytes)?;
    let method = method.as_str().as_bytes();
    let (target, host) = (target.as_bytes(), host.as_bytes());
    output.append_all_within_capacity([method, b" ", target, b" HTTP/1.1\r\nHost: ", host]);
    output.append_within_capacity(LINE_END);
    for &field in fields {
        append_field(output, field);
    }
    Ok(())
}

#[cfg(test)]
#[path = "tests/encode.rs"]
mod tests;
