//! A queue from the shards into one store thread; the counterpart of `io::Mailbox`.
//!
//! Place: `executor` owns one per store thread. A shard appends its tick's jobs under a short
//! lock; the thread swaps the whole queue against its own empty vector, so in steady state
//! nothing is allocated and the lock is held for a few instructions.
//! Absent on purpose: a bound. Each shard limits what it has in flight before it sends
//! (`executor`), so the queue can never hold more than the sum of those limits.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
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
    /// In its place, where the taker is no thread but a task.
    task: Option<Waker>,
    /// The next wait is none.
    is_woken: bool,
    closed: bool,
}

impl<T> Lane<T> {
    /// An empty, open lane.
    #[must_use]
    pub fn new() -> Self {
        let state = State {
            queue: Vec::new(),
            sleeping: false,
            task: None,
            is_woken: false,
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
        let task = state.task.take();
        // Unlock first: the thread wakes on another CPU and would meet the lock held.
        drop(state);
        if wake {
            self.ready.notify_one();
        }
        if let Some(task) = task {
            task.wake();
        }
        true
    }

    /// No more work: what is queued is still taken, then [`Taken::Closed`].
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let task = state.task.take();
        drop(state);
        self.ready.notify_one();
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Ends a wait for work as its deadline would.
    pub fn wake(&self) {
        self.lock().is_woken = true;
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
            if std::mem::take(&mut state.is_woken) {
                state.sleeping = false;
                return Taken::Deadline;
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

    /// For a taker that is a task: moves all work to the end of `items`, or has the task woken once there
    /// is some. One task takes from a lane.
    pub fn poll_take_all(&self, items: &mut Vec<T>, context: &mut Context<'_>) -> Poll<Taken> {
        let mut state = self.lock();
        if !state.queue.is_empty() {
            items.append(&mut state.queue);
            return Poll::Ready(Taken::Work);
        }
        if state.closed {
            return Poll::Ready(Taken::Closed);
        }
        state.task = Some(context.waker().clone());
        Poll::Pending
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
    use std::sync::atomic::{AtomicUsize, Ordering};
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

    /// Goal: a task is woken by work and by the end, takes all of it, and is not told of an end before it
    /// has.
    #[test]
    fn a_task_is_woken_by_work_and_by_the_end() {
        struct Count(AtomicUsize);
        impl std::task::Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        let (lane, mut items) = (Lane::new(), vec![0]);
        assert!(lane.poll_take_all(&mut items, &mut context).is_pending());
        lane.send_all(&mut vec![1, 2]);
        lane.send_all(&mut vec![3]);
        lane.close();
        assert_eq!(count.0.load(Ordering::SeqCst), 1, "one wake for each wait");
        let work = Poll::Ready(Taken::Work);
        assert_eq!(lane.poll_take_all(&mut items, &mut context), work);
        assert_eq!(items, [0, 1, 2, 3], "behind what is there");
        let closed = Poll::Ready(Taken::Closed);
        assert_eq!(lane.poll_take_all(&mut items, &mut context), closed);
        let lane = Lane::<u8>::new();
        assert!(lane.poll_take_all(&mut vec![], &mut context).is_pending());
        lane.close();
        assert_eq!(count.0.load(Ordering::SeqCst), 2);
    }

    /// Goal: a wake ends one wait, also one that begins after it.
    #[test]
    fn a_wake_ends_one_wait() {
        let lane = Lane::<u8>::new();
        lane.wake();
        assert_eq!(lane.take_all(&mut Vec::new(), None), Taken::Deadline);
        lane.wake();
        lane.close();
        assert_eq!(lane.take_all(&mut Vec::new(), None), Taken::Closed);
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
