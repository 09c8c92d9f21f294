//! Displays a running load run: the live view or the progress line, and the outputs that grow with
//! it.
//!
//! It shows what the run says of itself.

use super::live::Live;
use super::streams::Streams;
use crate::output::{Progress, whole_seconds};
use clap::Args;
use millpond_load::{Connecting, Observer, Second};
use millpond_measure::units::{format_count, format_duration_ns, format_rate};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// What it writes to.
#[derive(Debug)]
struct Outlets {
    progress: Progress,
    /// Instead of the progress line.
    live: Option<Live>,
    /// 99th percentiles of response time and send delay in the last second.
    tails_ns: Option<(u64, u64)>,
    streams: Streams,
}

/// The flags of what is shown while the run goes on.
#[derive(Args, Debug)]
pub(super) struct WatchFlags {
    /// One line of progress instead of the live view
    #[arg(long, help_heading = "Output")]
    no_live: bool,
}

impl WatchFlags {
    /// An observer; `title` names the run.
    pub(super) fn watcher(&self, title: String, streams: Streams) -> Watcher {
        let live = (!self.no_live).then(|| Live::on_terminal(title));
        Watcher(Mutex::new(Outlets {
            progress: Progress::new(),
            live: live.flatten(),
            tails_ns: None,
            streams,
        }))
    }
}

/// An observer of one run.
#[derive(Debug)]
pub(super) struct Watcher(Mutex<Outlets>);

impl Watcher {
    /// The run is over; gives out what is to be finished with its record.
    pub(super) fn finish(&self) -> Streams {
        let mut outlets = self.outlets();
        outlets.progress.clear();
        if let Some(live) = &mut outlets.live {
            live.clear();
        }
        std::mem::take(&mut outlets.streams)
    }

    /// No other thread holds it: the run calls from one thread.
    fn outlets(&self) -> MutexGuard<'_, Outlets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Watcher {
    fn started(&self, at: SystemTime) {
        self.outlets().streams.started(at);
    }

    fn connecting(&self, now: &Connecting) {
        let outlets = &mut *self.outlets();
        let line = connecting_line(now);
        match &mut outlets.live {
            Some(live) => live.connecting(&line),
            None => outlets.progress.update(line),
        }
    }

    fn progress(&self, now: &millpond_load::Progress) {
        let outlets = &mut *self.outlets();
        match &mut outlets.live {
            Some(live) => live.progress(now),
            None => outlets
                .progress
                .update(progress_line(now, outlets.tails_ns)),
        }
    }

    fn second(&self, second: &Second<'_>) {
        let outlets = &mut *self.outlets();
        let figures = second.figures;
        if figures.requests > 0 {
            outlets.tails_ns = Some((figures.response_ns.p99, figures.slip_ns.p99));
        }
        if let Some(live) = &mut outlets.live {
            live.second(second);
            if outlets.streams.has_stdout() {
                // Lines of both would stand in each other's way.
                live.clear();
            }
        }
        outlets.streams.second(second);
    }
}

fn connecting_line(now: &Connecting) -> String {
    let mut line = format!(
        "connecting: {} of {} connections open after {}",
        now.open,
        now.asked,
        whole_seconds(now.elapsed_ns)
    );
    if let Some(failure) = now.last_failure {
        line += &format!(", the last failure: {failure}");
    }
    line
}

fn progress_line(now: &millpond_load::Progress, tails_ns: Option<(u64, u64)>) -> String {
    let phase = if now.is_warm_up {
        "warming up"
    } else {
        "measuring"
    };
    let mut line = format!("{phase}: {} requests", format_count(now.completed as f64));
    if now.rate_per_s > 0.0 {
        line += &format!(", {}", format_rate(now.rate_per_s));
    }
    if let Some((response_ns, slip_ns)) = tails_ns {
        line += &format!(", p99 {}", format_duration_ns(response_ns as f64));
        if slip_ns > 0 {
            line += &format!(", send delay p99 {}", format_duration_ns(slip_ns as f64));
        }
    }
    if now.errors.total() > 0 {
        line += &format!(", {} errors", now.errors.total());
    }
    if let Some(remaining_ns) = now.remaining_ns {
        line += &format!(", {} left", whole_seconds(remaining_ns));
    }
    line
}

#[cfg(test)]
#[path = "tests/watcher.rs"]
mod tests;
