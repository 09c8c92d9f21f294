//! One simulated connection: two ends, and the bytes between them.
//!
//! TCP as its users see it: bytes in order, a FIN in each direction, and resets, in the worst
//! form that the protocol allows: a reset destroys what its receiver has sent and not got through,
//! and closing with unread input, or being written to after closing, is a reset.
//!
//! Absent on purpose: packets, losses and congestion, which TCP hides.

use super::faults::Cuts;
use crate::address::Peer as PeerName;
use crate::driver::socket_count::Opener;
use rustix::io::Errno;
use std::collections::VecDeque;

/// The end that connected; [`ACCEPTOR`] is the other one.
pub(super) const INITIATOR: usize = 0;
pub(super) const ACCEPTOR: usize = 1;

/// One end of one connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct EndId {
    pub(super) wire: usize,
    pub(super) end: usize,
}

impl EndId {
    pub(super) fn opener(self) -> Opener {
        match self.end {
            INITIATOR => Opener::Us,
            _ => Opener::Peer,
        }
    }

    pub(super) const fn other(self) -> Self {
        Self {
            wire: self.wire,
            end: 1 - self.end,
        }
    }
}

/// Bytes on their way from one end to the other.
#[derive(Debug)]
struct Pipe {
    bytes: VecDeque<u8>,
    capacity: usize,
    /// The FIN stands behind the last byte.
    is_finished: bool,
    read_bytes: u64,
}

#[derive(Debug, Default)]
struct End {
    is_closed: bool,
    /// The connection was reset under this end.
    error: Option<Errno>,
}

/// What a read found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Arrived {
    Bytes(usize),
    Finished,
    Nothing,
    Failed(Errno),
}

/// One connection.
#[derive(Debug)]
pub(super) struct Wire {
    /// What each end has written, by end.
    pipes: [Pipe; 2],
    ends: [End; 2],
    /// The initiator's name, for the acceptor.
    pub(super) name: PeerName,
    /// The listener's, for the acceptor.
    pub(super) destination: PeerName,
    /// Where receives of the driver end.
    pub(super) cuts: Cuts,
    /// The acceptor took it.
    pub(super) is_accepted: bool,
    /// A fault of the plan, not an end, broke it.
    pub(super) is_reset_by_network: bool,
}

impl Wire {
    pub(super) fn new(name: PeerName, destination: PeerName, window_bytes: usize) -> Self {
        let pipe = || Pipe {
            bytes: VecDeque::new(),
            capacity: window_bytes,
            is_finished: false,
            read_bytes: 0,
        };
        Self {
            pipes: [pipe(), pipe()],
            ends: [End::default(), End::default()],
            name,
            destination,
            cuts: Cuts::default(),
            is_accepted: false,
            is_reset_by_network: false,
        }
    }

    /// How many bytes `end` could write now.
    pub(super) fn room(&self, end: usize) -> usize {
        let pipe = &self.pipes[end];
        pipe.capacity.saturating_sub(pipe.bytes.len())
    }

    /// How many bytes wait for `end`.
    pub(super) fn waiting(&self, end: usize) -> usize {
        self.pipes[1 - end].bytes.len()
    }

    /// How many bytes `end` has read.
    pub(super) fn read_bytes(&self, end: usize) -> u64 {
        self.pipes[1 - end].read_bytes
    }

    /// No byte comes after those that wait for `end`.
    pub(super) fn is_finished(&self, end: usize) -> bool {
        self.pipes[1 - end].is_finished
    }

    pub(super) fn error(&self, end: usize) -> Option<Errno> {
        self.ends[end].error
    }

    pub(super) fn set_window(&mut self, end: usize, window_bytes: usize) {
        self.pipes[end].capacity = window_bytes;
    }

    /// Takes as many of `bytes` as there is room for.
    pub(super) fn write(&mut self, end: usize, bytes: &[u8]) -> Result<usize, Errno> {
        if let Some(error) = self.ends[end].error {
            return Err(error);
        }
        if self.pipes[end].is_finished {
            return Err(Errno::PIPE);
        }
        if self.ends[1 - end].is_closed {
            // The kernel takes them; the peer's answers with a reset.
            self.break_under(end, true);
            return Ok(bytes.len());
        }
        let count = bytes.len().min(self.room(end));
        self.pipes[end].bytes.extend(&bytes[..count]);
        Ok(count)
    }

