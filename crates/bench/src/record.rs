//! Everything a benchmark found out, as JSON has it. Fields are added, never renamed.

use crate::candidate::{Candidate, NO_ALLOCATION, POOL};
use crate::counters::Counts;
use crate::error::RunError;
use crate::program::{MemoryKind, PerConnection, Program, Retention};
use crate::run::BenchConfig;
use crate::sample::Sample;
use crate::statistics::{Ratio, Summary};
use millpond_lab::allocator::GLIBC;
use millpond_measure::environment::Environment;
use millpond_measure::noise::{FOREIGN_CPU_LIMIT, MachineNoise, STEAL_LIMIT};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The whole benchmark.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct BenchRecord {
    /// Of this format.
    pub version: u32,
    /// The command line.
    pub command: Vec<String>,
    /// The machine.
    pub environment: Environment,
    /// Random choices follow from it.
    pub seed: u64,
    /// As asked for; programs about memory take a fifth, rounded up.
    pub repetitions: u32,
    /// Why there are no hardware counts, if there are none.
    pub counters_missing: Option<String>,
    /// Other activity on the machine.
    pub noise: Option<NoiseRecord>,
    /// Whether times are to be trusted.
    pub verdict: VerdictRecord,
    /// The candidates.
    pub candidates: Vec<Candidate>,
    /// One for each program.
    pub programs: Vec<ProgramRecord>,
    /// Ended early: repetitions are missing.
    pub interrupted: bool,
}

/// Shares of the machine's CPU time while it was measured.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct NoiseRecord {
    /// Used by other programs.
    pub foreign_cpu_share: f64,
    /// Taken by the hypervisor.
    pub steal_share: f64,
}

impl From<MachineNoise> for NoiseRecord {
    fn from(noise: MachineNoise) -> Self {
        Self {
            foreign_cpu_share: noise.foreign_cpu_share,
            steal_share: noise.steal_share,
        }
    }
}

/// Whether times are to be trusted. Memory and counts are, in any case.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct VerdictRecord {
    /// `OK` or `UNTRUSTED`.
    pub status: String,
    /// Why not.
    pub reasons: Vec<String>,
}

/// One program on all candidates.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ProgramRecord {
    /// Its name.
    pub name: Program,
    /// The work of one iteration.
    pub what: String,
    /// `cpu` or `wall`.
    pub clock: String,
    /// In each run.
    pub iterations: u64,
    /// Allocations and frees together.
    pub operations_per_iteration: f64,
    /// One for each candidate, the pools first.
    pub allocators: Vec<AllocatorRecord>,
    /// Time on glibc's malloc over time on the pools.
    pub speedup: Option<f64>,
    /// The same for every allocator, with intervals.
    pub speedups: Vec<SpeedupRecord>,
    /// The remaining time without any allocation.
    pub not_allocation: Option<NotAllocation>,
}

/// One program on one candidate.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct AllocatorRecord {
    /// `pool`, `none` (no allocation), or the allocator that malloc was.
    pub allocator: String,
    /// The memory of the program.
    pub memory: MemoryKind,
    /// Time of one iteration, over the repetitions.
    pub ns_per_iteration: Summary,
    /// Time of each repetition.
    pub ns_per_iteration_runs: Vec<f64>,
    /// The median, for one allocation or free.
    pub ns_per_op: f64,
    /// User mode, median; `null` without counters.
    pub instructions_per_op: Option<f64>,
    /// User mode, median.
    pub cycles_per_op: Option<f64>,
    /// User mode, median.
    pub branch_misses_per_op: Option<f64>,
    /// User mode, median.
    pub cache_misses_per_op: Option<f64>,
    /// malloc calls for each allocation or free of the program.
    pub heap_calls_per_op: Option<f64>,
    /// Memory the program had the system add, at most; median.
    pub peak_growth_bytes: f64,
    /// The part that was still there when all was freed; median.
    pub end_growth_bytes: f64,
    /// Of `churn`: of the run that kept most.
    pub retention: Option<Retention>,
    /// Of `connections`: of the run that kept most.
    pub per_connection: Option<PerConnection>,
}

/// How many times as long an allocator takes as the pools.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct SpeedupRecord {
    /// The program whose time is over the pools'.
    pub allocator: String,
    /// By pairs of one repetition.
    #[serde(flatten)]
    pub ratio: Ratio,
}

