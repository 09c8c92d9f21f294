//! A driver with its pools, and what it reported so far.

use crate::world::{Remote, World};
use millpond_io::{
    Address, Driver, Errno, Event, ListenOptions, Listener, SendOutcome, ShardPools, SocketId,
    monotonic_ns,
};
use millpond_mempool::{Buffer, PoolMode};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use std::io::{Error, ErrorKind, Result, Write};
use std::net::SocketAddr;

/// Long enough for the slowest machine; only a hanging test meets it.
pub(crate) const WATCHDOG_NS: u64 = 60_000_000_000;

/// How long a tick may sleep while a peer outside the driver may have something to do.
const TURN_NS: u64 = 1_000_000;

/// An event that outlives its handler. Receives of one socket in a row are joined.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Seen {
    Accepted(SocketId),
    AcceptFailed(Errno),
    Connected(SocketId),
    Received(SocketId, Vec<u8>),
    PeerFinished(SocketId),
    Failed(SocketId, Errno),
    SendBlocked(SocketId),
    SendDrained(SocketId),
    Woken,
}

pub(crate) struct Pond<'w, W: World> {
    world: &'w W,
    pub(crate) driver: W::Driver,
    pub(crate) pools: ShardPools,
    pub(crate) seen: Vec<Seen>,
}

impl<'w, W: World> Pond<'w, W> {
    pub(crate) fn new(world: &'w W) -> Self {
        Self {
            world,
            driver: world.driver(),
            pools: ShardPools::new(PoolMode::On),
            seen: Vec::new(),
        }
    }

    /// A pond that listens on loopback, and its address.
    pub(crate) fn listening(world: &'w W) -> (Self, Address) {
        let mut pond = Self::new(world);
        let listener = Listener::bind(&own_loopback(), ListenOptions::default()).unwrap();
        let address = listener.local_address().clone();
        pond.driver.listen(listener).unwrap();
        (pond, address)
    }

    /// A pond with one accepted connection: the pond, the socket, and the peer's end.
    pub(crate) fn connected(world: &'w W) -> (Self, SocketId, W::Remote) {
        let (mut pond, address) = Self::listening(world);
        let peer = world.connect(&address).unwrap();
        let socket = pond.accept();
        assert_eq!(pond.seen.pop(), Some(Seen::Accepted(socket)));
        assert_eq!(pond.driver.peer(socket), Some(peer.name()));
        (pond, socket, peer)
    }

    /// The next accepted socket.
    pub(crate) fn accept(&mut self) -> SocketId {
        let from = self.seen.len();
        self.run_until(|seen| matches!(seen[from..], [.., Seen::Accepted(_)]));
        // An accepted connection must be usable at once.
        let is_handshaking = |driver: &W::Driver| {
            let tls = driver.tls_counters();
            tls.is_some_and(|tls| tls.handshaking > 0)
        };
        while self.world.pump() || is_handshaking(&self.driver) {
            self.tick(self.world.now_ns() + TURN_NS, &mut |_, _, _| {});
        }
        match self.seen[from..] {
            [Seen::Accepted(socket)] => socket,
            ref other => panic!("expected one accepted socket, saw {other:?}"),
        }
    }

    /// The first accepted socket of all that was seen, whatever else happens meanwhile.
    pub(crate) fn accept_among(&mut self) -> SocketId {
        let mut found = None;
        self.run_until(|seen| {
            found = seen.iter().find_map(|seen| match seen {
                Seen::Accepted(socket) => Some(*socket),
                _ => None,
            });
            found.is_some()
        });
        found.unwrap()
    }

    /// Ticks until what was seen satisfies `done`.
    pub(crate) fn run_until(&mut self, mut done: impl FnMut(&[Seen]) -> bool) {
        self.run_with(|_, _, _| {}, |seen, _| done(seen));
    }

