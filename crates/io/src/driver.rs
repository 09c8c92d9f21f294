//! The trait between a shard and its kernel, and the events that come out of it.
//!
//! Shaped for completions: an operation is asked for by a method and its result arrives as an
//! [`Event`] in a later [`Driver::tick`]. [`uring`] is the completion kernel behind it, [`epoll`]
//! the readiness kernel that is always there; `sim`, with the feature `simulator`, is none: a
//! network in memory, with seeded faults and virtual time.

mod accepting;
mod lifecycle;
mod socket_count;
mod receive_stamps;
pub mod choice;
pub mod features;
pub mod epoll;
#[cfg(feature = "simulator")]
pub mod sim;
pub mod uring;

use self::features::DriverFeatures;
use crate::address::{Address, Peer};
use crate::clock::monotonic_ns;
use crate::error::IoError;
use crate::listener::Listener;
use crate::pools::ShardPools;
use crate::proxy_protocol::ProxyHeadCounters;
use crate::waker::Waker;
use millpond_mempool::{Buffer, Handle, PoolStats};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::net::IpAddr;
use std::ops::Range;

/// Names one socket of one driver. Slots are small and reused, generations are not: an id kept
/// after its socket is gone matches nothing.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash)]
pub struct SocketId {
    slot: u32,
    generation: u32,
}

impl SocketId {
    pub(crate) const fn new(slot: u32, generation: u32) -> Self {
        Self { slot, generation }
    }

    /// A dense index: at most as large as the most sockets ever open at once, those included
    /// that are closed but of which the kernel has not let go before the next tick.
    #[inline]
    #[must_use]
    pub const fn slot(self) -> usize {
        self.slot as usize
    }

    /// The id as one integer, for timers and tokens.
    #[inline]
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.slot as u64
    }

    /// The inverse of [`Self::to_bits`].
    #[inline]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "each half is 32 bits")]
    pub const fn from_bits(bits: u64) -> Self {
        Self {
            slot: bits as u32,
            generation: (bits >> 32) as u32,
        }
    }
}

/// The id of a socket that lies in a slab.
#[inline]
fn id_of<T>(handle: Handle<T>) -> SocketId {
    SocketId::new(handle.index(), handle.generation())
}

/// Where in its slab the socket of an id lies, if it is there still.
#[inline]
fn handle_of<T>(id: SocketId) -> Handle<T> {
    Handle::from_bits(id.to_bits())
}

/// Events since the last tick.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A peer connected to the listener: [`Driver::peer`] has its address. Receiving is on.
    Accepted {
        /// The new socket.
        socket: SocketId,
    },
    /// A connection waits but cannot be taken, most often for lack of file descriptors. Closing an idle
    /// socket here helps the waiting peer; otherwise it is reset in the next tick where descriptors have run
    /// out, and waits where [`Driver::set_accepted_max`] or the kernel's memory is the limit.
    AcceptFailed {
        /// The kernel's error.
        error: Errno,
    },
    /// A connection requested by [`Driver::connect`] is open.
    Connected {
        /// The socket.
        socket: SocketId,
    },
    /// Bytes arrived. They are valid during this call only.
    Received {
        /// The socket.
        socket: SocketId,
        /// At least one byte.
        bytes: &'a [u8],
    },
    /// No more bytes will come; sending may still work. Close the socket when done.
    PeerFinished {
        /// The socket.
        socket: SocketId,
    },
    /// The socket failed (refused, reset, unreachable) and is closed already; its id is stale.
    Failed {
        /// The id it had.
        socket: SocketId,
        /// Why.
        error: Errno,
    },
    /// Bytes of a send that returned [`SendOutcome::Done`] found the kernel full after all. From
    /// here on it is as if that send had returned [`SendOutcome::Blocked`]. Only drivers that send
    /// with their next wait report it.
    SendBlocked {
        /// The socket.
        socket: SocketId,
    },
    /// All bytes given for the socket are with the kernel now: the end of what began with
    /// [`SendOutcome::Blocked`] or [`Self::SendBlocked`].
    SendDrained {
        /// The socket.
        socket: SocketId,
    },
    /// A [`Waker`] of this driver was used, once or more often.
    Woken,
}

