//! Everything `bench loopback` found out, as JSON has it. Fields are added, never renamed.

use super::pair::PairSample;
use super::run::LoopbackConfig;
use crate::record::{NoiseRecord, VerdictRecord};
use crate::statistics::{Ratio, Summary};
use millpond_io::DriverKind;
use millpond_lab::allocator::Allocator;
use millpond_measure::environment::Environment;
use millpond_measure::noise::MachineNoise;
use millpond_measure::record::PoolSetting;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The whole benchmark.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct LoopbackRecord {
    /// Of this format.
    pub version: u32,
    /// The command line.
    pub command: Vec<String>,
    /// The machine.
    pub environment: Environment,
    /// The order of the runs follows from it.
    pub seed: u64,
    /// As asked for.
    pub repetitions: u32,
    /// Connections of all threads together.
    pub connections: u64,
    /// Requests on each, on average.
    pub requests_per_connection: u64,
    /// Of the client, and as many of the server.
    pub threads: u64,
    /// Length of a request's body.
    pub request_bytes: u64,
    /// Length of a response's body.
    pub response_bytes: u64,
    /// Kernel interface of the server.
    pub server_driver: String,
    /// Kernel interface of the client.
    pub client_driver: String,
    /// Other activity on the machine.
    pub noise: Option<NoiseRecord>,
    /// Whether times are to be trusted. Heap calls and spreads are, in any case.
    pub verdict: VerdictRecord,
    /// One for each combination of allocator and pools; the first is the reference for the others.
    pub candidates: Vec<CandidateRecord>,
    /// Ended early: runs are missing.
    pub interrupted: bool,
}

/// One allocator, with pools or without.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct CandidateRecord {
    /// As it is shown.
    pub name: String,
    /// The malloc in use, on both sides.
    pub allocator: String,
    /// Its version, if its file has one.
    pub allocator_version: Option<String>,
    /// The preloaded object, proved to be mapped.
    pub library: Option<PathBuf>,
    /// Memory pools of both sides.
    pub pools: PoolSetting,
    /// Right responses per second, over the runs.
    pub requests_per_s: Summary,
    /// How many times as many as the first candidate, by pairs of one repetition; `null` for itself.
    pub times_the_first: Option<Ratio>,
    /// malloc and realloc calls of client and server for each transaction.
    pub heap_calls_per_transaction: Option<f64>,
    /// CPU time of both sides for each transaction; median.
    pub cpu_ns_per_transaction: f64,
    /// Each run.
    pub runs: Vec<PairSample>,
}

impl CandidateRecord {
    /// `None` if it gave no figure. `samples` and those of the `baseline` are by repetition.
    pub(super) fn of(
        name: String,
        allocator: &Allocator,
        pools: PoolSetting,
        samples: Vec<Option<PairSample>>,
        baseline: &[Option<PairSample>],
        heap_calls_per_transaction: Option<f64>,
    ) -> Option<Self> {
        let pairs: Vec<(f64, f64)> = samples
            .iter()
            .zip(baseline)
            .filter_map(|(ours, theirs)| {
                let (ours, theirs) = (ours.as_ref()?, theirs.as_ref()?);
                Some((ours.requests_per_s, theirs.requests_per_s))
            })
            .collect();
        let is_baseline = samples == baseline;
        let runs: Vec<PairSample> = samples.into_iter().flatten().collect();
        let figures = |figure: fn(&PairSample) -> f64| {
            let values: Vec<f64> = runs.iter().map(figure).collect();
            Summary::of(&values)
        };
        let cpu_ns = figures(|run| run.cpu_ns as f64 / run.requests.max(1) as f64)?;
        Some(Self {
            name,
            allocator: allocator.name.clone(),
            allocator_version: allocator.version(),
            library: allocator.library.clone(),
            pools,
            requests_per_s: figures(|run| run.requests_per_s)?,
            times_the_first: (!is_baseline).then(|| Ratio::of(&pairs)).flatten(),
            heap_calls_per_transaction,
            cpu_ns_per_transaction: cpu_ns.median,
            runs,
        })
    }

    /// The middle one of a figure of each run; 0 without runs, which no record has.
    #[must_use]
    pub fn median(&self, figure: impl Fn(&PairSample) -> f64) -> f64 {
        let values: Vec<f64> = self.runs.iter().map(figure).collect();
        Summary::of(&values).map_or(0.0, |summary| summary.median)
    }

    /// Failures of all runs.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.runs.iter().map(|run| run.errors.total()).sum()
    }
}

impl LoopbackRecord {
    /// Adds the verdict.
    pub(super) fn new(
        config: &LoopbackConfig,
        [server_driver, client_driver]: [DriverKind; 2],
        environment: Environment,
        noise: Option<MachineNoise>,
        candidates: Vec<CandidateRecord>,
        interrupted: bool,
    ) -> Self {
        Self {
            version: 1,
            command: config.command.clone(),
            environment,
            seed: config.seed,
            repetitions: config.repetitions,
            connections: config.connections,
            requests_per_connection: config.iterations,
            threads: config.threads,
            request_bytes: config.request_bytes,
            response_bytes: config.response_bytes,
            server_driver: server_driver.name().to_owned(),
            client_driver: client_driver.name().to_owned(),
            noise: noise.map(NoiseRecord::from),
            verdict: VerdictRecord::of(noise),
            candidates,
            interrupted,
        }
    }

    /// As `--json` writes it.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    /// Requests without a successful response, of all runs.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.candidates.iter().map(CandidateRecord::failures).sum()
    }
}

#[cfg(test)]
#[path = "tests/record.rs"]
mod tests;
