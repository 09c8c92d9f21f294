//! Leaving a port to others: which sockets get the connections, step by step, for every number of sockets.
//!
//! Generations of one process stand for processes here: the kernel distinguishes sockets, not their owners. A handshake
//! with a response is never repeated, which the kernel reports for each connection, so nothing here depends on time.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(
    unsafe_code,
    reason = "the kernel tells of one connection by a call that is unsafe"
)]

use millpond_io::{Address, Driver, EpollDriver, Event, Listener, PortShare, ShardPools};
use millpond_mempool::PoolMode;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Only a test that hangs meets it.
const PATIENCE: Duration = Duration::from_secs(60);

/// One server: a driver for each of its listeners.
struct Generation {
    share: PortShare,
    drivers: Vec<EpollDriver>,
    pools: ShardPools,
}

impl Generation {
    fn start(address: &Address, count: usize) -> (Self, Address) {
        let (listeners, share) = PortShare::bind(address, count, 128).unwrap();
        let address = listeners[0].local_address().clone();
        let drivers = listeners.into_iter().map(|listener| {
            let mut driver = EpollDriver::new(PoolMode::On).unwrap();
            driver.listen(listener).unwrap();
            driver
        });
        let generation = Self {
            share,
            drivers: drivers.collect(),
            pools: ShardPools::new(PoolMode::On),
        };
        (generation, address)
    }

    /// Connections taken since the last call, by listener.
    fn taken(&mut self) -> Vec<usize> {
        let Self { drivers, pools, .. } = self;
        let one = |driver: &mut EpollDriver| {
            let mut count = 0;
            for _ in 0..4 {
                let handler = |_: &mut EpollDriver, _: &mut ShardPools, event: Event<'_>| {
                    count += usize::from(matches!(event, Event::Accepted { .. }));
                };
                driver.tick(Some(0), pools, handler).unwrap();
            }
            count
        };
        drivers.iter_mut().map(one).collect()
    }

    fn taken_in_all(&mut self) -> usize {
        self.taken().iter().sum()
    }

    /// The same, once there are so many: a handshake may be over for its client before it is here.
    fn takes(&mut self, count: usize) -> Vec<usize> {
        let begin = Instant::now();
        let mut taken = self.taken();
        while taken.iter().sum::<usize>() < count {
            assert!(begin.elapsed() < PATIENCE, "{taken:?} of {count}");
            let more = self.taken();
            taken
                .iter_mut()
                .zip(more)
                .for_each(|(all, more)| *all += more);
        }
        assert_eq!(taken.iter().sum::<usize>(), count);
        taken
    }

    /// Leaves the port, with `between` after each step.
    fn leave(mut self, mut between: impl FnMut(&mut Vec<EpollDriver>)) {
        assert!(self.share.steer_away());
        between(&mut self.drivers);
        assert_eq!(self.taken_in_all(), 0, "steered away, and still they come");
        self.share.refuse_handshakes();
        between(&mut self.drivers);
        self.drivers.iter_mut().for_each(Driver::stop_listening);
        assert_eq!(self.taken_in_all(), 0);
        assert!(self.share.is_released());
        let Self {
            share, mut drivers, ..
        } = self;
        share.leave_with(|| between(&mut drivers));
    }
}

fn loopback() -> Address {
    "127.0.0.1:0".parse().unwrap()
}

fn connect(address: &Address, count: usize) -> Vec<TcpStream> {
    let to: SocketAddr = address.inet().unwrap();
    let connect = |_| {
        let stream = TcpStream::connect_timeout(&to, PATIENCE).unwrap();
        // A handshake that is ignored is repeated after a second: such a connection was not steered.
        assert_eq!(repeated(&stream), 0);
        stream
    };
    (0..count).map(connect).collect()
}

/// Segments that a connection has sent again.
fn repeated(stream: &TcpStream) -> u32 {
    // SAFETY: the structure is integers, for which zero is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the descriptor is open; the kernel writes at most `length` bytes of `info`.
    let answer = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    assert_eq!(answer, 0);
    info.tcpi_total_retrans
}

/// Goal: from the first step on every connection is taken by the newcomer, at once, and when the
/// old one is gone the newcomer's sockets share them again.
#[test]
fn the_newcomer_gets_every_connection() {
    for (old_count, new_count) in [1, 2, 4]
        .map(|old| [1, 2, 4].map(|new| (old, new)))
        .concat()
    {
        let (mut old, address) = Generation::start(&loopback(), old_count);
        let _before = connect(&address, 8);
        old.takes(8);
        let (mut new, _) = Generation::start(&address, new_count);
        old.leave(|_| {
            let _peers = connect(&address, 8);
            new.takes(8);
        });
        let _after = connect(&address, 64);
        let taken = new.takes(64);
        assert!(taken.iter().all(|&count| count > 0), "{taken:?}");
    }
}

