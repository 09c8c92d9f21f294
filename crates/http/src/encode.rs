//! Heads out: responses and requests, written straight into pooled memory.
//!
//! On the path: `response` and `server` write what leaves here; the load generator writes requests.
//! Room is reserved once per message, then everything is copied; no formatting machinery runs.
//! Absent on purpose: checks of what the caller says. Field values come from our own code; a
//! service that echoes a peer's bytes into a field must have validated them.

use crate::method::Method;
use crate::status::StatusCode;
use millpond_mempool::{BlockPool, Buffer, PoolError};

/// The last field line of a response head, which says what becomes of the connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Persistence {
    /// HTTP/1.1's default needs no words.
    Silent,
    /// An HTTP/1.0 client that asked for it is told that it got it.
    KeepAlive,
    /// This is the last response.
    Close,
}

impl Persistence {
    fn line(self) -> &'static [u8] {
        match self {
            Self::Silent => b"",
            Self::KeepAlive => b"Connection: keep-alive\r\n",
            Self::Close => b"Connection: close\r\n",
        }
    }
}

/// A response to write.
pub(crate) struct ResponseParts<'a> {
    pub(crate) status: StatusCode,
    /// `Server` and `Date` lines, with their line ends.
    pub(crate) standing_lines: &'a [u8],
    pub(crate) content_type: Option<&'a [u8]>,
    pub(crate) fields: &'a [(&'a str, &'a [u8])],
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

/// Everything but the fields' and the body's own bytes; checked against the parts in the test.
const RESPONSE_FIXED_BYTES_MAX: usize = 192;

/// Appends one response. On failure nothing was appended.
#[inline]
pub(crate) fn encode_response(
    output: &mut Buffer,
    blocks: &BlockPool,
    parts: &ResponseParts<'_>,
) -> Result<(), PoolError> {
    let body = if parts.is_head || parts.status.forbids_body() {
        &[]
    } else {
        parts.body
    };
    let fields_bytes: usize = parts
        .fields
        .iter()
        .map(|(name, value)| name.len() + value.len() + 4)
        .sum();
    let content_type_bytes = parts.content_type.map_or(0, <[u8]>::len);
    output.reserve(
        blocks,
        RESPONSE_FIXED_BYTES_MAX
            + parts.standing_lines.len()
            + content_type_bytes
            + fields_bytes
            + body.len(),
    )?;
    append_status_line(output, parts.status);
    output.append_within_capacity(parts.standing_lines);
    if let Some(content_type) = parts.content_type {
        output.append_within_capacity(CONTENT_TYPE);
        output.append_within_capacity(content_type);
        output.append_within_capacity(LINE_END);
    }
    for (name, value) in parts.fields {
        append_field(output, name.as_bytes(), value);
    }
    if !parts.status.forbids_body() {
        append_content_length(output, parts.body.len() as u64);
    }
    output.append_within_capacity(parts.persistence.line());
    output.append_within_capacity(LINE_END);
    output.append_within_capacity(body);
    Ok(())
}

#[inline]
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

#[inline]
fn append_content_length(output: &mut Buffer, length: u64) {
    let mut digits = itoa::Buffer::new();
    output.append_within_capacity(CONTENT_LENGTH);
    output.append_within_capacity(digits.format(length).as_bytes());
    output.append_within_capacity(LINE_END);
}

fn append_field(output: &mut Buffer, name: &[u8], value: &[u8]) {
    debug_assert!(
        name.iter().all(|&byte| crate::scan::is_token(byte)),
        "field name"
    );
    debug_assert!(
        value.iter().all(|&byte| crate::scan::is_field_value(byte)),
        "field value"
    );
    output.append_within_capacity(name);
    output.append_within_capacity(b": ");
    output.append_within_capacity(value);
    output.append_within_capacity(LINE_END);
}

/// Appends one HTTP/1.1 request. `Host` comes first; `Content-Length` is added whenever there is a
/// body or the method announces an empty one. On failure nothing was appended.
pub fn encode_request(
    output: &mut Buffer,
    blocks: &BlockPool,
    method: Method,
    target: &[u8],
    host: &[u8],
    fields: &[(&str, &[u8])],
    body: &[u8],
) -> Result<(), PoolError> {
    const FIXED: usize = "EXTENSION  HTTP/1.1\r\nHost: \r\n\r\n".len();
    let fields_bytes: usize = fields
        .iter()
        .map(|(name, value)| name.len() + value.len() + 4)
        .sum();
    let length_bytes = CONTENT_LENGTH.len() + DIGITS_MAX + LINE_END.len();
    let head_bytes = FIXED + target.len() + host.len() + fields_bytes + length_bytes;
    output.reserve(blocks, head_bytes + body.len())?;
    output.append_within_capacity(method.as_str().as_bytes());
    output.append_within_capacity(b" ");
    output.append_within_capacity(target);
    output.append_within_capacity(b" HTTP/1.1\r\nHost: ");
    output.append_within_capacity(host);
    output.append_within_capacity(LINE_END);
    for (name, value) in fields {
        append_field(output, name.as_bytes(), value);
    }
    if !body.is_empty() || method.announces_empty_body() {
        append_content_length(output, body.len() as u64);
    }
    output.append_within_capacity(LINE_END);
    output.append_within_capacity(body);
    Ok(())
}
