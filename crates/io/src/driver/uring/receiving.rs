//! Receives: into whichever buffer comes next, once or again and again; pauses.
//!
//! The first receive of a connection ends with its first bytes: many connections send one message and close. From the
//! second on it is multishot.
//!
//! A pause costs nothing until bytes arrive during it: those are copied and held, and the submission is cancelled. From
//! then on only a failure is watched for. Held bytes come before all others when receiving goes on. A multishot
//! submission may fill all receive buffers before its end, for each socket; so one that brought more than a receive
//! during a pause receives one by one from then on, and holds one receive at most, until its peer has sent short
//! messages for a while.
//!
//! A multishot submission receives everything available, and uses all buffers for it. So a socket that finds none waits
//! for a turn, first come, first served; a turn is one receive of bounded length, and a socket with more bytes waits
//! for the next one. Once all bytes are taken, it is multishot again.
//!
//! Bytes that come when the tick's budget for their kind is spent (see `scheduler`) are deferred: held as during a
//! pause, and delivered in later ticks.

#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;
use io_uring::{cqueue, opcode, types};
use millpond_mempool::{Buffer, BufferPool, Lease};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::driver::features::{DriverFeature, DriverFeatures};
use crate::driver::lifecycle::{IsMoreLeft, Receiving, SocketDriver, Stage, perform};
use crate::op::pending_error;
use crate::op::{Received, receive_now};
use crate::pools::ShardPools;
use crate::scheduler::{RECEIVES_BYTES, Work};

use super::probe::{receive_on_entry, receive_once_entry};
use super::ring::{Operation, Ring};
use super::{Event, ReceiveOperation, SocketId, UringDriver, handle_of};

/// Held bytes are copied into blocks of at most this size: larger ones come from malloc.
const HELD_PIECE_BYTES: usize = 32 << 10;

/// After a socket held more than one receive, so many short messages come one by one before a submission is multishot
/// again: a client that uploads bodies sends the heads of other requests in between.
const SINGLE_RECEIVES: u8 = 64;

/// A receive of fewer bytes that left nothing behind is a message's.
const LONG_BYTES_MIN: usize = 4 << 10;

/// A socket's place in the queue for turns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum QueueEnd {
    Last,
    /// It found no buffer in its turn.
    Next,
}

impl UringDriver {
    /// Starts receiving where that is wanted and nothing receives yet.
    pub(super) fn arm_receive(&mut self, id: SocketId) {
        let is_multishot_known = self.features.has(DriverFeature::MultishotReceive);
        let Some(socket) = self.sockets.get_mut(handle_of(id)) else {
            return;
        };
        let is_wanted = match socket.life.stage() {
            Stage::Open => {
                socket.life.receiving() == Receiving::On
                    && socket.held.is_empty()
                    && !socket.has_held_finish
            }
            _ => socket.life.discards(),
        };
        if !is_wanted || socket.receive != ReceiveOperation::None {
            return;
        }
        // A peer that sends much takes all buffers, and all the time to defer it, if nothing bounds it.
        let is_flooding =
            socket.life.stage() == Stage::Open && socket.is_lasting && socket.usage.is_bulk();
        if is_flooding && self.scheduler.is_protecting() {
            return self.wait_for_turn(id, QueueEnd::Last);
        }
        let goes_on = socket.is_lasting && socket.single_receives == 0;
        let entry = if goes_on && is_multishot_known {
            socket.receive = ReceiveOperation::Multishot;
            receive_on_entry(socket.raw_fd())
        } else {
            socket.receive = ReceiveOperation::Once;
            receive_once_entry(socket.raw_fd(), 0)
        };
        // SAFETY: the entry points to no memory; its buffers come from the registered table.
        unsafe { self.ring.push(&entry.user_data(Operation::Receive.on(id))) };
    }

    /// Lets those receive that have waited longest, all together no more than a tick's share, which
    /// leaves buffers for clients that do not flood.
    pub(super) fn give_turns(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let bytes = self.waiting.receive_bytes();
        let mut left_bytes = RECEIVES_BYTES;
        while left_bytes > 0
            && let Some(id) = self.waiting.pop(&mut self.scheduler)
        {
            left_bytes = left_bytes.saturating_sub(self.arm_turn(id, bytes));
        }
    }

