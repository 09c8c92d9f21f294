//! The part of a client that has the shard's driver in hand: connections, sends, deadlines.
//!
//! Events are reported through `on`, with nothing borrowed: the callback may begin, write or abort any exchange, also
//! this one. The effects are carried out at the end of the tick.

use millpond_io::connection_pool::{Acquired, EventOwner, Lease, PoolKey, WaiterId};
use millpond_io::{Driver, Errno, Event, SendOutcome, ShardContext, SocketId, TimerId};
use millpond_mempool::{BlockPool, Buffer, Handle, Pooled};

use crate::body::BodyDecoder;
use crate::encode::{encode_chunk, encode_last_chunk, fields_bytes};
use crate::head_text::Field;
use crate::kept_input::KeptInput;
use crate::method::Method;
use crate::streaming::{FRAMING_BYTES, STREAM_OUTPUT_BYTES, room_bytes};

use super::exchange::{
    ExchangeEvent, ExchangeFailure, ExchangeId, ExchangeReport, FailureCause, OutgoingRequest,
    Phase, Timeouts,
};
use super::shard_client::{
    ALARM_TIMER_BIT, Client, ClientShared, EXCHANGE_TIMER_BIT, ExchangeWriteError, Orphan,
    SPARE_TIMERS_MAX, outgoing_of, waiter_of,
};

/// An exchange begun because of a failure may fail at once as well: the most rounds in one tick.
const ROUNDS_MAX: usize = 8;

/// Receives the events of exchanges.
pub(crate) trait Listener {
    /// See [`crate::Service::exchange_event`].
    fn hear<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        id: ExchangeId,
        user: u64,
        event: ExchangeEvent<'_>,
    );
}

impl Client {
    /// Does what was noted. True: there is more to do, and the next tick must not wait.
    pub(crate) fn pump<D: Driver>(
        &self,
        shard: &mut ShardContext<'_, D>,
        on: &mut impl Listener,
    ) -> bool {
        for _ in 0..ROUNDS_MAX {
            self.tidy_up(shard);
            let mut noted = {
                let shared = &mut *self.shared.borrow_mut();
                std::mem::swap(&mut shared.noted, &mut shared.in_hand);
                std::mem::take(&mut shared.in_hand)
            };
            let was_idle = noted.is_empty();
            for handle in noted.drain(..) {
                self.advance(shard, handle, on);
            }
            self.shared.borrow_mut().in_hand = noted;
            let had_outcomes = self.take_outcomes(shard, on);
            if was_idle && !had_outcomes {
                self.set_alarm(shard);
                return false;
            }
        }
        self.set_alarm(shard);
        let shared = self.shared.borrow();
        !shared.noted.is_empty() || !shared.orphans.is_empty()
    }

    /// Resources left by aborted exchanges and removed targets.
    fn tidy_up<D: Driver>(&self, shard: &mut ShardContext<'_, D>) {
        let shared = &mut *self.shared.borrow_mut();
        while let Some(Orphan {
            stage,
            timer,
            is_untouched,
        }) = shared.orphans.pop()
        {
            if let Some(timer) = timer {
                shard.timers.remove(timer);
            }
            if let Some(waiter) = waiter_of(stage) {
                shared.pool.cancel(shard, waiter);
            }
            if let Stage::Open(socket) = stage {
                shared.disown(socket);
                match is_untouched {
                    true => shared.pool.give_back(shard, socket),
                    false => shared.pool.discard(shard, socket),
                }
            }
        }
        while let Some(key) = shared.removed_keys.pop() {
            shared.pool.remove_key(shard, key);
        }
        while let Some(key) = shared.names_due.pop() {
            shared.pool.resolve(shard, key);
        }
    }

