//! A parsed head: offsets into the bytes it was parsed from, and what they mean for framing.
//!
//! `parse` fills these; `service` shows them to a handler together with the bytes. Offsets stay
//! valid when the same bytes move elsewhere.

use crate::encode::Persistence;
use crate::limits::FIELDS_CAPACITY;
use crate::method::Method;
use crate::status::StatusCode;

/// A run of bytes inside a head, which is at most 64 KiB long.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Span {
    start: u16,
    length: u16,
}

impl Span {
    pub(crate) const EMPTY: Self = Self {
        start: 0,
        length: 0,
    };

    /// Both ends must lie within `HEAD_BYTES_CAPACITY`; the parser never reads further.
    #[inline]
    pub(crate) fn new(start: usize, end: usize) -> Self {
        debug_assert!(start <= end && end <= crate::limits::HEAD_BYTES_CAPACITY);
        Self {
            start: start as u16,
            length: (end - start) as u16,
        }
    }

    /// The same by its length.
    #[inline]
    pub(crate) fn at(start: usize, length: usize) -> Self {
        debug_assert!(start + length <= crate::limits::HEAD_BYTES_CAPACITY);
        Self {
            start: start as u16,
            length: length as u16,
        }
    }

    /// Offset of the first byte.
    #[inline]
    pub(crate) fn start(self) -> usize {
        usize::from(self.start)
    }

    /// Offset behind the last byte.
    #[inline]
    pub(crate) fn end(self) -> usize {
        usize::from(self.start) + usize::from(self.length)
    }

    /// The bytes, out of the same head the span was made from.
    #[inline]
    #[must_use]
    pub fn of(self, head: &[u8]) -> &[u8] {
        &head[self.start()..self.end()]
    }

    /// Bytes in it.
    #[inline]
    pub(crate) fn len(self) -> usize {
        usize::from(self.length)
    }

    /// Nothing in it.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.length == 0
    }
}

/// Name and value of one field line.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FieldSpan {
    /// As the peer wrote it; compare without regard to case.
    pub name: Span,
    /// Without the white space around it.
    pub value: Span,
}

/// The last Host value found good, if it is not too long to be worth remembering.
#[derive(Clone, Debug)]
pub(crate) struct LastHost {
    bytes: [u8; Self::BYTES_MAX],
    length: u8,
}

impl LastHost {
    /// Longer ones are checked each time.
    const BYTES_MAX: usize = 64;

    #[inline(always)]
    pub(crate) fn is(&self, host: &[u8]) -> bool {
        usize::from(self.length) == host.len() && crate::scan::portable::begins(&self.bytes, host)
    }

    pub(crate) fn remember(&mut self, host: &[u8]) {
        if let Some(place) = self.bytes.get_mut(..host.len()) {
            place.copy_from_slice(host);
            self.length = host.len() as u8;
        }
    }
}

/// The field lines of one head. One table per shard serves every request: it is large, and
/// clearing it costs one store.
#[derive(Clone, Debug)]
pub struct HeadFields {
    spans: [FieldSpan; FIELDS_CAPACITY],
    count: usize,
    /// Survives `clear`.
    pub(crate) last_host: LastHost,
}

impl Default for HeadFields {
    fn default() -> Self {
        Self {
            spans: [FieldSpan::default(); FIELDS_CAPACITY],
            count: 0,
            last_host: LastHost {
                bytes: [0; LastHost::BYTES_MAX],
                length: 0,
            },
        }
    }
}

impl HeadFields {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        self.count = 0;
    }

    /// Fills one place; false when there is none.
    #[inline(always)]
    pub(crate) fn put(&mut self, index: usize, span: FieldSpan) -> bool {
        match self.spans.get_mut(index) {
            Some(place) => {
                *place = span;
                true
            }
            None => false,
        }
    }

    /// So many places are filled.
    #[inline]
    pub(crate) fn set_len(&mut self, count: usize) {
        debug_assert!(count <= FIELDS_CAPACITY);
        self.count = count;
    }

    /// In the order they came.
    #[inline]
    #[must_use]
    pub fn spans(&self) -> &[FieldSpan] {
        &self.spans[..self.count]
    }

    /// How many field lines there are.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// No field at all.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Value of the first field with this name, compared without regard to case.
    #[must_use]
    pub fn value_of<'h>(&self, head: &'h [u8], name: &[u8]) -> Option<&'h [u8]> {
        let found = self
            .spans()
            .iter()
            .find(|f| f.name.of(head).eq_ignore_ascii_case(name))?;
        Some(found.value.of(head))
    }
}

/// Protocol version, as it is read: higher minor versions by the rules of 1.1; anything else is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub enum Version {
    /// `HTTP/1.0`
    Http10,
    /// `HTTP/1.1`
    Http11,
}

/// How the end of a body is known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Framing {
    /// There is no body.
    None,
    /// `Content-Length`.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// The peer closes. Responses only.
    UntilClose,
}

/// A request's head, checked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RequestHead {
    /// The method's meaning; its token is in `method_token`.
    pub method: Method,
    /// The token as sent.
    pub method_token: Span,
    /// The whole target as sent.
    pub target: Span,
    /// Path part; empty for an absolute-form target without one, which means `/`.
    pub path: Span,
    /// The query after `?`.
    pub query: Option<Span>,
    /// Host and port: from an absolute-form target, otherwise from the Host field.
    pub authority: Span,
    /// The client's version.
    pub version: Version,
    /// Where the body ends. Never `UntilClose`.
    pub framing: Framing,
    /// Whether the client allows another request after this one.
    pub keep_alive: bool,
    /// `Expect: 100-continue` on HTTP/1.1 with a body to come.
    pub expects_continue: bool,
    /// Length of the head with its final empty line; the body starts there.
    pub head_bytes: usize,
}

