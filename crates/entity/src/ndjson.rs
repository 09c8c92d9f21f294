//! Entities as lines of JSON (`application/x-ndjson`): the format of range reads of that type, of `entity export` and
//! of `entity import`.
//!
//! ```text
//! {"id":"a","etag":"\"0123456789abcdef\"","type":"text/plain","expires":1764357223.250,"value":"b"}
//! {"id_base64":"/wo=","etag":"\"0123456789abcdf0\"","value_base64":"AAEC"}
//! {"end":true}
//! ```
//!
//! A field that is not UTF-8 comes as `NAME_base64` instead of `NAME`. A value is written as text only if its type is a
//! text type, it has no `encoding`, is valid UTF-8 and has at most [`TEXT_BYTES_MAX`] bytes. `type` and `encoding`
//! (Content-Encoding) are missing if not set, `expires` (seconds since 1970) where the entity has no end. The last line
//! shows how the response ended, so that a cut one cannot be mistaken for a whole one: `{"end":true}`, or `{"next":ID}`
//! where a limit ended it, with the id to go on after.
//!
//! Lines are encoded as the output has room, from the stored bytes: nothing holds a whole encoded line.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::condition;
use crate::record::{Head, RecordError, Value as Stored};

pub mod parse;

/// A longer value is always base64: all of it would have to be checked for UTF-8 before its first byte is sent.
pub const TEXT_BYTES_MAX: usize = 64 << 10;

/// Escaped, a byte of text takes so much at most: `\u0000`.
const ESCAPED_BYTES_MAX: usize = 6;

/// Room of which each call of [`LinePlace::fill`] uses some.
pub const ROOM_BYTES_MIN: usize = ESCAPED_BYTES_MAX;

/// One line.
#[derive(Clone, Copy, Debug)]
pub enum Line<'a> {
    /// An entity.
    Entity {
        /// Its id.
        id: &'a [u8],
        /// Fields stored beside its value.
        head: Head<'a>,
        /// Its value.
        value: &'a [u8],
    },
    /// The beginning of one, up to its value, which follows in base64.
    Begun {
        /// Its id.
        id: &'a [u8],
        /// Fields stored beside its value.
        head: Head<'a>,
    },
    /// A part of such a value.
    Rest {
        /// Of a length divisible by 3, but for the last.
        value: &'a [u8],
        /// The last part, and the end of the line.
        is_end: bool,
    },
    /// There are no more entities.
    End,
    /// There may be more behind this id.
    Next(&'a [u8]),
}

/// How far a line is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinePlace {
    segment_index: usize,
    /// Of the segment's own bytes, not of what they become.
    offset_bytes: usize,
    is_complete: bool,
}

