//! Lingering close, as the epoll driver does it.

use super::moving::Flushed;
use super::socket::Stage;
use super::wire::Arrived;
use super::{SimDriver, SocketId};
use crate::driver::accept_limits::RETRY_TIMER_USER;
use crate::driver::linger::{DISCARD_BYTES_MAX, LINGER_NS, STALL_NS};
use crate::driver::receiving::Receiving;

/// What one look discards at most.
const DISCARD_STEP_BYTES: usize = 64 << 10;

impl SimDriver {
    pub(super) fn start_closing(&mut self, id: SocketId) {
        let Some(socket) = self.socket(id) else {
            return;
        };
        match socket.stage {
            Stage::Sending | Stage::Lingering | Stage::Gone { .. } => return,
            Stage::Connecting(_) | Stage::Unanswered | Stage::Failing(_) => return self.remove(id),
            Stage::Open => {}
        }
        let has_queue = !socket.queue.is_empty();
        self.leave_sending(id);
        if !has_queue {
            self.start_lingering(id);
        }
    }

    /// Closes without lingering, once the bytes are out that counted as sent.
    pub(super) fn start_plain_closing(&mut self, id: SocketId) {
        match self.socket(id) {
            Some(socket) if socket.stage == Stage::Open && socket.owes_bytes() => {
                socket.is_plain_close = true;
                self.leave_sending(id);
            }
            _ => self.remove(id),
        }
    }

    /// The owner of an open socket is gone; the queue goes out.
    fn leave_sending(&mut self, id: SocketId) {
        let deadline = self.deadlines.create(id.to_bits());
        self.deadlines.set(deadline, self.now_ns + STALL_NS);
        if let Some(socket) = self.socket(id) {
            socket.stage = Stage::Sending;
            socket.discard_bytes = DISCARD_BYTES_MAX;
            socket.deadline = Some(deadline);
            self.closing_count += 1;
        }
    }

    /// The queue is out: send a FIN and wait for the peer's.
    fn start_lingering(&mut self, id: SocketId) {
        let now_ns = self.now_ns;
        let Some(socket) = self.socket(id) else {
            return;
        };
        let (end, deadline) = (socket.end, socket.deadline);
        if socket.receiving == Receiving::Finished || socket.is_plain_close {
            return self.remove(id);
        }
        socket.stage = Stage::Lingering;
        if let Some(deadline) = deadline {
            self.deadlines.set(deadline, now_ns + LINGER_NS);
        }
        self.network.state().wire(end).finish(end.end);
    }

    /// A closing socket can send or has something to throw away.
    pub(super) fn advance_closing(&mut self, id: SocketId) {
        if self.stage(id) == Some(Stage::Sending) {
            match self.flush(id) {
                Flushed::All => self.start_lingering(id),
                Flushed::Failed(_) => return self.remove(id),
                Flushed::Some { sent_any: true } => {
                    if let Some(deadline) = self.socket(id).and_then(|socket| socket.deadline) {
                        self.deadlines.set(deadline, self.now_ns + STALL_NS);
                    }
                }
                Flushed::Some { sent_any: false } => {}
            }
        }
        if let Some(socket) = self.socket(id)
            && socket.receiving != Receiving::Finished
            && !socket.is_plain_close
        {
            self.discard(id);
        }
    }

    fn discard(&mut self, id: SocketId) {
        let Some((end, stage)) = self.socket(id).map(|socket| (socket.end, socket.stage)) else {
            return;
        };
        let mut thrown_away = Vec::new();
        let arrived =
            self.network
                .state()
                .wire(end)
                .read(end.end, &mut thrown_away, DISCARD_STEP_BYTES);
        match arrived {
            Arrived::Bytes(count) => {
                self.counters.receives += 1;
                self.counters.received_bytes += count as u64;
                let Some(socket) = self.socket(id) else {
                    return;
                };
                socket.discard_bytes = socket.discard_bytes.saturating_sub(count as u32);
                if socket.discard_bytes == 0 {
                    self.remove(id);
                }
            }
            Arrived::Finished if stage == Stage::Sending => {
                if let Some(socket) = self.socket(id) {
                    socket.receiving = Receiving::Finished;
                }
            }
            Arrived::Nothing => {}
            Arrived::Finished | Arrived::Failed(_) => self.remove(id),
        }
    }

    /// Closes a socket with a reset, for its owner or because its queue does not move.
    pub(super) fn reset_now(&mut self, id: SocketId) {
        self.remove_with(id, |wire, end| {
            wire.reset(end, true);
            true
        });
    }

    /// The time it had to close is over. After our FIN the peer may still be reading what was sent.
    fn give_up(&mut self, id: SocketId) {
        match self.stage(id) {
            Some(Stage::Sending) => self.reset_now(id),
            _ => self.remove(id),
        }
    }

    /// Ends what took too long; wakes the listener that rested.
    pub(super) fn expire_deadlines(&mut self) {
        while let Some((user, _)) = self.deadlines.pop_expired(self.now_ns) {
            match user {
                RETRY_TIMER_USER => self.resume_accepting(),
                bits => self.give_up(SocketId::from_bits(bits)),
            }
        }
    }
}
