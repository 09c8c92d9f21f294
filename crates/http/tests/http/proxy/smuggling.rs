//! Every known way to make two parties read a request differently, through the proxy to a server by
//! others: it must see what we parsed, no request more and none less.

use super::{PythonUpstream, proxy};
use crate::fuzz::table::entries;
use millpond_http::Limits;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

const TABLE: &str = include_str!("../../data/smuggling.txt");

/// All that a client gets that sends these bytes and then finishes.
fn exchange(address: std::net::SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(crate::support::PATIENCE))
        .unwrap();
    // The refusal may come before the last byte; the rest is then discarded, or fails.
    if stream.write_all(bytes).is_ok() {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut answer = Vec::new();
    // A reset behind a refusal destroys nothing that was read.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Goal: for each vector of the table, the upstream sees exactly the requests that the table says are
/// sound, in order, and none of what was hidden in them; refusals are ours, and are never passed on.
#[test]
fn an_upstream_sees_what_was_parsed() {
    let python = PythonUpstream::start();
    let (server, _control) = proxy(&[python.address], Limits::default(), |_| {});
    let mut seen_before = 0;
    for entry in entries(TABLE, &["why", "answer"]) {
        let name = &entry.name;
        let statuses: Vec<&str> = entry.value("answer").split(", ").collect();
        let stays = statuses.last().unwrap().ends_with("keep");
        let smuggled: &[u8] = match stays {
            true => b"",
            false => b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
        };
        let bytes = [entry.bytes.as_slice(), smuggled].concat();
        let answer = exchange(server.address, &bytes);
        let sound = statuses
            .iter()
            .filter(|status| status.starts_with("200"))
            .count();
        let seen = python.seen();
        let new = &seen[seen_before..];
        assert_eq!(new.len(), sound, "{name}: {new:?}\n{answer}");
        seen_before = seen.len();
        for request in new {
            let line = request["line"].as_str().unwrap();
            assert!(!line.contains("smuggled"), "{name}: {line}");
            let fields = request["fields"].as_array().unwrap();
            let count = |wanted: &str| {
                let is_wanted = |field: &&serde_json::Value| {
                    field[0]
                        .as_str()
                        .unwrap()
                        .replace('_', "-")
                        .eq_ignore_ascii_case(wanted)
                };
                fields.iter().filter(is_wanted).count()
            };
            assert!(count("host") <= 1, "{name}: {request}");
            assert!(
                count("content-length") + count("transfer-encoding") <= 1,
                "{name}: {request}"
            );
        }
        let found = answer.matches("HTTP/1.1 200 ").count();
        assert_eq!(found, sound, "{name}: {answer}");
        if let Some(refused) = statuses.iter().find(|status| !status.starts_with("200")) {
            let status = format!("HTTP/1.1 {} ", &refused[..3]);
            assert!(answer.contains(&status), "{name}: {answer}");
        }
    }
    assert!(
        seen_before > 20,
        "the sound ones were passed on: {seen_before}"
    );
}
