//! Sockets and time: one shard per thread over a completion-shaped driver.
//!
//! To begin: implement [`Protocol`], give a [`Shard`] a [`Driver`] that listens, and [`Shard::run`] it;
//! `docs/how-to/embed-the-crates.md` has an echo server, and one that keeps connections to others in a
//! [`ConnectionPool`]. For HTTP see `millpond-http`, which does all that.
//!
//! A *shard* is one thread and all it owns: a driver with its sockets, a timer wheel and memory
//! pools. Data travels through the modules in the order of the `mod` lines below:
//!
//! ```text
//! listener -> op -> driver (uring, epoll) -> op -> Protocol::event
//!                                                               |
//!          SendDrained <- driver <- op <- Driver::send <--+   timer_wheel, mailbox + waker
//!                                                               |
//!    others <- op::connect <- connection_pool (resolver) <------+
//! ```
//!
//! The [`Driver`] trait is shaped for completions, so that a ring or a simulator fits behind it:
//! received bytes live only while the event is handled, [`Driver::send`] takes the buffer's
//! ownership, results arrive as [`Event`]s, and an event whose socket is gone is dropped by its
//! generation.

#![warn(missing_debug_implementations)]

pub mod address;
pub mod listener;
pub mod port_share;
pub mod handed_over;
pub mod service_manager;
pub mod op;
pub mod proxy_protocol;
pub mod driver;
#[cfg(feature = "tls")]
pub mod tls;
mod scheduler;
pub mod shard;
pub mod resolver;
pub mod connection_pool;
pub mod pools;
pub mod timer_wheel;
pub mod mailbox;
pub mod waker;
pub mod file_modes;
pub mod thread_placement;
mod time_slice;
mod network_namespace;
pub mod clock;
pub mod error;

pub use address::{Address, Peer};
pub use clock::monotonic_ns;
pub use connection_pool::ConnectionPool;
pub use driver::choice::{ChosenDriver, DriverChoice, DriverKind};
pub use driver::epoll::EpollDriver;
pub use driver::features::{DriverFeature, DriverFeatures};
#[cfg(feature = "simulator")]
pub use driver::sim::{Network, SimDriver};
pub use driver::uring::{UringDriver, UringUnavailable};
pub use driver::{Driver, DriverCounters, Event, SendOutcome, SocketId};
pub use error::IoError;
pub use error::raise_descriptor_limit;
pub use handed_over::HandedOver;
pub use listener::{ListenOptions, Listener};
pub use mailbox::{Mailbox, MailboxFull, MailboxSender};
pub use network_namespace::NetworkNamespace;
pub use pools::ShardPools;
pub use port_share::PortShare;
pub use resolver::{ResolveError, Resolver, ResolverConfig};
pub use rustix::io::Errno;
pub use scheduler::TICK_NS;
pub use service_manager::{ServiceManager, ServiceState};
pub use shard::{Protocol, Shard, ShardConfig, ShardContext, ShardReport, StopHandle, WaitPlan};
pub use thread_placement::{
    allowed_cpus, may_raise_priority, pin_to, raise_session_priority, raise_thread_priority,
};
pub use timer_wheel::{TimerId, TimerWheel};
pub use waker::Waker;
