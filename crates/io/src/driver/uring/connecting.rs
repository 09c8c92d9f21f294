//! Connections that we ask for: one poll tells that the handshake is over, however it ended.
#![allow(unsafe_code)]

use super::operation::{Operation, is_slot_nameable};
use super::socket::Socket;
use super::{Event, SocketId, UringDriver, handle_of, id_of};
use crate::address::Address;
use crate::driver::lifecycle::Stage;
use crate::driver::socket_count::Opener;
use crate::error::IoError;
use crate::op::connect::{connect_outcome, connect_start};
use crate::pools::ShardPools;
use crate::scheduler::Usage;
use io_uring::{cqueue, opcode, types};
use rustix::io::Errno;
use std::net::IpAddr;

impl UringDriver {
    pub(super) fn start_connecting(
        &mut self,
        to: &Address,
        source: Option<IpAddr>,
    ) -> Result<SocketId, IoError> {
        self.counters.connects += 1;
        let (fd, started) = connect_start(to, source)?;
        let no_memory = IoError::System {
            call: "io_uring_enter",
            error: Errno::NOMEM,
        };
        let Ok(handle) = self
            .sockets
            .insert(Socket::new(fd, Stage::Connecting, Usage::OURS))
        else {
            return Err(no_memory);
        };
        if !is_slot_nameable(handle.index()) {
            self.sockets.remove(handle);
            return Err(no_memory);
        }
        let id = id_of(handle);
        self.alive_count += 1;
        self.socket_count.opened(Opener::Us);
        if let Err(error) = started {
            self.fail_later(id, error);
            return Ok(id);
        }
        if let Some(socket) = self.sockets.get_mut(handle) {
            socket.has_connect = true;
            let events = libc::EPOLLOUT.cast_unsigned();
            let entry = opcode::PollAdd::new(types::Fd(socket.raw_fd()), events)
                .build()
                .user_data(Operation::Connect.on(id));
            // SAFETY: the entry points to no memory.
            unsafe { self.ring.push(&entry) };
        }
        Ok(id)
    }

    pub(super) fn connect_completed<H>(
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
        socket.has_connect = false;
        match socket.life.stage() {
            Stage::Closed => return self.release_in_turn(id),
            Stage::Connecting => {}
            _ => return,
        }
        // A poll that failed has seen nothing: the socket then knows of no error, and is not connected.
        let outcome = match completion.result() {
            0.. => connect_outcome(socket.fd()),
            negative => Err(Errno::from_raw_os_error(-negative)),
        };
        if let Err(error) = outcome {
            return self.remove_failed(id, error, pools, handler);
        }
        socket.life.connected();
        // Whoever connects means to exchange more than one message.
        socket.is_lasting = true;
        self.arm_queued_send(id);
        handler(self, pools, Event::Connected { socket: id });
        self.arm_receive(id);
    }
}
