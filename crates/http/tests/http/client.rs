//! The client connection: pipelined responses cut anywhere, and what a bad server can do.

use crate::support::pool_mode;
use millpond_http::{
    Authority, BodyError, ClientConnection, ClientError, ClientEvent, Field, FieldName, FieldValue,
    IdenticalResponses, LastHead, LimitValues, Limits, Method, RequestTarget, StatusCode,
    encode_request,
};
use millpond_mempool::{BlockPool, Buffer};

/// An event that owns its bytes; body parts of one response joined.
#[derive(Debug, Clone, Eq, PartialEq)]
enum Seen {
    Head(u16, usize, bool),
    Body(Vec<u8>),
    Complete(u16, u64, usize, bool),
}

fn record(seen: &mut Vec<Seen>, event: ClientEvent<'_>) {
    match event {
        ClientEvent::Head {
            status,
            head,
            keep_alive,
        } => {
            assert!(head.starts_with(b"HTTP/1.") && head.ends_with(b"\r\n\r\n"));
            seen.push(Seen::Head(status.code(), head.len(), keep_alive));
        }
        ClientEvent::BodyPart(part) => match seen.last_mut() {
            Some(Seen::Body(body)) => body.extend_from_slice(part),
            _ => seen.push(Seen::Body(part.to_vec())),
        },
        ClientEvent::Complete {
            status,
            body_bytes,
            head_bytes,
            keep_alive,
        } => {
            seen.push(Seen::Complete(
                status.code(),
                body_bytes,
                head_bytes,
                keep_alive,
            ));
        }
        ClientEvent::Alike(_) => unreachable!("nobody asked for responses to be counted"),
    }
}

/// Feeds the pieces, then the end of the stream: to a connection that remembers no head, then to others that remember
/// earlier heads, which must see the same.
fn feed(methods: &[Method], pieces: &[&[u8]]) -> (Vec<Seen>, Result<(), ClientError>) {
    let mut last = LastHead::default();
    let expected = feed_like(methods, pieces, &mut last);
    let heads = [pieces.concat()];
    let whole: Vec<&[u8]> = heads.iter().map(Vec::as_slice).collect();
    for _ in 0..2 {
        assert_eq!(feed_like(methods, pieces, &mut last), expected);
        // Leaves another head behind than the pieces began with, or the same.
        let _ = feed_like(methods, &whole, &mut last);
    }
    for _ in 0..2 {
        // One response of many: its own head is the last one.
        let _ = feed_like(&methods[..methods.len().min(1)], &whole, &mut last);
        assert_eq!(feed_like(methods, pieces, &mut last), expected);
    }
    expected
}

fn feed_like(
    methods: &[Method],
    pieces: &[&[u8]],
    last: &mut LastHead,
) -> (Vec<Seen>, Result<(), ClientError>) {
    let pool = BlockPool::new("test", pool_mode());
    let mut connection = ClientConnection::new(Limits::default());
    methods.iter().for_each(|&method| connection.expect(method));
    let mut seen = Vec::new();
    let mut outcome = Ok(());
    for piece in pieces {
        let mut on = |event: ClientEvent<'_>| record(&mut seen, event);
        outcome = connection.receive_like(piece, &pool, last, &mut on);
        if outcome.is_err() {
            return (seen, outcome);
        }
    }
    outcome = outcome.and(connection.peer_finished(&mut |event| record(&mut seen, event)));
    (seen, outcome)
}

/// Each response reduced to its status and length.
type Counted = Vec<(u16, u64)>;

/// Feeds the pieces to an owner that needs no more than that; also returns how many came as alike.
fn feed_counted(
    methods: &[Method],
    pieces: &[&[u8]],
    limits: Limits,
    last: &mut LastHead,
) -> (Counted, usize, Result<(), ClientError>) {
    let pool = BlockPool::new("test", pool_mode());
    let mut connection = ClientConnection::new(limits);
    methods.iter().for_each(|&method| connection.expect(method));
    let (mut seen, mut alike) = (Vec::new(), 0);
    let mut on = |event: ClientEvent<'_>| match event {
        ClientEvent::Alike(run) => {
            alike += run.count;
            let one = (run.status.code(), run.body_bytes);
            seen.extend(std::iter::repeat_n(one, run.count));
        }
        ClientEvent::Complete {
            status, body_bytes, ..
        } => seen.push((status.code(), body_bytes)),
        _ => {}
    };
    let mut outcome = Ok(());
    for piece in pieces {
        outcome = outcome.and_then(|()| connection.receive_counted(piece, &pool, last, &mut on));
    }
    outcome = outcome.and_then(|()| connection.peer_finished(&mut on));
    (seen, alike, outcome)
}

/// Two statuses in runs, an informational one between them, and a last one of another length.
const ALIKE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\
    HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nworld\
    HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHTTP/\
    HTTP/1.1 100 Continue\r\n\r\n\
    HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n\
    HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n\
    HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello!";