    /// Goes on with one exchange: a connection for it, what is to be sent, whether to receive.
    fn advance<D: Driver>(
        &self,
        shard: &mut ShardContext<'_, D>,
        handle: Handle<Exchange>,
        on: &mut impl Listener,
    ) {
        let mut shared = self.shared.borrow_mut();
        let Some(exchange) = shared.exchanges.get_mut(handle) else {
            return;
        };
        exchange.is_noted = false;
        let is_calm = match exchange.stage {
            Stage::New => {
                exchange.began_ns = shard.now_ns;
                let timeouts = exchange.timeouts;
                let wait_ns = timeouts.connection_ns.min(timeouts.total_ns);
                let (key, needs_own_connection) = (exchange.key, exchange.needs_own_connection);
                let deadline_ns = shard.now_ns.saturating_add(wait_ns);
                let token = handle.to_bits();
                let acquired =
                    shared
                        .pool
                        .acquire(shard, key, token, deadline_ns, needs_own_connection);
                match acquired {
                    Acquired::Lease(lease) => shared.start(shard, handle, lease),
                    Acquired::Waiting(waiter) => {
                        if let Some(exchange) = shared.exchanges.get_mut(handle) {
                            exchange.stage = Stage::Waiting(waiter);
                        }
                        return;
                    }
                    Acquired::Failed(error) => {
                        drop(shared);
                        return self.fail(shard, handle, error.into(), on);
                    }
                }
            }
            Stage::Waiting(_) => return,
            Stage::Open(_) => shared.flush(shard, handle),
        };
        drop(shared);
        if !is_calm {
            self.after_flush(shard, handle, on);
        }
    }

    /// Reports kept bytes that are wanted now, and room if the writer waits for it: the work for an exchange that is
    /// not calm.
    #[cold]
    fn after_flush<D: Driver>(
        &self,
        shard: &mut ShardContext<'_, D>,
        handle: Handle<Exchange>,
        on: &mut impl Listener,
    ) {
        self.catch_up(shard, handle, on);
        let is_over = {
            let shared = self.shared.borrow();
            let exchange = shared.exchanges.get(handle);
            exchange.is_some_and(Exchange::is_tunnel_over)
        };
        if is_over {
            return self.end(shard, handle, true, on);
        }
        self.shared.borrow_mut().match_pause(shard, handle);
        let user = {
            let mut shared = self.shared.borrow_mut();
            let Some(exchange) = shared.exchanges.get_mut(handle) else {
                return;
            };
            let has_room = exchange.wants_room && !exchange.is_blocked;
            if !has_room || exchange.outgoing == Outgoing::Finished {
                return;
            }
            exchange.wants_room = false;
            exchange.user
        };
        tell(shard, handle, user, ExchangeEvent::Room, on);
    }

    /// Results of waits for connections.
    fn take_outcomes<D: Driver>(
        &self,
        shard: &mut ShardContext<'_, D>,
        on: &mut impl Listener,
    ) -> bool {
        let mut had_any = false;
        loop {
            let mut shared = self.shared.borrow_mut();
            let Some(outcome) = shared.pool.next_outcome() else {
                return had_any;
            };
            had_any = true;
            let handle = Handle::from_bits(outcome.token);
            match outcome.result {
                Ok(lease) if shared.exchanges.get(handle).is_some() => {
                    let is_calm = shared.start(shard, handle, lease);
                    drop(shared);
                    if !is_calm {
                        self.after_flush(shard, handle, on);
                    }
                }
                // It was aborted.
                Ok(lease) => shared.pool.give_back(shard, lease.socket),
                Err(error) => {
                    drop(shared);
                    self.fail(shard, handle, error.into(), on);
                }
            }
        }
    }

    /// Ends an exchange with a failure, its connection with it, and reports it.
    pub(super) fn fail<D: Driver>(
        &self,
        shard: &mut ShardContext<'_, D>,
        handle: Handle<Exchange>,
        cause: FailureCause,
        on: &mut impl Listener,
    ) {
        let exchange = {
            let shared = &mut *self.shared.borrow_mut();
            let Some(exchange) = shared.exchanges.remove(handle) else {
                return;
            };
            shared.leave(shard, exchange.holdings(), false);
            exchange
        };
        let failure = exchange.failure(cause);
        let mut report = exchange.report_at(shard.now_ns);
        if matches!(exchange.stage, Stage::New | Stage::Waiting(_)) {
            report.connection_ns = report.total_ns;
        }
        let event = ExchangeEvent::Failed {
            failure: &failure,
            report: &report,
        };
        tell(shard, handle, exchange.user, event, on);
    }

