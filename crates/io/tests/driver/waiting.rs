//! Waits, wake-ups and the driver's time.

use crate::harness::{Pond, Seen, WATCHDOG_NS};
use crate::world::World;
use millpond_io::{Driver, monotonic_ns};
use std::io::Write;

/// Goal: a wait without a deadline ends when another thread uses the waker.
pub(crate) fn a_waker_ends_an_endless_wait<W: World>(world: &W) {
    let mut pond = Pond::new(world);
    let waker = pond.driver.waker();
    let (go, went) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        while went.recv().is_ok() {
            waker.wake();
        }
    });
    for _ in 0..1_000 {
        go.send(()).unwrap();
        let mut is_woken = false;
        while !is_woken {
            let handler = |_: &mut W::Driver, _: &mut _, event: millpond_io::Event<'_>| {
                is_woken |= matches!(event, millpond_io::Event::Woken);
            };
            pond.driver.tick(None, &mut pond.pools, handler).unwrap();
        }
    }
    drop(go);
    thread.join().unwrap();
    assert_eq!(pond.driver.counters().wakes, 1_000);
}

/// Goal: many uses before a tick are one event; none is lost, none comes twice.
pub(crate) fn wakes_between_ticks_count_once<W: World>(world: &W) {
    let mut pond = Pond::new(world);
    let waker = pond.driver.waker();
    for _ in 0..10 {
        waker.clone().wake();
    }
    pond.tick(u64::MAX, &mut |_, _, _| {});
    assert_eq!(pond.seen, [Seen::Woken]);
    pond.settle();
    assert_eq!(pond.seen, [Seen::Woken]);
}

/// Goal: with nothing to report, a wait lasts until its deadline, to the nanosecond.
pub(crate) fn a_wait_is_never_cut_short<W: World>(world: &W) {
    let mut pond = Pond::new(world);
    for wait_ns in [1, 999, 1_000, 50_000, 999_999, 1_000_001, 20_000_000] {
        let deadline_ns = world.now_ns() + wait_ns;
        pond.tick(deadline_ns, &mut |_, _, _| {});
        assert!(world.now_ns() >= deadline_ns, "{wait_ns}");
        assert!(pond.driver.now_ns() >= deadline_ns, "{wait_ns}");
    }
    assert_eq!(pond.seen, []);
}

/// Goal: a deadline in the past still delivers what is ready.
pub(crate) fn a_past_deadline_only_looks<W: World>(world: &W) {
    let (mut pond, socket, mut peer) = Pond::connected(world);
    pond.tick(0, &mut |_, _, _| {});
    assert_eq!(pond.seen, []);
    peer.write_all(b"ready").unwrap();
    // The kernel may deliver it after the write; a tick that cannot wait still finds it.
    let watchdog_ns = monotonic_ns() + WATCHDOG_NS;
    while pond.seen.is_empty() {
        assert!(monotonic_ns() < watchdog_ns, "nothing is delivered");
        pond.tick(0, &mut |_, _, _| {});
    }
    assert_eq!(pond.seen, [Seen::Received(socket, b"ready".to_vec())]);
}

/// Goal: the driver's time during an event is not before the event happened.
pub(crate) fn events_carry_a_time_not_before_them<W: World>(world: &W) {
    let (mut pond, _socket, mut peer) = Pond::connected(world);
    for _ in 0..20 {
        let before_ns = world.now_ns();
        peer.write_all(b"x").unwrap();
        let mut event_ns = None;
        let from = pond.seen.len();
        pond.run_with(
            |driver, _, _| event_ns = Some(driver.now_ns()),
            |seen, _| seen.len() > from,
        );
        assert!(event_ns.unwrap() >= before_ns);
        pond.seen.clear();
    }
}

/// Longer than any test: a spin that ends, ended for a reason.
const ENDLESS_SPIN_NS: u64 = 3_600_000_000_000;

/// Goal: a spinning driver sees a waker, a peer's bytes and its deadline without sleeping, and reports the results of
/// its spins.
pub(crate) fn a_spin_ends_for_a_reason<W: World>(world: &W)
where
    W::Remote: Send,
{
    let (mut pond, socket, mut peer) = Pond::connected(world);
    pond.driver.set_busy_poll(ENDLESS_SPIN_NS);
    // An event before the tick is found without a spin: until it came later often enough.
    let mut rounds = 0;
    while pond.driver.counters().spins_paid < 20 {
        rounds += 1;
        let waker = pond.driver.waker();
        std::thread::scope(|scope| {
            scope.spawn(|| waker.wake());
            pond.run_endlessly(|seen| !seen.is_empty());
        });
        assert_eq!(pond.seen, [Seen::Woken]);
        pond.seen.clear();

        std::thread::scope(|scope| {
            scope.spawn(|| peer.write_all(b"ready").unwrap());
            pond.run_endlessly(|seen| !seen.is_empty());
        });
        assert_eq!(pond.seen, [Seen::Received(socket, b"ready".to_vec())]);
        pond.seen.clear();
    }
    let counters = pond.driver.counters();
    assert_eq!((counters.wakes, counters.spins_vain), (rounds, 0));

    // A deadline that was over before the tick began is no reason to spin: then a later one is tried.
    let mut wait_ns = 100_000;
    while pond.driver.counters().spins_vain == 0 {
        let deadline_ns = world.now_ns() + wait_ns;
        pond.tick(deadline_ns, &mut |_, _, _| {});
        assert!(pond.driver.now_ns() >= deadline_ns);
        wait_ns *= 2;
    }
    let after = pond.driver.counters();
    assert_eq!(
        (after.spins_paid, after.spins_vain),
        (counters.spins_paid, 1)
    );
    assert!(after.spun_ns > counters.spun_ns, "{after:?}");
}

/// Goal: a driver that is not asked to spin never does.
pub(crate) fn nobody_spins_unasked<W: World>(world: &W) {
    let (mut pond, _socket, mut peer) = Pond::connected(world);
    peer.write_all(b"ready").unwrap();
    pond.settle();
    let counters = pond.driver.counters();
    let spins = (counters.spins_paid, counters.spins_vain, counters.spun_ns);
    assert_eq!(spins, (0, 0, 0));
}
