//! Status codes: the three digits, their reason phrase, and which of them carry no body.

/// A status code from 100 to 599.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct StatusCode(u16);

macro_rules! status_codes {
    ($($name:ident = $code:literal $reason:literal;)*) => {
        impl StatusCode {
            $(#[doc = concat!(stringify!($code), " ", $reason)]
            pub const $name: Self = Self($code);)*

            /// The reason phrase of RFC 9110, or an empty one for a code it does not name.
            pub fn reason(self) -> &'static str {
                match self.0 { $($code => $reason,)* _ => "" }
            }

            /// The whole first line of a response with this status, when it is a named one.
            pub(crate) fn status_line(self) -> Option<&'static [u8]> {
                match self.0 {
                    $($code => Some(
                        concat!("HTTP/1.1 ", stringify!($code), " ", $reason, "\r\n").as_bytes()
                    ),)*
                    _ => None,
                }
            }
        }
    };
}

status_codes! {
    CONTINUE = 100 "Continue";
    OK = 200 "OK";
    CREATED = 201 "Created";
    ACCEPTED = 202 "Accepted";
    NO_CONTENT = 204 "No Content";
    PARTIAL_CONTENT = 206 "Partial Content";
    MOVED_PERMANENTLY = 301 "Moved Permanently";
    FOUND = 302 "Found";
    NOT_MODIFIED = 304 "Not Modified";
    BAD_REQUEST = 400 "Bad Request";
    UNAUTHORIZED = 401 "Unauthorized";
    FORBIDDEN = 403 "Forbidden";
    NOT_FOUND = 404 "Not Found";
    METHOD_NOT_ALLOWED = 405 "Method Not Allowed";
    REQUEST_TIMEOUT = 408 "Request Timeout";
    CONFLICT = 409 "Conflict";
    LENGTH_REQUIRED = 411 "Length Required";
    PRECONDITION_FAILED = 412 "Precondition Failed";
    CONTENT_TOO_LARGE = 413 "Content Too Large";
    URI_TOO_LONG = 414 "URI Too Long";
    UNSUPPORTED_MEDIA_TYPE = 415 "Unsupported Media Type";
    MISDIRECTED_REQUEST = 421 "Misdirected Request";
    RANGE_NOT_SATISFIABLE = 416 "Range Not Satisfiable";
    EXPECTATION_FAILED = 417 "Expectation Failed";
    TOO_MANY_REQUESTS = 429 "Too Many Requests";
    REQUEST_HEADER_FIELDS_TOO_LARGE = 431 "Request Header Fields Too Large";
    INTERNAL_SERVER_ERROR = 500 "Internal Server Error";
    NOT_IMPLEMENTED = 501 "Not Implemented";
    BAD_GATEWAY = 502 "Bad Gateway";
    SERVICE_UNAVAILABLE = 503 "Service Unavailable";
    GATEWAY_TIMEOUT = 504 "Gateway Timeout";
    LOOP_DETECTED = 508 "Loop Detected";
    HTTP_VERSION_NOT_SUPPORTED = 505 "HTTP Version Not Supported";
    INSUFFICIENT_STORAGE = 507 "Insufficient Storage";
}

impl StatusCode {
    /// Lowest code a response can carry.
    pub const CODE_MIN: u16 = 100;
    /// Highest code a response can carry; RFC 9110 15 has no class above 5xx.
    pub const CODE_MAX: u16 = 599;

    /// A code from 100 to 599, or none.
    #[must_use]
    pub const fn new(code: u16) -> Option<Self> {
        if code >= Self::CODE_MIN && code <= Self::CODE_MAX {
            Some(Self(code))
        } else {
            None
        }
    }

    /// The three digits as a number.
    #[must_use]
    pub const fn code(self) -> u16 {
        self.0
    }

    /// [`Self::code`], as the `http` crate calls it.
    #[must_use]
    pub const fn as_u16(self) -> u16 {
        self.0
    }

    /// 2xx
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 / 100 == 2
    }

    /// 1xx: another response follows for the same request.
    #[must_use]
    pub const fn is_informational(self) -> bool {
        self.0 < 200
    }

    /// 1xx, 204 and 304 never have a body, whatever their fields say (RFC 9112 6.3).
    #[must_use]
    pub const fn forbids_body(self) -> bool {
        self.0 < 200 || self.0 == 204 || self.0 == 304
    }
}

impl std::fmt::Display for StatusCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.0, self.reason())
    }
}
