use super::*;

/// Goal: the bytes are what RFC 9112 7.1 says, for bodies of no chunk, one, and several.
#[test]
fn bodies_are_cut_into_chunks() {
    let target = Target {
        addresses: ["127.0.0.1:80".parse().unwrap()].into(),
        host: "pond".to_owned(),
        path: "/a".to_owned(),
    };
    let fields = [("X-A".to_owned(), "b".to_owned())];
    let head = "GET /a HTTP/1.1\r\nHost: pond\r\nX-A: b\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (body, chunk_bytes, chunks) in [
        ("", 4, ""),
        ("abcd", 4, "4\r\nabcd\r\n"),
        ("abcdef", 4, "4\r\nabcd\r\n2\r\nef\r\n"),
        ("0123456789abcdefg", 17, "11\r\n0123456789abcdefg\r\n"),
    ] {
        let wire = chunked_encode(&target, Method::Get, &fields, body.as_bytes(), chunk_bytes);
        let text = String::from_utf8(wire).unwrap();
        assert_eq!(text, format!("{head}{chunks}0\r\n\r\n"));
    }
}
