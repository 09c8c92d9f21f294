use super::*;
use proptest::prelude::*;

fn sound(value: &str) -> String {
    let elements: Vec<&[u8]> = sound_elements(value.as_bytes()).collect();
    String::from_utf8(elements.join(&b","[..])).unwrap()
}

/// Goal: sound elements stay byte for byte, whatever stands in quotes; a malformed one is replaced, the
/// second left out, and a quote without an end takes what follows with it.
#[test]
fn malformed_elements_are_replaced() {
    for value in [
        "for=192.0.2.1",
        "for=\"[2001:db8::1]:80\";proto=https, for=_hidden;by=unknown",
        "for=\"a,b;c\\\"d\"",
        "For=a;;HOST=\"x\"",
        "",
        "for=a, , for=b",
    ] {
        assert_eq!(sound(value), value);
    }
    for (value, expected) in [
        ("for=\"a", "for=unknown"),
        ("for=a, for=\"b, for=c", "for=a,for=unknown"),
        (
            "a, for=b, c, d=, for=[::1], for=e",
            "for=unknown, for=b, for=e",
        ),
        ("for=a b", "for=unknown"),
        ("for=\"a\"b", "for=unknown"),
        ("=a", "for=unknown"),
        ("for=\"a\\\"", "for=unknown"),
    ] {
        assert_eq!(sound(value), expected, "{value}");
    }
}

proptest! {
    /// Goal: whatever came, an element behind it is an element of its own, and the value grows by one
    /// replacement at most.
    #[test]
    fn what_follows_is_an_element_of_its_own(value in "[a=\";, \\\\]{0,24}") {
        let ours = "for=1.2.3.4;host=\"h:1\"";
        let list = format!("{},{ours}", sound(&value));
        prop_assert!(list.len() <= value.len() + UNKNOWN.len() + 1 + ours.len());
        let mut rest = Some(list.as_bytes());
        let mut last = &b""[..];
        while let Some(text) = rest {
            (last, rest) = split_first(text);
            prop_assert!(is_element(last.trim_ascii()), "{list}");
        }
        prop_assert_eq!(last, ours.as_bytes());
    }
}
