//! The completion kernel: io_uring.
//!
//! One system call per tick hands over the last tick's submissions and waits for completions. Receiving is a multishot
//! submission; the kernel picks the buffer when bytes arrive, so an idle connection has none.
//!
//! ```text
//! uring.rs      the Driver methods, one tick, dispatch; one socket's state and its operations; handing over, spinning,
//!               sleeping; the end of a driver, and of what the kernel has of it
//! probe.rs      what this kernel can do, and why it cannot
//! ring.rs       set-up, putting submissions in, the call; what a completion is about
//! accepting.rs  the listener, running out of descriptors; closing, lingering, abandoned sockets
//! receiving.rs  bytes, FIN and failures; pausing; the buffers the kernel receives into
//! sending.rs    sends of a tick, blocked and drained sends; connections of our own
//! ```

#![allow(unsafe_code)]

mod accepting;
mod probe;
mod receiving;
mod ring;
mod sending;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;
use std::{fmt, thread};

use io_uring::{cqueue, opcode, types};
use millpond_mempool::{Buffer, PoolMode, PoolStats, Slab};
use ring::Wait;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::io::Errno;

use crate::address::{Address, Peer};
use crate::clock::{earlier, monotonic_ns};
use crate::driver::lifecycle::Life;
use crate::driver::socket_count::BufferQueue;
use crate::driver::socket_count::Opener;
use crate::driver::socket_count::{LOOKS_PER_CLOCK, SpinEnd};
use crate::error::IoError;
use crate::listener::Listener;
use crate::op::has_peer_finished;
use crate::op::{destination_of, peer_of};
use crate::pools::{IO_BUFFER_BYTES, ShardPools};
use crate::scheduler::{CloseQueue, Scheduler, Usage, Work, receive_bytes};
use crate::timer_wheel::TimerWheel;
use crate::waker::{WakeReceiver, Waker};

use self::accepting::Accepting;
use self::probe::NO_BUFFER_RING;
use self::receiving::ReceiveBuffers;
use self::ring::{COMPLETIONS_MAX, Operation, Ring, SUBMISSIONS_MAX};
use super::features::{DriverFeature, DriverFeatures};
use super::lifecycle::{
    Closing, IsMoreLeft, SocketDriver, Stage, expire_deadlines, fail_later, shorten_lingering,
};
use super::socket_count::BusyPoll;
use super::socket_count::QueuedBuffer;
use super::socket_count::SocketCount;
use super::{Driver, DriverCounters, Event, SendOutcome, SocketId, handle_of, id_of};

pub use self::probe::{UringUnavailable, probe};

/// How long a shard that the kernel or the pool refuses memory lets its peers wait.
const MEMORY_PAUSE: Duration = Duration::from_millis(1);

/// Sockets of one shard through io_uring.
pub struct UringDriver {
    ring: Ring,
    features: DriverFeatures,
    buffers: ReceiveBuffers,
    wake: WakeReceiver,
    accepting: Option<Accepting>,
    /// Abandoned ones included.
    sockets: Slab<Socket>,
    queued: Slab<QueuedBuffer>,
    /// Sockets in `Stage::Failing`, to be reported; may hold stale ids, as the next six.
    failing: VecDeque<SocketId>,
    /// With a send for the next wait.
    due: Vec<SocketId>,
    /// With a send that was handed over in this tick.
    handed_over: Vec<SocketId>,
    /// Sockets whose send was blocked in this tick.
    found_blocked: Vec<SocketId>,
    /// Sockets with no receive submitted, watched from the end of the tick on.
    unwatched: Vec<SocketId>,
    /// That wait for their turn to receive.
    waiting: TurnQueue,
    /// With bytes or a FIN held that are wanted: put off, or receiving again.
    resumed: Vec<SocketId>,
    /// Abandoned and with nothing in flight; may hold stale ids.
    close_queue: CloseQueue<SocketId>,
    socket_count: SocketCount,
    scheduler: Scheduler,
    completions: Vec<cqueue::Entry>,
    /// Deadlines of closing sockets and of the paused listener.
    deadlines: TimerWheel,
    alive_count: usize,
    closing: Closing,
    is_withdrawal_asked: bool,
    /// The last wait brought so many completions that the kernel may have more.
    is_wait_full: bool,
    busy_poll: BusyPoll,
    now_ns: u64,
    counters: DriverCounters,
}

