//! A crowd beside an established client: it waits, and is not forgotten.

use crate::harness::{Pond, Seen};
use crate::world::{Remote, World};
use millpond_io::{Address, Driver, Event, SocketId};
use std::io::{Read, Write};

/// Goal: peers that always have more to send do not keep the others waiting: between the moment a quiet peer sends and
/// the moment its bytes are delivered, each of them gets about a turn, and no turn is long. One-byte chunks once
/// starved an established client beside them, whose median rose 80,000-fold.
pub(crate) fn a_flood_leaves_everybody_a_turn<W: World>(world: &W) {
    const FLOODERS: usize = 64;
    const ROUNDS: usize = 30;
    let (mut pond, address) = Pond::listening(world);
    let flood = vec![b'x'; 256 << 10];
    let mut flooders: Vec<_> = (0..FLOODERS)
        .map(|_| {
            let peer = world.connect(&address).unwrap();
            pond.accept();
            peer
        })
        .collect();
    let mut quiet_peer = world.connect(&address).unwrap();
    let quiet = pond.accept();
    let mut flood_lens = Vec::new();
    for round in 0..ROUNDS {
        // In the first rounds the driver detects the flooding peers.
        for _ in 0..5 {
            pour(&mut flooders, &flood);
            pond.tick(0, &mut |_, _, _| {});
        }
        pond.seen.clear();
        pour(&mut flooders, &flood);
        quiet_peer.write_all(b"hello").unwrap();
        let (mut flood_len, mut is_heard) = (0, false);
        while !is_heard {
            pond.tick(0, &mut |_, _, event| match event {
                Event::Received { socket, .. } if *socket == quiet => is_heard = true,
                Event::Received { bytes, .. } if !is_heard => flood_len += bytes.len(),
                _ => {}
            });
            pour(&mut flooders, &flood);
            pond.seen.clear();
            assert!(
                flood_len < 1 << 30,
                "round {round}: the quiet peer is starved"
            );
        }
        flood_lens.push(flood_len);
    }
    // One turn each is 256 KiB; whatever the machine does meanwhile, a few more are no starvation.
    assert!(
        flood_lens.iter().all(|len| *len <= 2 << 20),
        "{flood_lens:?}"
    );
}

/// 500 clients that connected, dribbled or hung up had all their events handled before the next
/// request of one that had been served all along, which waited for 5 ms. Goal: it comes first, a
/// few of them come per tick, and all come in the end.
pub(crate) fn a_crowd_waits_behind_who_is_served<W: World>(world: &W) {
    const CROWD: usize = 100;
    const ROUNDS: usize = 20;
    let (mut pond, address, mut peer, regular) = beside_a_regular(world);
    let mut crowd = strangers(world, &mut pond, &address, CROWD);
    let mut came_before = Vec::new();
    for _ in 0..ROUNDS {
        // Sends two requests: a client that got a response and sends again is established.
        for _ in 0..2 {
            pond.answers(&mut peer, regular);
        }
        for other in &mut crowd {
            other.write_all(b"x").unwrap();
        }
        peer.write_all(b"hello").unwrap();
        pond.seen.clear();
        let (mut before, mut others) = (None, 0);
        while before.is_none() || others < CROWD {
            pond.tick(0, &mut |_, _, event| match event {
                Event::Received { socket, .. } if *socket == regular => before = Some(others),
                Event::Received { .. } => others += 1,
                _ => {}
            });
        }
        came_before.push(before.unwrap());
    }
    assert!(
        came_before.iter().all(|before| *before <= 12),
        "{came_before:?}"
    );
    assert!(pond.driver.counters().deferred > 0);
}

/// Four hundred that did not read their responses were reported anew in every tick until they had their turn, which
/// took the kernel 60 us of each. Goal: a waiting socket is reported once.
pub(crate) fn who_waits_is_told_of_once<W: World>(world: &W) {
    const CROWD: u64 = 100;
    let (mut pond, address, mut peer, regular) = beside_a_regular(world);
    let mut crowd = strangers(world, &mut pond, &address, CROWD as usize);
    for _ in 0..2 {
        pond.answers(&mut peer, regular);
    }
    let before = pond.driver.counters().deferred;
    for other in &mut crowd {
        other.write_all(b"x").unwrap();
    }
    let mut received = 0;
    while received < CROWD as usize {
        pond.answers(&mut peer, regular);
        let others = pond
            .seen
            .iter()
            .filter(|seen| matches!(seen, Seen::Received(socket, _) if *socket != regular));
        received += others.count();
    }
    let deferred = pond.driver.counters().deferred - before;
    assert!(deferred <= CROWD, "{deferred}");
}

