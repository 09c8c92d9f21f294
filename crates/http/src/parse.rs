//! Heads of requests and responses: RFC 9112 to the letter, one pass, borrowed offsets.
//!
//! `connection` hands over received bytes; out come spans into those bytes, or a fault with its
//! status code. Nothing is allocated and nothing is copied.
//!
//! The cursor only moves forward and every decision depends on bytes before it, so a head cut at
//! any byte ends in the same response once the rest has come: running off the end is `Partial`.
//!
//! Bare LF, folded fields, space before a colon, repeated or listed lengths, and every transfer
//! coding that is not exactly `chunked` are refused, because two parsers that repair them
//! differently can be made to disagree on where a request starts.

mod request;
mod response;

use request::FieldLine;

use crate::error::ParseError;
use crate::head::{Framing, HeadFields, RequestHead, ResponseHead, Span, Version};
use crate::limits::Limits;
use crate::method::Method;
use crate::scan;
use crate::scan::{Scanner, ScannerKind, Text, Work};

pub use request::parse_trailer_fields;

/// Result of parsing a prefix of a stream without errors.
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

/// [`parse_request_head`] into an existing, empty place, so that no head is moved. False: it is not whole, and the
/// other function returns why.
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

/// State of a parser: the head so far, and why it is not whole if it is not.
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

/// Meaning of a stop: a head that reaches its maximum length has exceeded the limit.
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

// The end of the body and the connection's reuse, from the fields that decide them.

/// Values of the fields that decide framing and reuse, collected during the parse.
#[derive(Clone, Copy)]
struct FramingFields {
    /// Which of them were present; zero for most heads, and then nothing else is checked.
    seen: u8,
    content_length: u64,
}

impl FramingFields {
    const LENGTH: u8 = 1;
    const CHUNKED: u8 = 2;
    const CLOSE: u8 = 4;
    const KEEP_ALIVE: u8 = 8;
    const HOST: u8 = 16;
    const EXPECTS_CONTINUE: u8 = 32;
    /// The target has an authority of its own, which outranks the Host field.
    const AUTHORITY: u8 = 64;

    #[inline(always)]
    fn new() -> Self {
        Self {
            seen: 0,
            content_length: 0,
        }
    }

    /// Whether a body is possible, or the host is missing.
    #[inline(always)]
    fn is_more_than_host(self) -> bool {
        self.seen & (Self::LENGTH | Self::CHUNKED | Self::HOST) != Self::HOST
    }

    #[inline(always)]
    fn has(self, which: u8) -> bool {
        self.seen & which != 0
    }

    /// Handles one field.
    #[inline(always)]
    fn visit(&mut self, line: &FieldLine<'_>) -> Result<(), ParseError> {
        let name = line.name;
        if name.is(b"connection") {
            self.seen |= match line.value {
                // The most common value.
                b"keep-alive" => Self::KEEP_ALIVE,
                other => connection_options(other),
            };
        } else if name.is(b"content-length") {
            self.visit_content_length(line.value)?;
        } else if name.is(b"transfer-encoding") {
            self.visit_transfer_encoding(line.value)?;
        }
        Ok(())
    }

    /// Notes a Host field; true when it names the site.
    #[inline(always)]
    fn is_first_host(&mut self) -> Result<bool, ParseError> {
        let before = self.seen & (Self::HOST | Self::AUTHORITY);
        self.seen |= Self::HOST;
        match before {
            0 => Ok(true),
            Self::AUTHORITY => Ok(false),
            _ => Err(ParseError::DuplicateHost),
        }
    }

    #[inline(never)]
    fn visit_expect(&mut self, value: &[u8]) -> Result<(), ParseError> {
        if !value.eq_ignore_ascii_case(b"100-continue") {
            return Err(ParseError::UnknownExpectation);
        }
        self.seen |= Self::EXPECTS_CONTINUE;
        Ok(())
    }

    #[inline(never)]
    fn visit_content_length(&mut self, value: &[u8]) -> Result<(), ParseError> {
        if self.has(Self::LENGTH) {
            return Err(ParseError::DuplicateContentLength);
        }
        self.seen |= Self::LENGTH;
        self.content_length = parse_content_length(value)?;
        Ok(())
    }

    #[inline(never)]
    fn visit_transfer_encoding(&mut self, value: &[u8]) -> Result<(), ParseError> {
        if self.has(Self::CHUNKED) {
            return Err(ParseError::BadTransferEncoding);
        }
        if value.eq_ignore_ascii_case(b"chunked") {
            self.seen |= Self::CHUNKED;
            return Ok(());
        }
        let is_token = !value.is_empty() && value.iter().all(|&byte| scan::is_token(byte));
        if is_token && !value.eq_ignore_ascii_case(b"identity") {
            return Err(ParseError::UnknownTransferCoding);
        }
        Err(ParseError::BadTransferEncoding)
    }

