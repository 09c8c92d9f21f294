use super::*;

#[test]
fn sources_are_addresses_in_turn() {
    let all = |text: &str, count: usize| -> Vec<String> {
        let range: SourceRange = text.parse().unwrap();
        (0..count)
            .map(|index| range.at(index).to_string())
            .collect()
    };
    assert_eq!(all("127.0.0.9", 2), ["127.0.0.9", "127.0.0.9"]);
    assert_eq!(
        all("127.0.0.255..127.0.1.1", 4),
        ["127.0.0.255", "127.0.1.0", "127.0.1.1", "127.0.0.255"]
    );
    assert_eq!(
        all("127.3.0.9/30", 3),
        ["127.3.0.9", "127.3.0.10", "127.3.0.9"]
    );
    assert_eq!(all("127.0.0.7/32", 2), ["127.0.0.7", "127.0.0.7"]);
    assert_eq!(all("::2..::3", 3), ["::2", "::3", "::2"]);
    let whole: SourceRange = "127.0.0.0/8".parse().unwrap();
    assert_eq!(
        (whole.at(0), whole.count),
        ("127.0.0.1".parse().unwrap(), (1 << 24) - 2)
    );
    for text in [
        "",
        "x",
        "127.0.0.2..127.0.0.1",
        "127.0.0.1..::1",
        "127.0.0.0/33",
        "::/8",
        "127.0.0.1/",
    ] {
        assert!(text.parse::<SourceRange>().is_err(), "{text}");
    }
}