    /// Returns how much the socket may receive, which is counted whether or not it still can.
    fn arm_turn(&mut self, id: SocketId, bytes: usize) -> usize {
        let Some(socket) = self.sockets.get_mut(handle_of(id)) else {
            return bytes;
        };
        let bytes = socket.usage.receive_bytes(bytes);
        if socket.receive != ReceiveOperation::Waiting {
            return bytes;
        }
        if socket.life.stage() != Stage::Open || socket.life.receiving() != Receiving::On {
            socket.receive = ReceiveOperation::None;
            self.after_receive(id);
            return bytes;
        }
        socket.receive = ReceiveOperation::Turn;
        #[expect(clippy::cast_possible_truncation, reason = "at most a buffer")]
        let entry = receive_once_entry(socket.raw_fd(), bytes as u32);
        // SAFETY: the entry points to no memory; its buffers come from the registered table.
        unsafe { self.ring.push(&entry.user_data(Operation::Receive.on(id))) };
        bytes
    }

    /// Queues a socket that has more to receive than it got.
    #[cold]
    fn wait_for_turn(&mut self, id: SocketId, place: QueueEnd) {
        if let Some(socket) = self.sockets.get_mut(handle_of(id))
            && socket.receive == ReceiveOperation::None
        {
            socket.receive = ReceiveOperation::Waiting;
            match place {
                QueueEnd::Last => self.waiting.push(id, socket.usage),
                QueueEnd::Next => self.waiting.push_again(id, socket.usage),
            }
        }
    }

    /// Makes the kernel report failures of a socket without a receive: from the end of the tick on, since most that
    /// finished are closed by then.
    fn watch(&mut self, id: SocketId) {
        self.unwatched.push(id);
    }

    /// Submits the watches that [`Self::watch`] requested in this tick.
    pub(super) fn arm_watches(&mut self) {
        while let Some(id) = self.unwatched.pop() {
            self.arm_watch(id);
        }
    }

    fn arm_watch(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(handle_of(id)) else {
            return;
        };
        let is_heard = socket.has_watch || socket.has_receive();
        if socket.life.stage() != Stage::Open
            || is_heard
            || socket.life.receiving() == Receiving::On
        {
            return;
        }
        socket.has_watch = true;
        // Errors and hang-ups are always reported, and so is a FIN, which is there to stay and
        // would end a poll that is reported once (epoll can do without). This one goes on, and
        // reports changes.
        let entry = opcode::PollAdd::new(types::Fd(socket.raw_fd()), 0)
            .multi(true)
            .build()
            .user_data(Operation::Watch.on(id));
        self.counters.controls += 1;
        // SAFETY: the entry points to no memory.
        unsafe { self.ring.push(&entry) };
    }

