use super::*;

/// Goal: how often is read, and what cannot be is refused.
#[test]
fn trials_are_read() {
    assert_eq!(
        LimitTrials::parse("2/5"),
        Ok(LimitTrials { needed: 2, of: 5 })
    );
    for wrong in ["3", "0/3", "4/3", "a/b", "1/100"] {
        assert!(LimitTrials::parse(wrong).is_err(), "{wrong}");
    }
}
