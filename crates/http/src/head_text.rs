//! Texts that a program puts into a message head: field names and values, targets and hosts.
//!
//! Each is a type of its own that borrows checked bytes, so that whatever takes one writes it as it is:
//! no text can end its line and begin another (RFC 9110 5.5, RFC 9112 11.1). There are three ways to one:
//!
//! ```text
//! a constant of the program   from_static, in a `const`: checked by the compiler, costs nothing
//! bytes made at run time      new: one pass over them, no memory; an error names the byte and its place
//! received in a message       Request::fields, ReceivedHead::fields, ...: the parser has checked it
//! ```
//!
//! There are no owned texts, and no rules for the values of fields of a given name.

use crate::head::{FieldSpan, HeadFields};
use crate::parse::{PORT_DIGITS_MAX, is_authority};
use crate::scan::{is_field_value, is_host, is_target, is_token};
use std::fmt;
use std::hash::{Hash, Hasher};

/// The part of a head that a text is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum HeadPart {
    /// [`FieldName`]
    FieldName,
    /// [`FieldValue`]
    FieldValue,
    /// [`RequestTarget`]
    Target,
    /// [`Authority`]
    Authority,
}

impl fmt::Display for HeadPart {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::FieldName => "field name",
            Self::FieldValue => "field value",
            Self::Target => "request target",
            Self::Authority => "host",
        })
    }
}

/// Why a text is not allowed in a message head.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HeadTextError {
    /// There has to be at least one byte.
    #[error("the {part} is empty: give at least one byte")]
    Empty {
        /// Purpose of the text.
        part: HeadPart,
    },
    /// A byte that ends the part, or that no sender may write there.
    #[error(
        "byte {found:#04x} at position {position} cannot stand in a {part}: leave it out or encode it"
    )]
    Byte {
        /// Purpose of the text.
        part: HeadPart,
        /// The first such byte.
        found: u8,
        /// Its offset in the text, from 0.
        position: usize,
    },
    /// `Content-Length`, `Transfer-Encoding` or `Host`: a second one would frame or route the message
    /// otherwise than it is sent.
    #[error("{name} is written by the library: say it by the length of the body, or by the host")]
    Reserved {
        /// The name.
        name: &'static str,
    },
    /// All bytes are allowed there, but not in this order.
    #[error("the {part} is malformed: {}", expected_form(*part))]
    Form {
        /// Purpose of the text.
        part: HeadPart,
    },
}

fn expected_form(part: HeadPart) -> &'static str {
    match part {
        HeadPart::Target => "begin it with / or with http:// and a host, or use *",
        _ => "use a name, an IPv4 address or an IPv6 address in brackets, perhaps with a port",
    }
}

/// Fields whose only line is written from the message's properties.
const RESERVED: [&str; 3] = ["Content-Length", "Transfer-Encoding", "Host"];

/// Which of [`RESERVED`] a name is.
const fn reserved(name: &[u8]) -> Option<&'static str> {
    let mut index = 0;
    while index < RESERVED.len() {
        if name.eq_ignore_ascii_case(RESERVED[index].as_bytes()) {
            return Some(RESERVED[index]);
        }
        index += 1;
    }
    None
}

/// The first byte that is not allowed in this part.
#[inline(always)]
const fn check_bytes(bytes: &[u8], part: HeadPart) -> Result<(), HeadTextError> {
    let mut position = 0;
    while position < bytes.len() {
        let found = bytes[position];
        let may_stand = match part {
            HeadPart::FieldName => is_token(found),
            HeadPart::FieldValue => is_field_value(found),
            HeadPart::Target | HeadPart::Authority => is_target(found),
        };
        if !may_stand {
            return Err(HeadTextError::Byte {
                part,
                found,
                position,
            });
        }
        position += 1;
    }
    Ok(())
}

/// Whether a value is valid by the fast check, eight bytes at once: no byte is below the space or DEL. One with a tab
/// is valid too, and is checked byte by byte, as are those shorter than a word.
#[inline]
fn is_plain_value(bytes: &[u8]) -> bool {
    let (Some(last), words) = (bytes.last_chunk(), bytes.as_chunks().0) else {
        return false;
    };
    words.iter().all(is_plain_word) && is_plain_word(last)
}