    #[inline]
    pub(super) fn receive_completed<H>(
        &mut self,
        id: SocketId,
        completion: &cqueue::Entry,
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        // First of all: a buffer that came with it must go back, whatever becomes of its bytes.
        let bytes = self.buffers.received(completion);
        let result = completion.result();
        let Some(socket) = self.sockets.get_mut(handle_of(id)) else {
            self.counters.stale_events += 1;
            return;
        };
        let was_turn = socket.receive == ReceiveOperation::Turn;
        if !cqueue::more(completion.flags()) {
            socket.receive = ReceiveOperation::None;
        }
        let stage = socket.life.stage();
        match bytes {
            Some(bytes) if result > 0 => {
                self.counters.receives += 1;
                self.counters.received_bytes += bytes.len() as u64;
                socket.is_lasting = true;
                if bytes.len() < LONG_BYTES_MIN && !cqueue::sock_nonempty(completion.flags()) {
                    socket.single_receives = socket.single_receives.saturating_sub(1);
                }
                let is_wanted = socket.life.receiving() == Receiving::On && socket.held.is_empty();
                match stage {
                    Stage::Open if is_wanted => {
                        // A turn was admitted when it was asked for.
                        if !was_turn && !self.scheduler.is_prompt(socket.usage) {
                            let work = socket.usage.work();
                            if !self.resumed.is_empty() || !self.scheduler.admits(work) {
                                self.hold(id, bytes, pools);
                                return self.defer(id);
                            }
                        }
                        socket.usage.received(bytes.len());
                        handler(self, pools, Event::Received { socket: id, bytes });
                    }
                    Stage::Open => self.hold(id, bytes, pools),
                    Stage::Sending | Stage::Lingering => {
                        let step = socket.life.discarded(bytes.len());
                        perform(self, id, step);
                    }
                    Stage::Failing(_) if socket.life.has_last_bytes() => {
                        self.report_last(id, bytes, pools, handler);
                    }
                    _ => self.counters.stale_events += 1,
                }
            }
            _ if result == 0 => match stage {
                Stage::Open => self.finish_arrived(id, pools, handler),
                Stage::Sending | Stage::Lingering => {
                    let step = socket.life.peer_finished();
                    perform(self, id, step);
                }
                _ => {}
            },
            _ => {
                let place = if was_turn {
                    QueueEnd::Next
                } else {
                    QueueEnd::Last
                };
                let error = Errno::from_raw_os_error(-result);
                self.receive_failed(id, (error, place), pools, handler);
            }
        }
        // Without submissions that go on each receive is a turn: asked again at once, sockets that
        // flood would share the buffers among themselves.
        if cqueue::sock_nonempty(completion.flags())
            && (was_turn || !self.features.has(DriverFeature::MultishotReceive))
        {
            self.wait_for_turn(id, QueueEnd::Last);
        }
        self.after_receive(id);
    }

    /// An operation of the socket came back: start the next one, or let go of what was abandoned.
    #[inline]
    fn after_receive(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(handle_of(id)) else {
            return;
        };
        match socket.life.stage() {
            Stage::Closed => self.release_in_turn(id),
            // It waited for this operation to be reported.
            Stage::Failing(_) if socket.receive == ReceiveOperation::None => {
                self.failing.push_back(id);
            }
            Stage::Open if socket.life.receiving() != Receiving::On => self.quiet(id),
            _ if socket.receive == ReceiveOperation::None => self.arm_receive(id),
            // It is multishot.
            _ => {}
        }
    }

    /// Receiving is paused: cancel the receive, and watch for failures instead.
    #[cold]
    fn quiet(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(handle_of(id)) else {
            return;
        };
        // A pause without bytes stays as it is.
        if socket.receive == ReceiveOperation::Multishot && !socket.held.is_empty() {
            socket.receive = ReceiveOperation::Cancelled;
            return self.cancel(Operation::Receive.on(id));
        }
        self.watch(id);
    }

    /// Keeps bytes that cannot be delivered now.
    #[cold]
    fn hold(&mut self, id: SocketId, bytes: &[u8], pools: &ShardPools) {
        let Self {
            sockets, queued, ..
        } = self;
        let Some(socket) = sockets.get_mut(handle_of(id)) else {
            return;
        };
        if !socket.held.is_empty() {
            socket.single_receives = SINGLE_RECEIVES;
        }
        for piece in bytes.chunks(HELD_PIECE_BYTES) {
            let mut copy = Buffer::new();
            let copied = copy.extend_from_slice(&pools.blocks, piece);
            if copied
                .and_then(|()| socket.held.push(queued, copy))
                .is_err()
            {
                return self.fail_later(id, Errno::NOMEM);
            }
        }
    }

