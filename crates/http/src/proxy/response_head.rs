//! An upstream's response head, written anew for the client.
//!
//! `service` calls it when the head of a response has come; it goes straight into the client's
//! output, framed for the client's version from what was parsed, never copied as a whole. `Date`
//! and `Server` stay the upstream's; a missing `Date` is added (RFC 9110 6.6.1).

use std::fmt;
use std::str::FromStr;

use millpond_mempool::{Buffer, PoolError};

use crate::client::ReceivedHead;
use crate::encode::Persistence;
use crate::head::{FieldSpan, Framing, HeadFields, Version};
use crate::head_text::{Field, FieldName, FieldValue};
use crate::response::Response;
use crate::streaming::Outgoing;

use super::answering::may_pass;
use super::failure::Failure;

/// Of informational heads, and of 101.
static NO_CHANGES: FieldChanges = FieldChanges::none();

/// Everything added, without what comes from the head.
const ADDED_BYTES_MAX: usize = 256;

/// Why a head was not written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum HeadRefused {
    /// No memory for it.
    Memory(PoolError),
    /// Its `Connection` has more options than any server has use for.
    TooManyOptions,
}

impl HeadRefused {
    /// Fields the proxy adds for the client.
    pub(super) fn failure(self) -> Failure {
        match self {
            Self::Memory(_) => Failure::Local,
            Self::TooManyOptions => Failure::BadResponse,
        }
    }
}

/// Writes the final head of a response. On failure nothing was written. True: fields behind its body may
/// go on (see `answering`).
pub(super) fn forward_head(
    response: &mut Response<'_>,
    answer: &ReceivedHead<'_>,
    changes: &FieldChanges,
) -> Result<bool, HeadRefused> {
    // More of the request's body may be to come than is read after a response.
    response.manner = response.manner.answered();
    let status = answer.status();
    let has_no_body = response.manner.is_head() || status.forbids_body();
    // The upstream's length of a body that HEAD or 304 leave out is passed on as well.
    let framing = match has_no_body {
        true => answer.head.announced,
        false => answer.framing,
    };
    let (outgoing, length) = match framing {
        Framing::None => (Outgoing::Length { remaining_bytes: 0 }, Some(0)),
        Framing::Length(bytes) => (
            Outgoing::Length {
                remaining_bytes: bytes,
            },
            Some(bytes),
        ),
        _ if response.manner.is_old_version() => (Outgoing::UntilClose, None),
        _ => (Outgoing::Chunked, None),
    };
    if outgoing == Outgoing::UntilClose && !has_no_body {
        response.manner = response.manner.closing();
    }
    let persistence = response.manner.persistence();
    let nominated = nominated(answer)?;
    let passes_trailers = outgoing == Outgoing::Chunked && may_pass(answer.framing, &nominated);
    begin_head(response, answer, &nominated, passes_trailers, changes)?;
    let output = &mut *response.output;
    match length {
        // 204 may not have one (RFC 9110 8.6).
        Some(length) if status.code() != 204 => {
            let mut digits = itoa::Buffer::new();
            let length = digits.format(length).as_bytes();
            output.append_all_within_capacity([b"Content-Length: ", length, b"\r\n"]);
        }
        None if !has_no_body && outgoing == Outgoing::Chunked => {
            output.append_within_capacity(b"Transfer-Encoding: chunked\r\n");
        }
        _ => {}
    }
    output.append_within_capacity(match persistence {
        Persistence::Silent => b"\r\n",
        Persistence::KeepAlive => b"Connection: keep-alive\r\n\r\n",
        Persistence::Close => b"Connection: close\r\n\r\n",
    });
    response.sent = Some(status);
    response.outgoing = match has_no_body {
        true => Outgoing::Bodyless,
        false => outgoing,
    };
    Ok(passes_trailers)
}

/// Writes an informational head, for a client that supports them. On failure nothing was written.
pub(super) fn forward_informational(
    response: &mut Response<'_>,
    answer: &ReceivedHead<'_>,
) -> Result<(), HeadRefused> {
    begin_head(response, answer, &nominated(answer)?, false, &NO_CHANGES)?;
    response.output.append_within_capacity(b"\r\n");
    Ok(())
}

