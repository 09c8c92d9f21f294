//! Heads of requests and responses: RFC 9112 to the letter, one pass, borrowed offsets.
//!
//! On the path: `connection` hands over received bytes; out come spans into those bytes, or a fault
//! with its status code. Nothing is allocated and nothing is copied.
//!
//! The cursor only moves forward and every decision depends on bytes before it, so a head cut at
//! any byte ends in the same answer once the rest has come: running off the end is `Partial`.
//!
//! Absent on purpose: leniency. Bare LF, folded fields, space before a colon, repeated or listed
//! lengths, and every transfer coding that is not exactly `chunked` are refused, because two
//! parsers that repair them differently can be made to disagree on where a request starts.

mod fields;
mod framing;
mod request;
mod response;
mod target;

pub use fields::parse_trailer_fields;
pub(crate) use target::{PORT_DIGITS_MAX, is_authority};

use crate::error::ParseError;
use crate::head::{HeadFields, RequestHead, ResponseHead};
use crate::limits::Limits;
use crate::scan::{self, Scanner, ScannerKind, Text, Work};

/// What parsing a prefix of a stream gives when nothing is wrong with it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Parsed<T> {
    /// The head is complete.
    Complete(T),
    /// Its end has not come yet.
    Partial,
}

/// Parses the head at the start of `bytes`; `fields` is overwritten.
///
/// Call again with more bytes after `Partial`. A fault is final.
#[inline]
pub fn parse_request_head(
    bytes: &[u8],
    limits: &Limits,
    fields: &mut HeadFields,
) -> Result<Parsed<RequestHead>, ParseError> {
    parse_head::<request::Grammar>(
        bytes,
        limits,
        fields,
        scan::run::<ParseHead<request::Grammar>>,
    )
}

/// [`parse_request_head`] in a place that is there already, and empty, so that a head is moved
/// nowhere. False: it is not whole, and the other function says why.
#[inline(always)]
pub(crate) fn parse_whole_request_head(
    bytes: &[u8],
    limits: &Limits,
    fields: &mut HeadFields,
    attempt: &mut RequestAttempt,
) -> bool {
    let bytes = &bytes[..bytes.len().min(limits.head_bytes_max)];
    scan::run::<ParseHead<request::Grammar>>(bytes, limits, fields, attempt)
}

/// [`parse_request_head`] with one way of scanning, to compare it with the others.
pub fn parse_request_head_by(
    scanner: ScannerKind,
    bytes: &[u8],
    limits: &Limits,
    fields: &mut HeadFields,
) -> Result<Parsed<RequestHead>, ParseError> {
    parse_head::<request::Grammar>(bytes, limits, fields, |bytes, limits, fields, attempt| {
        scanner.run::<ParseHead<request::Grammar>>(bytes, limits, fields, attempt)
    })
}

/// Parses the head at the start of `bytes`; `fields` is overwritten.
///
/// One leniency, outside framing: the space before an empty reason phrase may be missing, because
/// widespread servers leave it out.
#[inline]
pub fn parse_response_head(
    bytes: &[u8],
    limits: &Limits,
    fields: &mut HeadFields,
) -> Result<Parsed<ResponseHead>, ParseError> {
    parse_head::<response::Grammar>(
        bytes,
        limits,
        fields,
        scan::run::<ParseHead<response::Grammar>>,
    )
}

/// [`parse_response_head`] with one way of scanning, to compare it with the others.
pub fn parse_response_head_by(
    scanner: ScannerKind,
    bytes: &[u8],
    limits: &Limits,
    fields: &mut HeadFields,
) -> Result<Parsed<ResponseHead>, ParseError> {
    parse_head::<response::Grammar>(bytes, limits, fields, |bytes, limits, fields, attempt| {
        scanner.run::<ParseHead<response::Grammar>>(bytes, limits, fields, attempt)
    })
}

/// Why the cursor stopped before the end of the head.
#[derive(Clone, Copy)]
enum Stop {
    /// Out of bytes.
    End,
    Fault(ParseError),
}

impl From<ParseError> for Stop {
    fn from(error: ParseError) -> Self {
        Self::Fault(error)
    }
}