    /// An event of a socket that is no client's of the server.
    pub(crate) fn event<D: Driver>(
        &self,
        shard: &mut ShardContext<'_, D>,
        event: &Event<'_>,
        on: &mut impl Listener,
    ) {
        match *event {
            Event::Received { socket, bytes } => {
                let (handle, buffers_small_responses) = {
                    let shared = self.shared.borrow();
                    (shared.exchange_of(socket), shared.buffers_small_responses)
                };
                if let Some(handle) = handle {
                    if buffers_small_responses && self.received_whole(shard, handle, bytes, on) {
                        return;
                    }
                    return self.received(shard, handle, bytes, on);
                }
            }
            Event::PeerFinished { socket } => {
                let handle = self.shared.borrow().exchange_of(socket);
                if let Some(handle) = handle {
                    return self.peer_finished(shard, handle, on);
                }
            }
            Event::Failed { socket, error } => {
                let handle = self.shared.borrow().exchange_of(socket);
                if let Some(handle) = handle {
                    let _ = self.shared.borrow_mut().pool.event(shard, event);
                    return self.broken(shard, handle, error, on);
                }
            }
            Event::SendBlocked { socket } => {
                if let Some(handle) = self.blocked(socket, shard.now_ns, true) {
                    return self.shared.borrow_mut().set_timer(shard, handle);
                }
            }
            Event::SendDrained { socket } => {
                if let Some(handle) = self.blocked(socket, shard.now_ns, false) {
                    let is_calm = self.shared.borrow_mut().flush(shard, handle);
                    if !is_calm {
                        self.after_flush(shard, handle, on);
                    }
                    return;
                }
            }
            _ => {}
        }
        // An exchange that is aborted and not cleaned up yet is leased: its events are dropped.
        let _: EventOwner = self.shared.borrow_mut().pool.event(shard, event);
    }

    /// The connection of an exchange is gone. Bytes that came before that and wait for the reader are reported first,
    /// then the failure.
    fn broken<D: Driver>(
        &self,
        shard: &mut ShardContext<'_, D>,
        handle: Handle<Exchange>,
        error: Errno,
        on: &mut impl Listener,
    ) {
        {
            let shared = &mut *self.shared.borrow_mut();
            if let Some(exchange) = shared.exchanges.get_mut(handle)
                && exchange.kept.is_some()
            {
                exchange.broken = Some(error);
                exchange.keeps_alive = false;
                exchange.is_blocked = false;
                return shared.set_timer(shard, handle);
            }
        }
        self.fail(shard, handle, FailureCause::Broken(error), on);
    }

    fn blocked(&self, socket: SocketId, now_ns: u64, is_blocked: bool) -> Option<Handle<Exchange>> {
        let shared = &mut *self.shared.borrow_mut();
        let handle = shared.exchange_of(socket)?;
        let exchange = shared.exchanges.get_mut(handle)?;
        exchange.is_blocked = is_blocked;
        exchange.since_ns = now_ns;
        Some(handle)
    }

    /// The shard was woken.
    pub(crate) fn on_wake<D: Driver>(&self, shard: &mut ShardContext<'_, D>) {
        self.shared.borrow_mut().pool.on_wake(shard);
    }

    /// A timer fired. `None`: it is not the client's; true: it is the service's alarm.
    pub(crate) fn timer_expired<D: Driver>(
        &self,
        shard: &mut ShardContext<'_, D>,
        user: u64,
        on: &mut impl Listener,
    ) -> Option<bool> {
        if user & EXCHANGE_TIMER_BIT == 0 {
            let is_pools = self.shared.borrow_mut().pool.timer_expired(shard, user);
            return is_pools.then_some(false);
        }
        if user & ALARM_TIMER_BIT != 0 {
            let shared = &mut *self.shared.borrow_mut();
            if shard.now_ns < shared.alarm_ns {
                shared.is_alarm_set = false;
                return Some(false);
            }
            shared.alarm_ns = u64::MAX;
            return Some(true);
        }
        let handle = Handle::from_bits(user & !EXCHANGE_TIMER_BIT);
        let deadline_ns = {
            let shared = self.shared.borrow();
            let exchange = shared.exchanges.get(handle);
            exchange.map(|exchange| exchange.deadline().0)
        };
        match deadline_ns {
            Some(deadline_ns) if deadline_ns <= shard.now_ns => {
                self.fail(shard, handle, FailureCause::TimedOut, on);
            }
            Some(_) => self.shared.borrow_mut().set_timer(shard, handle),
            None => {}
        }
        Some(false)
    }

