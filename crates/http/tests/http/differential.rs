//! Generated and mutated requests, read by us and by foreign parsers: httparse, and llhttp inside node. Every
//! disagreement has to be in the table, with the side that is right.

use crate::fuzz::differential::{Class, Request, explanations, from_httparse, requests};
use crate::fuzz::table::{Entry, entries};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

/// Streams made for each comparison; `MILLPOND_DIFFERENTIAL_STREAMS` asks for more.
const STREAMS: usize = 20_000;
const SEED: u64 = 0x6d69_6c6c_706f_6e64;

const FRAGMENTS: [&[u8]; 40] = [
    b"\r\n",
    b"\n",
    b"\r",
    b" ",
    b"\t",
    b":",
    b",",
    b";",
    b"=",
    b"\"",
    b"\0",
    b"\x0b",
    b"\x7f",
    b"\x80",
    b"0",
    b"5",
    b"a",
    b"A",
    b"/",
    b"?",
    b"#",
    b"%",
    b"*",
    b"\r\n ",
    b"\r\n\t",
    b"0\r\n\r\n",
    b"5\r\nhello\r\n",
    b"5;a=b\r\nhello\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 0\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: identity\r\n",
    b"Host: b\r\n",
    b"Connection: close\r\n",
    b"Connection: keep-alive\r\n",
    b"Expect: 100-continue\r\n",
    b" HTTP/1.1",
    b" HTTP/1.0",
    b"http://h",
    b"GET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
];

/// Requests that are good or nearly so.
fn seeds() -> Vec<Vec<u8>> {
    let table = entries(include_str!("../data/smuggling.txt"), &["why", "answer"]);
    let short = table
        .into_iter()
        .map(|entry| entry.bytes)
        .filter(|bytes| bytes.len() < 400);
    let good: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST /a?b HTTP/1.1\r\nHost: a:80\r\nContent-Length: 5\r\n\r\nhelloGET /c HTTP/1.1\r\nHost: a\r\n\r\n",
        b"PUT /d HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n",
        b"HEAD http://h/e HTTP/1.1\r\nHost: h\r\nAccept: */*\r\nCookie: a=b; c=d\r\n\r\n",
        b"OPTIONS * HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    ];
    short.chain(good.into_iter().map(<[u8]>::to_vec)).collect()
}

/// One to three changes of a seed.
fn mutated(random: &mut Rng, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = seeds[random.usize(..seeds.len())].clone();
    for _ in 0..random.usize(1..=3) {
        let at = random.usize(..=bytes.len());
        let fragment = FRAGMENTS[random.usize(..FRAGMENTS.len())];
        match random.u8(..6) {
            0 | 1 => drop(bytes.splice(at..at, fragment.iter().copied())),
            2 => {
                let end = bytes.len().min(at + fragment.len());
                drop(bytes.splice(at..end, fragment.iter().copied()));
            }
            3 => {
                let end = bytes.len().min(at + random.usize(1..4));
                bytes.drain(at..end);
            }
            4 => {
                let other = &seeds[random.usize(..seeds.len())];
                bytes.truncate(at);
                bytes.extend_from_slice(&other[random.usize(..=other.len())..]);
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = random.u8(..);
                }
            }
        }
    }
    bytes
}

fn streams() -> Vec<Vec<u8>> {
    let wanted = std::env::var("MILLPOND_DIFFERENTIAL_STREAMS");
    let count = wanted.map_or(STREAMS, |text| text.parse().unwrap());
    let (mut random, seeds) = (Rng::with_seed(SEED), seeds());
    let changed = (0..count)
        .map(|_| mutated(&mut random, &seeds))
        .collect::<Vec<_>>();
    seeds.into_iter().chain(changed).collect()
}

/// Fails with every class that has no entry, each with how often it came and its shortest example.
fn assert_explained(found: impl Iterator<Item = (Class, Vec<u8>)>) {
    let explanations = explanations();
    let mut unexplained: BTreeMap<Class, (usize, Vec<u8>)> = BTreeMap::new();
    for (class, bytes) in found {
        if explanations
            .iter()
            .any(|entry| class.is_explained_by(entry))
        {
            continue;
        }
        let (count, shortest) = unexplained.entry(class).or_insert((0, bytes.clone()));
        *count += 1;
        if bytes.len() < shortest.len() {
            *shortest = bytes;
        }
    }
    let lines = unexplained.iter().map(|(class, (count, bytes))| {
        format!("{} x {class:?}\n    {}\n", count, bytes.escape_ascii())
    });
    let text: String = lines.collect();
    assert!(
        text.is_empty(),
        "not in tests/data/differences.txt:\n{text}"
    );
}

