//! The smallest memory limit that a candidate survives (`--find-limit`), by bisection.
//!
//! A trial starts the candidate in a control group with a limit and gives it load: one cycle of phases if there are
//! phases, else about a second of each operation. It survives if none of its processes is killed and it keeps
//! responding. Trials are separate from scored runs. The first one has no limit: the most that its group held then is
//! the first limit, and its responses per second are the reference for the throughput at the smallest limit.

use std::sync::atomic::AtomicBool;

use millpond_measure::record::{
    FailureCause, FoundLimit, Measure, Operation, PhasePlan, Quantity, RoundStatus,
};

use crate::cgroup::CgroupRoot;
use crate::drive::Load;
use crate::error::RunError;
use crate::generation::Generation;
use crate::matrix::Candidate;
use crate::plan::{Phased, Plan};
use crate::started_candidate::{RunContext, StartedCandidate};
use crate::usage::Edge;

/// Bisection ends where the surviving limit is this many times the other.
const PRECISION: f64 = 1.02;
/// No server of any kind lives in less.
const LOWEST_BYTES: u64 = 1 << 20;
/// The group's peak without a limit may be survived only just.
const ABOVE_PEAK: f64 = 1.1;
/// If even that is not survived, something else is wrong: a limit makes the kernel take pages away, not need more.
const RAISES_MAX: u32 = 4;
/// Of the load of a trial.
const TRIAL_SECONDS: f64 = 1.0;

/// How often a candidate has to survive, of so many trials.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LimitTrials {
    /// So often.
    pub needed: u32,
    /// Of so many.
    pub of: u32,
}

impl LimitTrials {
    /// Reads `3/3`; `Err` is a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let read = |text: &str| text.parse::<u32>().ok();
        let pair = text.split_once('/');
        let pair = pair.and_then(|(needed, of)| Some((read(needed)?, read(of)?)));
        pair.filter(|&(needed, of)| needed >= 1 && needed <= of && of <= 20)
            .map(|(needed, of)| Self { needed, of })
            .ok_or_else(|| {
                "write how often it has to survive of how many times, as in 3/3 or 2/5".to_owned()
            })
    }
}

/// The result of a trial.
enum Trial {
    Survived {
        requests_per_s: f64,
        peak_bytes: Option<u64>,
    },
    Died,
}

/// Finds it for one candidate.
pub(crate) struct LimitSearch<'a> {
    pub(crate) workshop: &'a mut RunContext,
    pub(crate) candidates: &'a [Candidate],
    pub(crate) index: usize,
    pub(crate) plan: &'a Plan,
    pub(crate) trials: LimitTrials,
    pub(crate) stop: &'a AtomicBool,
}