    /// Moves at most `count_max` bytes that wait for `end` to `into`.
    pub(super) fn read(&mut self, end: usize, into: &mut Vec<u8>, count_max: usize) -> Arrived {
        let error = self.ends[end].error;
        let pipe = &mut self.pipes[1 - end];
        let count = pipe.bytes.len().min(count_max);
        if count > 0 {
            into.extend(pipe.bytes.drain(..count));
            pipe.read_bytes += count as u64;
            return Arrived::Bytes(count);
        }
        match error {
            Some(error) => Arrived::Failed(error),
            None if pipe.is_finished && pipe.bytes.is_empty() => Arrived::Finished,
            None => Arrived::Nothing,
        }
    }

    /// `end` writes nothing more.
    pub(super) fn finish(&mut self, end: usize) {
        self.pipes[end].is_finished = true;
    }

    /// `end` is gone. True when that was a reset, because bytes waited for it.
    pub(super) fn close(&mut self, end: usize) -> bool {
        if self.ends[end].is_closed {
            return false;
        }
        self.ends[end].is_closed = true;
        self.pipes[end].is_finished = true;
        let is_reset = self.waiting(end) > 0;
        if is_reset {
            self.break_under(1 - end, true);
        }
        is_reset
    }

    /// `end` breaks the connection off; `loses_input` decides about bytes that the other end has
    /// not read yet.
    pub(super) fn reset(&mut self, end: usize, loses_input: bool) {
        self.ends[end].is_closed = true;
        self.break_under(1 - end, loses_input);
    }

    /// Neither end did it.
    pub(super) fn reset_by_network(&mut self, loses_input: bool) {
        self.is_reset_by_network = true;
        self.break_under(INITIATOR, loses_input);
        self.break_under(ACCEPTOR, loses_input);
    }

    /// `end` learns that the connection is reset.
    fn break_under(&mut self, end: usize, loses_input: bool) {
        self.ends[end].error.get_or_insert(Errno::CONNRESET);
        self.pipes[end].bytes.clear();
        if loses_input {
            self.pipes[1 - end].bytes.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire() -> Wire {
        Wire::new(PeerName::Unix, PeerName::Unix, 10)
    }

    fn read(wire: &mut Wire, end: usize) -> (Arrived, Vec<u8>) {
        let mut into = Vec::new();
        let arrived = wire.read(end, &mut into, usize::MAX);
        (arrived, into)
    }

    /// Goal: bytes arrive in order, no more than fit, and the FIN comes after the last one.
    #[test]
    fn bytes_come_before_the_fin_and_only_as_many_as_fit() {
        let mut wire = wire();
        assert_eq!(wire.write(INITIATOR, b"0123456789ab"), Ok(10));
        assert_eq!(wire.write(INITIATOR, b"x"), Ok(0));
        wire.finish(INITIATOR);
        assert_eq!(wire.write(INITIATOR, b"x"), Err(Errno::PIPE));
        assert_eq!(
            read(&mut wire, ACCEPTOR),
            (Arrived::Bytes(10), b"0123456789".to_vec())
        );
        assert_eq!(read(&mut wire, ACCEPTOR).0, Arrived::Finished);
        assert_eq!(read(&mut wire, INITIATOR).0, Arrived::Nothing);
        assert_eq!(wire.write(ACCEPTOR, b"y"), Ok(1));
        assert_eq!(
            read(&mut wire, INITIATOR),
            (Arrived::Bytes(1), b"y".to_vec())
        );
    }

    /// Goal: closing after all was read lets the last bytes through; closing before, or being
    /// written to afterwards, destroys them.
    #[test]
    fn only_a_clean_close_spares_the_last_bytes() {
        let mut clean = wire();
        clean.write(ACCEPTOR, b"answer").unwrap();
        assert!(!clean.close(ACCEPTOR));
        assert_eq!(
            read(&mut clean, INITIATOR),
            (Arrived::Bytes(6), b"answer".to_vec())
        );
        assert_eq!(read(&mut clean, INITIATOR).0, Arrived::Finished);

        let mut unread = wire();
        unread.write(ACCEPTOR, b"answer").unwrap();
        unread.write(INITIATOR, b"more").unwrap();
        assert!(unread.close(ACCEPTOR));
        assert_eq!(
            read(&mut unread, INITIATOR),
            (Arrived::Failed(Errno::CONNRESET), Vec::new())
        );

        let mut late = wire();
        late.write(ACCEPTOR, b"answer").unwrap();
        late.close(ACCEPTOR);
        assert_eq!(late.write(INITIATOR, b"more"), Ok(4));
        assert_eq!(
            read(&mut late, INITIATOR).0,
            Arrived::Failed(Errno::CONNRESET)
        );
        assert_eq!(late.write(INITIATOR, b"x"), Err(Errno::CONNRESET));
    }
}
