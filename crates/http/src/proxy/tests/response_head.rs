use super::*;
use crate::head::ResponseFraming;
use crate::head::{HeadFields, RequestHead};
use crate::limits::Limits;
use crate::log::FixedHeaderLines;
use crate::method::Method;
use crate::parse::{Parsed, parse_response_head};
use millpond_mempool::{BlockPool, PoolMode};
use proptest::prelude::*;

/// Bytes the client gets for `text`, and how its body goes on.
fn rewrite(text: &[u8], method: Method, version: Version) -> Option<(String, Outgoing)> {
    let mut fields = HeadFields::new();
    let parsed = parse_response_head(text, &Limits::default(), &mut fields);
    let Ok(Parsed::Complete(head)) = parsed else {
        return None;
    };
    let answer = ReceivedHead {
        bytes: &text[..head.head_bytes],
        head: &head,
        fields: &fields,
        framing: head.framing(method),
    };
    let asked = RequestHead {
        method,
        version,
        keep_alive: version == Version::Http11,
        ..RequestHead::EMPTY
    };
    let blocks = BlockPool::new("test", PoolMode::Off);
    let (mut output, mut standing_lines) = (Buffer::new(), FixedHeaderLines::new());
    let mut response = Response {
        output: &mut output,
        blocks: &blocks,
        standing_lines: &mut standing_lines,
        manner: ResponseFraming::of(&asked, false),
        sent: None,
        outgoing: Outgoing::Whole,
        failure: None,
        wire: None,
    };
    forward_head(&mut response, &answer, &NO_CHANGES).ok()?;
    let outgoing = response.outgoing;
    Some((String::from_utf8_lossy(&output).into_owned(), outgoing))
}

/// Goal: each framing becomes the one that this client knows; HEAD, 204 and 304 have no body.
#[test]
fn framing_is_written_for_the_client() {
    const NEW: Version = Version::Http11;
    const OLD: Version = Version::Http10;
    let length = "HTTP/1.1 200 OK\r\nDate: d\r\nContent-Length: 5\r\n\r\n";
    let chunked = "HTTP/1.1 200 OK\r\nDate: d\r\nTransfer-Encoding: chunked\r\n\r\n";
    let closing = "HTTP/1.0 200 OK\r\nDate: d\r\n\r\n";
    let empty = "HTTP/1.1 204 No\r\nDate: d\r\nContent-Length: 0\r\n\r\n";
    let same = "HTTP/1.1 304 Same\r\nDate: d\r\nContent-Length: 9\r\n\r\n";
    let known = Outgoing::Length { remaining_bytes: 5 };
    for (text, method, version, expected, outgoing) in [
        (length, Method::Get, NEW, "Content-Length: 5\r\n\r\n", known),
        (
            length,
            Method::Get,
            OLD,
            "Content-Length: 5\r\nConnection: close\r\n\r\n",
            known,
        ),
        (
            length,
            Method::Head,
            NEW,
            "Content-Length: 5\r\n\r\n",
            Outgoing::Bodyless,
        ),
        (
            chunked,
            Method::Get,
            NEW,
            "Transfer-Encoding: chunked\r\n\r\n",
            Outgoing::Chunked,
        ),
        (
            chunked,
            Method::Get,
            OLD,
            "Connection: close\r\n\r\n",
            Outgoing::UntilClose,
        ),
        (chunked, Method::Head, NEW, "\r\n", Outgoing::Bodyless),
        (
            closing,
            Method::Get,
            NEW,
            "Transfer-Encoding: chunked\r\n\r\n",
            Outgoing::Chunked,
        ),
        (empty, Method::Get, NEW, "\r\n", Outgoing::Bodyless),
        (
            same,
            Method::Get,
            NEW,
            "Content-Length: 9\r\n\r\n",
            Outgoing::Bodyless,
        ),
    ] {
        let (head, found) = rewrite(text.as_bytes(), method, version).unwrap();
        let (_, end) = head.split_once("millpond\r\n").unwrap();
        assert_eq!((end, found), (expected, outgoing), "{text}");
    }
}

