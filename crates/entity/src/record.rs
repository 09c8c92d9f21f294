//! The stored bytes of an entity: a head in front of the value.
//!
//! ```text
//! byte 0       1              2..10            10..18               18..            ..
//! format = 1   type's length  version, LE u64  expires, LE u64 ms   Content-Type    value
//! format = 2   the same                                                             extent
//! ```
//!
//! A Content-Encoding, if there is one, follows the Content-Type and a NUL, which no field value contains; the type's
//! length is that of both.
//!
//! Format 2 is a value that is stored in parts (`parts`): its extent is the value's length, LE u64, and that of each
//! part but the last, LE u32.
//!
//! `handler` writes records and reads them; caches and engines move them as bytes.
//!
//! Why the ETag is a version and not a hash of the value. If-Match exists so that a client does not overwrite changes
//! it has not seen: a hash accepts a value that was changed and changed back, a version does not. A hash also costs a
//! pass over up to 64 MiB on a shard, and has to cover the type as well. Its one advantage, equal tags for equal values
//! put twice, saves a cache a transfer.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Raise it when the bytes change their meaning; `data_dir::FORMAT` has to rise too.
const RECORD_FORMAT: u8 = 1;

/// The same, of a value that is stored in parts.
const RECORD_FORMAT_PARTED: u8 = 2;

/// The head without the Content-Type.
const FIXED_BYTES: usize = 18;

/// The longest Content-Type that is kept, where there is no Content-Encoding.
pub const CONTENT_TYPE_BYTES_MAX: usize = u8::MAX as usize;

/// The longest Content-Encoding that is kept.
pub const CONTENT_ENCODING_BYTES_MAX: usize = 64;

/// Between Content-Type and Content-Encoding.
const SEPARATOR: u8 = 0;

/// The largest head.
pub const HEAD_BYTES_MAX: usize = FIXED_BYTES + CONTENT_TYPE_BYTES_MAX;

/// Low bits of a version that name the shard which gave it out.
const SHARD_BITS: u32 = 11;

/// As many shards can give out versions.
pub const SHARDS_MAX: usize = 1 << SHARD_BITS;

/// Which of the values that an id ever had: no two have the same.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash)]
pub struct Version(pub u64);

impl Version {
    /// When it was given out, in microseconds since 1970 by the server's clock.
    #[must_use]
    pub fn given_out_us(self) -> u64 {
        self.0 >> SHARD_BITS
    }
}

/// The head before a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Head<'a> {
    /// See [`Version`].
    pub version: Version,
    /// When the entity ends, in milliseconds since 1970; 0: never.
    pub expires_ms: u64,
    /// Empty: none was given.
    pub content_type: &'a [u8],
    /// How the value is encoded; empty: not at all.
    pub content_encoding: &'a [u8],
}

/// How long a value is that is stored in parts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Extent {
    /// The whole value; more than 0.
    pub value_bytes: u64,
    /// Each part but the last, which may be shorter; more than 0.
    pub part_bytes: u32,
}

/// An extent as it is stored.
const EXTENT_BYTES: usize = 12;

/// The largest record of a value in parts.
pub(crate) const PARTED_BYTES_MAX: usize = HEAD_BYTES_MAX + EXTENT_BYTES;

impl Extent {
    /// How many parts there are.
    #[must_use]
    pub fn parts(&self) -> u32 {
        let parts = self.value_bytes.div_ceil(u64::from(self.part_bytes));
        u32::try_from(parts).unwrap_or(u32::MAX)
    }

    /// How long a part has to be.
    #[must_use]
    pub fn part_len(&self, index: u32) -> usize {
        let part_bytes = u64::from(self.part_bytes);
        let before = part_bytes.saturating_mul(u64::from(index));
        let left = self.value_bytes.saturating_sub(before);
        usize::try_from(left.min(part_bytes)).unwrap_or(usize::MAX)
    }

    fn to_bytes(self) -> [u8; EXTENT_BYTES] {
        let mut bytes = [0; EXTENT_BYTES];
        let (value_bytes, part_bytes) = bytes.split_at_mut(8);
        value_bytes.copy_from_slice(&self.value_bytes.to_le_bytes());
        part_bytes.copy_from_slice(&self.part_bytes.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; EXTENT_BYTES] = bytes.try_into().ok()?;
        let (value_bytes, part_bytes) = bytes.split_at(8);
        let extent = Self {
            value_bytes: number(value_bytes),
            part_bytes: u32::try_from(number(part_bytes)).ok()?,
        };
        (extent.value_bytes > 0 && extent.part_bytes > 0).then_some(extent)
    }
}

