//! A queue from the shards into one store thread; the counterpart of `io::Mailbox`.
//!
//! Place: `executor` owns one per store thread. A shard appends its tick's jobs under a short lock;
//! the thread swaps the whole queue against its own empty vector, so in steady state nothing is
//! allocated and the lock is held for a few instructions. Each shard limits what it has in flight
//! before it sends (`executor`), so the queue can never hold more than the sum of those limits.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// Why [`WorkQueue::take_all`] returned.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Taken {
    /// There is work.
    Work,
    /// The deadline passed without work.
    Deadline,
    /// There is no work and there will never be any.
    Closed,
}

/// A queue from the shards into one store thread.
pub struct WorkQueue<T> {
    state: Mutex<QueueState<T>>,
    ready: Condvar,
}

struct QueueState<T> {
    queue: Vec<T>,
    /// The store thread sleeps: only then is waking it worth a system call.
    sleeping: bool,
    /// Instead of it, if the taker is a task and not a thread.
    task: Option<Waker>,
    /// The next wait is none.
    is_woken: bool,
    closed: bool,
}

impl<T> WorkQueue<T> {
    /// An empty, open queue.
    #[must_use]
    pub fn new() -> Self {
        let state = QueueState {
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

    /// Hands over all of `items`, in order, and wakes the thread if it sleeps. On a closed queue
    /// the items stay, and the result is false.
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

    /// No more work: queued work is still taken, then [`Taken::Closed`].
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
    /// is some. One task takes from a queue.
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

    fn lock(&self) -> MutexGuard<'_, QueueState<T>> {
        // The state is whole after every statement under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Default for WorkQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
#[path = "tests/work_queue.rs"]
mod tests;
