use super::*;
use crate::log::EventNotice;

/// Goal: counts of all shards are added up, logged once when they begin to grow, and not again without an event.
#[test]
fn what_shards_count_is_told() {
    const SECOND_NS: u64 = 1_000_000_000;
    let snapshots = Arc::new(Snapshots::new(2));
    let mut watch = Watch::new(Arc::clone(&snapshots));
    let mut look = |second: u64| {
        let counts = watch.counts();
        let looked = watch.events.iter_mut().zip(counts).zip(&KINDS);
        let told = looked.filter_map(|((event, count), kind)| {
            Some((kind.name, event.told(count, second * SECOND_NS)?))
        });
        told.collect::<Vec<_>>()
    };
    assert_eq!(look(0), []);
    snapshots.lock(0).http.connections_shed = 3;
    snapshots.lock(1).http.connections_shed = 4;
    snapshots.lock(1).driver.accept_failures = 1;
    let first = [
        ("accept_failed", EventNotice::First(1)),
        ("connections_shed", EventNotice::First(7)),
    ];
    assert_eq!(look(1), first);
    assert_eq!(look(2), []);
    snapshots.lock(1).http.connections_shed = 1238;
    assert_eq!(look(3), []);
    let more = EventNotice::More {
        count: 1234,
        seconds: 60,
    };
    assert_eq!(look(61), [("connections_shed", more)]);
}