    fn set_alarm<D: Driver>(&self, shard: &mut ShardContext<'_, D>) {
        let shared = &mut *self.shared.borrow_mut();
        if std::mem::replace(&mut shared.is_alarm_set, true) || shared.alarm_ns == u64::MAX {
            return;
        }
        let user = EXCHANGE_TIMER_BIT | ALARM_TIMER_BIT;
        let timer = shared
            .alarm_timer
            .get_or_insert_with(|| shard.timers.create(user));
        shard.timers.set(*timer, shared.alarm_ns);
    }
}

/// Calls the listener; nothing of the client is borrowed.
pub(super) fn tell<D: Driver>(
    shard: &mut ShardContext<'_, D>,
    handle: Handle<Exchange>,
    user: u64,
    event: ExchangeEvent<'_>,
    on: &mut impl Listener,
) {
    let id = ExchangeId(handle.to_bits());
    on.hear(shard, id, user, event);
}

impl ClientShared {
    /// The exchange has its connection. Returns whether it is calm then.
    fn start<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        handle: Handle<Exchange>,
        lease: Lease,
    ) -> bool {
        self.own(lease.socket, handle);
        let Some(exchange) = self.exchanges.get_mut(handle) else {
            return true;
        };
        let report = &mut exchange.report;
        report.is_reused = lease.is_reused;
        report.connection_ns = shard.now_ns.saturating_sub(exchange.began_ns);
        report.resolve_ns = lease.times.resolve_ns;
        report.connect_ns = lease.times.connect_ns;
        report.tls_ns = lease.times.tls_ns;
        exchange.stage = Stage::Open(lease.socket);
        exchange.connected_ns = shard.now_ns;
        exchange.since_ns = shard.now_ns;
        if !exchange.preface.is_empty() {
            let preface = std::mem::take(&mut exchange.preface);
            let outcome = shard.driver.send_below_tls(lease.socket, preface);
            exchange.is_blocked = outcome == SendOutcome::Blocked;
        }
        exchange.flush(shard, lease.socket);
        exchange.set_timer(shard, handle, &mut self.spare_timers);
        exchange.is_calm()
    }

    /// Sends the pending bytes, and sets the next deadline. Returns whether the exchange is calm then.
    pub(super) fn flush<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        handle: Handle<Exchange>,
    ) -> bool {
        let Some(exchange) = self.exchanges.get_mut(handle) else {
            return true;
        };
        if let Stage::Open(socket) = exchange.stage {
            exchange.flush(shard, socket);
            exchange.set_timer(shard, handle, &mut self.spare_timers);
        }
        exchange.is_calm()
    }

    /// The deadline of what the exchange does now.
    pub(super) fn set_timer<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        handle: Handle<Exchange>,
    ) {
        if let Some(exchange) = self.exchanges.get_mut(handle) {
            exchange.set_timer(shard, handle, &mut self.spare_timers);
        }
    }

    /// Lets the driver receive, or not, as the reader wants.
    pub(super) fn match_pause<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        handle: Handle<Exchange>,
    ) {
        let Some(exchange) = self.exchanges.get_mut(handle) else {
            return;
        };
        let Stage::Open(socket) = exchange.stage else {
            return;
        };
        if exchange.is_paused == exchange.is_receive_paused {
            return;
        }
        exchange.is_receive_paused = exchange.is_paused;
        exchange.since_ns = shard.now_ns;
        match exchange.is_paused {
            true => shard.driver.pause_receive(socket),
            false => shard.driver.resume_receive(socket),
        }
        self.set_timer(shard, handle);
    }

    /// Cleans up an exchange that has left the slab: its timer, its place in the queue and its connection.
    pub(super) fn leave<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        holdings: Holdings,
        is_clean: bool,
    ) {
        if let Some(timer) = holdings.timer {
            // Where it is: the next exchange has a later deadline, and moving later costs nothing.
            // Should it fire before, it finds no exchange.
            match self.spare_timers.len() < SPARE_TIMERS_MAX {
                true => self.spare_timers.push(timer),
                false => shard.timers.remove(timer),
            }
        }
        if let Some(waiter) = waiter_of(holdings.stage) {
            self.pool.cancel(shard, waiter);
        }
        let Stage::Open(socket) = holdings.stage else {
            return;
        };
        self.disown(socket);
        if !is_clean {
            return self.pool.discard(shard, socket);
        }
        if holdings.is_receive_paused {
            shard.driver.resume_receive(socket);
        }
        self.pool.give_back(shard, socket);
    }
}

