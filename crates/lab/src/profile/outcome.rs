//! The results of a profile: figures, and the files of its directory.
//!
//! With one candidate the files are in the directory itself, with two in one of each candidate's
//! name, and the difference between them beside these.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::{Display, Formatter};
use std::path::{Path, PathBuf};

use millpond_measure::flamegraph::Stacks;
use millpond_measure::units::{format_bytes, format_count};
use serde::Serialize;

use crate::error::LabError;
use crate::started_candidate::file_name;

use super::ProfileConfig;
use super::files::Files;
use super::perf::CpuSamples;
use super::sampler::{Cost, Sample, Spread, Work};

/// Everything sampled of one candidate, over all rounds.
#[derive(Clone, Debug, Default)]
pub(super) struct Gathered {
    pub(super) cpu: Stacks,
    pub(super) cpu_samples: u64,
    pub(super) cpu_lost: u64,
    pub(super) unwind: String,
    /// Calls and bytes by stack; whole numbers only once all samples are in.
    allocations: BTreeMap<Vec<String>, (f64, f64)>,
    allocation_samples: u64,
    pub(super) dropped: u64,
    pub(super) bare: u64,
    pub(super) programs: u64,
    without: BTreeMap<u32, Work>,
    under_cpu: BTreeMap<u32, Work>,
    under_allocations: BTreeMap<u32, Work>,
}

impl Gathered {
    pub(super) fn is_empty(&self) -> bool {
        self.cpu_samples == 0 && self.allocation_samples == 0
    }

    pub(super) fn add_work(&mut self, round: u32, is_without: bool, is_cpu: bool, work: Work) {
        let runs = match (is_without, is_cpu) {
            (true, _) => &mut self.without,
            (false, true) => &mut self.under_cpu,
            (false, false) => &mut self.under_allocations,
        };
        runs.insert(round, work);
    }

    pub(super) fn add_cpu(&mut self, found: &CpuSamples) {
        self.cpu.merge(&found.stacks);
        self.cpu_samples += found.samples;
        self.cpu_lost += found.lost;
    }

    /// `frames`: innermost first.
    pub(super) fn add_allocation(&mut self, sample: &Sample, mean_bytes: u64, frames: &[String]) {
        let (calls, bytes) = sample.weights(mean_bytes);
        let stack: Vec<String> = frames.iter().rev().cloned().collect();
        let sums = self.allocations.entry(stack).or_default();
        sums.0 += calls;
        sums.1 += bytes;
        self.allocation_samples += 1;
    }

    /// (calls, bytes).
    fn allocation_stacks(&self) -> (Stacks, Stacks) {
        let (mut calls, mut bytes) = (Stacks::default(), Stacks::default());
        for (stack, sums) in &self.allocations {
            calls.add(stack.iter().map(String::as_str), sums.0.round() as u64);
            bytes.add(stack.iter().map(String::as_str), sums.1.round() as u64);
        }
        (calls, bytes)
    }

    fn cost(&self, under: &BTreeMap<u32, Work>, time_is_given: bool) -> Option<Cost> {
        let pairs: Vec<(Work, Work)> = under
            .iter()
            .filter_map(|(round, &with)| Some((*self.without.get(round)?, with)))
            .collect();
        Cost::of(&pairs, time_is_given)
    }
}

/// A whole profile.
#[derive(Debug)]
pub struct ProfileOutcome {
    /// Figures, as `profile.json` has them.
    pub record: ProfileRecord,
    /// The files that were written, the pictures first.
    pub files: Vec<PathBuf>,
    /// True if the user ended it early.
    pub interrupted: bool,
}

/// The contents of `profile.json`. Fields are added, never renamed.
#[derive(Clone, Debug, Serialize)]
pub struct ProfileRecord {
    /// Of this program.
    pub version: String,
    /// The command line that repeats it.
    pub command: Vec<String>,
    /// The profiled program.
    pub subject: String,
    /// When it began.
    pub started_unix_ns: u64,
    /// Random choices follow from it.
    pub seed: u64,
    /// Fresh processes for each graph.
    pub rounds: u32,
    /// One or two; the difference is from the first to the second.
    pub candidates: Vec<CandidateProfile>,
    /// Missing parts with their reasons, and other notes.
    pub notes: Vec<String>,
}

/// One candidate.
#[derive(Clone, Debug, Serialize)]
pub struct CandidateProfile {
    /// Its allocator, and our pools.
    pub name: String,
    /// The CPU graph's figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuFigures>,
    /// The allocation graphs'.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocations: Option<AllocationFigures>,
}

