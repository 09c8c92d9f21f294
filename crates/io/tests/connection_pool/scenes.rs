//! The pool without faults: reuse, order, caps, limits.

use crate::pond::{LATE_NS, MS, Pond, patient as config};
use crate::world::{Peer, Upstream, World};
use millpond_io::Driver;
use millpond_io::connection_pool::{AcquireError, AcquirePhase, Acquired, PoolConfig, Target};

/// Goal: the connection given back last is handed out first, and counted as a hit.
pub(crate) fn the_newest_is_used_first<W: World>(world: &W) {
    let upstream = world.listen();
    let mut pond = Pond::new(world, config());
    let key = pond.key(upstream.address(), 8);
    let opened: Vec<_> = (0..3).map(|_| pond.open(key, &upstream)).collect();
    for (lease, _) in &opened {
        pond.give_back(*lease);
    }
    assert_eq!(pond.pool.parked_count(), 3);
    for (lease, _) in opened.iter().rev() {
        let again = pond.hit(key);
        assert_eq!((again.socket, again.uses), (lease.socket, 1));
    }
    let counters = pond.pool.key_stats(key).counters;
    assert_eq!((counters.hits, counters.misses, counters.opened), (3, 3, 3));
    for (lease, _) in &opened {
        pond.discard(*lease);
    }
    pond.end(&[key]);
}

/// Goal: with every connection in use, requests are served in order; each as soon as one is free.
pub(crate) fn waiters_are_served_in_order<W: World>(world: &W) {
    let upstream = world.listen();
    let mut pond = Pond::new(world, config());
    let key = pond.key(upstream.address(), 1);
    let (mut lease, _peer) = pond.open(key, &upstream);
    for token in 1..=3 {
        pond.wait_for(key, token, LATE_NS);
    }
    assert_eq!(pond.pool.key_stats(key).waiting, 3);
    for token in 1..=3 {
        assert_eq!(pond.outcomes.len(), 0, "none before its turn");
        pond.give_back(lease);
        let [(of, Ok(next))] = &pond.outcomes[..] else {
            panic!("{:?}", pond.outcomes);
        };
        assert_eq!(*of, token);
        assert!(next.is_reused && next.socket == lease.socket);
        lease = *next;
        pond.outcomes.clear();
    }
    assert_eq!(pond.pool.key_stats(key).counters.waits, 3);
    // A connection that is closed instead makes room for a new one.
    pond.wait_for(key, 4, LATE_NS);
    pond.discard(lease);
    let fresh = pond.outcome_of(4).unwrap();
    assert!(!fresh.is_reused);
    pond.discard(fresh);
    pond.end(&[key]);
}

/// Goal: at the cap of all keys the connection parked for longest makes room, of another key first.
pub(crate) fn the_cap_of_all_takes_from_others<W: World>(world: &W) {
    let (one, two) = (world.listen(), world.listen());
    let mut pond = Pond::new(
        world,
        PoolConfig {
            connections_max: 3,
            ..config()
        },
    );
    let (first, second) = (pond.key(one.address(), 8), pond.key(two.address(), 8));
    let (own, _own_peer) = pond.open(second, &two);
    let (old, mut old_peer) = pond.open(first, &one);
    let (new, _new_peer) = pond.open(first, &one);
    // The second key's own has been parked for longest, yet it stays.
    for lease in [own, old, new] {
        pond.give_back(lease);
        pond.turn();
    }
    let kept = pond.hit(second);
    assert_eq!(kept.socket, own.socket);
    let (more, _peer) = pond.open(second, &two);
    pond.run_until_closed(&mut old_peer);
    assert_eq!(pond.pool.key_stats(first).counters.evictions, 1);
    assert_eq!(pond.hit(first).socket, new.socket);
    for lease in [kept, more, new] {
        pond.discard(lease);
    }
    pond.end(&[first, second]);
}

/// Goal: a key that only the cap of all keeps waiting gets the next connection that another gives
/// back or closes.
pub(crate) fn a_starved_key_gets_what_is_given_back<W: World>(world: &W) {
    let (one, two) = (world.listen(), world.listen());
    let mut pond = Pond::new(
        world,
        PoolConfig {
            connections_max: 2,
            ..config()
        },
    );
    let (first, second) = (pond.key(one.address(), 8), pond.key(two.address(), 8));
    let (a, _a_peer) = pond.open(first, &one);
    let (b, _b_peer) = pond.open(first, &one);
    pond.wait_for(second, 1, LATE_NS);
    pond.wait_for(second, 2, LATE_NS);
    pond.settle();
    assert!(pond.outcomes.is_empty());
    pond.give_back(a);
    let c = pond.outcome_of(1).unwrap();
    pond.discard(b);
    let d = pond.outcome_of(2).unwrap();
    assert!(!c.is_reused && !d.is_reused);
    pond.discard(c);
    pond.discard(d);
    pond.end(&[first, second]);
}

