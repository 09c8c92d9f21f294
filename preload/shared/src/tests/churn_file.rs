use super::*;
use crate::sampling::seed;

/// Goal: every power of two comes as often as the others, and no size is outside.
#[test]
fn sizes_are_mixed() {
    let mut counts = [0_u32; 64];
    for number in 0..100_000 {
        let size = size_bytes(seed(number));
        assert!((16..1 << 14).contains(&size), "{size}");
        counts[size.ilog2() as usize] += 1;
    }
    for count in &counts[4..14] {
        assert!((9_000..11_000).contains(count), "{counts:?}");
    }
}