/// Goal: the upstream's Date and Server stay, a missing Date is added, nothing about its
/// connection goes through.
#[test]
fn only_end_to_end_fields_pass() {
    let text = b"HTTP/1.1 404 Gone fishing\r\nServer: s\r\nConnection: close, X-Mine\r\nX-Mine: 1\r\n\
                 Keep-Alive: timeout=5\r\nProxy-Authenticate: p\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n\
                 Content-Length: 0\r\n\r\n";
    let (head, _) = rewrite(text, Method::Get, Version::Http11).unwrap();
    let lines: Vec<&str> = head.split("\r\n").collect();
    let expected = [
        "HTTP/1.1 404 Gone fishing",
        "Server: s",
        "Set-Cookie: a",
        "Set-Cookie: b",
    ];
    assert_eq!(lines[..4], expected);
    assert!(
        lines[4].starts_with("Date: ") && lines[4].ends_with("GMT"),
        "{head}"
    );
    assert_eq!(
        lines[5..],
        ["Via: 1.1 millpond", "Content-Length: 0", "", ""]
    );
}

/// Goal: of several Date fields the first remains, and one that Connection names is replaced by ours.
#[test]
fn one_date_remains() {
    for (fields, expected) in [
        ("Date: a\r\nDate: b\r\ndate: c\r\n", "a"),
        ("Connection: Date\r\nDate: a\r\n", "GMT"),
        ("", "GMT"),
    ] {
        let text = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 0\r\n\r\n");
        let (head, _) = rewrite(text.as_bytes(), Method::Get, Version::Http11).unwrap();
        let lines = head.lines();
        let dates: Vec<&str> = lines
            .filter(|line| line.to_lowercase().starts_with("date:"))
            .collect();
        assert!(dates.len() == 1 && dates[0].ends_with(expected), "{head}");
    }
}

/// Goal: the names of trailers go where trailers go: in chunks, to clients that support them, unless Connection names
/// fields.
#[test]
fn trailers_are_announced_where_they_pass() {
    for (fields, version, passes) in [
        ("Transfer-Encoding: chunked", Version::Http11, true),
        ("Transfer-Encoding: chunked", Version::Http10, false),
        ("Content-Length: 5", Version::Http11, false),
        ("Connection: close", Version::Http11, false),
        (
            "Connection: TE\r\nTransfer-Encoding: chunked",
            Version::Http11,
            true,
        ),
        (
            "Connection: x-sum\r\nTransfer-Encoding: chunked",
            Version::Http11,
            false,
        ),
    ] {
        let text = format!("HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\n{fields}\r\n\r\n");
        let (head, _) = rewrite(text.as_bytes(), Method::Get, version).unwrap();
        assert_eq!(head.contains("Trailer: X-Sum\r\n"), passes, "{head}");
    }
}

proptest! {
    /// Goal: whatever an upstream sends that is a response, the client gets one sound head with
    /// the same status, framed as the body will be written.
    #[test]
    fn what_goes_back_is_one_sound_answer(
        lines in proptest::collection::vec("[A-Za-z_-]{1,16}:[ -~]{0,20}\r\n", 0..20),
        framing in proptest::sample::select(vec!["", "Content-Length: 7\r\n", "Transfer-Encoding: chunked\r\n"]),
        code in 200..600_u16,
        is_old in any::<bool>(),
    ) {
        let version = if is_old { Version::Http10 } else { Version::Http11 };
        let text = format!("HTTP/1.1 {code} R\r\n{framing}{}\r\n", lines.concat());
        if let Some((head, outgoing)) = rewrite(text.as_bytes(), Method::Get, version) {
            let mut fields = HeadFields::new();
            let parsed = parse_response_head(head.as_bytes(), &Limits::default(), &mut fields);
            let Ok(Parsed::Complete(parsed)) = parsed else {
                return Err(TestCaseError::fail(head));
            };
            prop_assert_eq!(parsed.head_bytes, head.len());
            prop_assert_eq!(parsed.status.code(), code);
            let expected = match outgoing {
                Outgoing::Length { remaining_bytes } => Framing::Length(remaining_bytes),
                Outgoing::Chunked => Framing::Chunked,
                Outgoing::UntilClose => Framing::UntilClose,
                _ => Framing::None,
            };
            prop_assert_eq!(parsed.framing(Method::Get), expected);
        }
    }
}
