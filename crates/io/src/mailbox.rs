//! A queue from other threads into one shard.
//!
//! Senders append under a short lock and wake the shard; the shard swaps the whole queue against
//! an empty vector of its own, so in steady state nothing is allocated and the lock is held for
//! a few instructions.
//!
//! Senders hand over batches, so the lock is taken a few times per tick at most.

use crate::waker::Waker;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

struct MailboxShared<T> {
    queue: Mutex<Vec<T>>,
    capacity: usize,
}

impl<T> MailboxShared<T> {
    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        // The queue is whole after every statement under the lock, so a panic elsewhere in a
        // sender does not spoil it.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The queue holds as many items as it may; the item comes back.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the mailbox is full at {capacity} items: let the shard drain it, then send again")]
pub struct MailboxFull<T> {
    /// The item that was not sent.
    pub item: T,
    /// The most items it holds.
    pub capacity: usize,
}

/// The shard's end.
pub struct Mailbox<T> {
    shared: Arc<MailboxShared<T>>,
}

impl<T> fmt::Debug for Mailbox<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Mailbox").finish_non_exhaustive()
    }
}

/// A sender's end; clone it freely.
pub struct MailboxSender<T> {
    shared: Arc<MailboxShared<T>>,
    waker: Waker,
}

impl<T> fmt::Debug for MailboxSender<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("MailboxSender")
            .finish_non_exhaustive()
    }
}

impl<T> Mailbox<T> {
    /// A mailbox for at most `capacity` items at a time, whose senders use `waker`.
    #[must_use]
    pub fn new(capacity: usize, waker: Waker) -> (MailboxSender<T>, Self) {
        assert!(
            capacity > 0,
            "a mailbox that holds nothing can never deliver"
        );
        let shared = Arc::new(MailboxShared {
            queue: Mutex::new(Vec::new()),
            capacity,
        });
        (
            MailboxSender {
                shared: Arc::clone(&shared),
                waker,
            },
            Self { shared },
        )
    }

    /// Moves everything that waits to the end of `items`, oldest first. Call it on
    /// [`crate::Event::Woken`]; an empty `items` makes it a swap.
    pub fn drain_into(&self, items: &mut Vec<T>) {
        let mut queue = self.shared.lock();
        if items.is_empty() {
            std::mem::swap(&mut *queue, items);
        } else {
            items.append(&mut queue);
        }
    }
}

impl<T> MailboxSender<T> {
    /// Hands one item over and wakes the shard.
    pub fn send(&self, item: T) -> Result<(), MailboxFull<T>> {
        let mut queue = self.shared.lock();
        if queue.len() >= self.shared.capacity {
            return Err(MailboxFull {
                item,
                capacity: self.shared.capacity,
            });
        }
        queue.push(item);
        // Unlock first: the shard wakes on another CPU and would meet the lock held.
        drop(queue);
        self.waker.wake();
        Ok(())
    }

    /// Hands over as many of `items` as fit, in order, with one wake; the rest stays. Returns how
    /// many went.
    pub fn send_all(&self, items: &mut Vec<T>) -> usize {
        let mut queue = self.shared.lock();
        let count = items.len().min(self.shared.capacity - queue.len());
        queue.extend(items.drain(..count));
        drop(queue);
        if count > 0 {
            self.waker.wake();
        }
        count
    }
}

impl<T> Clone for MailboxSender<T> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            waker: self.waker.clone(),
        }
    }
}
