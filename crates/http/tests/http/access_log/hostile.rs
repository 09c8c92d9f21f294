//! Bytes of peers, against readers of logs that we did not write: Python's JSON, a pattern made of Apache's own
//! definition of the combined format, and GoAccess.

use super::{Logged, lines};
use crate::support::{RawClient, wait_until};
use millpond_http::{AccessLogFormat, Limits};
use std::path::Path;
use std::process::{Command, Stdio};

/// Bytes that mean something to a log, a shell, a terminal or a parser, and some of every kind.
fn hostile_bytes(random: &mut fastrand::Rng, is_allowed: impl Fn(u8) -> bool) -> Vec<u8> {
    const PIECES: [&[u8]; 14] = [
        b"\"",
        b"\\",
        b"\\x0A",
        b"\\...",
        b"\" 200 5 \"-\" \"-\"",
        b"\"}\n{\"status\":200",
        b"\r\n127.0.0.1 - - [",
        b"\x1b[2J",
        b"\x00",
        b"\xC3\xA9",
        b"\xFF\xFE",
        b"\xE2\x80\xA8",
        b"%0A%22",
        b"plain",
    ];
    let count = random.usize(..12);
    let mut bytes = Vec::new();
    for _ in 0..count {
        match random.bool() {
            true => bytes.extend_from_slice(PIECES[random.usize(..PIECES.len())]),
            false => bytes.push(random.u8(..)),
        }
    }
    bytes.retain(|&byte| is_allowed(byte));
    bytes
}

