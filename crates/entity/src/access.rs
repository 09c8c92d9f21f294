//! Who may read and who may write: bearer tokens (RFC 6750).
//!
//! On the path: `handler` asks before it does what a request wants, and before it takes a body, so that
//! whoever has no token leaves nothing in memory. Where no tokens were given, it costs a comparison.
//! Tokens are compared in constant time: how long a refusal takes says nothing about how much of a
//! guess was right.
//! Absent on purpose: users, rights over single ids, and any protection of a token on its way, which
//! is TLS's.

use millpond_http::FieldValue;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use subtle::{Choice, ConstantTimeEq};

/// Shorter ones can be guessed; 16 letters of base64 are 96 bits.
pub const TOKEN_BYTES_MIN: usize = 16;
/// Longer ones are somebody's mistake.
pub const TOKEN_BYTES_MAX: usize = 512;

/// What a request needs a token for.
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

/// Why a list of tokens is none. No sentence repeats a token: it would stand in a log.
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

    /// Looks at all of them, whatever it finds.
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

/// Who may do what. The default: everybody everything. Clones are one and the same: what [`Access::replace`] gives one of
/// them, all have.
#[derive(Clone, Debug, Default)]
pub struct Access(Option<Arc<Shared>>);

#[derive(Debug)]
struct Shared {
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

impl Shared {
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
    /// Only `writers` may write. They may read too; others only if they are `readers`, or if everybody
    /// may, which `None` says.
    #[must_use]
    pub fn limited(writers: Tokens, readers: Option<Tokens>) -> Self {
        Self(Some(Arc::new(Shared {
            epoch: AtomicU64::new(0),
            current: Mutex::new(Sets { readers, writers }),
        })))
    }

    /// Whether writing takes a token.
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
            // Before the tokens: with older ones than the number says, they would stay.
            let seen = shared.epoch.load(Ordering::Acquire);
            Known {
                seen: Cell::new(seen),
                sets: RefCell::new(shared.current().clone()),
                shared: Arc::clone(shared),
            }
        }))
    }
}

/// What a shard knows of [`Access`]: requests take no lock, but for the first one behind a change.
#[derive(Debug)]
pub struct ShardAccess(Option<Known>);

#[derive(Debug)]
struct Known {
    seen: Cell<u64>,
    sets: RefCell<Sets>,
    shared: Arc<Shared>,
}

impl ShardAccess {
    /// Whether writing takes a token.
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

#[cfg(test)]
mod tests {
    use super::*;

    const READER: &str = "reader-0123456789";
    const WRITER: &str = "writer-0123456789==";

    fn limited(readers: Option<&str>) -> Access {
        let of = |text: &str| Tokens::parse(text).unwrap();
        Access::limited(of(WRITER), readers.map(of))
    }

    /// Goal: each right with each token, and with what is nearly one.
    #[test]
    fn rights_follow_from_tokens() {
        use AccessRefusal::{NoToken, OnlyReads, UnknownToken};
        use Right::{Read, Write};
        let bearer = |token: &str| Some(format!("Bearer {token}"));
        let cut = bearer(&WRITER[..18]);
        let cases = [
            (None, Err(NoToken), Err(NoToken)),
            (Some("Basic dTpw".to_owned()), Err(NoToken), Err(NoToken)),
            (Some("Bearer".to_owned()), Err(NoToken), Err(NoToken)),
            (bearer(""), Err(UnknownToken), Err(UnknownToken)),
            (cut, Err(UnknownToken), Err(UnknownToken)),
            (bearer(READER), Ok(()), Err(OnlyReads)),
            (bearer(WRITER), Ok(()), Ok(())),
            (Some(format!("bearer   {WRITER}")), Ok(()), Ok(())),
        ];
        let access = limited(Some(READER)).for_shard();
        for (field, read, write) in &cases {
            let field = field.as_deref().map(str::as_bytes);
            assert_eq!(access.check(Read, field), *read, "{field:?}");
            assert_eq!(access.check(Write, field), *write, "{field:?}");
        }
        let open_to_readers = limited(None).for_shard();
        assert_eq!(open_to_readers.check(Read, None), Ok(()));
        assert_eq!(open_to_readers.check(Write, None), Err(NoToken));
        let field = bearer(READER).unwrap();
        let reader = Some(field.as_bytes());
        assert_eq!(open_to_readers.check(Write, reader), Err(UnknownToken));
        for right in [Read, Write] {
            assert_eq!(Access::default().for_shard().check(right, None), Ok(()));
        }
    }

    /// Goal: every shard knows other tokens from the next request on, whenever it began, and the old ones no more.
    #[test]
    fn tokens_are_replaced() {
        let access = limited(Some(READER));
        let shards = [access.for_shard(), access.clone().for_shard()];
        let field = |token: &str| format!("Bearer {token}").into_bytes();
        let new = Tokens::parse("newer-0123456789").unwrap();
        access.replace(new, Some(Tokens::parse(READER).unwrap()));
        for shard in shards.iter().chain([&access.for_shard()]) {
            let old = shard.check(Right::Write, Some(&field(WRITER)));
            assert_eq!(old, Err(AccessRefusal::UnknownToken));
            assert_eq!(
                shard.check(Right::Write, Some(&field("newer-0123456789"))),
                Ok(())
            );
            assert_eq!(shard.check(Right::Read, Some(&field(READER))), Ok(()));
        }
    }

    /// Goal: a file may have comments and several tokens; what is none is named by its line, and no
    /// token is ever shown.
    #[test]
    fn lists_are_read_and_mistakes_named() {
        let text = format!("# ours\n\n{READER}\n  {WRITER}\r\n");
        let tokens = Tokens::parse(&text).unwrap();
        assert!(tokens.contain(READER.as_bytes()) && tokens.contain(WRITER.as_bytes()));
        assert_eq!(format!("{tokens:?}"), "2 tokens");
        let long = "a".repeat(TOKEN_BYTES_MAX + 1);
        for (text, error) in [
            ("# nothing\n", TokensError::Empty),
            (
                "\nshort",
                TokensError::Length {
                    line: 2,
                    found_bytes: 5,
                },
            ),
            (
                &*long,
                TokensError::Length {
                    line: 1,
                    found_bytes: 513,
                },
            ),
            ("two words are none", TokensError::Malformed { line: 1 }),
            ("====================", TokensError::Malformed { line: 1 }),
            ("0123456789=0123456789", TokensError::Malformed { line: 1 }),
        ] {
            assert_eq!(Tokens::parse(text), Err(error), "{text}");
            assert!(!error.to_string().contains(text), "{error}");
        }
    }
}
