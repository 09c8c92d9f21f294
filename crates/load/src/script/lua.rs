//! Scripts with Lua: a main state, and one state for each thread.
//!
//! Whether a script makes its requests itself, delays them or looks at answers is decided once, from
//! the first thread after its `init`, so that a thread never asks Lua for what is not there.
//! Absent on purpose: editing. What `request()` returns is what leaves.
mod address;
mod batch;
mod pauses;
mod runner;
mod state;
mod stats;
mod thread;

pub(crate) use runner::Runner;

use super::{ScriptConfig, ScriptErrors};
use crate::config::{LoadConfig, Mode};
use crate::error::LoadError;
use crate::record::LoadRecord;
use runner::Wishes;
use state::{ScriptState, Scripted, sentence};
use stats::{Length, Stats};
use std::sync::Arc;
use thread::{ThreadFacts, ThreadHandle};

/// A loaded script, ready for a run.
#[derive(Debug)]
pub struct Script {
    main: ScriptState,
    /// One per thread; lent to the workers during a run.
    runners: Vec<Runner>,
    length: Length,
    errors: ScriptErrors,
}

impl Script {
    /// Loads the script for the threads of `load`, up to and with the proof of its first request.
    ///
    /// # Errors
    /// If the file cannot be run, `setup` or `init` fail, or the first request is not whole.
    pub fn load(config: &ScriptConfig, load: &LoadConfig) -> Result<Self, LoadError> {
        Self::try_load(config, load).map_err(|problem| LoadError::Script {
            file: config.file.clone(),
            problem,
        })
    }

    fn try_load(config: &ScriptConfig, load: &LoadConfig) -> Scripted<Self> {
        let main = ScriptState::new(config, load, 0)?;
        let mut runners: Vec<Runner> = Vec::new();
        for place in 1..=load.threads.min(load.connections) {
            let state = ScriptState::new(config, load, place as u64)?;
            let facts = Arc::new(ThreadFacts::new(load.target.addresses[0].clone()));
            let handle = ThreadHandle {
                lua: state.lua.weak(),
                facts: Arc::clone(&facts),
            };
            state.set_thread(handle.clone())?;
            main.setup(handle)?;
            state.init(config)?;
            let first = runners.first().map(Runner::wishes);
            let wishes = first.unwrap_or_else(|| Wishes::of(&state));
            let mut runner = Runner::new(state, facts, wishes);
            // wrk proves the first thread only, and what a script counts then begins at 1 there.
            if first.is_none() || !wishes.is_dynamic {
                runner.prove()?;
            }
            runners.push(runner);
        }
        let script = Self {
            main,
            runners,
            length: match load.mode {
                Mode::ClosedLoop => Length::Distinct,
                _ => Length::Total,
            },
            errors: ScriptErrors::default(),
        };
        script.flush();
        Ok(script)
    }

    /// Lends a runner to each worker, which has so many connections.
    pub(crate) fn lend(&mut self, shares: impl Iterator<Item = usize>) -> Vec<Runner> {
        let mut runners = std::mem::take(&mut self.runners);
        for (runner, share) in runners.iter_mut().zip(shares) {
            runner.begin(share);
        }
        runners
    }

    /// Takes the runners back when their workers have ended.
    pub(crate) fn take_back(&mut self, runners: impl Iterator<Item = Box<Runner>>) {
        for mut runner in runners {
            runner.ended();
            self.errors.merge(std::mem::take(&mut runner.errors));
            self.runners.push(*runner);
        }
        self.flush();
    }

    /// What the script did wrong during the run.
    pub fn errors(&self) -> &ScriptErrors {
        &self.errors
    }

    /// Calls the script's `done(summary, latency, requests)`, if it has one.
    ///
    /// # Errors
    /// If the script's function fails.
    pub fn done(&self, record: &LoadRecord) -> Result<(), String> {
        let summary = self.summary(record).map_err(|error| sentence(&error))?;
        let latency = Stats::of_latencies(&record.response, self.length);
        let requests = Stats::of_rates(&record.thread_rates, self.length);
        let ended = self.main.done((summary, latency, requests));
        self.flush();
        ended
    }

    fn summary(&self, record: &LoadRecord) -> mlua::Result<mlua::Table> {
        let kinds = record.errors;
        let number = |count: u64| count as f64;
        let errors = self.main.lua.create_table()?;
        errors.set("connect", number(kinds.connect))?;
        errors.set("read", number(kinds.read))?;
        errors.set("write", number(kinds.write))?;
        errors.set("status", number(kinds.status))?;
        errors.set("timeout", number(kinds.timeout))?;
        let summary = self.main.lua.create_table()?;
        // All answers, as in wrk: those with a wrong status are answers too.
        let answers = record.requests + kinds.status + kinds.validation;
        summary.set("duration", number(record.duration_ns / 1_000))?;
        summary.set("requests", number(answers))?;
        summary.set("bytes", number(record.bytes_received))?;
        summary.set("errors", errors)?;
        Ok(summary)
    }

    fn flush(&self) {
        // All states write through the same buffer of C's.
        self.main.flush();
    }
}

impl ScriptErrors {
    fn add(&mut self, message: String) {
        self.count += 1;
        self.first.get_or_insert(message);
    }

    fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.first = self.first.take().or(other.first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_the_one_that_is_told() {
        let mut errors = ScriptErrors::default();
        errors.merge(ScriptErrors::default());
        errors.add("one".to_owned());
        errors.add("two".to_owned());
        let mut all = ScriptErrors::default();
        all.merge(errors);
        assert_eq!((all.count, all.first.as_deref()), (2, Some("one")));
    }
}
