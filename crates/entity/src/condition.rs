//! If-Match and If-None-Match: on which version of an entity a request depends.
//!
//! `api` reads the fields, `handler` checks reads, and `commit` checks writes: on the writer thread, between the
//! earlier commits and the write itself, so that of two clients that saw the same version one writes and the other is
//! refused.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millpond_http::{BodyHold, Request, SendError, ServiceContext};
use millpond_mempool::{Buffer, PoolError};

use crate::api::Reply;
use crate::executor::Overloaded;
use crate::record::{HEAD_BYTES_MAX, Head, Version, Versions, now_ms};
use crate::uploads::copy_of;

/// So many tags are stored in a condition itself. More, which hardly any client sends, are on the heap: the length of a
/// request's head bounds them, and waiting jobs are counted with them.
pub const INLINE_TAGS: usize = 4;

/// A tag as it is sent: 16 hexadecimal digits in quotes.
pub const TAG_BYTES: usize = 18;

/// Why a condition was refused. The client's fault: 400.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ConditionError {
    /// Neither `*` nor a list of tags.
    #[error("bad entity tags: write * or \"TAG\", \"TAG\"")]
    Malformed,
}

/// Those of our own form are kept; any other matches nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Tags {
    Any,
    Few {
        versions: [Version; INLINE_TAGS],
        count: usize,
    },
    Many(Vec<Version>),
}

impl Tags {
    const NONE: Self = Self::Few {
        versions: [Version(0); INLINE_TAGS],
        count: 0,
    };

    fn matches(&self, current: Option<Version>) -> bool {
        match (self, current) {
            (_, None) => false,
            (Self::Any, Some(_)) => true,
            (Self::Few { versions, count }, Some(current)) => versions[..*count].contains(&current),
            (Self::Many(versions), Some(current)) => versions.contains(&current),
        }
    }

    fn add(&mut self, version: Version) {
        match self {
            Self::Any => {}
            Self::Few { versions, count } => match versions.get_mut(*count) {
                Some(place) => {
                    *place = version;
                    *count += 1;
                }
                None => *self = Self::Many([&versions[..], &[version]].concat()),
            },
            Self::Many(versions) => versions.push(version),
        }
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Self::Any | Self::Few { .. } => 0,
            Self::Many(versions) => versions.capacity() * size_of::<Version>(),
        }
    }
}

/// Both fields of a request.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Condition {
    if_match: Option<Tags>,
    if_none_match: Option<Tags>,
}

/// The response to a read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReadVerdict {
    /// The value.
    Value,
    /// 304: the client has it.
    NotModified,
    /// 412.
    Failed,
}

impl Condition {
    /// Adds a field's value; a field may come more than once.
    ///
    /// # Errors
    /// [`ConditionError`].
    pub fn add_field(&mut self, is_match: bool, value: &[u8]) -> Result<(), ConditionError> {
        let field = match is_match {
            true => &mut self.if_match,
            false => &mut self.if_none_match,
        };
        let tags = field.get_or_insert(Tags::NONE);
        if value.trim_ascii() == b"*" {
            *tags = Tags::Any;
            return Ok(());
        }
        let mut rest = skip_empty(value);
        if rest.is_empty() && !value.trim_ascii().is_empty() {
            return Err(ConditionError::Malformed);
        }
        while !rest.is_empty() {
            let (is_weak, quoted) = match rest.strip_prefix(b"W/") {
                Some(quoted) => (true, quoted),
                None => (false, rest),
            };
            let opaque = quoted
                .strip_prefix(b"\"")
                .ok_or(ConditionError::Malformed)?;
            let end = opaque.iter().position(|&byte| byte == b'"');
            let end = end.ok_or(ConditionError::Malformed)?;
            // If-Match compares strongly: a weak tag matches nothing there (RFC 9110 13.1.1).
            if let Some(version) = version_of(&opaque[..end])
                && !(is_weak && is_match)
            {
                tags.add(version);
            }
            rest = opaque[end + 1..].trim_ascii_start();
            if !rest.is_empty() && !rest.starts_with(b",") {
                return Err(ConditionError::Malformed);
            }
            rest = skip_empty(rest);
        }
        Ok(())
    }

