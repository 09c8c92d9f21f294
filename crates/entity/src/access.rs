//! Permissions for reading and writing: bearer tokens (RFC 6750).
//!
//! `handler` checks before it executes a request, and before it takes a body, so clients without a token use no memory.
//! Without configured tokens a check costs a comparison. Tokens are compared in constant time: the time of a refusal
//! does not reveal how much of a guess was right.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::Ipv6Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millpond_http::FieldValue;
use subtle::{Choice, ConstantTimeEq};

/// Shorter ones can be guessed; 16 letters of base64 are 96 bits.
pub const TOKEN_BYTES_MIN: usize = 16;
/// Longer ones are a mistake.
pub const TOKEN_BYTES_MAX: usize = 512;

/// The right that a request needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Right {
    /// To see entities.
    Read,
    /// To change them, or to copy all of them.
    Write,
}

/// Why a request is not served.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AccessRefusal {
    /// It brings no bearer token.
    NoToken,
    /// It brings one that is not among ours.
    UnknownToken,
    /// Its token is for reading.
    OnlyReads,
}

impl AccessRefusal {
    /// The `WWW-Authenticate` field (RFC 6750, 3: no error code where no token was tried).
    #[must_use]
    pub fn challenge(self) -> FieldValue<'static> {
        const NO_TOKEN: FieldValue<'_> = FieldValue::from_static("Bearer");
        const UNKNOWN: FieldValue<'_> = FieldValue::from_static("Bearer error=\"invalid_token\"");
        const ONLY_READS: FieldValue<'_> =
            FieldValue::from_static("Bearer error=\"insufficient_scope\"");
        match self {
            Self::NoToken => NO_TOKEN,
            Self::UnknownToken => UNKNOWN,
            Self::OnlyReads => ONLY_READS,
        }
    }
}

/// Why a list of tokens is invalid. No message repeats a token: it would appear in a log.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TokensError {
    /// Only empty lines and comments.
    #[error("there is no token: write one on a line of its own")]
    Empty,
    /// Too short or too long.
    #[error(
        "line {line}: a token of {found_bytes} bytes: use {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX}, \
         as `openssl rand -base64 32` makes them"
    )]
    Length {
        /// From 1.
        line: usize,
        /// Of the token.
        found_bytes: usize,
    },
    /// Something that a header field may not carry as a token.
    #[error("line {line}: a token has letters, digits and -._~+/ and may end in =")]
    Malformed {
        /// From 1.
        line: usize,
    },
}

/// Tokens that are worth the same.
#[derive(Clone, Eq, PartialEq)]
pub struct Tokens(Arc<[Box<[u8]>]>);

impl fmt::Debug for Tokens {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} tokens", self.0.len())
    }
}

impl Tokens {
    /// Those of a text, one on each line; empty lines and those that begin with `#` are left out.
    ///
    /// # Errors
    /// [`TokensError`], with the line.
    pub fn parse(text: &str) -> Result<Self, TokensError> {
        let mut tokens = Vec::new();
        for (line, token) in (1..).zip(text.lines().map(str::trim)) {
            if token.is_empty() || token.starts_with('#') {
                continue;
            }
            let found_bytes = token.len();
            if !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&found_bytes) {
                return Err(TokensError::Length { line, found_bytes });
            }
            if !is_token(token.as_bytes()) {
                return Err(TokensError::Malformed { line });
            }
            tokens.push(token.as_bytes().into());
        }
        match tokens.is_empty() {
            true => Err(TokensError::Empty),
            false => Ok(Self(tokens.into())),
        }
    }

    /// Compares with all of them, whatever the result.
    fn contain(&self, token: &[u8]) -> bool {
        let found = self.0.iter().fold(Choice::from(0), |found, ours| {
            found | ours.as_ref().ct_eq(token)
        });
        found.into()
    }
}

/// RFC 6750, 2.1: b64token.
fn is_token(bytes: &[u8]) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(byte);
    let letters = bytes.iter().take_while(|byte| is_letter(byte)).count();
    letters > 0 && bytes[letters..].iter().all(|byte| *byte == b'=')
}

/// Permissions. The default: every client may do everything. Clones share their state: [`Access::replace`] on one of
/// them changes all.
#[derive(Clone, Debug, Default)]
pub struct Access(Option<Arc<AccessShared>>);

#[derive(Debug)]
struct AccessShared {
    /// How often the tokens were replaced.
    epoch: AtomicU64,
    current: Mutex<Sets>,
}

/// The tokens for each right.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Sets {
    readers: Option<Tokens>,
    writers: Tokens,
}

impl AccessShared {
    fn current(&self) -> MutexGuard<'_, Sets> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartialEq for Access {
    fn eq(&self, other: &Self) -> bool {
        let sets = |access: &Self| access.0.as_ref().map(|shared| shared.current().clone());
        sets(self) == sets(other)
    }
}

impl Eq for Access {}

impl Access {
    /// Only `writers` may write. They may read too; others only if they are `readers`; `None`: every client may read.
    #[must_use]
    pub fn limited(writers: Tokens, readers: Option<Tokens>) -> Self {
        Self(Some(Arc::new(AccessShared {
            epoch: AtomicU64::new(0),
            current: Mutex::new(Sets { readers, writers }),
        })))
    }

    /// Whether writing requires a token.
    #[must_use]
    pub fn limits_writes(&self) -> bool {
        self.0.is_some()
    }

