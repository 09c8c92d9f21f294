//! Bytes in, bytes out, back-pressure.

use crate::harness::{Pond, Seen, buffer, echo, pattern, received_bytes};
use millpond_io::{Address, Driver, Event, ListenOptions, Listener, Peer, SendOutcome};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// Goal: what a peer sends reaches the handler, and what the handler sends reaches the peer.
pub(crate) fn bytes_come_back_in_order<D: Driver>(make: &impl Fn() -> D) {
    let (mut pond, socket, mut peer) = Pond::connected(make);
    for round in 0..100_u32 {
        let message = format!("message {round}");
        peer.write_all(message.as_bytes()).unwrap();
        pond.seen.clear();
        pond.run_with(echo, |seen, _| {
            received_bytes(seen, socket).len() == message.len()
        });
        let mut answer = vec![0; message.len()];
        peer.read_exact(&mut answer).unwrap();
        assert_eq!(answer, message.as_bytes());
    }
    let counters = pond.driver.counters();
    // One receive per message: the one that would only find nothing is never made.
    assert_eq!((counters.receives, counters.sends), (100, 100));
    assert_eq!(counters.received_bytes, counters.sent_bytes);
}

/// Goal: both ends of a connection can live in one driver, each with events of its own.
pub(crate) fn a_driver_talks_to_itself<D: Driver>(make: &impl Fn() -> D) {
    let (mut pond, address) = Pond::listening(make);
    let client = pond.driver.connect(&address.into()).unwrap();
    pond.run_until(|seen| seen.len() == 2);
    assert!(pond.seen.contains(&Seen::Connected(client)));
    let accepted = |seen: &Seen| match seen {
        Seen::Accepted(socket, _) => Some(*socket),
        _ => None,
    };
    let server = pond.seen.iter().find_map(accepted).unwrap();
    assert_ne!(server, client);
    assert_eq!(pond.driver.socket_count(), 2);

    assert_eq!(pond.send(client, b"to the server"), SendOutcome::Done);
    assert_eq!(pond.send(server, b"to the client"), SendOutcome::Done);
    pond.run_until(|seen| {
        received_bytes(seen, server) == b"to the server"
            && received_bytes(seen, client) == b"to the client"
    });
    pond.driver.close(client);
    pond.run_until(|seen| seen.last() == Some(&Seen::PeerFinished(server)));
}

/// Goal: the smallest pieces a peer can send are neither lost nor doubled.
pub(crate) fn single_bytes_arrive_whole<D: Driver>(make: &impl Fn() -> D) {
    let (mut pond, socket, mut peer) = Pond::connected(make);
    peer.set_nodelay(true).unwrap();
    let message = pattern(300);
    for byte in &message {
        peer.write_all(std::slice::from_ref(byte)).unwrap();
        pond.tick(0, &mut |_, _, _| {});
    }
    pond.run_until(|seen| received_bytes(seen, socket).len() >= message.len());
    assert_eq!(received_bytes(&pond.seen, socket), message);
}

/// Goal: input far larger than the receive buffer arrives whole, in order.
pub(crate) fn large_input_arrives_whole<D: Driver>(make: &impl Fn() -> D) {
    let (mut pond, socket, mut peer) = Pond::connected(make);
    let message = pattern(5 << 20);
    let sent = message.clone();
    let sender = std::thread::spawn(move || {
        peer.write_all(&sent).unwrap();
        peer
    });
    pond.run_until(|seen| {
        seen.last()
            .is_some_and(|last| matches!(last, Seen::Received(_, bytes) if bytes.len() >= 5 << 20))
    });
    assert!(
        received_bytes(&pond.seen, socket) == message,
        "bytes differ"
    );
    drop(sender.join().unwrap());
}

/// Goal: a peer that does not read blocks the socket; what is sent meanwhile is kept in order;
/// once it reads, everything arrives and the handler learns of the end exactly once.
pub(crate) fn a_slow_reader_blocks_and_drains<D: Driver>(make: &impl Fn() -> D) {
    let (mut pond, socket, mut peer) = Pond::connected(make);
    let piece = pattern(300_001);
    let mut sent = Vec::new();
    let mut blocked_sends = 0;
    while blocked_sends < 5 {
        sent.extend_from_slice(&piece);
        if pond.send(socket, &piece) == SendOutcome::Blocked {
            blocked_sends += 1;
        }
        assert!(
            sent.len() < 256 << 20,
            "a peer that reads nothing must block the socket"
        );
    }
    pond.settle();
    assert_eq!(pond.seen, [], "nothing drains while the peer does not read");
    assert_eq!(
        pond.busy_waits(3),
        0,
        "a blocked socket must not keep the shard busy"
    );

    let len = sent.len();
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; len];
        peer.read_exact(&mut got).unwrap();
        (peer, got)
    });
    pond.run_until(|seen| seen.contains(&Seen::SendDrained(socket)));
    let (mut peer, got) = reader.join().unwrap();
    assert!(got == sent, "bytes differ");
    pond.settle();
    assert_eq!(pond.seen, [Seen::SendDrained(socket)]);

    assert_eq!(pond.send(socket, b"again"), SendOutcome::Done);
    let mut again = [0; 5];
    peer.read_exact(&mut again).unwrap();
    assert_eq!(&again, b"again");
}