    /// RFC 9112 6.3, with the cases it leaves to us refused.
    #[inline(always)]
    fn framing(self, version: Version, otherwise: Framing) -> Result<Framing, ParseError> {
        match self.seen & (Self::LENGTH | Self::CHUNKED) {
            0 => Ok(otherwise),
            Self::LENGTH => Ok(Framing::Length(self.content_length)),
            Self::CHUNKED if version == Version::Http10 => {
                Err(ParseError::TransferEncodingInOldVersion)
            }
            Self::CHUNKED => Ok(Framing::Chunked),
            _ => Err(ParseError::LengthAndTransferEncoding),
        }
    }

    /// RFC 9112 9.3: `close` wins over `keep-alive`; the default is the version's.
    #[inline(always)]
    fn keep_alive(self, version: Version) -> bool {
        !self.has(Self::CLOSE) && (version == Version::Http11 || self.has(Self::KEEP_ALIVE))
    }
}

/// The options of `Connection` that matter here.
#[inline(never)]
fn connection_options(value: &[u8]) -> u8 {
    let mut options = 0;
    for option in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
        if option.eq_ignore_ascii_case(b"close") {
            options |= FramingFields::CLOSE;
        } else if option.eq_ignore_ascii_case(b"keep-alive") {
            options |= FramingFields::KEEP_ALIVE;
        }
    }
    options
}

/// 1*DIGIT and nothing else: no sign, no list, no `0x`, no overflow.
fn parse_content_length(value: &[u8]) -> Result<u64, ParseError> {
    if value.is_empty() {
        return Err(ParseError::BadContentLength);
    }
    let mut length = 0_u64;
    for &byte in value {
        if byte == b',' {
            return Err(ParseError::DuplicateContentLength);
        }
        if !byte.is_ascii_digit() {
            return Err(ParseError::BadContentLength);
        }
        length = length
            .checked_mul(10)
            .and_then(|tens| tens.checked_add(u64::from(byte - b'0')))
            .ok_or(ParseError::BadContentLength)?;
    }
    Ok(length)
}

// The request target: its four forms (RFC 9112 3.2), and the syntax of a host.

/// Digits of the largest port.
pub(crate) const PORT_DIGITS_MAX: usize = 5;

/// Takes a target apart that does not begin with a slash. Its bytes are all known to be target bytes; `path_end` is where its first `?` is, or its end.
#[cold]
fn split_other_form(
    bytes: &[u8],
    path_end: usize,
    head: &mut RequestHead,
) -> Result<(), ParseError> {
    let (start, end) = (head.target.start(), head.target.end());
    let target = head.target.of(bytes);
    if target == b"*" {
        if head.method != Method::Options {
            return Err(ParseError::BadTarget);
        }
        head.path = head.target;
        return Ok(());
    }
    let scheme_bytes = [&b"http://"[..], b"https://"]
        .into_iter()
        .find(|scheme| {
            target
                .get(..scheme.len())
                .is_some_and(|text| text.eq_ignore_ascii_case(scheme))
        })
        .ok_or(ParseError::BadTarget)?
        .len();
    let rest = &target[scheme_bytes..];
    let authority_bytes = rest
        .iter()
        .position(|byte| matches!(byte, b'/' | b'?'))
        .unwrap_or(rest.len());
    if !is_authority(&rest[..authority_bytes]) {
        return Err(ParseError::BadTarget);
    }
    let authority_start = start + scheme_bytes;
    let path_start = authority_start + authority_bytes;
    head.authority = Span::new(authority_start, path_start);
    head.path = Span::new(path_start, path_end);
    head.query = (path_end < end).then(|| Span::new(path_end + 1, end));
    Ok(())
}

/// `uri-host [ ":" port ]` without user information, not empty.
pub(crate) fn is_authority(text: &[u8]) -> bool {
    let host_end = if text.first() == Some(&b'[') {
        let Some(bracket) = memchr::memchr(b']', text) else {
            return false;
        };
        if !is_ipv6_text(&text[1..bracket]) {
            return false;
        }
        bracket + 1
    } else {
        let end = text
            .iter()
            .position(|&byte| !scan::is_host(byte))
            .unwrap_or(text.len());
        if end == 0 {
            return false;
        }
        end
    };
    match text[host_end..].split_first() {
        None => true,
        Some((b':', port)) => port.len() <= PORT_DIGITS_MAX && port.iter().all(u8::is_ascii_digit),
        Some(_) => false,
    }
}

fn is_ipv6_text(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| text.parse::<std::net::Ipv6Addr>().is_ok())
}
