//! Which entities a range read is to show, and in which format.

use std::num::NonZeroU64;

use millpond_http::{Field, FieldName, FieldValue, Request};
use millpond_mempool::Buffer;

use crate::api::{Reply, UNCACHED};

/// How the entities of a range are told from one another.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum RangeFormat {
    /// One chunk `<id>\n<value>` each.
    #[default]
    Chunks,
    /// One line of JSON each (`ndjson`), and one for the end.
    Lines,
}

const NDJSON: &[u8] = b"application/x-ndjson";
const OCTETS: &[u8] = b"application/octet-stream";

impl RangeFormat {
    /// Lines are sent only where they are asked for by name, and chunks not preferred by name.
    fn of(request: &Request<'_>) -> Self {
        let (mut lines, mut chunks) = (0, 0);
        for (name, value) in request.headers() {
            if name.eq_ignore_ascii_case(b"Accept") {
                lines = lines.max(quality(value, NDJSON));
                chunks = chunks.max(quality(value, OCTETS));
            }
        }
        match lines > 0 && lines >= chunks {
            true => Self::Lines,
            false => Self::Chunks,
        }
    }

    /// The head of such an answer. Caches have to know that there are two.
    pub(crate) const fn fields(self) -> [Field<'static>; 3] {
        let content_type = match self {
            Self::Chunks => FieldValue::OCTET_STREAM,
            Self::Lines => FieldValue::from_static("application/x-ndjson"),
        };
        [
            (FieldName::CONTENT_TYPE, content_type),
            (
                FieldName::from_static("Vary"),
                FieldValue::from_static("Accept"),
            ),
            UNCACHED,
        ]
    }
}

/// How much an `Accept` field prefers that type, in thousandths (RFC 9110 12.4.2); 0: it does not name it.
fn quality(accept: &[u8], media_type: &[u8]) -> u16 {
    let mut quality = 0;
    for range in accept.split(|&byte| byte == b',') {
        let mut parts = range.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        if !parts
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case(media_type))
        {
            continue;
        }
        let weight = parts.find_map(|part| match part {
            [b'q' | b'Q', b'=', weight @ ..] => Some(thousandths(weight)),
            _ => None,
        });
        quality = quality.max(weight.unwrap_or(1000));
    }
    quality
}

/// A weight from 0 to 1 with up to three decimals; 0 for what is none.
fn thousandths(weight: &[u8]) -> u16 {
    let (whole, decimals) = match weight {
        [whole] => (whole, &[][..]),
        [whole, b'.', decimals @ ..] if decimals.len() <= 3 => (whole, decimals),
        _ => return 0,
    };
    let digits = (0..3).map(|at| decimals.get(at).unwrap_or(&b'0'));
    let number = std::iter::once(whole)
        .chain(digits)
        .try_fold(0_u16, |number, &digit| {
            let digit = digit.is_ascii_digit().then(|| u16::from(digit - b'0'))?;
            Some(number * 10 + digit)
        });
    number.filter(|&number| number <= 1000).unwrap_or(0)
}

/// What a request for a range says; ids are still encoded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RangeQuery<'a> {
    /// The first id.
    pub first: FirstId<'a>,
    /// The id that is not read any more; none: to the last.
    pub end: Option<&'a [u8]>,
    /// At most so many entities.
    pub limit: Option<NonZeroU64>,
    /// How they are sent.
    pub format: RangeFormat,
}

/// Where a range begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FirstId<'a> {
    /// At this id.
    At(&'a [u8]),
    /// Behind this one.
    After(&'a [u8]),
}

impl<'a> RangeQuery<'a> {
    /// Reads it.
    ///
    /// # Errors
    /// What is to be answered in its place.
    pub(crate) fn of(request: &Request<'a>) -> Result<Self, Reply> {
        let start = request.query_parameter(b"start");
        let after = request.query_parameter(b"after");
        let first = match (start, after) {
            (Some(start), None) => FirstId::At(start),
            (None, Some(after)) => FirstId::After(after),
            (None, None) | (Some(_), Some(_)) => return Err(Reply::MissingStart),
        };
        let limit = match request.query_parameter(b"limit") {
            None => None,
            Some(digits) => Some(limit(digits).ok_or(Reply::BadLimit)?),
        };
        Ok(Self {
            first,
            end: request.query_parameter(b"end"),
            limit,
            format: RangeFormat::of(request),
        })
    }
}

/// Digits alone: no sign, no blank.
fn limit(digits: &[u8]) -> Option<NonZeroU64> {
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The same, decoded, as it goes to the thread that reads.
#[derive(Debug)]
pub struct ScanRange {
    /// The first id.
    pub start: Buffer,
    /// The id before which to end; none: behind the last.
    pub end: Option<Buffer>,
    /// At most so many entities.
    pub limit: Option<NonZeroU64>,
    /// What a turn is to hold of each.
    pub format: RangeFormat,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: weights are those of RFC 9110, and a type that is not named has none.
    #[test]
    fn preferences_are_weighed() {
        for (accept, lines, chunks) in [
            ("*/*", 0, 0),
            ("application/x-ndjson", 1000, 0),
            ("text/html, Application/X-NDJSON;v=1; q=0.25,*/*", 250, 0),
            ("application/x-ndjson;q=0", 0, 0),
            (
                "application/x-ndjson;q=0.5,application/octet-stream;q=0.501",
                500,
                501,
            ),
            ("application/x-ndjson;q=1.000", 1000, 0),
            ("application/x-ndjson;q=1.001", 0, 0),
            ("application/x-ndjson;q=.5, application/x-ndjsonl", 0, 0),
            ("application/x-ndjson;q=0.1234", 0, 0),
            ("application/x-ndjson;q=", 0, 0),
        ] {
            let found = (
                quality(accept.as_bytes(), NDJSON),
                quality(accept.as_bytes(), OCTETS),
            );
            assert_eq!(found, (lines, chunks), "{accept}");
        }
    }

    /// Goal: a limit is a number from 1 on, in digits alone.
    #[test]
    fn limits_are_digits() {
        assert_eq!(limit(b"1").map(NonZeroU64::get), Some(1));
        assert_eq!(
            limit(b"18446744073709551615").map(NonZeroU64::get),
            Some(u64::MAX)
        );
        for bad in [
            &b""[..],
            b"0",
            b"+1",
            b"-1",
            b" 1",
            b"1e3",
            b"18446744073709551616",
            b"%31",
        ] {
            assert_eq!(limit(bad), None, "{bad:?}");
        }
    }
}
