//! The readiness kernel: epoll, edge-triggered.
//!
//! Per batch of ready sockets one wait; per socket one receive, into the shard's one I/O buffer, and one send. The
//! kernel says once that a socket is ready, and the driver remembers it until that is used up: with level-triggered
//! events, four hundred deferred clients took 60 us of each tick, just for being reported again. A short receive is not
//! repeated to see EAGAIN, unless more than bytes may come (see `STICKY`). `EPOLLOUT` is watched only while a socket is
//! blocked, and a pause of receiving costs no system call.
//!
//! ```text
//! epoll.rs       the Driver methods, one tick; one socket's state; sockets with something left for a later tick;
//!                spinning and sleeping
//! whole_ms_wait.rs  sleeping where the kernel knows whole milliseconds only
//! dispatching.rs from what is ready to what handles it
//! accepting.rs   the listener, running out of descriptors; lingering close and its bounds
//! receiving.rs   bytes, FIN and failures; pausing; direct, blocked and drained sends
//! ```

mod whole_ms_wait;
mod accepting;
mod receiving;
mod dispatching;

use std::collections::VecDeque;
use std::fmt;
use std::net::IpAddr;
use std::ops::Range;

use millpond_mempool::{Buffer, Lease, PoolMode, PoolStats, Slab};
use rustix::event::epoll;
use rustix::event::epoll::{EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

use crate::address::{Address, Peer};
use crate::clock::{earlier, monotonic_ns, timespec_of_ns};
use crate::driver::lifecycle::{Life, Receiving};
use crate::driver::socket_count::BufferQueue;
use crate::driver::socket_count::{LOOKS_PER_CLOCK, SpinEnd};
use crate::error::IoError;
use crate::listener::Listener;
use crate::op::connect::connect_start;
use crate::op::has_peer_finished;
use crate::op::{destination_of, peer_of};
use crate::pools::ShardPools;
use crate::scheduler::{
    CloseQueue, RECEIVE_BYTES_OF_OTHERS, Scheduler, Usage, Work, receive_bytes,
};
use crate::timer_wheel::TimerWheel;
use crate::waker::{WakeReceiver, Waker};

use self::accepting::Accepting;
use super::accepting::Acceptor;
use super::lifecycle::{Closing, SocketDriver, Stage, fail_later, leave, shorten_lingering};
use super::receive_stamps::{ReceiveStamps, stamp_socket};
use super::socket_count::BusyPoll;
use super::socket_count::QueuedBuffer;
use super::socket_count::{Opener, SocketCount};
use super::{Driver, DriverCounters, Event, SendOutcome, SocketId, handle_of, id_of};

/// Ready sockets taken per wait: 6 KiB of events. More wait for the next tick.
const EVENTS_PER_WAIT: usize = 512;

/// Epoll's user data for what is not a socket; a socket's slot never gets this high.
const WAKE_TOKEN: u64 = u64::MAX;
const LISTENER_TOKEN: u64 = u64::MAX - 1;

/// The flags that make a receive worthwhile. The last two are always watched by the kernel.
const READABLE: EventFlags = EventFlags::IN.union(EventFlags::ERR).union(EventFlags::HUP);

/// With these a short receive does not mean that nothing more is there: the end of the stream and
/// failures come after the bytes, and a receive stops before and behind an urgent byte.
const STICKY: EventFlags = EventFlags::RDHUP
    .union(EventFlags::PRI)
    .union(EventFlags::ERR)
    .union(EventFlags::HUP);

/// The events every socket is watched for.
const WATCHED: EventFlags = EventFlags::IN
    .union(EventFlags::RDHUP)
    .union(EventFlags::PRI)
    .union(EventFlags::ET);

/// Whether a deferred event was admitted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum IsTurn {
    No,
    Yes,
}

