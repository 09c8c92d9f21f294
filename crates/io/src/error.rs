//! What can go wrong outside a single connection; each message has the remedy.
//!
//! A failing connection is not an error of this type: it is [`crate::Event::Failed`].

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::address::Address;
use crate::driver::uring::UringUnavailable;

/// A shard, listener or driver cannot do its work.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum IoError {
    /// The text does not name an address.
    #[error(
        "\"{text}\" is not an address: write IP:PORT as in 127.0.0.1:8080, [::1]:8080, or unix:/path"
    )]
    AddressUnreadable {
        /// The value given.
        text: String,
    },
    /// The host part of the text has no address.
    #[error("cannot find the host of \"{text}\": {reason}; check the name or give its IP address")]
    HostUnknown {
        /// The value given.
        text: String,
        /// The resolver's error.
        reason: String,
    },
    /// Another process listens there.
    #[error("{address} is taken by another program: stop it or choose another port")]
    AddressTaken {
        /// Where we wanted to listen.
        address: Address,
    },
    /// No interface of this machine has the address.
    #[error("{address} is not an address of this machine: use 0.0.0.0, 127.0.0.1 or its own")]
    AddressNotLocal {
        /// Where we wanted to listen.
        address: Address,
    },
    /// Ports below 1024 (or a directory) need rights we lack.
    #[error("no permission to listen on {address}: choose a port from 1024 up, or run as root")]
    AddressForbidden {
        /// Where we wanted to listen.
        address: Address,
    },
    /// A unix path longer than the kernel takes, or holding a zero byte.
    #[error("{address} is not a usable socket path: the kernel takes at most 107 bytes, none zero")]
    PathUnusable {
        /// The path given.
        address: Address,
    },
    /// There is no socket for this process in the environment.
    #[error(
        "no socket was handed to this process: start it by a systemd socket unit, or say --listen ADDR:PORT"
    )]
    NothingHandedOver,
    /// A descriptor that nothing can be accepted from.
    #[error("descriptor {number} that was handed to this process cannot be served: {problem}")]
    HandedOverUnusable {
        /// Which.
        number: i32,
        /// Why.
        problem: String,
    },
    /// Some of them would never be served.
    #[error(
        "{sockets} sockets were handed to this process, and it has {shards} shards: each shard takes \
         connections from one; use more shards or fewer sockets"
    )]
    TooManyHandedOver {
        /// Sockets there are.
        sockets: usize,
        /// Shards there are.
        shards: usize,
    },
    /// Listening failed in a way not named above.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Where we wanted to listen.
        address: Address,
        /// The kernel's error.
        error: Errno,
    },
    /// [`crate::Driver::listen`] was called twice.
    #[error("this shard already listens: stop listening before listening elsewhere")]
    AlreadyListening,
    /// The process or machine has no file descriptor left for a new connection.
    #[error("no file descriptor left to connect to {address}: raise `ulimit -n`")]
    DescriptorsExhausted {
        /// Where we wanted to connect.
        address: Address,
    },
    /// The CPU is not among those this process may use.
    #[error("cannot run on CPU {cpu}: {error}; see `taskset -p $$` for the CPUs allowed")]
    CpuUnavailable {
        /// The CPU asked for.
        cpu: usize,
        /// The kernel's error.
        error: Errno,
    },
    /// No driver has this name.
    #[error("\"{text}\" is not a driver: write auto, uring or epoll")]
    DriverUnknown {
        /// The value given.
        text: String,
    },
    /// The ring driver was asked for where there is no ring.
    #[error("{0}; the epoll driver works everywhere")]
    UringUnavailable(UringUnavailable),
    /// Connections cannot come from this address.
    #[error(
        "cannot connect from {source_address}: {error}; name an address of this machine, of the target's family"
    )]
    SourceUnusable {
        /// The address.
        source_address: std::net::IpAddr,
        /// The kernel's error.
        error: Errno,
    },
    /// The driver does not support TLS.
    #[error("this shard's driver speaks no TLS: make it a `tls::Tls`")]
    TlsUnavailable,
    /// A system call failed that has no business failing.
    #[error("{call} failed: {error}")]
    System {
        /// The call, as in its manual page.
        call: &'static str,
        /// The kernel's error.
        error: Errno,
    },
}

impl IoError {
    /// Names the failed call; for use in `map_err`.
    pub(crate) fn system(call: &'static str) -> impl FnOnce(Errno) -> Self {
        move |error| Self::System { call, error }
    }
}

// How many descriptors this process may have.

/// Raises the soft limit of open files to the hard one, which takes no privilege.
///
/// The usual soft limit is 1024, for the sake of programs that call `select`; a server is meant to have the hard one
/// (systemd's documentation of `LimitNOFILE=`). Programs that this process starts later inherit it. Where the kernel
/// refuses, the limit stays as it is.
pub fn raise_descriptor_limit() {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: before.maximum,
        ..before
    };
    let _ = setrlimit(Resource::Nofile, raised);
}
