use super::*;

/// Goal: the kinds add up to the failures, the earliest of all threads is the example, and bytes are escaped and
/// bounded.
#[test]
fn causes_add_up_to_the_errors() {
    let mut one = FailureCauses::default();
    let bad = [b"\x16\x03\x01 \"x\"\n".as_slice(), &[b'a'; 100]].concat();
    one.note(
        LoadFailureKind::Framing,
        1_900,
        7,
        || "second".to_owned(),
        b"",
    );
    one.count(LoadFailureKind::Framing, 2);
    let mut two = FailureCauses::default();
    two.note(
        LoadFailureKind::Framing,
        1_500,
        3,
        || "first".to_owned(),
        &bad,
    );
    two.note(
        LoadFailureKind::Framing,
        1_600,
        3,
        || "later".to_owned(),
        b"",
    );
    two.count(LoadFailureKind::Framing, 1);
    two.count(LoadFailureKind::Limit, 1);
    two.count(LoadFailureKind::Read, 5);
    two.tls = 2;
    one.merge(&two);
    let errors = LoadErrors {
        connect: 3,
        read: 9,
        ..LoadErrors::default()
    };
    let list = one.list(&errors, 1_000);
    assert_eq!(
        list.iter().map(|one| one.count).sum::<u64>(),
        errors.total()
    );
    let counts: Vec<(&str, u64)> = list
        .iter()
        .map(|one| (one.kind.label(), one.count))
        .collect();
    let expected = [
        ("connect", 1),
        ("tls", 2),
        ("read", 5),
        ("framing", 3),
        ("limit", 1),
    ];
    assert_eq!(counts, expected);
    let first = list[3].first.clone().unwrap();
    assert_eq!(
        (first.at_ns, first.connection, first.what.as_str()),
        (500, 3, "first")
    );
    assert!(
        first.bytes.starts_with(r#"\x16\x03\x01 \"x\"\na"#),
        "{}",
        first.bytes
    );
    assert!(first.bytes.len() < 100);
}
