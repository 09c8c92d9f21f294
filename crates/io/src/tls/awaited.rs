//! What comes before anything else on an accepted socket: the PROXY header.
//!
//! A socket that is accepted is kept here until its head is whole; then it is accepted as others
//! are, and what came behind the head is its first bytes. Its owner never hears of one whose head
//! does not come.
//!
//! Clients that know the protocol do not need one, and all others were not to come here.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::{fmt, io};

use millpond_mempool::{BlockPool, Buffer, Handle, PoolMode, Slab};
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::UnbufferedStatus;
use rustls::{ClientConnection, HandshakeKind, ProtocolVersion, StreamOwned};

use crate::driver::{Driver, SocketId};
use crate::proxy_protocol::{
    Ends, PROXY_HEAD_BYTES_MAX, ProxyHeadCounters, ProxyHeadFailure, parse_proxy_head,
};
use crate::timer_wheel::TimerId;

use super::client::TlsClient;
use super::layer::Layer;

/// How long a head may still take once nobody new is accepted: what was sent is here by then.
const LAST_HEADS_NS: u64 = 1_000_000_000;

/// One accepted socket without its head.
pub(super) struct Nameless {
    socket: SocketId,
    /// The beginning of the head; empty as long as nothing came.
    received: Buffer,
    deadline: TimerId,
    deadline_ns: u64,
}

/// See the module.
pub(super) struct Awaited {
    /// From accept until the head is whole, and until a handshake behind it is over.
    timeout_ns: u64,
    count_max: usize,
    nameless: Slab<Nameless>,
    by_slot: Vec<Option<Handle<Nameless>>>,
    /// What heads told, by slot; of the socket that is named with it.
    told: Vec<Option<(SocketId, Ends)>>,
    is_ending: bool,
    pub(super) counters: ProxyHeadCounters,
}

impl Awaited {
    pub(super) fn new(timeout_ns: u64, count_max: usize, mode: PoolMode) -> Self {
        Self {
            timeout_ns,
            count_max,
            nameless: Slab::new("proxy_heads", mode),
            by_slot: Vec::new(),
            told: Vec::new(),
            is_ending: false,
            counters: ProxyHeadCounters::default(),
        }
    }

    /// What the head of a socket told.
    pub(super) fn ends(&self, socket: SocketId) -> Option<Ends> {
        let (of, ends) = (*self.told.get(socket.slot())?)?;
        (of == socket).then_some(ends)
    }

    /// Sockets that must be heard of before a driver may be left that no longer listens.
    pub(super) fn ending_count(&self) -> usize {
        match self.is_ending {
            true => self.counters.awaited as usize,
            false => 0,
        }
    }

    pub(super) fn nameless(&self) -> &Slab<Nameless> {
        &self.nameless
    }

    pub(super) fn trim(&mut self) -> usize {
        if self.counters.awaited == 0 {
            self.by_slot.clear();
            self.by_slot.shrink_to(super::layer::KEPT_COUNT);
        }
        self.nameless.trim()
    }

    fn find(&self, socket: SocketId) -> Option<Handle<Nameless>> {
        let handle = (*self.by_slot.get(socket.slot())?)?;
        (self.nameless.get(handle)?.socket == socket).then_some(handle)
    }

    fn insert(&mut self, nameless: Nameless) -> bool {
        let slot = nameless.socket.slot();
        let Ok(handle) = self.nameless.insert(nameless) else {
            return false;
        };
        if slot >= self.by_slot.len() {
            self.by_slot.resize(slot + 1, None);
        }
        self.by_slot[slot] = Some(handle);
        self.counters.awaited += 1;
        true
    }

    fn remove(&mut self, socket: SocketId) -> Option<Nameless> {
        let handle = self.find(socket)?;
        self.by_slot[socket.slot()] = None;
        self.counters.awaited -= 1;
        self.nameless.remove(handle)
    }

    fn remember(&mut self, socket: SocketId, ends: Option<Ends>) {
        let slot = socket.slot();
        if slot >= self.told.len() {
            self.told.resize(slot + 1, None);
        }
        self.told[slot] = ends.map(|ends| (socket, ends));
    }
}

/// What bytes have led to.
enum Taken {
    /// The head is not whole.
    Part,
    /// So many of the bytes given were the head's.
    Whole(usize),
}

/// Reads on behind what was received before.
fn take_in(
    awaited: &mut Awaited,
    blocks: &BlockPool,
    handle: Handle<Nameless>,
    bytes: &[u8],
) -> Result<Taken, ProxyHeadFailure> {
    let Some(nameless) = awaited.nameless.get_mut(handle) else {
        return Ok(Taken::Part);
    };
    let before_bytes = nameless.received.len();
    // Most heads come whole, and need not be kept.
    let head = match before_bytes {
        0 => parse_proxy_head(bytes)?,
        _ => {
            let room_bytes = PROXY_HEAD_BYTES_MAX.saturating_sub(before_bytes);
            let part = &bytes[..bytes.len().min(room_bytes)];
            let kept = nameless.received.extend_from_slice(blocks, part);
            kept.map_err(|_| ProxyHeadFailure::Memory)?;
            parse_proxy_head(&nameless.received)?
        }
    };
    let Some(head) = head else {
        if before_bytes == 0 {
            let kept = nameless.received.extend_from_slice(blocks, bytes);
            kept.map_err(|_| ProxyHeadFailure::Memory)?;
        }
        return Ok(Taken::Part);
    };
    let socket = nameless.socket;
    awaited.counters.took(&head);
    awaited.remember(socket, head.ends);
    Ok(Taken::Whole(head.head_bytes - before_bytes))
}

