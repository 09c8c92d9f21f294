//! Lingering close and its bounds.

use crate::harness::{Pond, Reader, Seen, Sender, buffer, pattern};
use crate::world::{Remote, World};
use millpond_io::{Driver, Event, SendOutcome};
use std::io::{ErrorKind, Write};

/// Goal: a peer that is still sending can read the response that was given after its first bytes;
/// a plain close would have destroyed it by a reset.
pub(crate) fn the_answer_survives_unread_input<W: World>(world: &W) {
    let (mut pond, socket, peer) = Pond::connected(world);
    // More than is on its way at a time, and no more: the peer's time to finish is this machine's.
    let upload = pattern(512 << 10);
    let mut sender = Sender::new(&upload);
    let mut reader = Reader::until(usize::MAX);
    let mut peer = Some(peer);
    let (mut closed_ns, mut is_cut) = (u64::MAX, false);
    pond.run_with(
        |driver, pools, event| {
            if let Event::Received { socket, .. } = event {
                let _ = driver.send(*socket, buffer(pools, b"413 too large"));
                closed_ns = driver.now_ns();
                driver.close_after_send(*socket);
            }
        },
        |_, driver| {
            // Reads only when all is sent, and leaves when all is read.
            if let Some(open) = &mut peer {
                let sent = sender.turn(open);
                is_cut |= sent.is_err();
                if is_cut || sent.is_ok_and(|is_sent| is_sent) && reader.turn(open) {
                    peer = None;
                }
            }
            driver.counters().accepted == 1 && driver.socket_count() == 0
        },
    );
    if is_cut {
        let took_ns = pond.driver.now_ns() - closed_ns;
        assert!(took_ns >= LINGER_NS, "cut after {took_ns} ns");
        eprintln!("this machine stood still for longer than a peer has: nothing to see here");
        return;
    }
    assert_eq!(reader.got, b"413 too large");
    assert!(matches!(reader.end, Some(Ok(()))), "{:?}", reader.end);
    assert!(
        matches!(pond.seen[..], [Seen::Received(of, _)] if of == socket),
        "{:?}",
        pond.seen.len()
    );
    assert_eq!(pond.driver.closing_count(), 0);
}

/// Goal: the queue of a blocked socket goes out before its FIN, however slowly it is read, also when the socket was
/// paused and the peer still sends.
pub(crate) fn the_queue_goes_out_before_the_fin<W: World>(world: &W) {
    for is_paused in [false, true] {
        let (mut pond, socket, mut peer) = Pond::connected(world);
        let piece = pattern(1 << 20);
        let given = pond.send_until_blocked(socket, &piece);
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
        let (got, end) = pond.peer_receives_all(&mut peer);
        assert!(end.is_ok(), "{end:?}");
        assert!(got == given, "bytes differ");
        drop(peer);
        pond.run_with(|_, _, _| {}, |_, driver| driver.socket_count() == 0);
        assert_eq!(pond.seen, []);
    }
}

/// How long a closed socket waits for its peer's FIN.
const LINGER_NS: u64 = 2_000_000_000;

/// Goal: a peer that never finishes cannot keep the socket: it goes by itself.
pub(crate) fn a_peer_that_stays_is_dropped<W: World>(world: &W) {
    let (mut pond, socket, mut peer) = Pond::connected(world);
    let closed_ns = pond.driver.now_ns();
    pond.driver.close_after_send(socket);
    let mut reader = Reader::until(1);
    pond.run_with(|_, _, _| {}, |_, _| reader.turn(&mut peer));
    assert!(matches!(reader.end, Some(Ok(()))), "{:?}", reader.end);
    pond.run_with(|_, _, _| {}, |_, driver| driver.socket_count() == 0);
    assert!(
        pond.driver.now_ns() >= closed_ns + LINGER_NS,
        "the socket waits for the peer's FIN"
    );
    assert_eq!((pond.driver.closing_count(), &pond.seen[..]), (0, &[][..]));
}

/// Goal: a peer that sends without end is cut off after a bounded amount.
pub(crate) fn a_peer_that_keeps_sending_is_dropped<W: World>(world: &W) {
    let (mut pond, socket, mut peer) = Pond::connected(world);
    pond.driver.close_after_send(socket);
    let piece = [0; 1 << 16];
    let mut cut_off = None;
    pond.run_with(
        |_, _, _| {},
        |_, driver| {
            while cut_off.is_none() {
                match Sender::new(&piece).turn(&mut peer) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => cut_off = Some(error.kind()),
                }
            }
            driver.socket_count() == 0 && cut_off.is_some()
        },
    );
    assert!(
        matches!(
            cut_off,
            Some(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
        ),
        "{cut_off:?}"
    );
    let discarded_bytes = pond.driver.counters().received_bytes;
    assert!(discarded_bytes <= 5 << 20, "{discarded_bytes}");
}

/// Goal: when the peer's FIN was seen already, closing needs no wait.
pub(crate) fn closing_after_the_peer_is_immediate<W: World>(world: &W) {
    let (mut pond, socket, mut peer) = Pond::connected(world);
    peer.finish();
    pond.run_until(|seen| seen == [Seen::PeerFinished(socket)]);
    assert_eq!(pond.send(socket, b"goodbye"), SendOutcome::Done);
    pond.driver.close_after_send(socket);
    // A driver that sends late has something to send first.
    pond.tick(0, &mut |_, _, _| {});
    assert_eq!(pond.driver.socket_count(), 0);
    let (answer, end) = pond.peer_receives_all(&mut peer);
    assert_eq!(answer, b"goodbye");
    assert!(end.is_ok(), "{end:?}");
}

/// Goal: once its owner has left, a socket reports nothing; `close` still ends it at once.
pub(crate) fn nothing_is_heard_of_a_closing_socket<W: World>(world: &W) {
    let (mut pond, address) = Pond::listening(world);
    let mut finishing = world.connect(&address).unwrap();
    let first = pond.accept();
    let staying = world.connect(&address).unwrap();
    let second = pond.accept();
    pond.seen.clear();

    pond.driver.close_after_send(first);
    pond.driver.close_after_send(second);
    assert_eq!(pond.send(first, b"too late"), SendOutcome::Done);
    finishing.write_all(b"unheard").unwrap();
    drop(finishing);
    // One is over, or both where this machine stood still for so long.
    pond.run_with(|_, _, _| {}, |_, driver| driver.closing_count() <= 1);
    pond.driver.close(second);
    assert_eq!(
        (pond.driver.socket_count(), pond.driver.closing_count()),
        (0, 0)
    );
    pond.settle();
    assert_eq!(pond.seen, []);
    drop(staying);
}
