//! Where a pool and its upstreams live: the kernel's loopback, or a simulation.

use millpond_io::driver::sim::{FaultPlan, Network, PeerRead, SimDriver, SimPeer};
use millpond_io::{Address, Driver, Errno, Resolver, ResolverConfig, monotonic_ns};
use millpond_mempool::PoolMode;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
use std::cell::RefCell;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

/// Makes drivers, and upstreams they reach.
pub(crate) trait World {
    type Driver: Driver;
    type Upstream: Upstream;

    fn driver(&self) -> Self::Driver;

    /// The time deadlines are measured by.
    fn now_ns(&self) -> u64;

    /// An upstream at an address of its own.
    fn listen(&self) -> Self::Upstream;

    /// One on a unix socket in this directory.
    fn listen_unix(&self, directory: &std::path::Path) -> Self::Upstream;

    /// An address without a listener, and the socket that keeps it so.
    fn refusing(&self) -> (Address, Option<OwnedFd>);

    /// An address that never responds, and the socket that keeps it so.
    fn silent(&self) -> (Address, Vec<TcpStream>, Option<TcpListener>);

    /// A resolver that responds without delaying simulated time.
    fn resolver(
        &self,
        config: ResolverConfig,
        lookup: impl Fn(&str, u16) -> std::io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Resolver;
}

/// A peer that accepts.
pub(crate) trait Upstream {
    type Peer: Peer;

    fn address(&self) -> Address;

    /// The next connection, if one is there.
    fn accept(&self) -> Option<Self::Peer>;
}

/// An upstream's end of one connection. Dropping it closes it.
pub(crate) trait Peer {
    fn write(&mut self, bytes: &[u8]);

    /// Whether the other side has closed or reset it.
    fn is_closed(&mut self) -> bool;

    /// Closes with a reset instead of a FIN.
    fn reset(self);
}

pub(crate) struct Kernel<D>(fn() -> D);

/// A TCP socket that has a port and does not listen.
fn bound() -> OwnedFd {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    socket
}

impl<D> Kernel<D> {
    pub(crate) fn new(make: fn() -> D) -> Self {
        Self(make)
    }
}

impl<D: Driver> World for Kernel<D> {
    type Driver = D;
    type Upstream = KernelUpstream;

    fn driver(&self) -> D {
        (self.0)()
    }

    fn now_ns(&self) -> u64 {
        monotonic_ns()
    }

    fn listen(&self) -> KernelUpstream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        KernelUpstream::Inet(listener)
    }

    fn listen_unix(&self, directory: &std::path::Path) -> KernelUpstream {
        let listener = UnixListener::bind(directory.join("upstream")).unwrap();
        listener.set_nonblocking(true).unwrap();
        KernelUpstream::Unix(listener)
    }

    /// A socket that is bound and does not listen: no other process gets its port.
    fn refusing(&self) -> (Address, Option<OwnedFd>) {
        let socket = bound();
        let address = SocketAddr::try_from(getsockname(&socket).unwrap()).unwrap();
        (address.into(), Some(socket))
    }

    /// A listener whose queue is full: the kernel drops connection attempts. A backlog of 0 is full with one
    /// connection, and the socket is readable once that is in the queue.
    fn silent(&self) -> (Address, Vec<TcpStream>, Option<TcpListener>) {
        let socket = bound();
        listen(&socket, 0).unwrap();
        let listener = TcpListener::from(socket);
        let address = listener.local_addr().unwrap();
        let filling = TcpStream::connect(address).unwrap();
        let mut queue = [PollFd::new(&listener, PollFlags::IN)];
        assert_eq!(poll(&mut queue, None), Ok(1));
        (address.into(), vec![filling], Some(listener))
    }

    fn resolver(
        &self,
        config: ResolverConfig,
        lookup: impl Fn(&str, u16) -> std::io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Resolver {
        Resolver::with_lookup(config, lookup).unwrap()
    }
}

pub(crate) enum KernelUpstream {
    Inet(TcpListener),
    Unix(UnixListener),
}

pub(crate) enum KernelPeer {
    Inet(TcpStream),
    Unix(UnixStream),
}

impl Upstream for KernelUpstream {
    type Peer = KernelPeer;

    fn address(&self) -> Address {
        match self {
            Self::Inet(listener) => listener.local_addr().unwrap().into(),
            Self::Unix(listener) => {
                let address = listener.local_addr().unwrap();
                Address::Unix(address.as_pathname().unwrap().to_owned())
            }
        }
    }

