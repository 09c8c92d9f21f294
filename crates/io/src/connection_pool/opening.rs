//! One connection attempt: over all addresses of its upstream, each with a head start over the next (RFC 8305, 5); the
//! first that connects wins, and the others are closed.
//!
//! Which request gets it is decided once it is open: the one that waits longest then.

use super::error::{AcquireError, AcquirePhase, HandshakeError};
use super::leasing::Link;
use super::leasing::OpenTimes;
use super::{ConnectionPool, OPENING_TIMER, Owner, PoolKey};
use crate::address::Address;
use crate::driver::{Driver, SocketId};
use crate::error::IoError;
use crate::shard::ShardContext;
use crate::timer_wheel::TimerId;
use millpond_mempool::Handle;
use rustix::io::Errno;
use std::sync::Arc;

/// Addresses that are tried at the same time, at most.
const ATTEMPTS_MAX: usize = 6;

/// A socket that is being connected.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    socket: SocketId,
    /// Of its address.
    index: usize,
}

/// One connection attempt over all addresses of an upstream.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) key: PoolKey,
    addresses: Arc<[Address]>,
    /// The address that won last time, which is the first to be tried.
    preferred: usize,
    /// How many addresses were tried.
    tried_count: usize,
    attempts: [Option<Attempt>; ATTEMPTS_MAX],
    /// Of the attempt that failed last.
    error: AcquireError,
    began_ns: u64,
    resolve_ns: u64,
    deadline_ns: u64,
    /// The TCP connection is open, and the deadline is that of the handshake.
    is_deadline_of_tls: bool,
    next_due_ns: u64,
    timer: Option<TimerId>,
}

impl Opening {
    pub(super) fn has_attempt(&self, socket: SocketId) -> bool {
        self.attempt_of(socket).is_some()
    }

    fn attempt_of(&self, socket: SocketId) -> Option<Attempt> {
        let attempts = self.attempts.iter().flatten();
        attempts.copied().find(|attempt| attempt.socket == socket)
    }

    fn forget_attempt(&mut self, socket: SocketId) {
        for place in &mut self.attempts {
            place.take_if(|attempt| attempt.socket == socket);
        }
    }

    fn sockets(&self) -> impl Iterator<Item = SocketId> {
        self.attempts.iter().flatten().map(|attempt| attempt.socket)
    }

    /// The place of the address to be tried next: the preferred one, then the others in their order.
    fn next_index(&self) -> Option<usize> {
        match self.tried_count {
            count if count >= self.addresses.len() => None,
            0 => Some(self.preferred),
            count if count <= self.preferred => Some(count - 1),
            count => Some(count),
        }
    }

    /// Whether one of its sockets is connected and uses TLS.
    #[cfg(feature = "tls")]
    pub(super) fn is_handshaking<D: Driver>(&self, shard: &ShardContext<'_, D>) -> bool {
        self.sockets()
            .any(|socket| shard.driver.handshake_began_ns(socket).is_some())
    }

    #[cfg(not(feature = "tls"))]
    pub(super) fn is_handshaking<D: Driver>(&self, _shard: &ShardContext<'_, D>) -> bool {
        false
    }
}

/// Errors that concern this machine and not the upstream.
fn is_local(error: Errno) -> bool {
    matches!(
        error,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS | Errno::ADDRNOTAVAIL
    )
}

fn errno_of(error: &IoError) -> Errno {
    match error {
        IoError::DescriptorsExhausted { .. } => Errno::MFILE,
        IoError::System { error, .. }
        | IoError::Listen { error, .. }
        | IoError::SourceUnusable { error, .. } => *error,
        IoError::PathUnusable { .. } => Errno::NAMETOOLONG,
        IoError::TlsUnavailable => Errno::OPNOTSUPP,
        _ => Errno::INVAL,
    }
}

