//! The head parsers: every scanner against the others, limits, responses, and cuts at every byte.

use millpond_http::{
    FieldSpan, Framing, HeadFields, LimitValues, Limits, Method, ParseError, Parsed, RequestHead,
    ResponseHead, ScannerKind, Version, parse_request_head, parse_request_head_by,
    parse_response_head, parse_response_head_by,
};
use proptest::prelude::*;

fn parse(bytes: &[u8]) -> Result<Parsed<RequestHead>, ParseError> {
    parse_request_head(bytes, &Limits::default(), &mut HeadFields::new())
}

fn accepted(bytes: &[u8]) -> RequestHead {
    match parse(bytes) {
        Ok(Parsed::Complete(head)) => head,
        other => panic!("{other:?}: {}", bytes.escape_ascii()),
    }
}

/// Everything httparse sees in a request it accepts.
type Parts = (String, String, u8, Vec<(String, Vec<u8>)>, usize);

/// The same with a version that httparse knows: it refuses HTTP/1.2 to 1.9, which are read as 1.1 (RFC 9110 2.5).
fn with_known_version(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let mut ends = bytes.windows(10);
    let place = ends.position(|end| {
        end.starts_with(b" HTTP/1.")
            && (b'2'..=b'9').contains(&end[8])
            && matches!(end[9], b'\r' | b'\n')
    });
    if let Some(place) = place {
        bytes[place + 8] = b'1';
    }
    bytes
}

fn httparse_parts(bytes: &[u8]) -> Option<Parts> {
    let bytes = &with_known_version(bytes);
    let mut headers = [httparse::EMPTY_HEADER; 128];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(length) = request.parse(bytes).ok()? else {
        return None;
    };
    let fields = request
        .headers
        .iter()
        .map(|h| (h.name.to_owned(), h.value.to_owned()))
        .collect();
    let method = request.method?.to_owned();
    Some((
        method,
        request.path?.to_owned(),
        request.version?,
        fields,
        length,
    ))
}

fn our_parts(bytes: &[u8]) -> Option<Parts> {
    let mut fields = HeadFields::new();
    let parsed = parse_request_head(bytes, &Limits::default(), &mut fields).ok()?;
    let Parsed::Complete(head) = parsed else {
        return None;
    };
    let text = |part: &[u8]| String::from_utf8(part.to_owned()).unwrap();
    let list = fields.spans().iter();
    let list = list
        .map(|f| (text(f.name.of(bytes)), f.value.of(bytes).to_owned()))
        .collect();
    let version = u8::from(head.version == Version::Http11);
    let method = text(head.method_token.of(bytes));
    Some((
        method,
        text(head.target.of(bytes)),
        version,
        list,
        head.head_bytes,
    ))
}

/// A request's head and a response's with their fields, by one way of scanning.
type Heads = (
    Result<Parsed<RequestHead>, ParseError>,
    Vec<FieldSpan>,
    Result<Parsed<ResponseHead>, ParseError>,
    Vec<FieldSpan>,
);

fn heads_by(scanner: ScannerKind, request: &[u8], response: &[u8]) -> Heads {
    let limits = Limits::default();
    let (mut fields, mut response_fields) = (HeadFields::new(), HeadFields::new());
    let request = parse_request_head_by(scanner, request, &limits, &mut fields);
    let response = parse_response_head_by(scanner, response, &limits, &mut response_fields);
    let spans = |fields: &HeadFields| fields.spans().to_vec();
    (request, spans(&fields), response, spans(&response_fields))
}

/// Pieces that meet in real and in hostile requests.
fn line_piece() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec![
        &b"Host: a"[..],
        b"Host: example.org:8080",
        b"Content-Length: 5",
        b"Content-Length: 0",
        b"Content-Length: +5",
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: xchunked",
        b"Connection: keep-alive, close",
        b"Expect: 100-continue",
        b"X-Space:   padded \t ",
        b"X-Empty:",
        b" folded",
        b"Name : value",
        b"X: \xff\x80",
        b"X: a\x00b",
        b"",
    ]);
    let random = proptest::collection::vec(any::<u8>(), 0..20);
    prop_oneof![8 => known.prop_map(<[u8]>::to_vec), 1 => random]
}

fn request_line() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => "(GET|PUT|HEAD|POST|OPTIONS|FOO) (/|/a/b\\?c=d&e|/%41~|\\*|http://h:1/x) HTTP/1\\.[01]"
            .prop_map(String::into_bytes),
        1 => "[ -~]{0,30}".prop_map(String::into_bytes),
        1 => proptest::collection::vec(any::<u8>(), 0..30),
    ]
}

