//! A line on stderr when the process is aborted: in which work on which store, and what is to be done.
//!
//! A C++ exception of the engine, most often a thread that it cannot start, ends the process with SIGABRT and a line of
//! a runtime that names neither the store nor a remedy; no code above the engine's C interface can catch it.
//! `store::opening` detects most of these beforehand, and returns an error value.
#![allow(unsafe_code)]

use std::io;
use std::path::Path;
use std::sync::OnceLock;

use rustix::fd::BorrowedFd;
use signal_hook::consts::SIGABRT;
use signal_hook::low_level::{emulate_default_handler, register};

/// Made before it is needed: a signal handler can neither allocate nor format.
static NOTE: OnceLock<String> = OnceLock::new();

/// From now on SIGABRT writes the line about the store in `data`, then ends the process as before. For programs:
/// the signal is the process's. The first call counts.
///
/// # Errors
/// When the system refuses the handler.
pub fn install(data: &Path) -> io::Result<()> {
    let note = format!(
        "millpond: error: the process is aborted at its work on the store in {}; the line above says why. If a \
         thread could not be started (\"Resource temporarily unavailable\"), raise the limit of processes and \
         threads (ulimit -u, systemd's TasksMax=), and start it again: what was acknowledged is in the store's \
         log\n",
        data.display()
    );
    if NOTE.set(note).is_err() {
        return Ok(());
    }
    // SAFETY: the handler makes system calls that may be made in one, and reads what is never written again.
    unsafe { register(SIGABRT, on_abort) }.map(drop)
}

fn on_abort() {
    if let Some(note) = NOTE.get() {
        // SAFETY: descriptor 2 is stderr for as long as the process lives; were it closed, the write fails.
        let stderr = unsafe { BorrowedFd::borrow_raw(2) };
        let _ = rustix::io::write(stderr, note.as_bytes());
    }
    let _ = emulate_default_handler(SIGABRT);
}
