//! Closing: the steps of a socket's life in the network in memory.

use super::moving::Flushed;
use super::wire::Arrived;
use super::{SimDriver, SocketId};
use crate::driver::lifecycle::{Closing, Life, SocketDriver, Stage, Step, leave, perform};
use crate::timer_wheel::TimerWheel;
use rustix::io::Errno;

/// What one look discards at most.
const DISCARD_STEP_BYTES: usize = 64 << 10;

impl SimDriver {
    /// Closes, once the bytes are out that counted as sent.
    pub(super) fn close_now(&mut self, id: SocketId) {
        match self.socket(id) {
            Some(socket) if socket.life.stage() == Stage::Open && socket.owes_bytes() => {
                socket.life.close_without_lingering();
                leave(self, id);
            }
            _ => self.remove(id),
        }
    }

    /// A closing socket can send or has something to throw away.
    pub(super) fn advance_closing(&mut self, id: SocketId) {
        if self.stage(id) == Some(Stage::Sending) {
            let flushed = self.flush(id);
            let Some(socket) = self.socket(id) else {
                return;
            };
            let step = match flushed {
                Flushed::All => socket.life.queue_sent(),
                Flushed::Failed(_) => Step::Close,
                Flushed::Some { sent_any: true } => socket.life.queue_moved(),
                Flushed::Some { sent_any: false } => Step::Nothing,
            };
            perform(self, id, step);
        }
        if self.socket(id).is_some_and(|socket| socket.life.discards()) {
            self.discard(id);
        }
    }

    fn discard(&mut self, id: SocketId) {
        let Some(end) = self.socket(id).map(|socket| socket.end) else {
            return;
        };
        let mut thrown_away = Vec::new();
        let arrived =
            self.network
                .state()
                .wire(end)
                .read(end.end, &mut thrown_away, DISCARD_STEP_BYTES);
        if let Arrived::Bytes(count) = arrived {
            self.counters.receives += 1;
            self.counters.received_bytes += count as u64;
        }
        let Some(socket) = self.socket(id) else {
            return;
        };
        let step = match arrived {
            Arrived::Bytes(count) => socket.life.discarded(count),
            Arrived::Finished => socket.life.peer_finished(),
            Arrived::Nothing => Step::Nothing,
            Arrived::Failed(_) => Step::Close,
        };
        perform(self, id, step);
    }
}

impl SocketDriver for SimDriver {
    fn life(&mut self, id: SocketId) -> Option<&mut Life> {
        self.socket(id).map(|socket| &mut socket.life)
    }

    fn closing_mut(&mut self) -> &mut Closing {
        &mut self.closing
    }

    fn deadlines_mut(&mut self) -> &mut TimerWheel {
        &mut self.deadlines
    }

    fn tick_ns(&self) -> u64 {
        self.now_ns
    }

    fn has_queue(&mut self, id: SocketId) -> bool {
        self.socket(id)
            .is_some_and(|socket| !socket.queue.is_empty())
    }

    fn send_fin(&mut self, id: SocketId) -> Result<(), Errno> {
        if let Some(end) = self.socket(id).map(|socket| socket.end) {
            self.network.state().wire(end).finish(end.end);
        }
        Ok(())
    }

    /// Each tick looks at what arrived.
    fn receive_to_discard(&mut self, _id: SocketId) {}

    fn remove(&mut self, id: SocketId) {
        self.close_socket(id);
    }

    fn reset_now(&mut self, id: SocketId) {
        self.remove_with(id, |wire, end| {
            wire.reset(end, true);
            true
        });
    }

    fn report_failure_later(&mut self, id: SocketId) {
        if let Some(socket) = self.socket(id) {
            socket.queue.clear();
        }
    }

    fn accept_again(&mut self) {
        self.resume_accepting();
    }
}
