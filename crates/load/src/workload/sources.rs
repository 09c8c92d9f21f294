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
pub(crate) struct Sources {
    prefix: Box<[u8]>,
    digits: usize,
    /// The first number that does not fit.
    beyond: u64,
    pub(crate) values: Values,
    pub(super) lines: Vec<Lines>,
}

impl Sources {
    /// Keys are `prefix` and a number of `digits` digits, or as many as `keys` keys need.
    pub(crate) fn new(prefix: &str, digits: Option<usize>, keys: u64, values: Values) -> Self {
        let digits = digits.unwrap_or_else(|| key_digits(keys));
        Self {
            prefix: prefix.as_bytes().into(),
            digits,
            beyond: 10u64.checked_pow(digits as u32).unwrap_or(u64::MAX),
            values,
            lines: Vec::new(),
        }
    }

    /// What is known of the answer about `key`, its value included.
    #[cfg(test)]
    pub(crate) fn expected(&self, key: u64) -> Expected<'_> {
        Expected {
            sources: self,
            key,
            has_value: true,
        }
    }

    /// Length of every id.
    pub(crate) fn key_bytes(&self) -> usize {
        self.prefix.len() + self.digits
    }

    /// `key`, or the last one that the digits have room for.
    pub(crate) fn key_at_most(&self, key: u64) -> u64 {
        key.min(self.beyond - 1)
    }

    /// Writes the id of `key`; numbers begin again when the digits are used up.
    pub(crate) fn write_key<'a>(&self, key: u64, place: &'a mut [u8; KEY_BYTES_MAX]) -> &'a [u8] {
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

/// What is known beforehand of the answer to one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected<'a> {
    pub(super) sources: &'a Sources,
    pub(super) key: u64,
    pub(super) has_value: bool,
}

impl<'a> Expected<'a> {
    /// The value that its body must be.
    pub(crate) fn value(&self) -> Option<(&'a Values, u64)> {
        self.has_value.then_some((&self.sources.values, self.key))
    }

    /// The id of its key.
    pub(crate) fn key_id<'b>(&self, place: &'b mut [u8; KEY_BYTES_MAX]) -> &'b [u8] {
        self.sources.write_key(self.key, place)
    }
}