/// Writes the head of 101, after which the connection carries another protocol.
pub(super) fn forward_switch(
    response: &mut Response<'_>,
    answer: &ReceivedHead<'_>,
) -> Result<(), HeadRefused> {
    let upgrade = answer.fields().get(FieldName::UPGRADE);
    let protocol = upgrade.unwrap_or(FieldValue::EMPTY);
    begin_head(response, answer, &nominated(answer)?, false, &NO_CHANGES)?;
    let output = &mut *response.output;
    output.append_within_capacity(b"Connection: Upgrade\r\n");
    // Room is there: the field was among those that were dropped.
    write_line(output, (FieldName::UPGRADE, protocol));
    output.append_within_capacity(b"\r\n");
    response.sent = Some(answer.status());
    response.outgoing = Outgoing::Tunnel;
    response.manner = response.manner.closing();
    Ok(())
}

fn nominated<'h>(answer: &ReceivedHead<'h>) -> Result<Nominated<'h>, HeadRefused> {
    Nominated::of(answer.bytes, answer.fields).map_err(|_| HeadRefused::TooManyOptions)
}

/// The status line and all fields but those about the connection, in room for the whole head.
fn begin_head(
    response: &mut Response<'_>,
    answer: &ReceivedHead<'_>,
    nominated: &Nominated<'_>,
    passes_trailers: bool,
    changes: &FieldChanges,
) -> Result<(), HeadRefused> {
    let (bytes, fields) = (answer.bytes, answer.fields);
    let bytes_max = bytes.len() + 2 * fields.len() + changes.lines().len() + ADDED_BYTES_MAX;
    let reserved = response.output.reserve(response.blocks, bytes_max);
    reserved.map_err(HeadRefused::Memory)?;
    let output = &mut *response.output;
    let mut digits = itoa::Buffer::new();
    let status = digits.format(answer.status().code()).as_bytes();
    let reason = answer.head.reason.of(bytes);
    output.append_all_within_capacity([b"HTTP/1.1 ", status, b" ", reason, b"\r\n"]);
    let mut has_date = false;
    for field in fields.spans() {
        let (name, value) = field.received(bytes);
        let rule = FieldRule::of(name.as_bytes());
        let passes = match rule {
            FieldRule::Drop | FieldRule::Connection | FieldRule::Te => false,
            FieldRule::Trailer => passes_trailers,
            // One is all that a response has (RFC 9110 5.3): the first.
            FieldRule::Date => !has_date,
            _ => true,
        };
        let passes = passes && !changes.drops(name.as_bytes());
        if passes && !nominated.has(name.as_bytes()) {
            has_date |= rule == FieldRule::Date;
            write_line(output, (name, value));
        }
    }
    output.append_within_capacity(changes.lines());
    if !has_date && !answer.status().is_informational() {
        output.append_within_capacity(response.standing_lines.date_line());
    }
    output.append_within_capacity(match answer.head.version {
        Version::Http11 => b"Via: 1.1 millpond\r\n",
        Version::Http10 => b"Via: 1.0 millpond\r\n",
    });
    Ok(())
}

fn write_line(output: &mut Buffer, (name, value): Field<'_>) {
    let (name, value) = (name.as_bytes(), value.as_bytes());
    output.append_all_within_capacity([name, b": ", value, b"\r\n"]);
}

// Fields that the operator sets, adds or removes, of requests to upstreams and of their responses.
//
// A change cannot apply to fields that frame a message, are about one connection, or are written by the proxy: two
// sides would disagree. Without changes, a head costs one check of an empty list.

/// Changes of one direction: each costs a comparison with each field.
const CHANGES_MAX: usize = 32;
/// Bytes of all lines that they write.
const LINES_BYTES_MAX: usize = 4096;

/// One change, as it is written: `NAME: VALUE`, `+NAME: VALUE` or `-NAME`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FieldChange {
    /// Replaces all fields of this name.
    Set(String, String),
    /// Behind the others.
    Add(String, String),
    /// All fields of this name.
    Remove(String),
}

/// A change that cannot be made.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FieldChangeError {
    /// Not one of the three forms, or a byte that no field has.
    #[error(
        "{text:?} is no change of a field: write NAME: VALUE to set it, +NAME: VALUE to add it, or -NAME to \
         remove it"
    )]
    Malformed {
        /// As it was given.
        text: String,
    },
    /// The proxy writes it, or it is about one connection.
    #[error("{name} cannot be changed: it is about the connection, or the proxy writes it itself")]
    Reserved {
        /// The field.
        name: String,
    },
    /// A `*`, which is a character of names: no real field is called so.
    #[error("{name} is the name of one field, not a pattern: name each field by itself")]
    Pattern {
        /// The value given.
        name: String,
    },
    /// More than are compared with each field.
    #[error("{count} changes of fields are too many: give at most {CHANGES_MAX}")]
    TooMany {
        /// How many.
        count: usize,
    },
    /// More bytes than a head has room for.
    #[error(
        "the fields that are set have {bytes} bytes: they can have at most {LINES_BYTES_MAX} together"
    )]
    TooLong {
        /// How many.
        bytes: usize,
    },
}

