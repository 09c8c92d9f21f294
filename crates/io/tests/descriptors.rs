//! File descriptors: none leaks, and running out of them is survived.
//!
//! One test, because both count and limit what belongs to the whole process.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use millpond_io::{
    Driver, EpollDriver, Errno, Event, ListenOptions, Listener, ShardPools, SocketId, UringDriver,
    monotonic_ns,
};
use millpond_mempool::PoolMode;
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

#[test]
fn descriptors_return_and_their_want_is_survived() {
    for mode in [PoolMode::On, PoolMode::Off] {
        all_of(|| EpollDriver::new(mode).unwrap());
        match millpond_io::driver::uring::probe() {
            Ok(_) => all_of(|| UringDriver::new(mode).unwrap()),
            Err(why) => eprintln!("not tested: {why}"),
        }
    }
}

fn all_of<D: Driver>(make: impl Fn() -> D) {
    churn_leaks_nothing(&make);
    exhaustion_is_survived_by_closing(&make);
    exhaustion_without_room_is_told(&make);
}

/// A listening driver that remembers its sockets, oldest first.
struct Server<D: Driver> {
    driver: D,
    pools: ShardPools,
    address: SocketAddr,
    sockets: VecDeque<SocketId>,
    accept_failures: Vec<Errno>,
    /// On a failed accept close the oldest socket, as a server with idle connections does.
    closes_oldest: bool,
}

impl<D: Driver> Server<D> {
    fn new(make: &impl Fn() -> D, closes_oldest: bool) -> Self {
        let mut driver = make();
        let loopback = "127.0.0.1:0".parse().unwrap();
        let listener = Listener::bind(&loopback, ListenOptions::default()).unwrap();
        let address = listener.local_address().inet().unwrap();
        driver.listen(listener).unwrap();
        Self {
            driver,
            pools: ShardPools::new(PoolMode::On),
            address,
            sockets: VecDeque::new(),
            accept_failures: Vec::new(),
            closes_oldest,
        }
    }

    fn tick(&mut self) {
        let Self {
            driver,
            pools,
            sockets,
            accept_failures,
            closes_oldest,
            ..
        } = self;
        let deadline_ns = monotonic_ns() + 10_000_000;
        let handler = |driver: &mut D, _: &mut ShardPools, event: Event<'_>| match event {
            Event::Accepted { socket, .. } => sockets.push_back(socket),
            Event::AcceptFailed { error } => {
                accept_failures.push(error);
                if *closes_oldest && let Some(oldest) = sockets.pop_front() {
                    driver.close(oldest);
                }
            }
            Event::PeerFinished { socket } => {
                sockets.retain(|known| *known != socket);
                driver.close(socket);
            }
            // Closed already, by the driver: closing it here would hide that it was not.
            Event::Failed { socket, .. } => sockets.retain(|known| *known != socket),
            _ => {}
        };
        driver.tick(Some(deadline_ns), pools, handler).unwrap();
    }

    fn run_until(&mut self, done: impl Fn(&Self) -> bool) {
        let watchdog_ns = monotonic_ns() + 60_000_000_000;
        while !done(self) {
            assert!(
                monotonic_ns() < watchdog_ns,
                "hangs: {:?}",
                self.driver.counters()
            );
            self.tick();
        }
    }
}

/// Goal: thousands of connections that end in every way leave as many descriptors as before.
fn churn_leaks_nothing<D: Driver>(make: &impl Fn() -> D) {
    let mut server = Server::new(make, false);
    // A socket that is bound and does not listen: no other process gets its port.
    let bound = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&bound, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let refused = SocketAddr::try_from(getsockname(&bound).unwrap()).unwrap();
    let open_before = open_descriptors();
    for round in 0..3_000_u32 {
        let mut peer = TcpStream::connect(server.address).unwrap();
        server.run_until(|server| server.sockets.len() == 1);
        let socket = server.sockets[0];
        match round % 4 {
            0 => drop(peer),
            1 => {
                server.driver.close(socket);
                server.sockets.clear();
                assert_eq!(peer.read(&mut [0]).unwrap(), 0);
            }
            2 => {
                peer.write_all(b"unread").unwrap();
                server.driver.close_after_send(socket);
                server.sockets.clear();
                drop(peer);
            }
            _ => {
                // Never accepted anywhere: fails, and takes no slot with it.
                server.driver.connect(&refused.into()).unwrap();
                drop(peer);
            }
        }
        server.run_until(|server| server.driver.socket_count() == 0);
        assert!(server.sockets.is_empty());
    }
    // The kernel may have to let go of the last one first.
    server.run_until(|_| open_descriptors() == open_before);
    let counters = server.driver.counters();
    assert_eq!((counters.accepted, counters.closes), (3_000, 3_750));
}

