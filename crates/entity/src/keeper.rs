//! The keeper: a thread that looks after the engine while others work.
//!
//! On the path: four times a second it asks the engine how it is doing and the disk how much room there
//! is, and publishes both, so that shards neither take the engine's locks nor wait for the kernel. What
//! the engine has stopped or the disk has no room for is then refused at once, and accepted again
//! without a restart.
//! Absent on purpose: deciding anything else. The writer looks at the disk too, by bytes written and not
//! by time (`commit`), so a fast writer cannot outrun this thread.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::counters::{CommitCounters, EngineCounters};
use crate::lane::{Lane, Taken};
use crate::store::Store;

const INTERVAL: Duration = Duration::from_millis(250);

/// The thread. Dropping it ends it.
pub struct Keeper {
    /// Nothing is sent: it is there to be closed.
    jobs: Arc<Lane<()>>,
    counters: Arc<EngineCounters>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Looks once, then starts the thread.
    ///
    /// # Errors
    /// When the operating system refuses a thread.
    pub fn start<S: Store>(store: &Arc<S>, commits: Arc<CommitCounters>) -> std::io::Result<Self> {
        let counters = Arc::<EngineCounters>::default();
        look(&**store, &counters, &commits);
        let jobs = Arc::new(Lane::new());
        let thread = thread::Builder::new().name("store-keeper".to_owned());
        let thread = thread.spawn({
            let (jobs, store) = (Arc::clone(&jobs), Arc::clone(store));
            let counters = Arc::clone(&counters);
            move || {
                let mut queued = Vec::new();
                while jobs.take_all(&mut queued, Some(Instant::now() + INTERVAL)) != Taken::Closed {
                    look(&*store, &counters, &commits);
                }
            }
        })?;
        Ok(Self {
            jobs,
            counters,
            thread: Some(thread),
        })
    }

    /// What it has seen.
    #[must_use]
    pub fn counters(&self) -> Arc<EngineCounters> {
        Arc::clone(&self.counters)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.jobs.close();
        if let Some(thread) = self.thread.take() {
            // A keeper that panicked has printed why; nothing waits for it.
            let _ = thread.join();
        }
    }
}

fn look<S: Store>(store: &S, counters: &EngineCounters, commits: &CommitCounters) {
    let gauges = store.gauges();
    // In this order: who is refused finds the reason in the metrics.
    counters.publish(&gauges);
    commits.set_stopped(gauges.writes_are_stopped);
    if let Some(disk) = store.disk() {
        counters.publish_disk(&disk);
        commits.set_room(disk.room());
    }
}