impl FromStr for FieldChange {
    type Err = FieldChangeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || FieldChangeError::Malformed {
            text: text.to_owned(),
        };
        let (kind, rest) = match text.as_bytes().first() {
            Some(b'+') => ('+', &text[1..]),
            Some(b'-') => ('-', &text[1..]),
            _ => ('=', text),
        };
        let (name, value) = match (kind, rest.split_once(':')) {
            ('-', None) => (rest, ""),
            ('+' | '=', Some((name, value))) => (name, value.trim_matches([' ', '\t'])),
            _ => return Err(malformed()),
        };
        // First: a name that frames a message is no name of a field to be written either.
        if FieldRule::of(name.as_bytes()) != FieldRule::PassOn {
            return Err(FieldChangeError::Reserved {
                name: name.to_owned(),
            });
        }
        if FieldName::new(name).is_err() || FieldValue::new(value).is_err() {
            return Err(malformed());
        }
        let (name, value) = (name.to_owned(), value.to_owned());
        if name.contains('*') {
            return Err(FieldChangeError::Pattern { name });
        }
        Ok(match kind {
            '-' => Self::Remove(name),
            '+' => Self::Add(name, value),
            _ => Self::Set(name, value),
        })
    }
}

impl fmt::Display for FieldChange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(name, value) => write!(formatter, "{name}: {value}"),
            Self::Add(name, value) => write!(formatter, "+{name}: {value}"),
            Self::Remove(name) => write!(formatter, "-{name}"),
        }
    }
}

/// All changes of one direction, ready to be made.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FieldChanges {
    /// Names of fields that do not pass.
    dropped: Vec<String>,
    /// Lines written after the others, each with its end.
    lines: Vec<u8>,
}

impl FieldChanges {
    /// Nothing is changed.
    pub(super) const fn none() -> Self {
        Self {
            dropped: Vec::new(),
            lines: Vec::new(),
        }
    }

    /// In this order.
    ///
    /// # Errors
    /// When there are too many, or their lines are too long.
    pub fn new(changes: &[FieldChange]) -> Result<Self, FieldChangeError> {
        if changes.len() > CHANGES_MAX {
            return Err(FieldChangeError::TooMany {
                count: changes.len(),
            });
        }
        let mut all = Self::default();
        for change in changes {
            if let FieldChange::Set(name, _) | FieldChange::Remove(name) = change {
                all.dropped.push(name.clone());
            }
            if let FieldChange::Set(name, value) | FieldChange::Add(name, value) = change {
                for part in [name, ": ", value, "\r\n"] {
                    all.lines.extend_from_slice(part.as_bytes());
                }
            }
        }
        match all.lines.len() {
            0..=LINES_BYTES_MAX => Ok(all),
            bytes => Err(FieldChangeError::TooLong { bytes }),
        }
    }

    /// Whether a received field is dropped.
    #[inline]
    pub(super) fn drops(&self, name: &[u8]) -> bool {
        let mut dropped = self.dropped.iter();
        dropped.any(|it| is_same_name(it.as_bytes(), name))
    }

    /// Lines after the fields that pass.
    pub(super) fn lines(&self) -> &[u8] {
        &self.lines
    }
}

// What a proxy does with a field, by its name: pass it on, drop it, or write it itself.
//
// Names are compared with `_` taken for `-`. A server behind a CGI-like interface reads `X_Real_IP` and `X-Real-IP` as
// one variable: a proxy that drops only one of them lets the client set the field of the proxy. The spelling with `_`
// of a field that has a rule is dropped, from trusted peers too: these pass on their clients' fields, and write the
// field itself with `-`.

/// The rule for a field.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum FieldRule {
    /// It is between client and server.
    PassOn,
    /// It is about one connection, or about framing, which is written anew.
    Drop,
    /// Its options name further fields to drop.
    Connection,
    Host,
    Via,
    Forwarded,
    ForwardedFor,
    ForwardedProto,
    ForwardedHost,
    /// Other fields that proxies add about clients.
    ForwardedOther,
    MaxForwards,
    Date,
    /// Framing that the sender accepts: chunks in any case, and perhaps trailers.
    Te,
    /// Which fields will follow the body.
    Trailer,
}