/// Sockets of one shard through epoll.
pub struct EpollDriver {
    epoll: OwnedFd,
    wake: WakeReceiver,
    accepting: Option<Accepting>,
    sockets: Slab<Socket>,
    queued_sends: Slab<QueuedBuffer>,
    /// Sockets in `Stage::Failing`, to be reported; may hold stale ids.
    failing: VecDeque<SocketId>,
    /// Descriptors of removed sockets; epoll watches none of them.
    close_queue: CloseQueue<(OwnedFd, Opener)>,
    socket_count: SocketCount,
    /// The receive buffer, while the shard has sockets.
    io_buffer: Option<Lease>,
    /// How much each socket may receive, in this tick and its turn.
    turn_bytes: usize,
    events: Box<[epoll::Event]>,
    /// The last wait gave as many events as fit: the kernel may have more.
    is_wait_full: bool,
    scheduler: Scheduler,
    waiting: Waiting,
    /// Deadlines of closing sockets and of the paused listener.
    deadlines: TimerWheel,
    closing: Closing,
    busy_poll: BusyPoll,
    receive_stamps: ReceiveStamps,
    now_ns: u64,
    /// The kernel has no `epoll_pwait2` (before Linux 5.11, and under some emulators): waits are
    /// rounded up to whole milliseconds.
    waits_in_whole_ms: bool,
    counters: DriverCounters,
}

impl fmt::Debug for EpollDriver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("EpollDriver")
            .field("sockets", &self.sockets.len())
            .finish_non_exhaustive()
    }
}

impl EpollDriver {
    /// A driver that waits as on a kernel without precise waits, for tests of that path.
    #[doc(hidden)]
    pub fn with_whole_ms_waits(mode: PoolMode) -> Result<Self, IoError> {
        Self::new(mode).map(|driver| Self {
            waits_in_whole_ms: true,
            ..driver
        })
    }

    /// Others wait behind clients that are served for so long after the last message of one, for tests that
    /// a slow machine must not disturb.
    #[doc(hidden)]
    pub fn protect_prompt_clients_for(&mut self, protected_ns: u64) {
        self.scheduler.protect_for(protected_ns);
    }