fn line_end() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![20 => Just(b"\r\n".to_vec()), 1 => Just(b"\n".to_vec()), 1 => Just(b"\r".to_vec())]
}

prop_compose! {
    fn request()(
        line in request_line(),
        first_end in line_end(),
        fields in proptest::collection::vec((line_piece(), line_end()), 0..6),
        last_end in line_end(),
    ) -> Vec<u8> {
        let mut bytes = [line, first_end].concat();
        for (field, end) in fields {
            bytes.extend_from_slice(&field);
            bytes.extend_from_slice(&end);
        }
        bytes.extend_from_slice(&last_end);
        bytes
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

    /// Goal: whatever we accept, a parser we did not write accepts too and reads the same way.
    #[test]
    fn what_we_accept_httparse_reads_the_same(bytes in request()) {
        if let Some(ours) = our_parts(&bytes) {
            prop_assert_eq!(Some(ours), httparse_parts(&bytes));
        }
    }

    /// Goal: the same after any one byte of a good request is replaced.
    #[test]
    fn one_wrong_byte_never_makes_us_read_something_else(
        place in 0_usize..GOOD.len(), byte in any::<u8>(),
    ) {
        let mut bytes = GOOD.to_vec();
        bytes[place] = byte;
        if let Some(ours) = our_parts(&bytes) {
            prop_assert_eq!(Some(ours), httparse_parts(&bytes));
        }
    }

    /// Goal: whatever scans the bytes, and wherever they are cut, the response is the same to the last
    /// span; so is that about a response.
    #[test]
    fn every_scanner_reads_the_same(bytes in request(), status in "(HTTP/1.1 200 OK\r\n|)") {
        let answer = [status.as_bytes(), &bytes].concat();
        for cut in 0..=bytes.len() {
            let expected = heads_by(ScannerKind::Scalar, &bytes[..cut], &answer[..cut]);
            for scanner in ScannerKind::ALL.into_iter().filter(|scanner| scanner.is_here()) {
                let found = heads_by(scanner, &bytes[..cut], &answer[..cut]);
                prop_assert_eq!(&found, &expected, "{:?}, cut at {}", scanner, cut);
            }
        }
    }

    /// Goal: a cut anywhere means `Partial` or the fault the whole has; the rest then decides.
    #[test]
    fn a_cut_changes_nothing(bytes in request()) {
        let whole = parse(&bytes);
        for cut in 0..bytes.len() {
            match parse(&bytes[..cut]) {
                Ok(Parsed::Partial) => {}
                early => prop_assert_eq!(early, whole, "cut at {}", cut),
            }
        }
    }
}

const GOOD: &[u8] =
    b"POST /v0/entity?id=a%20b HTTP/1.1\r\nHost: example.org:80\r\nUser-Agent: x/1.0 \
    (y; z)\r\nAccept: */*\r\nContent-Length: 12\r\nConnection: keep-alive\r\n\r\n";

/// Goal: the differential tests are not vacuous: good requests are accepted, part by part.
#[test]
fn good_requests_are_accepted() {
    assert_eq!(our_parts(GOOD), httparse_parts(GOOD));
    let head = accepted(GOOD);
    assert_eq!(head.method, Method::Post);
    assert_eq!(head.path.of(GOOD), b"/v0/entity");
    assert_eq!(head.query.unwrap().of(GOOD), b"id=a%20b");
    assert_eq!(head.authority.of(GOOD), b"example.org:80");
    assert_eq!((head.framing, head.keep_alive), (Framing::Length(12), true));
    assert_eq!(head.head_bytes, GOOD.len());

    let absolute = b"GET http://h.example:81?q HTTP/1.1\r\nhost: other\r\n\r\n";
    let head = accepted(absolute);
    assert_eq!(head.authority.of(absolute), b"h.example:81");
    assert!(head.path.is_empty());
    assert_eq!(head.query.unwrap().of(absolute), b"q");

    let chunked = accepted(b"PUT / HTTP/1.1\r\nHost:\r\ntransfer-ENCODING: Chunked\r\n\r\n");
    assert_eq!(chunked.framing, Framing::Chunked);
    assert!(!accepted(b"GET / HTTP/1.0\r\n\r\n").keep_alive);
    assert!(accepted(b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").keep_alive);
    let both = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, CLOSE\r\n\r\n";
    assert!(!accepted(both).keep_alive);
    accepted(b"OPTIONS * HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n");
    accepted(b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let waits = b"PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n\r\n";
    assert!(accepted(waits).expects_continue);
    let nothing = b"GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n";
    assert!(
        !accepted(nothing).expects_continue,
        "there is no body to wait for"
    );
}

/// Goal: each limit refuses one more than it allows, and allows what it says, cut or not.
#[test]
fn limits_hold_to_the_byte() {
    let limits = LimitValues {
        request_line_bytes_max: 64,
        head_bytes_max: 256,
        fields_max: 3,
        body_bytes_max: 10,
        ..LimitValues::default()
    }
    .checked()
    .unwrap();
    let status = |bytes: &[u8]| {
        let outcome = |part: &[u8]| parse_request_head(part, &limits, &mut HeadFields::new());
        let whole = outcome(bytes);
        for cut in 0..bytes.len() {
            let early = outcome(&bytes[..cut]);
            assert!(
                early == Ok(Parsed::Partial) || early == whole,
                "cut at {cut}: {early:?}"
            );
        }
        match whole {
            Ok(Parsed::Complete(_)) => 200,
            Ok(Parsed::Partial) => 100,
            Err(error) => error.status().code(),
        }
    };
    let line = |target: usize| {
        format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(target)).into_bytes()
    };
    let fixed = "GET / HTTP/1.1\r\n".len();
    assert_eq!(status(&line(64 - fixed)), 200);
    assert_eq!(status(&line(64 - fixed + 1)), 414);
    assert_eq!(status(&[b"\r\n".to_vec(), line(64 - fixed)].concat()), 200);
    let head = |value: usize| {
        format!(
            "GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n",
            "x".repeat(value)
        )
        .into_bytes()
    };
    let fixed = head(0).len();
    assert_eq!(status(&head(256 - fixed)), 200);
    assert_eq!(status(&head(256 - fixed + 1)), 431);
    let fields = |count: usize| {
        format!(
            "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
            "X: y\r\n".repeat(count)
        )
        .into_bytes()
    };
    assert_eq!(status(&fields(2)), 200);
    assert_eq!(status(&fields(3)), 431);
    let body = |length: u64| {
        format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n").into_bytes()
    };
    assert_eq!(status(&body(10)), 200);
    assert_eq!(status(&body(11)), 413);
    assert_eq!(status(b"GET / HTTP/1.1\r\nHost: a\r\n"), 100);
}

/// Goal: responses are read as RFC 9112 6.3 says, by status and by what was asked.
#[test]
fn response_framing_depends_on_status_and_method() {
    let framing = |text: &str, method: Method| {
        let mut fields = HeadFields::new();
        match parse_response_head(text.as_bytes(), &Limits::default(), &mut fields) {
            Ok(Parsed::Complete(head)) => (head.framing(method), head.keep_alive(method)),
            other => panic!("{other:?}: {text}"),
        }
    };
    let length = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";
    assert_eq!(framing(length, Method::Get), (Framing::Length(3), true));
    assert_eq!(framing(length, Method::Head), (Framing::None, true));
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(framing(chunked, Method::Get), (Framing::Chunked, true));
    let until_close = "HTTP/1.1 200 OK\r\n\r\n";
    assert_eq!(
        framing(until_close, Method::Get),
        (Framing::UntilClose, false)
    );
    assert_eq!(framing(until_close, Method::Head), (Framing::None, true));
    for status in [204, 304] {
        let text = format!("HTTP/1.1 {status} x\r\nContent-Length: 3\r\n\r\n");
        assert_eq!(framing(&text, Method::Get), (Framing::None, true));
    }
    let old = "HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\n";
    assert_eq!(framing(old, Method::Get), (Framing::Length(3), false));
    let no_reason = "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(framing(no_reason, Method::Get), (Framing::Length(0), true));
}

/// Goal: a response that could be read in two ways is not read at all.
#[test]
fn doubtful_responses_are_refused() {
    for text in [
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 3\r\n\r\n",
        "HTTP/1.1 600 Big\r\n\r\n",
        "HTTP/1.1 20 Short\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n",
        "HTTP/1.1 2000 OK\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
        "HTTP/1.1 200 O\0K\r\n\r\n",
    ] {
        let parsed =
            parse_response_head(text.as_bytes(), &Limits::default(), &mut HeadFields::new());
        assert!(parsed.is_err(), "{text:?}: {parsed:?}");
    }
}
