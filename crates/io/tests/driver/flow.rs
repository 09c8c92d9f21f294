//! Bytes in, bytes out, back-pressure.

use crate::harness::{
    Pond, Reader, Seen, Sender, buffer, echo, pattern, received_bytes, received_len,
};
use crate::world::{Kernel, KernelDriver, Remote, World};
use millpond_io::{Address, Driver, Event, ListenOptions, Listener, Peer, SendOutcome, ShardPools};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Goal: the peer's bytes reach the handler, and the handler's bytes reach the peer.
pub(crate) fn bytes_come_back_in_order<W: World>(world: &W) {
    let (mut pond, socket, mut peer) = Pond::connected(world);
    for round in 0..100_u32 {
        let message = format!("message {round}");
        peer.write_all(message.as_bytes()).unwrap();
        pond.seen.clear();
        pond.run_with(echo, |seen, _| received_len(seen, socket) == message.len());
        let answer = pond.peer_receives(&mut peer, message.len());
        assert_eq!(answer, message.as_bytes());
    }
    let counters = pond.driver.counters();
    assert_eq!(counters.received_bytes, counters.sent_bytes);
}

/// Goal: a message that arrives whole costs one receive and one send: the receive that would only
/// find nothing is never made. Of drivers that split nothing.
pub(crate) fn a_message_costs_one_receive_and_one_send<W: World>(world: &W) {
    let (mut pond, socket, mut peer) = Pond::connected(world);
    for _ in 0..100 {
        peer.write_all(b"message").unwrap();
        pond.seen.clear();
        pond.run_with(echo, |seen, _| received_len(seen, socket) == 7);
        assert_eq!(pond.peer_receives(&mut peer, 7), b"message");
    }
    let counters = pond.driver.counters();
    assert_eq!((counters.receives, counters.sends), (100, 100));
    // Bytes that go to the kernel at once leave their room to the writer.
    let mut data = buffer(&pond.pools, b"more");
    assert_eq!(pond.driver.send_from(socket, &mut data), SendOutcome::Done);
    assert!(data.is_empty());
    assert_eq!(data.has_block(), pond.driver.sends_at_once());
    assert_eq!(pond.peer_receives(&mut peer, 4), b"more");
}

/// A receive ends before an urgent byte and goes on behind it, short both times, and an edge-triggered kernel reports
/// nothing in between. Goal: bytes after an urgent byte are delivered without another message.
pub(crate) fn an_urgent_byte_holds_nothing_back<D: KernelDriver>(world: &Kernel<D>) {
    let (mut pond, socket, mut peer) = Pond::connected(world);
    for _ in 0..20 {
        pond.seen.clear();
        peer.write_all(b"before").unwrap();
        peer.send_urgent(b'!');
        peer.write_all(b"behind").unwrap();
        pond.run_until(|seen| received_bytes(seen, socket) == b"beforebehind");
    }
}