    /// A driver without sockets; make it on the thread that ticks it.
    pub fn new(mode: PoolMode) -> Result<Self, IoError> {
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(IoError::system("epoll_create1"))?;
        let wake = WakeReceiver::new()?;
        // Edge-triggered: each write is an event, and the eventfd need not be read.
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, wake.fd(), EventData::new_u64(WAKE_TOKEN), flags)
            .map_err(IoError::system("epoll_ctl"))?;
        let now_ns = monotonic_ns();
        let no_event = epoll::Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        };
        Ok(Self {
            epoll,
            wake,
            accepting: None,
            sockets: Slab::new("io_sockets", mode),
            queued_sends: Slab::new("io_queued_sends", mode),
            failing: VecDeque::new(),
            close_queue: CloseQueue::new(),
            socket_count: SocketCount::default(),
            io_buffer: None,
            turn_bytes: receive_bytes(0),
            events: vec![no_event; EVENTS_PER_WAIT].into_boxed_slice(),
            is_wait_full: false,
            scheduler: Scheduler::default(),
            waiting: Waiting::new(),
            deadlines: TimerWheel::new(now_ns),
            closing: Closing::default(),
            busy_poll: BusyPoll::default(),
            receive_stamps: ReceiveStamps::default(),
            now_ns,
            waits_in_whole_ms: false,
            counters: DriverCounters::default(),
        })
    }

    /// Takes a new socket in and watches it.
    fn register(&mut self, socket: Socket) -> Result<SocketId, Errno> {
        let watched = socket.watched();
        let opener = socket.opener();
        let handle = self.sockets.insert(socket).map_err(|_| Errno::NOMEM)?;
        let id = id_of(handle);
        self.socket_count.opened(opener);
        let Some(socket) = self.sockets.get(handle) else {
            return Ok(id);
        };
        self.counters.controls += 1;
        let data = EventData::new_u64(id.to_bits());
        epoll::add(&self.epoll, socket.fd(), data, watched).inspect_err(|_| self.remove(id))?;
        Ok(id)
    }

    fn socket(&mut self, id: SocketId) -> Option<&mut Socket> {
        self.sockets.get_mut(handle_of(id))
    }

    fn is_alive(&self, id: SocketId) -> bool {
        self.sockets.get(handle_of(id)).is_some()
    }

    /// Makes the kernel report room to send, or stops that. A kernel that refuses (ENOMEM) fails the socket.
    fn watch_room(&mut self, id: SocketId, is_wanted: bool) {
        let Self {
            sockets,
            epoll,
            counters,
            ..
        } = self;
        let Some(socket) = sockets.get_mut(handle_of(id)) else {
            return;
        };
        if socket.watches_room == is_wanted {
            return;
        }
        counters.controls += 1;
        socket.watches_room = is_wanted;
        let data = EventData::new_u64(id.to_bits());
        if let Err(error) = epoll::modify(epoll, socket.fd(), data, socket.watched()) {
            self.fail_later(id, error);
        }
    }

    fn fail_later(&mut self, id: SocketId, error: Errno) {
        fail_later(self, id, error);
    }

    /// Closes a socket and forgets all about it. Closing also ends epoll's watch: the
    /// descriptor has no duplicate.
    fn close_socket(&mut self, id: SocketId) {
        let Some(mut socket) = self.sockets.remove(handle_of(id)) else {
            return;
        };
        socket.queue.clear(&mut self.queued_sends);
        socket.life.close(&mut self.closing, &mut self.deadlines);
        self.counters.closes += 1;
        let is_at_once = self.close_queue.is_full()
            || self.needs_descriptors()
            || self.close_queue.is_empty() && self.scheduler.admits_end(socket.usage, Work::Close);
        if is_at_once {
            self.socket_count.closed(socket.opener());
            drop(socket);
            return self.descriptor_freed();
        }
        self.close_later(socket);
    }

    /// The kernel reports that a socket failed. When many connections reset at once they are all reported together, and
    /// each is a close.
    fn fail_in_turn<H>(
        &mut self,
        id: SocketId,
        error: Errno,
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        let Some(socket) = self.sockets.get_mut(handle_of(id)) else {
            return;
        };
        if self.scheduler.admits_end(socket.usage, Work::End) {
            return self.remove_failed(id, error, pools, handler);
        }
        // Bytes it still sends until then must not count as prompt.
        socket.usage = Usage::NEW;
        self.counters.deferred += 1;
        self.fail_later(id, error);
    }

    /// Closes a socket and reports the reason to its owner.
    fn remove_failed<H>(
        &mut self,
        id: SocketId,
        error: Errno,
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        self.remove(id);
        handler(self, pools, Event::Failed { socket: id, error });
    }
}

impl Driver for EpollDriver {
    fn name(&self) -> &'static str {
        "epoll"
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
        peer_of(self.sockets.get(handle_of(socket))?.fd())
    }

    fn destination(&self, socket: SocketId) -> Option<Peer> {
        destination_of(self.sockets.get(handle_of(socket))?.fd())
    }

    fn connect_from(&mut self, to: &Address, source: Option<IpAddr>) -> Result<SocketId, IoError> {
        self.counters.connects += 1;
        let (fd, started) = connect_start(to, source)?;
        if self.receive_stamps.is_on() {
            stamp_socket(fd.as_fd());
        }
        let mut socket = Socket::new(fd, Stage::Connecting, Usage::OURS);
        socket.watches_room = true;
        let id = self.register(socket).map_err(|error| IoError::System {
            call: "epoll_ctl",
            error,
        })?;
        if let Err(error) = started {
            self.fail_later(id, error);
        }
        Ok(id)
    }

    #[inline]
    fn send(&mut self, socket: SocketId, mut data: Buffer) -> SendOutcome {
        self.send_or_queue(socket, &mut data)
    }

    fn finish_send(&mut self, socket: SocketId) -> SendOutcome {
        self.finish_open(socket)
    }

    #[inline]
    fn send_from(&mut self, socket: SocketId, data: &mut Buffer) -> SendOutcome {
        self.send_or_queue(socket, data)
    }

    #[inline]
    fn sends_at_once(&self) -> bool {
        true
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
        self.remove(socket);
    }

    fn reset(&mut self, socket: SocketId) {
        self.reset_now(socket);
    }

    fn close_after_send(&mut self, socket: SocketId) {
        leave(self, socket);
    }

    fn socket_count(&self) -> usize {
        self.sockets.len()
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

    fn stamp_receives(&mut self, every: u32) -> bool {
        self.receive_stamps.set_every(every);
        true
    }

    fn received_at_ns(&self) -> Option<u64> {
        self.receive_stamps.last_ns
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
        // Out of `self`, which the handler borrows.
        let mut events = std::mem::take(&mut self.events);
        let outcome = self.wait(deadline_ns, &mut events).map(|count| {
            self.is_wait_full = count == events.len();
            self.handle_events(&events[..count], pools, &mut handler);
        });
        self.events = events;
        outcome
    }

    fn counters(&self) -> DriverCounters {
        self.socket_count.shown_in(self.counters)
    }

    fn trim_pools(&mut self) -> usize {
        self.sockets.trim() + self.queued_sends.trim()
    }

    fn visit_pool_stats(&self, visit: &mut dyn FnMut(PoolStats)) {
        visit(self.sockets.stats());
        visit(self.queued_sends.stats());
    }
}