/// Goal: whatever we and httparse disagree on is explained, and the explanations are true of their
/// examples.
#[test]
fn differences_to_httparse_are_explained() {
    for entry in explanations()
        .iter()
        .filter(|entry| entry.value("with").contains("httparse"))
    {
        let class = from_httparse(&entry.bytes);
        assert!(
            class
                .as_ref()
                .is_some_and(|class| class.is_explained_by(entry)),
            "{}: its example is of the class {class:?}",
            entry.name
        );
    }
    assert_explained(
        streams()
            .into_iter()
            .filter_map(|bytes| Some((from_httparse(&bytes)?, bytes))),
    );
}

/// Result of llhttp for each stream; `None` without node, which is reported.
fn by_llhttp(streams: &[Vec<u8>]) -> Option<Vec<(Vec<Request>, String)>> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/llhttp.js");
    let node = Command::new("node")
        .args(["--no-deprecation", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut node = match node {
        Ok(node) => node,
        Err(error) => {
            println!("SKIPPED: llhttp is not compared, for node does not start ({error})");
            return None;
        }
    };
    let mut frames = Vec::new();
    for stream in streams {
        frames.extend_from_slice(&(stream.len() as u32).to_le_bytes());
        frames.extend_from_slice(stream);
    }
    // It reads all before it writes anything.
    node.stdin.take().unwrap().write_all(&frames).unwrap();
    let output = node.wait_with_output().unwrap();
    assert!(output.status.success(), "node failed");
    let text = String::from_utf8(output.stdout).unwrap();
    let (version, lines) = text.split_once('\n').unwrap();
    println!("{version}");
    let found: Vec<_> = lines.lines().map(from_line).collect();
    assert_eq!(found.len(), streams.len());
    Some(found)
}

fn from_line(line: &str) -> (Vec<Request>, String) {
    let hexadecimal = |text: &str| -> Vec<u8> {
        let pairs = text
            .as_bytes()
            .chunks(2)
            .map(|pair| std::str::from_utf8(pair).unwrap());
        pairs
            .map(|pair| u8::from_str_radix(pair, 16).unwrap())
            .collect()
    };
    let mut words = line.split(' ');
    let end = words.next().unwrap().to_owned();
    let requests = words.map(|word| {
        let parts: Vec<&str> = word.split(':').collect();
        Request {
            method: parts[0].as_bytes().to_vec(),
            target: hexadecimal(parts[1]),
            body: hexadecimal(parts[2]),
        }
    });
    (requests.collect(), end)
}

/// How llhttp reads a stream otherwise, if it does.
fn from_llhttp(bytes: &[u8], (theirs, their_end): &(Vec<Request>, String)) -> Option<Class> {
    let (ours, our_end) = requests(bytes);
    let common = ours
        .iter()
        .zip(theirs)
        .take_while(|(one, other)| one == other)
        .count();
    let (ours_left, theirs_left) = (ours.len() - common, theirs.len() - common);
    let class = |ours: &str, theirs: &str| {
        let (ours, theirs) = (ours.to_owned(), theirs.to_owned());
        Some(Class {
            with: "llhttp",
            ours,
            theirs,
        })
    };
    match (ours_left, theirs_left) {
        (0, 0) => match (our_end.as_str(), their_end.as_str()) {
            ("accepts" | "waits", "none") | ("closes", "none" | "HPE_CLOSED_CONNECTION") => None,
            ("accepts" | "waits" | "closes", error) => class(&our_end, error),
            (fault, "none") => class(fault, "waits"),
            (fault, "upgrade") => class(fault, "upgrade"),
            _both_refuse => None,
        },
        (0, _) => class(&our_end, "accepts"),
        (_, 0) => class("accepts", their_end),
        _ => class("accepts", "reads otherwise"),
    }
}

/// Goal: the same for llhttp, which reads whole streams: requests, bodies, and where the next begins.
#[test]
fn differences_to_llhttp_are_explained() {
    let explained: Vec<Entry> = explanations()
        .into_iter()
        .filter(|entry| entry.value("with").contains("llhttp"))
        .collect();
    let examples: Vec<Vec<u8>> = explained.iter().map(|entry| entry.bytes.clone()).collect();
    let Some(found) = by_llhttp(&examples) else {
        return;
    };
    for (entry, theirs) in explained.iter().zip(&found) {
        let class = from_llhttp(&entry.bytes, theirs);
        assert!(
            class
                .as_ref()
                .is_some_and(|class| class.is_explained_by(entry)),
            "{}: its example is of the class {class:?}",
            entry.name
        );
    }
    let streams = streams();
    let found = by_llhttp(&streams).unwrap();
    assert_explained(
        streams
            .into_iter()
            .zip(&found)
            .filter_map(|(bytes, theirs)| Some((from_llhttp(&bytes, theirs)?, bytes))),
    );
}
