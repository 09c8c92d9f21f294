use super::*;

/// Goal: a result found by several shards is reported once per change.
#[test]
fn shards_tell_it_once() {
    let states = NameStates::default();
    assert!(
        !states.is_news("a", false),
        "a name that has an address is no news"
    );
    for _ in 0..2 {
        assert!(states.is_news("a", true));
        assert!(!states.is_news("a", true));
        assert!(states.is_news("b", true));
        assert!(states.is_news("a", false));
        assert!(!states.is_news("a", false));
        assert!(states.is_news("b", false));
    }
}