/// Result for the bytes given to [`Driver::send`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "a blocked socket must not be given more without bound"]
pub enum SendOutcome {
    /// More may be given. The kernel has all bytes, or gets them before the next tick waits; if it is full then,
    /// [`Event::SendBlocked`] reports it. Or the socket is gone and they are dropped.
    Done,
    /// The kernel is full and the driver keeps the rest. [`Event::SendDrained`] or
    /// [`Event::Failed`] will follow.
    Blocked,
}

/// Work done since the driver was made; differences between two readings are rates.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DriverCounters {
    /// Calls of [`Driver::tick`].
    pub ticks: u64,
    /// System calls that wait for events.
    pub waits: u64,
    /// Waits that returned without an event.
    pub empty_waits: u64,
    /// Requests to accept: system calls, or submissions of which one accepts many.
    pub accepts: u64,
    /// System calls that connect.
    pub connects: u64,
    /// Receives: system calls, or completions that brought bytes.
    pub receives: u64,
    /// Sends: system calls or submissions.
    pub sends: u64,
    /// Changes of what is waited for: `epoll_ctl`, or submitted polls.
    pub controls: u64,
    /// Sockets closed.
    pub closes: u64,
    /// Connections taken from the listener.
    pub accepted: u64,
    /// [`Event::AcceptFailed`] delivered.
    pub accept_failures: u64,
    /// Connections that were reset as soon as they were taken, for lack of a descriptor.
    pub accepts_refused: u64,
    /// Sockets held now: taken or connected, and not closed by the kernel yet. Not a sum of work.
    pub sockets_held: u64,
    /// The most ever held at once.
    pub sockets_peak: u64,
    /// Sends that left something over.
    pub sends_blocked: u64,
    /// [`Event::Woken`] delivered.
    pub wakes: u64,
    /// Kernel events dropped because their socket was gone.
    pub stale_events: u64,
    /// Events that were handled in a later tick than they came in: its budget was spent.
    pub deferred: u64,
    /// Receives that found no buffer and were made again: of a ring.
    pub receive_starvations: u64,
    /// Sockets closed while the kernel still had operations on them: of a ring.
    pub abandoned: u64,
    /// Entries put into the submission queue: of a ring.
    pub submissions: u64,
    /// System calls that only made room in a full submission queue: of a ring.
    pub early_submits: u64,
    /// Spins before a sleep that met an event or a wake: see [`Driver::set_busy_poll`].
    pub spins_paid: u64,
    /// Spins after which the driver slept anyway, or that met their deadline.
    pub spins_vain: u64,
    /// Time spent in spins.
    pub spun_ns: u64,
    /// Sends of [`Driver::send_file`] that sent something.
    pub file_sends: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes handed to the kernel.
    pub sent_bytes: u64,
}

/// The I/O backend of one shard. All methods but [`Self::waker`]'s result stay on its thread.
///
/// Methods taking a [`SocketId`] ignore stale ids.
pub trait Driver: Sized {
    /// `epoll`, `uring`, `simulator`: for records and metrics.
    fn name(&self) -> &'static str;

    /// The kernel features it uses: for logs and metrics.
    fn features(&self) -> DriverFeatures {
        DriverFeatures::default()
    }

    /// Starts accepting from `listener`.
    fn listen(&mut self, listener: Listener) -> Result<(), IoError>;

    /// Holds at most `count` sockets that peers opened, including closing ones; no bound until it is called. At the
    /// bound the socket that has been closing for longest is ended; if none is, [`Event::AcceptFailed`] reports it and
    /// connections wait in the listener's queue until a socket closes.
    fn set_accepted_max(&mut self, count: usize);

    /// Takes the connections that already wait for acceptance (they arrive in the next tick),
    /// then closes the listener.
    fn stop_listening(&mut self);

    /// The peer of an accepted socket; `None`: it is gone.
    ///
    /// Not a part of [`Event::Accepted`], because a kernel that accepts by itself writes no addresses: it is read on
    /// demand, with one system call.
    fn peer(&self, socket: SocketId) -> Option<Peer>;

    /// Which address the peer of an accepted socket connected to; `None`: that is not known any more.
    /// One system call, too.
    fn destination(&self, socket: SocketId) -> Option<Peer>;

