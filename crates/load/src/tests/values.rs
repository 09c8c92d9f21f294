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

/// Goal: no two keys share a value, so a response for the wrong key is always noticed.
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
