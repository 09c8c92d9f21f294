//! A queue from the shards into one store thread; the counterpart of `io::Mailbox`.
//!
//! Place: `executor` owns one per store thread. A shard appends its tick's jobs under a short
//! lock; the thread swaps the whole queue against its own empty vector, so in steady state
//! nothing is allocated and the lock is held for a few instructions.
//! Absent on purpose: a bound. Each shard limits what it has in flight before it sends
//! (`executor`), so the queue can never hold more than the sum of those limits.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Why [`Lane::take_all`] returned.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Taken {
    /// There is work.
    Work,
    /// The deadline passed without work.
    Deadline,
    /// There is no work and there will never be any.
    Closed,
}

/// See the module.
pub struct Lane<T> {
    state: Mutex<State<T>>,
    ready: Condvar,
}

struct State<T> {
    queue: Vec<T>,
    /// The store thread sleeps: only then is waking it worth a system call.
    sleeping: bool,
    closed: bool,
}

impl<T> Lane<T> {
    /// An empty, open lane.
    #[must_use]
    pub fn new() -> Self {
        let state = State {
            queue: Vec::new(),
            sleeping: false,
            closed: false,
        };
        Self {
            state: Mutex::new(state),
            ready: Condvar::new(),
        }
    }

    /// Hands over all of `items`, in order, and wakes the thread if it sleeps. On a closed lane
    /// the items stay, and the answer is false.
    pub fn send_all(&self, items: &mut Vec<T>) -> bool {
        let mut state = self.lock();
        if state.closed {
            return false;
        }
        state.queue.append(items);
        let wake = std::mem::take(&mut state.sleeping);
        // Unlock first: the thread wakes on another CPU and would meet the lock held.
        drop(state);
        if wake {
            self.ready.notify_one();
        }
        true
    }

    /// No more work: what is queued is still taken, then [`Taken::Closed`].
    pub fn close(&self) {
        self.lock().closed = true;
        self.ready.notify_one();
    }

    /// Waits for work, at most until `deadline`, and moves all of it into the empty `items`.
    pub fn take_all(&self, items: &mut Vec<T>, deadline: Option<Instant>) -> Taken {
        debug_assert!(
            items.is_empty(),
            "a swap would hand old work back to the queue"
        );
        let mut state = self.lock();
        loop {
            if !state.queue.is_empty() {
                state.sleeping = false;
                std::mem::swap(&mut state.queue, items);
                return Taken::Work;
            }
            if state.closed {
                return Taken::Closed;
            }
            state.sleeping = true;
            state = match deadline {
                None => self
                    .ready
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        state.sleeping = false;
                        return Taken::Deadline;
                    }
                    let result = self.ready.wait_timeout(state, left);
                    result.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // The state is whole after every statement under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Default for Lane<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    /// Goal: nothing is lost or reordered per sender, and closing ends the taker after the last.
    #[test]
    fn every_item_arrives_once_in_its_senders_order() {
        let lane = Arc::new(Lane::new());
        let senders: Vec<_> = (0..4_u64)
            .map(|sender| {
                let lane = Arc::clone(&lane);
                thread::spawn(move || {
                    for first in (0..3_000).step_by(3) {
                        let mut items =
                            vec![(sender, first), (sender, first + 1), (sender, first + 2)];
                        assert!(lane.send_all(&mut items));
                        assert!(items.is_empty());
                    }
                })
            })
            .collect();
        let taker = {
            let lane = Arc::clone(&lane);
            thread::spawn(move || {
                let (mut items, mut next) = (Vec::new(), [0_u64; 4]);
                while lane.take_all(&mut items, None) == Taken::Work {
                    for (sender, number) in items.drain(..) {
                        assert_eq!(number, next[sender as usize]);
                        next[sender as usize] += 1;
                    }
                }
                next
            })
        };
        for sender in senders {
            sender.join().unwrap();
        }
        lane.close();
        assert_eq!(taker.join().unwrap(), [3_000; 4]);
        assert!(
            !lane.send_all(&mut vec![(0, 0)]),
            "a closed lane takes nothing"
        );
    }

    /// Goal: a deadline ends an idle wait, and does not hide work that is there already.
    #[test]
    fn deadline_ends_an_idle_wait_only() {
        let lane = Lane::new();
        let mut items = Vec::new();
        let soon = Instant::now() + Duration::from_millis(5);
        assert_eq!(lane.take_all(&mut items, Some(soon)), Taken::Deadline);
        assert!(Instant::now() >= soon);
        lane.send_all(&mut vec![1, 2]);
        assert_eq!(lane.take_all(&mut items, Some(soon)), Taken::Work);
        assert_eq!(items, [1, 2]);
    }
}
