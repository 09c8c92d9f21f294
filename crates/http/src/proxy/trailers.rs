//! Fields behind a body: which of them pass, and how they come to the other side.
//!
//! On the path: `service` and `answering` give the trailer section of a chunked body that has ended here.
//! The decoder has checked its lines and counted them against the limits; they are parsed once more, and
//! those that may go on are written anew, each as a name, a colon and a value, behind the last chunk of
//! ours.
//!
//! Where they pass: behind a body that goes out in chunks, so to no HTTP/1.0 client; and only if the
//! message's `Connection` names no field. What it names is to be dropped from the trailers too (RFC 9110
//! 7.6.1), the head is long gone by then, and nobody who sends trailers names such fields.
//!
//! Absent on purpose: joining them with the head's fields (RFC 9110 6.5.1), and holding a sender to what
//! its `Trailer` has announced: it is a hint.

use super::field_rule::{FieldRule, Nominated, begins, is};
use crate::head::{Framing, HeadFields};
use crate::head_text::Field;
use crate::limits::Limits;
use crate::parse::parse_trailer_fields;

/// Whether what is behind a body that came like this may go on.
pub(super) fn may_pass(framing: Framing, nominated: &Nominated<'_>) -> bool {
    framing == Framing::Chunked && !nominated.has_fields
}

/// Where one shard takes trailer sections apart: one at a time.
#[derive(Debug)]
pub(super) struct Trailers {
    limits: Limits,
    fields: Box<HeadFields>,
}

impl Trailers {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            fields: Box::default(),
        }
    }

    /// The fields of a section that go on: names and values. None of one that is no sound section.
    pub(super) fn passing<'t>(
        &'t mut self,
        section: &'t [u8],
    ) -> impl Iterator<Item = Field<'t>> + Clone {
        let parsed = parse_trailer_fields(section, &self.limits, &mut self.fields);
        let fields = parsed.unwrap_or_default().into_iter();
        fields.filter(|(name, _)| may_follow_a_body(name.as_bytes()))
    }
}

/// Whether a field may stand behind a body: not those that frame or route a message, change what a
/// request asks for, authenticate, control an answer or say how to read the body (RFC 7230 4.1.2), and
/// none that a proxy drops or writes itself. Such a field could be taken for one of the head's.
fn may_follow_a_body(name: &[u8]) -> bool {
    if FieldRule::of(name) != FieldRule::PassOn {
        return false;
    }
    let is_about_head = match name.len() {
        3 => is(name, b"age"),
        4 => is(name, b"vary"),
        5 => is(name, b"range"),
        6 => is(name, b"cookie") || is(name, b"pragma"),
        7 => is(name, b"expires") || is(name, b"warning"),
        8 => is(name, b"location"),
        10 => is(name, b"set-cookie"),
        11 => is(name, b"retry-after") || is(name, b"set-cookie2"),
        13 => is(name, b"authorization") || is(name, b"cache-control"),
        16 => is(name, b"www-authenticate"),
        _ => false,
    };
    let is_about_head = is_about_head
        || begins(name, b"content-")
        || begins(name, b"if-")
        || begins(name, b"authentication-")
        || begins(name, b"x-http-method");
    !is_about_head
}

#[cfg(test)]
mod tests {
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

    /// Goal: what is no section of whole lines passes nothing, whatever was found before its fault.
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
        /// Goal: whatever a section holds that the decoder lets through, what goes on is fields of it
        /// whose names are tokens and whose values have no line end, and none that may not follow.
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
}
