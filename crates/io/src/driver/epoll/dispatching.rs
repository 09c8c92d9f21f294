//! Dispatches the kernel's events: between the wait of a tick and `receiving` and `accepting`. The `scheduler` decides
//! which events wait for a later tick.

use super::receiving::receive;
use super::{EpollDriver, Event, IsTurn, LISTENER_TOKEN, READABLE, SocketId, WAKE_TOKEN};
use crate::driver::accepting::accept_waiting;
use crate::driver::handle_of;
use crate::driver::lifecycle::{IsMoreLeft, Receiving, Stage, expire_deadlines};
use crate::op::connect::connect_outcome;
use crate::op::{Received, receive_now};
use crate::pools::ShardPools;
use crate::scheduler::{Usage, Work, receive_bytes};
use millpond_mempool::Lease;
use rustix::event::epoll::{self, EventFlags};
use std::thread;
use std::time::Duration;

/// How long a shard without memory to receive into lets its peers wait before it tries again.
const MEMORY_PAUSE: Duration = Duration::from_millis(1);

impl EpollDriver {
    pub(super) fn handle_events<H>(
        &mut self,
        events: &[epoll::Event],
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        if self.wake.take() {
            self.counters.wakes += 1;
            handler(self, pools, Event::Woken);
        }
        self.report_failing(pools, handler);
        self.turn_bytes = receive_bytes(events.len() + self.waiting.count());
        let lacks_memory = self.handle_sockets(events, pools, handler);
        if self.takes_last_connections() {
            accept_waiting(self, pools, handler);
            self.finish_accepting();
        }
        expire_deadlines(self);
        self.io_buffer.take_if(|_| self.sockets.is_empty());
        if lacks_memory {
            // Peers wait, and the next tick would try again at once; so there is a pause.
            thread::sleep(MEMORY_PAUSE);
        }
    }

