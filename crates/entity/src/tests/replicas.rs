use super::*;

/// Goal: the requested number of copies is waited for, by default a quorum.
#[test]
fn acknowledgements_are_counted() {
    for (kept, quorum) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (7, 4)] {
        assert_eq!(acks(None, kept), Ok(quorum));
        for ack in 1..=kept {
            let text = format!("{ack}/{kept}");
            assert_eq!(acks(Some(text.as_bytes()), kept), Ok(ack));
        }
    }
    assert_eq!(acks(Some(b"2%2F3"), 3), Ok(2));
    assert_eq!(acks(Some(b"2%2f3"), 3), Ok(2));
}

/// Goal: each way to ask for what cannot be is refused by its own name.
#[test]
fn impossible_replicas_are_refused() {
    use ReplicasError::{Malformed, None, OtherFrom, TooMany};
    let of = |text: &str| acks(Some(text.as_bytes()), 3);
    assert_eq!(of("0/3"), Err(None { from: 3 }));
    assert_eq!(of("4/3"), Err(TooMany { ack: 4, from: 3 }));
    for (ack, from) in [(1, 1), (2, 2), (3, 4), (2, 5)] {
        let refusal = OtherFrom { ack, from, kept: 3 };
        assert_eq!(of(&format!("{ack}/{from}")), Err(refusal));
    }
    for text in [
        "",
        "/",
        "2",
        "2/",
        "/3",
        "a/b",
        "2/3/",
        "2/3/4",
        "-1/3",
        "+2/3",
        " 2/3",
        "2:3",
        "2%3",
        "2%2f",
        "2%2e3",
        "65536/65536",
        "2.0/3",
    ] {
        assert_eq!(of(text), Err(Malformed), "{text}");
    }
}