/// Goal: counted responses are those that are taken apart one by one, wherever the bytes are cut and
/// whatever head was the last; most of those that are alike are counted so.
#[test]
fn alike_responses_are_counted_as_single_ones_are() {
    for (methods, bytes, alike_least) in [
        (&[Method::Get; 6], ALIKE, 3),
        (&METHODS, PIPELINE, 0),
        // The bytes after a HEAD request's response would be a body's beginning to another method.
        (&[Method::Head; 6], &ALIKE[..38], 0),
    ] {
        let mut last = LastHead::default();
        for cut in 0..bytes.len() {
            let (front, back) = bytes.split_at(cut);
            let (events, expected) = feed(methods, &[front, back]);
            let completed = |seen: &Seen| match *seen {
                Seen::Complete(status, body_bytes, ..) => Some((status, body_bytes)),
                _ => None,
            };
            let completed: Counted = events.iter().filter_map(completed).collect();
            let (seen, alike, outcome) =
                feed_counted(methods, &[front, back], Limits::default(), &mut last);
            assert_eq!((&seen, &outcome), (&completed, &expected), "cut at {cut}");
            assert!(cut != 0 || alike >= alike_least, "{alike}");
        }
    }
}

/// Goal: the short way takes what is nothing but whole responses like the last one, and leaves all
/// else as if it had not been asked.
#[test]
fn the_short_way_takes_all_or_nothing() {
    let pool = BlockPool::new("test", pool_mode());
    let one = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    let mut last = LastHead::default();
    let expecting = |count| {
        let mut connection = ClientConnection::new(Limits::default());
        connection.expect_many(Method::Get, count);
        connection
    };
    let mut connection = expecting(1);
    assert_eq!(
        connection.receive_alike(one, &last),
        None,
        "no head is known"
    );
    let received = connection.receive_counted(one, &pool, &mut last, &mut |_| {});
    assert_eq!((received, connection.unanswered()), (Ok(()), 0));
    let three = one.repeat(3);
    let mut connection = expecting(3);
    let all = IdenticalResponses {
        count: 3,
        status: StatusCode::OK,
        body_bytes: 5,
    };
    assert_eq!(connection.receive_alike(&three, &last), Some(all));
    assert_eq!(connection.unanswered(), 0);
    for cut in (1..three.len()).filter(|cut| cut % one.len() != 0) {
        let (front, back) = three.split_at(cut);
        let mut connection = expecting(3);
        for part in [front, back] {
            assert_eq!(connection.receive_alike(part, &last), None, "cut at {cut}");
            let received = connection.receive_counted(part, &pool, &mut last, &mut |_| {});
            assert_eq!(received, Ok(()));
        }
        assert_eq!(connection.unanswered(), 0, "cut at {cut}");
    }
    let mut connection = expecting(1);
    connection.expect(Method::Head);
    assert_eq!(
        connection.receive_alike(&one.repeat(2), &last),
        None,
        "one is for HEAD"
    );
    assert_eq!(
        expecting(2).receive_alike(&three, &last),
        None,
        "one is for nobody"
    );
}

/// Goal: an unsolicited response, one after the last one, and a body beyond the limit of this connection are refused as
/// they are without a head to compare with.
#[test]
fn alike_responses_keep_to_what_was_asked() {
    let one = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    let mut last = LastHead::default();
    let mut feed = |methods: &[Method], bytes: &[u8], limits| {
        feed_counted(methods, &[bytes], limits, &mut last)
    };
    let get = [Method::Get; 3];
    let (seen, alike, outcome) = feed(&get, &one.repeat(3), Limits::default());
    assert_eq!((seen.len(), alike, outcome), (3, 2, Ok(())));
    let (seen, _, outcome) = feed(&get, &one.repeat(4), Limits::default());
    assert_eq!(seen.len(), 3);
    assert_eq!(
        outcome,
        Err(ClientError::Unasked {
            count_bytes: one.len()
        })
    );
    let tight = LimitValues {
        body_bytes_max: 4,
        ..LimitValues::default()
    }
    .checked()
    .unwrap();
    let (seen, _, outcome) = feed(&get, one, tight);
    assert_eq!((seen.len(), outcome.is_err()), (0, true));
    let closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    let (seen, alike, outcome) = feed(&get, &closing.repeat(2), Limits::default());
    assert_eq!((seen.len(), alike), (1, 0));
    assert!(
        matches!(outcome, Err(ClientError::Unasked { .. })),
        "{outcome:?}"
    );
}

const PIPELINE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n\
    HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\
    HTTP/1.1 404 Not Found\r\nContent-Length: 7\r\n\r\n\
    HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: u\r\n\r\n\
    HTTP/1.1 204 No Content\r\n\r\n\
    HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n\
    HTTP/1.1 200 OK\r\n\r\nuntil the end";

