//! Accepting connections, the same for every driver: how many in a tick, what happens at the cap on
//! sockets, and when descriptors run out.
//!
//! ```text
//! at the cap           a socket that is closing already is closed now; without one, accepting
//!                      pauses until a socket closes, and peers wait in the listener's queue
//! EMFILE, ENFILE       a spare descriptor is closed for the connection that waits. It is pending
//!                      until the next tick: if a socket has closed by then it is taken in, else
//!                      it is reset. So the queue drains and its peers get a response.
//! ENOBUFS, ENOMEM, or  accepting pauses for RETRY_NS
//! no spare descriptor
//! ```

use super::socket_count::SocketCount;
use super::{Driver, DriverCounters, Event, SocketId};
use crate::op::Accepted;
use crate::pools::ShardPools;
use crate::scheduler::{Scheduler, Work};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

/// Connections taken before other work goes on. Every one is a few microseconds of work.
pub(super) const ACCEPTS_PER_TICK_MAX: usize = 64;

/// Connections taken after the last stop: as many as can have waited.
pub(super) const ACCEPTS_AT_STOP_MAX: usize = 4096;

/// How long accepting pauses when nothing of ours closes meanwhile.
pub(super) const RETRY_NS: u64 = 50_000_000;

/// User data of the listener's timer; no socket has this id.
pub(super) const RETRY_TIMER_USER: u64 = u64::MAX;

/// A descriptor kept for the moment when there is no other: without it waiting peers could not get a response. An
/// eventfd, since ENFILE counts files of the whole machine.
#[derive(Debug)]
pub(super) struct SpareDescriptor(Option<OwnedFd>);

impl SpareDescriptor {
    pub(super) fn new() -> Self {
        let mut spare = Self(None);
        spare.restore();
        spare
    }

    /// Frees the descriptor; false if there was none.
    pub(super) fn release(&mut self) -> bool {
        self.0.take().is_some()
    }

    /// Whether there is one again.
    pub(super) fn restore(&mut self) -> bool {
        if self.0.is_none() {
            self.0 = eventfd(0, EventfdFlags::CLOEXEC).ok();
        }
        self.0.is_some()
    }
}

/// Whether connections are accepted, and why not. `C` is a connection without a socket id yet.
#[derive(Debug)]
pub(super) struct AcceptState<C> {
    /// Taken with the spare descriptor: bound 1, until the next tick.
    pending: Option<C>,
    /// Nothing is taken until a socket closes, or the retry timer fires.
    pub(super) is_paused: bool,
    /// Stop was asked for: one last round in this tick or the next.
    pub(super) is_last_round: bool,
}

impl<C> Default for AcceptState<C> {
    fn default() -> Self {
        Self {
            pending: None,
            is_paused: false,
            is_last_round: false,
        }
    }
}

impl<C> AcceptState<C> {
    pub(super) fn has_pending(&self) -> bool {
        self.pending.is_some()
    }
}

/// The operations of a driver that accepting needs.
pub(super) trait Acceptor: Driver {
    /// A connection that is no socket yet.
    type Connection;

    /// `None`: the driver does not listen.
    fn accept_state(&mut self) -> Option<&mut AcceptState<Self::Connection>>;

    fn socket_count(&self) -> SocketCount;

    fn counters_mut(&mut self) -> &mut DriverCounters;

    fn scheduler_mut(&mut self) -> &mut Scheduler;

    /// Takes the next connection from the listener's queue.
    fn accept_next(&mut self) -> Accepted<Self::Connection>;

    /// Makes a socket of it.
    fn take_in(&mut self, connection: Self::Connection) -> Result<SocketId, Errno>;

    /// It has been reported to the owner.
    fn taken_in(&mut self, _socket: SocketId) {}

    /// Ends a connection that becomes no socket, by a reset.
    fn refuse(&mut self, connection: Self::Connection);

    /// Frees the spare descriptor; false if there is none.
    fn release_spare(&mut self) -> bool;

    /// Whether there is a spare descriptor again.
    fn restore_spare(&mut self) -> bool;

    /// Ends the socket that has been closing for longest; false if none is closing. Its descriptor is
    /// free now or, where the kernel still works on it, soon.
    fn close_oldest_closing(&mut self) -> bool;

    /// No longer hears of connections, until [`Self::resume_accepting`] or the retry timer.
    fn pause_accepting(&mut self);

    /// Whether a close must be immediate: its descriptor is needed now.
    #[inline]
    fn needs_descriptors(&mut self) -> bool {
        Acceptor::socket_count(self).is_full()
            || self
                .accept_state()
                .is_some_and(|state| state.pending.is_some())
    }
}

/// Result of one attempt.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Attempt {
    /// The next may follow.
    Done,
    /// No more in this tick.
    Last,
    /// No connection waits.
    NoneWaiting,
}