    /// Ticks until `done`, calling `react` for each event.
    pub(crate) fn run_with(
        &mut self,
        mut react: impl FnMut(&mut W::Driver, &mut ShardPools, &Event<'_>),
        mut done: impl FnMut(&[Seen], &W::Driver) -> bool,
    ) {
        // The machine's time, also in a simulation: a test that hangs, hangs in real time.
        let watchdog_ns = monotonic_ns() + WATCHDOG_NS;
        while !done(&self.seen, &self.driver) {
            assert!(
                monotonic_ns() < watchdog_ns,
                "hangs; the last events: {:?}; {:?}",
                self.tail(),
                self.driver.counters()
            );
            // Wakes now and then, so that conditions outside the driver are checked.
            self.tick(self.world.now_ns() + TURN_NS, &mut react);
        }
    }

    /// Ticks without a deadline until what was seen satisfies `done`.
    pub(crate) fn run_endlessly(&mut self, done: impl Fn(&[Seen]) -> bool) {
        while !done(&self.seen) {
            let seen = &mut self.seen;
            let handler = |_: &mut W::Driver, _: &mut ShardPools, event: Event<'_>| {
                remember(seen, &event);
            };
            self.driver.tick(None, &mut self.pools, handler).unwrap();
        }
    }

    /// One tick.
    pub(crate) fn tick(
        &mut self,
        deadline_ns: u64,
        react: &mut impl FnMut(&mut W::Driver, &mut ShardPools, &Event<'_>),
    ) {
        let seen = &mut self.seen;
        let handler = |driver: &mut W::Driver, pools: &mut ShardPools, event: Event<'_>| {
            remember(seen, &event);
            react(driver, pools, &event);
        };
        self.driver
            .tick(Some(deadline_ns), &mut self.pools, handler)
            .unwrap();
        self.world.pump();
    }

    /// Lets everything that is going to happen happen: ticks until waits come back empty.
    pub(crate) fn settle(&mut self) {
        let mut quiet_ticks = 0;
        while quiet_ticks < 3 {
            let seen_before = self.seen.len();
            self.tick(self.world.now_ns() + 2 * TURN_NS, &mut |_, _, _| {});
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
            self.tick(self.world.now_ns() + TURN_NS, &mut |_, _, _| {});
        }
        let after = self.driver.counters();
        (after.waits - before.waits) - (after.empty_waits - before.empty_waits)
    }

    pub(crate) fn send(&mut self, socket: SocketId, bytes: &[u8]) -> SendOutcome {
        let mut data = buffer(&self.pools, bytes);
        let outcome = self.driver.send_from(socket, &mut data);
        assert!(
            data.is_empty(),
            "the driver has the bytes, or nobody wants them"
        );
        assert!(
            !data.has_block() || outcome == SendOutcome::Done,
            "a driver that keeps bytes keeps their memory"
        );
        outcome
    }

    /// Sends `piece` again and again until the driver reports that the kernel is full; returns the total given.
    pub(crate) fn send_until_blocked(&mut self, socket: SocketId, piece: &[u8]) -> Vec<u8> {
        let mut given = Vec::new();
        let from = self.seen.len();
        let is_full = Seen::SendBlocked(socket);
        loop {
            given.extend_from_slice(piece);
            if self.send(socket, piece) == SendOutcome::Blocked {
                return given;
            }
            self.tick(0, &mut |_, _, _| {});
            if self.seen[from..].contains(&is_full) {
                self.seen.retain(|seen| *seen != is_full);
                return given;
            }
            assert!(
                given.len() < 256 << 20,
                "a peer that reads nothing must block the socket"
            );
        }
    }

    /// The next `len` bytes the peer receives; the driver runs meanwhile.
    pub(crate) fn peer_receives(&mut self, peer: &mut W::Remote, len: usize) -> Vec<u8> {
        let mut reader = Reader::until(len);
        self.run_with(|_, _, _| {}, |_, _| reader.turn(peer));
        assert!(
            reader.end.is_none(),
            "{:?} after {}",
            reader.end,
            reader.got.len()
        );
        reader.got
    }

