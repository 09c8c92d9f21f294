use super::*;

const US: u64 = 1_000;

/// Goal: sleeping as long as intended is no stall and waking late is one; requests on their way then are left out, and
/// so are those that were due while the backlog was worked off, and nothing else.
#[test]
fn answers_of_a_stall_are_left_out() {
    let mut watch = StallWatch::default();
    let answer = |watch: &mut StallWatch, intended_ns: u64, last_byte_ns: u64| {
        let before = watch.undisturbed.left_out;
        watch.answered((intended_ns, intended_ns), last_byte_ns, 1);
        watch.undisturbed.left_out > before
    };
    watch.woke(None, false, 100 * US);
    // Half a millisecond asleep, as intended, and a little late.
    watch.woke(Some(600 * US), false, 630 * US);
    watch.look(640 * US);
    assert!(!answer(&mut watch, 610 * US, 640 * US));
    // An event wakes it before the intended time.
    watch.woke(Some(5_000 * US), false, 1_000 * US);
    assert!(!answer(&mut watch, 610 * US, 1_000 * US));
    // It intended to wake at 1,010 and does at 1,310.
    watch.woke(Some(1_010 * US), false, 1_310 * US);
    assert_eq!(watch.undisturbed.stalled_ns, 300 * US);
    assert!(answer(&mut watch, 990 * US, 1_310 * US));
    assert!(answer(&mut watch, 1_200 * US, 1_350 * US));
    // The backlog takes until 1,910.
    assert!(answer(&mut watch, 1_900 * US, 1_950 * US));
    assert!(!answer(&mut watch, 1_911 * US, 1_960 * US));
    // At work it loses its CPU: what was sent before and gets its response after met that.
    watch.woke(Some(1_955 * US), false, 1_960 * US);
    watch.look(2_100 * US);
    assert!(answer(&mut watch, 1_950 * US, 2_100 * US));
    assert_eq!(watch.undisturbed.stalled_ns, 440 * US);
    assert_eq!(watch.undisturbed.response.count(), 3);
    watch.sent(2_300 * US, 70 * US, 1);
    watch.sent(2_400 * US, 7 * US, 1);
    assert!(watch.undisturbed.lateness.max() < 8 * US);
    let mut both = watch.undisturbed.clone();
    both.merge(&watch.undisturbed);
    assert_eq!((both.left_out, both.service.count()), (8, 6));
}
