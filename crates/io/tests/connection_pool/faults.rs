//! Faults of upstreams, and their effects.

use crate::pond::{LATE_NS, MS, Pond, Seen, patient as config};
use crate::world::{Peer, Upstream, World};
use millpond_io::connection_pool::{AcquireError, AcquirePhase, Endpoint, PoolConfig, Target};
use millpond_io::{Driver, Errno};

/// Goal: a parked connection whose peer closes is removed before any request could get it.
pub(crate) fn a_peer_that_closes_is_noticed<W: World>(world: &W) {
    let upstream = world.listen();
    let mut pond = Pond::new(world, config());
    let key = pond.key(upstream.address(), 4);
    let (lease, peer) = pond.open(key, &upstream);
    pond.give_back(lease);
    drop(peer);
    pond.run_until("noticed", |pond| pond.pool.parked_count() == 0);
    assert_eq!(pond.pool.key_stats(key).counters.ended_by_peer, 1);
    let (fresh, _peer) = pond.open(key, &upstream);
    pond.discard(fresh);
    pond.end(&[key]);
}

/// Goal: a parked connection on which anything arrives is closed and never handed out.
pub(crate) fn a_byte_nobody_asked_for_ends_it<W: World>(world: &W) {
    let upstream = world.listen();
    let mut pond = Pond::new(world, config());
    let key = pond.key(upstream.address(), 4);
    let (lease, mut peer) = pond.open(key, &upstream);
    let (clean, _clean_peer) = pond.open(key, &upstream);
    pond.give_back(clean);
    pond.give_back(lease);
    peer.write(b"x");
    pond.run_until_closed(&mut peer);
    assert_eq!(pond.pool.key_stats(key).counters.dirty, 1);
    assert_eq!(pond.hit(key).socket, clean.socket);
    pond.discard(clean);
    pond.end(&[key]);
}

/// Goal: a reset of a parked connection is noticed like a close.
pub(crate) fn a_reset_while_parked_is_noticed<W: World>(world: &W) {
    let upstream = world.listen();
    let mut pond = Pond::new(world, config());
    let key = pond.key(upstream.address(), 4);
    let (lease, peer) = pond.open(key, &upstream);
    pond.give_back(lease);
    peer.reset();
    pond.run_until("noticed", |pond| pond.pool.parked_count() == 0);
    assert_eq!(pond.pool.key_stats(key).counters.ended_by_peer, 1);
    pond.end(&[key]);
}

/// Goal: events of a leased connection go to its holder; a failed one has left the pool, and its place is free.
pub(crate) fn a_reset_while_leased_is_the_holders<W: World>(world: &W) {
    let upstream = world.listen();
    let mut pond = Pond::new(world, config());
    let key = pond.key(upstream.address(), 1);
    let (lease, peer) = pond.open(key, &upstream);
    pond.wait_for(key, 1, LATE_NS);
    peer.reset();
    let is_told = |pond: &mut Pond<'_, W>| !pond.seen.is_empty();
    pond.run_until("told", is_told);
    assert_eq!(pond.seen, [Seen::Failed(lease.socket, Errno::CONNRESET)]);
    let next = pond.outcome_of(1).unwrap();
    assert!(!next.is_reused);
    // A holder that has not seen the failure may still give the lease back.
    pond.give_back(lease);
    pond.discard(lease);
    pond.discard(next);
    pond.end(&[key]);
}

/// Goal: a refusal fails each waiting request, with the kernel's error.
pub(crate) fn a_refusal_is_told<W: World>(world: &W) {
    let mut pond = Pond::new(world, config());
    let (address, _bound) = world.refusing();
    let key = pond.key(address, 2);
    for token in 1..=5 {
        pond.wait_for(key, token, LATE_NS);
    }
    for token in 1..=5 {
        let error = pond.outcome_of(token).unwrap_err();
        assert_eq!(error, AcquireError::Connect(Errno::CONNREFUSED));
        assert!(!error.is_local() && !error.is_timeout());
    }
    let counters = pond.pool.key_stats(key).counters;
    assert_eq!((counters.failed, counters.opened), (5, 0));
    pond.end(&[key]);
}

/// Goal: an address that does not respond costs its deadline and no more; the attempt is closed.
pub(crate) fn a_silent_address_times_out<W: World>(world: &W) {
    let (address, _filling, _listener) = world.silent();
    let mut pond = Pond::new(
        world,
        PoolConfig {
            connect_max_ns: 200 * MS,
            ..config()
        },
    );
    let key = pond.key(address, 1);
    let begin_ns = world.now_ns();
    // The first runs into its own deadline, the second into that of connecting.
    pond.wait_for(key, 1, 50 * MS);
    pond.wait_for(key, 2, LATE_NS);
    let phase = AcquirePhase::Connect;
    let timed_out = Err(AcquireError::TimedOut { phase });
    assert_eq!(pond.outcome_of(1), timed_out);
    assert!(world.now_ns() >= begin_ns + 50 * MS);
    assert_eq!(pond.outcome_of(2), timed_out);
    assert!(world.now_ns() >= begin_ns + 200 * MS);
    pond.end(&[key]);
}

fn addresses(addresses: Vec<millpond_io::Address>) -> Target {
    Target {
        place: Endpoint::Addresses(addresses),
        ..Target::named("", 0)
    }
}

/// Goal: where the first address refuses, the second serves; the next time it is the first to be tried.
pub(crate) fn the_next_address_is_tried<W: World>(world: &W) {
    let upstream = world.listen();
    let mut pond = Pond::new(world, config());
    let (refusing, _bound) = world.refusing();
    let target = addresses(vec![refusing.clone(), refusing, upstream.address()]);
    let key = pond.pool.add_key(target).unwrap();
    let before = pond.driver.counters().connects;
    let (lease, _peer) = pond.open(key, &upstream);
    assert_eq!(pond.driver.counters().connects - before, 3);
    let (other, _other_peer) = pond.open(key, &upstream);
    assert_eq!(pond.driver.counters().connects - before, 4, "remembered");
    pond.discard(lease);
    pond.discard(other);
    pond.end(&[key]);
}

/// Goal: an address that does not respond has its head start, then the next is tried beside it; the loser is closed.
pub(crate) fn a_silent_address_does_not_hold_up_the_next<W: World>(world: &W) {
    let (silent, _filling, _listener) = world.silent();
    let upstream = world.listen();
    let mut pond = Pond::new(world, config());
    let target = addresses(vec![silent, upstream.address()]);
    let key = pond.pool.add_key(target).unwrap();
    let begin_ns = world.now_ns();
    let (lease, _peer) = pond.open(key, &upstream);
    assert!(
        world.now_ns() >= begin_ns + config().stagger_ns,
        "the head start"
    );
    pond.run_until("the loser is closed", |pond| {
        pond.driver.socket_count() == 1
    });
    pond.discard(lease);
    pond.end(&[key]);
}
