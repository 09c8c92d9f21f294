//! Names: looked up by a resolver, for as long as its responses hold.

use crate::pond::{LATE_NS, MS, Pond, patient};
use crate::world::{Peer, Upstream, World};
use millpond_io::connection_pool::{AcquireError, Target};
use millpond_io::{ResolveError, ResolverConfig};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

const LONG: ResolverConfig = ResolverConfig {
    good_ns: LATE_NS,
    bad_ns: LATE_NS,
    stale_ns: LATE_NS,
    threads: 1,
};

/// Goal: a name is resolved once for all waiting requests, its bad address is skipped, and the result is used for the
/// next.
pub(crate) fn a_name_leads_to_its_addresses<W: World>(world: &W) {
    let upstream = world.listen();
    let lookups = Arc::new(AtomicUsize::new(0));
    let (refusing, _bound) = world.refusing();
    let refusing = refusing.inet().unwrap();
    let good = upstream.address().inet().unwrap();
    let counted = Arc::clone(&lookups);
    let resolver = world.resolver(LONG, move |host, port| {
        assert_eq!((host, port), ("up.test", 80));
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(vec![refusing, good])
    });
    let mut pond = Pond::resolving(world, patient(), &resolver);
    let key = pond.pool.add_key(Target::named("up.test", 80)).unwrap();
    pond.wait_for(key, 1, LATE_NS);
    pond.wait_for(key, 2, LATE_NS);
    let (first, second) = (pond.outcome_of(1).unwrap(), pond.outcome_of(2).unwrap());
    let mut peers = Vec::new();
    pond.run_until("accepted", |_| {
        peers.extend(upstream.accept());
        peers.len() == 2
    });
    let (third, mut third_peer) = pond.open(key, &upstream);
    assert!(!third_peer.is_closed());
    assert_eq!(lookups.load(Ordering::Relaxed), 1);
    for lease in [first, second, third] {
        pond.discard(lease);
    }
    pond.end(&[key]);
}

/// Goal: a name without addresses fails waiting requests with the resolver's error, and the next at once.
pub(crate) fn a_name_without_address_fails_at_once<W: World>(world: &W) {
    let lookups = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&lookups);
    let resolver = world.resolver(LONG, move |_, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        Err(io::Error::other("no such host"))
    });
    let mut pond = Pond::resolving(world, patient(), &resolver);
    let key = pond.pool.add_key(Target::named("up.test", 80)).unwrap();
    for token in 1..=2 {
        pond.wait_for(key, token, LATE_NS);
        let error = pond.outcome_of(token).unwrap_err();
        assert!(error.to_string().contains("no such host"), "{error}");
        assert!(matches!(
            error,
            AcquireError::Resolve(ResolveError::Unknown { .. })
        ));
    }
    assert_eq!(lookups.load(Ordering::Relaxed), 1, "remembered");
    pond.end(&[key]);
    let mut pond = Pond::new(world, patient());
    let key = pond.pool.add_key(Target::named("up.test", 80)).unwrap();
    pond.wait_for(key, 1, LATE_NS);
    let error = pond.outcome_of(1).unwrap_err();
    assert!(matches!(
        error,
        AcquireError::Resolve(ResolveError::NoResolver { .. })
    ));
    pond.end(&[key]);
}

/// Goal: when its time is over a name is looked up again, and new connections go where it leads then.
pub(crate) fn a_name_is_looked_up_again<W: World>(world: &W) {
    let upstreams = [world.listen(), world.listen()];
    let ports = upstreams
        .each_ref()
        .map(|u| u.address().inet().unwrap().port());
    let current = Arc::new(AtomicU16::new(ports[0]));
    let read = Arc::clone(&current);
    let config = ResolverConfig {
        good_ns: 20 * MS,
        ..LONG
    };
    let resolver = world.resolver(config, move |_, _| {
        let port = read.load(Ordering::Relaxed);
        Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))])
    });
    let mut pond = Pond::resolving(world, patient(), &resolver);
    let key = pond.pool.add_key(Target::named("up.test", 80)).unwrap();
    let (lease, _peer) = pond.open(key, &upstreams[0]);
    current.store(ports[1], Ordering::Relaxed);
    // In simulated time the response is old long before the resolver's own clock says so.
    std::thread::sleep(std::time::Duration::from_millis(25));
    pond.settle();
    pond.settle();
    let (moved, _moved_peer) = pond.open(key, &upstreams[1]);
    pond.discard(lease);
    pond.discard(moved);
    pond.end(&[key]);
}
