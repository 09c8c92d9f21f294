//! The shard's loop on every driver: events, timers, wait plans and its end.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use millpond_io::{
    Address, Driver, EpollDriver, Event, IoError, ListenOptions, Listener, Protocol, Shard,
    ShardConfig, ShardContext, ShardReport, SocketId, StopHandle, TimerId, UringDriver, WaitPlan,
    Waker, monotonic_ns,
};
use millpond_mempool::{Buffer, PoolMode};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread::JoinHandle;

/// A driver that can be made in the shard's own thread.
trait MakeDriver: Driver {
    fn make(mode: PoolMode) -> Result<Self, IoError>;
}

impl MakeDriver for EpollDriver {
    fn make(mode: PoolMode) -> Result<Self, IoError> {
        Self::new(mode)
    }
}

impl MakeDriver for UringDriver {
    fn make(mode: PoolMode) -> Result<Self, IoError> {
        Self::new(mode)
    }
}

/// Makes a test of each function for each driver that this machine has.
macro_rules! tests_on_every_driver {
    ($($test:ident)*) => {
        mod epoll { $(
            #[test]
            fn $test() {
                super::$test::<millpond_io::EpollDriver>();
            }
        )* }

        mod uring { $(
            #[test]
            fn $test() {
                match millpond_io::driver::uring::probe() {
                    Ok(_) => super::$test::<millpond_io::UringDriver>(),
                    Err(why) => eprintln!("not tested: {why}"),
                }
            }
        )* }
    };
}

tests_on_every_driver!(an_idle_shard_stops a_graceful_stop_waits_for_connections
    an_abort_does_not_wait a_connection_that_waited_is_served_after_the_stop
    an_impossible_cpu_is_named timers_drive_an_idle_shard
    a_wait_plan_sleeps_first_and_spins_last
    what_a_crowd_leaves_goes_back_over_many_ticks);

fn config() -> ShardConfig {
    ShardConfig {
        index: 3,
        cpu: None,
        pool_mode: PoolMode::On,
    }
}

/// Echoes; after a stop request it finishes when its connections have.
#[derive(Default)]
struct Echo {
    connections: usize,
    is_stopping: bool,
    ticks_ended: u64,
}

impl<D: Driver> Protocol<D> for Echo {
    fn event(&mut self, shard: &mut ShardContext<'_, D>, event: Event<'_>) {
        assert_eq!(shard.shard_index, 3);
        match event {
            Event::Accepted { .. } => self.connections += 1,
            Event::Received { socket, bytes } => {
                let mut data = Buffer::new();
                data.extend_from_slice(&shard.pools.blocks, bytes).unwrap();
                let _ = shard.driver.send(socket, data);
            }
            Event::PeerFinished { socket } => {
                shard.driver.close_after_send(socket);
                self.connections -= 1;
            }
            Event::Failed { .. } => self.connections -= 1,
            _ => {}
        }
    }

    fn tick_ended(&mut self, _shard: &mut ShardContext<'_, D>) {
        self.ticks_ended += 1;
    }

    fn stop_requested(&mut self, shard: &mut ShardContext<'_, D>) {
        assert!(!self.is_stopping, "asked once");
        self.is_stopping = true;
        shard.driver.stop_listening();
    }

    fn finished(&self) -> bool {
        self.is_stopping && self.connections == 0
    }
}

struct Running {
    address: SocketAddr,
    stop: StopHandle,
    waker: Waker,
    thread: JoinHandle<Result<(ShardReport, u64), IoError>>,
}

impl Running {
    fn echo<D: MakeDriver>(config: ShardConfig) -> Self {
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut shard = Shard::new(config, D::make(config.pool_mode)?);
            let listener = Listener::bind(&own_loopback(), ListenOptions::default())?;
            let address = listener.local_address().inet().unwrap();
            shard.driver().listen(listener)?;
            tell.send((address, shard.stop_handle(), shard.waker()))
                .unwrap();
            let mut echo = Echo::default();
            let report = shard.run(&mut echo)?;
            Ok((report, echo.ticks_ended))
        });
        let (address, stop, waker) = told.recv().unwrap();
        Self {
            address,
            stop,
            waker,
            thread,
        }
    }

    fn join(self) -> (ShardReport, u64) {
        self.thread.join().unwrap().unwrap()
    }
}

/// A loopback address that no other process uses: when the shard has released its port, no other process listens there.
fn own_loopback() -> Address {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    SocketAddr::from(([127, 64 + high, middle, low], 0)).into()
}

fn exchange(peer: &mut TcpStream, message: &[u8]) {
    peer.write_all(message).unwrap();
    let mut answer = vec![0; message.len()];
    peer.read_exact(&mut answer).unwrap();
    assert_eq!(answer, message);
}

