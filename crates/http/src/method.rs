//! Request methods: the token as an enum, and what each means for a body.
//!
//! The service decides which methods a path allows.

/// A request method. Anything outside RFC 9110 and PATCH is `Extension`; its token is in the head.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash)]
pub enum Method {
    /// `GET`
    Get,
    /// `HEAD`
    Head,
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `DELETE`
    Delete,
    /// `OPTIONS`
    Options,
    /// `PATCH`
    Patch,
    /// `TRACE`
    Trace,
    /// `CONNECT`: parsed, never served (the server responds with 501).
    Connect,
    /// Any other valid token.
    Extension,
}

/// The names that the `http` crate gives them.
impl Method {
    /// `GET`
    pub const GET: Self = Self::Get;
    /// `HEAD`
    pub const HEAD: Self = Self::Head;
    /// `POST`
    pub const POST: Self = Self::Post;
    /// `PUT`
    pub const PUT: Self = Self::Put;
    /// `DELETE`
    pub const DELETE: Self = Self::Delete;
    /// `OPTIONS`
    pub const OPTIONS: Self = Self::Options;
    /// `PATCH`
    pub const PATCH: Self = Self::Patch;
    /// `TRACE`
    pub const TRACE: Self = Self::Trace;
    /// `CONNECT`
    pub const CONNECT: Self = Self::Connect;
}

impl Method {
    /// Methods are case-sensitive: `get` is an extension, not GET (RFC 9110 9.1).
    #[inline]
    #[must_use]
    pub fn from_token(token: &[u8]) -> Self {
        match token {
            b"GET" => Self::Get,
            b"PUT" => Self::Put,
            b"HEAD" => Self::Head,
            b"POST" => Self::Post,
            b"DELETE" => Self::Delete,
            b"OPTIONS" => Self::Options,
            b"PATCH" => Self::Patch,
            b"TRACE" => Self::Trace,
            b"CONNECT" => Self::Connect,
            _ => Self::Extension,
        }
    }

    /// The token to write. `Extension` has none of its own, so it has no place in a request we make.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Options => "OPTIONS",
            Self::Patch => "PATCH",
            Self::Trace => "TRACE",
            Self::Connect => "CONNECT",
            Self::Extension => "EXTENSION",
        }
    }

    /// Whether it is safe (RFC 9110 9.2.1).
    #[must_use]
    pub fn is_safe(self) -> bool {
        matches!(self, Self::Get | Self::Head | Self::Options | Self::Trace)
    }

    /// Making the request twice means the same as making it once (RFC 9110 9.2.2).
    #[must_use]
    pub fn is_idempotent(self) -> bool {
        match self {
            Self::Get | Self::Head | Self::Put | Self::Delete | Self::Options | Self::Trace => true,
            Self::Post | Self::Patch | Self::Connect | Self::Extension => false,
        }
    }

    /// A request with this method announces its body's length even when it is zero, because a
    /// server may expect one (RFC 9110 8.6).
    #[must_use]
    pub fn announces_empty_body(self) -> bool {
        matches!(self, Self::Post | Self::Put | Self::Patch)
    }
}

impl std::str::FromStr for Method {
    type Err = UnknownMethod;

    fn from_str(token: &str) -> Result<Self, UnknownMethod> {
        match Self::from_token(token.as_bytes()) {
            Self::Extension => Err(UnknownMethod {
                token: token.to_owned(),
            }),
            method => Ok(method),
        }
    }
}

/// A method name on a command line that is not one of RFC 9110's or PATCH.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "unknown method \"{token}\": use GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH, TRACE or CONNECT"
)]
pub struct UnknownMethod {
    /// The value given.
    pub token: String,
}