    /// From the next request on these tokens count, and no others. Where writing takes none, it does nothing.
    pub fn replace(&self, writers: Tokens, readers: Option<Tokens>) {
        if let Some(shared) = &self.0 {
            *shared.current() = Sets { readers, writers };
            shared.epoch.fetch_add(1, Ordering::Release);
        }
    }

    /// A shard's own copy. Not shared.
    #[must_use]
    pub fn for_shard(&self) -> ShardAccess {
        ShardAccess(self.0.as_ref().map(|shared| {
            // Before the tokens: otherwise old tokens could be stored under the new number and stay.
            let seen = shared.epoch.load(Ordering::Acquire);
            Known {
                seen: Cell::new(seen),
                sets: RefCell::new(shared.current().clone()),
                shared: Arc::clone(shared),
            }
        }))
    }
}

/// A shard's copy of [`Access`]: requests take no lock, except the first one after a change.
#[derive(Debug)]
pub struct ShardAccess(Option<Known>);

#[derive(Debug)]
struct Known {
    seen: Cell<u64>,
    sets: RefCell<Sets>,
    shared: Arc<AccessShared>,
}

impl ShardAccess {
    /// Whether writing requires a token.
    #[must_use]
    pub fn limits_writes(&self) -> bool {
        self.0.is_some()
    }

    /// Whether a request with this `Authorization` field has the right.
    ///
    /// # Errors
    /// [`AccessRefusal`].
    pub fn check(&self, right: Right, authorization: Option<&[u8]>) -> Result<(), AccessRefusal> {
        let Some(known) = &self.0 else {
            return Ok(());
        };
        let epoch = known.shared.epoch.load(Ordering::Acquire);
        if epoch != known.seen.replace(epoch) {
            known.sets.borrow_mut().clone_from(&known.shared.current());
        }
        known.sets.borrow().check(right, authorization)
    }
}

impl Sets {
    fn check(&self, right: Right, authorization: Option<&[u8]>) -> Result<(), AccessRefusal> {
        if right == Right::Read && self.readers.is_none() {
            return Ok(());
        }
        let token = authorization
            .and_then(bearer_token)
            .ok_or(AccessRefusal::NoToken)?;
        let may_read = self.readers.as_ref().is_some_and(|it| it.contain(token));
        let may_write = self.writers.contain(token);
        match right {
            _ if may_write => Ok(()),
            Right::Read if may_read => Ok(()),
            Right::Write if may_read => Err(AccessRefusal::OnlyReads),
            Right::Read | Right::Write => Err(AccessRefusal::UnknownToken),
        }
    }
}

/// The token of a field of the scheme Bearer; the scheme's name has no case (RFC 9110, 11.1).
fn bearer_token(field: &[u8]) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"Bearer ";
    let (scheme, token) = field.split_at_checked(SCHEME.len())?;
    scheme
        .eq_ignore_ascii_case(SCHEME)
        .then_some(token.trim_ascii())
}

// Under which names a server is asked. A page of a stranger's site can have its name lead to this machine (DNS
// rebinding), and then asks with its reader's reach; but in `Host` it has its own name.
//
// Addresses and `localhost` are always allowed: a page has no such name unless it came from there.

/// Names of the server; the default: any.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AllowedHosts(Option<Arc<[String]>>);

/// A name that is none.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "{name:?} is no host's name: write it without port and scheme, or .NAME for all names below it"
)]
pub struct HostNameError {
    /// The name given.
    pub name: String,
}

impl AllowedHosts {
    /// These names, without case; those that begin with a dot match all names below them.
    ///
    /// # Errors
    /// [`HostNameError`].
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, HostNameError> {
        let checked = names.into_iter().map(|name| {
            let rest = name.strip_prefix('.').unwrap_or(name);
            let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            match !rest.is_empty() && !rest.starts_with('.') && rest.bytes().all(is_letter) {
                true => Ok(name.to_ascii_lowercase()),
                false => Err(HostNameError {
                    name: name.to_owned(),
                }),
            }
        });
        Ok(Self(Some(checked.collect::<Result<_, _>>()?)))
    }

    /// Whether a request with this `Host` field (`NAME[:PORT]`) is for this server. Requests without a name are not
    /// from a browser.
    #[must_use]
    pub fn allow(&self, authority: &[u8]) -> bool {
        let Some(names) = &self.0 else {
            return true;
        };
        let host = without_port(authority);
        let host = host.strip_suffix(b".").unwrap_or(host);
        let is = |name: &String| match name.strip_prefix('.') {
            None => host.eq_ignore_ascii_case(name.as_bytes()),
            Some(_) => host
                .len()
                .checked_sub(name.len())
                .is_some_and(|at| at > 0 && host[at..].eq_ignore_ascii_case(name.as_bytes())),
        };
        authority.is_empty()
            || host.eq_ignore_ascii_case(b"localhost")
            || is_address(host)
            || names.iter().any(is)
    }
}

fn without_port(authority: &[u8]) -> &[u8] {
    let end = match authority {
        [b'[', ..] => authority
            .iter()
            .position(|&byte| byte == b']')
            .map(|at| at + 1),
        _ => authority.iter().position(|&byte| byte == b':'),
    };
    &authority[..end.unwrap_or(authority.len())]
}

/// Four numbers, or an address in brackets. Shorter forms of numbers are names here: browsers write them out.
fn is_address(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else {
        return false;
    };
    match host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        Some(six) => six.parse::<Ipv6Addr>().is_ok(),
        None => host.parse::<std::net::Ipv4Addr>().is_ok(),
    }
}

#[cfg(test)]
#[path = "tests/access.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/allowed_hosts.rs"]
mod allowed_hosts_tests;
