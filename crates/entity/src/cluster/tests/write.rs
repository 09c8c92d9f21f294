use super::*;

/// Goal: no node forgets a record before its end, and none is asked for what it cannot say.
#[test]
fn nodes_forget_after_the_end() {
    let now_ms = 1_790_000_000_000;
    assert_eq!(seconds_until(0, now_ms), 0, "never");
    assert_eq!(seconds_until(1, now_ms), 1, "long ago");
    assert_eq!(seconds_until(now_ms, now_ms), 1);
    for left_ms in [1, 999, 1000, 1001, 59_500, 3_600_000] {
        let seconds = seconds_until(now_ms + left_ms, now_ms);
        assert!(i64::from(seconds) * 1000 > left_ms as i64, "{left_ms}");
        assert!(
            i64::from(seconds) * 1000 <= left_ms as i64 + 2000,
            "{left_ms}"
        );
    }
    assert_eq!(seconds_until(4_102_444_800_000, now_ms), 0, "the year 2100");
    assert_eq!(seconds_until(u64::MAX, now_ms), 0);
}
