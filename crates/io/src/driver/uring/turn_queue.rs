//! Sockets that wait for a turn to receive: they found no buffer, or had more to say than a turn holds.
//!
//! Each kind is served in the order in which it came. Regulars (see `standing`) go first, as many as a
//! tick has buffers for; of the others as many as have their turn in a tick anyhow, and those have it
//! however many regulars there are.

use crate::driver::SocketId;
use crate::driver::standing::Standing;
use crate::driver::turn::{TURNS_BYTES, turn_bytes};
use std::collections::VecDeque;

/// Both kinds; may hold dead ids.
pub(super) struct TurnQueue {
    regulars: VecDeque<SocketId>,
    others: VecDeque<SocketId>,
}

/// The turns of one tick.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Turns {
    /// The length of each.
    pub(super) bytes: usize,
    of_regulars: usize,
    of_others: usize,
}

impl TurnQueue {
    pub(super) fn new() -> Self {
        Self {
            regulars: VecDeque::with_capacity(256),
            others: VecDeque::with_capacity(256),
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.regulars.is_empty() && self.others.is_empty()
    }

    pub(super) fn push(&mut self, id: SocketId, standing: Standing) {
        self.queue_of(standing).push_back(id);
    }

    /// It found no buffer in its turn either: it stays the next.
    pub(super) fn push_again(&mut self, id: SocketId, standing: Standing) {
        self.queue_of(standing).push_front(id);
    }

    fn queue_of(&mut self, standing: Standing) -> &mut VecDeque<SocketId> {
        match standing {
            Standing::Regular | Standing::AskingAgain { .. } => &mut self.regulars,
            _ => &mut self.others,
        }
    }

    /// How many have a turn in this tick, all together no more than its share of buffers; of the
    /// others `others_max` at most.
    pub(super) fn turns(&self, others_max: usize) -> Turns {
        let bytes = turn_bytes(self.regulars.len() + self.others.len());
        let most = TURNS_BYTES / bytes;
        // Without regulars about, `others_max` is no bound.
        let most_others = match self.regulars.is_empty() {
            true => most,
            false => most / 2,
        };
        let of_others = self.others.len().min(others_max).min(most_others);
        Turns {
            bytes,
            of_regulars: self.regulars.len().min(most - of_others),
            of_others,
        }
    }

    /// Whose turn it is, if there is one left.
    pub(super) fn pop(&mut self, turns: &mut Turns) -> Option<SocketId> {
        let (left, queue) = match turns.of_regulars {
            0 => (&mut turns.of_others, &mut self.others),
            _ => (&mut turns.of_regulars, &mut self.regulars),
        };
        *left = left.checked_sub(1)?;
        queue.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(regulars: u64, others: u64) -> TurnQueue {
        let mut queue = TurnQueue::new();
        // In turns, as they would come.
        for number in 0..regulars.max(others) {
            if number < others {
                queue.push(SocketId::from_bits(1_000_000 + number), Standing::Unknown);
            }
            if number < regulars {
                queue.push(SocketId::from_bits(number), Standing::Regular);
            }
        }
        queue
    }

    fn served(queue: &mut TurnQueue, others_max: usize) -> Vec<u64> {
        let mut turns = queue.turns(others_max);
        std::iter::from_fn(|| queue.pop(&mut turns))
            .map(SocketId::to_bits)
            .collect()
    }

    /// Goal: regulars first, in their order; a few of the others in theirs; the next tick goes on where
    /// this one ended.
    #[test]
    fn regulars_go_first_and_others_have_their_turn() {
        let mut waiting = queue(200, 100);
        let first: Vec<u64> = (0..58).chain(1_000_000..1_000_006).collect();
        assert_eq!(served(&mut waiting, 6), first);
        let second: Vec<u64> = (58..116).chain(1_000_006..1_000_012).collect();
        assert_eq!(served(&mut waiting, 6), second);
    }

    /// Goal: who found no buffer in his turn has the next one.
    #[test]
    fn a_turn_in_vain_is_made_good() {
        let mut waiting = queue(100, 10);
        assert_eq!(served(&mut waiting, 6).len(), 64);
        waiting.push_again(SocketId::from_bits(7), Standing::Regular);
        waiting.push_again(SocketId::from_bits(1_000_003), Standing::Unknown);
        let next = served(&mut waiting, 1);
        assert_eq!((next.first(), next.last()), (Some(&7), Some(&1_000_003)));
    }

    /// Goal: alone, each kind has all turns; together, neither takes them all; nobody is forgotten.
    #[test]
    fn neither_kind_takes_all_turns() {
        assert_eq!(served(&mut queue(0, 100), usize::MAX).len(), 64);
        assert_eq!(served(&mut queue(100, 0), 6).len(), 64);
        let both = served(&mut queue(100, 100), usize::MAX);
        assert_eq!(both.iter().filter(|id| **id < 1_000_000).count(), 32);
        assert_eq!(both.len(), 64);
        for (regulars, others) in [(3, 500), (500, 3), (1, 1), (0, 7), (70, 70)] {
            let mut waiting = queue(regulars, others);
            let mut all: Vec<u64> = Vec::new();
            while !waiting.is_empty() {
                let tick = served(&mut waiting, 6);
                assert!(!tick.is_empty());
                all.extend(tick);
            }
            assert_eq!(all.len() as u64, regulars + others);
        }
    }
}