/// Goal: a shard with nothing to do hears a stop request and returns, without having spun.
fn an_idle_shard_stops<D: MakeDriver>() {
    let shard = Running::echo::<D>(config());
    shard.waker.wake();
    shard.stop.request_stop();
    shard.stop.request_stop();
    let (report, ticks_ended) = shard.join();
    assert!(!report.aborted);
    assert_eq!(report.shard_index, 3);
    assert_eq!(report.driver.ticks, ticks_ended);
    assert!(
        ticks_ended <= 8,
        "{ticks_ended} ticks for one wake-up and one stop"
    );
}

/// Goal: open connections are served until they end; new ones are refused meanwhile.
fn a_graceful_stop_waits_for_connections<D: MakeDriver>() {
    let shard = Running::echo::<D>(config());
    let mut peer = TcpStream::connect(shard.address).unwrap();
    exchange(&mut peer, b"before");
    shard.stop.request_stop();
    // The listener closes in the tick after the request.
    while TcpStream::connect(shard.address).is_ok() {}
    exchange(&mut peer, b"after");
    assert!(!shard.thread.is_finished());
    drop(peer);
    let (report, _) = shard.join();
    assert!(!report.aborted);
    assert_eq!(report.driver.accepted, report.driver.closes);
}

/// Goal: an abort ends the shard though connections are open, which they notice.
fn an_abort_does_not_wait<D: MakeDriver>() {
    let shard = Running::echo::<D>(config());
    let mut peer = TcpStream::connect(shard.address).unwrap();
    exchange(&mut peer, b"hello");
    shard.stop.request_abort();
    // A later, weaker request does not take the stronger one back.
    shard.stop.request_stop();
    let (report, _) = shard.join();
    assert!(report.aborted);
    assert_eq!(peer.read(&mut [0]).unwrap(), 0);
}

/// Goal: a peer that connected before the stop request gets its response, though it was not
/// accepted yet.
fn a_connection_that_waited_is_served_after_the_stop<D: MakeDriver>() {
    for _ in 0..50 {
        let shard = Running::echo::<D>(config());
        let mut peer = TcpStream::connect(shard.address).unwrap();
        shard.stop.request_stop();
        exchange(&mut peer, b"in time");
        drop(peer);
        assert!(!shard.join().0.aborted);
    }
}

/// Goal: a CPU that does not exist is an error with its number, not a panic or a silent shard.
fn an_impossible_cpu_is_named<D: MakeDriver>() {
    let shard = Running::echo::<D>(ShardConfig {
        cpu: Some(100_000),
        ..config()
    });
    let error = shard.thread.join().unwrap().unwrap_err();
    assert!(
        matches!(error, IoError::CpuUnavailable { cpu: 100_000, .. }),
        "{error:?}"
    );
}

/// Fires `left` timers, each set from the last one's expiry, and paces ticks by its wait plan.
struct Paced {
    timer: Option<TimerId>,
    fired_at_ns: Vec<(u64, u64)>,
    left: usize,
    plan: WaitPlan,
    ended_at_ns: Vec<u64>,
    ends_after_ticks: usize,
    socket: Option<SocketId>,
}

impl<D: Driver> Protocol<D> for Paced {
    fn started(&mut self, shard: &mut ShardContext<'_, D>) -> Result<(), IoError> {
        if self.left > 0 {
            let timer = shard.timers.create(77);
            shard.timers.set(timer, shard.now_ns + 1_000_000);
            self.timer = Some(timer);
        }
        Ok(())
    }

    fn event(&mut self, _shard: &mut ShardContext<'_, D>, event: Event<'_>) {
        panic!("{event:?} of {:?}", self.socket);
    }

    fn timer_expired(&mut self, shard: &mut ShardContext<'_, D>, user: u64) {
        assert_eq!(user, 77);
        self.fired_at_ns.push((shard.now_ns, monotonic_ns()));
        self.left -= 1;
        if let Some(timer) = self.timer
            && self.left > 0
        {
            shard.timers.set(timer, shard.now_ns + 1_000_000);
        }
    }

    fn tick_ended(&mut self, shard: &mut ShardContext<'_, D>) {
        self.ended_at_ns.push(shard.now_ns);
    }

