//! A build without Lua: no script can be loaded, so there is none and no runner of one.
//!
//! The types have no value. What would be done with one needs no code, and the generator needs no
//! second form of itself.
use super::{ScriptConfig, ScriptErrors};
use crate::config::LoadConfig;
use crate::error::LoadError;
use crate::record::LoadRecord;
use millpond_http::Method;
use millpond_io::Address;
use std::convert::Infallible;

/// A loaded script: none, in this build.
#[derive(Debug)]
pub struct Script(Infallible);

impl Script {
    /// Refuses the script.
    ///
    /// # Errors
    /// Always: it takes the feature `lua`.
    pub fn load(config: &ScriptConfig, _load: &LoadConfig) -> Result<Self, LoadError> {
        Err(LoadError::Script {
            file: config.file.clone(),
            problem: "this program was built without Lua: build it with the feature `lua`, as in \
                      `cargo install --no-default-features --features lua`"
                .to_owned(),
        })
    }

    pub(crate) fn lend(&mut self, _shares: impl Iterator<Item = usize>) -> Vec<Runner> {
        match self.0 {}
    }

    pub(crate) fn take_back(&mut self, _runners: impl Iterator<Item = Box<Runner>>) {
        match self.0 {}
    }

    /// The errors of the script during the run.
    pub fn errors(&self) -> &ScriptErrors {
        match self.0 {}
    }

    /// Calls the script's `done(summary, latency, requests)`.
    ///
    /// # Errors
    /// If the script's function fails.
    pub fn done(&self, _record: &LoadRecord) -> Result<(), String> {
        match self.0 {}
    }
}

/// One thread's script: none, in this build.
#[derive(Debug)]
pub(crate) struct Runner(Infallible);

impl Runner {
    pub(crate) fn address(&self) -> Address {
        match self.0 {}
    }

    pub(crate) fn is_stopped(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn wants_responses(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn next_pause_end_ns(&self) -> Option<u64> {
        match self.0 {}
    }

    pub(crate) fn end_pause(&mut self, _now_ns: u64) -> Option<u32> {
        match self.0 {}
    }

    pub(crate) fn next_batch(&mut self) -> Option<(&[u8], &[Method])> {
        match self.0 {}
    }

    pub(crate) fn lets_ask(&mut self, _index: u32, _is_idle: bool, _now_ns: u64) -> bool {
        match self.0 {}
    }

    pub(crate) fn owe_delay(&mut self, _index: u32) {
        match self.0 {}
    }

    pub(crate) fn pause_after_error(&mut self, _index: u32, _now_ns: u64) {
        match self.0 {}
    }

    pub(crate) fn head(&mut self, _index: u32, _head: &[u8]) {
        match self.0 {}
    }

    pub(crate) fn part(&mut self, _index: u32, _part: &[u8]) {
        match self.0 {}
    }

    pub(crate) fn answered(&mut self, _index: u32, _status: u16) {
        match self.0 {}
    }
}

#[cfg(test)]
#[path = "tests/absent.rs"]
mod tests;