impl Exchange {
    /// Sends what is there.
    #[inline]
    fn flush<D: Driver>(&mut self, shard: &mut ShardContext<'_, D>, socket: SocketId) {
        for buffer in [&mut self.output, &mut self.overflow] {
            if self.is_blocked || buffer.is_empty() {
                continue;
            }
            let data: Buffer = std::mem::take(buffer);
            self.report.request_bytes += data.len() as u64;
            self.since_ns = shard.now_ns;
            self.is_blocked = shard.driver.send(socket, data) == SendOutcome::Blocked;
        }
        if self.owes_fin() {
            self.is_blocked = shard.driver.finish_send(socket) == SendOutcome::Blocked;
            self.is_fin_sent = !self.is_blocked;
        }
    }

    /// The deadline of what it does now. A timer of an exchange that has ended is as good as a new one.
    #[inline]
    fn set_timer<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        handle: Handle<Self>,
        spare_timers: &mut Vec<TimerId>,
    ) {
        let (deadline_ns, _) = self.deadline();
        let user = handle.to_bits() | EXCHANGE_TIMER_BIT;
        let timers = &mut *shard.timers;
        let timer = self.timer.get_or_insert_with(|| {
            let Some(spare) = spare_timers.pop() else {
                return timers.create(user);
            };
            timers.reuse(spare, user);
            spare
        });
        timers.set(*timer, deadline_ns);
    }
}

// One exchange under way: unsent bytes, and progress of its response.

/// Less room than this is none: it is not worth a part of a body.
const ROOM_BYTES_MIN: usize = 4 * 1024;

/// How far the connection is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    /// It was not asked for.
    New,
    /// The pool has promised one.
    Waiting(WaiterId),
    /// It is leased.
    Open(SocketId),
}

/// Resources of others that an exchange holds, returned when it ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holdings {
    pub(super) stage: Stage,
    pub(super) timer: Option<TimerId>,
    pub(super) is_receive_paused: bool,
}

/// How the rest of the request is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Outgoing {
    Length {
        remaining_bytes: u64,
    },
    Chunked,
    /// The other protocol.
    Raw,
    Finished,
}

/// How far the response is.
#[derive(Clone, Debug)]
pub(super) enum Incoming {
    /// The head, or an informational one, is to come.
    Head,
    Body(BodyDecoder),
    /// The other protocol.
    Raw,
    /// The upstream has sent its FIN; written bytes still go to it.
    RawFinished,
    /// Complete: its end is to be reported.
    Complete,
}

/// One exchange and its phase.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) key: PoolKey,
    pub(super) user: u64,
    pub(super) method: Method,
    pub(super) stage: Stage,
    /// To be sent when the tick ends, or when the driver has room.
    pub(super) output: Buffer,
    /// Bytes that did not fit the output's block.
    pub(super) overflow: Buffer,
    pub(super) outgoing: Outgoing,
    pub(super) incoming: Incoming,
    /// Of a head that has not come whole.
    pub(super) partial: Buffer,
    /// Of a body whose reader has paused.
    pub(super) kept: Option<Pooled<KeptInput>>,
    pub(super) trailer: Buffer,
    pub(super) timeouts: Timeouts,
    pub(super) report: ExchangeReport,
    pub(super) timer: Option<TimerId>,
    pub(super) began_ns: u64,
    /// When there was a connection.
    pub(super) connected_ns: u64,
    /// When the phase it is in began, or last went on.
    pub(super) since_ns: u64,
    pub(super) awaits_continue: bool,
    pub(super) may_upgrade: bool,
    pub(super) needs_own_connection: bool,
    /// To be sent on a connection of its own, before anything else.
    pub(super) preface: Buffer,
    pub(super) is_noted: bool,
    /// The driver keeps bytes for which the kernel had no room.
    pub(super) is_blocked: bool,
    /// The writer knows that there is no room.
    pub(super) wants_room: bool,
    /// The reader wants nothing now.
    pub(super) is_paused: bool,
    /// The driver knows it.
    pub(super) is_receive_paused: bool,
    /// The upstream sends no more; the bytes it sent are not read to their end.
    pub(super) is_peer_finished: bool,
    /// The connection broke while what had been received waited for the reader.
    pub(super) broken: Option<Errno>,
    pub(super) has_response_begun: bool,
    /// A FIN to the upstream has ended the other protocol's bytes.
    pub(super) is_fin_sent: bool,
    pub(super) keeps_alive: bool,
}