impl ConnectionPool {
    /// Begins to open a connection for a key, whose caps allow it. False: nothing was begun.
    pub(super) fn open<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        key: PoolKey,
    ) -> bool {
        let Some(addresses) = self.addresses(shard, key) else {
            return false;
        };
        let Some(state) = self.keys.get_mut(key.0) else {
            return false;
        };
        let now_ns = shard.now_ns;
        let opening = Opening {
            key,
            preferred: state
                .naming
                .preferred
                .min(addresses.len().saturating_sub(1)),
            addresses,
            tried_count: 0,
            attempts: [None; ATTEMPTS_MAX],
            error: AcquireError::Connect(Errno::ADDRNOTAVAIL),
            began_ns: now_ns,
            resolve_ns: state.naming.took_until(now_ns),
            deadline_ns: now_ns.saturating_add(self.config.connect_max_ns),
            is_deadline_of_tls: false,
            next_due_ns: u64::MAX,
            timer: None,
        };
        let Ok(handle) = self.openings.insert(opening) else {
            self.fail_first(shard, key, AcquireError::Local(Errno::NOMEM));
            return true;
        };
        state.opening_count += 1;
        self.connection_count += 1;
        if !self.try_next(shard, handle) {
            // The caller goes on with the others: no recursion, however many wait.
            self.opening_failed(shard, handle, None);
        }
        true
    }

    /// Tries the next address, or the one after it if that cannot even be begun. False: no attempt is
    /// under way, and none is left.
    fn try_next<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        handle: Handle<Opening>,
    ) -> bool {
        let config = self.config;
        let socket = loop {
            let Some(opening) = self.openings.get_mut(handle) else {
                return true;
            };
            let place = opening.attempts.iter().position(Option::is_none);
            let (Some(place), Some(index)) = (place, opening.next_index()) else {
                opening.next_due_ns = u64::MAX;
                break None;
            };
            opening.tried_count += 1;
            let address = &opening.addresses[index];
            match connect(&self.keys, opening.key, shard, address) {
                Ok(socket) => {
                    opening.attempts[place] = Some(Attempt { socket, index });
                    opening.next_due_ns = match opening.next_index() {
                        Some(_) => shard.now_ns.saturating_add(config.stagger_ns),
                        None => u64::MAX,
                    };
                    break Some(socket);
                }
                Err(error) => {
                    let error = errno_of(&error);
                    opening.error = match is_local(error) || error == Errno::OPNOTSUPP {
                        true => AcquireError::Local(error),
                        false => AcquireError::Connect(error),
                    };
                }
            }
        };
        match socket {
            Some(socket) => self.own(socket, Owner::Opening(handle)),
            None => {
                let opening = self.openings.get(handle);
                if opening.is_some_and(|opening| opening.sockets().next().is_none()) {
                    return false;
                }
            }
        }
        self.set_opening_timer(shard, handle);
        true
    }

    /// As [`Self::try_next`], outside of [`Self::open`].
    fn go_on_opening<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        handle: Handle<Opening>,
    ) {
        if !self.try_next(shard, handle) {
            self.end_opening(shard, handle, None);
        }
    }

    fn end_opening<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        handle: Handle<Opening>,
        error: Option<AcquireError>,
    ) {
        let key = self.openings.get(handle).map(|opening| opening.key);
        self.opening_failed(shard, handle, error);
        if let Some(key) = key {
            self.room_was_made(shard, key);
        }
    }

    fn set_opening_timer<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        handle: Handle<Opening>,
    ) {
        let user = self.timer_user(OPENING_TIMER, handle.to_bits());
        if let Some(opening) = self.openings.get_mut(handle) {
            let timer = opening
                .timer
                .get_or_insert_with(|| shard.timers.create(user));
            shard
                .timers
                .set(*timer, opening.deadline_ns.min(opening.next_due_ns));
        }
    }

    pub(super) fn opening_timer_expired<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        handle: Handle<Opening>,
    ) {
        let tls_max_ns = self.config.tls_max_ns;
        let Some(opening) = self.openings.get_mut(handle) else {
            return;
        };
        if shard.now_ns < opening.deadline_ns {
            if shard.now_ns >= opening.next_due_ns {
                return self.go_on_opening(shard, handle);
            }
            return self.set_opening_timer(shard, handle);
        }
        let is_handshaking = opening.is_handshaking(shard);
        let until_ns = opening.began_ns.saturating_add(tls_max_ns);
        if is_handshaking && !opening.is_deadline_of_tls && until_ns > shard.now_ns {
            opening.is_deadline_of_tls = true;
            opening.deadline_ns = until_ns;
            opening.next_due_ns = u64::MAX;
            return self.set_opening_timer(shard, handle);
        }
        let phase = match is_handshaking {
            true => AcquirePhase::Tls,
            false => AcquirePhase::Connect,
        };
        self.end_opening(shard, handle, Some(AcquireError::TimedOut { phase }));
    }

    /// One of its sockets failed: the next address has its turn at once.
    pub(super) fn attempt_failed<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        handle: Handle<Opening>,
        socket: SocketId,
        error: Errno,
    ) {
        self.disown(socket);
        let speaks_tls = self.speaks_tls(handle);
        if let Some(opening) = self.openings.get_mut(handle) {
            opening.forget_attempt(socket);
            let was_unreachable = matches!(
                error,
                Errno::CONNREFUSED | Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::NOENT
            );
            opening.error = match error {
                error if is_local(error) => AcquireError::Local(error),
                // Before it is open a TCP connection is refused or times out; any other failure is one of the
                // handshake.
                error if speaks_tls && !was_unreachable => {
                    AcquireError::Tls(handshake_error(shard, socket, error))
                }
                error => AcquireError::Connect(error),
            };
        }
        self.go_on_opening(shard, handle);
    }

    #[cfg(feature = "tls")]
    fn speaks_tls(&self, handle: Handle<Opening>) -> bool {
        let key = self.openings.get(handle).map(|opening| opening.key);
        key.and_then(|key| self.keys.get(key.0))
            .is_some_and(|state| state.target.tls.is_some())
    }

    #[cfg(not(feature = "tls"))]
    fn speaks_tls(&self, _handle: Handle<Opening>) -> bool {
        false
    }

    /// A socket is connected: it wins.
    pub(super) fn connected<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        handle: Handle<Opening>,
        socket: SocketId,
    ) {
        let Some(mut opening) = self.take_opening(shard, handle) else {
            return;
        };
        let key = opening.key;
        let winner = opening.attempt_of(socket);
        opening.forget_attempt(socket);
        self.close_attempts(shard, &opening);
        let times = times_of(&opening, shard, socket);
        let handle = self.links.insert(Link::new(socket, key, shard.now_ns));
        let (Ok(handle), Some(state)) = (handle, self.keys.get_mut(key.0)) else {
            self.disown(socket);
            shard.driver.close(socket);
            self.fail_first(shard, key, AcquireError::Local(Errno::NOMEM));
            return self.room_was_made(shard, key);
        };
        if let Some(winner) = winner {
            state.naming.preferred = winner.index;
        }
        state.counters.opened += 1;
        state.leased_count += 1;
        self.connection_count += 1;
        self.own(socket, Owner::Link(handle));
        self.settle(shard, handle, key, false, times);
    }

    /// None of its addresses leads anywhere, or not in time.
    fn opening_failed<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        handle: Handle<Opening>,
        error: Option<AcquireError>,
    ) {
        let Some(opening) = self.take_opening(shard, handle) else {
            return;
        };
        self.close_attempts(shard, &opening);
        let key = opening.key;
        if let Some(state) = self.keys.get_mut(key.0) {
            state.counters.failed += 1;
        }
        self.fail_first(shard, key, error.unwrap_or(opening.error));
    }

    /// Ends those of a key that is removed.
    pub(super) fn close_openings<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        key: PoolKey,
    ) {
        let of_key =
            |(handle, opening): (Handle<Opening>, &Opening)| (opening.key == key).then_some(handle);
        loop {
            let next = self.openings.iter().find_map(of_key);
            let Some(handle) = next else {
                return;
            };
            if let Some(opening) = self.take_opening(shard, handle) {
                self.close_attempts(shard, &opening);
            }
        }
    }

    fn take_opening<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        handle: Handle<Opening>,
    ) -> Option<Opening> {
        let opening = self.openings.remove(handle)?;
        if let Some(timer) = opening.timer {
            shard.timers.remove(timer);
        }
        if let Some(state) = self.keys.get_mut(opening.key.0) {
            state.opening_count -= 1;
        }
        self.connection_count -= 1;
        Some(opening)
    }

    fn close_attempts<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, opening: &Opening) {
        for socket in opening.sockets() {
            self.disown(socket);
            shard.driver.close(socket);
        }
    }
}

