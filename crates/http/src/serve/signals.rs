//! SIGTERM, SIGINT, SIGUSR1 and SIGHUP as notices on the controlling thread's queue.

use super::config::ServeError;
use super::shards::Notice;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::{Handle, Signals};
use std::io;
use std::sync::mpsc::Sender;
use std::thread::{Builder, JoinHandle};

/// Signals are caught from here on; those that come early wait.
pub(super) struct SignalWatch {
    signals: Signals,
}

impl SignalWatch {
    /// SIGHUP is only caught where it is good for something: a server without files to read again
    /// ends with its terminal.
    pub(super) fn install(rereads: bool) -> io::Result<Self> {
        let signals = Signals::new([SIGTERM, SIGINT, SIGUSR1])?;
        if rereads {
            signals.add_signal(SIGHUP)?;
        }
        Ok(Self { signals })
    }

    /// Starts the thread that turns signals into notices.
    pub(super) fn forward_to(mut self, notices: Sender<Notice>) -> Result<Forwarder, ServeError> {
        let handle = self.signals.handle();
        let forward = move || {
            for signal in &mut self.signals {
                let notice = match signal {
                    SIGUSR1 => Notice::PrintAccounting,
                    SIGHUP => Notice::Reread,
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