    /// Starts connecting. [`Event::Connected`] or [`Event::Failed`] follows in a later tick; an
    /// error here means that no socket exists. Sending may start at once.
    fn connect(&mut self, to: &Address) -> Result<SocketId, IoError> {
        self.connect_from(to, None)
    }

    /// As [`Self::connect`], from an address of this machine: a client has some 28,000 ports for each of its addresses.
    /// Simulated networks and unix sockets have no source.
    fn connect_from(&mut self, to: &Address, source: Option<IpAddr>) -> Result<SocketId, IoError>;

    /// As [`Self::connect`], with the TLS settings `client`. [`Event::Connected`] follows the handshake. Only a driver
    /// with TLS can: see [`crate::tls::Tls`].
    #[cfg(feature = "tls")]
    fn connect_tls(
        &mut self,
        _to: &Address,
        _client: &crate::tls::TlsClient,
    ) -> Result<SocketId, IoError> {
        Err(IoError::TlsUnavailable)
    }

    /// Sends `data` after all that was given before.
    fn send(&mut self, socket: SocketId, data: Buffer) -> SendOutcome;

    /// As [`Self::send`], for what comes before anything else on a socket that was connected, TLS
    /// included: the PROXY header.
    fn send_below_tls(&mut self, socket: SocketId, head: Buffer) -> SendOutcome {
        self.send(socket, head)
    }

    /// Sends a FIN behind all that was given before; nothing may be sent after it, and receiving goes
    /// on. [`SendOutcome::Blocked`]: bytes given before have not left, and no FIN was sent: again after
    /// [`Event::SendDrained`].
    fn finish_send(&mut self, socket: SocketId) -> SendOutcome;

    /// As [`Self::send`], for a caller that has more to write: where the kernel took all bytes at once, `data`
    /// is empty and keeps its room; else it is empty and holds no memory.
    #[inline]
    fn send_from(&mut self, socket: SocketId, data: &mut Buffer) -> SendOutcome {
        self.send(socket, std::mem::take(data))
    }

    /// Whether a send goes to the kernel in the call, and a socket has at most one [`Event::Received`] in each tick.
    /// Then its response may leave while that event is handled: waiting for the rest of the tick would save no send.
    #[inline]
    fn sends_at_once(&self) -> bool {
        false
    }

    /// Sends bytes of `file` from the page cache without a copy here, as many as the kernel takes at once, and returns
    /// how many.
    ///
    /// `None`: not here or not now, and nothing was sent. Bytes given before have not all left, some of the range are
    /// not in memory, the kernel is full, the socket has failed, or the driver does not support it. Then read the bytes
    /// and [`Self::send`] them, which reports all of these cases.
    fn send_file(
        &mut self,
        _socket: SocketId,
        _file: BorrowedFd<'_>,
        _range: Range<u64>,
    ) -> Option<u64> {
        None
    }

    /// The peer has ended its sending with a FIN that TLS did not announce (`close_notify`): something may be
    /// missing. Never so in plaintext.
    fn is_truncated(&mut self, _socket: SocketId) -> bool {
        false
    }

    /// No [`Event::Received`] or [`Event::PeerFinished`] until [`Self::resume_receive`]; the
    /// kernel's window then stops the peer.
    fn pause_receive(&mut self, socket: SocketId);

    /// Ends [`Self::pause_receive`].
    fn resume_receive(&mut self, socket: SocketId);

    /// Whether the peer has sent a FIN, even if [`Self::pause_receive`] delays its report. One system call.
    fn has_peer_finished(&self, socket: SocketId) -> bool;

    /// The last bytes held many requests, or came before the responses to earlier ones: they cost more than their
    /// length suggests. Until the client has sent a request and waited for its response again, the socket's events wait
    /// behind those of clients that do. Called before the responses are sent.
    fn deprioritize(&mut self, _socket: SocketId) {}

    /// Whether this tick deferred events that have happened, or may have: a socket waits its turn, or the kernel has
    /// more events. Once this is false for a whole tick, all events from before it are reported.
    fn has_events_left(&mut self) -> bool;

    /// Closes now; bytes not sent yet are dropped, but not those of sends that were [`SendOutcome::Done`] without a
    /// later [`Event::SendBlocked`]: the socket counts as closing while they go out. No event of this socket follows.
    fn close(&mut self, socket: SocketId);

