//! What all requests of a run are written from: ids of keys, values, lines of files.
use super::lines::Lines;
use crate::values::{Values, key_digits, write_key};

/// Longest text before the digits of a key.
pub(crate) const KEY_PREFIX_BYTES_MAX: usize = 64;
/// Longest id of a key.
pub(crate) const KEY_BYTES_MAX: usize = KEY_PREFIX_BYTES_MAX + KEY_DIGITS_MAX;
/// Digits of the largest number.
pub(crate) const KEY_DIGITS_MAX: usize = 20;

/// Shared by all classes and threads.
#[derive(Debug)]
pub(super) struct Sources {
    prefix: Box<[u8]>,
    digits: usize,
    /// The first number that does not fit.
    beyond: u64,
    pub(super) values: Values,
    pub(super) lines: Vec<Lines>,
}

impl Sources {
    /// Keys are `prefix` and a number of `digits` digits, or as many as `keys` keys need.
    pub(super) fn new(prefix: &str, digits: Option<usize>, keys: u64, values: Values) -> Self {
        let digits = digits.unwrap_or_else(|| key_digits(keys));
        Self {
            prefix: prefix.as_bytes().into(),
            digits,
            beyond: 10u64.checked_pow(digits as u32).unwrap_or(u64::MAX),
            values,
            lines: Vec::new(),
        }
    }

    /// Length of every id.
    pub(super) fn key_bytes(&self) -> usize {
        self.prefix.len() + self.digits
    }

    /// `key`, or the last one that the digits have room for.
    pub(super) fn key_at_most(&self, key: u64) -> u64 {
        key.min(self.beyond - 1)
    }

    /// Writes the id of `key`; numbers begin again when the digits are used up.
    pub(super) fn write_key<'a>(&self, key: u64, place: &'a mut [u8; KEY_BYTES_MAX]) -> &'a [u8] {
        let (prefix, rest) = place.split_at_mut(self.prefix.len());
        prefix.copy_from_slice(&self.prefix);
        let key = if key < self.beyond {
            key
        } else {
            key % self.beyond
        };
        write_key(key, &mut rest[..self.digits]);
        &place[..self.key_bytes()]
    }
}