    /// Bytes it holds besides itself.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let fields = [&self.if_match, &self.if_none_match];
        fields.into_iter().flatten().map(Tags::heap_bytes).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.if_match.is_none() && self.if_none_match.is_none()
    }

    /// Whether a write may be done if `current` is there.
    #[must_use]
    pub fn allows_write(&self, current: Option<Version>) -> bool {
        let (if_match, if_none_match) = (&self.if_match, &self.if_none_match);
        if_match.as_ref().is_none_or(|tags| tags.matches(current))
            && !if_none_match
                .as_ref()
                .is_some_and(|tags| tags.matches(current))
    }

    /// The response to a read that found `current`.
    #[must_use]
    pub fn of_read(&self, current: Version) -> ReadVerdict {
        let current = Some(current);
        let (if_match, if_none_match) = (self.if_match.as_ref(), self.if_none_match.as_ref());
        if if_match.is_some_and(|tags| !tags.matches(current)) {
            return ReadVerdict::Failed;
        }
        if if_none_match.is_some_and(|tags| tags.matches(current)) {
            return ReadVerdict::NotModified;
        }
        ReadVerdict::Value
    }
}

/// The tag of a version.
#[must_use]
pub fn tag(version: Version) -> [u8; TAG_BYTES] {
    let mut tag = [b'"'; TAG_BYTES];
    tag[1..TAG_BYTES - 1].copy_from_slice(&hexadecimal(version.0));
    tag
}

/// All digits at once, one in each byte: every response has a tag, and a loop took 480 instructions for it.
fn hexadecimal(number: u64) -> [u8; TAG_BYTES - 2] {
    const ONES: u128 = u128::MAX / 0xff;
    let mut digits = u128::from(number);
    // Halves move apart, until each digit has a byte: those of 32 bits, of 16, of 8 and of 4.
    digits = (digits | digits << 32) & (u128::MAX / 0xffff_ffff_ffff_ffff * 0xffff_ffff);
    digits = (digits | digits << 16) & (u128::MAX / 0xffff_ffff * 0xffff);
    digits = (digits | digits << 8) & (u128::MAX / 0xffff * 0xff);
    digits = (digits | digits << 4) & (ONES * 0xf);
    // Of 10 and more a letter: 6 more is 16 or more.
    let letters = (digits + ONES * 6) >> 4 & ONES;
    (digits + ONES * u128::from(b'0') + letters * u128::from(b'a' - b'9' - 1)).to_be_bytes()
}

/// Behind blanks and elements that are empty, which a list may have (RFC 9110 5.6.1.2).
fn skip_empty(mut rest: &[u8]) -> &[u8] {
    while let [b',' | b' ' | b'\t', behind @ ..] = rest {
        rest = behind;
    }
    rest.trim_ascii_end()
}

fn version_of(opaque: &[u8]) -> Option<Version> {
    let digits: &[u8; TAG_BYTES - 2] = opaque.try_into().ok()?;
    let is_ours = digits
        .iter()
        .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    let text = std::str::from_utf8(digits).ok().filter(|_| is_ours)?;
    u64::from_str_radix(text, 16).ok().map(Version)
}

// Options of a request: its conditions, how many copies are to acknowledge it, and the record of a PUT.

/// Values up to this are copied behind their heads at once. A larger one stays where it was received,
/// and the writer thread puts it behind its head.
const COPIED_BYTES_MAX: usize = 64 * 1024;

/// Options of a request besides the entity.
pub(crate) struct RequestOptions {
    pub(crate) condition: Condition,
    pub(crate) acks: u16,
}

impl RequestOptions {
    pub(crate) fn of(request: &Request<'_>, kept: u16) -> Result<Self, Refusal> {
        Ok(Self {
            condition: condition_of(request)?,
            acks: acks_of(request, kept)?,
        })
    }
}

/// How many of the copies that are kept the request wants to hear from.
pub(crate) fn acks_of(request: &Request<'_>, kept: u16) -> Result<u16, Refusal> {
    let parameter = request.query_parameter(b"replicas");
    Ok(acks(parameter, kept).map_err(Reply::BadReplicas)?)
}

/// Why a request ends here without a value.
pub(crate) enum Refusal {
    Reply(Reply),
    /// The shard's pool has no block left.
    NoMemory,
}

impl From<Reply> for Refusal {
    fn from(reply: Reply) -> Self {
        Self::Reply(reply)
    }
}

impl From<Overloaded> for Refusal {
    fn from(_: Overloaded) -> Self {
        Self::Reply(Reply::Overloaded)
    }
}

