//! Leaving the address to the server that takes over, step by step, while the shards drain.
//!
//! On the path: a stop begins it, if others listen on the address too; a thread of its own goes
//! through the steps of [`PortShare`] and ends when the address is left.

use crate::server::HAND_OVER_NS;
use millpond_io::PortShare;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};

/// How often it looks whether the shards have let go of their listeners.
const LOOK: Duration = Duration::from_millis(2);

/// A departure that may come.
#[derive(Debug)]
pub(super) struct Departure {
    share: Mutex<Option<PortShare>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    is_under_way: Arc<AtomicBool>,
}

impl Departure {
    /// From an address that others share, or not.
    pub(super) fn from(share: Option<PortShare>) -> Self {
        Self {
            share: Mutex::new(share),
            thread: Mutex::new(None),
            is_under_way: Arc::new(AtomicBool::new(false)),
        }
    }

    /// What tells the shards, before they are asked to stop, that they hand over.
    pub(super) fn is_under_way(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_under_way)
    }

    /// Begins, if somebody is there who takes over. The first call counts.
    pub(super) fn begin(&self) {
        let Some(share) = lock(&self.share).take() else {
            return;
        };
        if !share.steer_away() {
            return;
        }
        self.is_under_way.store(true, Ordering::Release);
        // Without a thread the sockets close with their shards: what was steered stays steered.
        let thread = Builder::new().name("hand-over".to_owned());
        *lock(&self.thread) = thread.spawn(move || go_on(share)).ok();
    }

    /// Waits until the address is left. After the end of the shards, which it waits for.
    pub(super) fn finish(&self) {
        drop(lock(&self.share).take());
        if let Some(thread) = lock(&self.thread).take() {
            // It cannot panic; were it to, the sockets have closed with it.
            let _ = thread.join();
        }
    }
}

/// Half of the time is for handshakes that had begun; in the other half those are ignored that come
/// here although they were steered away.
fn go_on(share: PortShare) {
    let refuse_at = Instant::now() + Duration::from_nanos(HAND_OVER_NS / 2);
    while !share.is_released() && Instant::now() < refuse_at {
        sleep(LOOK);
    }
    share.refuse_handshakes();
    while !share.is_released() {
        sleep(LOOK);
    }
    share.leave();
}

/// Nothing panics while it holds one of these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
