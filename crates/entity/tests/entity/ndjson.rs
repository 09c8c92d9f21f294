//! Ranges as lines of JSON: read by another parser, directly, through our proxy and by HTTP/1.0, against a sorted map.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::Arc;

use crate::range::of_hundred_records;
use crate::support::{Client, TestServer, request_with, rocksdb, target};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millpond_entity::store::faulty::Faults;
use millpond_entity::store::memory::MemoryStore;
use millpond_http::proxy::{Proxy, ProxyConfig, ProxyControl, UpstreamConfig};
use millpond_io::Address;
use millpond_io::connection_pool::Endpoint;
use serde_json::{Value, json};

const LINES: &str = "Accept: application/x-ndjson\r\n";

/// Our proxy in front of a server; it forms chunks anew.
fn proxy(server: &TestServer) -> TestServer {
    let address = Address::Inet(server.address);
    let upstream = UpstreamConfig {
        name: address.to_string(),
        place: Endpoint::Addresses(vec![address]),
        host: "upstream".to_owned(),
        weight: 1,
        tls: None,
        proxy_protocol: None,
    };
    TestServer::launch(
        |_, _| {},
        move |_, http, control| {
            let proxied = ProxyControl::new(ProxyConfig::new(vec![upstream]), false, None).unwrap();
            let make = move |start| {
                Ok::<_, std::convert::Infallible>(Proxy::new(&proxied, &start, http.limits))
            };
            millpond_http::serve_with(http, make, |running| control(running)).unwrap()
        },
    )
}

/// All lines of a range's response; that each ends is checked.
fn lines(client: &mut Client, target: &str) -> Vec<Value> {
    client
        .send(&request_with("GET", target, LINES, b""))
        .unwrap();
    let reply = client.read_reply(true).unwrap().unwrap();
    assert_eq!(reply.status, 200, "{target}");
    assert_eq!(reply.field("Content-Type"), Some("application/x-ndjson"));
    assert_eq!(reply.field("Vary"), Some("Accept"));
    let body = client.read_chunks().unwrap().concat();
    parsed(&body)
}

fn parsed(body: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(body).unwrap();
    assert!(text.ends_with('\n'), "{text}");
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

/// The field of that name, or the one in base64.
fn bytes(line: &Value, name: &str) -> Vec<u8> {
    match &line[format!("{name}_base64")] {
        Value::Null => line[name].as_str().unwrap().as_bytes().to_vec(),
        coded => STANDARD.decode(coded.as_str().unwrap()).unwrap(),
    }
}

/// The entities of a response, and its last line.
fn entities(lines: &[Value]) -> (BTreeMap<Vec<u8>, Vec<u8>>, &Value) {
    let (last, entities) = lines.split_last().unwrap();
    let ids: Vec<_> = entities.iter().map(|line| bytes(line, "id")).collect();
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    let values = entities.iter().map(|line| bytes(line, "value"));
    (ids.iter().cloned().zip(values).collect(), last)
}

/// Ids and values that forge records of the other format, or are no text, and types that say text or not.
fn awkward() -> Vec<(Vec<u8>, Vec<u8>, &'static str)> {
    vec![
        (b"a\nb".to_vec(), b"c\nd\n0\n".to_vec(), "text/plain"),
        (
            b"a\"}".to_vec(),
            b"{\"end\":true}\n".to_vec(),
            "application/json",
        ),
        (
            b"nul\0".to_vec(),
            b"\0\x01\x1f\x7f\\".to_vec(),
            "text/plain",
        ),
        (b"\xff\xfe".to_vec(), b"\xc3(".to_vec(), "text/plain"),
        (
            "é\u{2028}".into(),
            "\u{1f600}é".into(),
            "text/html; charset=utf-8",
        ),
        (b"\r\n".to_vec(), b"".to_vec(), ""),
        (vec![b'"'; 1024], vec![7; 70_000], "text/plain"),
        (vec![0xff; 1024], vec![b'\n'; 65_536], "text/plain"),
        (
            b"large".to_vec(),
            (0..3_000_001).map(|n| (n % 253) as u8).collect(),
            "",
        ),
        (
            b"{".to_vec(),
            (0..150_000).map(|n| n as u8).collect(),
            "application/json",
        ),
    ]
}

fn put_awkward(client: &mut Client) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut map = BTreeMap::new();
    for (id, value, content_type) in awkward() {
        let field = match content_type {
            "" => String::new(),
            given => format!("Content-Type: {given}\r\n"),
        };
        client
            .send(&request_with("PUT", &target(&id), &field, &value))
            .unwrap();
        assert_eq!(client.read_reply(false).unwrap().unwrap().status, 201);
        map.insert(id, value);
    }
    map
}

