//! Where threads that are done wait, their connections open, until the supervising thread has looked at the target.
//!
//! What a server holds for its connections (buffers, threads with arenas of their own) is gone a moment after they
//! close, so who wants to read its memory has to do it before.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

/// Closed at first; opened once.
#[derive(Debug)]
pub(crate) struct Gate {
    state: Mutex<State>,
    opened: Condvar,
    supervisor: Thread,
}

#[derive(Debug, Default)]
struct State {
    waiting: usize,
    is_open: bool,
}

impl Gate {
    /// Of this thread, which is woken when another one waits.
    pub(crate) fn of_this_thread() -> Self {
        Self {
            state: Mutex::default(),
            opened: Condvar::new(),
            supervisor: std::thread::current(),
        }
    }

    /// Waits until it is open.
    pub(crate) fn wait(&self) {
        let mut state = self.state();
        state.waiting += 1;
        self.supervisor.unpark();
        while !state.is_open {
            let woken = self.opened.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= 1;
    }

    /// Threads that wait now.
    pub(crate) fn waiting(&self) -> usize {
        self.state().waiting
    }

    fn open(&self) {
        self.state().is_open = true;
        self.opened.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens the gate when it is dropped, on whatever way: nobody waits for a thread that has panicked.
#[derive(Debug)]
pub(crate) struct Opener<'a>(pub(crate) &'a Gate);

impl Drop for Opener<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}