#[inline]
fn is_plain_word(word: &[u8; 8]) -> bool {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH_BITS: u64 = ONES << 7;
    let word = u64::from_ne_bytes(*word);
    // The high bit of some byte stays if, and only if, some byte is below what is taken away.
    let has_control = word.wrapping_sub(ONES * 0x20) & !word & HIGH_BITS != 0;
    let without_del = word ^ (ONES * 0x7f);
    let has_del = without_del.wrapping_sub(ONES) & !without_del & HIGH_BITS != 0;
    !has_control && !has_del
}

const fn check_name(bytes: &[u8]) -> Result<(), HeadTextError> {
    if bytes.is_empty() {
        return Err(HeadTextError::Empty {
            part: HeadPart::FieldName,
        });
    }
    if let Err(error) = check_bytes(bytes, HeadPart::FieldName) {
        return Err(error);
    }
    match reserved(bytes) {
        Some(name) => Err(HeadTextError::Reserved { name }),
        None => Ok(()),
    }
}

/// RFC 9112 3.2, but for the form of CONNECT, which is not spoken.
const fn check_target(bytes: &[u8]) -> Result<(), HeadTextError> {
    const PART: HeadPart = HeadPart::Target;
    if bytes.is_empty() {
        return Err(HeadTextError::Empty { part: PART });
    }
    if let Err(error) = check_bytes(bytes, PART) {
        return Err(error);
    }
    match bytes {
        [b'/', ..] | b"*" => Ok(()),
        _ if begins_with_scheme(bytes) => Ok(()),
        _ => Err(HeadTextError::Form { part: PART }),
    }
}

/// `http://` or `https://` and a host without user information.
const fn begins_with_scheme(bytes: &[u8]) -> bool {
    let rest = match bytes {
        [
            b'h' | b'H',
            b't' | b'T',
            b't' | b'T',
            b'p' | b'P',
            rest @ ..,
        ] => rest,
        _ => return false,
    };
    let rest = match rest {
        [b':', b'/', b'/', rest @ ..] | [b's' | b'S', b':', b'/', b'/', rest @ ..] => rest,
        _ => return false,
    };
    let mut host_bytes = 0;
    while host_bytes < rest.len() {
        match rest[host_bytes] {
            b'/' | b'?' => break,
            b'@' => return false,
            b':' if host_bytes == 0 => return false,
            _ => host_bytes += 1,
        }
    }
    host_bytes > 0
}

/// A name or an IPv4 address, perhaps with a port: [`is_authority`] for constants, but for IPv6.
const fn is_name_with_port(bytes: &[u8]) -> bool {
    let mut at = 0;
    while at < bytes.len() && is_host(bytes[at]) {
        at += 1;
    }
    if at == 0 || at == bytes.len() {
        return at == bytes.len();
    }
    if bytes[at] != b':' || bytes.len() - at > 1 + PORT_DIGITS_MAX {
        return false;
    }
    at += 1;
    while at < bytes.len() {
        if !bytes[at].is_ascii_digit() {
            return false;
        }
        at += 1;
    }
    true
}

/// For constants: the compiler shows the sentence and the line.
const fn refuse(error: HeadTextError) -> ! {
    match error {
        HeadTextError::Empty { .. } => panic!("this text is empty"),
        HeadTextError::Byte { .. } => panic!("a byte of this text cannot stand in a message head"),
        HeadTextError::Reserved { .. } => panic!("this field is written by the library"),
        HeadTextError::Form { .. } => panic!("this text is no request target, or no host"),
    }
}

/// The name of a field: a token (RFC 9110 5.1), of any field but `Content-Length`, `Transfer-Encoding` and
/// `Host`, which are written from what a message is. Equal to one that differs in case alone.
///
/// ```
/// use millpond_http::{FieldName, HeadTextError};
///
/// const TRACE_ID: FieldName<'_> = FieldName::from_static("X-Trace-Id");
/// assert!(FieldName::new("x-trace-id")? == TRACE_ID);
/// let error = FieldName::new("X: y\r\nZ").unwrap_err();
/// assert!(matches!(error, HeadTextError::Byte { found: b':', position: 1, .. }));
/// # Ok::<(), HeadTextError>(())
/// ```
#[derive(Clone, Copy)]
pub struct FieldName<'a>(&'a [u8]);