// State of one socket in the epoll driver.
//
// An idle socket owns no buffer; a blocked one owns those its sender gave.

/// One socket.
#[derive(Debug)]
struct Socket {
    fd: OwnedFd,
    life: Life,
    usage: Usage,
    /// Reported events not handled yet: the kernel reports each once.
    ready: EventFlags,
    /// Is in the queue for a turn.
    is_waiting: bool,
    /// Epoll watches for room to send, too.
    watches_room: bool,
    queue: BufferQueue,
    /// A FIN was sent and receiving goes on: that both sides have finished is no failure.
    is_send_finished: bool,
}

impl Socket {
    fn new(fd: OwnedFd, stage: Stage, usage: Usage) -> Self {
        Self {
            fd,
            life: Life::new(stage),
            usage,
            ready: EventFlags::empty(),
            is_waiting: false,
            watches_room: false,
            queue: BufferQueue::default(),
            is_send_finished: false,
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn opener(&self) -> Opener {
        match self.usage {
            Usage::OURS => Opener::Us,
            _ => Opener::Peer,
        }
    }

    fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// The events epoll watches it for.
    fn watched(&self) -> EventFlags {
        match self.watches_room {
            true => WATCHED.union(EventFlags::OUT),
            false => WATCHED,
        }
    }

    /// Whether handling it would change anything.
    fn wants_turn(&self) -> bool {
        let wanted = match self.life.stage() {
            // Reported in a turn of another kind.
            Stage::Failing(_) => EventFlags::empty(),
            Stage::Open if self.life.receiving() != Receiving::On => {
                EventFlags::OUT | EventFlags::ERR | EventFlags::HUP
            }
            _ => EventFlags::all(),
        };
        self.ready.intersects(wanted)
    }
}

// Sockets that the kernel has reported as ready, and that have work left for a later tick: they had more than one
// receive holds, or the tick's budget was spent (see `scheduler`).
//
// Each kind is served in the order in which it came, and goes to the end of its queue: sixteen that
// sent heads without end once had all turns among the first six of them, and ten met the deadline of
// their heads.

/// All kinds; may hold stale ids, and sockets without work. Bound: a socket is in one of them once, and stale ids are
/// skipped at their turn.
struct Waiting {
    /// Prompt sockets and those of our own making, which go on in the next tick.
    first: VecDeque<SocketId>,
    others: VecDeque<SocketId>,
    bulk: VecDeque<SocketId>,
}

impl Waiting {
    fn new() -> Self {
        let queue = || VecDeque::with_capacity(256);
        Self {
            first: queue(),
            others: queue(),
            bulk: queue(),
        }
    }

    #[inline]
    fn count(&self) -> usize {
        self.first.len() + self.others.len() + self.bulk.len()
    }

    #[inline]
    fn first_count(&self) -> usize {
        self.first.len()
    }

    fn push(&mut self, id: SocketId, usage: Usage) {
        match usage.is_prompt() {
            true => self.first.push_back(id),
            false => self.queue_of(usage.work()).push_back(id),
        }
    }

    fn queue_of(&mut self, work: Work) -> &mut VecDeque<SocketId> {
        match work {
            Work::Bulk => &mut self.bulk,
            _ => &mut self.others,
        }
    }

    /// Whether a socket that is not prompt is handled as it comes: none of its kind waits, and the tick's
    /// budget is not spent.
    fn admits_next(&mut self, usage: Usage, scheduler: &mut Scheduler) -> bool {
        let work = usage.work();
        self.queue_of(work).is_empty() && scheduler.admits(work)
    }
}

impl EpollDriver {
    /// To a later tick.
    #[inline(never)]
    fn defer(&mut self, id: SocketId, flags: EventFlags) {
        self.counters.deferred += 1;
        self.keep(id, flags);
    }

    /// Stores the kernel's report for a later tick.
    #[cold]
    fn keep(&mut self, id: SocketId, flags: EventFlags) {
        if let Some(socket) = self.socket(id) {
            socket.ready = socket.ready.union(flags);
            self.look_again(id);
        }
    }

    /// Has a socket wait for a turn if there is something left to do for it.
    #[cold]
    fn look_again(&mut self, id: SocketId) {
        let Self {
            sockets, waiting, ..
        } = self;
        if let Some(socket) = sockets.get_mut(handle_of(id))
            && socket.wants_turn()
            && !socket.is_waiting
        {
            socket.is_waiting = true;
            waiting.push(id, socket.usage);
        }
    }

    /// Those that go first, and of which something was left after the tick before.
    #[inline(never)]
    fn go_on<H>(
        &mut self,
        count: usize,
        buffer: &mut Lease,
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        for _ in 0..count {
            let Some(id) = self.waiting.first.pop_front() else {
                return;
            };
            if let Some(flags) = self.leaves_queue(id) {
                self.handle_socket(id, flags, IsTurn::No, buffer, pools, handler);
            }
        }
    }

    /// As many of the others as the tick's budget admits.
    #[inline(never)]
    fn give_turns<H>(&mut self, buffer: &mut Lease, pools: &mut ShardPools, handler: &mut H)
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        self.turn_bytes = self.turn_bytes_of_others();
        for work in [Work::Receive, Work::Bulk] {
            // Sockets added to the end of the queue meanwhile have had their turn.
            for _ in 0..self.waiting.queue_of(work).len().min(EVENTS_PER_WAIT) {
                let Some(&id) = self.waiting.queue_of(work).front() else {
                    break;
                };
                let socket = self.sockets.get(handle_of(id));
                let wants_turn = socket.is_some_and(Socket::wants_turn);
                if wants_turn && !self.scheduler.admits(work) {
                    break;
                }
                self.waiting.queue_of(work).pop_front();
                if let Some(flags) = self.leaves_queue(id) {
                    self.handle_socket(id, flags, IsTurn::Yes, buffer, pools, handler);
                }
            }
        }
    }

    /// How much a socket may receive that is not prompt.
    fn turn_bytes_of_others(&self) -> usize {
        match self.scheduler.is_protecting() {
            true => self.turn_bytes.min(RECEIVE_BYTES_OF_OTHERS),
            false => self.turn_bytes,
        }
    }

    /// The work it still waits for.
    fn leaves_queue(&mut self, id: SocketId) -> Option<EventFlags> {
        let socket = self.socket(id)?;
        socket.is_waiting = false;
        let flags = socket.ready;
        socket.wants_turn().then(|| {
            socket.ready = EventFlags::empty();
            flags
        })
    }
}

// Waiting for ready sockets: a spin first where that was asked for and pays, then one sleep.

impl EpollDriver {
    /// Fills `events`; returns how many there are.
    fn wait(
        &mut self,
        deadline_ns: Option<u64>,
        events: &mut [epoll::Event],
    ) -> Result<usize, IoError> {
        // All responses of the tick before have left.
        self.close_waiting();
        let own_deadline_ns = self.deadlines.next_deadline_ns();
        let deadline_ns = earlier(deadline_ns, own_deadline_ns);
        let must_look_only = self.is_behind() || !self.close_queue.is_empty();
        let mut wait_ns = match deadline_ns {
            _ if must_look_only => Some(0),
            Some(deadline_ns) => Some(deadline_ns.saturating_sub(monotonic_ns())),
            None => None,
        };
        let mut slept_from_ns = None;
        if wait_ns != Some(0) && self.busy_poll.is_on() {
            let start_ns = monotonic_ns();
            if self.busy_poll.is_due() {
                if let Some(count) = self.spin(start_ns, deadline_ns, events)? {
                    return Ok(count);
                }
                // The rest of the wait; the spin ends before the deadline, or would have reported it.
                wait_ns = deadline_ns.map(|deadline_ns| deadline_ns.saturating_sub(self.now_ns));
            } else {
                slept_from_ns = Some(start_ns);
            }
        }
        if wait_ns != Some(0) && !self.wake.prepare_sleep() {
            wait_ns = Some(0);
        }
        let count = self.wait_once(wait_ns, events)?;
        self.now_ns = monotonic_ns();
        if let Some(start_ns) = slept_from_ns.filter(|_| count > 0) {
            self.busy_poll.slept(self.now_ns - start_ns);
        }
        Ok(count)
    }

