//! SIGTERM, SIGINT and SIGUSR1 as notices on the controlling thread's queue.

use super::config::ServeError;
use super::shards::Notice;
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::{Handle, Signals};
use std::io;
use std::sync::mpsc::Sender;
use std::thread::{Builder, JoinHandle};

/// Signals are caught from here on; those that come early wait.
pub(super) struct SignalWatch {
    signals: Signals,
}

impl SignalWatch {
    pub(super) fn install() -> io::Result<Self> {
        Ok(Self {
            signals: Signals::new([SIGTERM, SIGINT, SIGUSR1])?,
        })
    }

    /// Starts the thread that turns signals into notices.
    pub(super) fn forward_to(mut self, notices: Sender<Notice>) -> Result<Forwarder, ServeError> {
        let handle = self.signals.handle();
        let forward = move || {
            for signal in &mut self.signals {
                let notice = match signal {
                    SIGUSR1 => Notice::PrintAccounting,
                    _ => Notice::Stop,
                };
                if notices.send(notice).is_err() {
                    return;
                }
            }
        };
        let thread = Builder::new()
            .name("signals".to_owned())
            .spawn(forward)
            .map_err(ServeError::Signals)?;
        Ok(Forwarder { handle, thread })
    }
}

/// The thread that waits for signals.
pub(super) struct Forwarder {
    handle: Handle,
    thread: JoinHandle<()>,
}

impl Forwarder {
    pub(super) fn stop(self) {
        self.handle.close();
        // The loop above cannot panic; were it to, the server has ended anyway.
        let _ = self.thread.join();
    }
}
