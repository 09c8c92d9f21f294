//! Which connection takes the next request: an idle one if there is any, the longest waiting first.
//!
//! On the path: `worker` offers sessions here when answers make room and takes them when arrivals
//! are due. A pipelined connection whose server stalls still has room; giving it requests while
//! others are idle would make them wait behind the stall for no reason but ours.
//! Absent on purpose: removal. A session that lost its room stays queued and is skipped when found.
use crate::session::Session;
use std::collections::VecDeque;

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

/// Sessions that may have room, by number. Each is in each queue at most once, so the queues never
/// grow beyond the number of sessions.
#[derive(Debug)]
pub(crate) struct FreeSessions {
    queues: [VecDeque<u32>; 2],
}

impl FreeSessions {
    pub(crate) fn new(sessions: usize) -> Self {
        Self {
            queues: std::array::from_fn(|_| VecDeque::with_capacity(sessions)),
        }
    }

    /// Queues a session if it has room.
    #[inline]
    pub(crate) fn offer(&mut self, sessions: &mut [Session], index: u32) {
        let session = &mut sessions[index as usize];
        if let Some(rank) = Rank::of(session)
            && !std::mem::replace(&mut session.is_queued[rank as usize], true)
        {
            self.queues[rank as usize].push_back(index);
        }
    }

    /// The session for the next request, which stays queued until [`Self::take_first`].
    pub(crate) fn first(&mut self, sessions: &mut [Session]) -> Option<Free> {
        for rank in [Rank::Idle, Rank::Busy] {
            while let Some(&index) = self.queues[rank as usize].front() {
                let session = &mut sessions[index as usize];
                if Rank::of(session) == Some(rank) {
                    return Some(Free { index, rank });
                }
                session.is_queued[rank as usize] = false;
                self.queues[rank as usize].pop_front();
                // It may have room in the other rank, where it is queued unless it lost it there.
                self.offer(sessions, index);
            }
        }
        None
    }

    /// Removes what [`Self::first`] has just found.
    pub(crate) fn take_first(&mut self, sessions: &mut [Session], found: Free) {
        let taken = self.queues[found.rank as usize].pop_front();
        debug_assert_eq!(taken, Some(found.index), "nothing was offered in between");
        sessions[found.index as usize].is_queued[found.rank as usize] = false;
    }

    /// Whether a request due now could not leave. May err towards false: entries can be stale.
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.iter().all(VecDeque::is_empty)
    }
}