    /// Delivers the bytes that had arrived when a send failed: held ones, or one receive. The receive in flight is
    /// cancelled first, and its end puts the socket back into the queue of failing ones. Without memory for a receive
    /// only the failure is reported.
    #[cold]
    pub(super) fn receive_last<H>(
        &mut self,
        id: SocketId,
        pools: &mut ShardPools,
        handler: &mut H,
    ) -> IsMoreLeft
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        let Self {
            sockets, queued, ..
        } = self;
        let Some(socket) = sockets
            .get_mut(handle_of(id))
            .filter(|socket| socket.life.has_last_bytes())
        else {
            return IsMoreLeft::No;
        };
        if let Some(bytes) = socket.held.pop(queued) {
            self.failing.push_back(id);
            self.report_last(id, &bytes, pools, handler);
            return IsMoreLeft::Yes;
        }
        if socket.has_receive() {
            if socket.receive != ReceiveOperation::Cancelled {
                socket.receive = ReceiveOperation::Cancelled;
                self.cancel(Operation::Receive.on(id));
            }
            return IsMoreLeft::Yes;
        }
        // It may still be in the queue for turns.
        socket.receive = ReceiveOperation::None;
        let Ok(mut buffer) = pools.io_buffers.lease() else {
            return IsMoreLeft::No;
        };
        let turn_bytes = buffer.capacity();
        let Received::Bytes(count) = receive_now(socket.fd(), &mut buffer, turn_bytes) else {
            return IsMoreLeft::No;
        };
        self.failing.push_back(id);
        self.counters.receives += 1;
        self.counters.received_bytes += count as u64;
        self.report_last(id, &buffer, pools, handler);
        IsMoreLeft::Yes
    }

    fn report_last<H>(
        &mut self,
        id: SocketId,
        bytes: &[u8],
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        handler(self, pools, Event::Received { socket: id, bytes });
    }

    fn finish_arrived<H>(&mut self, id: SocketId, pools: &mut ShardPools, handler: &mut H)
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        let Some(socket) = self.sockets.get_mut(handle_of(id)) else {
            return;
        };
        let is_wanted = socket.life.receiving() == Receiving::On && socket.held.is_empty();
        if is_wanted && self.scheduler.admits_end(socket.usage, Work::End) {
            let step = socket.life.peer_finished();
            perform(self, id, step);
            return handler(self, pools, Event::PeerFinished { socket: id });
        }
        socket.has_held_finish = true;
        if is_wanted {
            self.defer(id);
        }
    }

    /// Something of it is held now, until it has its turn.
    #[cold]
    fn defer(&mut self, id: SocketId) {
        self.counters.deferred += 1;
        self.resumed.push(id);
        if let Some(socket) = self.sockets.get_mut(handle_of(id))
            && socket.receive == ReceiveOperation::Multishot
        {
            // More of it would only be held as well.
            socket.receive = ReceiveOperation::Cancelled;
            self.cancel(Operation::Receive.on(id));
        }
    }

    #[cold]
    fn receive_failed<H>(
        &mut self,
        id: SocketId,
        (error, place): (Errno, QueueEnd),
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        let Some(socket) = self.sockets.get_mut(handle_of(id)) else {
            return;
        };
        match error {
            // The next tick has buffers again.
            Errno::NOBUFS => {
                self.counters.receive_starvations += 1;
                self.wait_for_turn(id, place);
            }
            // We cancelled it, or it must simply be asked again.
            Errno::CANCELED | Errno::AGAIN | Errno::INTR => {}
            error => match socket.life.stage() {
                Stage::Open => self.fail_in_turn(id, error, pools, handler),
                Stage::Sending | Stage::Lingering => self.remove(id),
                _ => {}
            },
        }
    }

    pub(super) fn pause(&mut self, id: SocketId) {
        if let Some(socket) = self.known(id)
            && socket.life.pause()
        {
            // A receive in flight reports a failure; without one a watch is needed.
            if socket.receive == ReceiveOperation::None {
                self.watch(id);
            }
        }
    }

    pub(super) fn resume(&mut self, id: SocketId) {
        let Some(socket) = self.known(id) else {
            return;
        };
        if !socket.life.resume() {
            return;
        }
        if socket.held.is_empty() && !socket.has_held_finish {
            self.arm_receive(id);
        } else {
            self.resumed.push(id);
        }
    }

    /// Hands out what was held of sockets that receive again, or have their turn now.
    pub(super) fn deliver_held<H>(&mut self, pools: &mut ShardPools, handler: &mut H)
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        // Those that handlers resume meanwhile wait for the next tick, in the same vector.
        let waiting = self.resumed.len();
        let mut count = 0;
        while count < waiting {
            let id = self.resumed[count];
            let usage = self.known(id).map(|socket| socket.usage);
            // Closed meanwhile, those cost nothing.
            if usage.is_some_and(|usage| !self.scheduler.admits_end(usage, usage.work())) {
                break;
            }
            count += 1;
            while let Some(bytes) = self.next_held(id) {
                let event = Event::Received {
                    socket: id,
                    bytes: &bytes,
                };
                handler(self, pools, event);
            }
            if let Some(socket) = self.known(id)
                && socket.life.receiving() == Receiving::On
                && socket.held.is_empty()
                && std::mem::take(&mut socket.has_held_finish)
            {
                let step = socket.life.peer_finished();
                perform(self, id, step);
                handler(self, pools, Event::PeerFinished { socket: id });
            }
            self.after_receive(id);
        }
        self.resumed.drain(..count);
    }

    fn next_held(&mut self, id: SocketId) -> Option<Buffer> {
        let Self {
            sockets, queued, ..
        } = self;
        let socket = sockets.get_mut(handle_of(id))?;
        if socket.life.stage() != Stage::Open || socket.life.receiving() != Receiving::On {
            return None;
        }
        let bytes = socket.held.pop(queued)?;
        socket.usage.received(bytes.len());
        Some(bytes)
    }

    /// A socket without a receive failed, or hung up, or its peer finished.
    pub(super) fn watch_completed<H>(
        &mut self,
        id: SocketId,
        completion: &cqueue::Entry,
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        let Some(socket) = self.sockets.get_mut(handle_of(id)) else {
            self.counters.stale_events += 1;
            return;
        };
        socket.has_watch = cqueue::more(completion.flags());
        if socket.life.stage() == Stage::Closed {
            return self.release_in_turn(id);
        }
        let is_over =
            completion.result() > 0 && completion.result() & (libc::EPOLLERR | libc::EPOLLHUP) != 0;
        // While it receives, the receive reports it, after the bytes.
        if !is_over
            || socket.life.stage() != Stage::Open
            || socket.life.receiving() == Receiving::On
        {
            return;
        }
        let is_send_finished = socket.is_send_finished;
        match (pending_error(socket.fd()), socket.life.receiving()) {
            (Some(error), _) => self.fail_in_turn(id, error, pools, handler),
            // Hung up after the FIN was reported: sending cannot work any more either.
            (None, Receiving::Finished) if !is_send_finished => {
                self.fail_in_turn(id, Errno::PIPE, pools, handler);
            }
            // A unix peer closed; its last bytes and the FIN come when they are wanted.
            (None, _) => {}
        }
    }
}