/// Goal: a newcomer that leaves again, leaves to the one that was there before.
#[test]
fn a_newcomer_may_leave_again() {
    for (old_count, new_count) in [(1, 1), (1, 2), (2, 1), (2, 2), (4, 2)] {
        let (mut old, address) = Generation::start(&loopback(), old_count);
        let (new, _) = Generation::start(&address, new_count);
        new.leave(|_| {
            let _peers = connect(&address, 8);
            old.takes(8);
        });
        let _after = connect(&address, 64);
        assert!(old.takes(64).iter().all(|&count| count > 0));
    }
}

/// Goal: it works again and again, whatever the generations before left behind.
#[test]
fn generations_follow_each_other() {
    let (mut current, address) = Generation::start(&loopback(), 2);
    for count in [2, 3, 1, 4, 2, 1, 1] {
        let (mut next, _) = Generation::start(&address, count);
        current.leave(|_| {
            let _peers = connect(&address, 4);
            next.takes(4);
        });
        current = next;
    }
    assert!(!current.share.steer_away(), "nobody is left to steer to");
    let _peers = connect(&address, 4);
    current.takes(4);
}

/// Goal: if a new server ends while the old one steers to it, no connection is lost: later ones are served by the old
/// one.
#[test]
fn a_newcomer_that_dies_is_survived() {
    let (mut old, address) = Generation::start(&loopback(), 2);
    let (new, _) = Generation::start(&address, 2);
    assert!(old.share.steer_away());
    drop(new);
    let _peers = connect(&address, 8);
    old.takes(8);
    let (mut new, _) = Generation::start(&address, 1);
    old.leave(|_| {
        let _peers = connect(&address, 8);
        new.takes(8);
    });
}

/// Takes so many connections, on any socket.
fn take_in_all(generations: &mut [&mut Generation], count: usize) {
    let begin = Instant::now();
    let mut taken = 0;
    while taken < count {
        assert!(begin.elapsed() < PATIENCE, "{taken} of {count}");
        let more = generations.iter_mut().map(|one| one.taken_in_all());
        taken += more.sum::<usize>();
    }
    assert_eq!(taken, count);
}

/// Goal: with other sockets before and after ours the indices are unknown; connections that waited are still kept, and
/// afterwards the others have the port for themselves.
#[test]
fn one_in_the_middle_may_leave() {
    let (mut oldest, address) = Generation::start(&loopback(), 2);
    let (mut middle, _) = Generation::start(&address, 2);
    let (mut newest, _) = Generation::start(&address, 2);
    assert!(middle.share.steer_away());
    let _peers = connect(&address, 64);
    take_in_all(&mut [&mut oldest, &mut middle, &mut newest], 64);
    middle.share.refuse_handshakes();
    middle.drivers.iter_mut().for_each(Driver::stop_listening);
    middle.taken();
    middle.share.leave();
    let _peers = connect(&address, 64);
    take_in_all(&mut [&mut oldest, &mut newest], 64);
    oldest.leave(|_| {
        let _peers = connect(&address, 8);
        newest.takes(8);
    });
}

/// Goal: the same for IPv6, whose addresses the kernel prints differently.
#[test]
fn the_newcomer_gets_every_connection_of_ipv6() {
    let (old, address) = Generation::start(&"[::1]:0".parse().unwrap(), 2);
    assert!(!old.share.steer_away());
    let (mut new, _) = Generation::start(&address, 2);
    old.leave(|_| {
        let _peers = connect(&address, 8);
        new.takes(8);
    });
}

/// Goal: the shared address is refused to sockets that do not share.
#[test]
fn others_are_still_refused() {
    let (_old, address) = Generation::start(&loopback(), 2);
    for count in [1, 2] {
        Listener::bind_group(&address, count, 16).unwrap_err();
    }
}

/// Goal: a unix path changes hands without a moment without a listener; connections in the old socket's queue are
/// served, and the old server does not remove the path of the new one.
#[test]
fn a_unix_path_changes_hands() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pond.sock");
    let address = Address::Unix(path.clone());
    let (mut old, _) = Generation::start(&address, 2);
    assert!(!old.share.steer_away());
    let waiting = [(); 4].map(|()| UnixStream::connect(&path).unwrap());
    let (mut new, _) = Generation::start(&address, 2);
    let _peers = [(); 8].map(|()| UnixStream::connect(&path).unwrap());
    new.takes(8);
    assert!(old.share.steer_away());
    old.share.refuse_handshakes();
    old.drivers.iter_mut().for_each(Driver::stop_listening);
    old.takes(waiting.len());
    assert!(old.share.is_released());
    old.share.leave();
    UnixStream::connect(&path).unwrap();
    new.takes(1);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    drop(new);
    assert!(!path.exists());
}