/// A byte of a name, for comparing: in lower case, and `-` for `_`.
#[inline(always)]
const fn folded(byte: u8) -> u8 {
    match byte {
        b'_' => b'-',
        byte => byte.to_ascii_lowercase(),
    }
}

/// Field names are the same without regard to case, and to `_` for `-`. The length is known where it
/// is compiled, so that all bytes are compared at once.
#[inline]
pub(super) fn is<const LENGTH: usize>(name: &[u8], lower_case: &[u8; LENGTH]) -> bool {
    let Ok(name) = <&[u8; LENGTH]>::try_from(name) else {
        return false;
    };
    let mut differing = 0;
    for (&byte, &expected) in name.iter().zip(lower_case) {
        differing |= folded(byte) ^ expected;
    }
    differing == 0
}

pub(super) fn begins<const LENGTH: usize>(name: &[u8], lower_case: &[u8; LENGTH]) -> bool {
    name.get(..LENGTH)
        .is_some_and(|begin| is(begin, lower_case))
}

/// The same for names of any length.
pub(super) fn is_same_name(one: &[u8], other: &[u8]) -> bool {
    let mut pairs = one.iter().zip(other);
    one.len() == other.len() && pairs.all(|(&one, &other)| folded(one) == folded(other))
}

impl FieldRule {
    #[inline]
    pub(super) fn of(name: &[u8]) -> Self {
        match Self::of_either_spelling(name) {
            Self::PassOn => Self::PassOn,
            _ if name.contains(&b'_') => Self::Drop,
            rule => rule,
        }
    }

    /// By length first: most names that pass on differ in it from all that do not.
    #[inline]
    fn of_either_spelling(name: &[u8]) -> Self {
        match name.len() {
            2 if is(name, b"te") => Self::Te,
            3 if is(name, b"via") => Self::Via,
            4 if is(name, b"host") => Self::Host,
            4 if is(name, b"date") => Self::Date,
            5 if is(name, b"proxy") => Self::Drop,
            6 if is(name, b"expect") => Self::Drop,
            7 if is(name, b"trailer") => Self::Trailer,
            7 if is(name, b"upgrade") => Self::Drop,
            9 if is(name, b"forwarded") => Self::Forwarded,
            9 if is(name, b"x-real-ip") => Self::ForwardedOther,
            10 if is(name, b"connection") => Self::Connection,
            10 if is(name, b"keep-alive") => Self::Drop,
            12 if is(name, b"max-forwards") => Self::MaxForwards,
            14 if is(name, b"content-length") || is(name, b"http2-settings") => Self::Drop,
            15 if is(name, b"x-forwarded-for") => Self::ForwardedFor,
            16 if is(name, b"x-forwarded-host") => Self::ForwardedHost,
            17 if is(name, b"transfer-encoding") => Self::Drop,
            17 if is(name, b"x-forwarded-proto") => Self::ForwardedProto,
            _ => Self::by_beginning(name),
        }
    }

    /// Of a name that no rule is about as a whole.
    #[inline]
    fn by_beginning(name: &[u8]) -> Self {
        match name.first() {
            // Proxy-Connection, Proxy-Authorization and what else is meant for a proxy.
            Some(b'p' | b'P') if begins(name, b"proxy-") => Self::Drop,
            Some(b'x' | b'X') if begins(name, b"x-forwarded-") => Self::ForwardedOther,
            _ => Self::PassOn,
        }
    }
}

/// Whether a value of `TE` accepts trailers (RFC 9110 10.1.4).
pub(super) fn welcomes_trailers(value: &[u8]) -> bool {
    let mut options = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    options.any(|option| is(option, b"trailers"))
}

/// Options of `Connection` that are checked; real senders use fewer.
const OPTIONS_MAX: usize = 16;

/// The fields that a head's `Connection` names. Nearly always none: they are counted, and searched again if there are
/// any.
pub(super) struct Nominated<'h> {
    head: &'h [u8],
    fields: &'h HeadFields,
    count: usize,
    pub(super) has_upgrade: bool,
    /// It names others than those that every message has to name.
    pub(super) has_fields: bool,
}

/// More options than any sender has use for: each costs a pass over every field.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct TooManyOptions;

impl<'h> Nominated<'h> {
    pub(super) fn of(head: &'h [u8], fields: &'h HeadFields) -> Result<Self, TooManyOptions> {
        let mut nominated = Self {
            head,
            fields,
            count: 0,
            has_upgrade: false,
            has_fields: false,
        };
        for field in fields.spans() {
            if is(field.name.of(head), b"connection") {
                nominated.add(field.value.of(head))?;
            }
        }
        Ok(nominated)
    }