impl LimitSearch<'_> {
    /// Bisects. The user's own limit, if there is one, is back afterwards.
    pub(crate) fn run(&mut self) -> Result<FoundLimit, RunError> {
        let given = self.workshop.options.memory_limit_bytes;
        let found = self.bisect();
        self.workshop.options.memory_limit_bytes = given;
        found
    }

    fn bisect(&mut self) -> Result<FoundLimit, RunError> {
        let Trial::Survived {
            requests_per_s: free_per_s,
            peak_bytes,
        } = self.trial(None)?
        else {
            return Err(RunError::Load(
                "it does not even live without a limit".to_owned(),
            ));
        };
        let peak_bytes = peak_bytes.ok_or_else(no_group)?;
        let mut low = LOWEST_BYTES;
        let mut high = (peak_bytes as f64 * ABOVE_PEAK) as u64;
        let mut per_s = self.survives(high)?;
        for _ in 0..RAISES_MAX {
            if per_s.is_some() {
                break;
            }
            low = high;
            high = (high as f64 * ABOVE_PEAK) as u64;
            per_s = self.survives(high)?;
        }
        let Some(mut per_s) = per_s else {
            return Err(RunError::Load(format!(
                "it does not survive {high} bytes, though it held {peak_bytes} at most without a limit"
            )));
        };
        while high as f64 > low as f64 * PRECISION {
            let middle = ((low as f64) * (high as f64)).sqrt() as u64;
            match self.survives(middle)? {
                Some(rate) => (high, per_s) = (middle, rate),
                None => low = middle,
            }
        }
        Ok(FoundLimit {
            limit_bytes: high,
            died_at_bytes: low,
            peak_bytes,
            needed: self.trials.needed,
            of: self.trials.of,
            throughput_ratio: (free_per_s > 0.0).then(|| per_s / free_per_s),
        })
    }

    /// The mean rate of the trials that it survives, if those are enough.
    fn survives(&mut self, limit_bytes: u64) -> Result<Option<f64>, RunError> {
        let (mut rates, mut died) = (Vec::new(), 0);
        let LimitTrials { needed, of } = self.trials;
        while (rates.len() as u32) < needed {
            if died > of - needed {
                return Ok(None);
            }
            match self.trial(Some(limit_bytes))? {
                Trial::Survived { requests_per_s, .. } => rates.push(requests_per_s),
                Trial::Died => died += 1,
            }
        }
        Ok(Some(rates.iter().sum::<f64>() / rates.len().max(1) as f64))
    }

    fn trial(&mut self, limit_bytes: Option<u64>) -> Result<Trial, RunError> {
        self.workshop.options.memory_limit_bytes = limit_bytes;
        match &self.plan.phased {
            Some(phased) => self.cycle(&phased.clone()),
            None => judged(self.work()),
        }
    }

    /// One cycle of phases.
    fn cycle(&mut self, phased: &Phased) -> Result<Trial, RunError> {
        let once = Phased {
            plan: PhasePlan {
                cycles: 1,
                ..phased.plan.clone()
            },
            ..phased.clone()
        };
        let mut generation = Generation {
            workshop: self.workshop,
            candidates: self.candidates,
            plan: self.plan,
            round: 0,
            stop: self.stop,
        };
        let runs = generation.run_phases(&[(0, self.index)], &once, false, &mut |_| {});
        let Some((_, run)) = runs.into_iter().next() else {
            return Err(RunError::Interrupted);
        };
        match &run.measures.status {
            RoundStatus::Interrupted => Err(RunError::Interrupted),
            RoundStatus::Failed { cause, reason } => match cause {
                Some(cause) if is_death(cause) => Ok(Trial::Died),
                _ => Err(RunError::Load(reason.clone())),
            },
            RoundStatus::Done => {
                let rates = Operation::ALL.map(|operation| {
                    let measure = Measure::of(operation, Quantity::Throughput);
                    run.measures.get(measure).unwrap_or(0.0)
                });
                let peak = run.measures.get(Measure::whole(Quantity::CgroupPeak));
                Ok(Trial::Survived {
                    requests_per_s: rates.iter().sum(),
                    peak_bytes: peak.map(|bytes| bytes as u64),
                })
            }
        }
    }

    /// A second of every operation, as fast as responses come.
    fn work(&mut self) -> Result<Trial, RunError> {
        let Some(candidate) = self.candidates.get(self.index) else {
            return Err(RunError::Load("there is no such candidate".to_owned()));
        };
        let mut session =
            StartedCandidate::start(self.workshop, candidate, "limit", None, self.stop)?;
        let mut rates = 0.0;
        for (place, &operation) in self.workshop.driver.target.operations().iter().enumerate() {
            let per_s = self.plan.rate_per_s.get(place).copied().unwrap_or(1.0);
            let requests = ((per_s * TRIAL_SECONDS) as u64).max(100);
            let load = Load::Work { requests };
            let driver = &self.workshop.driver;
            let phase = driver.run(
                &session.endpoint,
                operation,
                self.plan.keys,
                load,
                self.stop,
            );
            rates += session.account(phase)?.requests_per_s;
        }
        let peak_bytes = Edge::read(&mut session)?.usage.cgroup.memory_peak_bytes;
        session.stop()?;
        Ok(Trial::Survived {
            requests_per_s: rates,
            peak_bytes,
        })
    }
}

/// An end for lack of memory is a result.
fn judged(trial: Result<Trial, RunError>) -> Result<Trial, RunError> {
    match trial {
        Err(error) if is_death(&error.cause()) => Ok(Trial::Died),
        other => other,
    }
}

/// The results of too little memory: a kill, refused memory, or a server that only swaps pages in and out.
fn is_death(cause: &FailureCause) -> bool {
    matches!(
        cause,
        FailureCause::KilledForMemory { .. }
            | FailureCause::NoAddressSpace { .. }
            | FailureCause::Hung { .. }
            | FailureCause::NeverServed { .. }
    )
}

fn no_group() -> RunError {
    RunError::Load("no control group counts its memory".to_owned())
}

/// Why limits cannot be found here, if they cannot.
pub(crate) fn obstacle(workshop: &RunContext) -> Option<String> {
    let newer = workshop
        .cgroups
        .as_ref()
        .is_some_and(CgroupRoot::has_memory);
    let has_group = newer || workshop.memory_groups.is_some();
    (!has_group).then(|| {
        "memory cannot be limited here: no control group that counts memory can be made; root can".to_owned()
    })
}

#[cfg(test)]
#[path = "tests/limit_pass.rs"]
mod tests;
