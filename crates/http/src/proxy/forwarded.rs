//! `Forwarded` as it came from a trusted peer (RFC 7239 4): a list that another element is going to follow.
//!
//! What a client wrote may be in it, passed on by the peer. A quote without an end would make our own
//! element a part of the client's; so elements that are malformed are replaced.

use crate::scan::is_token;

/// Stands where an element was that is not one.
pub(super) const UNKNOWN: &[u8] = b"for=unknown";

/// The elements of one field value, with the whitespace around them, without the commas between them. The
/// first malformed one is [`UNKNOWN`] and all others are left out: so a value grows by the length of
/// that at most, however many there are.
pub(super) fn sound_elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(value);
    let mut has_unknown = false;
    std::iter::from_fn(move || {
        loop {
            let (element, after) = split_first(rest?);
            rest = after;
            if is_element(element.trim_ascii()) {
                return Some(element);
            }
            if !has_unknown {
                has_unknown = true;
                return Some(UNKNOWN);
            }
        }
    })
}

/// Up to the first comma outside of quotes, and what is behind that; without an end of the quotes, all of it.
fn split_first(value: &[u8]) -> (&[u8], Option<&[u8]>) {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for (at, &byte) in value.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b',' if !is_quoted => return (&value[..at], Some(&value[at + 1..])),
            _ => {}
        }
    }
    (value, None)
}

/// `[pair] *(";" [pair])`; empty ones are allowed in a list (RFC 9110 5.6.1).
fn is_element(element: &[u8]) -> bool {
    let mut rest = element;
    loop {
        if let Some(after) = pair_end(rest) {
            rest = after;
        }
        match rest {
            [] => return true,
            [b';', after @ ..] => rest = after,
            _ => return false,
        }
    }
}

/// What is behind the pair with which this begins; `None`: it begins with none.
fn pair_end(text: &[u8]) -> Option<&[u8]> {
    let token_end = |text: &[u8]| text.iter().position(|&byte| !is_token(byte));
    let name_bytes = token_end(text).filter(|&bytes| bytes > 0)?;
    let value = text[name_bytes..].strip_prefix(b"=")?;
    if let Some(quoted) = value.strip_prefix(b"\"") {
        let mut is_escaped = false;
        let end = quoted.iter().position(|&byte| {
            let is_end = byte == b'"' && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            is_end
        })?;
        return Some(&quoted[end + 1..]);
    }
    let bytes = token_end(value).unwrap_or(value.len());
    (bytes > 0).then(|| &value[bytes..])
}

#[cfg(test)]
mod tests {
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
}