impl Exchange {
    pub(super) fn new(key: PoolKey, request: OutgoingRequest) -> Self {
        Self {
            key,
            user: request.user,
            method: request.method,
            stage: Stage::New,
            output: request.head,
            overflow: Buffer::new(),
            outgoing: outgoing_of(request.body),
            incoming: Incoming::Head,
            partial: Buffer::new(),
            kept: None,
            trailer: Buffer::new(),
            timeouts: request.timeouts,
            report: ExchangeReport::default(),
            timer: None,
            began_ns: 0,
            connected_ns: 0,
            since_ns: 0,
            awaits_continue: request.awaits_continue,
            may_upgrade: request.may_upgrade,
            needs_own_connection: request.needs_own_connection || !request.preface.is_empty(),
            preface: request.preface,
            // The side that begins it notes it.
            is_noted: true,
            is_blocked: false,
            wants_room: false,
            is_paused: false,
            is_receive_paused: false,
            is_peer_finished: false,
            broken: None,
            has_response_begun: false,
            is_fin_sent: false,
            keeps_alive: false,
        }
    }

    pub(super) fn write(
        &mut self,
        part: &[u8],
        blocks: &BlockPool,
    ) -> Result<(), ExchangeWriteError> {
        let given_bytes = part.len();
        let output = self.place_for(given_bytes);
        match self.outgoing {
            Outgoing::Length { remaining_bytes } => {
                let Some(left_bytes) = remaining_bytes.checked_sub(given_bytes as u64) else {
                    return Err(ExchangeWriteError::PastLength {
                        given_bytes,
                        left_bytes: remaining_bytes,
                    });
                };
                self.place(output).extend_from_slice(blocks, part)?;
                self.outgoing = match left_bytes {
                    0 => Outgoing::Finished,
                    remaining_bytes => Outgoing::Length { remaining_bytes },
                };
            }
            Outgoing::Chunked => encode_chunk(self.place(output), blocks, part)?,
            Outgoing::Raw => self.place(output).extend_from_slice(blocks, part)?,
            Outgoing::Finished if part.is_empty() => {}
            Outgoing::Finished => {
                return Err(ExchangeWriteError::PastLength {
                    given_bytes,
                    left_bytes: 0,
                });
            }
        }
        Ok(())
    }

    /// Which buffer so many bytes go into: the first, unless they would burst its pooled block.
    fn place_for(&self, bytes: usize) -> bool {
        let is_full = self.output.len() + bytes + FRAMING_BYTES > STREAM_OUTPUT_BYTES;
        !self.overflow.is_empty() || is_full && !self.output.is_empty()
    }

    fn place(&mut self, is_overflow: bool) -> &mut Buffer {
        match is_overflow {
            true => &mut self.overflow,
            false => &mut self.output,
        }
    }