/// A stopping server treated a client that waited for its turn as idle, and reset it with its request unread. Goal: a
/// driver that claims to have reported all events has done so.
pub(crate) fn what_is_left_is_said<W: World>(world: &W) {
    const CROWD: usize = 100;
    let (mut pond, address, mut peer, regular) = beside_a_regular(world);
    let mut crowd = strangers(world, &mut pond, &address, CROWD);
    let mut ticks_behind = 0;
    for _ in 0..20 {
        for _ in 0..2 {
            pond.answers(&mut peer, regular);
        }
        for other in &mut crowd {
            other.write_all(b"x").unwrap();
        }
        pond.seen.clear();
        loop {
            pond.tick(0, &mut |_, _, _| {});
            if !pond.driver.has_events_left() {
                break;
            }
            ticks_behind += 1;
        }
        let is_bytes = |seen: &&Seen| matches!(seen, Seen::Received(..));
        assert_eq!(pond.seen.iter().filter(is_bytes).count(), CROWD);
    }
    assert!(ticks_behind > 0, "nobody had to wait");
}

/// Sixteen that sent without end beside a regular were reported in the same order in every tick, and
/// the first six had all turns. Goal: each of them has some.
pub(crate) fn turns_go_round<W: World>(world: &W) {
    const FLOODERS: usize = 16;
    const RECEIVES: usize = 40 * FLOODERS;
    let (mut pond, address, mut peer, regular) = beside_a_regular(world);
    let mut flooders: Vec<_> = (0..FLOODERS)
        .map(|_| (world.connect(&address).unwrap(), pond.accept()))
        .collect();
    let flood = vec![b'x'; 64 << 10];
    let mut received = vec![0; FLOODERS];
    // In the first round, clients with a response become established, before there is a crowd. A turn is over after one
    // receive of 16 KiB where copying that took all its time.
    let mut rounds = 0;
    while received.iter().sum::<usize>() < RECEIVES {
        rounds += 1;
        // Every second tick has a turn of the others, in which one of them receives at least.
        assert!(
            rounds < 8 * RECEIVES,
            "{received:?} {:?}",
            pond.driver.counters()
        );
        pond.answers(&mut peer, regular);
        for (count, (_, socket)) in received.iter_mut().zip(&flooders) {
            let is_its = |seen: &&Seen| matches!(seen, Seen::Received(id, _) if id == socket);
            *count += pond.seen.iter().filter(is_its).count();
        }
        for (other, _) in &mut flooders {
            while other.write(&flood).is_ok() {}
        }
    }
    let least = received.iter().min();
    assert!(least.is_some_and(|least| *least >= 10), "{received:?}");
}

/// A client that did not read its responses had sent so many requests that each of its turns was 64 KiB, which took 140
/// us to receive and to store. Goal: beside an established client no other receives more than 16 KiB at a time.
pub(crate) fn turns_are_short_beside_regulars<W: World>(world: &W) {
    const TURN_BYTES: usize = 16 << 10;
    const TURNS: usize = 20;
    let (mut pond, address, mut peer, regular) = beside_a_regular(world);
    let mut flooder = world.connect(&address).unwrap();
    let flooding = pond.accept();
    let flood = vec![b'x'; 64 << 10];
    for _ in 0..2 {
        pond.answers(&mut peer, regular);
    }
    let mut lengths = Vec::new();
    while lengths.len() < TURNS {
        while flooder.write(&flood).is_ok() {}
        pond.answers(&mut peer, regular);
        lengths.extend(pond.seen.iter().filter_map(|seen| match seen {
            Seen::Received(id, bytes) if *id == flooding => Some(bytes.len()),
            _ => None,
        }));
    }
    assert!(lengths.iter().all(|len| *len <= TURN_BYTES), "{lengths:?}");
    assert!(lengths.contains(&TURN_BYTES), "{lengths:?}");
}

/// 60 established clients hung up in one tick, before the next request of the one that stayed: 60 closes, a
/// millisecond. Goal: a few are closed per tick, like other clients.
pub(crate) fn who_leaves_waits_for_a_turn<W: World>(world: &W) {
    ends_take_turns(world, MayFail::No, |pond, (peer, regular), address| {
        let leaving = answered_crowd(world, pond, (peer, regular), address);
        drop(leaving);
    });
}

