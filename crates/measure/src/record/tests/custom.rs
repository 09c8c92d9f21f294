use super::*;

/// Goal: a key is complete, and the same words are the same quantity.
#[test]
fn a_key_reads_back() {
    let hits = CustomQuantity::new("hit ratio", "%", Direction::HigherIsBetter).unwrap();
    assert_eq!(hits.key(), "custom:hit ratio:%:higher");
    assert_eq!(CustomQuantity::from_key(hits.key()), Some(hits));
    assert_eq!((hits.label(), hits.unit()), ("hit ratio", "%"));
    assert_eq!(hits.direction(), Direction::HigherIsBetter);
    let lower = CustomQuantity::new("hit ratio", "%", Direction::LowerIsBetter).unwrap();
    assert_ne!(lower, hits);
    for wrong in [
        "custom:a:b",
        "custom:a:b:c",
        "custom:a:b:lower:x",
        "custom::b:lower",
        "a",
    ] {
        assert_eq!(CustomQuantity::from_key(wrong), None, "{wrong}");
    }
    assert_eq!(
        CustomQuantity::new("a:b", "s", Direction::LowerIsBetter),
        None
    );
}
