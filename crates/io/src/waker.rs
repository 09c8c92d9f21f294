//! How another thread ends a shard's wait.
//!
//! A shard that is busy learns of it without a system call: the state below shows whether it sleeps, and the eventfd is
//! written only for a sleeping shard. The eventfd is watched edge-triggered and never read; every write is an edge.
//!
//! ```text
//! AWAKE --wake--> NOTIFIED --take--> AWAKE        no system call
//! AWAKE --prepare_sleep--> ASLEEP --wake--> NOTIFIED (+ eventfd write) --take--> AWAKE
//! ```

use crate::error::IoError;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const AWAKE: u8 = 0;
const NOTIFIED: u8 = 1;
const ASLEEP: u8 = 2;

struct WakeState {
    state: AtomicU8,
    eventfd: OwnedFd,
}

/// Wakes one shard; [`crate::Event::Woken`] follows there. Uses between two ticks count as one.
#[derive(Clone)]
pub struct Waker {
    shared: Arc<WakeState>,
}

impl Waker {
    /// Makes the shard's next (or current) tick return with [`crate::Event::Woken`]. This thread's earlier writes are
    /// visible to the shard when it handles that event.
    pub fn wake(&self) {
        if self.shared.state.swap(NOTIFIED, Ordering::AcqRel) == ASLEEP {
            // Fails only when the counter is near 2^64 (EAGAIN); it is readable then anyway.
            let _ = rustix::io::write(&self.shared.eventfd, &1_u64.to_ne_bytes());
        }
    }
}

impl std::fmt::Debug for Waker {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Waker")
    }
}

/// The shard's end.
pub(crate) struct WakeReceiver {
    shared: Arc<WakeState>,
}

impl WakeReceiver {
    pub(crate) fn new() -> Result<Self, IoError> {
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(IoError::system("eventfd"))?;
        let state = AtomicU8::new(AWAKE);
        Ok(Self {
            shared: Arc::new(WakeState { state, eventfd }),
        })
    }

    pub(crate) fn waker(&self) -> Waker {
        Waker {
            shared: Arc::clone(&self.shared),
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.shared.eventfd.as_fd()
    }

    /// Announces a sleep. False: it was woken already, do not sleep.
    pub(crate) fn prepare_sleep(&self) -> bool {
        self.shared
            .state
            .compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Whether a [`Waker`] was used since the last [`Self::take`], which still returns it.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.shared.state.load(Ordering::Acquire) == NOTIFIED
    }

    /// After a wait: was a [`Waker`] used? Resets to awake.
    pub(crate) fn take(&self) -> bool {
        // A plain load keeps the common tick of a busy shard free of locked instructions.
        self.shared.state.load(Ordering::Relaxed) != AWAKE
            && self.shared.state.swap(AWAKE, Ordering::AcqRel) == NOTIFIED
    }
}

#[cfg(test)]
#[path = "tests/waker.rs"]
mod tests;
