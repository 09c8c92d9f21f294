//! How connections end, and ids that outlive them.

use crate::harness::{Pond, Seen, pattern, received_bytes, received_len, refusing};
use crate::world::{Remote, World};
use millpond_io::{Driver, Errno, Event, IoError, ListenOptions, Listener, SendOutcome, SocketId};
use std::io::{ErrorKind, Write};

/// Goal: a FIN is one event after the last byte; the other direction still works.
pub(crate) fn a_fin_is_reported_once_and_sending_goes_on<W: World>(world: &W) {
    let (mut pond, socket, mut peer) = Pond::connected(world);
    peer.write_all(b"bye").unwrap();
    peer.finish();
    pond.run_until(|seen| seen.contains(&Seen::PeerFinished(socket)));
    pond.settle();
    assert_eq!(
        pond.seen,
        [
            Seen::Received(socket, b"bye".to_vec()),
            Seen::PeerFinished(socket)
        ]
    );
    assert_eq!(pond.busy_waits(3), 0, "a FIN must not keep the shard busy");

    assert_eq!(pond.send(socket, b"still here"), SendOutcome::Done);
    assert_eq!(pond.peer_receives(&mut peer, 10), b"still here");
    pond.driver.close(socket);
    // A driver that says goodbye, and sends late, has something to send first.
    pond.run_with(|_, _, _| {}, |_, driver| driver.socket_count() == 0);
    let (rest, end) = pond.peer_receives_all(&mut peer);
    assert!(rest.is_empty() && end.is_ok(), "{rest:?} {end:?}");
}

/// Goal: a FIN of ours comes behind all that was sent, also where the kernel is full, and the peer's bytes
/// come on, and its FIN, which is no failure although both sides have finished then.
pub(crate) fn a_sent_fin_comes_last_and_receiving_goes_on<W: World>(world: &W) {
    for is_full in [false, true] {
        let (mut pond, socket, mut peer) = Pond::connected(world);
        let piece = pattern(if is_full { 1 << 20 } else { 1_000 });
        let sent = match is_full {
            true => pond.send_until_blocked(socket, &piece),
            false => {
                let _ = pond.send(socket, &piece);
                piece
            }
        };
        let mut got = Vec::new();
        if is_full {
            assert_eq!(pond.driver.finish_send(socket), SendOutcome::Blocked);
            got = pond.peer_receives(&mut peer, sent.len());
            pond.run_until(|seen| seen.contains(&Seen::SendDrained(socket)));
        }
        assert_eq!(pond.driver.finish_send(socket), SendOutcome::Done);
        let (rest, end) = pond.peer_receives_all(&mut peer);
        got.extend(rest);
        assert!(got == sent && end.is_ok(), "{end:?}");
        pond.seen.clear();
        peer.write_all(b"still here").unwrap();
        pond.run_until(|seen| received_len(seen, socket) == 10);
        peer.finish();
        pond.run_until(|seen| seen.contains(&Seen::PeerFinished(socket)));
        pond.settle();
        assert_eq!(pond.seen.last(), Some(&Seen::PeerFinished(socket)));
        assert_eq!(pond.busy_waits(3), 0, "nothing is left to be told");
        pond.driver.close(socket);
        pond.run_with(|_, _, _| {}, |_, driver| driver.socket_count() == 0);
    }
}

/// Goal: a FIN that stands behind bytes that are not received is found by asking.
pub(crate) fn a_fin_behind_a_pause_is_found_by_asking<W: World>(world: &W) {
    let (mut pond, socket, mut peer) = Pond::connected(world);
    pond.driver.pause_receive(socket);
    peer.write_all(b"unread").unwrap();
    pond.settle();
    assert!(!pond.driver.has_peer_finished(socket));
    peer.finish();
    for _ in 0..10_000 {
        pond.settle();
        if pond.driver.has_peer_finished(socket) {
            break;
        }
    }
    assert!(pond.driver.has_peer_finished(socket));
    assert!(!pond.seen.contains(&Seen::PeerFinished(socket)));
    pond.driver.resume_receive(socket);
    pond.run_until(|seen| seen.contains(&Seen::PeerFinished(socket)));
    assert_eq!(received_bytes(&pond.seen, socket), b"unread");
}

