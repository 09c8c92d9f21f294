//! Receives: one per readiness, and pausing without system calls where possible.

use super::socket::{Socket, Stage};
use super::{EpollDriver, Event, SocketId};
use crate::driver::handle_of;
use crate::driver::receive_stamps::ReceiveStamps;
use crate::driver::receiving::Receiving;
use crate::op::close::pending_error;
use crate::op::receive::{Received, receive_now};
use crate::pools::ShardPools;
use millpond_mempool::Lease;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

impl EpollDriver {
    #[cold]
    pub(super) fn receive_open<H>(
        &mut self,
        id: SocketId,
        flags: EventFlags,
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
            ..
        } = self;
        // The handler of another event may have closed it since.
        let Some(socket) = sockets.get_mut(handle_of(id)) else {
            return;
        };
        if socket.stage != Stage::Open {
            return;
        }
        match receive_wanted(socket, buffer, turn_bytes, receive_stamps) {
            Some(received) => self.report_received(id, received, buffer, pools, handler),
            None => self.ready_but_unwanted(id, flags, pools, handler),
        }
    }

    /// Inlined into the dispatch, which nearly always comes here.
    #[inline(always)]
    pub(super) fn report_received<H>(
        &mut self,
        id: SocketId,
        received: Received,
        buffer: &Lease,
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        self.counters.receives += 1;
        let Received::Bytes(count) = received else {
            return self.report_no_bytes(id, received, pools, handler);
        };
        self.counters.received_bytes += count as u64;
        handler(
            self,
            pools,
            Event::Received {
                socket: id,
                bytes: &buffer[..],
            },
        );
    }

    #[inline(never)]
    fn report_no_bytes<H>(
        &mut self,
        id: SocketId,
        received: Received,
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        match received {
            Received::Finished => {
                socket_finished(self, id);
                handler(self, pools, Event::PeerFinished { socket: id });
                // A FIN keeps a socket readable for ever; most owners have closed it by now.
                if self
                    .socket(id)
                    .is_some_and(|socket| socket.stage == Stage::Open)
                {
                    self.rewatch(id, EventFlags::empty(), EventFlags::IN);
                }
            }
            Received::Bytes(_) | Received::NotReady => {}
            Received::Failed(error) => self.fail_in_turn(id, error, pools, handler),
        }
    }

    pub(super) fn pause(&mut self, id: SocketId) {
        // Whether bytes arrive during the pause is not known yet; only then is epoll told.
        if let Some(socket) = self.socket(id)
            && socket.receiving == Receiving::On
        {
            socket.receiving = Receiving::Paused;
        }
    }

    pub(super) fn resume(&mut self, id: SocketId) {
        let Some(socket) = self.socket(id) else {
            return;
        };
        if socket.receiving != Receiving::Paused {
            return;
        }
        socket.receiving = Receiving::On;
        if socket.stage == Stage::Open {
            let unsent = if socket.queue.is_empty() {
                EventFlags::empty()
            } else {
                EventFlags::OUT
            };
            self.rewatch(id, EventFlags::IN.union(unsent), EventFlags::empty());
        }
    }

    /// Bytes, a FIN or a failure came while nobody wants bytes: make the kernel quiet about it.
    #[cold]
    pub(super) fn ready_but_unwanted<H>(
        &mut self,
        id: SocketId,
        flags: EventFlags,
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        if !flags.intersects(EventFlags::ERR | EventFlags::HUP) {
            return self.rewatch(id, EventFlags::empty(), EventFlags::IN);
        }
        let Some(socket) = self.socket(id) else {
            return;
        };
        let receiving = socket.receiving;
        match pending_error(socket.fd()) {
            Some(error) => self.fail_in_turn(id, error, pools, handler),
            // Hung up after the FIN was reported: sending cannot work any more either.
            None if receiving == Receiving::Finished => {
                self.fail_in_turn(id, Errno::PIPE, pools, handler);
            }
            // A unix peer closed and its last bytes are here. A hang-up cannot be masked, so the
            // socket leaves epoll until receiving goes on; sends fail by themselves.
            None => {
                if let Err(error) = self.watch(id, None) {
                    self.fail_later(id, error);
                }
            }
        }
    }
}

/// Receives, unless nobody wants bytes of this socket. Part of the dispatch, by which nearly all of them come:
/// a call of its own is 50 instructions of each request's 800.
#[inline(always)]
pub(super) fn receive_wanted(
    socket: &mut Socket,
    buffer: &mut Lease,
    turn_bytes: usize,
    stamps: &mut ReceiveStamps,
) -> Option<Received> {
    if socket.receiving != Receiving::On {
        return None;
    }
    let received = if stamps.turn() {
        stamps.receive(socket.fd(), buffer, turn_bytes)
    } else {
        receive_now(socket.fd(), buffer, turn_bytes)
    };
    if let Received::Bytes(count) = received {
        socket.standing.received(count);
    }
    Some(received)
}

fn socket_finished(driver: &mut EpollDriver, id: SocketId) {
    if let Some(socket) = driver.socket(id) {
        socket.receiving = Receiving::Finished;
    }
}