/// Takes connections in, as many as the tick's budget admits, or all when listening ends. True: none is
/// left.
pub(super) fn accept_waiting<D, H>(driver: &mut D, pools: &mut ShardPools, handler: &mut H) -> bool
where
    D: Acceptor,
    H: FnMut(&mut D, &mut ShardPools, Event<'_>),
{
    let is_last_round = driver
        .accept_state()
        .is_some_and(|state| state.is_last_round);
    let count_max = match is_last_round {
        true => ACCEPTS_AT_STOP_MAX,
        false => ACCEPTS_PER_TICK_MAX,
    };
    take_in_pending(driver, pools, handler);
    for _ in 0..count_max {
        let is_open = driver
            .accept_state()
            .is_some_and(|state| !state.is_paused && state.pending.is_none());
        if !is_open
            || !is_last_round && !driver.scheduler_mut().admits(Work::Accept)
            || !has_room(driver, pools, handler)
        {
            return false;
        }
        match accept_one(driver, pools, handler) {
            Attempt::Done => {}
            Attempt::Last => return false,
            Attempt::NoneWaiting => return true,
        }
    }
    false
}

/// Whether the cap allows another socket, after closing sockets were ended for it.
fn has_room<D, H>(driver: &mut D, pools: &mut ShardPools, handler: &mut H) -> bool
where
    D: Acceptor,
    H: FnMut(&mut D, &mut ShardPools, Event<'_>),
{
    if !Acceptor::socket_count(driver).is_full() {
        return true;
    }
    if !driver.close_oldest_closing() {
        report_failure(driver, Errno::MFILE, pools, handler);
    }
    // A ring closes a socket only when the kernel has let go of it.
    if Acceptor::socket_count(driver).is_full() {
        driver.pause_accepting();
        return false;
    }
    true
}

fn accept_one<D, H>(driver: &mut D, pools: &mut ShardPools, handler: &mut H) -> Attempt
where
    D: Acceptor,
    H: FnMut(&mut D, &mut ShardPools, Event<'_>),
{
    match driver.accept_next() {
        Accepted::NoneWaiting => Attempt::NoneWaiting,
        Accepted::PeerGone => Attempt::Done,
        Accepted::Connection(connection) => introduce(driver, connection, pools, handler),
        Accepted::Exhausted(error @ (Errno::MFILE | Errno::NFILE)) => {
            accept_with_spare(driver, error, pools, handler)
        }
        Accepted::Exhausted(error) => pause_for(driver, error, pools, handler),
    }
}

/// Reports a new socket to the owner.
fn introduce<D, H>(
    driver: &mut D,
    connection: D::Connection,
    pools: &mut ShardPools,
    handler: &mut H,
) -> Attempt
where
    D: Acceptor,
    H: FnMut(&mut D, &mut ShardPools, Event<'_>),
{
    match driver.take_in(connection) {
        Ok(socket) => {
            driver.counters_mut().accepted += 1;
            handler(driver, pools, Event::Accepted { socket });
            driver.taken_in(socket);
            Attempt::Done
        }
        Err(error) => pause_for(driver, error, pools, handler),
    }
}

/// Without a descriptor: takes the next connection with the spare one and asks the owner for room.
fn accept_with_spare<D, H>(
    driver: &mut D,
    error: Errno,
    pools: &mut ShardPools,
    handler: &mut H,
) -> Attempt
where
    D: Acceptor,
    H: FnMut(&mut D, &mut ShardPools, Event<'_>),
{
    if !driver.release_spare() {
        return pause_for(driver, error, pools, handler);
    }
    let connection = match driver.accept_next() {
        Accepted::Connection(connection) => connection,
        Accepted::Exhausted(error) => {
            driver.restore_spare();
            return pause_for(driver, error, pools, handler);
        }
        none => {
            driver.restore_spare();
            return match none {
                Accepted::NoneWaiting => Attempt::NoneWaiting,
                _ => Attempt::Done,
            };
        }
    };
    if driver.restore_spare() {
        // One came free meanwhile.
        return introduce(driver, connection, pools, handler);
    }
    if let Some(state) = driver.accept_state() {
        state.pending = Some(connection);
    }
    if !driver.close_oldest_closing() {
        report_failure(driver, error, pools, handler);
    }
    if !driver.restore_spare() {
        return Attempt::Last;
    }
    match driver.accept_state().and_then(|state| state.pending.take()) {
        Some(connection) => introduce(driver, connection, pools, handler),
        None => Attempt::Done,
    }
}

/// The connection accepted with the spare descriptor in the last tick: is there another spare by now?
fn take_in_pending<D, H>(driver: &mut D, pools: &mut ShardPools, handler: &mut H)
where
    D: Acceptor,
    H: FnMut(&mut D, &mut ShardPools, Event<'_>),
{
    let Some(connection) = driver.accept_state().and_then(|state| state.pending.take()) else {
        return;
    };
    if driver.restore_spare() {
        introduce(driver, connection, pools, handler);
        return;
    }
    driver.refuse(connection);
    driver.counters_mut().accepts_refused += 1;
    driver.restore_spare();
}

fn pause_for<D, H>(driver: &mut D, error: Errno, pools: &mut ShardPools, handler: &mut H) -> Attempt
where
    D: Acceptor,
    H: FnMut(&mut D, &mut ShardPools, Event<'_>),
{
    driver.pause_accepting();
    report_failure(driver, error, pools, handler);
    Attempt::Last
}

fn report_failure<D, H>(driver: &mut D, error: Errno, pools: &mut ShardPools, handler: &mut H)
where
    D: Acceptor,
    H: FnMut(&mut D, &mut ShardPools, Event<'_>),
{
    driver.counters_mut().accept_failures += 1;
    handler(driver, pools, Event::AcceptFailed { error });
}
