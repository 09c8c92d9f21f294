use super::*;

/// Goal: ids as clients number them spread evenly over few and many places, by both halves.
#[test]
fn numbered_ids_spread_evenly() {
    let hasher = KeyHasher::random();
    for name in ["", "key", "a prefix of more than sixteen bytes "] {
        let (mut high, mut low) = (vec![0_u32; 64], vec![0_u32; 64]);
        for number in 0..64_000 {
            let hash = hasher.hash(format!("{name}{number}").as_bytes());
            high[hash.scale_high(64)] += 1;
            low[hash.scale_low(64)] += 1;
        }
        // 1,000 each with a deviation of 32: eight of them never happen by chance.
        for count in high.into_iter().chain(low) {
            assert!((744..1256).contains(&count), "{name}: {count}");
        }
    }
}

/// Goal: length, order and every byte matter, and so does the seed.
#[test]
fn near_misses_differ() {
    let hasher = KeyHasher::random();
    let keys: [&[u8]; 8] = [
        b"a",
        b"a\0",
        b"\0a",
        b"",
        b"0123456789abcdef",
        b"0123456789abcdeg",
        b"0123456789abcdef\0",
        b"89abcdef01234567",
    ];
    for (n, one) in keys.iter().enumerate() {
        assert_eq!(hasher.hash(one), hasher.hash(one));
        assert_ne!(hasher.hash(one), KeyHasher::random().hash(one));
        for other in &keys[n + 1..] {
            assert_ne!(hasher.hash(one), hasher.hash(other));
        }
    }
}