/// Bytes the server accepts in a field: everything but control bytes, with no blank at an end.
fn field(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = hostile_bytes(random, |byte| byte >= b' ' && byte != 127 || byte == b'\t');
    if random.u8(..) < 8 {
        bytes.extend_from_slice(&b"long ".repeat(400));
    }
    bytes.trim_ascii().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const REFUSED: &str = " 400 - -";

/// Sends requests that are served and some that are refused; returns the expected content of each line: request line,
/// status, Referer and User-Agent, in hex.
fn attack(client: impl Fn() -> RawClient, seed: u64, count: usize) -> String {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut expected = String::new();
    let mut kept = client();
    for _ in 0..count {
        if random.u8(..) < 64 {
            // No request: the space in front is refused, whatever follows.
            let garbage = [b" ", &hostile_bytes(&mut random, |_| true)[..]].concat();
            let mut client = client();
            client.send([&garbage, &b"\r\n\r\n"[..]].concat());
            assert_eq!(client.response().status, 400, "{garbage:?}");
            client.rest();
            let mut lines = garbage.split(|byte| matches!(byte, b'\r' | b'\n'));
            expected += &format!("{} 400 - -\n", hex(lines.next().unwrap()));
            continue;
        }
        let target = hostile_bytes(&mut random, |byte| byte.is_ascii_graphic() && byte != b'#');
        let line = [b"GET /", &target[..], b" HTTP/1.1"].concat();
        let (referer, agent) = (field(&mut random), field(&mut random));
        let request = [
            &line,
            &b"\r\nHost: a\r\nReferer: "[..],
            &referer,
            b"\r\nUser-Agent: ",
            &agent,
            b"\r\n\r\n",
        ]
        .concat();
        kept.send(&request);
        let status = kept.response().status;
        if status == 400 {
            // A target that is no target; its line is the same, its fields are not known.
            kept.rest();
            kept = client();
            expected += &format!("{} 400 - -\n", hex(&line));
            continue;
        }
        assert_eq!(status, 200);
        let or_cut = |bytes: &[u8], limit: usize| {
            let cut = if bytes.len() > limit { "+" } else { "" };
            format!("={}{cut}", hex(&bytes[..bytes.len().min(limit)]))
        };
        let (referer, agent) = (or_cut(&referer, 1024), or_cut(&agent, 512));
        expected += &format!("{} 200 {referer} {agent}\n", hex(&line));
    }
    expected
}

/// Reads a log with nothing of ours and prints what it says in hex. The pattern is Apache's
/// `%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-agent}i"`, with what its manual says of quoting:
/// a quote inside a string has a backslash in front.
const READER: &str = r#"
import json, re, sys
QUOTED = r'"((?:[^"\\]|\\.)*)"'
COMBINED = re.compile(
    r'(\S+) (\S+) (\S+) \[(\d\d/[A-Z][a-z][a-z]/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] '
    + QUOTED + r' (\d{3}) (\d+|-) ' + QUOTED + ' ' + QUOTED)
def raw(text):
    """The peer's bytes, and a plus if some are missing."""
    assert all(' ' <= c <= '~' for c in text), text
    cut = text.endswith('\\...')
    text = text[:-4] if cut else text
    assert '"' not in text and re.fullmatch(r'([^\\]|\\x[0-9A-F]{2})*', text), text
    bytes = re.sub(r'\\x(..)', lambda m: chr(int(m[1], 16)), text).encode('latin-1')
    return bytes.hex() + ('+' if cut else '')
def field(text, unset):
    return '-' if text == unset else '=' + raw(text)
with open(sys.argv[2], 'rb') as log:
    data = log.read()
assert data.endswith(b'\n') and b'\r' not in data
for line in data[:-1].split(b'\n'):
    line = line.decode('ascii')
    if sys.argv[1] == 'json':
        entry = json.loads(line)
        request, status = entry['request'], entry['status']
        assert entry['peer'] == '127.0.0.1' and entry['duration_us'] >= 0
        assert re.fullmatch(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z', entry['time'])
        referer, agent = field(entry['referer'], None), field(entry['user_agent'], None)
    else:
        match = COMBINED.fullmatch(line)
        assert match and match[1] == '127.0.0.1', line
        request, status, referer, agent = match[5], match[6], field(match[8], '-'), field(match[9], '-')
    print(raw(request), status, referer, agent)
"#;

fn run(program: &str, words: &[&str]) -> String {
    let mut command = Command::new(program);
    // GoAccess takes a log from a stdin that is no terminal.
    let output = command.args(words).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| {
        panic!("cannot run {program} ({error}): install it, e.g. with scripts/setup")
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} failed: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Goal: a log under attack has one line for each request, and readers that we did not write get
/// back from each line every byte that its peer sent, in both formats.
#[test]
fn hostile_requests_are_read_back() {
    const COUNT: usize = 1500;
    for (format, word) in [
        (AccessLogFormat::Json, "json"),
        (AccessLogFormat::Combined, "combined"),
    ] {
        for seed in [1, 2] {
            let logged = Logged::start(format, Limits::default());
            let expected = attack(|| logged.connect(), seed, COUNT);
            let path = logged.path();
            wait_until("all written", || lines(&path) == COUNT);
            let read = run("python3", &["-c", READER, word, path.to_str().unwrap()]);
            // An absent field and an empty or lone "-" are the same in the combined format.
            let blur = |text: &str| match word {
                "combined" => text.replace(" =2d ", " - ").replace(" =2d\n", " -\n"),
                _ => text.to_owned(),
            };
            let (read, expected) = (blur(&read), blur(&expected));
            for (number, (read, expected)) in read.lines().zip(expected.lines()).enumerate() {
                // A refused request is known as far as it had been received.
                let is_begun = read.ends_with(REFUSED)
                    && expected.ends_with(REFUSED)
                    && expected.starts_with(&read[..read.len() - REFUSED.len()]);
                assert!(
                    is_begun || read == expected,
                    "{word} {seed} {number}: {read} {expected}"
                );
            }
            assert_eq!(read.lines().count(), COUNT);
        }
    }
}

/// Result of GoAccess for a log: lines it took, lines it did not, statuses and their counts.
fn goaccess(log: &Path) -> serde_json::Value {
    let report = log.with_extension("goaccess.json");
    run(
        "goaccess",
        &[
            "--log-format=COMBINED",
            "--no-global-config",
            "--no-progress",
            "-o",
            report.to_str().unwrap(),
            log.to_str().unwrap(),
        ],
    );
    serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap()
}

/// Goal: GoAccess takes every line of a combined log, and counts what was asked.
#[test]
fn goaccess_reads_every_line() {
    let logged = Logged::start(AccessLogFormat::Combined, Limits::default());
    let mut client = logged.connect();
    let mut random = fastrand::Rng::with_seed(3);
    for number in 0..500 {
        let agent = field(&mut random);
        let head = format!(
            "GET /page/{} HTTP/1.1\r\nHost: a\r\nUser-Agent: ",
            number % 5
        );
        client.ask([head.as_bytes(), &agent, b"\r\n\r\n"].concat());
    }
    let path = logged.path();
    wait_until("all written", || lines(&path) == 500);
    let report = goaccess(&path);
    let general = &report["general"];
    assert_eq!(general["total_requests"], 500, "{general}");
    assert_eq!(general["valid_requests"], 500, "{general}");
    assert_eq!(general["failed_requests"], 0, "{general}");
    assert_eq!(general["unique_files"], 5, "{general}");
    assert_eq!(general["bandwidth"], 2500, "{general}");
}
