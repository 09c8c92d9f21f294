//! Every known way to make two parties read a request differently, through the proxy to servers by
//! others: each must see what we parsed, no request more and none less, with the same target and body.

use super::others::OtherServer;
use super::proxy;
use crate::fuzz::table::{Entry, entries};
use crate::support::PATIENCE;
use millpond_http::proxy::HalfClose;
use millpond_http::{BodyDecoder, HeadFields, Limits, Parsed, parse_request_head};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

const TABLE: &str = include_str!("../../data/smuggling.txt");

/// All that a client gets that sends these bytes and then finishes.
fn exchange(address: std::net::SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The refusal may come before the last byte; the rest is then discarded, or fails.
    if stream.write_all(bytes).is_ok() {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut answer = Vec::new();
    // A reset behind a refusal destroys nothing that was read.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Bytes as the lists of others have them: one character each.
fn text_of(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

/// A request line and its body.
type Sound = (String, String);

/// The target in origin form (RFC 9112 3.2), computed independently of the proxy.
fn origin_form(method: &str, target: &str) -> String {
    let Some((_, rest)) = target.split_once("://") else {
        return target.to_owned();
    };
    match rest.find(['/', '?']) {
        Some(at) if rest[at..].starts_with('/') => rest[at..].to_owned(),
        Some(at) => format!("/{}", &rest[at..]),
        None if method == "OPTIONS" => "*".to_owned(),
        None => "/".to_owned(),
    }
}

/// Result of our parsers for the bytes: every request that is complete, in order.
fn parsed(mut input: &[u8]) -> Vec<Sound> {
    let (limits, mut fields) = (Limits::default(), HeadFields::new());
    let mut requests = Vec::new();
    while let Ok(Parsed::Complete(head)) = parse_request_head(input, &limits, &mut fields) {
        let method = text_of(head.method_token.of(input));
        let target = text_of(head.target.of(input));
        input = &input[head.head_bytes..];
        let mut body = Vec::new();
        let mut decoder = BodyDecoder::new(head.framing, &limits);
        while let Some(decode) = &mut decoder {
            let Ok(step) = decode.decode(input) else {
                return requests;
            };
            body.extend_from_slice(step.data);
            input = &input[step.consumed_bytes..];
            if step.is_complete {
                decoder = None;
            } else if input.is_empty() {
                return requests;
            }
        }
        let target = origin_form(&method, &target);
        requests.push((format!("{method} {target} HTTP/1.1"), text_of(&body)));
        if !head.keep_alive {
            break;
        }
    }
    requests
}

/// Valid requests that another server refuses for its own reasons: they arrive whole and in order, and the refusal goes
/// back to the client. Other versions may have fewer reasons.
fn reasons_to_refuse(server: &OtherServer) -> &'static [&'static str] {
    match server.name {
        // Methods are upper-case letters to it, and it has nothing to say about itself.
        "nginx" => &[
            "lower-case method",
            "method with a colon",
            "asterisk with OPTIONS",
        ],
        // It knows the methods that it knows.
        "node" => &["lower-case method"],
        _ => &[],
    }
}

/// Whether a server's line stands for a refusal by it.
fn is_refusal(seen: &Value) -> bool {
    seen["status"].as_u64().is_some_and(|status| status >= 400)
}

/// At most one Host and one framing, however they are spelt.
fn check_fields(name: &str, seen: &Value) {
    let Some(fields) = seen["fields"].as_array() else {
        return;
    };
    let count = |wanted: &str| {
        let is_wanted = |field: &&Value| {
            let name = field[0].as_str().unwrap().replace('_', "-");
            name.eq_ignore_ascii_case(wanted)
        };
        fields.iter().filter(is_wanted).count()
    };
    assert!(count("host") <= 1, "{name}: {seen}");
    let framings = count("content-length") + count("transfer-encoding");
    assert!(framings <= 1, "{name}: {seen}");
    assert_eq!(count("upgrade"), 0, "{name}: {seen}");
    // Behind a body there is nothing that could be taken for one of the head's.
    for trailer in seen["trailers"].as_array().into_iter().flatten() {
        let found = trailer[0].as_str().unwrap();
        assert!(found.starts_with("X-Sum"), "{name}: {seen}");
    }
}

/// Compares what a server saw with what we parsed; returns how many it served. The rest it refused.
fn compare(name: &str, entry: &Entry, sound: &[Sound], seen: &[Value]) -> usize {
    let mut served = 0;
    let mut rest = seen.iter().filter(|it| it["cut"].is_null());
    for (line, body) in sound {
        let next = rest.next();
        let next = next.unwrap_or_else(|| panic!("{name}: it never saw {line}: {seen:?}"));
        if is_refusal(next) {
            continue;
        }
        let found = (next["line"].as_str(), next["body"].as_str());
        assert_eq!(found, (Some(&**line), Some(&**body)), "{name}");
        check_fields(name, next);
        served += 1;
    }
    // nginx logs also a request that the proxy cut, since the rest of it turned out to be unsound.
    for more in rest {
        let is_cut = is_refusal(more) && entry.value("answer").split(", ").count() > sound.len();
        let line = more["line"].as_str().unwrap_or_default();
        assert!(is_cut && !line.contains("smuggled"), "{name}: {more}");
    }
    served
}

/// Sends every vector, each followed by a request that the server must not see if the connection is
/// to close; returns how many requests were served in all.
fn play(server: &OtherServer) -> usize {
    let (front, _control) = proxy(
        std::slice::from_ref(&server.address),
        Limits::default(),
        // Each vector ends with the client's FIN, and all requests before it get responses.
        |config| {
            let timeout_ns = PATIENCE.as_nanos() as u64;
            config.half_close = HalfClose::Allow { timeout_ns };
        },
    );
    let (mut served_in_all, mut count) = (0, 0);
    let mut refused_sound = Vec::new();
    for (index, entry) in entries(TABLE, &["why", "answer"]).iter().enumerate() {
        let name = format!("{}: {}", server.name, entry.name);
        let statuses: Vec<&str> = entry.value("answer").split(", ").collect();
        let smuggled: &[u8] = match statuses.last().unwrap().ends_with("keep") {
            true => b"",
            false => b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
        };
        let bytes = [entry.bytes.as_slice(), smuggled].concat();
        let answer = exchange(front.address, &bytes);
        let mark = format!("/mark-{index}-");
        let asked = front
            .connect()
            .ask(format!("GET {mark} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(asked.status, 200, "{name}: {}", asked.text());
        let seen = server.seen_until(count, &mark);
        count += seen.len() + 1;
        let sound = parsed(&bytes);
        let expected = statuses.iter().filter(|it| it.starts_with("200")).count();
        assert_eq!(sound.len(), expected, "{name}: {sound:?}");
        let served = compare(&name, entry, &sound, &seen);
        if served < sound.len() {
            refused_sound.push(entry.name.clone());
        }
        assert_eq!(
            answer.matches("HTTP/1.1 200 ").count(),
            served,
            "{name}: {answer}"
        );
        if let Some(refused) = statuses.iter().find(|status| !status.starts_with("200")) {
            let status = format!("HTTP/1.1 {} ", &refused[..3]);
            assert!(answer.contains(&status), "{name}: {answer}");
        }
        served_in_all += served;
    }
    let reasons = reasons_to_refuse(server);
    refused_sound.retain(|name| !reasons.contains(&&**name));
    assert_eq!(
        refused_sound, [""; 0],
        "{} refuses what is sound",
        server.name
    );
    served_in_all
}

/// Goal: for each vector of the table, Python's server sees exactly what we parsed, in order, and none
/// of what was hidden in it; refusals are ours, and what is refused is never passed on.
#[test]
fn python_sees_what_was_parsed() {
    let served = play(&OtherServer::python());
    assert!(served > 60, "the sound ones were passed on: {served}");
}

/// Goal: the same of nginx.
#[test]
fn nginx_sees_what_was_parsed() {
    let served = play(&OtherServer::nginx());
    assert!(served > 60, "the sound ones were passed on: {served}");
}

/// Goal: the same of node.
#[test]
fn node_sees_what_was_parsed() {
    if let Some(node) = OtherServer::node() {
        let served = play(&node);
        assert!(served > 60, "the sound ones were passed on: {served}");
    }
}