impl fmt::Debug for UringDriver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("UringDriver")
            .field("features", &self.features)
            .finish_non_exhaustive()
    }
}

impl UringDriver {
    /// A driver without sockets, with all that [`probe`] found; make it on the thread that ticks
    /// it, which alone may use its ring.
    pub fn new(mode: PoolMode) -> Result<Self, IoError> {
        let features = probe().map_err(IoError::UringUnavailable)?;
        Self::with_features(mode, features)
    }

    /// The same, made for [`Driver::set_busy_poll`] with this limit: its kernel sets a flag in memory when it has work,
    /// a small cost without use if the driver does not spin.
    pub fn busy_polling(mode: PoolMode, limit_ns: u64) -> Result<Self, IoError> {
        let features = probe().map_err(IoError::UringUnavailable)?;
        if limit_ns == 0 {
            return Self::with_features(mode, features);
        }
        let mut driver = Self::with_features(mode, features.with(DriverFeature::TaskRunFlag))?;
        driver.set_busy_poll(limit_ns);
        Ok(driver)
    }

    /// Others wait behind clients that are served for so long after the last message of one, for tests that
    /// a slow machine must not disturb.
    #[doc(hidden)]
    pub fn protect_prompt_clients_for(&mut self, protected_ns: u64) {
        self.scheduler.protect_for(protected_ns);
    }

    /// A driver with some of the features that [`probe`] found, to test the ways around the others.
    /// There is none around [`DriverFeature::BufferRing`].
    pub fn with_features(mode: PoolMode, wanted: DriverFeatures) -> Result<Self, IoError> {
        if !wanted.has(DriverFeature::BufferRing) {
            return Err(IoError::UringUnavailable(NO_BUFFER_RING));
        }
        let ring = Ring::new(wanted, SUBMISSIONS_MAX).map_err(IoError::UringUnavailable)?;
        let features = ring.features();
        let buffers =
            ReceiveBuffers::new(features, IO_BUFFER_BYTES).map_err(IoError::system("mmap"))?;
        let now_ns = monotonic_ns();
        let mut driver = Self {
            ring,
            features,
            buffers,
            wake: WakeReceiver::new()?,
            accepting: None,
            sockets: Slab::new("io_sockets", mode),
            queued: Slab::new("io_queued_sends", mode),
            failing: VecDeque::with_capacity(256),
            due: list(),
            handed_over: list(),
            found_blocked: list(),
            unwatched: list(),
            waiting: TurnQueue::new(),
            resumed: list(),
            close_queue: CloseQueue::new(),
            socket_count: SocketCount::default(),
            scheduler: Scheduler::default(),
            completions: Vec::with_capacity(COMPLETIONS_MAX as usize),
            deadlines: TimerWheel::new(now_ns),
            alive_count: 0,
            closing: Closing::default(),
            is_withdrawal_asked: false,
            is_wait_full: false,
            busy_poll: BusyPoll::default(),
            now_ns,
            counters: DriverCounters::default(),
        };
        driver.arm_wake();
        Ok(driver)
    }

    /// Watches the waker. Edge-triggered: each write is an event, and no read is needed.
    fn arm_wake(&mut self) {
        let events = (libc::EPOLLIN | libc::EPOLLET).cast_unsigned();
        let entry = opcode::PollAdd::new(types::Fd(self.wake.fd().as_raw_fd()), events)
            .multi(true)
            .build()
            .user_data(Operation::Wake.alone());
        // SAFETY: the entry points to no memory.
        unsafe { self.ring.push(&entry) };
    }

