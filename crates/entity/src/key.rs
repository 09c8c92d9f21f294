//! Syntax of a valid id: 1 to 1,024 bytes, percent-encoded in the query.
//!
//! `api` cuts the raw `id` parameter out of the request target, this module turns it into the bytes
//! the store sees; the executor copies them only if the request has to wait. An id is bytes:
//! `%C3%A9` and `e` are as good as `%00`, and `+` is a plus sign, not a space (that rule belongs to
//! HTML forms).

use std::hash::{BuildHasher, RandomState};

/// The longest id, in bytes after decoding. One KiB keeps every id well inside a request line
/// (8 KiB) even when each byte is written as `%XX`.
pub const ID_BYTES_MAX: usize = 1024;

const _: () = assert!(3 * ID_BYTES_MAX < 8 * 1024);

/// Why an id was refused. Every variant is the client's fault and gets 400.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum KeyError {
    /// The parameter is there, but has no bytes.
    #[error("the id is empty: give 1 to {ID_BYTES_MAX} bytes")]
    Empty,
    /// More than [`ID_BYTES_MAX`] bytes after decoding.
    #[error("the id has more than {ID_BYTES_MAX} bytes: shorten it")]
    TooLong,
    /// A `%` that two hexadecimal digits do not follow.
    #[error("the id has a bad escape at byte {offset}: write % as %25, and escapes as %XX")]
    BadEscape {
        /// Offset of the `%` in the encoded id.
        offset: usize,
    },
}

/// Room for one decoded id; owned by a shard and used for one request at a time.
pub struct KeyScratch([u8; ID_BYTES_MAX]);

impl KeyScratch {
    /// Empty room.
    #[must_use]
    pub const fn new() -> Self {
        Self([0; ID_BYTES_MAX])
    }
}

impl Default for KeyScratch {
    fn default() -> Self {
        Self::new()
    }
}

/// Decodes an id. Without escapes the result borrows `encoded`; `scratch` is touched only when
/// there is something to decode.
///
/// # Errors
/// [`KeyError`], naming what is wrong.
pub fn decode_id<'a>(encoded: &'a [u8], scratch: &'a mut KeyScratch) -> Result<&'a [u8], KeyError> {
    if encoded.is_empty() {
        return Err(KeyError::Empty);
    }
    let Some(first_escape) = encoded.iter().position(|&byte| byte == b'%') else {
        return if encoded.len() <= ID_BYTES_MAX {
            Ok(encoded)
        } else {
            Err(KeyError::TooLong)
        };
    };
    let mut len = first_escape;
    let plain = scratch.0.get_mut(..len).ok_or(KeyError::TooLong)?;
    plain.copy_from_slice(&encoded[..first_escape]);
    let mut offset = first_escape;
    while offset < encoded.len() {
        let (byte, step) = match encoded[offset] {
            b'%' => (escaped_byte(encoded, offset)?, 3),
            plain => (plain, 1),
        };
        *scratch.0.get_mut(len).ok_or(KeyError::TooLong)? = byte;
        len += 1;
        offset += step;
    }
    Ok(&scratch.0[..len])
}

/// The byte that the escape at `offset` encodes.
fn escaped_byte(encoded: &[u8], offset: usize) -> Result<u8, KeyError> {
    let digit = |at: usize| encoded.get(at).and_then(|&byte| hex_value(byte));
    match (digit(offset + 1), digit(offset + 2)) {
        (Some(high), Some(low)) => Ok(high << 4 | low),
        _ => Err(KeyError::BadEscape { offset }),
    }
}

const fn hex_value(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

// The hash of an id: folded multiplication, seeded at random for each server.

/// The hash of one id.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KeyHash(u64);

impl KeyHash {
    /// Spreads the hash over `0..count` by its high half.
    #[inline]
    pub(crate) fn scale_high(self, count: usize) -> usize {
        ((u128::from(self.0) * count as u128) >> 64) as usize
    }

    /// Spreads the hash over `0..count` by its low half; `count` is below 2^32.
    #[inline]
    pub(crate) fn scale_low(self, count: usize) -> usize {
        (((self.0 & u64::from(u32::MAX)) * count as u64) >> 32) as usize
    }

    /// The high half, to distinguish what the low half put together.
    #[inline]
    pub(crate) fn tag(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Hashes ids under one seed.
#[derive(Clone, Copy)]
pub struct KeyHasher {
    seeds: [u64; 2],
}

impl KeyHasher {
    /// With a seed that no client can know.
    #[must_use]
    pub fn random() -> Self {
        // The standard library seeds from the system and shows it only through SipHash.
        let random = RandomState::new();
        Self {
            seeds: [random.hash_one(0), random.hash_one(1)],
        }
    }

    /// O(`key.len()`), 16 bytes a step.
    #[inline]
    #[must_use]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        let [first, second] = self.seeds;
        // The length distinguishes a key from the same key followed by zero bytes.
        let mut state = first ^ (key.len() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let (chunks, rest) = key.as_chunks::<16>();
        for chunk in chunks {
            state = mix(state, second, chunk);
        }
        if !rest.is_empty() {
            let mut padded = [0; 16];
            padded[..rest.len()].copy_from_slice(rest);
            state = mix(state, second, &padded);
        }
        KeyHash(fold(state ^ second, 0xD6E8_FEB8_6659_FD93))
    }
}

#[inline]
fn mix(state: u64, seed: u64, chunk: &[u8; 16]) -> u64 {
    let bytes = u128::from_le_bytes(*chunk);
    fold(state ^ bytes as u64, seed ^ (bytes >> 64) as u64)
}

/// Both halves of the product, so that each bit of the factors reaches each bit of the result.
#[inline]
fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
#[path = "tests/key.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/key_hash.rs"]
mod key_hash_tests;