    /// Not all that is ready has been reported.
    fn is_behind(&self) -> bool {
        !self.failing.is_empty()
            || self.waiting.count() > 0
            || self.takes_last_connections()
            || self.has_pending_connection()
    }

    /// Polls until there is something to handle. `None`: the time is over and nothing came, so sleep.
    fn spin(
        &mut self,
        start_ns: u64,
        deadline_ns: Option<u64>,
        events: &mut [epoll::Event],
    ) -> Result<Option<usize>, IoError> {
        let end_ns = self.busy_poll.end_ns(start_ns, deadline_ns);
        let mut looks = 0;
        let found = loop {
            let count = self.wait_once(Some(0), events)?;
            if count > 0 || self.wake.is_used() {
                break Some(count);
            }
            looks += 1;
            if looks % LOOKS_PER_CLOCK == 0 && monotonic_ns() >= end_ns {
                break None;
            }
            std::hint::spin_loop();
        };
        self.now_ns = monotonic_ns();
        self.counters.spun_ns += self.now_ns - start_ns;
        let is_time = deadline_ns.is_some_and(|deadline_ns| self.now_ns >= deadline_ns);
        self.busy_poll.spun(SpinEnd::of(found.is_some(), is_time));
        match found {
            Some(_) => self.counters.spins_paid += 1,
            None => self.counters.spins_vain += 1,
        }
        Ok(found.or(is_time.then_some(0)))
    }

    /// One counted wait; `None`: no limit.
    fn wait_once(
        &mut self,
        wait_ns: Option<u64>,
        events: &mut [epoll::Event],
    ) -> Result<usize, IoError> {
        self.counters.waits += 1;
        let count = match self.wait_for_events(wait_ns, events) {
            Ok(count) => count,
            // A signal for this thread; the caller decides whether to wait again.
            Err(Errno::INTR) => 0,
            Err(error) => {
                return Err(IoError::System {
                    call: "epoll_wait",
                    error,
                });
            }
        };
        self.counters.empty_waits += u64::from(count == 0);
        Ok(count)
    }

    /// One wait, precise where the kernel can; never shorter than asked for.
    fn wait_for_events(
        &mut self,
        wait_ns: Option<u64>,
        events: &mut [epoll::Event],
    ) -> Result<usize, Errno> {
        if !self.waits_in_whole_ms {
            let timeout = wait_ns.map(timespec_of_ns);
            match epoll::wait(&self.epoll, &mut *events, timeout.as_ref()) {
                Err(Errno::NOSYS) => self.waits_in_whole_ms = true,
                result => return result,
            }
        }
        whole_ms_wait::wait(self.epoll.as_fd(), events, wait_ns)
    }
}