/// A crowd that resets its connections had all of them closed in one tick by the driver that hears of that
/// from the kernel. Goal: a few end per tick, beside a regular that is served, and all end.
pub(crate) fn who_resets_waits_for_a_turn<W: World>(world: &W) {
    ends_take_turns(world, MayFail::Yes, |pond, (peer, regular), address| {
        let resetting: Vec<_> = (0..ENDING)
            .map(|_| {
                let other = world.connect(address).unwrap();
                pond.accept();
                other
            })
            .collect();
        for _ in 0..2 {
            pond.answers(peer, regular);
        }
        resetting.into_iter().for_each(Remote::reset);
    });
}

/// The other driver, too, closed all of those in one tick that it knew as regulars, 18 of a crowd that asked
/// for files and reset the connections once the response began. Goal: they end as strangers do.
pub(crate) fn who_was_answered_and_resets_waits_for_a_turn<W: World>(world: &W) {
    ends_take_turns(world, MayFail::Yes, |pond, (peer, regular), address| {
        let resetting = answered_crowd(world, pond, (peer, regular), address);
        resetting.into_iter().for_each(Remote::reset);
    });
}

/// Closing a connection that hung up takes the kernel some 30 us, and of 500 clients that sent a request and a FIN
/// three were closed in each tick, once their responses had left: all others waited for 100 us. Goal: beside an
/// established client few of them are closed in one tick, and all in the end.
pub(crate) fn closes_take_turns<W: World>(world: &W) {
    const ROUNDS: usize = 10;
    let (mut pond, address, mut peer, regular) = beside_a_regular(world);
    for _ in 0..ROUNDS {
        let mut crowd = strangers(world, &mut pond, &address, ENDING);
        for _ in 0..2 {
            pond.answers(&mut peer, regular);
        }
        crowd.iter().for_each(Remote::finish);
        let mut over = Vec::new();
        while over.len() < ENDING {
            pond.tick(0, &mut |_, _, event| {
                if let Event::PeerFinished { socket } = event {
                    over.push(*socket);
                }
            });
        }
        // The owner's action on all of them in the tick in which an established client has sent a request.
        pond.answers(&mut peer, regular);
        for socket in over {
            pond.driver.close(socket);
        }
        // Ticks are counted, since a peer may see its end later than the tick that brought it.
        let mut ticks = 0;
        while !crowd.is_empty() {
            pond.tick(0, &mut |_, _, _| {});
            ticks += 1;
            crowd.retain_mut(|other| !matches!(other.read(&mut [0]), Ok(0)));
        }
        assert!(ticks >= ENDING / 4, "{ENDING} ended in {ticks} ticks");
    }
    assert_eq!(pond.driver.socket_count(), 1);
}

/// A close that waits is a descriptor that others lack: 20,000 of them once waited for their turn.
///
/// Goal: beside a regular at most 256 closes wait, those beyond are done at once, and all are done in the end.
pub(crate) fn closes_that_wait_are_bounded<W: World>(world: &W) {
    const WAITING_MAX: u64 = 256;
    const CROWD: usize = WAITING_MAX as usize + 120;
    // A ring brings so many cancelled operations back in one tick. Two closes are admitted in one: without the
    // bound, three times as many ticks would pass.
    const CANCELLED_PER_TICK: usize = 20;
    let (mut pond, address, mut peer, regular) = beside_a_regular(world);
    let crowd: Vec<_> = (0..CROWD)
        .map(|_| (world.connect(&address).unwrap(), pond.accept()))
        .collect();
    for _ in 0..2 {
        pond.answers(&mut peer, regular);
    }
    for (_, socket) in &crowd {
        pond.driver.reset(*socket);
    }
    assert_eq!(pond.driver.socket_count(), 1);
    let waiting = |pond: &Pond<'_, W>| pond.driver.counters().sockets_held - 1;
    let ticks_max = CROWD / CANCELLED_PER_TICK + 2;
    for _ in 0..ticks_max {
        if waiting(&pond) > WAITING_MAX {
            pond.tick(0, &mut |_, _, _| {});
        }
    }
    let most = waiting(&pond);
    assert!(most <= WAITING_MAX, "{most} closes wait");
    assert!(most > WAITING_MAX / 2, "only {most} closes wait");
    let mut ticks = 0;
    while waiting(&pond) > 0 {
        pond.tick(0, &mut |_, _, _| {});
        ticks += 1;
        assert!(ticks <= CROWD, "one close a tick is reserved");
    }
}

