use super::*;
use crate::body::BodyDecoder;
use crate::head_text::{FieldName, FieldValue};
use proptest::prelude::*;

fn passed(section: &[u8]) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut trailers = Trailers::new(Limits::default());
    let passing = trailers.passing(section);
    passing
        .map(|(name, value)| (text(name.as_bytes()), text(value.as_bytes())))
        .collect()
}

/// Goal: sums, times and states pass; no field does that means something in a head, in any case
/// and spelling.
#[test]
fn only_fields_that_may_follow_a_body_pass() {
    for name in [
        "X-Checksum",
        "Digest",
        "Repr-Digest",
        "Server-Timing",
        "ETag",
        "grpc-status",
        "Iffy",
        "Contents",
    ] {
        let section = format!("{name}: 1\r\n");
        assert_eq!(passed(section.as_bytes()), [(name.into(), "1".into())]);
    }
    for name in [
        "Content-Length",
        "content_length",
        "Transfer-Encoding",
        "TRANSFER_ENCODING",
        "Host",
        "TE",
        "Trailer",
        "Connection",
        "Keep-Alive",
        "Upgrade",
        "Proxy-Authorization",
        "Via",
        "Forwarded",
        "X-Forwarded-For",
        "X-Forwarded-Anything",
        "X_Real_IP",
        "Content-Type",
        "Content-Encoding",
        "Content-Range",
        "Authorization",
        "WWW-Authenticate",
        "Authentication-Info",
        "Cookie",
        "Set-Cookie",
        "set_cookie",
        "Cache-Control",
        "Pragma",
        "Range",
        "If-Match",
        "If-Range",
        "Expect",
        "Max-Forwards",
        "Age",
        "Date",
        "Expires",
        "Location",
        "Retry-After",
        "Vary",
        "Warning",
        "X-HTTP-Method-Override",
    ] {
        let section = format!("{name}: 1\r\nX-Last: 2\r\n");
        let expected = [("X-Last".into(), "2".into())];
        assert_eq!(passed(section.as_bytes()), expected, "{name}");
    }
}

/// Goal: a section that is not whole lines passes nothing, whatever comes before its fault.
#[test]
fn unsound_sections_pass_nothing() {
    for section in [
        "X: 1",
        "X: 1\r\nY",
        "X: 1\r\nY Z: 1\r\n",
        "X: 1\n",
        "X: 1\r\n Y: 1\r\n",
        "",
    ] {
        assert_eq!(passed(section.as_bytes()), [], "{section:?}");
    }
}

proptest! {
    /// Goal: of any section that the decoder accepts, only fields are passed on whose names are tokens and whose values
    /// have no line end, and none that may not follow.
    #[test]
    fn what_passes_is_whole_fields(
        lines in proptest::collection::vec("[!-~]{1,12}:[ -~\t]{0,20}|[A-Za-z_-]{2,8}: [\\x01-\\xff]{0,6}", 0..8),
    ) {
        let section: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let body = format!("0\r\n{section}\r\n");
        let mut decoder = BodyDecoder::new(Framing::Chunked, &Limits::default()).unwrap();
        let (mut at, mut trailer) = (0, Vec::new());
        while at < body.len() {
            let Ok(step) = decoder.decode(&body.as_bytes()[at..]) else {
                return Ok(());
            };
            if step.consumed_bytes == 0 {
                return Ok(());
            }
            trailer.extend_from_slice(step.trailer);
            at += step.consumed_bytes;
        }
        let mut trailers = Trailers::new(Limits::default());
        for (name, value) in trailers.passing(&trailer) {
            prop_assert_eq!(FieldName::new(&name), Ok(name));
            prop_assert_eq!(FieldValue::new(&value), Ok(value));
            prop_assert_eq!(FieldRule::of(name.as_bytes()), FieldRule::PassOn);
        }
    }
}