/// A response's head, checked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ResponseHead {
    /// Status code.
    pub status: StatusCode,
    /// The server's version.
    pub version: Version,
    /// Reason phrase as sent.
    pub reason: Span,
    /// Where the body ends, before considering what was asked: see [`ResponseHead::framing`].
    pub announced: Framing,
    /// Reuse by version and `Connection` alone, before the request is considered: see [`ResponseHead::keep_alive`].
    pub offers_keep_alive: bool,
    /// Length of the head with its final empty line.
    pub head_bytes: usize,
}

impl RequestHead {
    /// Where the parser starts.
    pub(crate) const EMPTY: Self = Self {
        method: Method::Get,
        method_token: Span::EMPTY,
        target: Span::EMPTY,
        path: Span::EMPTY,
        query: None,
        authority: Span::EMPTY,
        version: Version::Http11,
        framing: Framing::None,
        keep_alive: true,
        expects_continue: false,
        head_bytes: 0,
    };
}

impl ResponseHead {
    /// Where the parser starts.
    pub(crate) const EMPTY: Self = Self {
        status: StatusCode::OK,
        version: Version::Http11,
        reason: Span::EMPTY,
        announced: Framing::UntilClose,
        offers_keep_alive: true,
        head_bytes: 0,
    };

    /// Where the body ends, given what was asked: HEAD, 1xx, 204 and 304 have none.
    #[must_use]
    pub fn framing(&self, request: Method) -> Framing {
        if request == Method::Head || self.status.forbids_body() {
            return Framing::None;
        }
        self.announced
    }

    /// Whether the server keeps the connection open: a body that ends with the connection takes
    /// the connection with it.
    #[must_use]
    pub fn keep_alive(&self, request: Method) -> bool {
        self.offers_keep_alive && self.framing(request) != Framing::UntilClose
    }
}

// Properties of a request and its connection that decide how its response is framed.

/// How a response is framed, as flags.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct ResponseFraming(u8);

impl ResponseFraming {
    /// An HTTP/1.0 client that asked for keep-alive gets it confirmed.
    const KEEP_ALIVE: u8 = 1;
    /// This is the last response.
    const CLOSE: u8 = 2;
    /// The body is announced and left out.
    const HEAD: u8 = 4;
    /// The client does not support chunks.
    const OLD_VERSION: u8 = 8;
    /// The client declared this request its last.
    const LAST_OF_CLIENT: u8 = 32;
    /// More of the request's body is to come than is read after a response.
    const CLOSES_IF_ANSWERED: u8 = 16;

    /// How the response to this is framed.
    #[inline(always)]
    pub(crate) fn of(head: &RequestHead, is_draining: bool) -> Self {
        let is_usual = head.version == Version::Http11
            && head.keep_alive
            && head.method != Method::Head
            && !is_draining;
        if is_usual {
            return Self::default();
        }
        Self::of_unusual(head, is_draining)
    }

    #[inline(never)]
    fn of_unusual(head: &RequestHead, is_draining: bool) -> Self {
        let is_old = head.version == Version::Http10;
        let persistence = match head.keep_alive && !is_draining {
            false => Self::CLOSE,
            true if is_old => Self::KEEP_ALIVE,
            true => 0,
        };
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        Self(
            persistence
                | flag(head.method == Method::Head, Self::HEAD)
                | flag(is_old, Self::OLD_VERSION)
                | flag(!head.keep_alive, Self::LAST_OF_CLIENT),
        )
    }

    /// HTTP/1.1, no HEAD, and the connection stays.
    #[inline(always)]
    pub(crate) fn is_usual(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(crate) fn is_head(self) -> bool {
        self.0 & Self::HEAD != 0
    }

    #[inline]
    pub(crate) fn is_old_version(self) -> bool {
        self.0 & Self::OLD_VERSION != 0
    }

    /// The connection closes behind the response.
    #[inline]
    pub(crate) fn closes(self) -> bool {
        self.0 & Self::CLOSE != 0
    }

    /// The client sends nothing after this request, as it declared.
    #[inline]
    pub(crate) fn is_last_of_client(self) -> bool {
        self.0 & Self::LAST_OF_CLIENT != 0
    }

    /// Value for this in the response's head.
    pub(crate) fn persistence(self) -> Persistence {
        match self.0 & (Self::CLOSE | Self::KEEP_ALIVE) {
            0 => Persistence::Silent,
            Self::KEEP_ALIVE => Persistence::KeepAlive,
            _ => Persistence::Close,
        }
    }

    /// The same, but the connection closes.
    #[inline]
    pub(crate) fn closing(self) -> Self {
        Self(self.0 & !Self::KEEP_ALIVE | Self::CLOSE)
    }

    /// The same, where a response now closes the connection or not.
    #[inline]
    pub(crate) fn closing_if_answered(self, closes: bool) -> Self {
        let others = self.0 & !Self::CLOSES_IF_ANSWERED;
        Self(if closes {
            others | Self::CLOSES_IF_ANSWERED
        } else {
            others
        })
    }

    /// The response is written now.
    pub(crate) fn answered(self) -> Self {
        if self.0 & Self::CLOSES_IF_ANSWERED != 0 {
            return self.closing();
        }
        self
    }
}

#[cfg(test)]
#[path = "tests/manner.rs"]
mod manner_tests;