/// perf's figures.
#[derive(Clone, Debug, Serialize)]
pub struct CpuFigures {
    /// Samples.
    pub samples: u64,
    /// Parts of the recording that perf says it lost.
    pub lost_chunks: u64,
    /// `cycles` or `cpu-clock`.
    pub event: String,
    /// Samples per second of CPU time.
    pub samples_per_s: u32,
    /// How stacks were followed, and why.
    pub unwind: String,
    /// The functions that took most themselves, with their shares.
    pub heaviest: Vec<(String, f64)>,
    /// The cost of sampling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// The sampler's figures.
#[derive(Clone, Debug, Serialize)]
pub struct AllocationFigures {
    /// Samples.
    pub samples: u64,
    /// Samples for which there was no room.
    pub dropped: u64,
    /// Samples without a stack.
    pub without_stack: u64,
    /// Mean distance of samples.
    pub sample_bytes: u64,
    /// Heap calls, estimated.
    pub calls: u64,
    /// Bytes asked for, estimated.
    pub bytes: u64,
    /// The callers that asked for most bytes themselves, with their shares.
    pub heaviest: Vec<(String, f64)>,
    /// The cost of sampling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// Functions that a terminal has room for.
const HEAVIEST: usize = 8;
/// Fewer make a picture of chance.
const SAMPLES_ENOUGH: u64 = 500;

/// The common circumstances of all candidates.
pub(super) struct Circumstances {
    pub(super) subject: String,
    pub(super) out: PathBuf,
    pub(super) seed: u64,
    pub(super) event: Option<&'static str>,
    pub(super) notes: Vec<String>,
    pub(super) started_unix_ns: u64,
    pub(super) interrupted: bool,
}

/// Works out the figures and writes every file.
pub(super) fn finish(
    config: &ProfileConfig,
    gathered: Vec<(String, &Gathered)>,
    circumstances: Circumstances,
) -> Result<ProfileOutcome, LabError> {
    let mut files = Files {
        out: circumstances.out.clone(),
        written: Vec::new(),
        title: circumstances.subject.clone(),
        started_unix_ns: circumstances.started_unix_ns,
    };
    let mut notes = circumstances.notes.clone();
    let mut sides: Vec<Side> = Vec::new();
    let needs_own_connection = gathered.len() == 1;
    for (name, gathered) in gathered {
        let directory = if needs_own_connection {
            PathBuf::new()
        } else {
            PathBuf::from(file_name(&name))
        };
        let side = Side::of(name, gathered, config, circumstances.event);
        side.note(&mut notes);
        files.write_side(&side, &directory, config)?;
        sides.push(side);
    }
    if let [before, after] = sides.as_slice() {
        files.write_differences(before, after, Path::new(""))?;
    }
    let record = ProfileRecord {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: config.command.clone(),
        subject: circumstances.subject,
        started_unix_ns: circumstances.started_unix_ns,
        seed: circumstances.seed,
        rounds: config.rounds,
        candidates: sides.into_iter().map(|side| side.figures).collect(),
        notes,
    };
    let json = serde_json::to_string_pretty(&record).map_err(|error| LabError::System {
        what: "write the record as JSON",
        error: error.into(),
    })?;
    files.write(Path::new("profile.json"), json.as_bytes())?;
    Ok(ProfileOutcome {
        record,
        files: files.written,
        interrupted: circumstances.interrupted,
    })
}

/// How long was sampled: the work's wall time, or the time given to a running process.
fn sampled_ns(under: &BTreeMap<u32, Work>, config: &ProfileConfig) -> u64 {
    if under.is_empty() {
        return u64::try_from(config.duration.as_nanos()).unwrap_or(u64::MAX);
    }
    under.values().map(|work| work.duration_ns).sum()
}

/// One candidate's graphs and figures.
pub(super) struct Side {
    pub(super) cpu: Stacks,
    pub(super) calls: Stacks,
    pub(super) bytes: Stacks,
    /// For how long the processor's time was sampled.
    pub(super) cpu_sampled_ns: u64,
    /// For how long heap calls were.
    pub(super) allocations_sampled_ns: u64,
    pub(super) figures: CandidateProfile,
}

impl Side {
    pub(super) fn of(
        name: String,
        gathered: &Gathered,
        config: &ProfileConfig,
        event: Option<&'static str>,
    ) -> Self {
        let (calls, bytes) = gathered.allocation_stacks();
        let time_is_given = config.rate_per_s.is_some();
        let cpu = (gathered.cpu_samples > 0).then(|| CpuFigures {
            samples: gathered.cpu_samples,
            lost_chunks: gathered.cpu_lost,
            event: event.unwrap_or_default().to_owned(),
            samples_per_s: config.samples_per_s,
            unwind: gathered.unwind.clone(),
            heaviest: shares(&gathered.cpu),
            cost: gathered.cost(&gathered.under_cpu, time_is_given),
        });
        let allocations = (!gathered.under_allocations.is_empty()).then(|| AllocationFigures {
            samples: gathered.allocation_samples,
            dropped: gathered.dropped,
            without_stack: gathered.bare,
            sample_bytes: config.sample_bytes,
            calls: calls.total(),
            bytes: bytes.total(),
            heaviest: shares(&bytes),
            cost: gathered.cost(&gathered.under_allocations, time_is_given),
        });
        Self {
            cpu: gathered.cpu.clone(),
            calls,
            bytes,
            cpu_sampled_ns: sampled_ns(&gathered.under_cpu, config),
            allocations_sampled_ns: sampled_ns(&gathered.under_allocations, config),
            figures: CandidateProfile {
                name,
                cpu,
                allocations,
            },
        }
    }

