//! Lingering close and its bounds.

use crate::harness::{Pond, Seen, pattern};
use millpond_io::{Driver, Event, SendOutcome};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};

/// Goal: a peer that is still sending can read the answer that was given after its first bytes;
/// a plain close would have destroyed it by a reset.
pub(crate) fn the_answer_survives_unread_input<D: Driver>(make: &impl Fn() -> D) {
    let (mut pond, socket, mut peer) = Pond::connected(make);
    let upload = pattern(2 << 20);
    let client = std::thread::spawn(move || {
        peer.write_all(&upload).unwrap();
        let mut answer = String::new();
        peer.read_to_string(&mut answer).unwrap();
        answer
    });
    pond.run_with(
        |driver, pools, event| {
            if let Event::Received { socket, .. } = event {
                let _ = driver.send(*socket, crate::harness::buffer(pools, b"413 too large"));
                driver.close_after_send(*socket);
            }
        },
        |_, driver| driver.counters().accepted == 1 && driver.socket_count() == 0,
    );
    assert_eq!(client.join().unwrap(), "413 too large");
    assert!(
        matches!(pond.seen[..], [Seen::Received(of, _)] if of == socket),
        "{:?}",
        pond.seen.len()
    );
    assert_eq!(pond.driver.closing_count(), 0);
}

/// Goal: what a blocked socket has queued goes out before its FIN, however slowly it is read,
/// also when the socket was paused and the peer still sends.
pub(crate) fn the_queue_goes_out_before_the_fin<D: Driver>(make: &impl Fn() -> D) {
    for is_paused in [false, true] {
        let (mut pond, socket, mut peer) = Pond::connected(make);
        let piece = pattern(1 << 20);
        let mut len = piece.len();
        while pond.send(socket, &piece) == SendOutcome::Done {
            len += piece.len();
        }
        if is_paused {
            pond.driver.pause_receive(socket);
        }
        peer.write_all(b"not interested").unwrap();
        pond.driver.close_after_send(socket);
        assert_eq!(
            (pond.driver.socket_count(), pond.driver.closing_count()),
            (1, 1)
        );
        pond.settle();
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            peer.read_to_end(&mut got).unwrap();
            got
        });
        pond.run_with(|_, _, _| {}, |_, driver| driver.socket_count() == 0);
        let got = reader.join().unwrap();
        assert_eq!(got.len(), len);
        assert!(
            got.chunks(piece.len()).all(|chunk| chunk == piece),
            "bytes differ"
        );
        assert_eq!(pond.seen, []);
    }
}

/// Goal: a peer that never finishes cannot keep the socket: it goes by itself.
pub(crate) fn a_peer_that_stays_is_dropped<D: Driver>(make: &impl Fn() -> D) {
    let (mut pond, socket, mut peer) = Pond::connected(make);
    pond.driver.close_after_send(socket);
    let mut nothing = [0];
    assert_eq!(peer.read(&mut nothing).unwrap(), 0, "the FIN comes at once");
    assert_eq!(
        pond.driver.closing_count(),
        1,
        "the socket waits for the peer's FIN"
    );
    pond.run_with(|_, _, _| {}, |_, driver| driver.socket_count() == 0);
    assert_eq!((pond.driver.closing_count(), &pond.seen[..]), (0, &[][..]));
}

/// Goal: a peer that sends for ever is cut off after a bounded amount.
pub(crate) fn a_peer_that_keeps_sending_is_dropped<D: Driver>(make: &impl Fn() -> D) {
    let (mut pond, socket, mut peer) = Pond::connected(make);
    pond.driver.close_after_send(socket);
    let flood = std::thread::spawn(move || {
        let piece = [0; 1 << 16];
        loop {
            if let Err(error) = peer.write_all(&piece) {
                return error.kind();
            }
        }
    });
    pond.run_with(|_, _, _| {}, |_, driver| driver.socket_count() == 0);
    let error = flood.join().unwrap();
    assert!(
        matches!(error, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
        "{error}"
    );
    let discarded_bytes = pond.driver.counters().received_bytes;
    assert!(discarded_bytes <= 5 << 20, "{discarded_bytes}");
}

/// Goal: when the peer's FIN was seen already, closing needs no wait.
pub(crate) fn closing_after_the_peer_is_immediate<D: Driver>(make: &impl Fn() -> D) {
    let (mut pond, socket, mut peer) = Pond::connected(make);
    peer.shutdown(Shutdown::Write).unwrap();
    pond.run_until(|seen| seen == [Seen::PeerFinished(socket)]);
    assert_eq!(pond.send(socket, b"goodbye"), SendOutcome::Done);
    pond.driver.close_after_send(socket);
    assert_eq!(pond.driver.socket_count(), 0);
    let mut answer = String::new();
    peer.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "goodbye");
}

/// Goal: once its owner has left, a socket reports nothing; `close` still ends it at once.
pub(crate) fn nothing_is_heard_of_a_closing_socket<D: Driver>(make: &impl Fn() -> D) {
    let (mut pond, address) = Pond::listening(make);
    let mut finishing = TcpStream::connect(address).unwrap();
    let first = pond.accept();
    let staying = TcpStream::connect(address).unwrap();
    let second = pond.accept();
    pond.seen.clear();

    pond.driver.close_after_send(first);
    pond.driver.close_after_send(second);
    assert_eq!(pond.send(first, b"too late"), SendOutcome::Done);
    finishing.write_all(b"unheard").unwrap();
    drop(finishing);
    pond.run_with(|_, _, _| {}, |_, driver| driver.closing_count() == 1);
    pond.driver.close(second);
    assert_eq!(
        (pond.driver.socket_count(), pond.driver.closing_count()),
        (0, 0)
    );
    pond.settle();
    assert_eq!(pond.seen, []);
    drop(staying);
}