/// One kind of head. `parse` has to be `#[inline(always)]`, as all it calls for every head: a
/// scanner's instructions go no further, and moving a table of offsets through several results
/// costs as much as parsing a field.
trait Grammar {
    type Head;
    /// Written piece by piece, which spares the parser to carry all pieces to its end.
    const EMPTY: Self::Head;
    fn parse<S: Scanner>(
        text: Text<'_, S>,
        limits: &Limits,
        fields: &mut HeadFields,
        head: &mut Self::Head,
    ) -> Result<(), Stop>;
}

/// Parses a head of one kind within the cap on heads, whatever `run` scans it with.
#[inline(always)]
fn parse_head<G: Grammar>(
    bytes: &[u8],
    limits: &Limits,
    fields: &mut HeadFields,
    run: impl FnOnce(&[u8], &Limits, &mut HeadFields, &mut Attempt<G::Head>) -> bool,
) -> Result<Parsed<G::Head>, ParseError> {
    let bytes = &bytes[..bytes.len().min(limits.head_bytes_max)];
    let mut attempt = Attempt {
        head: G::EMPTY,
        stop: Stop::End,
    };
    if run(bytes, limits, fields, &mut attempt) {
        return Ok(Parsed::Complete(attempt.head));
    }
    fields.clear();
    stopped(attempt.stop, bytes.len(), limits)
}

/// What a parser has: the head so far, and why it is not whole if it is not.
pub(crate) struct Attempt<H> {
    head: H,
    stop: Stop,
}

/// Where a request's head is parsed.
pub(crate) type RequestAttempt = Attempt<RequestHead>;

impl RequestAttempt {
    pub(crate) const EMPTY: Self = Self {
        head: RequestHead::EMPTY,
        stop: Stop::End,
    };

    /// The head, if parsing succeeded.
    #[inline(always)]
    pub(crate) fn head(&self) -> &RequestHead {
        &self.head
    }
}

/// Parsing as work for a scanner.
struct ParseHead<G>(std::marker::PhantomData<G>);

impl<G: Grammar> Work for ParseHead<G> {
    type Rules = Limits;
    type Table = HeadFields;
    type Outcome = Attempt<G::Head>;

    #[inline(always)]
    fn run<S: Scanner>(
        text: Text<'_, S>,
        limits: &Limits,
        fields: &mut HeadFields,
        attempt: &mut Attempt<G::Head>,
    ) -> bool {
        match G::parse(text, limits, fields, &mut attempt.head) {
            Ok(()) => true,
            Err(stop) => {
                attempt.stop = stop;
                false
            }
        }
    }
}

/// What a stop means: the end of as many bytes as a head may have is the end of patience.
#[cold]
fn stopped<T>(stop: Stop, bytes: usize, limits: &Limits) -> Result<Parsed<T>, ParseError> {
    match stop {
        Stop::End if bytes == limits.head_bytes_max => Err(ParseError::HeadTooLong {
            limit_bytes: limits.head_bytes_max,
        }),
        Stop::End => Ok(Parsed::Partial),
        Stop::Fault(error) => Err(error),
    }
}

/// The byte at the cursor, or the end of what has come.
#[inline(always)]
fn byte_at(bytes: &[u8], at: usize) -> Result<u8, Stop> {
    bytes.get(at).copied().ok_or(Stop::End)
}

/// Skips the one empty line a client may send before a request or response (RFC 9112 2.2).
#[inline(always)]
fn skip_empty_line(bytes: &[u8]) -> Result<usize, Stop> {
    match byte_at(bytes, 0)? {
        b'\r' | b'\n' => expect_line_end(bytes, 0),
        _ => Ok(0),
    }
}

/// Checks for CRLF at the cursor and returns the position after it.
#[inline]
fn expect_line_end(bytes: &[u8], at: usize) -> Result<usize, Stop> {
    match byte_at(bytes, at)? {
        b'\r' => {}
        b'\n' => return Err(ParseError::BareLineFeed.into()),
        _ => return Err(ParseError::BadFieldValue.into()),
    }
    if byte_at(bytes, at + 1)? != b'\n' {
        return Err(ParseError::BareCarriageReturn.into());
    }
    Ok(at + 2)
}