/// Goal: a reset ends the socket with its reason; the id is stale when the handler runs.
pub(crate) fn a_reset_fails_the_socket<W: World>(world: &W) {
    let (mut pond, socket, peer) = Pond::connected(world);
    peer.reset();
    let mut count_at_event = None;
    pond.run_with(
        |driver, _, event| {
            if let Event::Failed { .. } = event {
                count_at_event = Some(driver.socket_count());
            }
        },
        |seen, _| !seen.is_empty(),
    );
    assert_eq!(pond.seen, [Seen::Failed(socket, Errno::CONNRESET)]);
    assert_eq!(count_at_event, Some(0));
}

/// Goal: a pause hides bytes, not the end of the connection.
pub(crate) fn a_reset_reaches_a_paused_socket<W: World>(world: &W) {
    let (mut pond, socket, mut peer) = Pond::connected(world);
    pond.driver.pause_receive(socket);
    peer.write_all(b"unread").unwrap();
    pond.settle();
    peer.reset();
    pond.run_until(|seen| !seen.is_empty());
    assert_eq!(pond.seen, [Seen::Failed(socket, Errno::CONNRESET)]);
}

/// Goal: a port without a listener fails the socket, whatever was queued on it.
pub(crate) fn a_refused_connect_fails<W: World>(world: &W) {
    let mut pond = Pond::new(world);
    let (closed, _bound) = refusing();
    let socket = pond.driver.connect(&closed).unwrap();
    let _ = pond.send(socket, b"into the void");
    pond.run_until(|seen| !seen.is_empty());
    pond.settle();
    assert_eq!(pond.seen, [Seen::Failed(socket, Errno::CONNREFUSED)]);
    assert_eq!(pond.driver.socket_count(), 0);

    let nowhere = tempfile::tempdir().unwrap().path().join("gone.sock");
    let socket = pond
        .driver
        .connect(&millpond_io::Address::Unix(nowhere))
        .unwrap();
    pond.seen.clear();
    pond.run_until(|seen| !seen.is_empty());
    assert_eq!(pond.seen, [Seen::Failed(socket, Errno::NOENT)]);
}

/// Goal: sending to a peer that reset the connection ends in exactly one failure, never in a
/// signal, and blocked bytes are dropped with it.
pub(crate) fn a_send_to_a_gone_peer_fails<W: World>(world: &W) {
    let (mut pond, socket, peer) = Pond::connected(world);
    let piece = pattern(1 << 20);
    pond.send_until_blocked(socket, &piece);
    peer.reset();
    let _ = pond.send(socket, &piece);
    pond.run_until(|seen| !seen.is_empty());
    pond.settle();
    assert!(
        matches!(pond.seen[..], [Seen::Failed(of, Errno::CONNRESET | Errno::PIPE)] if of == socket),
        "{:?}",
        pond.seen.len()
    );
    assert_eq!(pond.send(socket, b"more"), SendOutcome::Done);

    // The same when the failing call is the send itself.
    let (mut pond, socket, peer) = Pond::connected(world);
    peer.reset();
    for _ in 0..3 {
        let _ = pond.send(socket, b"x");
    }
    pond.run_until(|seen| !seen.is_empty());
    assert_eq!(pond.send(socket, b"x"), SendOutcome::Done);
    pond.settle();
    assert!(
        matches!(pond.seen[..], [Seen::Failed(of, _)] if of == socket),
        "{:?}",
        pond.seen
    );
    assert_eq!(pond.driver.socket_count(), 0);
}

