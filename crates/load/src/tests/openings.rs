use super::*;

#[test]
fn the_parts_make_the_whole() {
    let mut openings = Openings::default();
    openings.record(10, 30, 90);
    // A clock that was read a moment later than the event's.
    openings.record(10, 95, 90);
    let mut sum = Openings::default();
    sum.merge(&openings);
    assert_eq!((sum.transport.min(), sum.transport.max()), (20, 80));
    assert_eq!((sum.handshake.min(), sum.handshake.max()), (0, 60));
}
