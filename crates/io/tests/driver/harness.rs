//! A driver with its pools, and what it reported so far.

use millpond_io::{
    Driver, Errno, Event, ListenOptions, Listener, Peer, SendOutcome, ShardPools, SocketId,
    monotonic_ns,
};
use millpond_mempool::{Buffer, PoolMode};
use std::net::{SocketAddr, TcpStream};

/// Long enough for the slowest machine; only a hanging test meets it.
const WATCHDOG_NS: u64 = 60_000_000_000;

/// An event that outlives its handler. Receives of one socket in a row are joined.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Seen {
    Accepted(SocketId, Peer),
    AcceptFailed(Errno),
    Connected(SocketId),
    Received(SocketId, Vec<u8>),
    PeerFinished(SocketId),
    Failed(SocketId, Errno),
    SendDrained(SocketId),
    Woken,
}

pub(crate) struct Pond<D: Driver> {
    pub(crate) driver: D,
    pub(crate) pools: ShardPools,
    pub(crate) seen: Vec<Seen>,
}

impl<D: Driver> Pond<D> {
    pub(crate) fn new(make: &impl Fn() -> D) -> Self {
        Self {
            driver: make(),
            pools: ShardPools::new(PoolMode::On),
            seen: Vec::new(),
        }
    }

    /// A pond that listens on loopback, and its address.
    pub(crate) fn listening(make: &impl Fn() -> D) -> (Self, SocketAddr) {
        let mut pond = Self::new(make);
        let loopback = "127.0.0.1:0".parse().unwrap();
        let listener = Listener::bind(&loopback, ListenOptions::default()).unwrap();
        let address = listener.local_address().inet().unwrap();
        pond.driver.listen(listener).unwrap();
        (pond, address)
    }

    /// A pond with one accepted connection: the pond, the socket, and the peer's end.
    pub(crate) fn connected(make: &impl Fn() -> D) -> (Self, SocketId, TcpStream) {
        let (mut pond, address) = Self::listening(make);
        let peer = TcpStream::connect(address).unwrap();
        let socket = pond.accept();
        assert_eq!(
            pond.seen.pop(),
            Some(Seen::Accepted(
                socket,
                Peer::Inet(peer.local_addr().unwrap())
            ))
        );
        (pond, socket, peer)
    }

    /// The next accepted socket.
    pub(crate) fn accept(&mut self) -> SocketId {
        let from = self.seen.len();
        self.run_until(|seen| matches!(seen[from..], [.., Seen::Accepted(..)]));
        match self.seen[from..] {
            [Seen::Accepted(socket, _)] => socket,
            ref other => panic!("expected one accepted socket, saw {other:?}"),
        }
    }

    /// Ticks until what was seen satisfies `done`.
    pub(crate) fn run_until(&mut self, mut done: impl FnMut(&[Seen]) -> bool) {
        self.run_with(|_, _, _| {}, |seen, _| done(seen));
    }

    /// Ticks until `done`, calling `react` for each event.
    pub(crate) fn run_with(
        &mut self,
        mut react: impl FnMut(&mut D, &mut ShardPools, &Event<'_>),
        mut done: impl FnMut(&[Seen], &D) -> bool,
    ) {
        let watchdog_ns = monotonic_ns() + WATCHDOG_NS;
        while !done(&self.seen, &self.driver) {
            assert!(
                monotonic_ns() < watchdog_ns,
                "hangs; the last events: {:?}",
                self.tail()
            );
            // Wakes now and then, so that conditions outside the driver are looked at.
            self.tick(monotonic_ns() + 5_000_000, &mut react);
        }
    }

    /// One tick.
    pub(crate) fn tick(
        &mut self,
        deadline_ns: u64,
        react: &mut impl FnMut(&mut D, &mut ShardPools, &Event<'_>),
    ) {
        let seen = &mut self.seen;
        let handler = |driver: &mut D, pools: &mut ShardPools, event: Event<'_>| {
            remember(seen, &event);
            react(driver, pools, &event);
        };
        self.driver
            .tick(Some(deadline_ns), &mut self.pools, handler)
            .unwrap();
    }

    /// Lets everything that is going to happen happen: ticks until waits come back empty.
    pub(crate) fn settle(&mut self) {
        let mut quiet_ticks = 0;
        while quiet_ticks < 3 {
            let seen_before = self.seen.len();
            self.tick(monotonic_ns() + 2_000_000, &mut |_, _, _| {});
            quiet_ticks = if self.seen.len() == seen_before {
                quiet_ticks + 1
            } else {
                0
            };
        }
    }

    /// Waits of this many ticks that found something to do: a driver at rest has none.
    pub(crate) fn busy_waits(&mut self, ticks: usize) -> u64 {
        let before = self.driver.counters();
        for _ in 0..ticks {
            self.tick(monotonic_ns() + 1_000_000, &mut |_, _, _| {});
        }
        let after = self.driver.counters();
        (after.waits - before.waits) - (after.empty_waits - before.empty_waits)
    }

    pub(crate) fn send(&mut self, socket: SocketId, bytes: &[u8]) -> SendOutcome {
        let data = buffer(&self.pools, bytes);
        self.driver.send(socket, data)
    }

    fn tail(&self) -> Vec<String> {
        let from = self.seen.len().saturating_sub(8);
        let short = |seen: &Seen| format!("{seen:?}").chars().take(120).collect();
        self.seen[from..].iter().map(short).collect()
    }
}

pub(crate) fn buffer(pools: &ShardPools, bytes: &[u8]) -> Buffer {
    let mut data = Buffer::new();
    data.extend_from_slice(&pools.blocks, bytes).unwrap();
    data
}

/// Sends every received byte back.
pub(crate) fn echo<D: Driver>(driver: &mut D, pools: &mut ShardPools, event: &Event<'_>) {
    if let Event::Received { socket, bytes } = event {
        let _ = driver.send(*socket, buffer(pools, bytes));
    }
}

/// Bytes that differ from position to position, so that a lost or doubled one shows.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

/// All bytes a socket received.
pub(crate) fn received_bytes(seen: &[Seen], socket: SocketId) -> Vec<u8> {
    let of_socket = |seen: &Seen| match seen {
        Seen::Received(of, bytes) if *of == socket => bytes.clone(),
        _ => Vec::new(),
    };
    seen.iter().flat_map(of_socket).collect()
}

fn remember(seen: &mut Vec<Seen>, event: &Event<'_>) {
    let new = match *event {
        Event::Accepted { socket, peer } => Seen::Accepted(socket, peer),
        Event::AcceptFailed { error } => Seen::AcceptFailed(error),
        Event::Connected { socket } => Seen::Connected(socket),
        Event::Received { socket, bytes } => {
            assert!(!bytes.is_empty(), "an empty receive is no event");
            if let Some(Seen::Received(last, joined)) = seen.last_mut()
                && *last == socket
            {
                joined.extend_from_slice(bytes);
                return;
            }
            Seen::Received(socket, bytes.to_vec())
        }
        Event::PeerFinished { socket } => Seen::PeerFinished(socket),
        Event::Failed { socket, error } => Seen::Failed(socket, error),
        Event::SendDrained { socket } => Seen::SendDrained(socket),
        Event::Woken => Seen::Woken,
        ref other => panic!("unknown event {other:?}"),
    };
    seen.push(new);
}
