//! The user's settings of a profile, and the defaults with their reasons.

use std::path::PathBuf;
use std::time::Duration;

use millpond_measure::record::PoolSetting;

use super::Unwind;
use crate::allocator::{self, Allocator};
use crate::config::{CONNECTIONS_DEFAULT, VALUE_BYTES_DEFAULT};
use crate::error::LabError;
use crate::load_command::LoadCommand;
use crate::options::SubjectOptions;
use crate::subject::Launcher;
use crate::target::Target;

/// Load for each graph, over all rounds: five thousand samples of one busy CPU.
pub const DURATION_DEFAULT: Duration = Duration::from_secs(5);
/// Pairs by which the profilers' cost is judged.
pub const ROUNDS_DEFAULT: u32 = 5;
/// As Go's and jemalloc's profilers: a server that asks for 1 GB/s gives two thousand samples a
/// second, which is nothing beside its work.
pub const SAMPLE_BYTES_DEFAULT: u64 = 512 * 1024;
/// Off the beat of anything that happens a thousand times a second.
pub const SAMPLES_PER_S_DEFAULT: u32 = 997;
/// The kernel's own bound is higher; a graph gains nothing beyond.
const SAMPLES_PER_S_MAX: u32 = 20_000;
/// A pair of candidates has a difference.
const CANDIDATES_MAX: usize = 2;

/// One profile.
#[derive(Clone, Debug)]
pub struct ProfileConfig {
    /// The server.
    pub target: Target,
    /// At most two; `None`: what the server has by itself.
    pub allocators: Option<Vec<String>>,
    /// Our own server's pools.
    pub pools: PoolSetting,
    /// How the user's server is started, asked and stopped.
    pub options: SubjectOptions,
    /// The user's own load program; `None`: our generator.
    pub load_command: Option<LoadCommand>,
    /// Connections of the generator.
    pub connections: usize,
    /// Size of the values written to our server.
    pub value_bytes: usize,
    /// Requests per second; `None`: as fast as responses come.
    pub rate_per_s: Option<f64>,
    /// Load for each graph, over all rounds.
    pub duration: Duration,
    /// Over how many fresh processes that is spread.
    pub rounds: u32,
    /// Whether the CPU graph is requested.
    pub cpu: bool,
    /// Whether the allocation graphs are requested.
    pub allocations: bool,
    /// Whether the same work is run without a profiler too, to say what profiling costs.
    pub cost: bool,
    /// How perf follows stacks.
    pub unwind: Unwind,
    /// CPU samples per second of CPU time.
    pub samples_per_s: u32,
    /// Mean distance of allocation samples.
    pub sample_bytes: u64,
    /// Where the files go.
    pub out: PathBuf,
    /// Seed of all random choices; `None` draws one.
    pub seed: Option<u64>,
    /// How long a target may take until it serves.
    pub ready_bound: Duration,
    /// The program that has the `launch` and `serve` subcommands.
    pub launcher: Launcher,
    /// The command line that repeats this profile.
    pub command: Vec<String>,
}

impl ProfileConfig {
    /// The defaults for `target`, run by `launcher`.
    #[must_use]
    pub fn new(target: Target, launcher: Launcher) -> Self {
        Self {
            target,
            allocators: None,
            pools: PoolSetting::On,
            options: SubjectOptions::default(),
            load_command: None,
            connections: CONNECTIONS_DEFAULT,
            value_bytes: VALUE_BYTES_DEFAULT,
            rate_per_s: None,
            duration: DURATION_DEFAULT,
            rounds: ROUNDS_DEFAULT,
            cpu: true,
            allocations: true,
            cost: true,
            unwind: Unwind::Auto,
            samples_per_s: SAMPLES_PER_S_DEFAULT,
            sample_bytes: SAMPLE_BYTES_DEFAULT,
            out: PathBuf::from("millpond-profile"),
            seed: None,
            ready_bound: Duration::from_secs(20),
            launcher,
            command: Vec::new(),
        }
    }

    /// Refuses what can be refused without starting anything.
    pub(super) fn check(&self) -> Result<(), LabError> {
        let refuse = |sentence: &str| Err(LabError::Setting(sentence.to_owned()));
        if self.connections == 0 || self.rounds == 0 || self.duration.is_zero() {
            return refuse("without connections, rounds or time there is nothing to profile");
        }
        if !self.cpu && !self.allocations {
            return refuse("neither the CPU nor allocations are wanted: there is nothing to draw");
        }
        if self.sample_bytes == 0 {
            return refuse("--sample-bytes 0 would sample every byte; 1 samples every call");
        }
        if self
            .rate_per_s
            .is_some_and(|rate| !rate.is_finite() || rate <= 0.0)
        {
            return refuse("--rate needs a number of requests per second above 0");
        }
        if matches!(&self.target, Target::Command { words, .. } if words.is_empty()) {
            return refuse("no command after --: nothing to start");
        }
        check_samples_per_s(self.samples_per_s)?;
        self.options.check()
    }

    /// The allocators: one, or two whose difference is drawn.
    pub(super) fn chosen_allocators(&self) -> Result<Vec<Allocator>, LabError> {
        let Some(names) = &self.allocators else {
            return Ok(vec![Allocator::native(allocator::GLIBC)]);
        };
        let mut chosen = allocator::select_with_settings(names)?;
        if chosen.is_empty() || chosen.len() > CANDIDATES_MAX {
            return Err(LabError::Setting(format!(
                "--allocators takes one name, or two whose difference is drawn; these are {}",
                chosen.len()
            )));
        }
        for one in &mut chosen {
            one.prove_kind(&self.launcher).map_err(LabError::Setting)?;
        }
        Ok(chosen)
    }
}

pub(super) fn check_samples_per_s(samples_per_s: u32) -> Result<(), LabError> {
    if (1..=SAMPLES_PER_S_MAX).contains(&samples_per_s) {
        return Ok(());
    }
    Err(LabError::Setting(format!(
        "{samples_per_s} samples per second: write a number from 1 to {SAMPLES_PER_S_MAX}"
    )))
}

#[cfg(test)]
#[path = "tests/config.rs"]
mod tests;
