//! `millpond load --cookies` and `-C` against a server that counts in a cookie.

use crate::support::{millpond, run};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

/// Responds to each request with `n` set to one more than it came with; sends off the Cookie fields.
fn counting_server(connections: usize) -> (String, Receiver<Option<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (sender, seen) = channel();
    for _ in 0..connections {
        let (listener, sender) = (listener.try_clone().unwrap(), sender.clone());
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let mut stream = stream;
            let mut cookie = None;
            while let Some(Ok(line)) = lines.next() {
                if let Some(value) = line.strip_prefix("Cookie: ") {
                    cookie = Some(value.to_owned());
                }
                if line.is_empty() {
                    let number = cookie
                        .as_deref()
                        .and_then(|text| text.split("; ").find_map(|one| one.strip_prefix("n=")));
                    let number: u64 = number.map_or(0, |text| text.parse().unwrap());
                    sender.send(cookie.take()).unwrap();
                    let next = number + 1;
                    let text = format!(
                        "HTTP/1.1 200 OK\r\nSet-Cookie: n={next}; Path=/\r\nContent-Length: 0\r\n\r\n"
                    );
                    stream.write_all(text.as_bytes()).unwrap();
                }
            }
        });
    }
    (url, seen)
}

fn cookies_of(seen: &Receiver<Option<String>>) -> Vec<String> {
    let mut all: Vec<String> = seen.try_iter().map(Option::unwrap_or_default).collect();
    all.sort();
    all
}

/// Goal: a user counts on from its own cookie, beginning with what it was given; text and record
/// say what came of the fields.
#[test]
fn each_connection_is_a_user() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("run.json");
    let (url, seen) = counting_server(1);
    let words = [
        "load",
        "-c",
        "1",
        "-n",
        "5",
        "--cookies",
        "-C",
        "n=7",
        "--json",
    ];
    let finished = run(millpond(&words).arg(&file).arg(&url));
    assert!([0, 4].contains(&finished.code()), "{finished:?}");
    assert_eq!(cookies_of(&seen), ["n=10", "n=11", "n=7", "n=8", "n=9"]);
    let line = "Cookies: set 5, deleted 0, without room 0, unusable 0";
    assert!(finished.stdout.contains(line), "{finished:?}");
    let record: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(record["cookies"]["set"], 5, "{record}");
}

/// Goal: without --cookies a given cookie is sent as it is, and nothing is kept.
#[test]
fn a_given_cookie_is_a_field() {
    let (url, seen) = counting_server(1);
    let words = [
        "load", "-c", "1", "-n", "3", "-C", "n=7", "--cookie", "a=b", &url,
    ];
    let finished = run(&mut millpond(&words));
    assert!([0, 4].contains(&finished.code()), "{finished:?}");
    assert_eq!(cookies_of(&seen), ["n=7; a=b"; 3]);
    assert!(!finished.stdout.contains("Cookies:"), "{finished:?}");
}

#[test]
fn flags_that_contradict_each_other_are_refused() {
    let url = "http://127.0.0.1:1/";
    for (words, part) in [
        (
            &["load", "--cookies", "-H", "Cookie: a=b", url][..],
            "one Cookie field",
        ),
        (&["load", "-C", "a", url], "NAME=VALUE"),
        (&["load", "-C", "a=b;c", url], "semicolons"),
        (&["load", "--cookies", "-s", "x.lua", url], "--script"),
    ] {
        let finished = run(&mut millpond(words));
        assert_eq!(finished.code(), 2, "{finished:?}");
        assert!(finished.stderr.contains(part), "{finished:?}");
    }
}