    /// A socket whose owner has not left.
    #[inline]
    fn known(&mut self, id: SocketId) -> Option<&mut Socket> {
        let socket = self.sockets.get_mut(handle_of(id))?;
        socket.life.is_owned().then_some(socket)
    }

    fn fail_later(&mut self, id: SocketId, error: Errno) {
        fail_later(self, id, error);
    }

    /// Offers buffers to the kernel while there are sockets.
    fn provide_buffers(&mut self, pools: &ShardPools) -> Result<(), IoError> {
        let has_use = !self.sockets.is_empty();
        if std::mem::take(&mut self.is_withdrawal_asked) && !has_use {
            self.buffers.withdraw(&self.ring);
        }
        if has_use && self.buffers.lacks_leases() {
            let provided = self.buffers.provide(&self.ring, &pools.io_buffers);
            return match provided {
                // As where the pool has none: receives wait, and the next tick asks again.
                Ok(()) | Err(Errno::NOMEM) => Ok(()),
                Err(error) => Err(IoError::system("io_uring_register")(error)),
            };
        }
        Ok(())
    }

    /// Results of this tick's sends, before any handler can give new ones.
    #[inline]
    fn settle_sends(&mut self) {
        if self.handed_over.is_empty() {
            return;
        }
        let completions = std::mem::take(&mut self.completions);
        for completion in &completions {
            if let Some((Operation::SendNow, id)) =
                Operation::from_user_data(completion.user_data())
            {
                self.note_send_result(id, completion);
            }
        }
        self.completions = completions;
        self.note_sent();
    }

    fn handle_completions<H>(&mut self, pools: &mut ShardPools, handler: &mut H)
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        self.settle_sends();
        self.release_waiting();
        if self.wake.take() {
            self.counters.wakes += 1;
            handler(self, pools, Event::Woken);
        }
        self.report_failing(pools, handler);
        self.report_found_blocked(pools, handler);
        // Out of `self`, which the handler borrows.
        let mut completions = std::mem::take(&mut self.completions);
        for completion in completions.drain(..) {
            self.handle_completion(&completion, pools, handler);
        }
        self.completions = completions;
        self.deliver_held(pools, handler);
        self.accept_ready(pools, handler);
        if self.takes_last_connections() {
            self.finish_accepting(pools, handler);
        }
        expire_deadlines(self);
    }

    #[inline]
    fn handle_completion<H>(
        &mut self,
        completion: &cqueue::Entry,
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        let Some((operation, id)) = Operation::from_user_data(completion.user_data()) else {
            self.counters.stale_events += 1;
            return;
        };
        match operation {
            Operation::Receive => self.receive_completed(id, completion, pools, handler),
            Operation::Accept => self.accept_completed(completion),
            Operation::SendQueued => self.queued_send_completed(id, completion, pools, handler),
            Operation::Connect => self.connect_completed(id, completion, pools, handler),
            Operation::Watch => self.watch_completed(id, completion, pools, handler),
            Operation::Wake => {
                if !cqueue::more(completion.flags()) {
                    self.arm_wake();
                }
            }
            // The first was handled before all others; the second is ignored.
            Operation::SendNow | Operation::Cancel => {}
        }
    }

    fn report_failing<H>(&mut self, pools: &mut ShardPools, handler: &mut H)
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        // Failures that handlers cause meanwhile stay for the next tick, in the same queue.
        for _ in 0..self.failing.len() {
            let Some(&id) = self.failing.front() else {
                return;
            };
            let failed = self
                .known(id)
                .map(|socket| (socket.life.stage(), socket.usage));
            if let Some((Stage::Failing(error), usage)) = failed {
                if !self.scheduler.admits_end(usage, Work::End) {
                    return;
                }
                self.failing.pop_front();
                if self.receive_last(id, pools, handler) == IsMoreLeft::No {
                    self.remove_failed(id, error, pools, handler);
                }
            } else {
                self.failing.pop_front();
            }
        }
    }
}