    #[cold]
    fn add(&mut self, value: &[u8]) -> Result<(), TooManyOptions> {
        for option in options(value) {
            let is_upgrade = is(option, b"upgrade");
            self.has_upgrade |= is_upgrade;
            self.has_fields |= !is_upgrade && !is(option, b"te");
            self.count += 1;
        }
        match self.count > OPTIONS_MAX {
            true => Err(TooManyOptions),
            false => Ok(()),
        }
    }

    #[inline]
    pub(super) fn has(&self, name: &[u8]) -> bool {
        self.count > 0 && self.finds(name)
    }

    #[cold]
    fn finds(&self, name: &[u8]) -> bool {
        let is_connection = |field: &&FieldSpan| is(field.name.of(self.head), b"connection");
        let mut found = self.fields.spans().iter().filter(is_connection);
        found.any(|field| {
            options(field.value.of(self.head)).any(|nominated| is_same_name(nominated, name))
        })
    }
}

/// The options of one `Connection` that name a field.
fn options(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let options = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    options.filter(|option| {
        let is_known = is(option, b"close") || is(option, b"keep-alive");
        !option.is_empty() && !is_known
    })
}

// Received heads and the heads written for them: an equal head is then compared and copied, not parsed again.

/// Longer ones are written anew each time.
const RECEIVED_BYTES_MAX: usize = 1024;
/// With what the proxy adds.
const WRITTEN_BYTES_MAX: usize = RECEIVED_BYTES_MAX + 512;
/// A power of two. Sixteen clients with fields of their own, or sixteen pages.
const PLACES: usize = 16;

/// The text written for some bytes, given `key`, and its result.
#[derive(Debug)]
struct WrittenHead<K, R> {
    /// `None`: nothing is remembered here.
    made_from: Option<(K, R)>,
    received: Vec<u8>,
    written: Vec<u8>,
}

/// Received heads with their written form. Some 40 KiB for each shard, reserved at once, touched only when used.
#[derive(Debug)]
pub(super) struct HeadMemory<K, R> {
    places: Box<[WrittenHead<K, R>]>,
}

impl<K, R: Copy> HeadMemory<K, R> {
    /// Remembers nothing yet.
    pub(super) fn new() -> Self {
        let place = |_| WrittenHead {
            made_from: None,
            received: Vec::with_capacity(RECEIVED_BYTES_MAX),
            written: Vec::with_capacity(WRITTEN_BYTES_MAX),
        };
        Self {
            places: (0..PLACES).map(place).collect(),
        }
    }

    /// The text written for `received` with a key that `is_equal`, and its result. `salt` distinguishes keys that come
    /// with the same bytes; equal keys have equal ones.
    #[inline]
    pub(super) fn find(
        &self,
        received: &[u8],
        is_equal: impl FnOnce(&K) -> bool,
        salt: u64,
    ) -> Option<(&[u8], R)> {
        let place = &self.places[place_of(received, salt)];
        let (made_from, result) = place.made_from.as_ref()?;
        let is_same = received == place.received && is_equal(made_from);
        is_same.then_some((&place.written, *result))
    }

    /// From now on this is what `received` and `key` give. Copies both heads, allocates nothing.
    pub(super) fn remember(
        &mut self,
        (received, key, salt): (&[u8], K, u64),
        written: &[u8],
        result: R,
    ) {
        if received.len() > RECEIVED_BYTES_MAX || written.len() > WRITTEN_BYTES_MAX {
            return;
        }
        let place = &mut self.places[place_of(received, salt)];
        place.received.clear();
        place.received.extend_from_slice(received);
        place.written.clear();
        place.written.extend_from_slice(written);
        place.made_from = Some((key, result));
    }
}

/// By the length and by the end of the last line, behind which there are two line ends.
#[inline]
fn place_of(received: &[u8], salt: u64) -> usize {
    let end = received
        .last_chunk::<12>()
        .and_then(|end| end.first_chunk());
    let end = end.map_or(0, |end| u64::from_le_bytes(*end));
    let mixed = (end ^ salt ^ received.len() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> (u64::BITS - PLACES.ilog2())) as usize
}

#[cfg(test)]
#[path = "tests/response_head.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/field_change.rs"]
mod field_change_tests;

#[cfg(test)]
#[path = "tests/field_rule.rs"]
mod field_rule_tests;

#[cfg(test)]
#[path = "tests/head_memory.rs"]
mod head_memory_tests;