impl Layer {
    /// A socket was accepted: its head first, if heads are awaited.
    pub(super) fn welcome<D: Driver>(&mut self, inner: &mut D, socket: SocketId) {
        let now_ns = inner.now_ns();
        let Some(awaited) = &mut self.awaited else {
            return self.accept(inner, socket, None);
        };
        if awaited.counters.awaited as usize >= awaited.count_max {
            awaited.counters.refused[ProxyHeadFailure::Crowded as usize] += 1;
            return inner.close(socket);
        }
        let allowed_ns = match awaited.is_ending {
            true => LAST_HEADS_NS.min(awaited.timeout_ns),
            false => awaited.timeout_ns,
        };
        let deadline_ns = now_ns.saturating_add(allowed_ns);
        let deadline = self.deadlines.create(socket.to_bits());
        self.deadlines.set(deadline, deadline_ns);
        let nameless = Nameless {
            socket,
            received: Buffer::new(),
            deadline,
            deadline_ns,
        };
        if !awaited.insert(nameless) {
            self.deadlines.remove(deadline);
            awaited.counters.refused[ProxyHeadFailure::Memory as usize] += 1;
            inner.close(socket);
        }
    }

    /// Bytes of a socket whose head is awaited. False: it is none of those.
    #[inline]
    pub(super) fn takes_head<D: Driver>(
        &mut self,
        inner: &mut D,
        socket: SocketId,
        bytes: &[u8],
    ) -> bool {
        let Some(awaited) = self.awaited.as_deref_mut() else {
            return false;
        };
        let Some(handle) = awaited.find(socket) else {
            return false;
        };
        match take_in(awaited, &self.blocks, handle, bytes) {
            Ok(Taken::Part) => {}
            Ok(Taken::Whole(head_bytes)) => {
                if let Some(nameless) = awaited.remove(socket) {
                    self.deadlines.remove(nameless.deadline);
                    self.accept(inner, socket, Some(nameless.deadline_ns));
                }
                if head_bytes < bytes.len() {
                    self.note_received(inner, socket, &bytes[head_bytes..]);
                }
            }
            Err(failure) => {
                self.refuse_head(socket, failure);
                inner.close(socket);
            }
        }
        true
    }

    /// Forgets a socket whose head will not come. False: it is none of those.
    pub(super) fn refuse_head(&mut self, socket: SocketId, failure: ProxyHeadFailure) -> bool {
        let Some(awaited) = self.awaited.as_deref_mut() else {
            return false;
        };
        let Some(nameless) = awaited.remove(socket) else {
            return false;
        };
        self.deadlines.remove(nameless.deadline);
        awaited.counters.refused[failure as usize] += 1;
        true
    }

    /// Nothing new is accepted: what is here has a moment left.
    pub(super) fn hurry_heads(&mut self, now_ns: u64) {
        let Some(awaited) = self.awaited.as_deref_mut() else {
            return;
        };
        awaited.is_ending = true;
        let until_ns = now_ns.saturating_add(LAST_HEADS_NS);
        for handle in awaited.by_slot.iter().flatten() {
            if let Some(nameless) = awaited.nameless.get_mut(*handle) {
                nameless.deadline_ns = nameless.deadline_ns.min(until_ns);
                self.deadlines.set(nameless.deadline, nameless.deadline_ns);
            }
        }
    }
}

// TLS over one blocking socket: for commands that ask one request after another and wait for each response.
//
// Records and buffers are rustls's own here: nothing of it is on a shard.

/// A connection whose handshake is over. What it waits for is bounded by the socket's timeouts.
pub struct BlockingTls(StreamOwned<ClientConnection, TcpStream>);

impl TlsClient {
    /// Speaks TLS on a blocking socket, from the handshake on, which is done here.
    ///
    /// # Errors
    /// The socket's; or [`io::ErrorKind::InvalidData`], where the peer's certificate is not trusted or it speaks no TLS.
    pub fn over(&self, mut socket: TcpStream) -> io::Result<BlockingTls> {
        let connection = ClientConnection::new(self.config(), self.name());
        let mut connection = connection.map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        Ok(BlockingTls(StreamOwned::new(connection, socket)))
    }
}

impl Read for BlockingTls {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes)
    }
}

impl Write for BlockingTls {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl fmt::Debug for BlockingTls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("BlockingTls");
        fields.field("socket", &self.0.sock).finish_non_exhaustive()
    }
}

// The two sides that a connection can take, and what is the same for both.

/// One connection's records, by which side we are.
#[expect(
    clippy::large_enum_variant,
    reason = "a server has thousands, and takes them without a heap call of its own"
)]
pub(super) enum Records {
    Server(UnbufferedServerConnection),
    Client(Box<UnbufferedClientConnection>),
}

/// What rustls keeps with a connection of one side.
pub(super) trait Side {
    type Data;

    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data>;

    fn has_to_write(&self) -> bool;
}

impl Side for UnbufferedServerConnection {
    type Data = rustls::server::ServerConnectionData;

    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }

    fn has_to_write(&self) -> bool {
        self.wants_write()
    }
}

impl Side for UnbufferedClientConnection {
    type Data = rustls::client::ClientConnectionData;

    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }

    fn has_to_write(&self) -> bool {
        self.wants_write()
    }
}

impl Records {
    pub(super) fn is_handshaking(&self) -> bool {
        match self {
            Self::Server(records) => records.is_handshaking(),
            Self::Client(records) => records.is_handshaking(),
        }
    }

    pub(super) fn protocol_version(&self) -> Option<ProtocolVersion> {
        match self {
            Self::Server(records) => records.protocol_version(),
            Self::Client(records) => records.protocol_version(),
        }
    }

    pub(super) fn handshake_kind(&self) -> Option<HandshakeKind> {
        match self {
            Self::Server(records) => records.handshake_kind(),
            Self::Client(records) => records.handshake_kind(),
        }
    }
}
