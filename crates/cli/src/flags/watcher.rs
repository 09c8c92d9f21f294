//! Who looks at a load run while it goes on: the progress line, and the outputs that grow with it.
//!
//! Absent on purpose: figures of its own. It shows what the run says of itself.

use super::streams::Streams;
use crate::output::{Progress, whole_seconds};
use millpond_load::{Observer, Second};
use millpond_measure::units::{format_count, format_rate};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// What it writes to.
#[derive(Debug)]
struct Outlets {
    progress: Progress,
    streams: Streams,
}

/// An observer of one run.
#[derive(Debug)]
pub(super) struct Watcher(Mutex<Outlets>);

impl Watcher {
    pub(super) fn new(streams: Streams) -> Self {
        Self(Mutex::new(Outlets {
            progress: Progress::new(),
            streams,
        }))
    }

    /// The run is over; gives out what is to be finished with its record.
    pub(super) fn finish(self) -> Streams {
        let mut outlets = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        outlets.progress.clear();
        outlets.streams
    }

    /// Nobody else holds it: the run calls from one thread.
    fn outlets(&self) -> MutexGuard<'_, Outlets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Watcher {
    fn started(&self, at: SystemTime) {
        self.outlets().streams.started(at);
    }

    fn progress(&self, now: &millpond_load::Progress) {
        self.outlets().progress.update(progress_line(now));
    }

    fn second(&self, second: &Second<'_>) {
        self.outlets().streams.second(second);
    }
}

fn progress_line(now: &millpond_load::Progress) -> String {
    let phase = if now.is_warm_up {
        "warming up"
    } else {
        "measuring"
    };
    let mut line = format!("{phase}: {} requests", format_count(now.completed as f64));
    if now.rate_per_s > 0.0 {
        line += &format!(", {}", format_rate(now.rate_per_s));
    }
    if now.errors.total() > 0 {
        line += &format!(", {} errors", now.errors.total());
    }
    if let Some(remaining_ns) = now.remaining_ns {
        line += &format!(", {} left", whole_seconds(remaining_ns));
    }
    line
}
