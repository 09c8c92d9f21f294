//! A request whose body comes in chunks, as text: made once, before the run.
//!
//! On the path: `workload` encodes it and repeats the bytes. Absent on purpose: trailers, and chunks
//! that differ from one request to the next.
use crate::config::Target;
use millpond_http::Method;

/// The whole request. `chunk_bytes` is above 0, and `fields` name neither Host nor what frames the body.
pub(super) fn encode(
    target: &Target,
    method: Method,
    fields: &[(String, String)],
    body: &[u8],
    chunk_bytes: usize,
) -> Vec<u8> {
    let mut head = super::head_lines(target, method, fields);
    head.push_str("Transfer-Encoding: chunked\r\n\r\n");
    let mut wire = head.into_bytes();
    for chunk in body.chunks(chunk_bytes) {
        wire.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        wire.extend_from_slice(chunk);
        wire.extend_from_slice(b"\r\n");
    }
    wire.extend_from_slice(b"0\r\n\r\n");
    wire
}

#[cfg(test)]
mod tests {
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
            let wire = encode(&target, Method::Get, &fields, body.as_bytes(), chunk_bytes);
            let text = String::from_utf8(wire).unwrap();
            assert_eq!(text, format!("{head}{chunks}0\r\n\r\n"));
        }
    }
}