fn on_both(scene: impl Fn(&TestServer)) {
    scene(&TestServer::start(&Arc::new(MemoryStore::new()), |_, _| {}));
    let (_directory, store) = rocksdb();
    scene(&TestServer::start(&store, |_, _| {}));
}

/// Records were separated by chunks alone, which intermediaries change and libraries hide, and a value could forge
/// others.
///
/// Goal: another JSON parser finds the same entities, directly, behind a proxy and by HTTP/1.0, whatever is in them;
/// each tag is that of the entity, and the type is the one it was put with.
#[test]
fn lines_survive_what_lies_between() {
    on_both(|server| {
        let mut client = server.connect();
        let map = put_awkward(&mut client);
        let all = "/v0/entities?start=%00";
        let direct = lines(&mut client, all);
        let (found, last) = entities(&direct);
        assert!(found == map);
        assert_eq!(last, &json!({"end": true}));
        let between = proxy(server);
        assert!(lines(&mut between.connect(), all) == direct);
        let mut old = server.connect();
        let request = format!("GET {all} HTTP/1.0\r\nHost: h\r\n{LINES}\r\n");
        old.send(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        old.stream.read_to_end(&mut answer).unwrap();
        let head_bytes = answer.windows(4).position(|four| four == b"\r\n\r\n");
        assert!(parsed(&answer[head_bytes.unwrap() + 4..]) == direct);
        for ((id, _, content_type), line) in awkward().iter().flat_map(|entity| {
            let line = direct
                .iter()
                .find(|line| line.get("end").is_none() && bytes(line, "id") == entity.0);
            line.map(|line| (entity, line))
        }) {
            let reply = client.request("HEAD", &target(id), b"");
            assert_eq!(line["etag"].as_str(), reply.field("ETag"));
            assert_eq!(line["type"].as_str().unwrap_or_default(), *content_type);
            assert_eq!(line.get("expires"), None);
        }
    });
}

/// Goal: a range in pieces of any length, each begun where the previous last line points, equals the range in one
/// piece; expired entities do not count; only the last piece is marked as the end.
#[test]
fn pieces_are_the_whole() {
    on_both(|server| {
        let mut client = server.connect();
        let mut map = put_awkward(&mut client);
        for n in 0..200_u8 {
            let id = [b'm', n];
            let ended = "&expires=1";
            let target = target(&id) + if n % 3 == 0 { ended } else { "" };
            assert_eq!(client.request("PUT", &target, &[n]).status, 201);
            if n % 3 != 0 {
                map.insert(id.to_vec(), vec![n]);
            }
        }
        for limit in [1, 2, 7, map.len() - 1, map.len(), map.len() + 1] {
            let (mut found, mut pieces) = (BTreeMap::new(), 0);
            let mut first = "start=%00".to_owned();
            loop {
                let piece = format!("/v0/entities?{first}&limit={limit}");
                let piece = lines(&mut client, &piece);
                let (some, last) = entities(&piece);
                assert!(some.len() <= limit && (some.len() == limit || last.get("end").is_some()));
                pieces += 1;
                let newest = some.keys().next_back().cloned();
                found.extend(some);
                if *last == json!({"end": true}) {
                    break;
                }
                let next = bytes(last, "next");
                assert_eq!(Some(&next), newest.as_ref());
                first = target(&next).replace("/v0/entity?id", "after");
            }
            assert!(found == map, "{limit}");
            assert_eq!(pieces, map.len().div_ceil(limit), "{limit}");
        }
    });
}

/// Goal: `after` leaves out that id and nothing else; `end` and `limit` go together with it; chunks are limited too.
#[test]
fn first_ids_are_included_or_not() {
    on_both(|server| {
        let mut client = server.connect();
        for id in [&b"a"[..], b"a\0", b"a\0\0", b"b", b"c"] {
            assert_eq!(client.put(id, b"1"), 201);
        }
        let mut ids = |query: &str| {
            let lines = lines(&mut client, &format!("/v0/entities?{query}"));
            let (found, last) = entities(&lines);
            let ids: Vec<_> = found
                .into_keys()
                .map(|id| String::from_utf8(id).unwrap())
                .collect();
            (ids.join(","), last.clone())
        };
        let end = || json!({"end": true});
        assert_eq!(ids("after=a"), ("a\0,a\0\0,b,c".to_owned(), end()));
        assert_eq!(ids("after=a%00"), ("a\0\0,b,c".to_owned(), end()));
        assert_eq!(
            ids("after=a&end=c&limit=3"),
            ("a\0,a\0\0,b".to_owned(), end())
        );
        assert_eq!(
            ids("after=a&end=c&limit=2"),
            ("a\0,a\0\0".to_owned(), json!({"next": "a\0\0"}))
        );
        assert_eq!(ids("after=c"), (String::new(), end()));
        client
            .send(&request_with(
                "GET",
                "/v0/entities?after=a%00%00&limit=1",
                "",
                b"",
            ))
            .unwrap();
        assert_eq!(client.read_reply(true).unwrap().unwrap().status, 200);
        assert_eq!(client.read_chunks().unwrap(), [b"b\n1"]);
    });
}

/// Goal: chunks are sent unless lines are requested by name; the same for HEAD; unknown values are 400.
#[test]
fn formats_and_refusals() {
    let server = TestServer::start(&Arc::new(MemoryStore::new()), |_, _| {});
    let mut client = server.connect();
    for (accept, content_type) in [
        ("", "application/octet-stream"),
        ("Accept: */*\r\n", "application/octet-stream"),
        (LINES, "application/x-ndjson"),
        (
            "Accept: text/html, application/x-ndjson;q=0.5\r\n",
            "application/x-ndjson",
        ),
        (
            "Accept: */*\r\nAccept: application/x-ndjson\r\n",
            "application/x-ndjson",
        ),
        (
            "Accept: application/octet-stream, application/x-ndjson;q=0.9\r\n",
            "application/octet-stream",
        ),
    ] {
        client
            .send(&request_with("HEAD", "/v0/entities?start=a", accept, b""))
            .unwrap();
        let reply = client.read_reply(true).unwrap().unwrap();
        assert_eq!(reply.field("Content-Type"), Some(content_type), "{accept}");
        assert_eq!(reply.field("Vary"), Some("Accept"));
    }
    for bad in [
        "start=a&after=a",
        "start=a&limit=0",
        "start=a&limit=",
        "start=a&limit=+1",
        "start=a&limit=1&limit=2",
        "start=a&Limit=1",
        "after=",
        "after=%4",
        "limit=1",
    ] {
        let reply = client.request("GET", &format!("/v0/entities?{bad}"), b"");
        assert_eq!(reply.status, 400, "{bad}");
    }
}

/// Goal: how an entity ends is in its line, to the millisecond that is stored.
#[test]
fn ends_are_told() {
    let server = TestServer::start(&Arc::new(MemoryStore::new()), |_, _| {});
    let mut client = server.connect();
    let reply = client.request("PUT", "/v0/entity?id=a&expires=4102444800", b"1");
    assert_eq!(reply.status, 201);
    let lines = lines(&mut client, "/v0/entities?start=a");
    assert_eq!(lines[0]["expires"].as_f64(), Some(4_102_444_800.0));
}

/// Goal: a response that is cut has no last line, and its connection ends without the last chunk.
#[test]
fn cut_answers_have_no_last_line() {
    let faults = Faults {
        failed_visit: Some(3),
        ..Faults::default()
    };
    let store = of_hundred_records(faults);
    let server = TestServer::start(&Arc::new(store), |_, _| {});
    let mut client = server.connect();
    client
        .send(&request_with("GET", "/v0/entities?start=%00", LINES, b""))
        .unwrap();
    assert_eq!(client.read_reply(true).unwrap().unwrap().status, 200);
    let mut body = Vec::new();
    client.stream.read_to_end(&mut body).unwrap();
    let text = String::from_utf8_lossy(&body);
    assert!(!text.contains("\"end\"") && !text.contains("\"next\""));
    assert!(!text.ends_with("\r\n0\r\n\r\n"));
}
