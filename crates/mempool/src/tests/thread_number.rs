use super::*;

/// Goal: a thread without a number is not taken for any owner, not even of an abandoned pool.
#[test]
fn unnumbered_thread_owns_nothing() {
    let owner = current();
    assert!(is_current(owner));
    std::thread::spawn(move || assert!(!is_current(owner) && !is_current(NOBODY)))
        .join()
        .unwrap();
}

/// Goal: stable inside a thread, different between threads, also when one follows the other.
#[test]
fn numbers_are_stable_and_never_reused() {
    let mut seen = vec![current()];
    for _ in 0..8 {
        let pair = std::thread::spawn(|| (current(), current()))
            .join()
            .unwrap();
        assert_eq!(pair.0, pair.1);
        assert!(!seen.contains(&pair.0) && pair.0 != NOBODY && pair.0 != UNNUMBERED);
        seen.push(pair.0);
    }
}