/// A part of a line that is written in one way.
#[derive(Clone, Copy)]
enum Segment<'a> {
    Literal(&'a [u8]),
    /// UTF-8, in a JSON string.
    Text(&'a [u8]),
    Base64(&'a [u8]),
}

const SEGMENTS_MAX: usize = 11;

/// Seconds of a `u64` of milliseconds, with three decimals.
const EXPIRES_BYTES_MAX: usize = 21;

impl<'a> Line<'a> {
    /// The line of a stored record.
    ///
    /// # Errors
    /// [`RecordError`] for bytes that are no record.
    pub fn of(id: &'a [u8], record: &'a [u8]) -> Result<Self, RecordError> {
        match Head::split(record)? {
            (head, Stored::Whole(value)) => Ok(Self::Entity { id, head, value }),
            // A program that shows it has to read them first.
            (_, Stored::Parted(_)) => Err(RecordError::InParts),
        }
    }

    fn with_segments<R>(&self, see: impl FnOnce(&[Segment<'_>]) -> R) -> R {
        use Segment::{Base64, Literal, Text};
        let (id, head, value) = match self {
            Self::Entity { id, head, value } => (*id, head, Some(*value)),
            Self::Begun { id, head } => (*id, head, None),
            Self::Rest { value, is_end } => {
                let end: &[u8] = if *is_end { b"\"}\n" } else { b"" };
                return see(&[Base64(value), Literal(end)]);
            }
            Self::End => return see(&[Literal(b"{\"end\":true}\n")]),
            Self::Next(id) => {
                let named = text_or_base64(id, b"{\"next\":\"", b"{\"next_base64\":\"");
                return see(&[named.0, named.1, Literal(b"\"}\n")]);
            }
        };
        let mut segments = [Literal(b""); SEGMENTS_MAX];
        let tag = condition::tag(head.version);
        (segments[0], segments[1]) = text_or_base64(id, b"{\"id\":\"", b"{\"id_base64\":\"");
        segments[2] = Literal(b"\",\"etag\":\"");
        segments[3] = Text(&tag);
        if !head.content_type.is_empty() {
            let names: [&[u8]; 2] = [b"\",\"type\":\"", b"\",\"type_base64\":\""];
            (segments[4], segments[5]) = text_or_base64(head.content_type, names[0], names[1]);
        }
        if !head.content_encoding.is_empty() {
            let names: [&[u8]; 2] = [b"\",\"encoding\":\"", b"\",\"encoding_base64\":\""];
            (segments[6], segments[7]) = text_or_base64(head.content_encoding, names[0], names[1]);
        }
        let mut room = [0; EXPIRES_FIELD_BYTES_MAX];
        let text = value.filter(|value| is_sent_as_text(head, value));
        segments[8] = Literal(expires_and_value_names(&mut room, head, text.is_some()));
        let Some(value) = value else {
            return see(&segments[..9]);
        };
        segments[9] = text.map_or(Base64(value), Text);
        segments[10] = Literal(b"\"}\n");
        see(&segments)
    }
}

const EXPIRES_FIELD_BYTES_MAX: usize = EXPIRES_BYTES_MAX + 40;

/// The text between the type and the value.
fn expires_and_value_names<'r>(
    room: &'r mut [u8; EXPIRES_FIELD_BYTES_MAX],
    head: &Head<'_>,
    is_text: bool,
) -> &'r [u8] {
    let mut left = &mut room[..];
    let value_name = match is_text {
        true => "value",
        false => "value_base64",
    };
    // The room is enough for the longest.
    let _ = match head.expires_ms {
        0 => write!(left, "\",\"{value_name}\":\""),
        ms => {
            let (seconds, rest) = (ms / 1000, ms % 1000);
            write!(
                left,
                "\",\"expires\":{seconds}.{rest:03},\"{value_name}\":\""
            )
        }
    };
    let len = EXPIRES_FIELD_BYTES_MAX - left.len();
    &room[..len]
}

fn is_sent_as_text(head: &Head<'_>, value: &[u8]) -> bool {
    value.len() <= TEXT_BYTES_MAX
        && head.content_encoding.is_empty()
        && is_text_type(head.content_type)
        && std::str::from_utf8(value).is_ok()
}

/// `text/*`, `application/json` and `*+json`, whatever parameters follow.
fn is_text_type(content_type: &[u8]) -> bool {
    let mut parts = content_type.split(|&byte| byte == b';');
    let essence = parts.next().unwrap_or_default().trim_ascii();
    let begins_with_text = essence
        .get(..5)
        .is_some_and(|start| start.eq_ignore_ascii_case(b"text/"));
    let ends_with_json = essence
        .len()
        .checked_sub(5)
        .is_some_and(|at| essence[at..].eq_ignore_ascii_case(b"+json"));
    begins_with_text || ends_with_json || essence.eq_ignore_ascii_case(b"application/json")
}

fn text_or_base64<'a>(
    bytes: &'a [u8],
    text_name: &'a [u8],
    base64_name: &'a [u8],
) -> (Segment<'a>, Segment<'a>) {
    match std::str::from_utf8(bytes) {
        Ok(_) => (Segment::Literal(text_name), Segment::Text(bytes)),
        Err(_) => (Segment::Literal(base64_name), Segment::Base64(bytes)),
    }
}

impl LinePlace {
    /// Whether all of the line is written.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Writes on, as much as there is room for; returns how many bytes. The line has to be the same each time.
    pub fn fill(&mut self, line: &Line<'_>, room: &mut [u8]) -> usize {
        line.with_segments(|segments| self.fill_segments(segments, room))
    }

    fn fill_segments(&mut self, segments: &[Segment<'_>], room: &mut [u8]) -> usize {
        let mut filled_bytes = 0;
        while let Some(segment) = segments.get(self.segment_index) {
            let rest = &mut room[filled_bytes..];
            let (taken, written, whole) = match segment {
                Segment::Literal(bytes) => fill_literal(&bytes[self.offset_bytes..], rest),
                Segment::Text(bytes) => fill_text(&bytes[self.offset_bytes..], rest),
                Segment::Base64(bytes) => fill_base64(&bytes[self.offset_bytes..], rest),
            };
            filled_bytes += written;
            self.offset_bytes += taken;
            if !whole {
                return filled_bytes;
            }
            self.segment_index += 1;
            self.offset_bytes = 0;
        }
        self.is_complete = true;
        filled_bytes
    }
}

/// How many bytes were taken, how many written, and whether that is all of the segment.
type Filled = (usize, usize, bool);

fn fill_literal(bytes: &[u8], room: &mut [u8]) -> Filled {
    let len = bytes.len().min(room.len());
    room[..len].copy_from_slice(&bytes[..len]);
    (len, len, len == bytes.len())
}

fn fill_text(bytes: &[u8], room: &mut [u8]) -> Filled {
    let (mut taken, mut written) = (0, 0);
    while taken < bytes.len() {
        let rest = &bytes[taken..];
        let is_escaped = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
        let plain = rest.iter().position(is_escaped).unwrap_or(rest.len());
        let (len, _, is_whole) = fill_literal(&rest[..plain], &mut room[written..]);
        taken += len;
        written += len;
        if !is_whole {
            break;
        }
        let Some(&byte) = bytes.get(taken) else {
            break;
        };
        let mut escaped = *b"\\u0000";
        let escape: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            control => {
                escaped[4] = b"01"[usize::from(control >> 4)];
                escaped[5] = b"0123456789abcdef"[usize::from(control & 0xf)];
                &escaped
            }
        };
        let Some(place) = room.get_mut(written..written + escape.len()) else {
            break;
        };
        place.copy_from_slice(escape);
        taken += 1;
        written += escape.len();
    }
    (taken, written, taken == bytes.len())
}

/// Whole groups of three bytes only, but for the end: a group never lies in two calls.
fn fill_base64(bytes: &[u8], room: &mut [u8]) -> Filled {
    let fit_bytes = room.len() / 4 * 3;
    let len = bytes.len().min(fit_bytes);
    let written = STANDARD.encode_slice(&bytes[..len], room);
    let written = written.expect("four bytes of room for each three");
    (len, written, len == bytes.len())
}

/// Writes a whole line.
///
/// # Errors
/// Those of `out`.
pub fn write_line(line: &Line<'_>, out: &mut dyn std::io::Write) -> std::io::Result<()> {
    let mut place = LinePlace::default();
    let mut room = [0; 8 << 10];
    while !place.is_complete() {
        let filled_bytes = place.fill(line, &mut room);
        out.write_all(&room[..filled_bytes])?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "tests/ndjson.rs"]
mod tests;
