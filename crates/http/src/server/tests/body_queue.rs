use super::*;
use crate::request::Request;
use crate::response::Response;
use crate::server::test_server::TestServer;
use crate::service::{Flow, ServiceContext};
use millpond_io::{Errno, Event, Protocol};

const SHARE: u64 = 1 << 20;

/// Takes bodies whole, of which none comes here.
struct Gatherer;

impl Service for Gatherer {
    fn call(
        &mut self,
        _request: &mut Request<'_>,
        _response: &mut Response<'_>,
        _context: &mut ServiceContext<'_>,
    ) -> Flow {
        Flow::Done
    }
}

fn socket(slot: u64) -> SocketId {
    SocketId::from_bits(slot | 1 << 32)
}

/// Another connection, that announces a body and sends so much of it.
fn announce(bench: &mut TestServer<Gatherer>, slot: u64, method: &str, body_bytes: u64, sent: u64) {
    let socket = socket(slot);
    bench.event(Event::Accepted { socket });
    let head = format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: {body_bytes}\r\n\r\n");
    let bytes = head.as_bytes();
    bench.event(Event::Received { socket, bytes });
    send(bench, slot, sent);
}

fn send(bench: &mut TestServer<Gatherer>, slot: u64, mut bytes: u64) {
    let socket = socket(slot);
    while bytes > 0 {
        let part = vec![b'x'; bytes.min(16 << 10) as usize];
        bench.event(Event::Received {
            socket,
            bytes: &part,
        });
        bytes -= part.len() as u64;
    }
}

fn connection(bench: &mut TestServer<Gatherer>, slot: u64) -> &mut Connection {
    bench.server.connections.get_mut(socket(slot)).unwrap()
}

fn held(bench: &mut TestServer<Gatherer>, slots: [u64; 3]) -> [u64; 3] {
    slots.map(|slot| connection(bench, slot).body_held_bytes())
}

const MORE: u64 = SHORT_BYTES + 1;

/// One client that announced 60 MB and sent a byte now and then kept all others from beginning.
///
/// Goal: an announced body that has not come holds nothing, whatever waits; a longer body than the budget has its own
/// place.
#[test]
fn announcements_keep_nobody_waiting() {
    let mut bench = TestServer::with(Gatherer, SHARE);
    announce(&mut bench, 0, "PUT", 60 * SHARE, MORE);
    announce(&mut bench, 1, "PUT", SHARE, MORE);
    announce(&mut bench, 2, "PUT", SHARE / 2, MORE);
    let [long, first, second] = held(&mut bench, [0, 1, 2]);
    assert!(long >= MORE && first >= MORE && second >= MORE);
    send(&mut bench, 2, SHARE / 2 - MORE);
    assert!(
        connection(&mut bench, 2).gathering.is_none(),
        "it was complete"
    );
    assert_eq!(bench.server.counters().requests, 1);
}

/// A client that was reset while it waited kept its place: those behind it, for whose bodies there was memory, waited
/// for its five seconds. Goal: a connection that has gone is skipped at once, and so is one that does not fit.
#[test]
fn who_waits_holds_nobody_up() {
    let mut bench = TestServer::with(Gatherer, SHARE);
    announce(&mut bench, 0, "PUT", SHARE, SHARE - 100);
    announce(&mut bench, 1, "PUT", SHARE, MORE);
    announce(&mut bench, 2, "PUT", SHARE / 2, MORE);
    assert_eq!(held(&mut bench, [0, 1, 2]), [SHARE, 0, 0]);
    bench.act(Server::tick_ended);
    assert_eq!(held(&mut bench, [0, 1, 2]), [SHARE, 0, 0], "both wait");
    let error = Errno::CONNRESET;
    bench.event(Event::Failed {
        socket: socket(1),
        error,
    });
    send(&mut bench, 0, 100);
    bench.act(Server::tick_ended);
    assert!(connection(&mut bench, 2).body_held_bytes() > 0);
}

/// Goal: of two that hold memory, the stalled one gets 408 when a third waits; the one that keeps up is not.
#[test]
fn the_slowest_goes_when_others_wait() {
    let mut bench = TestServer::with(Gatherer, SHARE);
    announce(&mut bench, 0, "PUT", SHARE / 2, SHARE / 2 - 100);
    announce(&mut bench, 1, "PUT", SHARE / 2, MORE);
    announce(&mut bench, 2, "PUT", SHARE * 3 / 4, SHARE * 3 / 4);
    assert!(connection(&mut bench, 2).is_backlogged, "it waits for more");
    for _ in 0..5 {
        bench.wait(1_000_000_000 - 1);
        send(&mut bench, 1, 70 << 10);
        if connection(&mut bench, 0).is_closing() {
            break;
        }
        bench.act(Server::tick_ended);
        bench.event(Event::Woken);
    }
    let output = connection(&mut bench, 0).output.to_vec();
    assert!(
        output.starts_with(b"HTTP/1.1 408 "),
        "{}",
        output.escape_ascii()
    );
    assert!(connection(&mut bench, 1).body_held_bytes() > 0);
    assert!(!connection(&mut bench, 1).is_closing());
}

/// The refusal of a HEAD request had a body. Goal: HEAD gets no body, here as elsewhere; a connection that waited long
/// enough gets 503.
#[test]
fn a_refused_head_request_gets_no_body() {
    let mut bench = TestServer::with(Gatherer, SHARE);
    announce(&mut bench, 0, "PUT", SHARE, SHARE - 100);
    announce(&mut bench, 1, "HEAD", SHARE, MORE);
    announce(&mut bench, 2, "PUT", SHARE, MORE);
    // It keeps up until the very end.
    bench.wait(WAIT_MAX_NS);
    send(&mut bench, 0, 10);
    bench.act(Server::serve_body_queue);
    for (slot, has_body) in [(1, false), (2, true)] {
        let output = connection(&mut bench, slot).output.to_vec();
        let text = String::from_utf8(output).unwrap();
        assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
        assert_eq!(text.ends_with("\r\n\r\n"), !has_body, "{text}");
    }
}