    /// Closes now and takes back what the peer has not taken, by a reset: for a peer that does not read. After
    /// [`Self::close`] the kernel keeps such bytes and offers them again and again, for minutes: they
    /// hold memory that no limit of this process counts. No event of this socket follows.
    fn reset(&mut self, socket: SocketId);

    /// Sends what is queued and a FIN, reads and discards for a bounded time and amount until the
    /// peer finishes too, then closes: so a peer that is still sending can read the response, which
    /// a plain close would destroy by a reset. No event of this socket follows.
    ///
    /// When the peer's whole request was read, [`Self::close`] after [`SendOutcome::Done`] or
    /// [`Event::SendDrained`] is as safe and cheaper. A socket still connecting is closed at once.
    fn close_after_send(&mut self, socket: SocketId);

    /// Sockets alive, those of [`Self::closing_count`] included, the listener not.
    fn socket_count(&self) -> usize;

    /// Sockets that their owner has left and that are not closed yet: see
    /// [`Self::close_after_send`] and [`Self::close`].
    fn closing_count(&self) -> usize;

    /// Lets those of them that have sent all and wait for the peer's FIN wait for `allowed_ns` more at most, each from
    /// the first call that finds it waiting. A process that ends waits for them, and an idle peer may never close.
    fn shorten_lingering(&mut self, allowed_ns: u64);

    /// Wakes this driver's tick from any thread.
    fn waker(&self) -> Waker;

    /// Before a wait sleeps, polls for events for up to `limit_ns`, while that pays; 0, the default: never. It saves
    /// the time to wake a thread, at the price of a CPU that does nothing else meanwhile. A driver with simulated time
    /// ignores it.
    fn set_busy_poll(&mut self, _limit_ns: u64) {}

    /// Has the kernel stamp when bytes arrive on sockets connected from now on, and takes the stamp
    /// of one receive in `every` along; 0, as at the beginning: of none. False: this driver cannot.
    fn stamp_receives(&mut self, _every: u32) -> bool {
        false
    }

    /// When the kernel had the last of the bytes of the [`Event::Received`] being handled, on the
    /// clock of [`Self::now_ns`]; `None` if this receive was not to take its stamp along, or had none.
    fn received_at_ns(&self) -> Option<u64> {
        None
    }

    /// The time when the last wait ended; the time of the events being handled.
    fn now_ns(&self) -> u64;

    /// This moment on the clock that [`Self::now_ns`] and the deadlines go by: the kernel's
    /// monotonic one, unless the driver simulates time.
    #[inline]
    fn clock_ns(&self) -> u64 {
        monotonic_ns()
    }

    /// Waits until something happens, at most until `deadline_ns` (absolute; `None`: no limit; past: does not wait),
    /// calls `handler` for each event and returns.
    ///
    /// An error here is the end of the driver, never that of one socket.
    fn tick<H>(
        &mut self,
        deadline_ns: Option<u64>,
        pools: &mut ShardPools,
        handler: H,
    ) -> Result<(), IoError>
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>);

    /// Work done so far.
    fn counters(&self) -> DriverCounters;

    /// When the handshake of a connection that this driver opened began, of a driver with TLS: the TCP connection was
    /// open then.
    #[cfg(feature = "tls")]
    fn handshake_began_ns(&self, _socket: SocketId) -> Option<u64> {
        None
    }

    /// Why the socket of the current [`Event::Failed`] failed, if TLS ended it.
    #[cfg(feature = "tls")]
    fn tls_failure(&self, _socket: SocketId) -> Option<crate::tls::TlsFailure> {
        None
    }

    /// Results of handshakes, of a driver with TLS.
    #[cfg(feature = "tls")]
    fn tls_counters(&self) -> Option<crate::tls::TlsCounters> {
        None
    }

    /// Results of PROXY headers, of a driver that awaits them.
    fn proxy_head_counters(&self) -> Option<ProxyHeadCounters> {
        None
    }

    /// Gives back half of what the driver's own pools left unused since the last call; returns how
    /// many bytes that were. About once a second.
    fn trim_pools(&mut self) -> usize;

    /// Calls `visit` with the accounting of each pool the driver owns itself.
    fn visit_pool_stats(&self, visit: &mut dyn FnMut(PoolStats));
}
