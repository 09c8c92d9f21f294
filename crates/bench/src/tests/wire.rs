use super::*;
use std::net::TcpListener;

/// Goal: every kind of wrong response is distinguished, and the right one passes.
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