/// Goal: a socket may be sent to before its connection stands.
pub(crate) fn sends_wait_for_connect<D: Driver>(make: &impl Fn() -> D) {
    let (mut pond, address) = Pond::listening(make);
    let client = pond.driver.connect(&address.into()).unwrap();
    assert_eq!(pond.send(client, b"early "), SendOutcome::Blocked);
    assert_eq!(pond.send(client, b"bird"), SendOutcome::Blocked);
    pond.run_until(|seen| {
        let received =
            |seen: &Seen| matches!(seen, Seen::Received(_, bytes) if bytes == b"early bird");
        seen.iter().any(received) && seen.contains(&Seen::SendDrained(client))
    });
    let position = |wanted: Seen| pond.seen.iter().position(|seen| *seen == wanted).unwrap();
    assert!(position(Seen::Connected(client)) < position(Seen::SendDrained(client)));
}

/// Goal: paused bytes stay with the kernel, cost nothing, and come when receiving goes on.
pub(crate) fn pausing_holds_bytes_back<D: Driver>(make: &impl Fn() -> D) {
    let (mut pond, socket, mut peer) = Pond::connected(make);
    pond.driver.pause_receive(socket);
    peer.write_all(b"later").unwrap();
    pond.settle();
    assert_eq!(pond.seen, []);
    assert_eq!(
        pond.busy_waits(3),
        0,
        "unwanted bytes must not keep the shard busy"
    );
    pond.driver.resume_receive(socket);
    pond.run_until(|seen| received_bytes(seen, socket) == b"later");

    // A handler that pauses during its own event gets no more bytes in that tick either.
    peer.write_all(&pattern(500_000)).unwrap();
    pond.seen.clear();
    pond.run_with(
        |driver, _, event| {
            if let Event::Received { socket, .. } = event {
                driver.pause_receive(*socket);
            }
        },
        |seen, _| !seen.is_empty(),
    );
    let first_len = received_bytes(&pond.seen, socket).len();
    pond.settle();
    assert_eq!(received_bytes(&pond.seen, socket).len(), first_len);
    pond.driver.resume_receive(socket);
    pond.run_until(|seen| received_bytes(seen, socket).len() == 500_000);

    // FINs wait as well.
    pond.driver.pause_receive(socket);
    drop(peer);
    pond.seen.clear();
    pond.settle();
    assert_eq!(pond.seen, []);
    pond.driver.resume_receive(socket);
    pond.run_until(|seen| seen == [Seen::PeerFinished(socket)]);
}

/// Goal: unix sockets behave alike, down to a paused one whose peer went away.
pub(crate) fn unix_sockets_carry_bytes<D: Driver>(make: &impl Fn() -> D) {
    let directory = tempfile::tempdir().unwrap();
    let address = Address::Unix(directory.path().join("pond.sock"));
    let mut pond = Pond::new(make);
    pond.driver
        .listen(Listener::bind(&address, ListenOptions::default()).unwrap())
        .unwrap();
    let Address::Unix(path) = &address else {
        unreachable!()
    };
    let mut peer = UnixStream::connect(path).unwrap();
    let socket = pond.accept();
    assert_eq!(pond.seen.pop(), Some(Seen::Accepted(socket, Peer::Unix)));

    peer.write_all(b"ping").unwrap();
    pond.run_with(echo, |seen, _| received_bytes(seen, socket) == b"ping");
    let mut answer = [0; 4];
    peer.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"ping");

    pond.driver.pause_receive(socket);
    peer.write_all(b"last words").unwrap();
    drop(peer);
    pond.settle();
    assert_eq!(
        pond.busy_waits(3),
        0,
        "a hang-up during a pause must not keep the shard busy"
    );
    pond.driver.resume_receive(socket);
    pond.run_until(|seen| seen.contains(&Seen::PeerFinished(socket)));
    assert_eq!(received_bytes(&pond.seen, socket), b"pinglast words");

    let client = pond.driver.connect(&address).unwrap();
    let data = buffer(&pond.pools, b"from the driver");
    assert_eq!(pond.driver.send(client, data), SendOutcome::Blocked);
    pond.run_until(|seen| {
        let received =
            |seen: &Seen| matches!(seen, Seen::Received(_, bytes) if bytes == b"from the driver");
        seen.iter().any(received)
    });
}
