//! Bytes in and out of one socket, in the pieces that the plan's chances make of them.

use super::socket::Socket;
use super::wire::Arrived;
use super::{Event, SendOutcome, SimDriver, SocketId};
use crate::driver::lifecycle::{Receiving, Stage, perform};
use crate::pools::ShardPools;
use millpond_mempool::{Buffer, Handle, Lease};
use rustix::io::Errno;
use std::mem;

/// What a flush achieved.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Flushed {
    /// Nothing is queued any more.
    All,
    /// There is no room.
    Some {
        sent_any: bool,
    },
    Failed(Errno),
}

impl SimDriver {
    /// Leaves `data` its room when all of it was taken at once.
    pub(super) fn send_or_queue(&mut self, id: SocketId, data: &mut Buffer) -> SendOutcome {
        let Some(socket) = self.socket(id) else {
            data.release();
            return SendOutcome::Done;
        };
        socket.usage.sent();
        let end = socket.end;
        match socket.life.stage() {
            Stage::Open if socket.queue.is_empty() => {}
            Stage::Open if socket.is_late => {
                socket.queue.push_back(mem::take(data));
                return SendOutcome::Done;
            }
            Stage::Open | Stage::Connecting => {
                socket.queue.push_back(mem::take(data));
                socket.owes_blocked = false;
                return SendOutcome::Blocked;
            }
            Stage::Failing(_) | Stage::Sending | Stage::Lingering | Stage::Closed => {
                data.release();
                return SendOutcome::Done;
            }
        }
        if self.is_send_late() {
            if let Some(socket) = self.socket(id) {
                socket.queue.push_back(mem::take(data));
                socket.is_late = true;
            }
            return SendOutcome::Done;
        }
        self.counters.sends += 1;
        match self.write(end, data) {
            Ok(sent) if sent == data.len() => {
                data.clear();
                SendOutcome::Done
            }
            Ok(sent) => {
                self.counters.sends_blocked += 1;
                data.consume_front(sent);
                if let Some(socket) = self.socket(id) {
                    socket.queue.push_back(mem::take(data));
                }
                SendOutcome::Blocked
            }
            Err(error) => {
                data.release();
                self.fail_later(id, error);
                SendOutcome::Blocked
            }
        }
    }

    fn is_send_late(&self) -> bool {
        let mut state = self.network.state();
        let probability = state.plan.late_sends;
        state.chance(probability)
    }

    /// Makes the send of one socket that was put off.
    pub(super) fn send_late(&mut self, id: SocketId) {
        let flushed = self.flush(id);
        let Some(socket) = self.socket(id) else {
            return;
        };
        socket.is_late = false;
        match flushed {
            Flushed::All => {}
            Flushed::Some { .. } => {
                socket.owes_blocked = socket.life.stage() == Stage::Open;
                self.counters.sends_blocked += 1;
            }
            Flushed::Failed(error) => self.fail_later(id, error),
        }
    }

    /// Makes the sends that were put off to this tick.
    pub(super) fn make_late_sends(&mut self) {
        let late = |(handle, socket): (Handle<Socket>, &Socket)| {
            socket.is_late.then(|| super::id_of(handle))
        };
        let ids: Vec<SocketId> = self.sockets.iter().filter_map(late).collect();
        for id in ids {
            if let Some(socket) = self.socket(id)
                && socket.life.stage() == Stage::Sending
            {
                // What follows the last byte is up to the closing.
                socket.is_late = false;
                continue;
            }
            self.send_late(id);
        }
    }

    /// Hands over as many of `bytes` as there is room for and the plan's chances let through.
    fn write(&mut self, end: super::wire::EndId, bytes: &[u8]) -> Result<usize, Errno> {
        let mut state = self.network.state();
        let state = &mut *state;
        let is_short = !bytes.is_empty() && state.chance(state.plan.short_sends);
        let tried = if is_short {
            state.rng.usize(0..bytes.len())
        } else {
            bytes.len()
        };
        let sent = state.wire(end).write(end.end, &bytes[..tried])?;
        state.note(end.wire, "sent", sent as u64);
        self.counters.sent_bytes += sent as u64;
        Ok(sent)
    }