/// The value of a field (RFC 9110 5.5): visible bytes, spaces, tabs and bytes from 0x80 on. May be empty.
/// White space around it is written as it is; the receiver strips it.
///
/// ```
/// use millpond_http::{FieldValue, HeadTextError};
///
/// const NO_STORE: FieldValue<'_> = FieldValue::from_static("no-store");
/// assert_eq!(NO_STORE.as_bytes(), b"no-store");
/// let error = FieldValue::new("a\r\nSet-Cookie: b").unwrap_err();
/// let expected = "byte 0x0d at position 1 cannot stand in a field value: leave it out or encode it";
/// assert_eq!(error.to_string(), expected);
/// ```
///
/// A constant that is wrong does not compile:
///
/// ```compile_fail
/// const WRONG: millpond_http::FieldValue<'_> = millpond_http::FieldValue::from_static("a\r\nb");
/// let _ = WRONG;
/// ```
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct FieldValue<'a>(&'a [u8]);

/// A field to be written.
pub type Field<'a> = (FieldName<'a>, FieldValue<'a>);

/// The request target (RFC 9112 3.2): a path that begins with a slash, perhaps with a query; a whole `http` or `https`
/// URL; or `*`. Of bytes that RFC 3986 allows; others have to be percent-encoded.
///
/// ```
/// use millpond_http::RequestTarget;
///
/// const STATUS: RequestTarget<'_> = RequestTarget::from_static("/status?verbose");
/// assert!(RequestTarget::new("/a HTTP/1.1\r\nX: y").is_err());
/// assert!(RequestTarget::new("status").is_err());
/// # let _ = STATUS;
/// ```
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct RequestTarget<'a>(&'a [u8]);

/// The value of `Host` (RFC 9110 7.2): a name or an address, perhaps with a port. May be empty, where a server has no
/// name.
///
/// ```
/// use millpond_http::Authority;
///
/// assert!(Authority::new("back.example:8080").is_ok() && Authority::new("[::1]").is_ok());
/// assert!(Authority::new("a\r\nX: y").is_err() && Authority::new("user@a").is_err());
/// ```
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct Authority<'a>(&'a [u8]);

macro_rules! head_texts {
    ($($name:ident)*) => {$(
        impl<'a> $name<'a> {
            /// The text.
            #[inline]
            #[must_use]
            pub const fn as_bytes(self) -> &'a [u8] {
                self.0
            }

            /// How many bytes it has.
            #[inline]
            #[must_use]
            pub const fn len(self) -> usize {
                self.0.len()
            }

            /// Whether it has none.
            #[inline]
            #[must_use]
            pub const fn is_empty(self) -> bool {
                self.0.is_empty()
            }
        }

        impl AsRef<[u8]> for $name<'_> {
            fn as_ref(&self) -> &[u8] {
                self.0
            }
        }

        impl fmt::Display for $name<'_> {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                String::from_utf8_lossy(self.0).fmt(formatter)
            }
        }

        impl fmt::Debug for $name<'_> {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, concat!(stringify!($name), "({:?})"), String::from_utf8_lossy(self.0))
            }
        }
    )*};
}

head_texts!(FieldName FieldValue RequestTarget Authority);

macro_rules! names {
    ($($name:ident = $text:literal;)*) => {
        impl FieldName<'static> {
            $(#[doc = concat!("`", $text, "`")]
            pub const $name: Self = Self::from_static($text);)*
        }
    };
}

