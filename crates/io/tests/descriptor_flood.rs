//! A flood of connections beside a client that is served: sockets and descriptors stay below their
//! caps, and the client notices nothing.
//!
//! One test, because it limits what belongs to the whole process. The flood is a process of its own:
//! its descriptors must not count.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use millpond_io::{
    Driver, DriverCounters, EpollDriver, Event, ListenOptions, Listener, SendOutcome, ShardPools,
    UringDriver, monotonic_ns,
};
use millpond_mempool::{Buffer, PoolMode};
use rustix::net::sockopt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// Where the flood goes to, for the process that is it.
const FLOOD_TARGET: &str = "MILLPOND_TEST_FLOOD_TARGET";
/// How its connections end.
const FLOOD_END: &str = "MILLPOND_TEST_FLOOD_END";

const ACCEPTED_MAX: usize = 64;
/// Descriptors of the test itself: the client's and those that are open while they are counted.
const OWN_DESCRIPTORS: usize = 8;
/// Room for so many descriptors more than are open when a scene begins.
const DESCRIPTORS_LEFT: usize = 100;
const ROUND_TRIPS: usize = 3_000;

/// How the connections of a flood end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    /// Each is reset at once.
    Reset,
    /// None ends: two hundred stay.
    Never,
}

#[test]
fn a_flood_stays_below_the_caps() {
    let before = getrlimit(Resource::Nofile);
    for end in [End::Reset, End::Never] {
        for accepted_max in [ACCEPTED_MAX, usize::MAX] {
            scene(
                &|| EpollDriver::new(PoolMode::On).unwrap(),
                end,
                accepted_max,
            );
            if let Err(why) = millpond_io::driver::uring::probe() {
                eprintln!("not tested: {why}");
                continue;
            }
            scene(
                &|| UringDriver::new(PoolMode::On).unwrap(),
                end,
                accepted_max,
            );
        }
    }
    assert_eq!(getrlimit(Resource::Nofile).current, before.current);
}

/// Not a test of its own: the other process of the one above.
#[test]
fn flood() {
    let Ok(target) = std::env::var(FLOOD_TARGET) else {
        return;
    };
    let target: SocketAddr = target.parse().unwrap();
    let is_reset = std::env::var(FLOOD_END).is_ok_and(|end| end == "Reset");
    let mut kept = Vec::new();
    loop {
        // A queue that is full does not respond; the next attempt must not wait for long.
        if let Ok(peer) = TcpStream::connect_timeout(&target, Duration::from_millis(20)) {
            if is_reset {
                sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).unwrap();
            } else if kept.len() < 200 {
                kept.push(peer);
            }
        }
        if !is_reset {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Ends its process when it goes.
struct Flood(Child);

impl Flood {
    fn start(target: SocketAddr, end: End) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "flood", "--nocapture"])
            .env(FLOOD_TARGET, target.to_string())
            .env(FLOOD_END, format!("{end:?}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Goal: an established client beside the flood sees no error; at no time are more sockets held than the cap allows, or
/// more descriptors open than sockets and a few.
fn scene<D: Driver>(make: &impl Fn() -> D, end: End, accepted_max: usize) {
    let mut driver = make();
    let loopback = "127.0.0.1:0".parse().unwrap();
    let listener = Listener::bind(&loopback, ListenOptions::default()).unwrap();
    let address = listener.local_address().inet().unwrap();
    driver.set_accepted_max(accepted_max);
    driver.listen(listener).unwrap();
    let mut pools = ShardPools::new(PoolMode::On);
    let client = TcpStream::connect(address).unwrap();
    // Accepted before the flood, as a client that has been there for a while.
    while driver.counters().accepted == 0 {
        tick(&mut driver, &mut pools);
    }
    let flood = Flood::start(address, end);
    let base = open_descriptors();
    let _limit = DescriptorLimit::new(base + DESCRIPTORS_LEFT);
    let client = thread::spawn(move || ask_and_be_answered(client));
    let watchdog_ns = monotonic_ns() + 60_000_000_000;
    let mut most_open = 0;
    while !client.is_finished() || !has_flooded(driver.counters(), end, accepted_max) {
        assert!(monotonic_ns() < watchdog_ns, "{:?}", driver.counters());
        tick(&mut driver, &mut pools);
        let counters = driver.counters();
        assert!(counters.sockets_held <= counters.sockets_peak);
        if counters.ticks.is_multiple_of(64) {
            most_open = most_open.max(open_descriptors());
        }
    }
    client.join().unwrap();
    drop(flood);
    let counters = driver.counters();
    let seen = format!(
        "{} {end:?} {accepted_max}: {most_open} {counters:?}",
        driver.name()
    );
    let cap = accepted_max.min(DESCRIPTORS_LEFT + OWN_DESCRIPTORS);
    assert!(counters.sockets_peak as usize <= cap, "{seen}");
    assert!(most_open <= base + cap + OWN_DESCRIPTORS, "{seen}");
    if end == End::Never {
        // Those beyond wait in the listener's queue, or get an error.
        assert_eq!(
            counters.accepts_refused > 0,
            accepted_max == usize::MAX,
            "{seen}"
        );
        assert!(counters.accept_failures > 0, "{seen}");
    }
}

/// Whether there was enough of it for the scene to mean something.
fn has_flooded(counters: DriverCounters, end: End, accepted_max: usize) -> bool {
    match end {
        End::Reset => counters.accepted > 1_000,
        End::Never if accepted_max == usize::MAX => counters.accepts_refused > 10,
        End::Never => counters.accept_failures > 0,
    }
}

/// Sends back what comes.
fn tick<D: Driver>(driver: &mut D, pools: &mut ShardPools) {
    let handler = |driver: &mut D, pools: &mut ShardPools, event: Event<'_>| match event {
        Event::Received { socket, bytes } => {
            let mut echo = Buffer::new();
            echo.extend_from_slice(&pools.blocks, bytes).unwrap();
            assert_eq!(driver.send(socket, echo), SendOutcome::Done);
        }
        Event::PeerFinished { socket } => driver.close(socket),
        _ => {}
    };
    driver
        .tick(Some(monotonic_ns() + 1_000_000), pools, handler)
        .unwrap();
}

fn ask_and_be_answered(mut client: TcpStream) {
    client.set_nodelay(true).unwrap();
    for number in 0..ROUND_TRIPS {
        let asked = number.to_ne_bytes();
        client.write_all(&asked).unwrap();
        let mut answer = [0; size_of::<usize>()];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(answer, asked);
    }
}

/// Lowers RLIMIT_NOFILE for its lifetime.
struct DescriptorLimit {
    before: Rlimit,
}

impl DescriptorLimit {
    fn new(count: usize) -> Self {
        let before = getrlimit(Resource::Nofile);
        let current = Some(count as u64);
        setrlimit(Resource::Nofile, Rlimit { current, ..before }).unwrap();
        Self { before }
    }
}

impl Drop for DescriptorLimit {
    fn drop(&mut self) {
        setrlimit(Resource::Nofile, self.before).unwrap();
    }
}

/// Open descriptors of this process, and the one that counts them. Without a descriptor for that: all that
/// there may be.
fn open_descriptors() -> usize {
    match std::fs::read_dir("/proc/self/fd") {
        Ok(directory) => directory.count(),
        Err(_) => getrlimit(Resource::Nofile).current.unwrap() as usize,
    }
}