    /// Notes for the reader of these samples.
    fn note(&self, notes: &mut Vec<String>) {
        self.note_losses(notes);
        let name = &self.figures.name;
        let few = self.figures.allocations.as_ref();
        if let Some(found) = few.filter(|it| it.samples < SAMPLES_ENOUGH) {
            notes.push(format!(
                "{name}: {} allocation samples are few: a lower --sample-bytes (now {}) or a longer \
                 --duration gives more",
                found.samples, found.sample_bytes
            ));
        }
    }

    /// The missing parts.
    pub(super) fn note_losses(&self, notes: &mut Vec<String>) {
        let name = &self.figures.name;
        if let Some(cpu) = self.figures.cpu.as_ref().filter(|it| it.lost_chunks > 0) {
            notes.push(format!(
                "{name}: perf lost {} parts of its recording; fewer --samples-per-s lose less",
                cpu.lost_chunks
            ));
        }
        let Some(found) = &self.figures.allocations else {
            return;
        };
        if found.dropped > 0 {
            notes.push(format!(
                "{name}: {} allocation samples were dropped for lack of room: raise --sample-bytes",
                found.dropped
            ));
        }
        if found.without_stack > 0 {
            notes.push(format!(
                "{name}: no stacks of allocations, since libgcc_s.so.1 was not found in the target"
            ));
        }
    }
}

/// The heaviest functions with their shares.
fn shares(stacks: &Stacks) -> Vec<(String, f64)> {
    let total = stacks.total().max(1) as f64;
    let heaviest = stacks.heaviest(HEAVIEST).into_iter();
    heaviest
        .map(|function| (function.name, function.own as f64 / total))
        .collect()
}

// A profile in words, for a terminal.

impl Display for ProfileOutcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.record.subject)?;
        for candidate in &self.record.candidates {
            candidate.fmt(f)?;
        }
        if !self.record.notes.is_empty() {
            writeln!(f)?;
        }
        for note in &self.record.notes {
            writeln!(f, "note: {note}")?;
        }
        writeln!(f)?;
        for file in &self.files {
            writeln!(f, "{}", file.display())?;
        }
        Ok(())
    }
}

impl Display for CandidateProfile {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{}", self.name)?;
        if let Some(cpu) = &self.cpu {
            write_cpu(f, cpu)?;
        }
        if let Some(allocations) = &self.allocations {
            write_allocations(f, allocations)?;
        }
        Ok(())
    }
}

fn write_cpu(f: &mut Formatter<'_>, cpu: &CpuFigures) -> fmt::Result {
    writeln!(
        f,
        "  CPU: {} samples of {} at {} Hz; {}",
        cpu.samples, cpu.event, cpu.samples_per_s, cpu.unwind
    )?;
    write_heaviest(f, &cpu.heaviest)?;
    write_cost(f, cpu.cost.as_ref())
}

fn write_allocations(f: &mut Formatter<'_>, found: &AllocationFigures) -> fmt::Result {
    // Of independent samples.
    let error = 1.0 / (found.samples.max(1) as f64).sqrt();
    writeln!(
        f,
        "  allocations: {} in {} calls, estimated from {} samples (one in {}; the sum of bytes is good \
         to about {:.1} %)",
        format_bytes(found.bytes as f64),
        format_count(found.calls as f64),
        found.samples,
        format_bytes(found.sample_bytes as f64),
        200.0 * error,
    )?;
    write_heaviest(f, &found.heaviest)?;
    write_cost(f, found.cost.as_ref())
}

fn write_heaviest(f: &mut Formatter<'_>, heaviest: &[(String, f64)]) -> fmt::Result {
    for (name, share) in heaviest {
        writeln!(f, "    {:5.1} %  {name}", 100.0 * share)?;
    }
    Ok(())
}

fn write_cost(f: &mut Formatter<'_>, cost: Option<&Cost>) -> fmt::Result {
    let Some(cost) = cost else { return Ok(()) };
    let words = |spread: &Spread| {
        let percent = |ratio: f64| 100.0 * (ratio - 1.0);
        format!(
            "{:+.1} % ({:+.1} to {:+.1} %)",
            percent(spread.ratio),
            percent(spread.low),
            percent(spread.high)
        )
    };
    let mut parts = Vec::new();
    if let Some(cpu_time) = &cost.cpu_time {
        parts.push(format!("{} of the server's CPU time", words(cpu_time)));
    }
    if let Some(time) = &cost.time {
        parts.push(format!("{} of the time for the same work", words(time)));
    }
    writeln!(
        f,
        "    this profiler took {}, in {} pairs of runs with and without it",
        parts.join(" and "),
        cost.pairs
    )?;
    if cost.is_noisy {
        writeln!(
            f,
            "    (noisy: runs without it differ by {:.0} % among themselves)",
            100.0 * (cost.without_varies - 1.0)
        )?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "tests/summary.rs"]
mod summary_tests;