/// A server that refuses an upload responds, closes, and so resets; the upload's next send fails before the response
/// was read. Goal: all bytes that had arrived are delivered, then the one failure; of a paused socket the failure
/// alone.
pub(crate) fn what_arrived_comes_before_a_failed_send<W: World>(world: &W) {
    // No more than the receiver takes at once: a reset drops what its sender still had.
    let answer = pattern(60_000);
    for (is_blocked, is_paused) in [(false, false), (true, false), (false, true), (true, true)] {
        let (mut pond, socket, mut peer) = Pond::connected(world);
        if is_blocked {
            pond.send_until_blocked(socket, &pattern(1 << 20));
        }
        let mut given = 0;
        while given < answer.len() {
            match peer.write(&answer[given..]) {
                Ok(count) => given += count,
                Err(_) => break,
            }
        }
        assert!(given > 0);
        if is_paused {
            pond.driver.pause_receive(socket);
        }
        peer.reset();
        for _ in 0..3 {
            let _ = pond.send(socket, b"more of the upload");
        }
        pond.run_until(|seen| matches!(seen.last(), Some(Seen::Failed(..))));
        pond.settle();
        let got = received_bytes(&pond.seen, socket);
        let expected = if is_paused { &[][..] } else { &answer[..given] };
        assert!(got == expected, "{} of {} bytes", got.len(), expected.len());
        assert!(
            matches!(pond.seen[..], [.., Seen::Failed(of, Errno::CONNRESET | Errno::PIPE)] if of == socket)
        );
        let failures = pond
            .seen
            .iter()
            .filter(|seen| matches!(seen, Seen::Failed(..)));
        assert_eq!(failures.count(), 1);
        assert_eq!(pond.driver.socket_count(), 0);
    }
}

/// Goal: an id kept after its socket is gone reaches no socket, in particular not the slot's next one.
pub(crate) fn dead_ids_are_ignored<W: World>(world: &W) {
    let (mut pond, address) = Pond::listening(world);
    let first_peer = world.connect(&address).unwrap();
    let dead = pond.accept();
    pond.driver.close(dead);
    pond.settle();
    let mut peer = world.connect(&address).unwrap();
    let alive = pond.accept();
    assert_eq!(
        dead.slot(),
        alive.slot(),
        "slots are dense: a freed one is used again"
    );
    assert_ne!(dead, alive);
    assert_eq!(SocketId::from_bits(alive.to_bits()), alive);

    assert_eq!(pond.send(dead, b"astray"), SendOutcome::Done);
    pond.driver.pause_receive(dead);
    pond.driver.close_after_send(dead);
    pond.driver.close(dead);
    pond.driver.close(dead);
    assert_eq!(pond.driver.peer(dead), None);
    assert_eq!(
        (pond.driver.socket_count(), pond.driver.closing_count()),
        (1, 0)
    );

    peer.write_all(b"hello").unwrap();
    pond.run_until(|seen| received_bytes(seen, alive) == b"hello");
    assert_eq!(pond.send(alive, b"world"), SendOutcome::Done);
    assert_eq!(pond.peer_receives(&mut peer, 5), b"world");
    drop(first_peer);
}

/// Goal: when two sockets are ready in one wait and the first one's handler closes the second,
/// the second's event is dropped.
pub(crate) fn a_socket_closed_by_another_handler_stays_silent<W: World>(world: &W) {
    let (mut pond, address) = Pond::listening(world);
    let mut peers: Vec<_> = (0..2).map(|_| world.connect(&address).unwrap()).collect();
    pond.run_until(|seen| seen.len() == 2);
    let sockets: Vec<_> = pond
        .seen
        .drain(..)
        .map(|seen| match seen {
            Seen::Accepted(socket) => socket,
            other => panic!("{other:?}"),
        })
        .collect();
    for peer in &mut peers {
        peer.write_all(b"me first").unwrap();
    }
    // Loopback delivers before write returns, so one wait finds both.
    pond.run_with(
        |driver, _, event| {
            if let Event::Received { socket, .. } = event {
                sockets
                    .iter()
                    .filter(|other| *other != socket)
                    .for_each(|other| driver.close(*other));
            }
        },
        |seen, _| !seen.is_empty(),
    );
    pond.settle();
    assert!(
        matches!(pond.seen[..], [Seen::Received(..)]),
        "{:?}",
        pond.seen
    );
    assert_eq!(pond.driver.socket_count(), 1);
}

/// Goal: a second listener is refused instead of replacing the first.
pub(crate) fn one_listener_at_a_time<W: World>(world: &W) {
    let (mut pond, address) = Pond::listening(world);
    let second = Listener::bind(&"127.0.0.1:0".parse().unwrap(), ListenOptions::default()).unwrap();
    assert_eq!(
        pond.driver.listen(second).unwrap_err(),
        IoError::AlreadyListening
    );
    let _peer = world.connect(&address).unwrap();
    pond.accept();
}

