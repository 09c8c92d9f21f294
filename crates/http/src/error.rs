//! Errors in a peer's bytes, and the status code for each.
//!
//! Every variant is the peer's fault. Where the fault leaves it unclear at which byte the next
//! message starts, and that is everywhere here, the connection closes after the response.

use std::panic;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::log;
use crate::log::LogLevel;
use crate::status::StatusCode;

/// Why a head was refused. `Partial` is not among them: more bytes may come.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// No line end within the limit.
    #[error("the request line is longer than {limit_bytes} bytes: shorten the target")]
    RequestLineTooLong {
        /// `Limits::request_line_bytes_max`.
        limit_bytes: usize,
    },
    /// No empty line within the limit.
    #[error("the head is longer than {limit_bytes} bytes: send fewer or shorter fields")]
    HeadTooLong {
        /// `Limits::head_bytes_max`.
        limit_bytes: usize,
    },
    /// A trailer section longer than the limit: see [`crate::parse_trailer_fields`].
    #[error("the trailer section is longer than {limit_bytes} bytes: leave trailers out")]
    TrailerTooLong {
        /// `Limits::trailer_bytes_max`.
        limit_bytes: usize,
    },
    /// More field lines than the limit.
    #[error("the header section has more than {limit} fields: send fewer")]
    TooManyFields {
        /// `Limits::fields_max`.
        limit: usize,
    },
    /// The announced body is larger than this server takes.
    #[error("the body of {found_bytes} bytes is larger than {limit_bytes}: send less")]
    BodyTooLong {
        /// `Limits::body_bytes_max`.
        limit_bytes: u64,
        /// The length in `Content-Length`.
        found_bytes: u64,
    },
    /// Empty method, or a byte that is no token character.
    #[error("the method is not a token: start the request line with e.g. GET")]
    BadMethod,
    /// Empty target, a byte outside RFC 3986, or a form the method does not allow.
    #[error("the request target is malformed: send an absolute path, percent-encode other bytes")]
    BadTarget,
    /// CONNECT asks for a tunnel.
    #[error("CONNECT is not implemented: this server is no tunnel")]
    TunnelUnsupported,
    /// Not `HTTP/` digit `.` digit, or not followed by a line end.
    #[error("the version is malformed: end the request line with HTTP/1.1")]
    BadVersion,
    /// A well-formed version of another major number than 1, or 0.9.
    #[error("the version is not supported: use HTTP/1.1")]
    UnsupportedVersion,
    /// The status line of a response is malformed.
    #[error("the status line is malformed: expected HTTP/1.1, three digits and a reason")]
    BadStatusLine,
    /// LF without CR before it.
    #[error("a line ends in a bare LF: end lines with CRLF")]
    BareLineFeed,
    /// CR without LF after it.
    #[error("a CR is not followed by LF: end lines with CRLF")]
    BareCarriageReturn,
    /// White space before the first field: other parsers may not see the rest.
    #[error("white space stands before the first field: remove it")]
    LeadingWhitespace,
    /// A line that starts with white space continues the one before (obs-fold).
    #[error("a field is folded over several lines: send it on one")]
    FoldedField,
    /// `Name : value`.
    #[error("white space stands between a field name and its colon: remove it")]
    SpaceBeforeColon,
    /// Empty name, or a byte that is no token character.
    #[error("a field name is not a token: use letters, digits and hyphens")]
    BadFieldName,
    /// A control character in a value.
    #[error("a field value holds a control character: encode it")]
    BadFieldValue,
    /// HTTP/1.1 demands the field.
    #[error("the Host field is missing: HTTP/1.1 requires one")]
    MissingHost,
    /// Two responses to the question which site is meant.
    #[error("there is more than one Host field: send exactly one")]
    DuplicateHost,
    /// Not a host and optional port.
    #[error("the Host field is malformed: send a host name or address and an optional port")]
    BadHost,
    /// Not only digits, or more than 64 bits.
    #[error("Content-Length is malformed: send one decimal number")]
    BadContentLength,
    /// Several fields or a list, even of equal numbers.
    #[error("there is more than one Content-Length: send exactly one")]
    DuplicateContentLength,
    /// Both ways of framing at once: the classic smuggling attempt.
    #[error("both Content-Length and Transfer-Encoding are present: send only one of them")]
    LengthAndTransferEncoding,
    /// HTTP/1.0 does not define the field.
    #[error("Transfer-Encoding came with HTTP/1.0: use HTTP/1.1 or Content-Length")]
    TransferEncodingInOldVersion,
    /// A list, parameters, or not a token.
    #[error("Transfer-Encoding is not exactly \"chunked\": send that or Content-Length")]
    BadTransferEncoding,
    /// A single coding that is not supported.
    #[error("the transfer coding is not implemented: use chunked")]
    UnknownTransferCoding,
    /// `Expect` with anything but `100-continue`.
    #[error("the expectation is not supported: only 100-continue is")]
    UnknownExpectation,
}