    /// Sends what is queued until there is no room.
    pub(super) fn flush(&mut self, id: SocketId) -> Flushed {
        let mut sent_any = false;
        loop {
            let Some(socket) = self.socket(id) else {
                return Flushed::All;
            };
            let end = socket.end;
            let Some(mut data) = socket.queue.pop_front() else {
                return Flushed::All;
            };
            self.counters.sends += 1;
            let sent = match self.write(end, &data) {
                Ok(sent) => sent,
                Err(error) => return Flushed::Failed(error),
            };
            sent_any |= sent > 0;
            if sent < data.len() {
                data.consume_front(sent);
                if let Some(socket) = self.socket(id) {
                    socket.queue.push_front(data);
                }
                return Flushed::Some { sent_any };
            }
        }
    }

    /// A blocked socket takes bytes again.
    pub(super) fn flush_open<H>(&mut self, id: SocketId, pools: &mut ShardPools, handler: &mut H)
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        match self.flush(id) {
            Flushed::Some { .. } => {}
            // Not at once: the reason for it may have arrived.
            Flushed::Failed(error) => self.fail_later(id, error),
            Flushed::All => handler(self, pools, Event::SendDrained { socket: id }),
        }
    }

    /// One receive of an open socket that has something to tell.
    pub(super) fn receive_open<H>(&mut self, id: SocketId, pools: &mut ShardPools, handler: &mut H)
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        let network = self.network.clone();
        let Some((end, receiving)) = self
            .socket(id)
            .map(|socket| (socket.end, socket.life.receiving()))
        else {
            return;
        };
        if receiving != Receiving::On {
            // A pause hides bytes and the FIN, not a reset.
            let error = network.state().wire(end).error(end.end);
            if let Some(error) = error {
                self.remove_failed(id, error, pools, handler);
            }
            return;
        }
        let Some(mut buffer) = self.free_buffer(pools) else {
            return;
        };
        self.counters.receives += 1;
        match self.fill(end, &mut buffer) {
            Arrived::Bytes(count) => {
                self.counters.received_bytes += count as u64;
                if let Some(socket) = self.socket(id) {
                    socket.usage.received(count);
                }
                let bytes = &buffer[..];
                handler(self, pools, Event::Received { socket: id, bytes });
            }
            Arrived::Finished => {
                if let Some(socket) = self.socket(id) {
                    let step = socket.life.peer_finished();
                    perform(self, id, step);
                }
                handler(self, pools, Event::PeerFinished { socket: id });
            }
            Arrived::Nothing => {}
            Arrived::Failed(error) => self.remove_failed(id, error, pools, handler),
        }
    }

    /// What to receive into, unless memory or the plan says no.
    fn free_buffer(&mut self, pools: &mut ShardPools) -> Option<Lease> {
        let mut state = self.network.state();
        let probability = state.plan.buffers_missing;
        if state.chance(probability) {
            return None;
        }
        pools.io_buffers.lease().ok()
    }

    /// Moves one piece of what arrived into `buffer`.
    fn fill(&mut self, end: super::wire::EndId, buffer: &mut Lease) -> Arrived {
        let mut state = self.network.state();
        let state = &mut *state;
        let wire = &mut state.wires[end.wire];
        let available = wire.waiting(end.end).min(buffer.capacity());
        let count = match available {
            0 => 0,
            _ => {
                let offset = wire.read_bytes(end.end);
                wire.cuts
                    .take(offset, available, &state.plan, &mut state.rng)
            }
        };
        self.scratch.clear();
        let arrived = wire.read(end.end, &mut self.scratch, count);
        state.note(end.wire, "received", count as u64);
        let scratch = &self.scratch;
        let filled = buffer.fill_from(|room| -> Result<&mut [u8], std::convert::Infallible> {
            Ok(room[..scratch.len()].write_copy_of_slice(scratch))
        });
        debug_assert!(filled.is_ok_and(|bytes| bytes.len() == count));
        arrived
    }
}