/// Goal: without a descriptor left the server reports it, and accepts again as soon as it closes a connection of its
/// own.
fn exhaustion_is_survived_by_closing<D: Driver>(make: &impl Fn() -> D) {
    let mut server = Server::new(make, true);
    // Connected before the limit falls; the kernel queues them until accepted.
    let mut peers: Vec<_> = (0..40)
        .map(|_| TcpStream::connect(server.address).unwrap())
        .collect();
    {
        let _limit = DescriptorLimit::leaving(8);
        server.run_until(|server| server.driver.counters().accepted == 40);
    }
    assert!(
        server.accept_failures.len() >= 32,
        "{}",
        server.accept_failures.len()
    );
    assert!(
        server
            .accept_failures
            .iter()
            .all(|error| *error == Errno::MFILE)
    );
    // The newest was accepted with the descriptor of the oldest, which is closed.
    let newest = *server.sockets.back().unwrap();
    server.driver.close_after_send(newest);
    assert_eq!(peers[39].read(&mut [0]).unwrap(), 0);
    assert_eq!(peers[0].read(&mut [0]).unwrap(), 0);
}

/// Goal: if no connection of ours closes, waiting peers are reset instead of left to hang, the shard does not spin, and
/// it accepts again once descriptors are there.
fn exhaustion_without_room_is_told<D: Driver>(make: &impl Fn() -> D) {
    let mut server = Server::new(make, false);
    let mut peers: Vec<_> = (0..10)
        .map(|_| TcpStream::connect(server.address).unwrap())
        .collect();
    {
        let _limit = DescriptorLimit::leaving(4);
        server.run_until(|server| server.driver.counters().accepts_refused == 6);
        assert_eq!(server.sockets.len(), 4);
        let before = server.driver.counters();
        for _ in 0..20 {
            server.tick();
        }
        let after = server.driver.counters();
        assert_eq!(after.accept_failures, before.accept_failures);
        let busy_waits = 20 - (after.empty_waits - before.empty_waits);
        assert!(busy_waits <= 1, "{busy_waits} busy waits");
    }
    for refused in &mut peers[4..] {
        let outcome = refused.read(&mut [0]);
        let error = outcome.expect_err("it was refused").kind();
        assert_eq!(error, std::io::ErrorKind::ConnectionReset);
    }
    let _newcomer = TcpStream::connect(server.address).unwrap();
    server.run_until(|server| server.sockets.len() == 5);
}

/// Lowers RLIMIT_NOFILE for its lifetime.
struct DescriptorLimit {
    before: Rlimit,
}

impl DescriptorLimit {
    /// Leaves room for `count` more descriptors than are open now.
    fn leaving(count: usize) -> Self {
        let before = getrlimit(Resource::Nofile);
        let open = open_numbers();
        // The limit is on the number: the first that leaves `count` free ones below it.
        let mut free = (0..).filter(|number| !open.contains(number));
        let current = free.nth(count);
        setrlimit(Resource::Nofile, Rlimit { current, ..before }).unwrap();
        Self { before }
    }
}

impl Drop for DescriptorLimit {
    fn drop(&mut self) {
        setrlimit(Resource::Nofile, self.before).unwrap();
    }
}

/// Open descriptors of this process.
fn open_descriptors() -> usize {
    open_numbers().len()
}

fn open_numbers() -> Vec<u64> {
    let directory = std::fs::read_dir("/proc/self/fd").unwrap();
    let mut numbers: Vec<u64> = directory
        .map(|entry| {
            entry
                .unwrap()
                .file_name()
                .to_str()
                .unwrap()
                .parse()
                .unwrap()
        })
        .collect();
    // One of them was the directory being read.
    numbers.retain(|number| std::fs::read_link(format!("/proc/self/fd/{number}")).is_ok());
    numbers
}