impl ParseError {
    /// The response to a request with this fault; the connection closes after it.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::RequestLineTooLong { .. } => StatusCode::URI_TOO_LONG,
            Self::HeadTooLong { .. } | Self::TrailerTooLong { .. } | Self::TooManyFields { .. } => {
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
            }
            Self::BodyTooLong { .. } => StatusCode::CONTENT_TOO_LARGE,
            Self::UnknownTransferCoding | Self::TunnelUnsupported => StatusCode::NOT_IMPLEMENTED,
            Self::UnsupportedVersion => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Self::UnknownExpectation => StatusCode::EXPECTATION_FAILED,
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

/// Why a body was refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// The sum of the chunks passed the limit.
    #[error("the body is larger than {limit_bytes} bytes: send less")]
    TooLong {
        /// `Limits::body_bytes_max`.
        limit_bytes: u64,
    },
    /// Not 1 to 16 hexadecimal digits and CRLF.
    #[error("a chunk size is malformed: send hexadecimal digits and CRLF")]
    BadChunkSize,
    /// Not `;name`, `;name=token` or `;name="quoted"`.
    #[error("a chunk extension is malformed: leave extensions out")]
    BadChunkExtension,
    /// The extensions of one chunk, or of all of a body, passed the limit.
    #[error("chunk extensions are longer than {limit_bytes} bytes: leave extensions out")]
    ChunkExtensionTooLong {
        /// `Limits::chunk_extension_bytes_max`, or 16 KiB for a whole body.
        limit_bytes: usize,
    },
    /// Chunk data longer than its size, or a bare CR or LF.
    #[error("a chunk does not end in CRLF where its size says: fix the size")]
    BadChunkEnd,
    /// A trailer line breaks the rules of header fields.
    #[error("a trailer field is malformed: leave trailers out")]
    BadTrailer,
    /// A field that frames or routes the message, after the message.
    #[error("a trailer field is Content-Length, Transfer-Encoding or Host: send it in the head")]
    ForbiddenTrailer,
    /// More trailer fields than a head may have.
    #[error("the trailer section has more than {limit} fields: send fewer")]
    TooManyTrailers {
        /// `Limits::fields_max`.
        limit: usize,
    },
    /// The trailer section passed the limit.
    #[error("the trailer section is longer than {limit_bytes} bytes: leave trailers out")]
    TrailerTooLong {
        /// `Limits::trailer_bytes_max`.
        limit_bytes: usize,
    },
}

impl BodyError {
    /// The response to a request with this fault; the connection closes after it.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::TooLong { .. } => StatusCode::CONTENT_TOO_LARGE,
            Self::TrailerTooLong { .. } | Self::TooManyTrailers { .. } => {
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
            }
            _ => StatusCode::BAD_REQUEST,
        }
    }
}

// Panics of threads that go on after them: counted for the process, logged, and shown on `/metrics`.

/// A thread beside the shards that does not end by a panic.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum HelperThread {
    AccessLog,
    FilesDisk,
}

static COUNTS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The result of `work`; `None`: it panicked, which is counted and logged. The caller goes on, so data that `work`
/// changes must be consistent after each of its steps.
pub(crate) fn catch<T>(thread: HelperThread, work: impl FnOnce() -> T) -> Option<T> {
    let done = panic::catch_unwind(AssertUnwindSafe(work)).ok();
    if done.is_none() {
        note(thread);
    }
    done
}

/// Counts it, and logs the consequence.
fn note(thread: HelperThread) {
    COUNTS[thread as usize].fetch_add(1, Ordering::Relaxed);
    let (name, consequence) = match thread {
        HelperThread::AccessLog => (
            "access log's writer",
            "the entry at hand is lost, others are written",
        ),
        HelperThread::FilesDisk => (
            "disk thread of the file server",
            "the request at hand is answered 500, others go on",
        ),
    };
    log::write(
        LogLevel::Error,
        format_args!("the {name} panicked: {consequence}"),
    );
}

/// How often each has panicked, by its name on `/metrics`.
pub(crate) fn counts() -> [(&'static str, u64); 3] {
    let of = |thread: HelperThread| COUNTS[thread as usize].load(Ordering::Relaxed);
    [
        ("access-log", of(HelperThread::AccessLog)),
        ("files-disk", of(HelperThread::FilesDisk)),
        ("resolver", millpond_io::resolver::panic_count()),
    ]
}
