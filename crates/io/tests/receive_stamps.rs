//! Stamps that the kernel gives received bytes, read from a thread that comes late.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use millpond_io::{Address, Driver, EpollDriver, Event, ShardPools, UringDriver, monotonic_ns};
use millpond_mempool::PoolMode;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// How long the reader stays away.
const AWAY: Duration = Duration::from_millis(30);
/// The kernel turns stamping on a moment after the first socket asks for it.
const ATTEMPTS: usize = 20;

struct Pair {
    driver: EpollDriver,
    pools: ShardPools,
    peer: TcpStream,
}

fn connected(every: u32) -> Pair {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut driver = EpollDriver::new(PoolMode::On).unwrap();
    assert!(driver.stamp_receives(every));
    let mut pools = ShardPools::new(PoolMode::On);
    let address = Address::Inet(listener.local_addr().unwrap());
    driver.connect(&address).unwrap();
    let (peer, _) = listener.accept().unwrap();
    peer.set_nodelay(true).unwrap();
    let mut is_connected = false;
    while !is_connected {
        driver
            .tick(None, &mut pools, |_, _, event| {
                is_connected |= matches!(event, Event::Connected { .. });
            })
            .unwrap();
    }
    Pair {
        driver,
        pools,
        peer,
    }
}

/// One byte, read after a while: when it was sent (at the earliest and the latest), stamped, read.
fn late_read(pair: &mut Pair) -> (u64, u64, Option<u64>, u64) {
    let before_ns = monotonic_ns();
    pair.peer.write_all(b"x").unwrap();
    let after_ns = monotonic_ns();
    std::thread::sleep(AWAY);
    let mut stamp_ns = None;
    let mut received = 0;
    while received == 0 {
        pair.driver
            .tick(None, &mut pair.pools, |driver, _, event| {
                if let Event::Received { bytes, .. } = event {
                    received += bytes.len();
                    stamp_ns = driver.received_at_ns();
                }
            })
            .unwrap();
    }
    (before_ns, after_ns, stamp_ns, pair.driver.now_ns())
}

/// Goal: a stamp is the time when bytes came, not when they were read; between the two lies the time that the reader
/// was away.
#[test]
fn a_stamp_is_from_before_the_reader_woke() {
    let mut pair = connected(1);
    for _ in 0..ATTEMPTS {
        let (before_ns, after_ns, stamp_ns, read_ns) = late_read(&mut pair);
        let Some(stamp_ns) = stamp_ns else { continue };
        assert!(stamp_ns >= before_ns, "{before_ns} {stamp_ns}");
        let now_ns = monotonic_ns();
        assert!(stamp_ns <= now_ns, "{stamp_ns} {now_ns}");
        // Loopback delivers inside the send, unless that is left to a kernel thread; and a reader that
        // loses its CPU between the two clocks takes the stamp for later than it was.
        if stamp_ns <= after_ns {
            assert!(read_ns - stamp_ns >= AWAY.as_nanos() as u64);
            return;
        }
    }
    eprintln!("this kernel does not stamp what loopback receives: nothing to see here");
}

/// Goal: only every n-th receive reads a stamp, and the bytes are the same either way.
#[test]
fn stamps_are_sampled() {
    let mut pair = connected(3);
    let mut stamped = Vec::new();
    for number in 0..12_u8 {
        pair.peer.write_all(&[number; 5]).unwrap();
        let mut bytes = Vec::new();
        while bytes.len() < 5 {
            pair.driver
                .tick(None, &mut pair.pools, |driver, _, event| {
                    if let Event::Received { bytes: part, .. } = event {
                        bytes.extend_from_slice(part);
                        stamped.push(driver.received_at_ns().is_some());
                    }
                })
                .unwrap();
        }
        assert_eq!(bytes, [number; 5]);
    }
    let count = stamped.iter().filter(|&&is| is).count();
    assert!(count <= stamped.len() / 3 + 1, "{stamped:?}");
    pair.driver.stamp_receives(0);
    let (_, _, stamp_ns, _) = late_read(&mut pair);
    assert_eq!(stamp_ns, None);
}

/// Goal: a driver without stamps reports that.
#[test]
fn a_ring_has_no_stamps() {
    if let Ok(mut ring) = UringDriver::new(PoolMode::On) {
        assert!(!ring.stamp_receives(1));
        assert_eq!(ring.received_at_ns(), None);
    }
}
