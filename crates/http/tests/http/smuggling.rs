//! Every known way to make two parties read a request differently, from a table: against the parsers
//! alone and against a server over a socket, whole and byte by byte.

use crate::fuzz::table::{Entry, entries};
use crate::support::{Echo, PATIENCE, RawClient, TestServer};
use millpond_http::{BodyDecoder, HeadFields, LimitValues, Limits, Parsed, parse_request_head};
use std::io::Write;

const TABLE: &str = include_str!("../data/smuggling.txt");

/// A status, and whether the connection stays open after it.
type Answer = (u16, bool);

struct Vector {
    entry: Entry,
    answers: Vec<Answer>,
}

fn vectors() -> Vec<Vector> {
    let with_answers =
        |entry: Entry| {
            let answers = entry.value("answer").split(", ").map(|answer| {
                match answer.split_once(' ').unwrap() {
                    (status, "keep") => (status.parse().unwrap(), true),
                    (status, "close") => (status.parse().unwrap(), false),
                    other => panic!("{}: no response: {other:?}", entry.name),
                }
            });
            let answers = answers.collect();
            Vector { entry, answers }
        };
    entries(TABLE, &["why", "answer"])
        .into_iter()
        .map(with_answers)
        .collect()
}

/// Responses to these pieces of a connection that sends 200 to every valid request.
fn answers(pieces: &[&[u8]]) -> Vec<Answer> {
    let limits = Limits::default();
    let mut fields = HeadFields::new();
    let (mut answers, mut input) = (Vec::new(), Vec::new());
    // The body being read, and whether the connection outlives its request.
    let mut body: Option<(BodyDecoder, bool)> = None;
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            if let Some((decoder, keep_alive)) = body.as_mut() {
                let step = match decoder.decode(&input) {
                    Ok(step) => step,
                    Err(error) => {
                        answers.push((error.status().code(), false));
                        return answers;
                    }
                };
                let (used, is_complete, keep_alive) =
                    (step.consumed_bytes, step.is_complete, *keep_alive);
                input.drain(..used);
                if !is_complete {
                    if input.is_empty() {
                        break;
                    }
                    continue;
                }
                body = None;
                answers.push((200, keep_alive));
                if !keep_alive {
                    return answers;
                }
            }
            match parse_request_head(&input, &limits, &mut fields) {
                Ok(Parsed::Partial) => break,
                Ok(Parsed::Complete(head)) => {
                    input.drain(..head.head_bytes);
                    body = BodyDecoder::new(head.framing, &limits).map(|d| (d, head.keep_alive));
                    if body.is_none() {
                        answers.push((200, head.keep_alive));
                        if !head.keep_alive {
                            return answers;
                        }
                    }
                }
                Err(error) => {
                    answers.push((error.status().code(), false));
                    return answers;
                }
            }
        }
    }
    answers
}

/// Goal: the table is as large as it claims to be, its names are unique and its reasons name clauses.
#[test]
fn the_table_is_in_order() {
    let vectors = vectors();
    assert!(vectors.len() >= 200, "{}", vectors.len());
    let mut names: Vec<&str> = vectors.iter().map(|v| v.entry.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), vectors.len(), "two entries have one name");
    for vector in &vectors {
        let why = vector.entry.value("why");
        assert!(
            why.starts_with("RFC ") && why.contains(": "),
            "{}: {why}",
            vector.entry.name
        );
        let (last, before) = vector.answers.split_last().unwrap();
        assert!(
            before.iter().all(|(_, stays)| *stays),
            "{}",
            vector.entry.name
        );
        assert!(
            last.0 == 200 || !last.1,
            "{}: a refusal closes",
            vector.entry.name
        );
    }
}

/// Goal: the parsers' results are those of the table, whole, byte by byte and cut in two anywhere.
#[test]
fn parsers_answer_as_the_table_says_at_any_cut() {
    for Vector {
        entry,
        answers: expected,
    } in vectors()
    {
        let (name, bytes) = (&entry.name, entry.bytes.as_slice());
        assert_eq!(answers(&[bytes]), expected, "{name}: whole");
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(answers(&single), expected, "{name}: byte by byte");
        // Long vectors are long for the sake of a limit, which the short steps above have crossed.
        for cut in 0..bytes.len().min(400) {
            let (first, second) = bytes.split_at(cut);
            assert_eq!(answers(&[first, second]), expected, "{name}: cut at {cut}");
        }
    }
}

/// Sends one vector, checks the responses and what becomes of the connection; returns how many requests
/// the server has served for it.
fn check_over_a_socket(client: &mut RawClient, vector: &Vector, is_trickled: bool) -> u64 {
    let Vector { entry, answers } = vector;
    let name = &entry.name;
    let (_, stays) = *answers.last().unwrap();
    let smuggled: &[u8] = if stays {
        b""
    } else {
        b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
    };
    let bytes = [entry.bytes.as_slice(), smuggled].concat();
    let piece_bytes = if is_trickled { 1 } else { bytes.len() };
    for piece in bytes.chunks(piece_bytes) {
        // The refusal may come before the last byte; the rest is then discarded, or fails.
        if client.stream.write_all(piece).is_err() {
            break;
        }
    }
    let mut served = 0;
    for (index, &(status, stays)) in answers.iter().enumerate() {
        let mut response = client.response();
        if response.status == 100 {
            response = client.response();
        }
        assert_eq!(
            response.status,
            status,
            "{name}, answer {index}: {}",
            response.text()
        );
        let says_close = response.header("connection") == Some("close");
        assert_eq!(says_close, !stays, "{name}, answer {index}");
        let first_line = response
            .text()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned();
        assert!(!first_line.contains("smuggled"), "{name}: {first_line}");
        served += u64::from(status == 200);
    }
    if stays {
        let probe = client.ask("GET /probe HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(probe.text(), "GET /probe\n", "{name}: the next request");
        return served + 1;
    }
    client.expect_end();
    served
}

/// Goal: so does a server over a socket, whole and byte by byte; after a refusal nothing is served,
/// and after a response that keeps the connection the next request is found where it begins.
#[test]
fn a_server_answers_as_the_table_says() {
    // Thousands of single bytes take their time on a machine that has much else to do.
    let patience_ns = PATIENCE.as_nanos() as u64;
    let limits = LimitValues {
        head_timeout_ns: patience_ns,
        body_grace_ns: patience_ns,
        ..LimitValues::default()
    }
    .checked()
    .unwrap();
    let server = TestServer::with_limits(limits, |_| Echo);
    let mut served = 0;
    for vector in vectors() {
        for is_trickled in [false, true] {
            served += check_over_a_socket(&mut server.connect(), &vector, is_trickled);
        }
    }
    assert_eq!(server.stop().requests, served);
}
