//! The completion kernel: io_uring.
//!
//! One system call per tick hands over what the last tick asked for and waits for what comes next.
//! Receiving is a submission that goes on by itself; the kernel picks the buffer
//! when bytes arrive, so an idle connection has none.
//!
//! ```text
//! uring.rs           the Driver methods, one tick, dispatch
//! probe.rs           what this kernel can do, and why it cannot
//! ring.rs            set-up, putting submissions in, the call
//! operation.rs       what a completion is about
//! receive_buffers.rs the buffers the kernel receives into
//! socket.rs          one socket's state and its operations
//! accepting.rs       the listener, running out of descriptors
//! connecting.rs      connections of our own
//! receiving.rs       bytes, FIN and failures; pausing
//! sending.rs         sends of a tick, blocked and drained sends
//! closing.rs         closing, lingering, abandoned sockets
//! waiting.rs         handing over, spinning, sleeping
//! ending.rs          the end of a driver, and of what the kernel has of it
//! ```
//!
//! Absent on purpose: zero-copy sends (two completions each; they pay above 10 KB), bundles (slower
//! than one contiguous send) and everything that a second thread would do.
#![allow(unsafe_code)]

mod accepting;
mod closing;
mod connecting;
mod ending;
mod operation;
mod probe;
mod receive_buffers;
mod receiving;
mod ring;
mod sending;
mod socket;
mod turn_queue;
mod waiting;

pub use self::probe::{UringUnavailable, probe};

use self::accepting::Accepting;
use self::operation::Operation;
use self::probe::NO_BUFFER_RING;
use self::receive_buffers::ReceiveBuffers;
use self::ring::{COMPLETIONS_MAX, Ring, SUBMISSIONS_MAX};
use self::socket::Socket;
use self::turn_queue::TurnQueue;
use super::buffer_queue::QueuedBuffer;
use super::busy_poll::BusyPoll;
use super::features::{DriverFeature, DriverFeatures};
use super::lifecycle::{
    Closing, IsMoreLeft, SocketDriver, Stage, expire_deadlines, fail_later, shorten_lingering,
};
use super::socket_count::SocketCount;
use super::{Driver, DriverCounters, Event, SendOutcome, SocketId, handle_of, id_of};
use crate::address::{Address, Peer};
use crate::clock::monotonic_ns;
use crate::error::IoError;
use crate::listener::Listener;
use crate::op::accept::{destination_of, peer_of};
use crate::op::close::has_peer_finished;
use crate::pools::{IO_BUFFER_BYTES, ShardPools};
use crate::scheduler::{CloseQueue, Scheduler, Work};
use crate::timer_wheel::TimerWheel;
use crate::waker::{WakeReceiver, Waker};
use io_uring::{cqueue, opcode, types};
use millpond_mempool::{Buffer, PoolMode, PoolStats, Slab};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fmt;
use std::net::IpAddr;
use std::ops::Range;
use std::thread;
use std::time::Duration;

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
    /// Sockets in `Stage::Failing`, to be reported; may hold dead ids, as the next six.
    failing: VecDeque<SocketId>,
    /// With a send for the next wait.
    due: Vec<SocketId>,
    /// With a send that was handed over in this tick.
    handed_over: Vec<SocketId>,
    /// Whose send turned out to be blocked in this tick.
    found_blocked: Vec<SocketId>,
    /// Of which nobody receives, to be watched from the end of the tick on.
    unwatched: Vec<SocketId>,
    /// That wait for their turn to receive.
    waiting: TurnQueue,
    /// With bytes or a FIN held that are wanted: put off, or receiving again.
    resumed: Vec<SocketId>,
    /// Abandoned and with nothing in flight; may hold dead ids.
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

    /// The same, made for [`Driver::set_busy_poll`] with this limit: its kernel says in memory when
    /// it has work, which costs a driver that does not spin a little for nothing.
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

    /// Watches the waker. Edge-triggered: each write is an event, and nobody has to read.
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

    /// What became of this tick's sends, before any handler can give new ones.
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
            // The first was looked at before all others; of the second nobody wants to hear.
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

    fn put_behind(&mut self, socket: SocketId) {
        if let Some(socket) = self.sockets.get_mut(handle_of(socket)) {
            socket.usage.brought_many();
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
        // The buffers not here, but when the tick is over: a handler may be looking at one.
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
