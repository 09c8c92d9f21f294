//! The server that is compared, and what is planted in it.
//!
//! `lab_proof` tries a plain server once and gets settings for two: the baseline, and the same with a fault in each
//! measure. The server is nginx in one process: it allocates equally often for each request.
//!
//! The baseline has work and stalls of its own, because faults show in measures that the server decides. A plain server
//! of two words responds faster than the generator sends: its throughput is the generator's. Its p99 is the machine's:
//! a virtual CPU that is taken away for a millisecond or more, some ten times a second, keeps more than one request of
//! a hundred waiting. A sleep of the whole server for 20 ms, like a collector's pause, keeps a fifth of them waiting
//! for up to those 20 ms, so that the p99 lies near its length and grows with it.
//!
//! The true value of each fault follows from what was planted ([`Truth`]), never from estimates of the lab.

use super::record::Comparison;
use super::{CPU, EMULATED, HEAP_CALLS, INSTRUCTIONS, MEMORY, P99, PLANTED, THROUGHPUT};
use std::fmt;

/// Additional instructions, as a share of all of a request's. It takes hardware counters to see them.
const WORK_SHARE: f64 = 0.01;
/// Without counters CPU time stands in, which is not as fine: a share of a request's CPU time.
const CPU_SHARE: f64 = 0.03;
/// The baseline's extra work compared with a plain server, as a share of the CPU time of a request: enough to make the
/// server the limit of throughput.
const OWN_WORK_SHARE: f64 = 0.5;
/// The contents of the planted loop.
const TURN_INSTRUCTIONS: f64 = 3.0;
/// How long the baseline sleeps, and after how much work of a plain server at full speed.
const STALL_US: f64 = 20_000.0;
const STALL_AFTER_S: f64 = 0.04;
/// How much longer the planted sleep is: so much more p99, as it is a little less than the sleep.
const P99_SHARE: f64 = 0.08;
/// How much more memory is kept.
const MEMORY_SHARE: f64 = 0.03;
/// The unit in which a kernel gives memory.
const PAGE_BYTES: f64 = 4096.0;

/// The settings of `preload/plant`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Settings {
    instructions: f64,
    stall_every: f64,
    stall_us: f64,
    retain_bytes: f64,
}

impl fmt::Display for Settings {
    /// As `millpond compare` takes settings of an allocator; what is zero is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [
            ("PLANT_INSTRUCTIONS", self.instructions),
            ("PLANT_STALL_EVERY", self.stall_every),
            ("PLANT_STALL_US", self.stall_us),
            ("PLANT_RETAIN_BYTES", self.retain_bytes),
        ];
        let set = all.into_iter().filter(|&(_, value)| value > 0.0);
        let words: Vec<String> = set.map(|(name, value)| format!("{name}={value}")).collect();
        f.write_str(&words.join(","))
    }
}

/// The planted fault, and where it has to show.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    pub(crate) measure: &'static str,
    /// For the table.
    pub(crate) planted: String,
    pub(crate) truth: Truth,
}

/// The result that the lab should have found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Truth {
    /// Nothing: both are the same.
    Same,
    /// So much more of the measure than the baseline has.
    Added(f64),
    /// The p99 of a server that sleeps.
    Sleep(Model),
    /// The throughput of a server that is idle only in its sleeps.
    Rate(Model),
}

/// A server with one thread that sleeps after so many requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Model {
    requests_per_sleep: f64,
    base_sleep_ns: f64,
    planted_sleep_ns: f64,
    /// CPU time of the planted work, for a request.
    added_ns: f64,
}

impl Model {
    /// The p99 where requests come at a constant rate. One that is due `t` after the begin of a sleep of length `T` waits
    /// for its end and for those before it: `T - t (1 - load)`. So `rate (T - x) / (1 - load)` requests of each sleep
    /// wait longer than x, and x is the p99 where those are a hundredth of all.
    fn p99_ns(&self, sleep_ns: f64, cpu_ns: f64, rate_per_s: f64) -> f64 {
        let gap_ns = 1e9 / rate_per_s;
        let load = cpu_ns / gap_ns;
        sleep_ns - 0.01 * self.requests_per_sleep * gap_ns * (1.0 - load)
    }

