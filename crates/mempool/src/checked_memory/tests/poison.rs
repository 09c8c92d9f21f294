use super::*;

/// Goal: the exact byte is found from either end, at every place.
#[test]
fn the_very_byte_is_found() {
    let mut bytes = [FREED; if cfg!(miri) { 37 } else { 197 }];
    let len = bytes.len();
    let find = |bytes: &mut [u8]| {
        let start = NonNull::from(bytes).cast();
        // SAFETY: the array is this test's.
        unsafe {
            (
                first_change(start, len, FREED),
                last_change(start, len, FREED),
            )
        }
    };
    assert_eq!(find(&mut bytes), (None, None));
    for place in 0..len {
        bytes[place] ^= 1;
        assert_eq!(find(&mut bytes), (Some(place), Some(place)));
        bytes[len - 1] = 0;
        assert_eq!(find(&mut bytes), (Some(place), Some(len - 1)));
        bytes[len - 1] = FREED;
        bytes[place] = FREED;
    }
}