/// The loop alone.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct NotAllocation {
    /// Median.
    pub ns_per_iteration: f64,
    /// Part of the pools' time.
    pub share_of_pool: f64,
    /// Part of the time on glibc's malloc.
    pub share_of_glibc: Option<f64>,
    /// glibc over pools when the loop is taken off both.
    pub speedup_of_allocation: Option<f64>,
}

impl BenchRecord {
    /// Adds the verdict.
    pub(crate) fn new(
        config: &BenchConfig,
        candidates: Vec<Candidate>,
        environment: Environment,
        counters_missing: Option<String>,
        noise: Option<MachineNoise>,
        programs: Vec<ProgramRecord>,
        interrupted: bool,
    ) -> Self {
        Self {
            version: 1,
            command: config.command.clone(),
            environment,
            seed: config.seed,
            repetitions: config.repetitions,
            counters_missing,
            noise: noise.map(NoiseRecord::from),
            verdict: VerdictRecord::of(noise),
            candidates,
            programs,
            interrupted,
        }
    }

    /// As `--json` writes it.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }
}

impl VerdictRecord {
    pub(crate) fn of(noise: Option<MachineNoise>) -> Self {
        let noise = noise.unwrap_or_default();
        let shares = [
            (
                noise.foreign_cpu_share,
                FOREIGN_CPU_LIMIT,
                "other programs used",
            ),
            (noise.steal_share, STEAL_LIMIT, "the hypervisor took"),
        ];
        let too_much = shares.iter().filter(|(share, limit, _)| share > limit);
        let reasons: Vec<String> = too_much
            .map(|(share, limit, who)| {
                format!(
                    "{who} {:.0} % of the machine (limit {:.0} %)",
                    share * 100.0,
                    limit * 100.0
                )
            })
            .collect();
        let status = if reasons.is_empty() {
            "OK"
        } else {
            "UNTRUSTED"
        };
        Self {
            status: status.to_owned(),
            reasons,
        }
    }

    /// Whether times are to be trusted.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        self.reasons.is_empty()
    }
}

impl ProgramRecord {
    /// The figures of one allocator.
    #[must_use]
    pub fn of(&self, allocator: &str) -> Option<&AllocatorRecord> {
        self.allocators.iter().find(|it| it.allocator == allocator)
    }
}

/// One program's runs while they are made: for each repetition, one place for each candidate.
pub(crate) struct ProgramRuns {
    pub(crate) program: Program,
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) heap_calls: BTreeMap<MemoryKind, Option<f64>>,
    failed: Vec<bool>,
    repetitions: Vec<Vec<Option<Sample>>>,
    checksum: Option<u64>,
}

impl ProgramRuns {
    pub(crate) fn new(program: Program, candidates: Vec<Candidate>) -> Self {
        Self {
            program,
            failed: vec![false; candidates.len()],
            candidates,
            heap_calls: BTreeMap::new(),
            repetitions: Vec::new(),
            checksum: None,
        }
    }

    pub(crate) fn begin_repetition(&mut self) -> usize {
        self.repetitions.push(vec![None; self.candidates.len()]);
        self.repetitions.len() - 1
    }

    pub(crate) fn fail(&mut self, index: usize) {
        self.failed[index] = true;
    }

    pub(crate) fn has_failed(&self, index: usize) -> bool {
        self.failed[index]
    }

    /// A candidate has to give the right response before its time counts.
    pub(crate) fn add(
        &mut self,
        repetition: usize,
        index: usize,
        sample: Sample,
    ) -> Result<(), RunError> {
        let expected = *self.checksum.get_or_insert(sample.checksum);
        if sample.checksum != expected {
            return Err(RunError::WrongAnswer {
                found: sample.checksum,
                expected,
            });
        }
        self.repetitions[repetition][index] = Some(sample);
        Ok(())
    }

    /// `None` if nothing was measured.
    pub(crate) fn record(&self, iterations: u64) -> Option<ProgramRecord> {
        let samples = self.repetitions.iter().flatten().flatten();
        let operations = samples.clone().next()?.operations;
        let allocators: Vec<AllocatorRecord> = (0..self.candidates.len())
            .filter_map(|index| self.allocator(index))
            .collect();
        let speedups = self.speedups();
        let speedup = speedups.iter().find(|it| it.allocator == GLIBC);
        Some(ProgramRecord {
            name: self.program,
            what: self.program.what().to_owned(),
            clock: if self.program.is_threaded() {
                "wall".to_owned()
            } else {
                "cpu".to_owned()
            },
            iterations,
            operations_per_iteration: operations as f64 / iterations as f64,
            speedup: speedup.map(|it| it.ratio.ratio),
            not_allocation: not_allocation(&allocators),
            allocators,
            speedups,
        })
    }

