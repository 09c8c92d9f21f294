//! How shards wake the writer, and how seldom.
//!
//! While requests come, the writer naps and takes what has gathered, so that it writes much at once
//! and nobody has to wake it; only a queue more than half full does. After a while without entries
//! it sleeps, and the end of the next tick with an entry wakes it: one system call for a silence.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering, fence};
use std::thread::Thread;
use std::time::Duration;

const AWAKE: u8 = 0;
const NAPPING: u8 = 1;
const ASLEEP: u8 = 2;

/// How the writer waits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rest {
    /// For more entries; a queue that fills ends it.
    Nap(Duration),
    /// For the first entry.
    Sleep,
    /// For a file that cannot be written to: entries change nothing about that.
    Retry(Duration),
}

/// What the writer and everybody else share.
#[derive(Debug, Default)]
pub(super) struct Bell {
    writer: OnceLock<Thread>,
    state: AtomicU8,
    reopens: AtomicBool,
    stops: AtomicBool,
}

impl Bell {
    /// The writer introduces itself, before anybody rings.
    pub(super) fn belongs_to(&self, writer: Thread) {
        // There is one writer, which comes once.
        let _ = self.writer.set(writer);
    }

    /// A queue is filling.
    pub(super) fn ring_if_idle(&self) {
        if self.state.load(Ordering::Relaxed) != AWAKE {
            self.ring();
        }
    }

    /// Entries were put into a queue.
    pub(super) fn ring_if_asleep(&self) {
        // Pairs with the one in `rest`: either the writer sees the entry, or we see it asleep.
        fence(Ordering::SeqCst);
        if self.state.load(Ordering::Relaxed) == ASLEEP {
            self.ring();
        }
    }

    pub(super) fn ask_to_reopen(&self) {
        self.reopens.store(true, Ordering::Release);
        self.ring();
    }

    pub(super) fn ask_to_stop(&self) {
        self.stops.store(true, Ordering::Release);
        self.ring();
    }

    pub(super) fn takes_reopening(&self) -> bool {
        self.reopens.swap(false, Ordering::Acquire)
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stops.load(Ordering::Acquire)
    }

    /// Waits; not at all when `has_something` says so once the others can see that we wait.
    pub(super) fn rest(&self, rest: Rest, has_something: impl Fn() -> bool) {
        self.state.store(
            match rest {
                Rest::Nap(_) => NAPPING,
                Rest::Sleep => ASLEEP,
                Rest::Retry(_) => AWAKE,
            },
            Ordering::Relaxed,
        );
        fence(Ordering::SeqCst);
        let is_asked = self.is_stopping() || self.reopens.load(Ordering::Acquire);
        if !is_asked && !has_something() {
            match rest {
                Rest::Nap(duration) | Rest::Retry(duration) => std::thread::park_timeout(duration),
                Rest::Sleep => std::thread::park(),
            }
        }
        self.state.store(AWAKE, Ordering::Relaxed);
    }

    fn ring(&self) {
        self.state.store(AWAKE, Ordering::Relaxed);
        if let Some(writer) = self.writer.get() {
            writer.unpark();
        }
    }
}
