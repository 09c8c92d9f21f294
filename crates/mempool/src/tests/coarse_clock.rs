use super::*;

/// Goal: the clock goes on.
#[test]
fn the_clock_does_not_go_back() {
    let before = now_ms();
    assert!(now_ms() >= before);
}
