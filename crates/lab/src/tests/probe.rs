use super::*;
use std::net::TcpListener;
use std::thread;

fn answer_once(answer: &'static [u8]) -> Probe {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0_u8; 512];
        let n = stream.read(&mut request).unwrap();
        assert!(request[..n].starts_with(b"GET /status?x=1 HTTP/1.1\r\nHost: h\r\n"));
        stream.write_all(answer).unwrap();
    });
    // A unix socket that is not there refuses; the next address is tried.
    let absent = Address::Unix("/nowhere/at/all".into());
    Probe {
        addresses: [absent, Address::Inet(address)].into(),
        host: "h".to_owned(),
        path: "/status?x=1".to_owned(),
        tls: None,
    }
}

/// Goal: ready means an HTTP response; errors of the server, other protocols and silence do not.
#[test]
fn answers_are_told_apart() {
    assert_eq!(answer_once(b"HTTP/1.1 200 OK\r\n\r\n").ask(), Ok(()));
    assert_eq!(answer_once(b"HTTP/1.0 404 Not Found\r\n\r\n").ask(), Ok(()));
    assert_eq!(
        answer_once(b"HTTP/1.1 503 x\r\n\r\n").ask(),
        Err(NotReady::NotYet("status 503".to_owned()))
    );
    let redis = answer_once(b"-ERR wrong number\r\n").ask().unwrap_err();
    assert_eq!(redis, NotReady::NotHttp("\"-ERR wrong number\"".to_owned()));
    assert!(matches!(answer_once(b"").ask(), Err(NotReady::NotHttp(_))));
}

/// Goal: responses are alike by status and type, whatever else they contain; what is no head is none.
#[test]
fn answers_are_read() {
    let ok = b"HTTP/1.1 200 OK\r\ncontent-TYPE: text/html\r\nDate: x\r\n\r\nbody";
    let answer = answer_once(ok).answer().unwrap();
    assert_eq!(answer.to_string(), "status 200, text/html");
    assert_eq!(
        Answer::read(b"HTTP/1.1 204 x\r\n\r\n").unwrap().to_string(),
        "status 204"
    );
    for broken in [&b""[..], b"HTTP/1.1 200 OK\r\n", b"+PONG\r\n\r\n"] {
        assert_eq!(Answer::read(broken), None);
    }
}

/// Goal: a server on a unix socket is asked there, and the sentence names the path.
#[test]
fn unix_sockets_are_asked() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0_u8; 512]).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
    });
    let probe = Probe {
        addresses: [Address::Unix(path.clone())].into(),
        host: "h".to_owned(),
        path: "/x".to_owned(),
        tls: None,
    };
    assert_eq!(probe.ask(), Ok(()));
    server.join().unwrap();
    assert!(probe.to_string().contains(&path.display().to_string()));
    assert!(matches!(probe.ask(), Err(NotReady::NotYet(_))));
}
