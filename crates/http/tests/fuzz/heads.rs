//! Heads of requests and responses: every scanner says the same, a cut changes nothing, and what is
//! accepted is what the grammar allows.

use millpond_http::{
    FieldSpan, Framing, HeadFields, LimitValues, Limits, ParseError, Parsed, RequestHead,
    ResponseHead, ScannerKind, Version, parse_request_head_by, parse_response_head_by,
};

type Outcome<H> = (Result<Parsed<H>, ParseError>, Vec<FieldSpan>);

fn request(scanner: ScannerKind, bytes: &[u8], limits: &Limits) -> Outcome<RequestHead> {
    let mut fields = HeadFields::new();
    let parsed = parse_request_head_by(scanner, bytes, limits, &mut fields);
    (parsed, fields.spans().to_vec())
}

fn response(scanner: ScannerKind, bytes: &[u8], limits: &Limits) -> Outcome<ResponseHead> {
    let mut fields = HeadFields::new();
    let parsed = parse_response_head_by(scanner, bytes, limits, &mut fields);
    (parsed, fields.spans().to_vec())
}

/// The first byte chooses limits and a cut, the rest is the stream.
pub(crate) fn run(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else {
        return;
    };
    let limits = match choice & 1 {
        0 => Limits::default(),
        _ => LimitValues {
            request_line_bytes_max: 40,
            head_bytes_max: 120,
            fields_max: 4,
            body_bytes_max: 1000,
            ..LimitValues::default()
        }
        .checked()
        .unwrap(),
    };
    let cut = usize::from(choice) * bytes.len() / 256;
    agree(bytes, cut, &limits, request);
    agree(bytes, cut, &limits, response);
    if let (Ok(Parsed::Complete(head)), fields) = request(ScannerKind::Avx2, bytes, &limits) {
        check_request(bytes, &head, &fields, &limits);
    }
    if let (Ok(Parsed::Complete(head)), fields) = response(ScannerKind::Avx2, bytes, &limits) {
        check_fields(bytes, head.head_bytes, &fields, &limits);
    }
}

/// All scanners agree on the whole and on the part before the cut, and the part is undecided or
/// decided like the whole.
fn agree<H: PartialEq + std::fmt::Debug + Copy>(
    bytes: &[u8],
    cut: usize,
    limits: &Limits,
    parse: impl Fn(ScannerKind, &[u8], &Limits) -> Outcome<H>,
) {
    let whole = parse(ScannerKind::Scalar, bytes, limits);
    let part = parse(ScannerKind::Scalar, &bytes[..cut], limits);
    for scanner in ScannerKind::ALL {
        assert_eq!(parse(scanner, bytes, limits), whole, "{scanner:?}");
        assert_eq!(
            parse(scanner, &bytes[..cut], limits),
            part,
            "{scanner:?} cut"
        );
    }
    assert!(
        part.0 == Ok(Parsed::Partial) || part.0 == whole.0,
        "{part:?} {whole:?}"
    );
}

/// Rules spelled out once more, in another way than the parser's.
fn check_request(bytes: &[u8], head: &RequestHead, fields: &[FieldSpan], limits: &Limits) {
    check_fields(bytes, head.head_bytes, fields, limits);
    let target = head.target.of(bytes);
    assert!(target.iter().all(u8::is_ascii_graphic) && !target.is_empty());
    let path = head.path.of(bytes);
    let rebuilt = match head.query {
        Some(query) => [path, b"?", query.of(bytes)].concat(),
        None => path.to_vec(),
    };
    assert!(target.ends_with(&rebuilt));
    assert!(!path.contains(&b'?'));
    let named = |name: &str| {
        let is_named = |f: &&FieldSpan| f.name.of(bytes).eq_ignore_ascii_case(name.as_bytes());
        fields
            .iter()
            .filter(is_named)
            .map(|f| f.value.of(bytes))
            .collect::<Vec<_>>()
    };
    let (hosts, lengths, codings) = (
        named("host"),
        named("content-length"),
        named("transfer-encoding"),
    );
    assert!(hosts.len() == 1 || hosts.is_empty() && head.version == Version::Http10);
    match head.framing {
        Framing::None => assert!(lengths.is_empty() && codings.is_empty()),
        Framing::Length(length) => {
            assert!(codings.is_empty() && lengths.len() == 1 && length <= limits.body_bytes_max);
            let digits = std::str::from_utf8(lengths[0]).expect("digits");
            assert!(digits.bytes().all(|b| b.is_ascii_digit()));
            assert_eq!(digits.parse(), Ok(length));
        }
        Framing::Chunked => {
            assert!(lengths.is_empty() && codings.len() == 1);
            assert!(codings[0].eq_ignore_ascii_case(b"chunked") && head.version == Version::Http11);
        }
        Framing::UntilClose => panic!("a request never ends with the connection"),
    }
    let closes = named("connection").iter().any(|value| {
        let mut options = value.split(|&byte| byte == b',');
        options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
    });
    assert!(!(closes && head.keep_alive));
}

fn check_fields(bytes: &[u8], head_bytes: usize, fields: &[FieldSpan], limits: &Limits) {
    let head = &bytes[..head_bytes];
    assert!(head.ends_with(b"\r\n\r\n") && head_bytes <= limits.head_bytes_max);
    assert!(fields.len() <= limits.fields_max);
    // Every LF belongs to a CRLF, every CR too, and nothing else below the space but tabs.
    for (at, &byte) in head.iter().enumerate() {
        match byte {
            b'\n' => assert_eq!(head[at - 1], b'\r'),
            b'\r' => assert_eq!(head[at + 1], b'\n'),
            _ => assert!(byte >= b' ' && byte != 0x7f || byte == b'\t'),
        }
    }
    for field in fields {
        let (name, value) = (field.name.of(head), field.value.of(head));
        assert!(!name.is_empty() && name.iter().all(|b| b.is_ascii_graphic() && *b != b':'));
        assert_eq!(value, value.trim_ascii());
    }
}
