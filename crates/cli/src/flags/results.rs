//! The end of a run of `millpond load`: its record in every form that was asked for, and the run that
//! cannot end by itself because its script does not.
//!
//! Absent on purpose: the exit status of a run that did end (`load`).

use super::printing::{Finished, PrintFlags};
use super::streams::Streams;
use super::watcher::Watcher;
use crate::output::{self, Exit, Failure};
use millpond_load::{Connecting, Ended, LoadRecord, Observer, Progress, Second};
use millpond_measure::record::LoadReport;
use std::time::SystemTime;

/// Where results go.
#[derive(Debug)]
pub(super) struct Results<'a> {
    pub(super) print: &'a PrintFlags,
    pub(super) url: String,
    /// wrk's first lines.
    pub(super) header: &'a str,
}

impl Results<'_> {
    /// Prints and writes all of it.
    pub(super) fn write(&self, record: &LoadRecord, streams: Streams) -> Result<(), Failure> {
        let report = LoadReport {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            url: self.url.clone(),
            ..record.to_report()
        };
        streams.finish(&report)?;
        let finished = Finished {
            record,
            report: &report,
        };
        self.print.finish(&finished, self.header)
    }
}

/// The watcher of a run with a script.
#[derive(Debug)]
pub(super) struct ScriptWatcher<'a> {
    pub(super) watcher: &'a Watcher,
    pub(super) results: &'a Results<'a>,
}

impl Observer for ScriptWatcher<'_> {
    fn started(&self, at: SystemTime) {
        self.watcher.started(at);
    }

    fn connecting(&self, now: &Connecting) {
        self.watcher.connecting(now);
    }

    fn progress(&self, now: &Progress) {
        self.watcher.progress(now);
    }

    fn second(&self, second: &Second<'_>) {
        self.watcher.second(second);
    }

    /// Threads that never end would keep the process: it ends from here.
    fn stuck(&self, record: &LoadRecord) {
        let written = self.results.write(record, self.watcher.finish());
        if let Err(Failure::Usage(problem) | Failure::Failed(problem)) = written {
            output::note(problem);
        }
        output::note(format!(
            "the script did not come back in {} of {} threads, perhaps from a loop without an end; what \
             those measured in their last second is missing, and done() was not called",
            record.stuck_threads, record.threads
        ));
        output::leave(match record.ended {
            Ended::Interrupted => Exit::Interrupted,
            _ => Exit::Failed,
        });
    }
}
