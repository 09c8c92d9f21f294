//! Attacks that once succeeded against the server, each with its history. `cargo bench-suite hostile` runs the attacks
//! themselves.

use crate::support::TestServer;
use millpond_http::{Files, FilesConfig, Limits, Plaintext, Site};
use std::sync::Arc;

const POST: &str = "POST / HTTP/1.1\r\nHost: a\r\n";

/// Servers that have no use for bodies.
fn readers_only() -> [TestServer; 2] {
    let home = tempfile::tempdir().unwrap();
    // An open directory is served whatever becomes of its name.
    let config = FilesConfig::new(home.path().to_owned());
    let site = Arc::new(Site::open(&config, 1).unwrap());
    let limits = Limits::default();
    [
        TestServer::with_limits(limits, |_| Plaintext),
        TestServer::with_limits(limits, move |start| Files::new(&site, &start).unwrap()),
    ]
}

/// A hundred clients sent bodies of 64 MiB to a server that responds with 405 to any: it kept them all, 6 GiB, before
/// it checked the method. Goal: the response does not wait for the body, and a client that sends `Expect: 100-continue`
/// gets no 100.
#[test]
fn bodies_that_nobody_reads_are_not_kept() {
    for server in readers_only() {
        for more in [
            "Content-Length: 67108864\r\n\r\n",
            "Content-Length: 67108864\r\n\r\nthe beginning",
            "Expect: 100-continue\r\nContent-Length: 9\r\n\r\n",
        ] {
            let mut client = server.connect();
            let refused = client.ask(format!("{POST}{more}"));
            assert_eq!(refused.status, 405, "{more}");
            assert_eq!(refused.header("connection"), Some("close"), "{more}");
        }
        // One that is worth reading to its end keeps the connection.
        let mut client = server.connect();
        for _ in 0..2 {
            let refused = client.ask(format!("{POST}Content-Length: 2\r\n\r\nhi"));
            assert_eq!((refused.status, refused.header("connection")), (405, None));
        }
    }
}

/// An ignored body is read to its end up to 64 KiB, for the sake of the connection. In chunks of one byte that is
/// eleven thousand of them, and 64 clients without other requests kept all others waiting for 20 ms. Goal: many small
/// chunks are not worth a connection; a few are.
#[test]
fn a_refused_body_in_tiny_chunks_ends_the_connection() {
    let chunked = |count: usize| {
        let chunks = "1\r\nx\r\n".repeat(count);
        format!("{POST}Transfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")
    };
    for server in readers_only() {
        let mut client = server.connect();
        for _ in 0..2 {
            assert_eq!(client.ask(chunked(50)).status, 405);
        }
        let mut client = server.connect();
        assert_eq!(client.ask(chunked(2000)).status, 405);
        client.expect_end();
    }
}