/// Goal: both ends of a connection can live in one driver, each with events of its own.
pub(crate) fn a_driver_talks_to_itself<W: World>(world: &W) {
    let (mut pond, address) = Pond::listening(world);
    let client = pond.driver.connect(&address).unwrap();
    pond.run_until(|seen| seen.len() == 2);
    assert!(pond.seen.contains(&Seen::Connected(client)));
    let server = pond.accept_among();
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
pub(crate) fn single_bytes_arrive_whole<W: World>(world: &W) {
    let (mut pond, socket, mut peer) = Pond::connected(world);
    let message = pattern(300);
    for byte in &message {
        peer.write_all(std::slice::from_ref(byte)).unwrap();
        pond.tick(0, &mut |_, _, _| {});
    }
    pond.run_until(|seen| received_len(seen, socket) >= message.len());
    assert_eq!(received_bytes(&pond.seen, socket), message);
}

/// Goal: input far larger than the receive buffers arrives whole, in order.
pub(crate) fn large_input_arrives_whole<W: World>(world: &W) {
    let (mut pond, socket, mut peer) = Pond::connected(world);
    let message = pattern(5 << 20);
    let mut sender = Sender::new(&message);
    pond.run_with(
        |_, _, _| {},
        |seen, _| sender.turn(&mut peer).unwrap() && received_len(seen, socket) >= 5 << 20,
    );
    assert!(
        received_bytes(&pond.seen, socket) == message,
        "bytes differ"
    );
}

/// Goal: many peers that send more at once than all receive buffers hold together lose nothing.
pub(crate) fn a_crowd_arrives_whole<W: World>(world: &W) {
    let (mut pond, address) = Pond::listening(world);
    let message = pattern(100_000);
    let mut crowd: Vec<_> = (0..40)
        .map(|_| {
            let peer = world.connect(&address).unwrap();
            (peer, pond.accept(), Sender::new(&message))
        })
        .collect();
    pond.seen.clear();
    let total_len = crowd.len() * message.len();
    pond.run_with(
        |_, _, _| {},
        |seen, _| {
            for (peer, _, sender) in &mut crowd {
                sender.turn(peer).unwrap();
            }
            let len: usize = crowd.iter().map(|of| received_len(seen, of.1)).sum();
            len >= total_len
        },
    );
    for (_, socket, _) in &crowd {
        assert!(received_bytes(&pond.seen, *socket) == message, "{socket:?}");
    }
}

/// Goal: a peer that does not read blocks the socket; bytes sent meanwhile are kept in order; once it reads, everything
/// arrives and the handler learns of the end exactly once.
pub(crate) fn a_slow_reader_blocks_and_drains<W: World>(world: &W) {
    for piece_len in [300_001, 1_001] {
        let (mut pond, socket, mut peer) = Pond::connected(world);
        let piece = pattern(piece_len);
        let mut sent = pond.send_until_blocked(socket, &piece);
        // More than the kernel takes when it finds that it can do with another part.
        for _ in 0..4 + (512 << 10) / piece_len {
            sent.extend_from_slice(&piece);
            assert_eq!(pond.send(socket, &piece), SendOutcome::Blocked);
        }
        pond.settle();
        assert_eq!(pond.seen, [], "nothing drains while the peer does not read");
        let goes_on = (0..1_000).take_while(|_| pond.busy_waits(3) > 0).count();
        assert!(
            goes_on < 1_000,
            "a blocked socket must not keep the shard busy"
        );

        let mut reader = Reader::until(sent.len());
        pond.run_with(
            |_, _, _| {},
            |seen, _| reader.turn(&mut peer) && seen.contains(&Seen::SendDrained(socket)),
        );
        assert!(reader.got == sent, "bytes differ");
        pond.settle();
        assert_eq!(pond.seen, [Seen::SendDrained(socket)]);

        assert_eq!(pond.send(socket, b"again"), SendOutcome::Done);
        assert_eq!(pond.peer_receives(&mut peer, 5), b"again");
    }
}

/// Goal: several sends within one tick arrive in the order they were given, small and large mixed.
pub(crate) fn sends_of_one_tick_keep_their_order<W: World>(world: &W) {
    let (mut pond, socket, mut peer) = Pond::connected(world);
    let message = pattern(200_000);
    let lens = [1, 2, 70_000, 3, 4, 50_000, 5];
    let mut from = 0;
    for len in lens {
        let _ = pond.send(socket, &message[from..from + len]);
        from += len;
    }
    let got = pond.peer_receives(&mut peer, from);
    assert!(got == message[..from], "bytes differ");
}

/// Goal: a socket may be sent to before its connection stands.
pub(crate) fn sends_wait_for_connect<W: World>(world: &W) {
    let (mut pond, address) = Pond::listening(world);
    let client = pond.driver.connect(&address).unwrap();
    assert_eq!(pond.send(client, b"early "), SendOutcome::Blocked);
    assert_eq!(pond.send(client, b"bird"), SendOutcome::Blocked);
    let server = pond.accept_among();
    pond.run_until(|seen| {
        received_bytes(seen, server) == b"early bird" && seen.contains(&Seen::SendDrained(client))
    });
    let position = |wanted: Seen| pond.seen.iter().position(|seen| *seen == wanted).unwrap();
    assert!(position(Seen::Connected(client)) < position(Seen::SendDrained(client)));
}

/// Goal: paused bytes stay out of sight, cost nothing, and come when receiving goes on.
pub(crate) fn pausing_holds_bytes_back<W: World>(world: &W) {
    let (mut pond, socket, mut peer) = Pond::connected(world);
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
    let message = pattern(500_000);
    let mut sender = Sender::new(&message);
    pond.seen.clear();
    pond.run_with(
        |driver, _, event| {
            if let Event::Received { socket, .. } = event {
                driver.pause_receive(*socket);
            }
        },
        |seen, _| {
            let _ = sender.turn(&mut peer).unwrap();
            !seen.is_empty()
        },
    );
    let first_len = received_len(&pond.seen, socket);
    pond.settle();
    assert_eq!(received_len(&pond.seen, socket), first_len);
    pond.driver.resume_receive(socket);
    pond.run_with(
        |_, _, _| {},
        |seen, _| sender.turn(&mut peer).unwrap() && received_len(seen, socket) >= message.len(),
    );
    assert!(
        received_bytes(&pond.seen, socket) == message,
        "bytes differ"
    );

    // FINs wait as well.
    pond.driver.pause_receive(socket);
    drop(peer);
    pond.seen.clear();
    pond.settle();
    assert_eq!(pond.seen, []);
    pond.driver.resume_receive(socket);
    pond.run_until(|seen| seen == [Seen::PeerFinished(socket)]);
}

/// A submission that goes on by itself brought up to all receive buffers at every pause of an upload: 1 MiB for
/// each of many clients.
///
/// Goal: from its second pause on, a socket whose peer floods holds one receive at most.
pub(crate) fn a_flood_is_held_back_by_one_receive<W: World>(world: &W) {
    let (mut pond, socket, mut peer) = Pond::connected(world);
    let message = pattern(16 << 20);
    let mut sender = Sender::new(&message);
    let live_bytes = |pools: &ShardPools| pools.blocks.stats().live_bytes;
    for round in 0..40 {
        pond.seen.clear();
        pond.driver.resume_receive(socket);
        let mut taken_bytes = 0;
        pond.run_with(
            |driver, _, event| {
                if let Event::Received { socket, bytes } = event {
                    taken_bytes += bytes.len();
                    if taken_bytes >= 128 << 10 {
                        driver.pause_receive(*socket);
                    }
                }
            },
            |seen, _| {
                let _ = sender.turn(&mut peer).unwrap();
                received_len(seen, socket) >= 128 << 10
            },
        );
        for _ in 0..10 {
            let _ = sender.turn(&mut peer).unwrap();
            pond.tick(0, &mut |_, _, _| {});
        }
        let held_bytes = live_bytes(&pond.pools);
        assert!(
            round < 4 || held_bytes <= 64 << 10,
            "{held_bytes} bytes are held in pause {round}"
        );
    }
}

/// Goal: a handler that pauses at every event and resumes now and then, also in the same tick,
/// gets every byte once, in order, and the FIN last.
pub(crate) fn pauses_and_resumes_keep_the_order<W: World>(world: &W) {
    let (mut pond, socket, mut peer) = Pond::connected(world);
    let message = pattern(1 << 20);
    let mut sender = Sender::new(&message);
    let mut event_count = 0;
    let mut has_finished = false;
    pond.run_with(
        |driver, _, event| {
            if let Event::Received { socket, .. } = event {
                event_count += 1;
                driver.pause_receive(*socket);
                if event_count % 3 == 0 {
                    driver.resume_receive(*socket);
                }
                if event_count % 9 == 0 {
                    driver.pause_receive(*socket);
                }
            }
        },
        |seen, _| {
            if sender.turn(&mut peer).unwrap() && !has_finished {
                peer.finish();
                has_finished = true;
            }
            !seen.is_empty()
        },
    );
    loop {
        pond.driver.resume_receive(socket);
        if pond.seen.last() == Some(&Seen::PeerFinished(socket)) {
            break;
        }
        let seen_before = received_len(&pond.seen, socket);
        pond.run_with(
            |driver, _, event| {
                if let Event::Received { socket, .. } = event {
                    driver.pause_receive(*socket);
                }
            },
            |seen, _| {
                if sender.turn(&mut peer).unwrap() && !has_finished {
                    peer.finish();
                    has_finished = true;
                }
                received_len(seen, socket) > seen_before
                    || seen.last() == Some(&Seen::PeerFinished(socket))
            },
        );
    }
    pond.settle();
    assert!(
        received_bytes(&pond.seen, socket) == message,
        "bytes differ"
    );
    let kinds: Vec<_> = pond.seen.iter().map(std::mem::discriminant).collect();
    assert_eq!(kinds.len(), 2, "{:?}", pond.seen.last());
}

/// Goal: unix sockets behave the same, down to a paused one whose peer went away.
pub(crate) fn unix_sockets_carry_bytes<W: World>(world: &W) {
    let directory = tempfile::tempdir().unwrap();
    let address = Address::Unix(directory.path().join("pond.sock"));
    let mut pond = Pond::new(world);
    pond.driver
        .listen(Listener::bind(&address, ListenOptions::default()).unwrap())
        .unwrap();
    let mut peer = world.connect(&address).unwrap();
    let socket = pond.accept();
    assert_eq!(pond.seen.pop(), Some(Seen::Accepted(socket)));
    assert_eq!(pond.driver.peer(socket), Some(Peer::Unix));

    peer.write_all(b"ping").unwrap();
    pond.run_with(echo, |seen, _| received_bytes(seen, socket) == b"ping");
    assert_eq!(pond.peer_receives(&mut peer, 4), b"ping");

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

    pond.seen.clear();
    let client = pond.driver.connect(&address).unwrap();
    let data = buffer(&pond.pools, b"from the driver");
    assert_eq!(pond.driver.send(client, data), SendOutcome::Blocked);
    let server = pond.accept_among();
    pond.run_until(|seen| received_bytes(seen, server) == b"from the driver");
}

/// Goal: a peer's reads return `WouldBlock` when nothing is there, as the harness relies on.
pub(crate) fn peers_do_not_block<W: World>(world: &W) {
    let (_pond, _socket, mut peer) = Pond::connected(world);
    let error = peer.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}

/// Goal: after a file went out from the kernel's memory, until that was full, a send gets that result at once, as
/// before it, and all bytes come in their order. The ring's driver left the socket such that calls wait: the next send
/// that found the kernel full stopped the shard until its peer read.
pub(crate) fn a_file_makes_no_later_send_wait<W: World<Remote: Send>>(world: &W) {
    let (mut pond, socket, mut peer) = Pond::connected(world);
    let bytes = pattern(16 << 20);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&bytes).unwrap();
    let mut at = 0;
    while let Some(sent) = pond
        .driver
        .send_file(socket, file.as_fd(), at..bytes.len() as u64)
    {
        at += sent;
    }
    if at == 0 {
        // A kernel or a file system that cannot report which pages are in memory.
        return;
    }
    let (done, is_done) = channel::<()>();
    let reader = std::thread::scope(|scope| {
        // A send blocked by a peer that does not read fails when the peer has gone.
        let peer = scope.spawn(move || match is_done.recv_timeout(HANGS) {
            Err(RecvTimeoutError::Timeout) => None,
            _ => Some(peer),
        });
        assert_eq!(
            pond.send(socket, &bytes[..1 << 20]),
            SendOutcome::Blocked,
            "after {at} bytes"
        );
        drop(done);
        peer.join().unwrap()
    });
    peer = reader.expect("the send waited for its peer");
    let expected = [&bytes[..at as usize], &bytes[..1 << 20]].concat();
    assert!(pond.peer_receives(&mut peer, expected.len()) == expected);
}

/// Only a send that hangs meets it.
const HANGS: Duration = Duration::from_secs(60);
