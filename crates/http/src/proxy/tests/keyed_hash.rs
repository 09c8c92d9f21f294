use super::*;

/// Goal: the published first outputs of splitmix64 from seed 0, and those of FNV-1a.
#[test]
fn the_numbers_are_the_published_ones() {
    let mut random = Random::new(0);
    assert_eq!(random.next(), 0xe220_a839_7b1d_cdaf);
    assert_eq!(random.next(), 0x6e78_9e6a_a1b9_65f4);
    assert_eq!(hash(b""), mix(0xcbf2_9ce4_8422_2325));
    assert_eq!(hash(b"a"), mix(0xaf63_dc4c_8601_ec8c));
    for limit in [1, 2, 3, 1000] {
        assert!((0..1000).all(|_| random.below(limit) < limit));
    }
}
