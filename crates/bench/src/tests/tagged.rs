use super::*;
use crate::memory::{Malloc, Memory};

/// Goal: a tag comes back for the smallest block, an odd one and one of several pages.
#[test]
fn tags_come_back() {
    for size_bytes in [TAGGED_BYTES_MIN, 17, 4096, 20_001] {
        let mut tagged = Tagged::new(Malloc.block(size_bytes), size_bytes, 7);
        assert_eq!((tagged.tag(), tagged.size_bytes()), (7, size_bytes));
    }
}

/// Goal: a byte that was overwritten is noticed at either end.
#[test]
fn damage_is_noticed() {
    for place in [3, 95] {
        let mut tagged = Tagged::new(Malloc.block(96), 96, 7);
        tagged.block[place] = MaybeUninit::new(0xee);
        assert_eq!(tagged.whole_tag(), None, "byte {place}");
    }
}
