//! Responses when memory is refused, each allocation of every pool in turn; and the end of a server that corrupts its
//! memory.

#![allow(unsafe_code)]
use crate::support::{PATIENCE, TestServer, config};
use millpond_http::{
    Flow, Limits, Request, Response, SendError, ServeError, Service, ServiceContext, StatusCode,
    serve_with,
};
use millpond_mempool::{Buffer, Checks, PoolMode};
use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU64;
use std::sync::mpsc::channel;

/// Echoes the body, through every kind of memory a service may take; a refusal becomes 503.
struct CarefulEcho;

impl Service for CarefulEcho {
    fn call(
        &mut self,
        request: &mut Request<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        let mut answer = || -> Result<(), SendError> {
            let body = request.take_body(&context.pools.blocks)?;
            let text = context.pools.arena.copy_in(&body)?;
            response.send(StatusCode::OK, None, text)
        };
        // A missing response becomes 503.
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

/// Goal: whichever allocation is refused, the server goes on: the request in question fails, by 503 or a closed
/// connection, and the visits after it get full responses.
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

/// Writes one byte too many.
struct Careless;

impl Service for Careless {
    fn call(
        &mut self,
        _: &mut Request<'_>,
        _: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        let mut buffer = Buffer::with_capacity(&context.pools.blocks, 100).unwrap();
        buffer.append_within_capacity(&[1; 100]);
        // SAFETY: the fault to be found: checked memory is mapped there, and not lent.
        unsafe { buffer.as_mut_slice().as_mut_ptr().add(100).write(1) };
        Flow::Done
    }
}

/// Goal: a checked server ends where its memory is broken, as an error of the shard, instead of
/// serving on; the sentence is on its standard error.
#[test]
fn a_checked_server_ends_at_a_violation() {
    let config = config(Limits::default(), PoolMode::Checked(Checks::default()));
    let (up_sender, up) = channel();
    let (done, visited) = channel();
    let server = std::thread::spawn(move || {
        serve_with(
            &config,
            |_| Ok::<_, Infallible>(Careless),
            |running| {
                up_sender.send(running.clone()).unwrap();
                let _ = visited.recv_timeout(PATIENCE);
            },
        )
    });
    let running = up.recv_timeout(PATIENCE).unwrap();
    let address = running.local_address().inet().unwrap();
    assert!(visit(address).is_empty(), "nothing is answered");
    done.send(()).unwrap();
    let ended = server.join().unwrap();
    let is_expected = matches!(ended, Err(ServeError::Panicked { shard_index: 0 }));
    assert!(is_expected, "{:?}", ended.err());
}
