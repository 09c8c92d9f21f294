//! The start of an accepted socket: the PROXY header.
//!
//! A socket that is accepted is kept here until its head is whole; then it is accepted like others, and the bytes after
//! the header are its first ones. A socket without a header is never reported to its owner.
//!
//! Clients that use the protocol do not need one, and all others were not to come here.

use millpond_mempool::{BlockPool, Buffer, Handle, PoolMode, Slab};

use crate::driver::{Driver, SocketId};
use crate::proxy_protocol::{
    Ends, PROXY_HEAD_BYTES_MAX, ProxyHeadCounters, ProxyHeadFailure, parse_proxy_head,
};
use crate::timer_wheel::TimerId;

use super::layer::Layer;

/// How long a header may still take once no sockets are accepted: bytes already sent have arrived by then.
const LAST_HEADS_NS: u64 = 1_000_000_000;

/// One accepted socket without its head.
pub(super) struct Nameless {
    socket: SocketId,
    /// The beginning of the head; empty as long as nothing came.
    received: Buffer,
    deadline: TimerId,
    deadline_ns: u64,
}

/// Sockets that wait for their PROXY header.
pub(super) struct Awaited {
    /// From accept until the head is whole, and until a handshake behind it is over.
    timeout_ns: u64,
    count_max: usize,
    nameless: Slab<Nameless>,
    by_slot: Vec<Option<Handle<Nameless>>>,
    /// Contents of headers, by slot; with the socket they belong to.
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

    /// Content of a socket's header.
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

/// Result of received bytes.
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

    /// Bytes of a socket whose header is awaited. False: it is not such a socket.
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

    /// Forgets a socket whose header will not come. False: it is not such a socket.
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

    /// No sockets are accepted any more: those here have a short time left.
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
