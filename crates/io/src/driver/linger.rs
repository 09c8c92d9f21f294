//! The bounds of a lingering close, the same for every driver: without them an idler would keep
//! the socket of a connection that nobody serves any more.

use super::SocketId;
use std::collections::VecDeque;

/// A peer that takes no byte of the queue for this long is given up.
pub(super) const STALL_NS: u64 = 30_000_000_000;

/// How long the peer has to finish after our FIN.
pub(super) const LINGER_NS: u64 = 2_000_000_000;

/// How much of what the peer still sends is read and thrown away.
pub(super) const DISCARD_BYTES_MAX: u32 = 4 << 20;

/// Ids beyond twice the sockets that are closing that are kept before ended ones are dropped.
const ENDED_IDS_MAX: usize = 64;

/// Sockets that send or linger for owners that have left, in the order in which those left. May hold
/// ended ones: bound twice the closing sockets, and [`ENDED_IDS_MAX`].
#[derive(Debug, Default)]
pub(super) struct ClosingOrder {
    ids: VecDeque<SocketId>,
}

impl ClosingOrder {
    /// Of `closing_count` sockets, those are still closing for which `is_closing` says so.
    pub(super) fn push(
        &mut self,
        id: SocketId,
        closing_count: usize,
        is_closing: impl FnMut(&SocketId) -> bool,
    ) {
        if self.ids.len() >= 2 * closing_count + ENDED_IDS_MAX {
            self.ids.retain(is_closing);
        }
        self.ids.push_back(id);
    }

    /// The one that has been closing for longest.
    pub(super) fn pop(&mut self, is_closing: impl Fn(SocketId) -> bool) -> Option<SocketId> {
        while let Some(id) = self.ids.pop_front() {
            if is_closing(id) {
                return Some(id);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the oldest comes first, ended ones are passed over, and their ids do not pile up.
    #[test]
    fn ended_ids_are_dropped() {
        let mut order = ClosingOrder::default();
        let id = |number: u64| SocketId::from_bits(number);
        for number in 0..10_000_u64 {
            // The last three are closing at any time.
            order.push(id(number), 3, |id| id.to_bits() + 3 >= number);
            assert!(order.ids.len() <= 2 * 3 + ENDED_IDS_MAX);
        }
        let is_closing = |id: SocketId| id.to_bits() >= 9_997;
        let left: Vec<_> = std::iter::from_fn(|| order.pop(is_closing)).collect();
        assert_eq!(left, [id(9_997), id(9_998), id(9_999)]);
    }
}