impl From<PoolError> for Refusal {
    fn from(_: PoolError) -> Self {
        Self::NoMemory
    }
}

/// All statuses here are final, and each request gets one response: it was out of memory.
impl From<SendError> for Refusal {
    fn from(_: SendError) -> Self {
        Self::NoMemory
    }
}

pub(crate) fn copy(key: &[u8], context: &ServiceContext<'_>) -> Result<Buffer, PoolError> {
    copy_of(key, &context.pools.blocks)
}

/// The first id that can be behind this one: no bytes lie between the two.
pub(crate) fn first_after(key: &[u8], context: &ServiceContext<'_>) -> Result<Buffer, PoolError> {
    let mut first = Buffer::with_capacity(&context.pools.blocks, key.len() + 1)?;
    first.append_all_within_capacity([key, &[0]]);
    Ok(first)
}

/// Both fields of a request that has any: one pass over its fields.
fn condition_of(request: &Request<'_>) -> Result<Condition, Refusal> {
    let mut condition = Condition::default();
    for (name, value) in request.headers() {
        let is_match = name.eq_ignore_ascii_case(b"If-Match");
        if is_match || name.eq_ignore_ascii_case(b"If-None-Match") {
            let added = condition.add_field(is_match, value);
            added.map_err(Reply::BadCondition)?;
        }
    }
    Ok(condition)
}

/// Writes the head of a PUT's record into `room`; returns its length.
fn write_head(
    request: &Request<'_>,
    versions: &mut Versions,
    room: &mut [u8; HEAD_BYTES_MAX],
) -> Result<usize, Refusal> {
    let content_type = request.header("Content-Type").unwrap_or_default();
    let expires_ms = expiry_ms(
        request.query_parameter(b"expires"),
        request.header("Expires"),
    );
    let head = Head {
        version: versions.unused(),
        expires_ms: expires_ms.map_err(Reply::BadExpiry)?,
        content_type,
        content_encoding: match request.header("Content-Encoding") {
            Some(encoding) if !encoding.eq_ignore_ascii_case(b"identity") => encoding,
            Some(_) | None => b"",
        },
    };
    if !head.fits() {
        return Err(Reply::LongContentType.into());
    }
    Ok(head.write(room))
}

/// The head of a PUT's record, whose value comes in parts.
pub(crate) fn head_of(
    request: &Request<'_>,
    versions: &mut Versions,
    context: &ServiceContext<'_>,
) -> Result<Buffer, Refusal> {
    let mut room = [0; HEAD_BYTES_MAX];
    let len = write_head(request, versions, &mut room)?;
    Ok(copy(&room[..len], context)?)
}

/// The record of a PUT: in one piece, or a large value, its head and its hold.
pub(crate) fn record_of(
    request: &mut Request<'_>,
    versions: &mut Versions,
    context: &ServiceContext<'_>,
) -> Result<(Buffer, Buffer, Option<BodyHold>), Refusal> {
    let mut room = [0; HEAD_BYTES_MAX];
    let head_len = write_head(request, versions, &mut room)?;
    let head = &room[..head_len];
    let blocks = &context.pools.blocks;
    let body = request.body();
    if body.len() > COPIED_BYTES_MAX {
        let mut kept = Buffer::with_capacity(blocks, head.len())?;
        kept.append_within_capacity(head);
        let (value, hold) = request.take_held_body(blocks)?;
        return Ok((kept, value, hold));
    }
    let mut record = Buffer::with_capacity(blocks, head.len() + body.len())?;
    record.append_all_within_capacity([head, body]);
    Ok((Buffer::new(), record, None))
}

// The expiry of an entity, as the client gives it.

/// The last second of the year 9999, behind which no HTTP date can be written.
const SECONDS_MAX: u64 = 253_402_300_799;

/// An end that is none. The client's fault: 400.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "bad expiry: write expires=UNIX_SECONDS, expires=+SECONDS from now, or Expires: with an HTTP date"
)]
pub struct ExpiryError;

/// Milliseconds since 1970, or 0 for never. The parameter counts where both are given.
///
/// # Errors
/// [`ExpiryError`].
pub fn expiry_ms(parameter: Option<&[u8]>, field: Option<&[u8]>) -> Result<u64, ExpiryError> {
    match (parameter, field) {
        (Some(parameter), _) => of_parameter(parameter),
        (None, Some(field)) => of_field(field),
        (None, None) => Ok(0),
    }
}

