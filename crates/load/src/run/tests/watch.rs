use super::*;

const SECOND_NS: u64 = 1_000_000_000;

fn opening(connections: usize) -> Opening {
    let mut config = LoadConfig::for_tests();
    config.connections = connections;
    Opening::new(&config, SECOND_NS)
}

fn doors(settled: usize, open: usize, reached: usize) -> ConnectStatistics {
    let doors = ConnectStatistics::default();
    doors.settled.store(settled, Ordering::Relaxed);
    doors.open.store(open, Ordering::Relaxed);
    doors.reached.store(reached, Ordering::Relaxed);
    doors
}

/// Goal: all are waited for as long as requested; a missing server is reported as soon as that is known; a target that
/// closes again is given a second once each connection was open.
#[test]
fn the_wait_for_connections_ends_as_it_should() {
    let at = |seconds: u64| (1 + seconds) * SECOND_NS;
    assert_eq!(opening(4).step(&doors(4, 4, 4), at(0)), Opened::All);
    let mut slow = opening(4);
    assert_eq!(slow.step(&doors(4, 3, 3), at(1)), Opened::NotYet);
    assert_eq!(slow.step(&doors(4, 3, 3), at(29)), Opened::NotYet);
    assert_eq!(slow.step(&doors(4, 3, 3), at(30)), Opened::NotAll);
    assert_eq!(opening(4).step(&doors(3, 0, 0), at(1)), Opened::NotYet);
    assert_eq!(opening(4).step(&doors(4, 0, 0), at(1)), Opened::None);
    assert_eq!(opening(4).step(&doors(0, 0, 0), at(2)), Opened::None);
    let mut closing = opening(4);
    assert_eq!(closing.step(&doors(4, 1, 4), at(5)), Opened::NotYet);
    assert_eq!(closing.step(&doors(4, 0, 4), at(6)), Opened::NotAll);
}