impl Driver for UringDriver {
    fn name(&self) -> &'static str {
        "uring"
    }

    fn features(&self) -> DriverFeatures {
        self.features
    }

    fn listen(&mut self, listener: Listener) -> Result<(), IoError> {
        self.start_accepting(listener)
    }

    fn set_accepted_max(&mut self, count: usize) {
        self.socket_count.set_accepted_max(count);
    }

    fn stop_listening(&mut self) {
        self.stop_accepting();
    }

    fn peer(&self, socket: SocketId) -> Option<Peer> {
        let socket = self.sockets.get(handle_of(socket))?;
        if socket.life.stage() == Stage::Closed {
            return None;
        }
        peer_of(socket.fd())
    }

    fn destination(&self, socket: SocketId) -> Option<Peer> {
        let socket = self.sockets.get(handle_of(socket))?;
        if socket.life.stage() == Stage::Closed {
            return None;
        }
        destination_of(socket.fd())
    }

    fn connect_from(&mut self, to: &Address, source: Option<IpAddr>) -> Result<SocketId, IoError> {
        self.start_connecting(to, source)
    }

    #[inline]
    fn send(&mut self, socket: SocketId, data: Buffer) -> SendOutcome {
        self.send_or_queue(socket, data)
    }

    fn send_file(
        &mut self,
        socket: SocketId,
        file: BorrowedFd<'_>,
        range: Range<u64>,
    ) -> Option<u64> {
        self.send_file_directly(socket, file, &range)
    }

    fn pause_receive(&mut self, socket: SocketId) {
        self.pause(socket);
    }

    fn finish_send(&mut self, socket: SocketId) -> SendOutcome {
        self.finish_open(socket)
    }

    fn has_peer_finished(&self, socket: SocketId) -> bool {
        let socket = self.sockets.get(handle_of(socket));
        socket.is_some_and(|socket| has_peer_finished(socket.fd()))
    }

    fn deprioritize(&mut self, socket: SocketId) {
        if let Some(socket) = self.sockets.get_mut(handle_of(socket)) {
            socket.usage.demote_for_pipelining();
        }
    }

    fn resume_receive(&mut self, socket: SocketId) {
        self.resume(socket);
    }

    fn has_events_left(&mut self) -> bool {
        self.is_behind() || self.is_wait_full
    }

    fn close(&mut self, socket: SocketId) {
        self.close_now(socket);
    }

    fn reset(&mut self, socket: SocketId) {
        self.reset_now(socket);
    }

    fn close_after_send(&mut self, socket: SocketId) {
        self.start_closing(socket);
    }

    fn socket_count(&self) -> usize {
        self.alive_count
    }

    fn shorten_lingering(&mut self, allowed_ns: u64) {
        shorten_lingering(self, allowed_ns);
    }

    fn closing_count(&self) -> usize {
        self.closing.count
    }

    fn waker(&self) -> Waker {
        self.wake.waker()
    }

    fn set_busy_poll(&mut self, limit_ns: u64) {
        self.busy_poll = BusyPoll::new(limit_ns);
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn tick<H>(
        &mut self,
        deadline_ns: Option<u64>,
        pools: &mut ShardPools,
        mut handler: H,
    ) -> Result<(), IoError>
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        self.counters.ticks += 1;
        self.scheduler.begin_tick(self.now_ns);
        self.provide_buffers(pools)?;
        self.give_turns();
        self.arm_watches();
        self.wait(deadline_ns)?;
        self.handle_completions(pools, &mut handler);
        self.buffers.end_tick();
        if !self.waiting.is_empty() && !self.buffers.is_ready() {
            // The pool has none to give: peers wait instead of the shard spinning.
            thread::sleep(MEMORY_PAUSE);
        }
        Ok(())
    }

    fn counters(&self) -> DriverCounters {
        self.socket_count.shown_in(DriverCounters {
            early_submits: self.ring.early_submits,
            submissions: self.ring.submissions,
            ..self.counters
        })
    }

    fn trim_pools(&mut self) -> usize {
        // Buffers are not returned here, but after the tick: a handler may be reading one.
        self.is_withdrawal_asked = self.sockets.is_empty();
        let returned_bytes = if self.is_withdrawal_asked {
            self.buffers.leased_bytes()
        } else {
            0
        };
        returned_bytes + self.sockets.trim() + self.queued.trim()
    }

    fn visit_pool_stats(&self, visit: &mut dyn FnMut(PoolStats)) {
        visit(self.sockets.stats());
        visit(self.queued.stats());
    }
}