    /// The time of the requests between two sleeps, with one of them.
    fn cycle_ns(&self, sleep_ns: f64, cpu_ns: f64) -> f64 {
        self.requests_per_sleep * cpu_ns + sleep_ns
    }
}

impl Truth {
    /// The ratio that `comparison` should have found for a measure whose baseline is `baseline_value`; `None` if it
    /// lacks a measure that the true value follows from.
    pub(crate) fn of(&self, comparison: &Comparison, baseline_value: f64) -> Option<f64> {
        let cpu_ns = || Some(comparison.of(PLANTED, CPU).ok()?.baseline_value);
        Some(match self {
            Self::Same => 1.0,
            Self::Added(amount) => 1.0 + amount / baseline_value,
            Self::Sleep(model) => {
                let (cpu_ns, rate_per_s) = (cpu_ns()?, comparison.rate_per_s()?);
                let planted_ns = cpu_ns + model.added_ns;
                model.p99_ns(model.planted_sleep_ns, planted_ns, rate_per_s)
                    / model.p99_ns(model.base_sleep_ns, cpu_ns, rate_per_s)
            }
            Self::Rate(model) => {
                let cpu_ns = cpu_ns()?;
                let planted_ns = cpu_ns + model.added_ns;
                model.cycle_ns(model.base_sleep_ns, cpu_ns)
                    / model.cycle_ns(model.planted_sleep_ns, planted_ns)
            }
        })
    }
}

/// The two servers, and how they differ.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scene {
    pub(crate) baseline: Settings,
    pub(crate) planted: Settings,
    pub(crate) faults: Vec<Fault>,
}

impl Scene {
    /// After a measurement of a plain server. `ns`: CPU time of a planted instruction.
    pub(crate) fn sized(scout: &Comparison, ns: f64) -> Result<Self, String> {
        let allocations = allocations_of(scout, 1.0)?;
        let requests = scout.baseline(THROUGHPUT)? * STALL_AFTER_S;
        let own_ns = scout.baseline(CPU)? * OWN_WORK_SHARE;
        let baseline = Settings {
            instructions: turning(own_ns / ns, allocations),
            stall_every: (requests * allocations).ceil().max(1.0),
            stall_us: STALL_US,
            retain_bytes: 0.0,
        };
        let (work, instructions) = working(scout, allocations, baseline.instructions, ns)?;
        let memory = retaining(scout.baseline(MEMORY)?, MEMORY_SHARE);
        let planted = Settings {
            instructions: baseline.instructions + instructions,
            stall_us: (STALL_US * (1.0 + P99_SHARE)).round(),
            retain_bytes: memory.1,
            ..baseline
        };
        let model = Model {
            requests_per_sleep: baseline.stall_every / allocations,
            base_sleep_ns: baseline.stall_us * 1e3,
            planted_sleep_ns: planted.stall_us * 1e3,
            added_ns: instructions * allocations * ns,
        };
        let stall = Fault {
            measure: P99,
            planted: format!(
                "{} us instead of {} us in one allocation of {}",
                planted.stall_us, baseline.stall_us, baseline.stall_every
            ),
            truth: Truth::Sleep(model),
        };
        let both = Fault {
            measure: THROUGHPUT,
            planted: "the work and the stalls".to_owned(),
            truth: Truth::Rate(model),
        };
        Ok(Self {
            baseline,
            planted,
            faults: vec![work, stall, memory.0, both],
        })
    }

    /// Memory alone, so large that nothing hides it, beside a plain server.
    pub(crate) fn of_memory(scout: &Comparison, share: f64) -> Result<Self, String> {
        let memory = retaining(scout.baseline(MEMORY)?, share);
        Ok(Self {
            baseline: Settings::default(),
            planted: Settings {
                retain_bytes: memory.1,
                ..Settings::default()
            },
            faults: vec![memory.0],
        })
    }