    /// True when there was no memory to receive into.
    fn handle_sockets<H>(
        &mut self,
        events: &[epoll::Event],
        pools: &mut ShardPools,
        handler: &mut H,
    ) -> bool
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        let mut io_buffer = self.io_buffer.take();
        let mut is_listener_ready = false;
        let held_over = self.waiting.first_count();
        for event in events {
            let id = match event.data.u64() {
                WAKE_TOKEN => continue,
                LISTENER_TOKEN => {
                    is_listener_ready = true;
                    continue;
                }
                bits => SocketId::from_bits(bits),
            };
            let buffer = match &mut io_buffer {
                Some(buffer) => buffer,
                None => match pools.io_buffers.lease() {
                    Ok(lease) => io_buffer.insert(lease),
                    Err(_) => {
                        self.keep(id, event.flags);
                        continue;
                    }
                },
            };
            self.handle_socket(id, event.flags, IsTurn::No, buffer, pools, handler);
        }
        if self.waiting.count() > 0 && io_buffer.is_none() {
            io_buffer = pools.io_buffers.lease().ok();
        }
        if self.waiting.count() > 0
            && let Some(buffer) = &mut io_buffer
        {
            self.go_on(held_over, buffer, pools, handler);
            self.give_turns(buffer, pools, handler);
        }
        let lacks_memory = self.waiting.count() > 0 && io_buffer.is_none();
        self.io_buffer = io_buffer;
        if is_listener_ready || self.has_pending_connection() {
            accept_waiting(self, pools, handler);
        }
        lacks_memory
    }

    /// `flags`: events reported just now or before this turn. Other earlier events are left to the turn that the socket
    /// waits for.
    #[inline(always)]
    pub(super) fn handle_socket<H>(
        &mut self,
        id: SocketId,
        flags: EventFlags,
        is_turn: IsTurn,
        buffer: &mut Lease,
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        let turn_bytes = self.turn_bytes;
        let Self {
            sockets,
            receive_stamps,
            scheduler,
            ..
        } = self;
        let Some(socket) = sockets.get_mut(handle_of(id)) else {
            self.counters.stale_events += 1;
            return;
        };
        if is_turn == IsTurn::No && !scheduler.is_prompt(socket.usage) {
            let usage = socket.usage;
            return self.handle_other(id, flags, usage, buffer, pools, handler);
        }
        // The common case, before the other events are distinguished.
        if socket.life.stage() == Stage::Open
            && flags == EventFlags::IN
            && socket.life.receiving() == Receiving::On
        {
            let turn_bytes = socket.usage.receive_bytes(turn_bytes);
            let received = receive(socket, buffer, turn_bytes, receive_stamps);
            if let Received::Bytes(count) = received
                && count < turn_bytes
            {
                return self.report_bytes(id, buffer, pools, handler);
            }
            socket.ready = socket.ready.union(flags);
            return self.report_received(id, is_turn, received, buffer, pools, handler);
        }
        self.handle_otherwise(id, flags, is_turn, buffer, pools, handler);
    }

    /// See [`Self::handle_socket`].
    #[inline(never)]
    fn handle_otherwise<H>(
        &mut self,
        id: SocketId,
        flags: EventFlags,
        is_turn: IsTurn,
        buffer: &mut Lease,
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        let Some(socket) = self.socket(id) else {
            return;
        };
        let flags = flags.union(socket.ready);
        socket.ready = flags.difference(EventFlags::OUT);
        match socket.life.stage() {
            Stage::Open => {
                if flags.contains(EventFlags::OUT) {
                    self.flush_open(id, pools, handler);
                }
                if flags.intersects(READABLE) {
                    self.receive_open(id, is_turn, buffer, pools, handler);
                }
            }
            Stage::Connecting => self.finish_connecting(id, pools, handler),
            Stage::Sending | Stage::Lingering => self.advance_closing(id, flags, buffer),
            // Reported in a later tick.
            Stage::Failing(_) | Stage::Closed => {}
        }
    }

    /// A socket that is not prompt is ready: handled as it comes if none of its kind waits and the tick's
    /// budget is not spent, else in a later tick.
    #[inline(never)]
    fn handle_other<H>(
        &mut self,
        id: SocketId,
        flags: EventFlags,
        usage: Usage,
        buffer: &mut Lease,
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        if !self.waiting.admits_next(usage, &mut self.scheduler) {
            return self.defer(id, flags);
        }
        let turn_bytes = self.turn_bytes;
        self.turn_bytes = self.turn_bytes_of_others();
        self.handle_socket(id, flags, IsTurn::Yes, buffer, pools, handler);
        self.turn_bytes = turn_bytes;
    }

    fn finish_connecting<H>(&mut self, id: SocketId, pools: &mut ShardPools, handler: &mut H)
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        let Some(socket) = self.socket(id) else {
            return;
        };
        if let Err(error) = connect_outcome(socket.fd()) {
            return self.remove_failed(id, error, pools, handler);
        }
        socket.life.connected();
        let has_queue = !socket.queue.is_empty();
        if !has_queue {
            self.watch_room(id, false);
        }
        handler(self, pools, Event::Connected { socket: id });
        if has_queue {
            self.flush_open(id, pools, handler);
        }
        self.look_again(id);
    }

    /// One receive of what had arrived when a send failed. Without memory to receive into the failure is all
    /// that its owner learns of.
    fn receive_last<H>(
        &mut self,
        id: SocketId,
        pools: &mut ShardPools,
        handler: &mut H,
    ) -> IsMoreLeft
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        let turn_bytes = self.turn_bytes;
        let Some(socket) = self
            .socket(id)
            .filter(|socket| socket.life.has_last_bytes())
        else {
            return IsMoreLeft::No;
        };
        let Ok(mut buffer) = pools.io_buffers.lease() else {
            return IsMoreLeft::No;
        };
        let Received::Bytes(_) = receive_now(socket.fd(), &mut buffer, turn_bytes) else {
            return IsMoreLeft::No;
        };
        self.failing.push_back(id);
        self.report_bytes(id, &buffer, pools, handler);
        IsMoreLeft::Yes
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
                .socket(id)
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