/// Goal: connections in the queue when listening stopped are still served; later ones are refused; open connections
/// stay.
pub(crate) fn stopping_takes_the_waiting<W: World>(world: &W) {
    let (mut pond, address) = Pond::listening(world);
    let mut waiting: Vec<_> = (0..100).map(|_| world.connect(&address).unwrap()).collect();
    pond.driver.stop_listening();
    pond.run_until(|seen| seen.len() == 100);
    let refused = world.connect(&address).err().map(|error| error.kind());
    assert_eq!(refused, Some(ErrorKind::ConnectionRefused));

    waiting[99].write_all(b"served").unwrap();
    pond.run_until(
        |seen| matches!(seen.last(), Some(Seen::Received(_, bytes)) if bytes == b"served"),
    );
    assert_eq!(pond.driver.socket_count(), 100);
}

/// Goal: bytes of a send that was done reach the peer though the socket is closed right after it,
/// with a FIN behind them and not a reset.
pub(crate) fn a_close_keeps_what_was_done<W: World>(world: &W) {
    let (mut pond, socket, mut peer) = Pond::connected(world);
    assert_eq!(pond.send(socket, b"last words"), SendOutcome::Done);
    pond.driver.close(socket);
    let (got, end) = pond.peer_receives_all(&mut peer);
    assert_eq!(got, b"last words");
    assert!(end.is_ok(), "{end:?}");
    pond.run_with(|_, _, _| {}, |_, driver| driver.socket_count() == 0);
    pond.settle();
    assert_eq!(pond.seen, []);

    // Also when the kernel was full, of which a driver that sends late learns late. How much fits
    // differs a little from socket to socket; a send that was not done may be dropped.
    let piece = pattern(10_000);
    let (mut pond, socket, _peer) = Pond::connected(world);
    let pieces = pond.send_until_blocked(socket, &piece).len() / piece.len();
    let (mut pond, socket, mut peer) = Pond::connected(world);
    for index in 0..pieces {
        if !pond.seen.is_empty() || pond.send(socket, &piece) == SendOutcome::Blocked {
            return;
        }
        if index + 1 < pieces {
            pond.tick(0, &mut |_, _, _| {});
        }
    }
    pond.driver.close(socket);
    let (got, end) = pond.peer_receives_all(&mut peer);
    assert!(end.is_ok(), "{end:?}");
    assert!(
        got == piece.repeat(pieces),
        "{} of {pieces} pieces",
        got.len()
    );
}

/// A closed socket's bytes stay with the kernel until a peer that does not read goes: 500 of them held
/// 133 MiB. Goal: a reset takes them back, whatever was still to be sent, and nothing is heard of it.
pub(crate) fn a_reset_takes_back_what_is_not_read<W: World>(world: &W) {
    let (mut pond, socket, mut peer) = Pond::connected(world);
    let given = pond.send_until_blocked(socket, &pattern(1 << 20));
    pond.driver.reset(socket);
    // Its id is stale, also where the kernel has not released it.
    pond.driver.reset(socket);
    pond.run_with(|_, _, _| {}, |_, driver| driver.socket_count() == 0);
    pond.settle();
    assert_eq!(pond.seen, []);
    let (got, end) = pond.peer_receives_all(&mut peer);
    assert_eq!(
        end.map_err(|error| error.kind()),
        Err(ErrorKind::ConnectionReset)
    );
    assert!(got.len() < given.len(), "all {} bytes arrived", got.len());
}

/// Goal: when a driver goes, its connections and its port go with it.
pub(crate) fn a_dropped_driver_lets_its_peers_go<W: World>(world: &W) {
    let (mut pond, address) = Pond::listening(world);
    let mut peers: Vec<_> = (0..3).map(|_| world.connect(&address).unwrap()).collect();
    pond.run_until(|seen| seen.len() == 3);
    drop(pond);
    let mut pond = Pond::new(world);
    for peer in &mut peers {
        let (got, _) = pond.peer_receives_all(peer);
        assert_eq!(got, b"");
    }
    let refused = world.connect(&address).err().map(|error| error.kind());
    assert_eq!(refused, Some(ErrorKind::ConnectionRefused));
}
