use super::*;

#[test]
fn pauses_end_in_order_and_once() {
    let mut pauses = Pauses::new(3);
    assert_eq!((pauses.next_end_ns(), pauses.end(u64::MAX)), (None, None));
    pauses.begin(0, 30);
    pauses.begin(1, 10);
    pauses.begin(2, 20);
    pauses.begin(1, 40);
    assert!(pauses.is_paused(1));
    assert_eq!((pauses.end(5), pauses.next_end_ns()), (None, Some(10)));
    assert_eq!(pauses.end(30), Some(2));
    assert_eq!((pauses.end(30), pauses.end(30)), (Some(0), None));
    assert!(pauses.is_paused(1) && !pauses.is_paused(0));
    assert_eq!((pauses.end(40), pauses.end(40)), (Some(1), None));
}
