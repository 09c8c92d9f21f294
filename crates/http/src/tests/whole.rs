use super::*;
use crate::parse::{Parsed, parse_request_head};

/// Goal: whatever was read before, a request is what parsing it alone says: head, fields and body;
/// repeated, cut, or in parts.
#[test]
fn a_repeated_head_means_what_it_says() {
    let get = "GET /a HTTP/1.1\r\nHost: a\r\nX: 1\r\n\r\n";
    let other = "GET /b HTTP/1.1\r\nHost: a\r\n\r\n";
    let longer = "GET /a HTTP/1.1\r\nHost: a\r\nX: 1\r\nY: 2\r\n\r\n";
    let put = "PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n";
    let chunked = "PUT /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let requests = [
        get.to_owned(),
        other.to_owned(),
        longer.to_owned(),
        format!("{put}one"),
        format!("{put}two"),
        format!("{put}tw"),
        chunked.to_owned(),
        get[..get.len() - 1].to_owned(),
        get.replace("Host", "Hos t"),
    ];
    let limits = Limits::default();
    for first in &requests {
        for second in &requests {
            for third in &requests {
                let mut fields = HeadFields::new();
                let mut whole = Whole::EMPTY;
                for request in [first, second, third] {
                    let bytes = request.as_bytes();
                    let whole_body = whole.read(bytes, &limits, &mut fields);
                    let is_whole = whole_body.is_some();
                    if !is_whole {
                        whole = Whole::EMPTY;
                    }
                    let mut expected_fields = HeadFields::new();
                    let expected = parse_request_head(bytes, &limits, &mut expected_fields);
                    let ends_as_told = ["\r\n\r\n", "one", "two"]
                        .iter()
                        .any(|end| request.ends_with(end));
                    let is_expected = ends_as_told && !request.contains("chunked");
                    let is_expected = is_expected && !request.contains("Hos t");
                    assert_eq!(is_whole, is_expected, "{request:?}");
                    if is_whole {
                        assert_eq!(expected, Ok(Parsed::Complete(*whole.head())));
                        assert_eq!(fields.spans(), expected_fields.spans());
                        let (head, body) = request.split_once("\r\n\r\n").unwrap();
                        assert_eq!(whole.head_bytes.len(), head.len() + 4);
                        assert_eq!(whole_body, Some(body.as_bytes()));
                    }
                }
            }
        }
    }
}