    fn stop_requested(&mut self, _shard: &mut ShardContext<'_, D>) {}

    fn finished(&self) -> bool {
        self.left == 0 && self.ended_at_ns.len() >= self.ends_after_ticks
    }

    fn wait_plan(&mut self, _now_ns: u64) -> WaitPlan {
        self.plan
    }
}

fn paced<D: MakeDriver>(
    left: usize,
    plan: WaitPlan,
    ends_after_ticks: usize,
) -> (Paced, ShardReport) {
    let mut paced = Paced {
        timer: None,
        fired_at_ns: Vec::new(),
        left,
        plan,
        ended_at_ns: Vec::new(),
        ends_after_ticks,
        socket: None,
    };
    let driver = D::make(PoolMode::On).unwrap();
    let report = Shard::new(config(), driver).run(&mut paced).unwrap();
    (paced, report)
}

/// Holds blocks as a crowd does, lets them go, and trims at each of its timers.
struct Crowded {
    crowd: Vec<Buffer>,
    timer: Option<TimerId>,
    trims: usize,
    trimmed_bytes: usize,
    /// At the end of each tick.
    reserved_bytes: Vec<u64>,
}

impl<D: Driver> Protocol<D> for Crowded {
    fn started(&mut self, shard: &mut ShardContext<'_, D>) -> Result<(), IoError> {
        let block = |_| Buffer::with_capacity(&shard.pools.blocks, 32 << 10).unwrap();
        self.crowd = (0..2 * 200).map(block).collect();
        let timer = shard.timers.create(1);
        shard.timers.set(timer, shard.now_ns);
        self.timer = Some(timer);
        Ok(())
    }

    fn event(&mut self, _shard: &mut ShardContext<'_, D>, event: Event<'_>) {
        panic!("{event:?}");
    }

    fn timer_expired(&mut self, shard: &mut ShardContext<'_, D>, _user: u64) {
        self.crowd.clear();
        self.trims += 1;
        self.trimmed_bytes += shard.pools.trim();
        if let Some(timer) = self.timer
            && !self.is_over()
        {
            // Far enough for what the trim has left to be done by the shard alone.
            shard.timers.set(timer, shard.now_ns + 100_000_000);
        }
    }

    fn tick_ended(&mut self, shard: &mut ShardContext<'_, D>) {
        let stats = shard.pools.blocks.stats();
        self.reserved_bytes.push(stats.reserved_bytes);
    }

    fn stop_requested(&mut self, _shard: &mut ShardContext<'_, D>) {}

    fn finished(&self) -> bool {
        self.is_over()
    }
}

impl Crowded {
    /// All is given back, or never will be.
    fn is_over(&self) -> bool {
        self.reserved_bytes.last() == Some(&0) || self.trims == 100
    }
}

/// Goal: memory that a crowd leaves goes back to the system a little in each tick, and without an event that would wake
/// the shard for it. All at once it took 2 ms, in which no client was served.
fn what_a_crowd_leaves_goes_back_over_many_ticks<D: MakeDriver>() {
    const PART_BYTES_MAX: u64 = 4 << 16;
    let mut crowded = Crowded {
        crowd: Vec::new(),
        timer: None,
        trims: 0,
        trimmed_bytes: 0,
        reserved_bytes: Vec::new(),
    };
    let driver = D::make(PoolMode::On).unwrap();
    Shard::new(config(), driver).run(&mut crowded).unwrap();
    for pair in crowded.reserved_bytes.windows(2) {
        // A tick goes on with one trim and may begin the next.
        assert!(pair[0] - pair[1] <= 2 * PART_BYTES_MAX, "{pair:?}");
    }
    assert_eq!(crowded.reserved_bytes.first(), Some(&(200 << 16)));
    assert_eq!(crowded.reserved_bytes.last(), Some(&0));
    // Nine halve it away. A part at each alone would take fifty.
    assert!(crowded.trims < 40, "{}", crowded.trims);
    assert!(
        crowded.trimmed_bytes >= 199 << 16,
        "{}",
        crowded.trimmed_bytes
    );
}

/// Goal: timers wake a shard that waits for nothing else, never before their time, and a shard
/// that finishes by itself returns.
fn timers_drive_an_idle_shard<D: MakeDriver>() {
    let (paced, report) = paced::<D>(5, WaitPlan::default(), 0);
    assert_eq!((paced.fired_at_ns.len(), report.timers_fired), (5, 5));
    for pair in paced.fired_at_ns.windows(2) {
        assert!(pair[1].0 >= pair[0].0 + 1_000_000, "{pair:?}");
    }
    assert!(report.duration_ns >= 5_000_000);
    assert_eq!(report.driver.ticks, 5, "one wake-up per timer");
}

/// Goal: the shard sleeps until the spin begins, then polls until the deadline without sleeping.
fn a_wait_plan_sleeps_first_and_spins_last<D: MakeDriver>() {
    let start_ns = monotonic_ns();
    let deadline_ns = start_ns + 20_000_000;
    let spin_ns = 5_000_000;
    let plan = WaitPlan {
        deadline_ns: Some(deadline_ns),
        spin_ns,
    };
    let (paced, _) = paced::<D>(0, plan, 50);
    // The first tick slept, the others did not: they follow within the spin or after it.
    assert!(paced.ended_at_ns[0] >= deadline_ns - spin_ns);
    assert_eq!(paced.ended_at_ns.len(), 50);
}
