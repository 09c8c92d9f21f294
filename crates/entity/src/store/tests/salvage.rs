use super::*;

/// Goal: places lie between their ends, in order, and come closer until there is none left.
#[test]
fn places_lie_between() {
    for (low, high) in [
        (&b"a"[..], &b"b"[..]),
        (b"a", b"a\0"),
        (b"a\0", b"a\x01"),
        (b"abc\xff\xff", b"abd"),
        (
            b"\0",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ),
    ] {
        let (mut near, far) = (low.to_vec(), high.to_vec());
        for round in 0.. {
            assert!(round < 100, "{low:?} to {high:?}");
            let places = places_between(&near, &far);
            let mut all = vec![near.clone()];
            all.extend(places.iter().cloned());
            all.push(far.clone());
            assert!(all.is_sorted_by(|a, b| a < b), "{all:?}");
            match places.last() {
                Some(last) => near.clone_from(last),
                None => break,
            }
        }
    }
}