/// A driver that listens, and the peer that will be known.
fn beside_a_regular<W: World>(world: &W) -> (Pond<'_, W>, Address, W::Remote, SocketId) {
    let (mut pond, address) = Pond::listening(world);
    let peer = world.connect(&address).unwrap();
    let regular = pond.accept();
    (pond, address, peer, regular)
}

/// So many that came and did nothing yet.
fn strangers<W: World>(
    world: &W,
    pond: &mut Pond<'_, W>,
    address: &Address,
    count: usize,
) -> Vec<W::Remote> {
    let mut crowd = Vec::new();
    for _ in 0..count {
        crowd.push(world.connect(address).unwrap());
        pond.accept();
    }
    crowd
}

/// Of a crowd that ends at once.
const ENDING: usize = 60;

/// So many with two requests and responses each, beside the established client: a client that got a response and sends
/// again is established.
fn answered_crowd<W: World>(
    world: &W,
    pond: &mut Pond<'_, W>,
    (peer, regular): (&mut W::Remote, SocketId),
    address: &Address,
) -> Vec<W::Remote> {
    let mut crowd: Vec<_> = (0..ENDING)
        .map(|_| (world.connect(address).unwrap(), pond.accept()))
        .collect();
    for _ in 0..2 {
        for (other, socket) in &mut crowd {
            pond.answers(other, *socket);
        }
        pond.answers(peer, regular);
    }
    crowd.into_iter().map(|(other, _)| other).collect()
}

/// Whether an end may be reported as a failure: a reset is, a FIN never.
#[derive(Clone, Copy, Eq, PartialEq)]
enum MayFail {
    No,
    Yes,
}

/// In each round `crowd` makes as many connections end at once, and then the established client sends a request: few of
/// the ends are reported in one tick, and all in the end.
fn ends_take_turns<W: World>(
    world: &W,
    may_fail: MayFail,
    crowd: impl Fn(&mut Pond<'_, W>, (&mut W::Remote, SocketId), &Address),
) {
    const ROUNDS: usize = 10;
    let (mut pond, address, mut peer, regular) = beside_a_regular(world);
    let mut most_per_tick = Vec::new();
    for _ in 0..ROUNDS {
        crowd(&mut pond, (&mut peer, regular), &address);
        peer.write_all(b"hello").unwrap();
        let (mut is_heard, mut ended, mut most) = (false, 0, 0);
        while !is_heard || ended < ENDING {
            let ended_before = ended;
            pond.tick(0, &mut |driver, _, event| match event {
                Event::Received { socket, .. } if *socket == regular => is_heard = true,
                // A unix socket has no reset, only an end.
                Event::PeerFinished { socket } => {
                    ended += 1;
                    driver.close(*socket);
                }
                Event::Failed { error, .. } => {
                    assert!(may_fail == MayFail::Yes, "{error}");
                    ended += 1;
                }
                _ => {}
            });
            most = most.max(ended - ended_before);
        }
        most_per_tick.push(most);
    }
    assert!(
        most_per_tick.iter().all(|most| *most <= 12),
        "{most_per_tick:?}"
    );
    assert_eq!(pond.driver.socket_count(), 1);
}

/// Goal: if no client has been served for long, new ones are not deferred.
pub(crate) fn nobody_waits_without_regulars<W: World>(world: &W) {
    let (mut pond, address) = Pond::listening(world);
    let mut crowd: Vec<_> = (0..100).map(|_| world.connect(&address).unwrap()).collect();
    for peer in &mut crowd {
        peer.write_all(b"x").unwrap();
    }
    let received = |seen: &[Seen]| {
        let bytes = seen
            .iter()
            .filter(|seen| matches!(seen, Seen::Received(..)));
        bytes.count()
    };
    pond.run_until(|seen| received(seen) == 100);
    assert_eq!(pond.driver.counters().deferred, 0);
}

/// Each peer writes until no more bytes are taken.
fn pour(peers: &mut [impl Remote], bytes: &[u8]) {
    for peer in peers {
        while peer.write(bytes).is_ok() {}
    }
}
