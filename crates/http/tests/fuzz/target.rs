//! Request targets: taken apart and put together again, and percent-decoded as an id is.

use key::{ID_BYTES_MAX, KeyError, KeyScratch, decode_id};
use millpond_http::{HeadFields, Limits, Parsed, parse_request_head};

#[allow(
    dead_code,
    unreachable_pub,
    reason = "it is a module of the entity server, and less of it is used here"
)]
#[path = "../../../entity/src/key.rs"]
mod key;

/// Percent-decoding said in the fewest words.
fn decoded(encoded: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = encoded;
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    Some(bytes)
}

fn check_id(encoded: &[u8]) {
    let mut scratch = KeyScratch::new();
    let found = decode_id(encoded, &mut scratch);
    match (found, decoded(encoded)) {
        (Ok(id), Some(expected)) => assert_eq!(id, expected),
        (Err(KeyError::Empty), _) => assert!(encoded.is_empty()),
        (Err(KeyError::TooLong), _) => assert!(encoded.len() > ID_BYTES_MAX),
        (Err(KeyError::BadEscape { offset }), None) => assert_eq!(encoded[offset], b'%'),
        other => panic!("{other:?}"),
    }
}

/// The bytes are a target; whatever is its query is an id.
pub(crate) fn run(target: &[u8]) {
    check_id(target);
    let bytes = [b"GET ", target, b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
    let mut fields = HeadFields::new();
    let Ok(Parsed::Complete(head)) = parse_request_head(&bytes, &Limits::default(), &mut fields)
    else {
        return;
    };
    // A target may hold whole heads; then it ends early and another request follows.
    let seen = head.target.of(&bytes);
    assert!(bytes[4..].starts_with(seen));
    let query = head.query.map(|query| query.of(&bytes));
    let path = head.path.of(&bytes);
    let rest = match query {
        Some(query) => [path, b"?", query].concat(),
        None => path.to_vec(),
    };
    assert!(seen.ends_with(&rest));
    let before = &seen[..seen.len() - rest.len()];
    if !before.is_empty() {
        let scheme = before
            .iter()
            .position(|&byte| byte == b'/')
            .expect("scheme://");
        assert_eq!(&before[scheme + 2..], head.authority.of(&bytes));
    }
    check_id(query.unwrap_or(path));
}