    /// Instructions alone, of a server that allocates for each request: so many more of them, beside the object
    /// that plants next to nothing.
    pub(crate) fn of_work(scout: &Comparison) -> Result<Self, String> {
        // So many whole ones for each request. Further counts belong to the connections, and are equal in all runs of
        // an emulator.
        let allocations = allocations_of(scout, 1.0)?.round();
        let counted = [INSTRUCTIONS, EMULATED].into_iter();
        let mut counted = counted.filter_map(|one| Some((one, scout.baseline(one).ok()?)));
        let (measure, all) = counted.next().ok_or(
            "nothing counts instructions here: neither the processor nor valgrind (apt install valgrind)",
        )?;
        let turns = (all * WORK_SHARE / allocations / TURN_INSTRUCTIONS).ceil();
        let added = turns * TURN_INSTRUCTIONS;
        let baseline = Settings {
            instructions: TURN_INSTRUCTIONS,
            ..Settings::default()
        };
        let planted = Settings {
            instructions: TURN_INSTRUCTIONS + added,
            ..baseline
        };
        let fault = Fault {
            measure,
            planted: format!("{added} instructions in each of {allocations} allocations"),
            truth: Truth::Added(added * allocations),
        };
        Ok(Self {
            baseline,
            planted,
            faults: vec![fault],
        })
    }

    /// The value of `--allocators`, with the object to preload. The baseline comes first.
    pub(crate) fn allocators(&self, object: &str) -> String {
        let baseline = match self.baseline == Settings::default() {
            true => "glibc".to_owned(),
            false => format!("base={object}:{}", self.baseline),
        };
        format!("{baseline},{PLANTED}={object}:{}", self.planted)
    }
}

/// How often a request allocates, which is at least so often or nothing can be planted.
fn allocations_of(scout: &Comparison, least: f64) -> Result<f64, String> {
    let allocations = scout.baseline(HEAP_CALLS)?;
    if allocations < least {
        return Err(format!(
            "the server makes {allocations} heap calls for a request: nothing can be planted there"
        ));
    }
    Ok(allocations)
}

/// So many instructions of a request in whole turns for each of its allocations.
fn turning(instructions: f64, allocations: f64) -> f64 {
    let turns = (instructions / TURN_INSTRUCTIONS / allocations).ceil();
    TURN_INSTRUCTIONS * turns.max(1.0)
}

/// The fault in work, and its instructions in each allocation, beside those the baseline has there.
fn working(
    scout: &Comparison,
    allocations: f64,
    own: f64,
    ns: f64,
) -> Result<(Fault, f64), String> {
    let (measure, instructions, each, what) = match scout.baseline(INSTRUCTIONS) {
        Ok(all) => {
            let all = all + own * allocations;
            let instructions = turning(all * WORK_SHARE, allocations);
            (INSTRUCTIONS, instructions, 1.0, "")
        }
        Err(_) => {
            let all_ns = scout.baseline(CPU)? * (1.0 + OWN_WORK_SHARE);
            let instructions = turning(all_ns * CPU_SHARE / ns, allocations);
            (CPU, instructions, ns, "; no counters here, so CPU time")
        }
    };
    let fault = Fault {
        measure,
        planted: format!("{instructions} instructions an allocation beside {own}{what}"),
        truth: Truth::Added(instructions * allocations * each),
    };
    Ok((fault, instructions))
}

/// The fault in memory, and its bytes.
fn retaining(memory_bytes: f64, share: f64) -> (Fault, f64) {
    let added_bytes = (memory_bytes * share / PAGE_BYTES).round() * PAGE_BYTES;
    let fault = Fault {
        measure: MEMORY,
        planted: format!("{:.0} KiB more memory", added_bytes / 1024.0),
        truth: Truth::Added(added_bytes),
    };
    (fault, added_bytes)
}

#[cfg(test)]
#[path = "tests/faults.rs"]
mod tests;
