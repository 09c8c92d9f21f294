//! What the server says, byte for byte, before anything is timed.
//!
//! Asked by a plain socket and compared as text: client and server are both ours, and could agree on
//! the same mistake. Absent on purpose: a parser.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Far beyond what an answer takes.
const PATIENCE: Duration = Duration::from_secs(10);

/// Two requests in a row get the answer agreed on, in one chunk; a body that is too short gets 400.
pub(super) fn check(
    address: SocketAddr,
    request_bytes: usize,
    answer: &[u8],
) -> Result<(), String> {
    for _ in 0..2 {
        let said = ask(address, request_bytes)?;
        let head_end = find(&said, b"\r\n\r\n").ok_or("its answer has no head")?;
        let (head, body) = said.split_at(head_end + 4);
        let head = String::from_utf8_lossy(head);
        let is_chunked = head
            .lines()
            .any(|line| line.eq_ignore_ascii_case("transfer-encoding: chunked"));
        if !head.starts_with("HTTP/1.1 200 ") || !is_chunked {
            return Err(format!("its answer is not 200 in chunks: {head}"));
        }
        if body != one_chunk(answer) {
            let body_bytes = body.len();
            return Err(format!(
                "its answer is not the one agreed on: {body_bytes} bytes"
            ));
        }
    }
    let said = ask(address, request_bytes + 1)?;
    match said.starts_with(b"HTTP/1.1 400 ") {
        true => Ok(()),
        false => Err("it takes a body of another length for the one agreed on".to_owned()),
    }
}

/// The whole answer to a request whose connection ends with it.
fn ask(address: SocketAddr, body_bytes: usize) -> Result<Vec<u8>, String> {
    let mut request = b"GET / HTTP/1.1\r\nHost: loopback\r\nConnection: close\r\n\
        Transfer-Encoding: chunked\r\n\r\n"
        .to_vec();
    request.extend(one_chunk(&vec![b'*'; body_bytes]));
    let talk = || {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&request)?;
        let mut said = Vec::new();
        stream.read_to_end(&mut said).map(|_| said)
    };
    talk().map_err(|error: std::io::Error| format!("it does not answer: {error}"))
}

/// A body of one chunk and its end; of none without bytes.
fn one_chunk(body: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    if !body.is_empty() {
        text.extend_from_slice(format!("{:x}\r\n", body.len()).as_bytes());
        text.extend_from_slice(body);
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"0\r\n\r\n");
    text
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|part| part == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Goal: every way to answer wrongly is told apart, and the right one passes.
    #[test]
    fn wrong_answers_are_told() {
        let right = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        let long = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        let other = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabd\r\n0\r\n\r\n";
        let refusal = b"HTTP/1.1 400 Bad Request\r\n\r\n";
        let runs: [(&[&'static [u8]], Option<&str>); 5] = [
            (&[right, right, refusal], None),
            (&[right, right, right], Some("another length")),
            (&[right, other], Some("not the one agreed on")),
            (&[long], Some("not 200 in chunks")),
            (&[b"what?"], Some("no head")),
        ];
        for (answers, expected) in runs {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let found = std::thread::scope(|scope| {
                scope.spawn(move || {
                    for answer in answers {
                        let (mut stream, _) = listener.accept().unwrap();
                        let mut request = Vec::new();
                        let mut part = [0; 512];
                        while !request.ends_with(b"0\r\n\r\n") {
                            let count = stream.read(&mut part).unwrap();
                            request.extend_from_slice(&part[..count]);
                        }
                        stream.write_all(answer).unwrap();
                    }
                });
                check(address, 5, b"abc")
            });
            match (expected, found) {
                (None, found) => assert_eq!(found, Ok(())),
                (Some(part), found) => assert!(found.unwrap_err().contains(part), "{part}"),
            }
        }
    }
}
