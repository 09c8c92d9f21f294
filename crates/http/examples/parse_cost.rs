//! Parses one head over and over, for an instruction counter to watch (see `benches/README.md`):
//! `parse_cost NAME COUNT`. The difference between two counts holds nothing but heads, and the loop
//! around them, which NAME `nothing` has alone.

use millpond_http::{HeadFields, Limits, Parsed, parse_request_head, parse_response_head};
use std::hint::black_box;
use std::process::ExitCode;

/// The request of wrk, 41 bytes.
const WRK: &[u8] = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:18080\r\n\r\n";

/// The request of the TechEmpower plaintext test, 161 bytes.
const TECHEMPOWER: &[u8] = b"GET /plaintext HTTP/1.1\r\nHost: tfbserver\r\n\
    Accept: text/plain,text/html;q=0.9,application/xhtml+xml;q=0.9,application/xml;q=0.8,*/*;q=0.7\r\n\
    Connection: keep-alive\r\n\r\n";

/// The request of a browser, 720 bytes and ten fields: the usual benchmark for parsers.
const BROWSER: &[u8] =
    b"GET /wp-content/uploads/2010/03/hello-kitty-darth-vader-pink.jpg HTTP/1.1\r\n\
    Host: www.kittyhell.com\r\n\
    User-Agent: Mozilla/5.0 (Macintosh; U; Intel Mac OS X 10.6; ja-JP-mac; rv:1.9.2.3) \
    Gecko/20100401 Firefox/3.6.3 Pathtraq/0.9\r\n\
    Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
    Accept-Language: ja,en-us;q=0.7,en;q=0.3\r\n\
    Accept-Encoding: gzip,deflate\r\n\
    Accept-Charset: Shift_JIS,utf-8;q=0.7,*;q=0.7\r\n\
    Keep-Alive: 115\r\n\
    Connection: keep-alive\r\n\
    Referer: http://www.example.org/\r\n\
    Cookie: wp_ozh_wsa_visits=2; wp_ozh_wsa_visit_lasttime=xxxxxxxxxx; \
    __utma=xxxxxxxxx.xxxxxxxxxx.xxxxxxxxxx.xxxxxxxxxx.xxxxxxxxxx.x; \
    __utmz=xxxxxxxxx.xxxxxxxxxx.x.x.utmccn=(referral)|utmcsr=reader.livedoor.com|utmcct=/reader\r\n\r\n";

/// The response of this server to wrk.
const RESPONSE: &[u8] =
    b"HTTP/1.1 200 OK\r\nServer: millpond\r\nDate: Sun, 22 Nov 2026 03:00:00 GMT\r\n\
    Content-Type: text/plain\r\nContent-Length: 13\r\n\r\n";

/// The loop, compiled once for each parser as a server's loop is.
#[inline(always)]
fn repeat(bytes: &[u8], count: u64, mut parse: impl FnMut(&[u8]) -> usize) {
    for _ in 0..count {
        // A response that is wrong is not worth measuring.
        assert_eq!(parse(black_box(bytes)), bytes.len());
    }
}

fn requests(bytes: &[u8], count: u64) {
    let (limits, mut fields) = (Limits::default(), HeadFields::new());
    repeat(bytes, count, |bytes| {
        match parse_request_head(bytes, &limits, &mut fields) {
            Ok(Parsed::Complete(head)) => head.head_bytes,
            _ => 0,
        }
    });
}

fn responses(bytes: &[u8], count: u64) {
    let (limits, mut fields) = (Limits::default(), HeadFields::new());
    repeat(bytes, count, |bytes| {
        match parse_response_head(bytes, &limits, &mut fields) {
            Ok(Parsed::Complete(head)) => head.head_bytes,
            _ => 0,
        }
    });
}

/// The parser that others are measured against; it leaves framing and most of the target unchecked.
fn by_httparse(bytes: &[u8], count: u64) {
    repeat(bytes, count, |bytes| {
        let mut headers = [httparse::EMPTY_HEADER; 16];
        match httparse::Request::new(&mut headers).parse(bytes) {
            Ok(httparse::Status::Complete(head_bytes)) => head_bytes,
            _ => 0,
        }
    });
}

fn nothing(bytes: &[u8], count: u64) {
    repeat(bytes, count, <[u8]>::len);
}

/// Name, bytes, and what to do with them so many times.
type Subject = (&'static str, &'static [u8], fn(&[u8], u64));

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (name, count) = match words.as_slice() {
        [name, count] => (name.as_str(), count.parse::<u64>().ok()),
        _ => ("", None),
    };
    let subjects: [Subject; 8] = [
        ("wrk", WRK, requests),
        ("techempower", TECHEMPOWER, requests),
        ("browser", BROWSER, requests),
        ("response", RESPONSE, responses),
        ("wrk-httparse", WRK, by_httparse),
        ("techempower-httparse", TECHEMPOWER, by_httparse),
        ("browser-httparse", BROWSER, by_httparse),
        ("nothing", WRK, nothing),
    ];
    let found = subjects.into_iter().find(|(known, ..)| *known == name);
    let (Some((_, bytes, run)), Some(count)) = (found, count) else {
        eprintln!("usage: parse_cost NAME COUNT, NAME being one of:");
        for (known, bytes, _) in subjects {
            eprintln!("  {known} ({} bytes)", bytes.len());
        }
        return ExitCode::from(2);
    };
    run(bytes, count);
    ExitCode::SUCCESS
}
