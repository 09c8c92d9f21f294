//! What a well-behaved client sees, over real sockets.

use crate::support::{Echo, TestServer, config};
use millpond_http::{Limits, Plaintext};
use millpond_mempool::PoolMode;

fn echo() -> TestServer {
    TestServer::with_limits(Limits::default(), |_| Echo)
}

/// Goal: the simplest exchange works in both pool modes and says all a response must say.
#[test]
fn plaintext_answers_with_a_complete_head() {
    for mode in [PoolMode::On, PoolMode::Off] {
        let server = TestServer::start(config(Limits::default(), mode), |_| Plaintext);
        let mut client = server.connect();
        for _ in 0..3 {
            let response = client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(
                (response.status, response.text().as_str()),
                (200, "Hello, World!")
            );
            assert_eq!(response.header("content-type"), Some("text/plain"));
            assert_eq!(response.header("content-length"), Some("13"));
            assert_eq!(response.header("connection"), None);
            assert!(
                response
                    .header("date")
                    .is_some_and(|date| date.ends_with(" GMT"))
            );
        }
        assert_eq!(
            client.ask("GET /no HTTP/1.1\r\nHost: a\r\n\r\n").status,
            404
        );
        assert_eq!(
            client.ask("DELETE / HTTP/1.1\r\nHost: a\r\n\r\n").status,
            405
        );
        drop(client);
        assert_eq!(server.stop().requests, 5);
    }
}