names! {
    ACCEPT = "Accept";
    ACCEPT_RANGES = "Accept-Ranges";
    ALLOW = "Allow";
    AUTHORIZATION = "Authorization";
    CACHE_CONTROL = "Cache-Control";
    CONNECTION = "Connection";
    CONTENT_ENCODING = "Content-Encoding";
    CONTENT_RANGE = "Content-Range";
    CONTENT_TYPE = "Content-Type";
    ETAG = "ETag";
    EXPECT = "Expect";
    EXPIRES = "Expires";
    LAST_MODIFIED = "Last-Modified";
    LOCATION = "Location";
    PROXY_STATUS = "Proxy-Status";
    RANGE = "Range";
    RETRY_AFTER = "Retry-After";
    SET_COOKIE = "Set-Cookie";
    UPGRADE = "Upgrade";
    USER_AGENT = "User-Agent";
    VARY = "Vary";
    WWW_AUTHENTICATE = "WWW-Authenticate";
    X_CONTENT_TYPE_OPTIONS = "X-Content-Type-Options";
}

impl<'a> FieldName<'a> {
    /// Checks a name that is made at run time, in one pass over it.
    ///
    /// # Errors
    /// An empty name, the first byte that is no token byte, or a name that the library writes itself.
    pub fn new(text: &'a (impl AsRef<[u8]> + ?Sized)) -> Result<Self, HeadTextError> {
        let bytes = text.as_ref();
        check_name(bytes).map(|()| Self(bytes))
    }

    /// A name of the program's own. In a `const`, or a `const` block, it is checked when the program is
    /// compiled, and costs nothing when it runs.
    ///
    /// # Panics
    /// If it is no such name: in a `const` the program does not compile.
    #[must_use]
    pub const fn from_static(text: &'static str) -> FieldName<'static> {
        match check_name(text.as_bytes()) {
            Ok(()) => FieldName(text.as_bytes()),
            Err(error) => refuse(error),
        }
    }
}

impl PartialEq for FieldName<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(other.0)
    }
}

impl Eq for FieldName<'_> {}

impl Hash for FieldName<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for byte in self.0 {
            byte.to_ascii_lowercase().hash(state);
        }
    }
}

impl FieldValue<'static> {
    /// `text/plain`
    pub const TEXT_PLAIN: Self = Self::from_static("text/plain");
    /// `application/json`
    pub const JSON: Self = Self::from_static("application/json");
    /// `application/octet-stream`
    pub const OCTET_STREAM: Self = Self::from_static("application/octet-stream");
}

impl<'a> FieldValue<'a> {
    /// Nothing in it.
    pub const EMPTY: Self = Self(b"");

    /// Checks a value that is made at run time, in one pass over it.
    ///
    /// # Errors
    /// The first byte that is not allowed in a value: CR, LF, NUL and every other control but the tab.
    pub fn new(text: &'a (impl AsRef<[u8]> + ?Sized)) -> Result<Self, HeadTextError> {
        let bytes = text.as_ref();
        match is_plain_value(bytes) {
            true => Ok(Self(bytes)),
            false => check_bytes(bytes, HeadPart::FieldValue).map(|()| Self(bytes)),
        }
    }

    /// A value of the program's own: see [`FieldName::from_static`].
    ///
    /// # Panics
    /// If it is no value: in a `const` the program does not compile.
    #[must_use]
    pub const fn from_static(text: &'static str) -> FieldValue<'static> {
        match check_bytes(text.as_bytes(), HeadPart::FieldValue) {
            Ok(()) => FieldValue(text.as_bytes()),
            Err(error) => refuse(error),
        }
    }

    /// Bytes that were checked before, or that can be nothing else: numbers, dates, entity tags.
    #[inline]
    pub(crate) fn known(bytes: &'a [u8]) -> Self {
        debug_assert_eq!(check_bytes(bytes, HeadPart::FieldValue), Ok(()));
        Self(bytes)
    }
}

impl<'a> RequestTarget<'a> {
    /// Checks a target that is made at run time, in one pass over it.
    ///
    /// # Errors
    /// An empty target, the first byte that is not allowed in one, or a form that no request has.
    pub fn new(text: &'a (impl AsRef<[u8]> + ?Sized)) -> Result<Self, HeadTextError> {
        let bytes = text.as_ref();
        check_target(bytes).map(|()| Self(bytes))
    }