/// The bytes after a head.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Value<'a> {
    /// The value.
    Whole(&'a [u8]),
    /// It is stored in parts, under the record's version.
    Parted(Extent),
}

impl<'a> Value<'a> {
    /// The value, unless it is in parts.
    #[must_use]
    pub fn whole(&self) -> Option<&'a [u8]> {
        match self {
            Self::Whole(value) => Some(value),
            Self::Parted(_) => None,
        }
    }

    /// How long the value is.
    #[must_use]
    pub fn value_bytes(&self) -> u64 {
        match self {
            Self::Whole(value) => value.len() as u64,
            Self::Parted(extent) => extent.value_bytes,
        }
    }
}

/// The bytes are not a record that this build can read.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RecordError {
    /// Written by a later build.
    #[error(
        "a record of format {found} where this build knows {RECORD_FORMAT_PARTED}: use a build as new"
    )]
    UnknownFormat {
        /// Its first byte.
        found: u8,
    },
    /// Parts of its value are not there.
    #[error("{left_bytes} bytes of a value in parts are missing: restore it")]
    MissingParts {
        /// How many.
        left_bytes: u64,
    },
    /// Its value is not in it.
    #[error("a record whose value is in parts, where the value is needed")]
    InParts,
    /// In parts, but without their length.
    #[error("a record in parts has an extent of {found_bytes} bytes that says nothing: restore it")]
    BadExtent {
        /// The bytes after the head.
        found_bytes: usize,
    },
    /// Shorter than its own head.
    #[error("a record of {found_bytes} bytes is shorter than its head of {head_bytes}: restore it")]
    Cut {
        /// The bytes found.
        found_bytes: usize,
        /// The bytes needed, at least.
        head_bytes: usize,
    },
}

impl<'a> Head<'a> {
    /// Writes it; returns how many bytes it takes.
    ///
    /// # Panics
    /// Unless [`Self::fits`].
    pub fn write(&self, room: &mut [u8; HEAD_BYTES_MAX]) -> usize {
        self.write_as(RECORD_FORMAT, room)
    }

    /// Writes the whole record of a value in parts; returns how many bytes it takes.
    ///
    /// # Panics
    /// As [`Self::write`].
    pub(crate) fn write_parted(&self, extent: Extent, room: &mut [u8; PARTED_BYTES_MAX]) -> usize {
        let head_len = self.write_as(RECORD_FORMAT_PARTED, room);
        let len = head_len + EXTENT_BYTES;
        room[head_len..len].copy_from_slice(&extent.to_bytes());
        len
    }

