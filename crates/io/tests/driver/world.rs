//! Where a driver and its peers live: the kernel's loopback, or a simulation.
//!
//! A behaviour gets everything it needs from the outside through here, so that one body runs on
//! all drivers. Peers never block: the test thread moves them and the driver in turns.

use millpond_io::{Address, Driver, EpollDriver, Peer, UringDriver, monotonic_ns};
use rustix::net::sockopt::set_socket_linger;
use std::io::{Read, Result, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Makes drivers, and peers that reach them.
pub(crate) trait World {
    type Driver: Driver;
    type Remote: Remote;

    /// A driver without sockets.
    fn driver(&self) -> Self::Driver;

    /// The time the drivers' deadlines are measured by.
    fn now_ns(&self) -> u64;

    /// A peer that has connected to `to`, whether it is accepted yet or not.
    fn connect(&self, to: &Address) -> Result<Self::Remote>;

    /// Does what peers do by themselves, without their test; true while there is more to come.
    fn pump(&self) -> bool {
        false
    }
}

/// The other end of a driver's socket. Reads and writes return `WouldBlock` instead of waiting; dropping it closes it.
pub(crate) trait Remote: Read + Write {
    /// Its address in [`millpond_io::Driver::peer`].
    fn name(&self) -> Peer;

    /// Sends a FIN; reading goes on.
    fn finish(&self);

    /// Closes with a reset instead of a FIN.
    fn reset(self);
}

/// Longer than any test.
const HOUR_NS: u64 = 3_600_000_000_000;

/// A driver that measures time by this machine's clock.
pub(crate) trait KernelDriver: Driver {
    /// Remembers regulars for as long as the test runs, however often that has to stand still.
    fn never_forget_regulars(&mut self);
}

impl KernelDriver for EpollDriver {
    fn never_forget_regulars(&mut self) {
        self.protect_prompt_clients_for(HOUR_NS);
    }
}

impl KernelDriver for UringDriver {
    fn never_forget_regulars(&mut self) {
        self.protect_prompt_clients_for(HOUR_NS);
    }
}

/// Drivers over this machine's kernel. One type for each driver and not for each way to make it:
/// every behaviour is compiled once for each type.
pub(crate) struct Kernel<D>(pub(crate) fn() -> D);

impl<D: KernelDriver> World for Kernel<D> {
    type Driver = D;
    type Remote = KernelRemote;

    fn driver(&self) -> D {
        let mut driver = (self.0)();
        driver.never_forget_regulars();
        driver
    }

    fn now_ns(&self) -> u64 {
        monotonic_ns()
    }

    fn connect(&self, to: &Address) -> Result<KernelRemote> {
        Ok(match to {
            Address::Inet(to) => {
                let stream = TcpStream::connect(to)?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                KernelRemote::Inet(stream)
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_nonblocking(true)?;
                KernelRemote::Unix(stream)
            }
        })
    }
}

pub(crate) enum KernelRemote {
    Inet(TcpStream),
    Unix(UnixStream),
}

impl Read for KernelRemote {
    fn read(&mut self, room: &mut [u8]) -> Result<usize> {
        match self {
            Self::Inet(stream) => stream.read(room),
            Self::Unix(stream) => stream.read(room),
        }
    }
}

impl Write for KernelRemote {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        match self {
            Self::Inet(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl KernelRemote {
    /// TCP's urgent data.
    pub(crate) fn send_urgent(&self, byte: u8) {
        let Self::Inet(stream) = self else {
            panic!("a unix socket's urgent data is something else");
        };
        let sent = rustix::net::send(stream, &[byte], rustix::net::SendFlags::OOB);
        assert_eq!(sent, Ok(1));
    }
}

impl Remote for KernelRemote {
    fn name(&self) -> Peer {
        match self {
            Self::Inet(stream) => Peer::Inet(stream.local_addr().unwrap()),
            Self::Unix(_) => Peer::Unix,
        }
    }

    fn finish(&self) {
        match self {
            Self::Inet(stream) => stream.shutdown(Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
        .unwrap();
    }

    fn reset(self) {
        if let Self::Inet(stream) = &self {
            set_socket_linger(stream, Some(Duration::ZERO)).unwrap();
        }
    }
}