    /// A target of the program's own: see [`FieldName::from_static`].
    ///
    /// # Panics
    /// If it is no target: in a `const` the program does not compile.
    #[must_use]
    pub const fn from_static(text: &'static str) -> RequestTarget<'static> {
        match check_target(text.as_bytes()) {
            Ok(()) => RequestTarget(text.as_bytes()),
            Err(error) => refuse(error),
        }
    }

    /// Out of a request line that the parser has accepted.
    #[inline]
    pub(crate) fn received(bytes: &'a [u8]) -> Self {
        debug_assert_eq!(check_target(bytes), Ok(()));
        Self(bytes)
    }
}

impl<'a> Authority<'a> {
    /// Nothing in it.
    pub const EMPTY: Self = Self(b"");

    /// Checks a host that is made at run time.
    ///
    /// # Errors
    /// The first byte that is not allowed in a host, or a text that is no host with or without a port: one with user
    /// information, for example.
    pub fn new(text: &'a (impl AsRef<[u8]> + ?Sized)) -> Result<Self, HeadTextError> {
        const PART: HeadPart = HeadPart::Authority;
        let bytes = text.as_ref();
        check_bytes(bytes, PART)?;
        match bytes.is_empty() || is_authority(bytes) {
            true => Ok(Self(bytes)),
            false => Err(HeadTextError::Form { part: PART }),
        }
    }

    /// A host of the program's own, but no IPv6 address: see [`FieldName::from_static`].
    ///
    /// # Panics
    /// If it is no such host: in a `const` the program does not compile.
    #[must_use]
    pub const fn from_static(text: &'static str) -> Authority<'static> {
        match is_name_with_port(text.as_bytes()) {
            true => Authority(text.as_bytes()),
            false => refuse(HeadTextError::Form {
                part: HeadPart::Authority,
            }),
        }
    }

    /// Out of a head that the parser has accepted, or checked before.
    #[inline]
    pub(crate) fn known(bytes: &'a [u8]) -> Self {
        debug_assert!(bytes.is_empty() || is_authority(bytes));
        Self(bytes)
    }
}

impl FieldSpan {
    /// The field, out of the head that it was parsed from.
    #[inline]
    pub(crate) fn received(self, head: &[u8]) -> Field<'_> {
        let name = self.name.of(head);
        debug_assert!(!name.is_empty() && check_bytes(name, HeadPart::FieldName).is_ok());
        (FieldName(name), FieldValue::known(self.value.of(head)))
    }
}

/// The fields of a message that was received, checked by the parser: they can be written into another message as they
/// are. `Content-Length`, `Transfer-Encoding` and `Host` are left out, which are written from the other message's
/// properties. Intermediaries also leave out those of RFC 9110 7.6.1.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReceivedFields<'a> {
    head: &'a [u8],
    spans: &'a [FieldSpan],
}

impl<'a> ReceivedFields<'a> {
    /// `fields` are of `head`.
    pub(crate) fn new(head: &'a [u8], fields: &'a HeadFields) -> Self {
        Self {
            head,
            spans: fields.spans(),
        }
    }

    /// The value of the first field with this name.
    #[must_use]
    pub fn get(&self, name: FieldName<'_>) -> Option<FieldValue<'a>> {
        let (_, value) = self.into_iter().find(|(found, _)| *found == name)?;
        Some(value)
    }
}

impl<'a> IntoIterator for ReceivedFields<'a> {
    type Item = Field<'a>;
    type IntoIter = ReceivedFieldsIter<'a>;

    fn into_iter(self) -> ReceivedFieldsIter<'a> {
        ReceivedFieldsIter {
            head: self.head,
            spans: self.spans.iter(),
        }
    }
}

/// See [`ReceivedFields`]: in the order they came.
#[derive(Clone, Debug)]
pub struct ReceivedFieldsIter<'a> {
    head: &'a [u8],
    spans: std::slice::Iter<'a, FieldSpan>,
}

impl<'a> Iterator for ReceivedFieldsIter<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
        let head = self.head;
        let mut fields = self.spans.by_ref().map(|span| span.received(head));
        fields.find(|(name, _)| reserved(name.0).is_none())
    }
}