/// Goal: a parked connection ends after its time, the upstream sees it, and later ones stay.
pub(crate) fn idle_connections_end<W: World>(world: &W) {
    let upstream = world.listen();
    let mut pond = Pond::new(
        world,
        PoolConfig {
            idle_max_ns: 300 * MS,
            ..config()
        },
    );
    let key = pond.key(upstream.address(), 8);
    let (lease, mut peer) = pond.open(key, &upstream);
    pond.give_back(lease);
    pond.run_until_closed(&mut peer);
    assert_eq!(pond.pool.parked_count(), 0);
    assert_eq!(pond.pool.key_stats(key).counters.expired, 1);
    pond.end(&[key]);
}

/// Goal: a connection serves as often, and as long, as it may, and no more.
pub(crate) fn worn_connections_end<W: World>(world: &W) {
    let upstream = world.listen();
    let mut pond = Pond::new(
        world,
        PoolConfig {
            uses_max: 2,
            ..config()
        },
    );
    let key = pond.key(upstream.address(), 8);
    let (lease, mut peer) = pond.open(key, &upstream);
    pond.give_back(lease);
    let again = pond.hit(key);
    pond.give_back(again);
    assert_eq!(pond.pool.parked_count(), 0, "used up");
    pond.run_until_closed(&mut peer);
    pond.end(&[key]);

    let mut pond = Pond::new(
        world,
        PoolConfig {
            age_max_ns: 300 * MS,
            ..config()
        },
    );
    let key = pond.key(upstream.address(), 8);
    let (lease, mut peer) = pond.open(key, &upstream);
    pond.give_back(lease);
    pond.run_until_closed(&mut peer);
    assert_eq!(pond.pool.key_stats(key).counters.expired, 1);
    pond.end(&[key]);
}

/// Goal: a wait ends at its deadline, not before, and reports that the connections are in use; the others go on.
pub(crate) fn a_wait_ends_at_its_deadline<W: World>(world: &W) {
    let upstream = world.listen();
    let mut pond = Pond::new(world, config());
    let key = pond.key(upstream.address(), 1);
    let (lease, _peer) = pond.open(key, &upstream);
    let begin_ns = world.now_ns();
    pond.wait_for(key, 1, LATE_NS);
    pond.wait_for(key, 2, 50 * MS);
    pond.wait_for(key, 3, LATE_NS);
    let error = pond.outcome_of(2).unwrap_err();
    assert!(world.now_ns() >= begin_ns + 50 * MS);
    let phase = AcquirePhase::Queue;
    assert_eq!(error, AcquireError::TimedOut { phase });
    assert!(error.is_timeout() && error.is_local());
    assert_eq!(pond.pool.key_stats(key).counters.timed_out, 1);
    pond.give_back(lease);
    let lease = pond.outcome_of(1).unwrap();
    pond.give_back(lease);
    let lease = pond.outcome_of(3).unwrap();
    pond.discard(lease);
    pond.end(&[key]);
}

/// Goal: a request that left the queue is passed over; a connection made for it is parked for the next.
pub(crate) fn who_cancels_gets_nothing<W: World>(world: &W) {
    let upstream = world.listen();
    let mut pond = Pond::new(world, config());
    let key = pond.key(upstream.address(), 1);
    let waiter = pond.wait_for(key, 1, LATE_NS);
    pond.act(|pool, shard| pool.cancel(shard, waiter));
    pond.run_until("parked", |pond| pond.pool.parked_count() == 1);
    assert!(pond.outcomes.is_empty());
    let lease = pond.hit(key);
    let first = pond.wait_for(key, 2, LATE_NS);
    pond.wait_for(key, 3, LATE_NS);
    pond.act(|pool, shard| pool.cancel(shard, first));
    pond.act(|pool, shard| pool.cancel(shard, first));
    pond.give_back(lease);
    let lease = pond.outcome_of(3).unwrap();
    assert!(pond.outcomes.is_empty());
    pond.discard(lease);
    pond.end(&[key]);
}

/// Goal: a request that wants a connection of its own gets a new one, at the cap instead of a parked one,
/// and no other request gets it afterwards.
pub(crate) fn some_connections_serve_once<W: World>(world: &W) {
    let upstream = world.listen();
    let mut pond = Pond::new(world, config());
    let key = pond.key(upstream.address(), 1);
    let (parked, mut parked_peer) = pond.open(key, &upstream);
    pond.give_back(parked);
    let acquired = pond.act(|pool, shard| {
        let deadline_ns = shard.now_ns + LATE_NS;
        pool.acquire(shard, key, 1, deadline_ns, true)
    });
    assert!(matches!(acquired, Acquired::Waiting(_)), "{acquired:?}");
    pond.run_until_closed(&mut parked_peer);
    let lease = pond.outcome_of(1).unwrap();
    assert!(!lease.is_reused);
    pond.wait_for(key, 2, LATE_NS);
    pond.give_back(lease);
    let other = pond.outcome_of(2).unwrap();
    assert!(!other.is_reused, "a connection of its own");
    pond.discard(other);
    pond.end(&[key]);
}