/// A list of sockets with room for a busy tick, so that it grows only where thousands are.
fn list() -> Vec<SocketId> {
    Vec::with_capacity(256)
}

// State of one socket in the ring driver.
//
// An idle socket owns no buffer: the kernel picks one when bytes arrive.

/// The receive operation of a socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ReceiveOperation {
    /// None is with the kernel.
    None,
    /// One that ends with the first bytes.
    Once,
    /// One that ends with the first bytes, of which it takes no more than a turn's.
    Turn,
    /// One that goes on.
    Multishot,
    /// One that is being cancelled; bytes may still come out of it.
    Cancelled,
    /// None: it waits for its turn, because no buffer was free or its last turn left bytes behind.
    Waiting,
}

/// The send operation of a socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum SendOperation {
    /// None.
    None,
    /// `sending` goes to the kernel before the next wait.
    Due,
    /// `sending` was handed over; if nothing comes back it went out.
    HandedOver,
    /// The front of the queue is with the kernel until it has room.
    Queued,
}

/// One socket.
#[derive(Debug)]
struct Socket {
    fd: OwnedFd,
    life: Life,
    usage: Usage,
    receive: ReceiveOperation,
    send: SendOperation,
    /// The kernel watches the handshake's end.
    has_connect: bool,
    /// The kernel watches for a failure, since no receive is submitted.
    has_watch: bool,
    /// Bytes have arrived before: it is worth asking for more than one message.
    is_lasting: bool,
    /// Not 0: more than one receive came during a pause, so it receives one by one until so many short ones came.
    single_receives: u8,
    /// A FIN came during a pause, or was put off, and was not reported yet.
    has_held_finish: bool,
    /// A FIN was sent and receiving goes on: that both sides have finished is no failure.
    is_send_finished: bool,
    /// The bytes of `SendOperation::Due` and `HandedOver`.
    sending: Buffer,
    /// Bytes the kernel had no room for.
    queue: BufferQueue,
    /// Bytes that came during a pause, or were deferred.
    held: BufferQueue,
}

impl Socket {
    fn new(fd: OwnedFd, stage: Stage, usage: Usage) -> Self {
        Self {
            fd,
            life: Life::new(stage),
            usage,
            receive: ReceiveOperation::None,
            send: SendOperation::None,
            has_connect: false,
            has_watch: false,
            is_lasting: false,
            single_receives: 0,
            has_held_finish: false,
            is_send_finished: false,
            sending: Buffer::new(),
            queue: BufferQueue::default(),
            held: BufferQueue::default(),
        }
    }

