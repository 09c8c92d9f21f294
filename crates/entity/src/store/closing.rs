//! An engine that is closed within a time, whatever it waits for.
//!
//! Place: [`super::rocksdb`] keeps its database in it. RocksDB before 8.7, Debian 12's among them, may wait
//! for ever in its closing after a sync that failed for want of room: it takes a recovery that has ended
//! for one under way (facebook/rocksdb issue 11440). A server on a full disk could then not be stopped.
//! What was acknowledged stands in the log by then, so the process may go without it: the next opening
//! finds what one behind a kill does.
//! Absent on purpose: a second try. What hangs keeps its thread and its lock on the directory until the
//! process ends.

use std::ops::Deref;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use millpond_http::log::{self, LogLevel};

/// An engine that is well stops its merging and is closed within moments. With the 30 s that a stop
/// leaves to requests it stays below the 60 s after which systemd kills.
const CLOSE_MAX: Duration = Duration::from_secs(20);

/// What is dropped on a thread of its own, and waited for no longer than [`CLOSE_MAX`].
pub(super) struct Closing<T: Send + 'static> {
    /// There until it is dropped.
    engine: Option<T>,
    close_max: Duration,
}

impl<T: Send + 'static> Closing<T> {
    pub(super) fn new(engine: T) -> Self {
        Self {
            engine: Some(engine),
            close_max: CLOSE_MAX,
        }
    }
}

impl<T: Send + 'static> Deref for Closing<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.engine {
            Some(engine) => engine,
            None => unreachable!("only its drop takes the engine away"),
        }
    }
}

impl<T: Send + 'static> Closing<T> {
    /// Closes it now. False: not within the time.
    pub(super) fn close(mut self) -> bool {
        self.close_in_time()
    }

    fn close_in_time(&mut self) -> bool {
        let Some(engine) = self.engine.take() else {
            return true;
        };
        let (closed, wait) = mpsc::channel::<()>();
        let close = move || {
            drop(engine);
            // Its end is what is waited for, by a panic too.
            drop(closed);
        };
        // Where no thread can be had it was dropped with the closure, in place.
        if thread::Builder::new()
            .name("close".to_owned())
            .spawn(close)
            .is_err()
        {
            return true;
        }
        let is_closed = wait.recv_timeout(self.close_max) != Err(mpsc::RecvTimeoutError::Timeout);
        if !is_closed {
            log::write(
                LogLevel::Error,
                format_args!(
                    "the store was not closed within {} s and is left as it is: what was acknowledged is \
                     in its log, and read from there at the next start",
                    self.close_max.as_secs()
                ),
            );
        }
        is_closed
    }
}

impl<T: Send + 'static> Drop for Closing<T> {
    fn drop(&mut self) {
        self.close_in_time();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Closed when told, or never.
    struct Engine(mpsc::Receiver<()>, mpsc::Sender<&'static str>);

    impl Drop for Engine {
        fn drop(&mut self) {
            let _ = self.0.recv();
            let _ = self.1.send("closed");
        }
    }

    fn closing(
        close_max: Duration,
    ) -> (
        Closing<Engine>,
        mpsc::Sender<()>,
        mpsc::Receiver<&'static str>,
    ) {
        let (tell, told) = mpsc::channel();
        let (said, hear) = mpsc::channel();
        let engine = Some(Engine(told, said));
        (Closing { engine, close_max }, tell, hear)
    }

    /// Goal: who drops a healthy engine goes on when it is closed, not before.
    #[test]
    fn an_engine_that_closes_is_waited_for() {
        let (engine, tell, hear) = closing(Duration::from_secs(600));
        drop(tell);
        drop(engine);
        assert_eq!(hear.try_recv(), Ok("closed"));
    }

    /// Goal: one that never closes keeps nobody: a server on a full disk hung in its stop.
    #[test]
    fn an_engine_that_hangs_is_left() {
        let (engine, tell, hear) = closing(Duration::from_millis(1));
        drop(engine);
        assert_eq!(hear.try_recv(), Err(mpsc::TryRecvError::Empty));
        drop(tell);
        assert_eq!(hear.recv(), Ok("closed"));
    }
}