/// Goal: a removed key ends its parked connections and waiting requests, but not a lease, whose connection ends with
/// it.
pub(crate) fn a_removed_key_leaves_nothing<W: World>(world: &W) {
    let upstream = world.listen();
    let mut pond = Pond::new(world, config());
    let key = pond.key(upstream.address(), 2);
    let (leased, mut leased_peer) = pond.open(key, &upstream);
    let (parked, mut parked_peer) = pond.open(key, &upstream);
    pond.give_back(parked);
    let again = pond.hit(key);
    pond.wait_for(key, 1, LATE_NS);
    pond.give_back(again);
    let third = pond.outcome_of(1).unwrap();
    pond.wait_for(key, 2, LATE_NS);
    pond.act(|pool, shard| pool.remove_key(shard, key));
    assert_eq!(pond.outcome_of(2), Err(AcquireError::Removed));
    assert!(!leased_peer.is_closed(), "a lease goes on");
    let refused = pond.ask(key, 3, LATE_NS);
    assert!(matches!(refused, Acquired::Failed(AcquireError::Removed)));
    pond.give_back(leased);
    pond.give_back(third);
    pond.run_until_closed(&mut leased_peer);
    pond.run_until_closed(&mut parked_peer);
    let refused = pond.ask(key, 3, LATE_NS);
    assert!(matches!(refused, Acquired::Failed(AcquireError::Removed)));
    assert_eq!(pond.pool.counters().opened, 2, "counted beyond its end");
    pond.end(&[key]);
}

/// Goal: beyond the limit of waiters a request fails at once.
pub(crate) fn too_many_may_not_wait<W: World>(world: &W) {
    let upstream = world.listen();
    let mut pond = Pond::new(world, config());
    let target = Target {
        connections_max: 1,
        waiters_max: 2,
        ..Target::at(upstream.address())
    };
    let key = pond.pool.add_key(target).unwrap();
    let (lease, _peer) = pond.open(key, &upstream);
    pond.wait_for(key, 1, LATE_NS);
    pond.wait_for(key, 2, LATE_NS);
    let refused = pond.ask(key, 3, LATE_NS);
    let Acquired::Failed(error) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(error, AcquireError::QueueFull { limit: 2 });
    assert_eq!(pond.pool.key_stats(key).counters.refused, 1);
    pond.give_back(lease);
    let lease = pond.outcome_of(1).unwrap();
    pond.give_back(lease);
    let lease = pond.outcome_of(2).unwrap();
    pond.discard(lease);
    pond.end(&[key]);
}

/// Goal: unix sockets are pooled like others.
pub(crate) fn unix_sockets_are_kept_too<W: World>(world: &W) {
    let directory = tempfile::tempdir().unwrap();
    let upstream = world.listen_unix(directory.path());
    let mut pond = Pond::new(world, config());
    let key = pond.key(upstream.address(), 2);
    let (lease, mut peer) = pond.open(key, &upstream);
    pond.give_back(lease);
    assert_eq!(pond.hit(key).socket, lease.socket);
    assert!(!peer.is_closed());
    pond.discard(lease);
    pond.run_until_closed(&mut peer);
    pond.end(&[key]);
}

/// Goal: by the pools' own books a parked connection takes at most 256 bytes, the driver's part of it
/// and the tables included, and what is gone is not live any more.
pub(crate) fn a_parked_connection_is_small<W: World>(world: &W) {
    const COUNT: usize = 128;
    const BYTES_MAX: usize = 256;
    let upstream = world.listen();
    let mut pond = Pond::new(world, config());
    let key = pond.key(upstream.address(), COUNT);
    let live_bytes = |pond: &Pond<'_, W>| {
        let mut bytes = pond.pool.table_bytes();
        let mut add = |stats: millpond_mempool::PoolStats| {
            assert!(stats.identity_holds());
            bytes += usize::try_from(stats.live_bytes).unwrap();
        };
        pond.pool.visit_pool_stats(&mut add);
        pond.driver.visit_pool_stats(&mut add);
        bytes
    };
    let before = live_bytes(&pond);
    let opened: Vec<_> = (0..COUNT).map(|_| pond.open(key, &upstream)).collect();
    for (lease, _) in &opened {
        pond.give_back(*lease);
    }
    pond.settle();
    assert_eq!(pond.pool.parked_count(), COUNT);
    let bytes = (live_bytes(&pond) - before) / COUNT;
    eprintln!(
        "{}: {bytes} B for each parked connection",
        pond.driver.name()
    );
    assert!(bytes <= BYTES_MAX, "{bytes}");
    pond.end(&[key]);
}