#[cfg(feature = "tls")]
fn connect<D: Driver>(
    keys: &millpond_mempool::Slab<super::KeyState>,
    key: PoolKey,
    shard: &mut ShardContext<'_, D>,
    address: &Address,
) -> Result<SocketId, IoError> {
    match keys.get(key.0).and_then(|state| state.target.tls.as_ref()) {
        Some(tls) => shard.driver.connect_tls(address, tls),
        None => shard.driver.connect(address),
    }
}

#[cfg(not(feature = "tls"))]
fn connect<D: Driver>(
    _keys: &millpond_mempool::Slab<super::KeyState>,
    _key: PoolKey,
    shard: &mut ShardContext<'_, D>,
    address: &Address,
) -> Result<SocketId, IoError> {
    shard.driver.connect(address)
}

#[cfg(feature = "tls")]
fn handshake_error<D: Driver>(
    shard: &ShardContext<'_, D>,
    socket: SocketId,
    error: Errno,
) -> HandshakeError {
    HandshakeError::new(shard.driver.tls_failure(socket), error)
}

#[cfg(not(feature = "tls"))]
fn handshake_error<D: Driver>(
    _shard: &ShardContext<'_, D>,
    _socket: SocketId,
    error: Errno,
) -> HandshakeError {
    HandshakeError::Other(error)
}

fn times_of<D: Driver>(
    opening: &Opening,
    shard: &ShardContext<'_, D>,
    socket: SocketId,
) -> OpenTimes {
    #[cfg(feature = "tls")]
    let stood_ns = shard.driver.handshake_began_ns(socket);
    #[cfg(not(feature = "tls"))]
    let stood_ns = {
        let _ = socket;
        None
    };
    let stood_ns = stood_ns.unwrap_or(shard.now_ns);
    OpenTimes {
        resolve_ns: opening.resolve_ns,
        connect_ns: stood_ns.saturating_sub(opening.began_ns),
        tls_ns: shard.now_ns.saturating_sub(stood_ns),
    }
}

#[cfg(test)]
#[path = "tests/opening.rs"]
mod tests;
