use super::*;

/// Goal: two connections that go with their server are one outage from the first loss to the next connection, with
/// all that failed; connections that are replaced at once are none.
#[test]
fn an_outage_is_a_time_without_a_connection_and_with_failed_attempts() {
    let outages = Outages::default();
    outages.connected(1);
    outages.connected(2);
    outages.lost(10, 1);
    outages.connected(11);
    outages.lost(20, 3);
    outages.lost(21, 2);
    outages.connected(22);
    assert!(outages.list(0, 30, 0).is_empty());
    outages.lost(40, 5);
    outages.attempt_failed(45);
    outages.attempt_failed(50);
    outages.connected(60);
    outages.connected(61);
    outages.expired(55);
    outages.expired(5);
    // Others are open.
    outages.attempt_failed(70);
    assert_eq!(outages.other_attempts(), 1);
    outages.connected(71);
    assert_eq!(outages.other_attempts(), 1);
    let ended = LoadOutage {
        start_ns: 30,
        duration_ns: 20,
        failed: 6,
        attempts: 2,
        is_over: true,
    };
    assert_eq!(outages.list(10, 100, 9), [ended]);
    for now_ns in 80..83 {
        outages.lost(now_ns, 0);
    }
    outages.attempt_failed(83);
    assert_eq!(outages.other_attempts(), 1);
    let lasting = LoadOutage {
        start_ns: 70,
        duration_ns: 20,
        failed: 9,
        attempts: 1,
        is_over: false,
    };
    assert_eq!(outages.list(10, 100, 9), [ended, lasting]);
}

/// Goal: more outages than are kept are added to the last.
#[test]
fn the_list_is_bounded() {
    let outages = Outages::default();
    outages.connected(0);
    for round in 1..=1_500 {
        outages.lost(round * 10, 1);
        outages.attempt_failed(round * 10 + 1);
        outages.connected(round * 10 + 5);
    }
    let list = outages.list(0, 20_000, 0);
    assert_eq!(list.len(), OUTAGES_MAX);
    assert_eq!(list.iter().map(|one| one.failed).sum::<u64>(), 1_500);
    assert_eq!(list[999].start_ns + list[999].duration_ns, 15_005);
}