const METHODS: [Method; 6] = [
    Method::Put,
    Method::Head,
    Method::Get,
    Method::Delete,
    Method::Get,
    Method::Get,
];

/// Goal: each response is matched with its request and framed by both.
#[test]
fn a_pipeline_is_taken_apart() {
    let (seen, outcome) = feed(&METHODS, &[PIPELINE]);
    assert_eq!(outcome, Ok(()));
    let expected = vec![
        Seen::Head(200, 38, true),
        Seen::Body(b"hello".to_vec()),
        Seen::Complete(200, 5, 38, true),
        Seen::Head(404, 45, true),
        Seen::Complete(404, 0, 45, true),
        Seen::Head(200, 47, true),
        Seen::Body(b"abcde".to_vec()),
        Seen::Complete(200, 5, 47, true),
        Seen::Head(204, 27, true),
        Seen::Complete(204, 0, 27, true),
        Seen::Head(200, 38, true),
        Seen::Complete(200, 0, 38, true),
        Seen::Head(200, 19, false),
        Seen::Body(b"until the end".to_vec()),
        Seen::Complete(200, 13, 19, false),
    ];
    assert_eq!(seen, expected);
}

/// Goal: cut at every byte, in two pieces or byte by byte, the events are the same.
#[test]
fn every_cut_gives_the_same_events() {
    let whole = feed(&METHODS, &[PIPELINE]);
    for cut in 0..PIPELINE.len() {
        let (front, back) = PIPELINE.split_at(cut);
        assert_eq!(feed(&METHODS, &[front, back]), whole, "cut at {cut}");
    }
    let bytes: Vec<&[u8]> = PIPELINE.chunks(1).collect();
    assert_eq!(feed(&METHODS, &bytes), whole);
}

/// Goal: a server that breaks the protocol is caught, and the error says how.
#[test]
fn bad_servers_are_caught() {
    let outcome = |methods: &[Method], text: &str| feed(methods, &[text.as_bytes()]).1;
    let get = [Method::Get];
    assert_eq!(
        outcome(&[], "HTTP/1.1 200 OK\r\n\r\n"),
        Err(ClientError::Unasked { count_bytes: 19 })
    );
    let twice = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n";
    assert_eq!(
        outcome(&get, twice),
        Err(ClientError::Unasked { count_bytes: 19 })
    );
    let after_close =
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n";
    let error = outcome(&[Method::Get, Method::Get], after_close);
    assert_eq!(error, Err(ClientError::Unasked { count_bytes: 19 }));
    let early = Err(ClientError::ClosedEarly { unanswered: 1 });
    assert_eq!(outcome(&get, ""), early);
    assert_eq!(
        outcome(&get, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"),
        early
    );
    assert_eq!(outcome(&get, "HTTP/1.1 200 O"), early);
    let cut_chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    assert_eq!(outcome(&get, cut_chunks), early);
    let bad_chunk = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz";
    assert_eq!(
        outcome(&get, bad_chunk),
        Err(ClientError::Body(BodyError::BadChunkSize))
    );
    let switched = "HTTP/1.1 101 Switching Protocols\r\n\r\n";
    assert_eq!(outcome(&get, switched), Err(ClientError::SwitchedProtocols));
    assert!(matches!(
        outcome(&get, "SSH-2.0-x\r\n"),
        Err(ClientError::Head(_))
    ));
}

/// Goal: a request contains each required field, and none twice.
#[test]
fn requests_are_written_completely() {
    const TARGET: RequestTarget<'_> = RequestTarget::from_static("/v0?id=1");
    const HOST: Authority<'_> = Authority::from_static("h:80");
    const X_A: Field<'_> = (FieldName::from_static("X-A"), FieldValue::from_static("b"));
    let pool = BlockPool::new("test", pool_mode());
    let mut output = Buffer::new();
    let mut write = |method, fields: &[Field<'_>], body: &[u8]| {
        output.clear();
        encode_request(&mut output, &pool, method, TARGET, HOST, fields, body).unwrap();
        String::from_utf8(output.to_vec()).unwrap()
    };
    assert_eq!(
        write(Method::Get, &[], b""),
        "GET /v0?id=1 HTTP/1.1\r\nHost: h:80\r\n\r\n"
    );
    assert_eq!(
        write(Method::Put, &[X_A], b"data"),
        "PUT /v0?id=1 HTTP/1.1\r\nHost: h:80\r\nX-A: b\r\nContent-Length: 4\r\n\r\ndata"
    );
    let empty = write(Method::Post, &[], b"");
    assert!(empty.contains("\r\nContent-Length: 0\r\n"), "{empty}");
    assert!(!write(Method::Delete, &[], b"").contains("Content-Length"));
}
