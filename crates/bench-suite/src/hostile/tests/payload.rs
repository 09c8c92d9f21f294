use super::*;

/// Goal: the widest head has the size and the number of fields that the limits name.
#[test]
fn heads_have_the_size_asked_for() {
    let head = widest_head();
    assert_eq!(head.len(), PAYLOAD_HEAD_BYTES_MAX);
    assert_eq!(
        head.windows(2).filter(|w| w == b"\r\n").count(),
        FIELDS_MAX + 2
    );
    assert!(head.ends_with(b"f\r\n\r\n"));
}

/// Goal: each seed has its own garbage, and none begins with a method.
#[test]
fn garbage_is_none_of_a_kind() {
    assert_ne!(garbage(1), garbage(2));
    assert!((0..64).all(|seed| !garbage(seed)[0].is_ascii()));
}