fn of_parameter(text: &[u8]) -> Result<u64, ExpiryError> {
    let from_now = text.strip_prefix(b"+").or_else(|| {
        let encoded = text.strip_prefix(b"%2B");
        encoded.or_else(|| text.strip_prefix(b"%2b"))
    });
    match from_now {
        Some(digits) => {
            let end_ms = now_ms().checked_add(seconds(digits)? * 1000);
            end_ms
                .filter(|&end_ms| end_ms / 1000 <= SECONDS_MAX)
                .ok_or(ExpiryError)
        }
        None => Ok(end(seconds(text)?)),
    }
}

fn seconds(digits: &[u8]) -> Result<u64, ExpiryError> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_number);
    let seconds = text.and_then(|text| text.parse().ok());
    seconds
        .filter(|&seconds| seconds <= SECONDS_MAX)
        .ok_or(ExpiryError)
}

fn of_field(value: &[u8]) -> Result<u64, ExpiryError> {
    let text = std::str::from_utf8(value).map_err(|_| ExpiryError)?;
    let time = httpdate::parse_http_date(text).map_err(|_| ExpiryError)?;
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(end(since.as_secs()))
}

/// 0 would be never: an expiry at 1970's first millisecond is moved to the second one.
fn end(seconds: u64) -> u64 {
    (seconds * 1000).max(1)
}

/// The HTTP date of an end.
#[must_use]
pub fn date_of(expires_ms: u64) -> httpdate::HttpDate {
    let seconds = (expires_ms / 1000).min(SECONDS_MAX);
    let time: SystemTime = UNIX_EPOCH + Duration::from_secs(seconds);
    time.into()
}

// `replicas=ack/from`: how many copies of an entity have to respond before the client gets its response.

/// Why the parameter was refused. The client's fault: 400.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ReplicasError {
    /// Not two numbers.
    #[error("bad replicas: write replicas=ACK/FROM, as in replicas=2/3")]
    Malformed,
    /// No copy has to acknowledge it.
    #[error("replicas=0/{from}: one or more have to answer")]
    None {
        /// The value given.
        from: u16,
    },
    /// More have to respond than there are.
    #[error("replicas={ack}/{from}: no more than {from} can answer")]
    TooMany {
        /// The value given.
        ack: u16,
        /// The value given.
        from: u16,
    },
    /// The store keeps another number of copies.
    #[error("replicas={ack}/{from}: there are {kept} copies here, so write replicas=ACK/{kept}")]
    OtherFrom {
        /// The value given.
        ack: u16,
        /// The value given.
        from: u16,
        /// The copies there are.
        kept: u16,
    },
}

/// More than half of them: two such sets share a copy, so the second one sees writes to the first.
#[must_use]
pub fn quorum(kept: u16) -> u16 {
    kept / 2 + 1
}

/// How many of `kept` copies have to respond; without the parameter a quorum.
///
/// # Errors
/// [`ReplicasError`].
pub fn acks(parameter: Option<&[u8]>, kept: u16) -> Result<u16, ReplicasError> {
    let Some(text) = parameter else {
        return Ok(quorum(kept));
    };
    let (ack, from) = split(text).ok_or(ReplicasError::Malformed)?;
    let ack = number(ack).ok_or(ReplicasError::Malformed)?;
    let from = number(from).ok_or(ReplicasError::Malformed)?;
    match ack {
        0 => Err(ReplicasError::None { from }),
        _ if ack > from => Err(ReplicasError::TooMany { ack, from }),
        _ if from != kept => Err(ReplicasError::OtherFrom { ack, from, kept }),
        _ => Ok(ack),
    }
}

/// Both sides of the slash, which some clients escape.
fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|&byte| byte == b'/' || byte == b'%')?;
    let (ack, rest) = text.split_at(at);
    let from = rest
        .strip_prefix(b"/")
        .or_else(|| rest.strip_prefix(b"%2F"))
        .or_else(|| rest.strip_prefix(b"%2f"))?;
    Some((ack, from))
}

fn number(digits: &[u8]) -> Option<u16> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
    text.parse().ok()
}

#[cfg(test)]
#[path = "tests/condition.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/expiry.rs"]
mod expiry_tests;

#[cfg(test)]
#[path = "tests/replicas.rs"]
mod replicas_tests;