    fn accept(&self) -> Option<KernelPeer> {
        match self {
            Self::Inet(listener) => {
                let stream = listener.accept().ok()?.0;
                stream.set_nonblocking(true).unwrap();
                Some(KernelPeer::Inet(stream))
            }
            Self::Unix(listener) => {
                let stream = listener.accept().ok()?.0;
                stream.set_nonblocking(true).unwrap();
                Some(KernelPeer::Unix(stream))
            }
        }
    }
}

impl Peer for KernelPeer {
    fn write(&mut self, bytes: &[u8]) {
        match self {
            Self::Inet(stream) => stream.write_all(bytes).unwrap(),
            Self::Unix(stream) => stream.write_all(bytes).unwrap(),
        }
    }

    fn is_closed(&mut self) -> bool {
        let mut room = [0; 64];
        let read = match self {
            Self::Inet(stream) => stream.read(&mut room),
            Self::Unix(stream) => stream.read(&mut room),
        };
        match read {
            Ok(count) => count == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    }

    fn reset(self) {
        if let Self::Inet(stream) = &self {
            set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
        }
    }
}

/// In memory. Each use of the world is a network of its own.
pub(crate) struct Simulated {
    network: Network,
    next_port: RefCell<u16>,
}

impl Simulated {
    pub(crate) fn with_plan(seed: u64, plan: FaultPlan) -> Self {
        Self {
            network: Network::new(seed, plan),
            next_port: RefCell::new(9000),
        }
    }

    pub(crate) fn calm() -> Self {
        Self::with_plan(1, FaultPlan::none())
    }

    pub(crate) fn in_pieces() -> Self {
        let plan = FaultPlan {
            split_receives: 0.3,
            delays: 0.5,
            delayed_closes: 0.7,
            spurious_wakes: 0.3,
            reorders: true,
            late_sends: 0.5,
            ..FaultPlan::none()
        };
        Self::with_plan(2, plan)
    }

    fn next_address(&self) -> Address {
        *self.next_port.borrow_mut() += 1;
        SocketAddr::from(([127, 0, 0, 1], *self.next_port.borrow())).into()
    }

    fn upstream(&self, address: Address) -> SimulatedUpstream {
        assert!(self.network.listen(&address));
        SimulatedUpstream {
            network: self.network.clone(),
            address,
        }
    }
}

impl World for Simulated {
    type Driver = SimDriver;
    type Upstream = SimulatedUpstream;

    fn driver(&self) -> SimDriver {
        self.network.driver(PoolMode::On).unwrap()
    }

    fn now_ns(&self) -> u64 {
        self.network.now_ns()
    }

    fn listen(&self) -> SimulatedUpstream {
        self.upstream(self.next_address())
    }

    fn listen_unix(&self, directory: &std::path::Path) -> SimulatedUpstream {
        self.upstream(Address::Unix(directory.join("upstream")))
    }

    fn refusing(&self) -> (Address, Option<OwnedFd>) {
        (self.next_address(), None)
    }

    fn silent(&self) -> (Address, Vec<TcpStream>, Option<TcpListener>) {
        let address = self.next_address();
        self.network.silence(&address);
        (address, Vec::new(), None)
    }

    fn resolver(
        &self,
        config: ResolverConfig,
        lookup: impl Fn(&str, u16) -> std::io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Resolver {
        Resolver::at_once(config, lookup)
    }
}

pub(crate) struct SimulatedUpstream {
    network: Network,
    address: Address,
}

impl Upstream for SimulatedUpstream {
    type Peer = SimulatedPeer;

    fn address(&self) -> Address {
        self.address.clone()
    }

    fn accept(&self) -> Option<SimulatedPeer> {
        self.network.accept(&self.address).map(SimulatedPeer)
    }
}

pub(crate) struct SimulatedPeer(SimPeer);

impl SimulatedPeer {
    /// Writes, if there is a reader.
    pub(crate) fn try_write(&mut self, bytes: &[u8]) {
        let _ = self.0.write(bytes);
    }
}

impl Peer for SimulatedPeer {
    fn write(&mut self, bytes: &[u8]) {
        assert_eq!(self.0.write(bytes), Ok(bytes.len()));
    }

    fn is_closed(&mut self) -> bool {
        match self.0.read(&mut Vec::new(), 64) {
            PeerRead::Finished => true,
            PeerRead::Failed(error) => error != Errno::AGAIN,
            PeerRead::Bytes(_) | PeerRead::Nothing => false,
        }
    }

    fn reset(self) {
        self.0.reset();
    }
}
