//! What clients see when memory is refused: each allocation of every pool in turn.

use crate::support::{PATIENCE, TestServer, config};
use millpond_http::{Flow, Limits, Request, Response, Service, ServiceContext, StatusCode};
use millpond_mempool::{Checks, PoolError, PoolMode};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU64;

/// Echoes the body, through every kind of memory a service may take; a refusal becomes 503.
struct CarefulEcho;

impl Service for CarefulEcho {
    fn call(
        &mut self,
        request: &mut Request<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        let mut answer = || -> Result<(), PoolError> {
            let body = request.take_body(&context.pools.blocks)?;
            let text = context.pools.arena.copy_in(&body)?;
            response.send(StatusCode::OK, None, text)
        };
        // What was not sent is answered with 503.
        let _ = answer();
        Flow::Done
    }
}

/// One connection's requests, sent in pieces: a small one, a large one, two at once. All that came
/// back until the end, which may be early.
fn visit(address: SocketAddr) -> Vec<u8> {
    let large = vec![b'x'; 100_000];
    let pieces: [&[u8]; 5] = [
        b"PUT /a HTTP/1.1\r\nHost: a\r\nContent-",
        b"Length: 5\r\n\r\nsmall",
        b"PUT /b HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n",
        &large,
        b"GET /c HTTP/1.1\r\nHost: a\r\n\r\nGET /d HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    ];
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    for piece in pieces {
        // The server may have closed: that is one way to refuse.
        if stream.write_all(piece).is_err() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let mut received = Vec::new();
    // Likewise.
    let _ = stream.read_to_end(&mut received);
    received
}

fn count(haystack: &[u8], needle: &[u8]) -> usize {
    let windows = haystack.windows(needle.len());
    windows.filter(|window| window == &needle).count()
}

/// Goal: whichever allocation is refused, the server goes on: the request in question fails, by
/// 503 or a closed connection, and the visits after it are answered in full.
#[test]
fn no_refused_allocation_ends_the_server() {
    let mut harmed_count = 0;
    for number in (1..=24).chain([u64::MAX]) {
        let checks = Checks {
            guard_pages: number % 2 == 0,
            fail_at: NonZeroU64::new(number),
        };
        let config = config(Limits::default(), PoolMode::Checked(checks));
        let server = TestServer::start(config, |_| CarefulEcho);
        let ok = b"HTTP/1.1 200 OK\r\n";
        let mut is_harmed = false;
        // Each pool refuses once, perhaps each in a visit of its own.
        let mut whole_visits = 0;
        for visit_number in 1.. {
            let received = visit(server.address);
            if count(&received, ok) == 4 && received.len() > 100_000 {
                whole_visits += 1;
            } else {
                is_harmed = true;
            }
            if whole_visits == 6 {
                break;
            }
            assert!(
                visit_number < 30,
                "fail={number}: the server does not recover"
            );
        }
        harmed_count += u32::from(is_harmed);
        assert!(number < u64::MAX || !is_harmed, "nothing was refused");
        server.stop();
    }
    assert!(harmed_count >= 12, "{harmed_count} refusals were seen");
}