// The buffers the kernel receives into: leases of the shard's pool, offered through a ring.
//
// ```text
// pool --lease--> offered --completion--> bytes of an event --end of tick--> offered again
// ```
// A lease is cut into pieces. With incremental buffers a piece is a whole lease, which the kernel
// fills receive after receive; `filled_bytes` is where the next one begins. Otherwise a piece
// takes one receive, so pieces are small.
//
// Invariant: a piece is either offered to the kernel, or on `consumed` until the tick ends. Bytes of an event stay
// unchanged until then: their piece is not offered before.

/// The group all receives of a ring take their buffers from.
pub(super) const GROUP: u16 = 0;

/// Bytes of a piece where one takes one receive: most requests are smaller, and larger ones come
/// in several.
const PLAIN_PIECE_BYTES: usize = 4 << 10;

/// Leases kept with the kernel: 512 KiB with the shard's 64 KiB buffers.
const LEASES_MAX: usize = 8;

const _: () = assert!(LEASES_MAX.is_power_of_two() && PLAIN_PIECE_BYTES.is_power_of_two());

/// `IOU_PBUF_RING_INC`.
const INCREMENTAL: u16 = 2;

/// A table of buffers shared with the kernel.
pub(super) struct ReceiveBuffers {
    table: NonNull<BufRingEntry>,
    table_bytes: usize,
    entry_count: u16,
    is_incremental: bool,
    is_registered: bool,
    /// Pieces offered since the start, modulo 2^16; the kernel reads it.
    tail: u16,
    leases: Vec<Lease>,
    /// Where each lease begins.
    starts: [*mut u8; LEASES_MAX],
    piece_bytes: usize,
    /// A lease is cut into 2 to the power of this many pieces.
    pieces_shift: u32,
    /// Of an incremental piece, how much has been received into it.
    filled_bytes: Vec<u32>,
    /// Pieces to be offered again when the tick ends.
    consumed: Vec<u16>,
}