    /// All the peer receives up to the FIN, or up to the failure that ended it.
    pub(crate) fn peer_receives_all(&mut self, peer: &mut W::Remote) -> (Vec<u8>, Result<()>) {
        let mut reader = Reader::until(usize::MAX);
        self.run_with(|_, _, _| {}, |_, _| reader.turn(peer));
        (reader.got, reader.end.unwrap())
    }

    /// An established client sends a request, and gets its response whatever others send meanwhile, who get none. Only
    /// its events are handled.
    pub(crate) fn answers(&mut self, peer: &mut W::Remote, regular: SocketId) {
        self.seen.clear();
        peer.write_all(b"hello").unwrap();
        let answer = |driver: &mut W::Driver, pools: &mut ShardPools, event: &Event<'_>| {
            if matches!(event, Event::Received { socket, .. } if *socket == regular) {
                echo(driver, pools, event);
            }
        };
        self.run_with(answer, |seen, _| received_len(seen, regular) == 5);
        self.peer_receives(peer, 5);
    }

    fn tail(&self) -> Vec<String> {
        let from = self.seen.len().saturating_sub(8);
        let short = |seen: &Seen| format!("{seen:?}").chars().take(120).collect();
        self.seen[from..].iter().map(short).collect()
    }
}

/// A loopback address that no other process uses: when a test has released a port there, no other process listens on
/// it.
fn own_loopback() -> Address {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    SocketAddr::from(([127, 64 + high, middle, low], 0)).into()
}

/// An address that refuses for as long as the socket is there, which is bound and does not listen.
pub(crate) fn refusing() -> (Address, OwnedFd) {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = getsockname(&socket).unwrap();
    let address = SocketAddr::try_from(address).unwrap();
    (address.into(), socket)
}

/// A peer's bytes on their way to the driver.
pub(crate) struct Sender<'a> {
    left: &'a [u8],
}

impl<'a> Sender<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    /// Sends as much as is taken now; true when all is.
    pub(crate) fn turn(&mut self, peer: &mut impl Remote) -> Result<bool> {
        while !self.left.is_empty() {
            match peer.write(self.left) {
                Ok(count) => self.left = &self.left[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// Bytes a peer has received so far.
#[derive(Default)]
pub(crate) struct Reader {
    wanted: usize,
    pub(crate) got: Vec<u8>,
    /// The FIN, or the failure instead of it.
    pub(crate) end: Option<Result<()>>,
}

impl Reader {
    pub(crate) fn until(wanted: usize) -> Self {
        Self {
            wanted,
            ..Self::default()
        }
    }

    /// Reads what is there; true when enough is, or the end was met.
    pub(crate) fn turn(&mut self, peer: &mut impl Remote) -> bool {
        let mut room = vec![0; 1 << 16];
        while self.end.is_none() && self.got.len() < self.wanted {
            let most = room.len().min(self.wanted - self.got.len());
            match peer.read(&mut room[..most]) {
                Ok(0) => self.end = Some(Ok(())),
                Ok(count) => self.got.extend_from_slice(&room[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) => self.end = Some(Err(Error::from(error.kind()))),
            }
        }
        true
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

/// How many that is.
pub(crate) fn received_len(seen: &[Seen], socket: SocketId) -> usize {
    let of_socket = |seen: &Seen| match seen {
        Seen::Received(of, bytes) if *of == socket => bytes.len(),
        _ => 0,
    };
    seen.iter().map(of_socket).sum()
}

fn remember(seen: &mut Vec<Seen>, event: &Event<'_>) {
    let new = match *event {
        Event::Accepted { socket } => Seen::Accepted(socket),
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
        Event::SendBlocked { socket } => Seen::SendBlocked(socket),
        Event::SendDrained { socket } => Seen::SendDrained(socket),
        Event::Woken => Seen::Woken,
        ref other => panic!("unknown event {other:?}"),
    };
    seen.push(new);
}
