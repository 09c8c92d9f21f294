//! Which connection takes the next request: an idle one if there is any, the longest waiting first.
//!
//! On the path: `worker` offers sessions here when answers make room and takes them when arrivals
//! are due. A pipelined connection whose server stalls still has room; giving it requests while
//! others are idle would make them wait behind the stall for no reason but ours.
//! Absent on purpose: removal. A session that lost its room stays queued and is skipped when found.
use crate::session::Session;

/// How a session waits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Rank {
    Idle,
    Busy,
}

impl Rank {
    #[inline]
    fn of(session: &Session) -> Option<Self> {
        let is_idle = session.in_flight_len() == 0;
        session
            .can_take()
            .then_some(if is_idle { Self::Idle } else { Self::Busy })
    }
}

/// A session with room, at the front of its queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Free {
    pub(crate) index: u32,
    rank: Rank,
}

/// Numbers in the order in which they came. Its room is that of all sessions, each of which is in it
/// at most once.
#[derive(Debug)]
struct Queue {
    /// As many as a power of two, so that places wrap by a mask.
    slots: Box<[u32]>,
    /// Both count on for ever; the places are what the mask leaves of them.
    front: u32,
    back: u32,
}

impl Queue {
    fn new(room: usize) -> Self {
        Self {
            slots: vec![0; room.next_power_of_two()].into(),
            front: 0,
            back: 0,
        }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.front == self.back
    }

    #[inline]
    fn first(&self) -> Option<u32> {
        let place = self.front as usize & (self.slots.len() - 1);
        (!self.is_empty()).then(|| self.slots[place])
    }

    #[inline]
    fn push(&mut self, index: u32) {
        let place = self.back as usize & (self.slots.len() - 1);
        self.slots[place] = index;
        self.back = self.back.wrapping_add(1);
        debug_assert!(self.back.wrapping_sub(self.front) as usize <= self.slots.len());
    }

    #[inline]
    fn remove_first(&mut self) {
        self.front = self.front.wrapping_add(1);
    }
}

/// Sessions that may have room, by number. Each is in each queue at most once.
#[derive(Debug)]
pub(crate) struct FreeSessions {
    queues: [Queue; 2],
}

impl FreeSessions {
    pub(crate) fn new(sessions: usize) -> Self {
        Self {
            queues: std::array::from_fn(|_| Queue::new(sessions)),
        }
    }

    /// Queues a session if it has room.
    #[inline]
    pub(crate) fn offer(&mut self, sessions: &mut [Session], index: u32) {
        let session = &mut sessions[index as usize];
        if let Some(rank) = Rank::of(session)
            && !std::mem::replace(&mut session.is_queued[rank as usize], true)
        {
            self.queues[rank as usize].push(index);
        }
    }

    /// The session for the next request, which stays queued until [`Self::take_first`].
    #[inline]
    pub(crate) fn first(&mut self, sessions: &mut [Session]) -> Option<Free> {
        for rank in [Rank::Idle, Rank::Busy] {
            while let Some(index) = self.queues[rank as usize].first() {
                if Rank::of(&sessions[index as usize]) == Some(rank) {
                    return Some(Free { index, rank });
                }
                self.skip_first(sessions, Free { index, rank });
            }
        }
        None
    }

    /// The front of a queue has no room any more, or room in the other rank, where it is queued
    /// unless it lost it there.
    #[cold]
    fn skip_first(&mut self, sessions: &mut [Session], stale: Free) {
        self.take_first(sessions, stale);
        self.offer(sessions, stale.index);
    }

    /// Removes what [`Self::first`] has just found.
    #[inline]
    pub(crate) fn take_first(&mut self, sessions: &mut [Session], found: Free) {
        let queue = &mut self.queues[found.rank as usize];
        debug_assert_eq!(
            queue.first(),
            Some(found.index),
            "nothing was offered in between"
        );
        queue.remove_first();
        sessions[found.index as usize].is_queued[found.rank as usize] = false;
    }

    /// Whether a request due now could not leave. May err towards false: entries can be stale.
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.iter().all(Queue::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Goal: a queue gives out what it was given in order, round and round, full and empty.
    #[test]
    fn a_queue_keeps_the_order() {
        for room in [1, 3, 4] {
            let (mut queue, mut plain) = (Queue::new(room), VecDeque::new());
            // Just before its counters begin again.
            (queue.front, queue.back) = (u32::MAX - 5, u32::MAX - 5);
            for step in 0..100_u32 {
                let wants_push = (step * 7 + step / 3) % 5 < 3;
                if wants_push && plain.len() < room {
                    queue.push(step);
                    plain.push_back(step);
                } else if plain.pop_front().is_some() {
                    queue.remove_first();
                }
                assert_eq!(
                    queue.first(),
                    plain.front().copied(),
                    "step {step} of {room}"
                );
                assert_eq!(queue.is_empty(), plain.is_empty());
            }
        }
    }
}