impl ReceiveBuffers {
    /// A table without buffers, for leases of `lease_bytes`.
    pub(super) fn new(features: DriverFeatures, lease_bytes: usize) -> Result<Self, Errno> {
        let is_incremental = features.has(DriverFeature::IncrementalBuffers);
        let piece_bytes = if is_incremental {
            lease_bytes
        } else {
            PLAIN_PIECE_BYTES.min(lease_bytes)
        };
        let pieces_shift = (lease_bytes / piece_bytes).ilog2();
        let entry_count = u16::try_from(LEASES_MAX << pieces_shift).map_err(|_| Errno::INVAL)?;
        let page_bytes = rustix::param::page_size();
        let table_bytes =
            (usize::from(entry_count) * size_of::<BufRingEntry>()).next_multiple_of(page_bytes);
        // SAFETY: a new private mapping, which overlaps nothing.
        let table = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                table_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        Ok(Self {
            table: NonNull::new(table.cast()).ok_or(Errno::NOMEM)?,
            table_bytes,
            entry_count,
            is_incremental,
            is_registered: false,
            tail: 0,
            leases: Vec::with_capacity(LEASES_MAX),
            starts: [std::ptr::null_mut(); LEASES_MAX],
            piece_bytes,
            pieces_shift,
            filled_bytes: vec![0; usize::from(entry_count)],
            consumed: Vec::with_capacity(usize::from(entry_count)),
        })
    }

