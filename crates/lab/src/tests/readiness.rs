use super::*;
use std::net::{SocketAddr, TcpListener, TcpStream};

fn probe(address: SocketAddr) -> Probe {
    Probe {
        addresses: [Address::Inet(address)].into(),
        host: "h".to_owned(),
        path: "/".to_owned(),
        tls: None,
    }
}

/// Goal: an open port is enough for `port`, and a matching line for `log`.
#[test]
fn ports_and_lines_tell() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let port = Ready::parse("port").unwrap().check(probe(address));
    assert_eq!(port.ask(&log), Ok(()));
    // The near end of a connection: nothing listens there, and no other program gets the port.
    let kept = TcpStream::connect(address).unwrap();
    let refusing = probe(kept.local_addr().unwrap());
    let port = Ready::parse("port").unwrap().check(refusing);
    assert!(port.ask(&log).is_err());
    let line = Ready::parse("log:^Ready to accept")
        .unwrap()
        .check(probe(address));
    assert!(line.ask(&log).is_err());
    fs::write(&log, "starting\nnot Ready to accept\n").unwrap();
    assert!(line.ask(&log).is_err());
    fs::write(&log, "starting\nReady to accept connections\n").unwrap();
    assert_eq!(line.ask(&log), Ok(()));
    let path = Ready::parse("http:/health").unwrap().check(probe(address));
    assert!(path.to_string().ends_with("/health"));
}

#[test]
fn wrong_words_are_named() {
    for text in ["", "https", "http:health", "port:1", "log:", "log:("] {
        assert!(Ready::parse(text).is_err(), "{text}");
    }
}