    fn samples(&self, index: usize) -> impl Iterator<Item = &Sample> {
        self.repetitions
            .iter()
            .filter_map(move |repetition| repetition[index].as_ref())
    }

    fn allocator(&self, index: usize) -> Option<AllocatorRecord> {
        let candidate = &self.candidates[index];
        let middle = |figure: &dyn Fn(&Sample) -> Option<f64>| {
            let values: Option<Vec<f64>> = self.samples(index).map(figure).collect();
            Summary::of(&values?).map(|summary| summary.median)
        };
        let counted = |count: fn(&Counts) -> u64| {
            middle(&|sample| {
                let counts = sample.counts.as_ref()?;
                Some(count(counts) as f64 / sample.operations as f64)
            })
        };
        let grown = |bytes: fn(&Sample) -> u64| {
            middle(&|sample| Some(bytes(sample).saturating_sub(sample.start_rss_bytes) as f64))
        };
        let runs: Vec<f64> = self.samples(index).map(Sample::ns_per_iteration).collect();
        let retentions = self.samples(index).filter_map(|sample| sample.retention);
        let connections = self.samples(index).filter_map(|it| it.per_connection);
        Some(AllocatorRecord {
            allocator: candidate.name.clone(),
            memory: candidate.memory,
            ns_per_iteration: Summary::of(&runs)?,
            ns_per_iteration_runs: runs,
            ns_per_op: middle(&|sample| Some(sample.time_ns() as f64 / sample.operations as f64))?,
            instructions_per_op: counted(|counts| counts.instructions),
            cycles_per_op: counted(|counts| counts.cycles),
            branch_misses_per_op: counted(|counts| counts.branch_misses),
            cache_misses_per_op: counted(|counts| counts.cache_misses),
            heap_calls_per_op: self.heap_calls.get(&candidate.memory).copied().flatten(),
            peak_growth_bytes: grown(|sample| sample.peak_rss_bytes)?,
            end_growth_bytes: grown(|sample| sample.end_rss_bytes)?,
            retention: retentions.max_by_key(|retention| retention.rss_idle_bytes),
            per_connection: connections
                .max_by(|one, other| one.idle_bytes.total_cmp(&other.idle_bytes)),
        })
    }

    fn speedups(&self) -> Vec<SpeedupRecord> {
        let Some(pool) = self.candidates.iter().position(|it| it.name == POOL) else {
            return Vec::new();
        };
        let speedup_of = |(index, candidate): (usize, &Candidate)| {
            let pairs: Vec<(f64, f64)> = self
                .repetitions
                .iter()
                .filter_map(|repetition| {
                    let (theirs, ours) = (repetition[index].as_ref()?, repetition[pool].as_ref()?);
                    Some((theirs.ns_per_iteration(), ours.ns_per_iteration()))
                })
                .collect();
            Some(SpeedupRecord {
                allocator: candidate.name.clone(),
                ratio: Ratio::of(&pairs)?,
            })
        };
        self.candidates
            .iter()
            .enumerate()
            .filter(|(_, candidate)| candidate.memory == MemoryKind::Malloc)
            .filter_map(speedup_of)
            .collect()
    }
}

fn not_allocation(allocators: &[AllocatorRecord]) -> Option<NotAllocation> {
    let time_of = |name: &str| {
        let found = allocators.iter().find(|it| it.allocator == name)?;
        Some(found.ns_per_iteration.median)
    };
    let (rest_ns, pool_ns) = (time_of(NO_ALLOCATION)?, time_of(POOL)?);
    let glibc_ns = time_of(GLIBC);
    Some(NotAllocation {
        ns_per_iteration: rest_ns,
        share_of_pool: rest_ns / pool_ns,
        share_of_glibc: glibc_ns.map(|glibc_ns| rest_ns / glibc_ns),
        // Below zero there is only noise.
        speedup_of_allocation: glibc_ns
            .filter(|&glibc_ns| glibc_ns > rest_ns && pool_ns > rest_ns)
            .map(|glibc_ns| (glibc_ns - rest_ns) / (pool_ns - rest_ns)),
    })
}