    fn opener(&self) -> Opener {
        match self.usage {
            Usage::OURS => Opener::Us,
            _ => Opener::Peer,
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Whether a receive is in flight.
    fn has_receive(&self) -> bool {
        use ReceiveOperation::{Cancelled, Multishot, Once, Turn};
        matches!(self.receive, Once | Turn | Multishot | Cancelled)
    }

    /// Whether the kernel has any operation on it that will be completed.
    fn is_in_flight(&self) -> bool {
        self.has_receive()
            || self.send == SendOperation::Queued
            || self.has_connect
            || self.has_watch
    }
}

// Sockets that wait to receive: they found no buffer, or flood and are not asked more often than the tick's
// budget admits.

/// Both kinds, each in the order in which it came; may hold stale ids. Bound: a socket is in one of them once, and
/// stale ids are skipped at their turn.
struct TurnQueue {
    starved: VecDeque<SocketId>,
    bulk: VecDeque<SocketId>,
    /// The last one was a starved one: neither kind takes all buffers.
    was_starved: bool,
}

impl TurnQueue {
    fn new() -> Self {
        Self {
            starved: VecDeque::with_capacity(256),
            bulk: VecDeque::with_capacity(256),
            was_starved: false,
        }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.starved.is_empty() && self.bulk.is_empty()
    }

    fn push(&mut self, id: SocketId, usage: Usage) {
        self.queue_of(usage).push_back(id);
    }

    /// It found no buffer in its turn either: it stays the next.
    fn push_again(&mut self, id: SocketId, usage: Usage) {
        self.queue_of(usage).push_front(id);
    }

    fn queue_of(&mut self, usage: Usage) -> &mut VecDeque<SocketId> {
        match usage.is_bulk() {
            true => &mut self.bulk,
            false => &mut self.starved,
        }
    }

    /// How much each may receive.
    fn receive_bytes(&self) -> usize {
        receive_bytes(self.starved.len() + self.bulk.len())
    }

    /// The next that may receive in this tick.
    fn pop(&mut self, scheduler: &mut Scheduler) -> Option<SocketId> {
        let is_bulk_next = self.was_starved || self.starved.is_empty();
        self.was_starved = false;
        if is_bulk_next
            && !self.bulk.is_empty()
            && (!scheduler.is_protecting() || scheduler.admits(Work::Bulk))
        {
            return self.bulk.pop_front();
        }
        self.was_starved = !self.starved.is_empty();
        self.starved.pop_front()
    }
}

// The end of a driver: everything the kernel still does for it is ended, in order, before the memory
// goes that it may be done in.

/// How long a driver that ends waits for the kernel to let go of its memory.
const SHUTDOWN_TIMEOUT_NS: u64 = 1_000_000_000;

impl Drop for UringDriver {
    /// Closing the ring would end its operations some time later, while their memory is gone and
    /// ports stay taken. So everything is ended here, in order.
    fn drop(&mut self) {
        while let Some(id) = self.due.pop() {
            let _ = self.send_due_directly(id);
        }
        let accepting = self.accepting.take();
        let has_accept = accepting.is_some_and(|accepting| accepting.has_operation());
        if has_accept {
            self.cancel(Operation::Accept.alone());
        }
        self.cancel(Operation::Wake.alone());
        let handles: Vec<_> = self.sockets.handles().collect();
        for handle in handles {
            self.remove(id_of(handle));
        }
        self.wait_for_the_kernel(has_accept);
        // Operations that the kernel still holds after so long: their memory is leaked, not reused.
        for (_, socket) in self.sockets.iter_mut() {
            while let Some(data) = socket.queue.pop(&mut self.queued) {
                std::mem::forget(data);
            }
        }
        self.buffers.withdraw(&self.ring);
    }
}

impl UringDriver {
    /// Until nothing is in flight any more, or for [`SHUTDOWN_TIMEOUT_NS`].
    fn wait_for_the_kernel(&mut self, mut has_accept: bool) {
        let give_up_ns = monotonic_ns() + SHUTDOWN_TIMEOUT_NS;
        let mut pools = ShardPools::new(PoolMode::Off);
        let mut nobody = |_: &mut Self, _: &mut ShardPools, _: Event<'_>| {};
        let mut has_wake = true;
        loop {
            let is_quiet = self.sockets.is_empty() && !has_accept && !has_wake;
            let wait = if is_quiet {
                Wait::Look
            } else {
                Wait::Until(give_up_ns)
            };
            if self.ring.enter(wait).is_err() || is_quiet || monotonic_ns() >= give_up_ns {
                return;
            }
            let mut completions = std::mem::take(&mut self.completions);
            self.ring.take_completions(&mut completions);
            for completion in completions.drain(..) {
                let is_last = !cqueue::more(completion.flags());
                match Operation::from_user_data(completion.user_data()) {
                    Some((Operation::Wake, _)) => has_wake &= !is_last,
                    Some((Operation::Accept, _)) => has_accept &= !is_last,
                    _ => self.handle_completion(&completion, &mut pools, &mut nobody),
                }
            }
            self.completions = completions;
        }
    }
}

// Handing over what a tick asked for and waiting for what comes next, in one system call.
//
// A spin is for few connections, so it sends by plain system calls, which are faster than the ring for a single send,
// and enters the ring when a flag in memory shows that the kernel has completions to produce. Kernels without that flag
// are polled by system calls, like epoll.

/// Up to so many sends go out one by one before a spin; more are cheaper through the ring.
const DIRECT_SENDS_MAX: usize = 2;

/// The kernel works out some twenty completions in a call. After so many it may have more.
const HANDED_OUT_MAX: usize = 16;

/// Calls of one tick that search for prompt clients behind a flood.
const LOOKS_FOR_PROMPT_CLIENTS_MAX: usize = 16;

/// How long a kernel may have no memory for submissions. All peers of the shard wait meanwhile; a longer shortage is
/// taken as permanent, and the shard ends with an error.
const MEMORY_WAIT_MAX_NS: u64 = 10_000_000_000;

impl UringDriver {
    /// Hands everything over, waits, and takes the completions out.
    fn wait(&mut self, deadline_ns: Option<u64>) -> Result<(), IoError> {
        let must_look_only = self.is_behind() || !self.close_queue.is_empty();
        let own_deadline_ns = self.deadlines.next_deadline_ns();
        let deadline_ns = earlier(deadline_ns, own_deadline_ns);
        let wait = match deadline_ns {
            _ if must_look_only => Wait::Look,
            Some(deadline_ns) if deadline_ns <= self.now_ns => Wait::Look,
            Some(deadline_ns) => Wait::Until(deadline_ns),
            None => Wait::Endless,
        };
        if wait == Wait::Look || !self.busy_poll.is_on() {
            self.hand_over_due();
            self.sleep(wait)?;
        } else {
            self.spin_or_sleep(wait, deadline_ns)?;
        }
        self.take_completions()
    }

    /// Not all events have been reported.
    fn is_behind(&mut self) -> bool {
        !self.failing.is_empty()
            || !self.resumed.is_empty()
            || self.has_waiting_connections()
            || !self.waiting.is_empty()
            || self.takes_last_connections()
            || self.ring.has_completions()
    }

    /// One call, which sleeps unless a [`crate::Waker`] was used.
    #[inline]
    fn sleep(&mut self, wait: Wait) -> Result<(), IoError> {
        let wait = if wait != Wait::Look && !self.wake.prepare_sleep() {
            Wait::Look
        } else {
            wait
        };
        self.wait_once(wait)
    }

    /// One counted call that is a wait of this tick.
    #[inline]
    fn wait_once(&mut self, wait: Wait) -> Result<(), IoError> {
        self.counters.waits += 1;
        self.enter(wait)?;
        self.counters.empty_waits += u64::from(!self.ring.has_completions());
        Ok(())
    }

    fn spin_or_sleep(&mut self, wait: Wait, deadline_ns: Option<u64>) -> Result<(), IoError> {
        let start_ns = monotonic_ns();
        if !self.busy_poll.is_due() {
            self.hand_over_due();
            self.sleep(wait)?;
            if self.ring.has_completions() {
                self.busy_poll.slept(monotonic_ns() - start_ns);
            }
            return Ok(());
        }
        if self.spin(start_ns, deadline_ns)? {
            return Ok(());
        }
        self.sleep(wait)
    }

    /// Polls until there is something to handle or the deadline is met. False: the time is over and nothing came, so
    /// sleep.
    fn spin(&mut self, start_ns: u64, deadline_ns: Option<u64>) -> Result<bool, IoError> {
        let end_ns = self.busy_poll.end_ns(start_ns, deadline_ns);
        let must_ask = !self.features.has(DriverFeature::TaskRunFlag);
        let mut now_ns = start_ns;
        let mut looks = 0;
        let mut has_found = false;
        if self.due.len() <= DIRECT_SENDS_MAX {
            self.send_all_due_directly();
        } else {
            self.hand_over_due();
        }
        if !self.ring.is_handed_over() || self.ring.is_overflowing() {
            self.wait_once(Wait::Look)?;
        }
        while now_ns < end_ns {
            // With failed submissions or sends the driver does not spin.
            has_found = self.ring.has_completions()
                || self.wake.is_used()
                || !self.failing.is_empty()
                || !self.found_blocked.is_empty()
                || !self.ring.is_handed_over();
            if has_found {
                break;
            }
            if must_ask || self.ring.has_task_work() {
                self.wait_once(Wait::Look)?;
            } else {
                std::hint::spin_loop();
            }
            looks += 1;
            if looks % LOOKS_PER_CLOCK == 0 {
                now_ns = monotonic_ns();
            }
        }
        now_ns = monotonic_ns();
        self.counters.spun_ns += now_ns - start_ns;
        let is_time = deadline_ns.is_some_and(|deadline_ns| now_ns >= deadline_ns);
        self.busy_poll.spun(SpinEnd::of(has_found, is_time));
        if has_found {
            self.counters.spins_paid += 1;
        } else {
            self.counters.spins_vain += 1;
        }
        Ok(has_found || is_time)
    }

    /// Takes out what the kernel completed, once all submissions are with it.
    fn take_completions(&mut self) -> Result<(), IoError> {
        self.ring.take_completions(&mut self.completions);
        self.now_ns = monotonic_ns();
        self.look_for_prompt_clients()?;
        // Sends count as done unless a failure is reported: so all must have been submitted.
        let give_up_ns = self.now_ns.saturating_add(MEMORY_WAIT_MAX_NS);
        while !self.ring.is_handed_over() || self.ring.is_overflowing() {
            let before = (self.ring.unsubmitted(), self.completions.len());
            self.enter(Wait::Look)?;
            self.ring.take_completions(&mut self.completions);
            if before != (self.ring.unsubmitted(), self.completions.len()) {
                continue;
            }
            if monotonic_ns() >= give_up_ns {
                return Err(IoError::System {
                    call: "io_uring_enter",
                    error: Errno::NOMEM,
                });
            }
            thread::sleep(MEMORY_PAUSE);
        }
        self.is_wait_full = self.completions.len() >= HANDED_OUT_MAX;
        Ok(())
    }

    /// While others wait for their turns, takes all that the kernel has: it hands out about twenty
    /// completions per call, and a prompt client's may be behind a flood.
    fn look_for_prompt_clients(&mut self) -> Result<(), IoError> {
        let is_waiting = !self.resumed.is_empty() || self.has_waiting_connections();
        if !is_waiting || !self.scheduler.is_protecting() {
            return Ok(());
        }
        for _ in 0..LOOKS_FOR_PROMPT_CLIENTS_MAX {
            let before = self.completions.len();
            self.wait_once(Wait::Look)?;
            self.ring.take_completions(&mut self.completions);
            if self.completions.len() == before {
                break;
            }
        }
        Ok(())
    }

    fn enter(&mut self, wait: Wait) -> Result<(), IoError> {
        self.ring
            .enter(wait)
            .map_err(IoError::system("io_uring_enter"))
    }
}

#[cfg(test)]
#[path = "tests/turn_queue.rs"]
mod turn_queue_tests;
