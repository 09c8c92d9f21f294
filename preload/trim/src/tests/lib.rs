use super::*;

/// Goal: an interval is taken to the millisecond.
#[test]
fn intervals_are_read() {
    let length = timespec(1_250);
    assert_eq!((length.seconds, length.nanoseconds), (1, 250_000_000));
}