    pub(super) fn finish<'t>(
        &mut self,
        trailers: impl Iterator<Item = Field<'t>> + Clone,
        blocks: &BlockPool,
    ) -> Result<(), ExchangeWriteError> {
        match self.outgoing {
            Outgoing::Length { remaining_bytes } => {
                let left_bytes = remaining_bytes;
                return Err(ExchangeWriteError::Missing { left_bytes });
            }
            Outgoing::Chunked => {
                let output = self.place_for(fields_bytes(trailers.clone()));
                encode_last_chunk(self.place(output), blocks, trailers)?;
            }
            Outgoing::Raw | Outgoing::Finished => {}
        }
        self.outgoing = Outgoing::Finished;
        Ok(())
    }

    /// How much may be written now; after 0, room is reported to the writer later.
    pub(super) fn room_bytes(&mut self) -> usize {
        let has_overflow = !self.overflow.is_empty();
        let free_bytes = room_bytes(&self.output);
        if self.is_blocked || has_overflow || free_bytes < ROOM_BYTES_MIN {
            self.wants_room = true;
            return 0;
        }
        free_bytes
    }

    /// No report of room or of kept bytes is due, and the driver's receive state is right.
    pub(super) fn is_calm(&self) -> bool {
        self.kept.is_none()
            && !self.wants_room
            && self.is_paused == self.is_receive_paused
            && !self.is_tunnel_over()
    }

    /// Both sides of the other protocol have finished.
    pub(super) fn is_tunnel_over(&self) -> bool {
        self.is_fin_sent && matches!(self.incoming, Incoming::RawFinished)
    }

    /// All bytes for the upstream of another protocol have left: sends a FIN.
    pub(super) fn owes_fin(&self) -> bool {
        matches!(self.incoming, Incoming::Raw | Incoming::RawFinished)
            && self.is_request_complete()
            && !self.is_fin_sent
    }

    pub(super) fn holdings(&self) -> Holdings {
        Holdings {
            stage: self.stage,
            timer: self.timer,
            is_receive_paused: self.is_receive_paused,
        }
    }

    /// All of the request is with the kernel.
    pub(super) fn is_request_complete(&self) -> bool {
        self.outgoing == Outgoing::Finished
            && self.output.is_empty()
            && self.overflow.is_empty()
            && !self.is_blocked
    }

    /// The current phase, and how long it may take from `since_ns` on.
    fn phase(&self) -> (Phase, u64) {
        let timeouts = &self.timeouts;
        if self.is_blocked {
            return (Phase::Write, timeouts.write_ns);
        }
        match self.incoming {
            Incoming::Head if self.is_request_complete() || self.awaits_continue => {
                (Phase::FirstByte, timeouts.first_byte_ns)
            }
            // The rest of the request is to come from its sender.
            Incoming::Head => (Phase::Write, u64::MAX),
            Incoming::Raw | Incoming::RawFinished => (Phase::Tunnel, timeouts.tunnel_idle_ns),
            Incoming::Body(_) | Incoming::Complete if self.is_paused => {
                (Phase::BetweenBytes, u64::MAX)
            }
            Incoming::Body(_) | Incoming::Complete => {
                (Phase::BetweenBytes, timeouts.between_bytes_ns)
            }
        }
    }

    /// When an exchange with a connection ends if nothing happens, and in which phase.
    pub(super) fn deadline(&self) -> (u64, Phase) {
        let (phase, allowed_ns) = self.phase();
        let phase_ns = self.since_ns.saturating_add(allowed_ns);
        let total_ns = match self.incoming {
            // A tunnel has no deadline of ours.
            Incoming::Raw | Incoming::RawFinished => u64::MAX,
            _ => self.began_ns.saturating_add(self.timeouts.total_ns),
        };
        match total_ns < phase_ns {
            true => (total_ns, Phase::Total),
            false => (phase_ns, phase),
        }
    }

    /// A failure now.
    pub(super) fn failure(&self, cause: FailureCause) -> ExchangeFailure {
        let phase = match (&cause, self.stage) {
            (FailureCause::Connection(error), _) => error.phase().into(),
            (_, Stage::New | Stage::Waiting(_)) => Phase::Queue,
            (FailureCause::TimedOut, _) => self.deadline().1,
            _ => self.phase().0,
        };
        ExchangeFailure {
            cause,
            phase,
            is_reused: self.report.is_reused,
            may_have_arrived: self.report.request_bytes > 0,
            has_response_begun: self.has_response_begun,
        }
    }

    /// Time it has taken so far.
    pub(super) fn report_at(&self, now_ns: u64) -> ExchangeReport {
        ExchangeReport {
            is_request_complete: self.is_request_complete(),
            total_ns: now_ns.saturating_sub(self.began_ns),
            ..self.report
        }
    }
}
