//! `/metrics` for a listener of its own: its thread asks a shard for the text, and the shard writes it.
//!
//! The text has what the service of a shard adds, which only its thread can read. One text is asked for at a time,
//! however many peers wait for it.

use millpond_io::Waker;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The question, the answer, and who is to be woken for each.
#[derive(Default)]
pub(crate) struct Scrape {
    is_asked: AtomicBool,
    text: Mutex<Option<Vec<u8>>>,
    /// Of the shard that writes.
    writer: OnceLock<Waker>,
    /// Of the thread that asks.
    reader: OnceLock<Waker>,
}

impl fmt::Debug for Scrape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Scrape")
            .field("is_asked", &self.is_asked)
            .finish_non_exhaustive()
    }
}

impl Scrape {
    /// The first call counts: one shard writes.
    pub(crate) fn set_writer(&self, waker: Waker) {
        let _ = self.writer.set(waker);
    }

    pub(crate) fn set_reader(&self, waker: Waker) {
        let _ = self.reader.set(waker);
    }

    /// Asks for a text; the reader is woken when it is there.
    pub(crate) fn ask(&self) {
        self.is_asked.store(true, Ordering::Release);
        if let Some(writer) = self.writer.get() {
            writer.wake();
        }
    }

    /// Whether a text is asked for, which the caller writes then.
    pub(crate) fn take_question(&self) -> bool {
        // Looked at first: a shard is woken often, and writes cost the others the cache line.
        self.is_asked.load(Ordering::Relaxed) && self.is_asked.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn answer(&self, text: Vec<u8>) {
        *self.lock() = Some(text);
        if let Some(reader) = self.reader.get() {
            reader.wake();
        }
    }

    pub(crate) fn take_answer(&self) -> Option<Vec<u8>> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<u8>>> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