    /// Whether type and encoding are short enough to be stored.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.content_encoding.len() <= CONTENT_ENCODING_BYTES_MAX
            && self.type_len() <= CONTENT_TYPE_BYTES_MAX
    }

    fn type_len(&self) -> usize {
        let encoding_len = match self.content_encoding.len() {
            0 => 0,
            len => 1 + len,
        };
        self.content_type.len() + encoding_len
    }

    fn write_as(&self, format: u8, room: &mut [u8]) -> usize {
        let type_len = u8::try_from(self.type_len()).expect("the caller has checked it");
        room[0] = format;
        room[1] = type_len;
        room[2..10].copy_from_slice(&self.version.0.to_le_bytes());
        room[10..FIXED_BYTES].copy_from_slice(&self.expires_ms.to_le_bytes());
        let len = FIXED_BYTES + usize::from(type_len);
        let (content_type, encoding) = room[FIXED_BYTES..len].split_at_mut(self.content_type.len());
        content_type.copy_from_slice(self.content_type);
        if let Some((separator, encoding)) = encoding.split_first_mut() {
            *separator = SEPARATOR;
            encoding.copy_from_slice(self.content_encoding);
        }
        len
    }

    /// Takes a record apart: its head and its value.
    ///
    /// # Errors
    /// [`RecordError`] for bytes that are no record.
    pub fn split(record: &'a [u8]) -> Result<(Self, Value<'a>), RecordError> {
        let (head, rest) = Self::split_bytes(record)?;
        let value = match record.first() {
            Some(&RECORD_FORMAT_PARTED) => {
                Extent::from_bytes(rest)
                    .map(Value::Parted)
                    .ok_or(RecordError::BadExtent {
                        found_bytes: rest.len(),
                    })?
            }
            _ => Value::Whole(rest),
        };
        Ok((head, value))
    }

    /// The head alone, which may be without what it is the head of.
    ///
    /// # Errors
    /// [`RecordError`] for bytes that are none.
    pub fn of(record: &'a [u8]) -> Result<Self, RecordError> {
        Ok(Self::split_bytes(record)?.0)
    }

    fn split_bytes(record: &'a [u8]) -> Result<(Self, &'a [u8]), RecordError> {
        let cut = |head_bytes| RecordError::Cut {
            found_bytes: record.len(),
            head_bytes,
        };
        match record.first() {
            Some(&(RECORD_FORMAT | RECORD_FORMAT_PARTED)) => {}
            Some(&found) => return Err(RecordError::UnknownFormat { found }),
            None => return Err(cut(FIXED_BYTES)),
        }
        let (fixed, rest) = record
            .split_first_chunk::<FIXED_BYTES>()
            .ok_or(cut(FIXED_BYTES))?;
        let [_, type_len, numbers @ ..] = fixed;
        let (version, expires_ms) = numbers.split_at(8);
        let type_len = usize::from(*type_len);
        let (content_type, value) = rest
            .split_at_checked(type_len)
            .ok_or(cut(FIXED_BYTES + type_len))?;
        let separator = content_type.iter().position(|&byte| byte == SEPARATOR);
        let (content_type, content_encoding) = match separator {
            Some(at) => (&content_type[..at], &content_type[at + 1..]),
            None => (content_type, &[][..]),
        };
        let head = Self {
            version: Version(number(version)),
            expires_ms: number(expires_ms),
            content_type,
            content_encoding,
        };
        Ok((head, value))
    }

    /// Whether the entity has ended.
    #[inline]
    #[must_use]
    pub fn is_expired(&self) -> bool {
        // Few records end at all: then no clock is asked.
        self.expires_ms != 0 && self.expires_ms <= now_ms()
    }
}

/// Eight bytes, least first.
fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// A whole record, for tools and tests; the server builds it in pooled memory.
///
/// # Panics
/// Unless the head [`fits`](Head::fits).
#[must_use]
pub fn encode(head: &Head<'_>, value: &[u8]) -> Vec<u8> {
    let mut room = [0; HEAD_BYTES_MAX];
    let len = head.write(&mut room);
    [&room[..len], value].concat()
}

/// Milliseconds since 1970, by the wall clock: the clock of expiry.
#[must_use]
pub fn now_ms() -> u64 {
    u64::try_from(since_1970().as_millis()).unwrap_or(u64::MAX)
}

fn since_1970() -> Duration {
    // A clock before 1970 is one that is not set.
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// Gives out versions: microseconds by the wall clock, made to rise, and the shard's number.
///
/// Two shards never give out the same, nor one shard twice. After a restart all are larger, also where the clock was set
/// back meanwhile: the directory's note has the time up to which they were given out. A number kept by the engine would
/// need no clock, but would be given out again after a restore, or after writes that `--sync off` lost: to clients that
/// still hold the tags of the lost ones.
#[derive(Debug)]
pub struct Versions {
    last_us: u64,
    shard: u64,
}

impl Versions {
    /// For one shard, of less than [`SHARDS_MAX`].
    #[must_use]
    pub fn new(shard_index: usize) -> Self {
        Self::after(shard_index, 0)
    }

    /// The same, all of later times than this one, in microseconds since 1970.
    #[must_use]
    pub fn after(shard_index: usize, last_us: u64) -> Self {
        assert!(shard_index < SHARDS_MAX, "refused by the configuration");
        Self {
            last_us,
            shard: shard_index as u64,
        }
    }

    /// One that no value has.
    pub fn unused(&mut self) -> Version {
        let now_us = since_1970().as_micros() as u64;
        self.last_us = now_us.max(self.last_us + 1);
        Version(self.last_us << SHARD_BITS | self.shard)
    }
}

#[cfg(test)]
#[path = "tests/record.rs"]
mod tests;
