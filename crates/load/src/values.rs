//! Keys and values of the entity workloads: both follow from a number and a seed.
//!
//! On the path: `workload` writes them into requests, `validation` compares answers with them.
//! A filled key's value is never stored here: it can be computed again, so a GET checks each byte.
//! Absent on purpose: a generator run per byte. A value is a stretch of one random table that starts
//! where the key says, behind eight bytes only this key has: making or checking 1 KiB costs one
//! `memcpy` or `memcmp`, which matters because generator and server share a machine.

/// Longer than the 64 KiB window of LZ4, so one value never repeats within reach of compression.
const TABLE_BYTES: usize = 65_536 + 4_096;
/// Bytes that identify the key at the head of its value.
const MARK_BYTES: usize = 8;
/// Keys look like `k000000123`; more digits only beyond a billion keys.
const KEY_DIGITS_MIN: usize = 9;

/// Finaliser of splitmix64: every input bit changes every output bit.
pub(crate) const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// How many digits the ids of `keys` keys have; all ids of a run are equally long.
pub(crate) fn key_digits(keys: u64) -> usize {
    let highest = keys.saturating_sub(1);
    (highest.checked_ilog10().unwrap_or(0) as usize + 1).max(KEY_DIGITS_MIN)
}

/// Writes `key` in decimal over all of `digits`, zero-padded.
pub(crate) fn write_key(mut key: u64, digits: &mut [u8]) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (key % 10) as u8;
        key /= 10;
    }
    debug_assert_eq!(key, 0, "the id is wide enough for every key");
}

/// The values of all keys under one seed.
#[derive(Debug)]
pub(crate) struct Values {
    value_bytes_min: usize,
    /// How many bytes more a value may have.
    span_bytes: u64,
    seed: u64,
    table: Box<[u8]>,
}

impl Values {
    #[cfg(test)]
    pub(crate) fn new(seed: u64, value_bytes: usize) -> Self {
        Self::ranging(seed, value_bytes, value_bytes)
    }

    /// Sizes from `value_bytes_min` to `value_bytes_max`, each as likely; that of a key stays.
    pub(crate) fn ranging(seed: u64, value_bytes_min: usize, value_bytes_max: usize) -> Self {
        let words = (0..TABLE_BYTES as u64 / 8).map(|index| mix(seed ^ mix(index)));
        let table = words.flat_map(u64::to_le_bytes).collect();
        Self {
            value_bytes_min,
            span_bytes: value_bytes_max.saturating_sub(value_bytes_min) as u64,
            seed,
            table,
        }
    }

    pub(crate) fn value_bytes_max(&self) -> usize {
        self.value_bytes_min + self.span_bytes as usize
    }

    pub(crate) fn is_one_size(&self) -> bool {
        self.span_bytes == 0
    }

    /// Size of the value of `key`.
    pub(crate) fn len_of(&self, key: u64) -> usize {
        if self.span_bytes == 0 {
            return self.value_bytes_min;
        }
        let draw = u128::from(mix(!self.seed ^ mix(key)));
        self.value_bytes_min + ((draw * u128::from(self.span_bytes + 1)) >> 64) as usize
    }

    /// Hands the value of `key` from `offset` on to `piece`, in stretches, until it says stop.
    fn walk(&self, key: u64, offset: usize, mut piece: impl FnMut(&[u8]) -> bool) {
        let value_bytes = self.len_of(key);
        let mark = mix(self.seed ^ mix(key));
        let mark_bytes = mark.to_le_bytes();
        let mut offset = offset;
        if offset < MARK_BYTES.min(value_bytes) {
            let end = MARK_BYTES.min(value_bytes);
            if !piece(&mark_bytes[offset..end]) {
                return;
            }
            offset = end;
        }
        while offset < value_bytes {
            let at = ((mark % TABLE_BYTES as u64) as usize + offset) % TABLE_BYTES;
            let len = (TABLE_BYTES - at).min(value_bytes - offset);
            if !piece(&self.table[at..][..len]) {
                return;
            }
            offset += len;
        }
    }

    /// Hands the whole value of `key` to `append`, in order.
    pub(crate) fn write(&self, key: u64, mut append: impl FnMut(&[u8])) {
        self.walk(key, 0, |stretch| {
            append(stretch);
            true
        });
    }

    /// Whether `part` is what the value of `key` holds at `offset`.
    pub(crate) fn matches(&self, key: u64, offset: usize, part: &[u8]) -> bool {
        let mut rest = part;
        self.walk(key, offset, |stretch| {
            let len = stretch.len().min(rest.len());
            if stretch[..len] != rest[..len] {
                return false;
            }
            rest = &rest[len..];
            !rest.is_empty()
        });
        rest.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(values: &Values, key: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        values.write(key, |stretch| bytes.extend_from_slice(stretch));
        bytes
    }

    #[test]
    fn ids_are_padded_and_widen_only_when_they_must() {
        let mut id = [0; 9];
        write_key(123, &mut id);
        assert_eq!(&id, b"000000123");
        assert_eq!(key_digits(0), 9);
        assert_eq!(key_digits(1_000_000_000), 9);
        assert_eq!(key_digits(1_000_000_001), 10);
    }

    /// Goal: no two keys share a value, so an answer for the wrong key is always noticed.
    #[test]
    fn values_differ_between_keys_and_seeds() {
        let values = Values::new(1, 64);
        let distinct: std::collections::HashSet<Vec<u8>> =
            (0..10_000).map(|key| value(&values, key)).collect();
        assert_eq!(distinct.len(), 10_000);
        assert_ne!(value(&values, 7), value(&Values::new(2, 64), 7));
        assert_eq!(value(&values, 7), value(&Values::new(1, 64), 7));
    }

    /// Goal: a store cannot shrink the values, or the run would measure compression.
    #[test]
    fn values_look_random() {
        let values = Values::new(5, 100_000);
        let mut counts = [0u32; 256];
        for byte in value(&values, 3) {
            counts[usize::from(byte)] += 1;
        }
        // 390 expected each; a biased generator would be far outside six standard deviations.
        assert!(
            counts.iter().all(|&count| (270..510).contains(&count)),
            "{counts:?}"
        );
    }

    proptest! {
        /// Goal: the check accepts exactly the bytes written, however they are split, and no others.
        #[test]
        fn any_split_matches_and_any_flip_does_not(
            key in any::<u64>(), len in 0usize..200_000, cut in 0.0f64..1.0, flip in any::<prop::sample::Index>()
        ) {
            let values = Values::new(9, len);
            let mut bytes = value(&values, key);
            prop_assert_eq!(bytes.len(), len);
            let cut = (len as f64 * cut) as usize;
            prop_assert!(values.matches(key, 0, &bytes[..cut]));
            prop_assert!(values.matches(key, cut, &bytes[cut..]));
            if len > 0 {
                let at = flip.index(len);
                bytes[at] ^= 1;
                prop_assert!(!values.matches(key, 0, &bytes));
            }
            bytes.push(0);
            prop_assert!(!values.matches(key, 0, &bytes));
        }
    }
}