    /// Whether receives can find a buffer.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        self.is_registered && !self.leases.is_empty()
    }

    /// Registers the table with the kernel and leases the missing pieces. Pieces that the pool refuses are requested
    /// again by the next call.
    pub(super) fn provide(&mut self, ring: &Ring, pool: &BufferPool) -> Result<(), Errno> {
        if !self.is_registered {
            self.register(ring)?;
        }
        while self.leases.len() < LEASES_MAX {
            let Ok(mut lease) = pool.lease() else { break };
            let number = self.leases.len();
            let first = number << self.pieces_shift;
            assert!(lease.capacity() >= self.piece_bytes << self.pieces_shift);
            self.starts[number] = lease.as_uninit_mut().as_mut_ptr().cast();
            self.leases.push(lease);
            for piece in first..first + (1 << self.pieces_shift) {
                #[expect(clippy::cast_possible_truncation, reason = "below `entry_count`")]
                self.offer(piece as u16);
            }
        }
        self.publish();
        Ok(())
    }

    /// Whether [`Self::provide`] has something to do.
    #[inline]
    pub(super) fn lacks_leases(&self) -> bool {
        self.leases.len() < LEASES_MAX || !self.is_registered
    }

    fn register(&mut self, ring: &Ring) -> Result<(), Errno> {
        let flags = if self.is_incremental { INCREMENTAL } else { 0 };
        // SAFETY: the table is a mapping of our own, on a page's start, with that many entries. It
        // lives until `unregister` or, when the ring went first, until after it.
        let outcome = unsafe {
            ring.io().submitter().register_buf_ring_with_flags(
                self.table.as_ptr() as u64,
                self.entry_count,
                GROUP,
                flags,
            )
        };
        outcome.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL))?;
        self.is_registered = true;
        Ok(())
    }

    /// Takes all buffers back. The kernel must not be receiving.
    pub(super) fn withdraw(&mut self, ring: &Ring) {
        if self.is_registered && ring.io().submitter().unregister_buf_ring(GROUP).is_err() {
            // The kernel may still write: better to lose the memory than to reuse it.
            self.leases.drain(..).for_each(std::mem::forget);
        }
        self.is_registered = false;
        self.tail = 0;
        self.leases.clear();
        self.consumed.clear();
        self.filled_bytes.fill(0);
    }

    /// How much of the pool is with the kernel.
    pub(super) fn leased_bytes(&self) -> usize {
        self.leases.iter().map(Lease::capacity).sum()
    }

    /// The bytes a completion brought, and notes that their piece is used up if it is. `None`: the
    /// completion took no buffer.
    ///
    /// The slice stays valid until [`Self::end_tick`] or [`Self::withdraw`], whatever else is done with `self`: those
    /// two may not be called while it is in use.
    #[inline]
    pub(super) fn received<'a>(&mut self, completion: &cqueue::Entry) -> Option<&'a [u8]> {
        let flags = completion.flags();
        let piece = cqueue::buffer_select(flags)?;
        let len = usize::try_from(completion.result()).unwrap_or(0);
        let mut offset = 0;
        if self.is_incremental {
            offset = self.filled_bytes[usize::from(piece)] as usize;
            #[expect(
                clippy::cast_possible_truncation,
                reason = "a lease is far below 4 GiB"
            )]
            {
                self.filled_bytes[usize::from(piece)] = (offset + len) as u32;
            }
        }
        if !self.is_incremental || !cqueue::buffer_more(flags) {
            self.consumed.push(piece);
        }
        let room = self.piece(piece);
        assert!(
            offset + len <= self.piece_bytes,
            "the kernel wrote past a buffer"
        );
        // SAFETY: the kernel has initialised `len` bytes from `offset` of a piece, which lie inside its lease, and
        // writes there no more until the piece is offered again; the lease lives until `withdraw`. Neither happens
        // while the slice is in use, by this function's contract.
        Some(unsafe { std::slice::from_raw_parts(room.add(offset), len) })
    }

    /// Offers the used pieces again, with one store.
    #[inline]
    pub(super) fn end_tick(&mut self) {
        if self.consumed.is_empty() {
            return;
        }
        let mut consumed = std::mem::take(&mut self.consumed);
        for piece in consumed.drain(..) {
            self.filled_bytes[usize::from(piece)] = 0;
            self.offer(piece);
        }
        self.consumed = consumed;
        self.publish();
    }

    /// Where a piece begins.
    #[inline]
    fn piece(&self, piece: u16) -> *mut u8 {
        let piece = usize::from(piece);
        let number = piece >> self.pieces_shift;
        let offset = (piece - (number << self.pieces_shift)) * self.piece_bytes;
        debug_assert!(number < self.leases.len());
        // SAFETY: a lease holds all its pieces.
        unsafe { self.starts[number].add(offset) }
    }

    /// Writes the next entry of the table; [`Self::publish`] shows it to the kernel.
    fn offer(&mut self, piece: u16) {
        let start = self.piece(piece);
        let index = usize::from(self.tail & (self.entry_count - 1));
        // SAFETY: the index is below the table's length, and the entry is ours: at most
        // `entry_count` pieces exist, so the kernel has long read what stood here.
        let entry = unsafe { &mut *self.table.as_ptr().add(index) };
        entry.set_addr(start as u64);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a lease is far below 4 GiB"
        )]
        entry.set_len(self.piece_bytes as u32);
        entry.set_bid(piece);
        self.tail = self.tail.wrapping_add(1);
    }

    fn publish(&self) {
        // SAFETY: the tail lies in the first entry's reserved bytes, by the kernel's layout, is aligned, and is written
        // only here.
        let tail =
            unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.table.as_ptr()).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}

impl Drop for ReceiveBuffers {
    fn drop(&mut self) {
        if self.is_registered {
            // Only when a panic kept the driver from withdrawing: the ring is still there.
            self.leases.drain(..).for_each(std::mem::forget);
            return;
        }
        // SAFETY: the mapping made in `new`; the kernel does not use it any more.
        let _ = unsafe { munmap(self.table.as_ptr().cast(), self.table_bytes) };
    }
}
