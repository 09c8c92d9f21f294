//! Heads and trailers as long as offsets of 16 bits reach, and longer: read as httparse reads them, or
//! refused, and never read as something else.

use millpond_http::limits::{FIELDS_CAPACITY, HEAD_BYTES_CAPACITY};
use millpond_http::{
    Framing, HeadFields, LimitValues, Limits, LimitsError, ParseError, Parsed, ScannerKind,
    parse_request_head_by, parse_response_head_by, parse_trailer_fields,
};
use proptest::prelude::*;

fn widest() -> Limits {
    let values = LimitValues {
        request_line_bytes_max: HEAD_BYTES_CAPACITY,
        head_bytes_max: HEAD_BYTES_CAPACITY,
        fields_max: FIELDS_CAPACITY,
        trailer_bytes_max: HEAD_BYTES_CAPACITY,
        ..LimitValues::default()
    };
    values.checked().unwrap()
}

/// Content of a head: the parts of its first line, then names and values.
type Parts = (Vec<Vec<u8>>, Vec<(Vec<u8>, Vec<u8>)>, usize);

fn parts_of_fields(fields: &[httparse::Header<'_>]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let field = |it: &httparse::Header<'_>| (it.name.as_bytes().to_vec(), it.value.to_vec());
    fields.iter().map(field).collect()
}

fn read_by_httparse(bytes: &[u8], is_request: bool) -> Parts {
    let mut room = [httparse::EMPTY_HEADER; FIELDS_CAPACITY];
    let (first, fields, length) = if is_request {
        let mut request = httparse::Request::new(&mut room);
        let length = request.parse(bytes).unwrap().unwrap();
        let first = [request.method.unwrap(), request.path.unwrap()];
        (first, parts_of_fields(request.headers), length)
    } else {
        let mut response = httparse::Response::new(&mut room);
        let length = response.parse(bytes).unwrap().unwrap();
        let first = [response.reason.unwrap(), ""];
        (first, parts_of_fields(response.headers), length)
    };
    let first = first.map(|part| part.as_bytes().to_vec()).to_vec();
    (first, fields, length)
}

fn read_by(
    scanner: ScannerKind,
    bytes: &[u8],
    is_request: bool,
) -> Result<Option<Parts>, ParseError> {
    let mut fields = HeadFields::new();
    let limits = &widest();
    let (first, length) = if is_request {
        match parse_request_head_by(scanner, bytes, limits, &mut fields)? {
            Parsed::Partial => return Ok(None),
            Parsed::Complete(head) => ([head.method_token, head.target], head.head_bytes),
        }
    } else {
        match parse_response_head_by(scanner, bytes, limits, &mut fields)? {
            Parsed::Partial => return Ok(None),
            Parsed::Complete(head) => ([head.reason, Default::default()], head.head_bytes),
        }
    };
    let first = first.map(|part| part.of(bytes).to_vec()).to_vec();
    let spans = fields.spans().iter();
    let fields = spans.map(|it| (it.name.of(bytes).to_vec(), it.value.of(bytes).to_vec()));
    Ok(Some((first, fields.collect(), length)))
}

/// A head of exactly so many bytes: `weights` share out what is left for the first line and the fields.
fn head_of(length: usize, weights: &[usize], is_request: bool) -> Vec<u8> {
    let start = if is_request { "GET /" } else { "HTTP/1.1 200 " };
    let line_end = if is_request { " HTTP/1.1\r\n" } else { "\r\n" };
    let names: Vec<String> = (1..weights.len())
        .map(|index| format!("X-{index}: "))
        .collect();
    let fixed = names.iter().map(|name| name.len() + 2).sum::<usize>();
    let host = "Host: a\r\n";
    let left = length - start.len() - line_end.len() - fixed - host.len() - 2;
    let whole = weights.iter().sum::<usize>().max(1);
    let mut shares: Vec<usize> = weights.iter().map(|weight| left * weight / whole).collect();
    *shares.last_mut().unwrap() += left - shares.iter().sum::<usize>();
    let mut head = start.as_bytes().to_vec();
    head.extend(vec![b'a'; shares[0]]);
    head.extend_from_slice(line_end.as_bytes());
    for (index, (name, share)) in names.iter().zip(&shares[1..]).enumerate() {
        head.extend_from_slice(name.as_bytes());
        head.extend(vec![b'a' + index as u8 % 26; *share]);
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(host.as_bytes());
    head.extend_from_slice(b"\r\n");
    assert_eq!(head.len(), length);
    head
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Goal: on both sides of the longest head that offsets can describe, by every scanner: a head that fits is read as
    /// httparse reads it, a longer one is refused, whatever its parts are and wherever it is cut.
    #[test]
    fn heads_around_the_capacity_are_read_right_or_refused(
        beyond in -40_i64..40,
        weights in proptest::collection::vec(0..1000_usize, 2..100),
        is_request in any::<bool>(),
        cut in 0..80_usize,
    ) {
        let length = (HEAD_BYTES_CAPACITY as i64 + beyond) as usize;
        let bytes = head_of(length, &weights, is_request);
        let fits = beyond <= 0;
        let too_long = ParseError::HeadTooLong { limit_bytes: HEAD_BYTES_CAPACITY };
        let line_too_long = ParseError::RequestLineTooLong { limit_bytes: HEAD_BYTES_CAPACITY };
        for scanner in ScannerKind::ALL.into_iter().filter(|scanner| scanner.is_here()) {
            let read = read_by(scanner, &bytes, is_request);
            match fits {
                true => prop_assert_eq!(read, Ok(Some(read_by_httparse(&bytes, is_request)))),
                false => prop_assert!(read == Err(too_long) || read == Err(line_too_long)),
            }
            let part = &bytes[..length - 1 - cut];
            let read = read_by(scanner, part, is_request);
            match part.len() < HEAD_BYTES_CAPACITY {
                true => prop_assert_eq!(read, Ok(None)),
                false => prop_assert!(read == Err(too_long) || read == Err(line_too_long)),
            }
        }
    }

    /// Goal: the same of trailer sections.
    #[test]
    fn trailers_around_the_capacity_are_read_right_or_refused(
        beyond in -20_i64..20,
        first in 1..60_000_usize,
    ) {
        let length = (HEAD_BYTES_CAPACITY as i64 + beyond) as usize;
        let rest = length - first - "A: \r\nB: \r\n".len();
        let section = format!("A: {}\r\nB: {}\r\n", "a".repeat(first), "b".repeat(rest));
        let mut fields = HeadFields::new();
        let parsed = parse_trailer_fields(section.as_bytes(), &widest(), &mut fields);
        if beyond > 0 {
            let limit_bytes = HEAD_BYTES_CAPACITY;
            prop_assert_eq!(parsed.err(), Some(ParseError::TrailerTooLong { limit_bytes }));
            prop_assert!(fields.is_empty());
        } else {
            prop_assert!(parsed.is_ok());
            let values: Vec<usize> = fields.spans().iter().map(|field| field.value.of(section.as_bytes()).len()).collect();
            prop_assert_eq!(values, [first, rest]);
        }
    }
}

/// A limit of 1 MiB was accepted, and a head of 65,563 bytes was read as one whose fields began 65,536 bytes earlier.
/// Goal: there is no such limit.
#[test]
fn no_limit_is_wider_than_the_offsets() {
    let values = LimitValues {
        head_bytes_max: 1 << 20,
        ..LimitValues::default()
    };
    let error = values.checked().unwrap_err();
    assert_eq!(
        error,
        LimitsError::OutOfRange {
            name: "head_bytes_max",
            value: 1 << 20,
            value_max: 65_535,
        }
    );
    assert_eq!(
        error.to_string(),
        "head_bytes_max is 1048576: use a value from 1 to 65535"
    );
}

/// Goal: a client's limits may allow more fields than the table has places: all are checked, framing is read wherever it
/// stands, the table holds the first, and one more than allowed is refused.
#[test]
fn a_client_may_allow_more_fields_than_the_table_holds() {
    let limits = Limits::DEFAULT
        .with_response_heads(HEAD_BYTES_CAPACITY, 300)
        .unwrap();
    let head = |count: usize, last: &str| {
        let fields: String = (1..count).map(|one| format!("X-{one}: y\r\n")).collect();
        format!("HTTP/1.1 200 OK\r\n{fields}{last}\r\n\r\n").into_bytes()
    };
    for scanner in ScannerKind::ALL
        .into_iter()
        .filter(|scanner| scanner.is_here())
    {
        let mut fields = HeadFields::new();
        let whole = head(300, "Content-Length: 7");
        let parsed = parse_response_head_by(scanner, &whole, &limits, &mut fields);
        let Ok(Parsed::Complete(parsed)) = parsed else {
            panic!("{parsed:?}");
        };
        assert_eq!(parsed.announced, Framing::Length(7));
        assert_eq!(parsed.head_bytes, whole.len());
        assert_eq!(fields.len(), FIELDS_CAPACITY);
        for (bytes, expected) in [
            (head(301, "A: b"), ParseError::TooManyFields { limit: 300 }),
            (head(300, "A : b"), ParseError::SpaceBeforeColon),
        ] {
            let parsed = parse_response_head_by(scanner, &bytes, &limits, &mut fields);
            assert_eq!(parsed, Err(expected));
        }
        let cut = &whole[..whole.len() - 1];
        let parsed = parse_response_head_by(scanner, cut, &limits, &mut fields);
        assert_eq!(parsed, Ok(Parsed::Partial));
    }
    for (head_bytes, fields) in [(0, 1), (1, 0), (HEAD_BYTES_CAPACITY + 1, 1)] {
        assert!(
            Limits::DEFAULT
                .with_response_heads(head_bytes, fields)
                .is_err()
        );
    }
}
