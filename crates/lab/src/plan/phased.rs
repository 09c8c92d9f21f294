//! The plan of a comparison of phases (`--phases`): what a round takes, and how many there is time for.

use std::time::Duration;

use millpond_measure::record::{PhaseKind, PhasePlan, PhaseSpec};
use millpond_measure::units::{format_duration_ns, format_rate};

use super::{Known, PHASE_MIN, Plan, REPORT_RESERVE};

/// Connecting, of each phase under load.
const PHASE_OVERHEAD: Duration = Duration::from_millis(100);
/// The most that the last responses of a phase may take.
const TAIL_MAX: Duration = Duration::from_secs(30);

/// What each run does.
#[derive(Clone, Debug, PartialEq)]
pub struct Phased {
    /// The phases.
    pub plan: PhasePlan,
    /// Connections of phases that name none.
    pub connections: usize,
    /// Whether a program of the user's makes the load.
    pub is_load_command: bool,
}

impl Plan {
    /// The number of cycles is given: only the number of rounds follows from the time budget, which has room for the round
    /// that traces heaps too.
    pub(super) fn of_phases(known: &Known, phases: &PhasePlan) -> Self {
        let left = known.left.saturating_sub(REPORT_RESERVE);
        let (warm_up_requests, warm_up) = Self::warm_up(known, left);
        let run = run(known, phases, warm_up);
        let fits = |rounds: u32| run * known.candidates.max(1) * (rounds + 1) <= left;
        Self {
            keys: known.keys(PHASE_MIN),
            rate_per_s: known
                .slowest_per_s
                .iter()
                .map(|&per_s| known.rate_per_s(per_s))
                .collect(),
            cycles: phases.cycles,
            throughput_phase: length(phases, |_| true),
            warm_up_is_cut: warm_up_requests != known.warm_up_requests,
            warm_up_requests,
            phased: Some(Phased {
                plan: phases.clone(),
                connections: known.connections,
                is_load_command: known.load_command.is_some(),
            }),
            ..Self::of_runs(known, run, fits)
        }
    }
}

/// Time of the phases of a cycle that are of such a kind.
fn length(phases: &PhasePlan, is_meant: impl Fn(PhaseKind) -> bool) -> Duration {
    let meant = phases.phases.iter().filter(|spec| is_meant(spec.kind));
    meant
        .map(|spec| Duration::from_nanos(spec.duration_ns))
        .sum()
}

/// Until every connection has its last response.
fn tail(known: &Known, spec: &PhaseSpec) -> Duration {
    let slowest = known.slowest_per_s.iter().copied().reduce(f64::min);
    let connections = match spec.kind {
        PhaseKind::Idle => return Duration::ZERO,
        _ => spec.connections.map_or(known.connections as f64, f64::from),
    };
    let seconds = connections / slowest.unwrap_or(f64::INFINITY).max(1e-3);
    Duration::try_from_secs_f64(seconds).map_or(TAIL_MAX, |tail| tail.min(TAIL_MAX))
}

/// What a round takes for each candidate: the last idle phase of a cycle passes while others are under load.
fn run(known: &Known, phases: &PhasePlan, warm_up: Duration) -> Duration {
    let count = known.candidates.max(1);
    let loaded = length(phases, |kind| kind != PhaseKind::Idle);
    let idle = length(phases, |kind| kind == PhaseKind::Idle);
    let phases_count = u32::try_from(phases.phases.len()).unwrap_or(u32::MAX);
    let tails: Duration = phases.phases.iter().map(|spec| tail(known, spec)).sum();
    // A program of the user's takes what it takes.
    let loaded = match known.load_command {
        Some(length) => {
            let all = phases.phases.iter();
            let count = all.filter(|spec| spec.kind != PhaseKind::Idle).count();
            length * u32::try_from(count).unwrap_or(u32::MAX)
        }
        None => loaded + tails,
    };
    let loaded = loaded + PHASE_OVERHEAD * phases_count;
    let cycle = match known.is_one_at_a_time {
        true => loaded + idle,
        false => (loaded * count).max(loaded + idle) / count,
    };
    // After the last cycle nobody else is under load.
    let last = match known.is_one_at_a_time {
        true => Duration::ZERO,
        false => idle / count,
    };
    known.overhead + warm_up + cycle * phases.cycles + last
}

impl Phased {
    /// What is done in each round, as sentences.
    pub(super) fn describe(&self, rate_per_s: Option<f64>) -> Vec<String> {
        let parts: Vec<String> = (0..self.plan.phases.len())
            .map(|place| self.describe_phase(place, rate_per_s))
            .collect();
        let cycles = match self.plan.cycles {
            1 => "1 cycle".to_owned(),
            cycles => format!("{cycles} cycles"),
        };
        vec![
            format!("{cycles} in each round: {}", parts.join(", ")),
            match self.is_load_command {
                true => "one candidate lives at a time; a first round, which does not count, traces their heaps",
                false => {
                    "one candidate is under load at a time, the others are idle meanwhile; a first round, which does \
                     not count, traces their heaps"
                }
            }
            .to_owned(),
        ]
    }

    fn describe_phase(&self, place: usize, rate_per_s: Option<f64>) -> String {
        let Some(spec) = self.plan.phases.get(place) else {
            return String::new();
        };
        let length = format_duration_ns(spec.duration_ns as f64);
        let label = self.plan.label(place);
        if spec.kind == PhaseKind::Idle {
            return format!("{label} {length}");
        }
        let connections = spec
            .connections
            .map_or(self.connections, |count| count as usize);
        if self.is_load_command {
            return format!("{label} as long as the load command takes");
        }
        let rate = match spec.kind {
            PhaseKind::Steady => spec.rate_per_s.or(rate_per_s),
            _ => spec.rate_per_s,
        };
        let pace = match rate {
            Some(per_s) => format!("at {}", format_rate(per_s)),
            None => "as fast as answers come".to_owned(),
        };
        let path = spec.path.as_ref();
        let path = path.map_or_else(String::new, |path| format!(" for {path}"));
        let path = match spec.kind {
            PhaseKind::Churn => path + ", while its heap is aged by blocks of 16 B to 16 KiB",
            _ => path,
        };
        format!("{label} {length} with {connections} connections {pace}{path}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phases() -> PhasePlan {
        let phase = |kind, seconds: u64| PhaseSpec {
            kind,
            duration_ns: seconds * 1_000_000_000,
            ..PhaseSpec::default()
        };
        PhasePlan {
            phases: vec![
                phase(PhaseKind::Steady, 2),
                phase(PhaseKind::Burst, 2),
                phase(PhaseKind::Idle, 6),
            ],
            cycles: 3,
        }
    }

    /// Goal: idle phases of several candidates pass at the same time, so that a round of five takes little more than the
    /// load of five; one at a time takes all of it. The round that traces heaps is in the budget.
    #[test]
    fn idle_phases_pass_together() {
        let known = Known {
            candidates: 5,
            left: Duration::from_secs(900),
            slowest_per_s: vec![10_000.0],
            warm_up_requests: vec![0],
            phases: Some(phases()),
            ..Known::example()
        };
        let plan = Plan::make(&known);
        let round = plan.run * 5;
        assert!(
            round > Duration::from_secs(66) && round < Duration::from_secs(75),
            "{round:?}"
        );
        assert!(plan.duration(5) + round <= known.left, "{plan:?}");
        assert!(plan.rounds >= plan.rounds_min && !plan.over_budget);
        assert_eq!(plan.rate_per_s, [4_000.0]);
        let alone = Plan::make(&Known {
            is_one_at_a_time: true,
            ..known.clone()
        });
        assert!(alone.run > Duration::from_secs(30), "{:?}", alone.run);
        // 64 connections, each of whose last responses takes its turn, in two phases of three cycles.
        let slow = Plan::make(&Known {
            slowest_per_s: vec![100.0],
            ..known.clone()
        });
        let longer = (slow.run - plan.run) * 5;
        assert!(longer > Duration::from_secs(15), "{longer:?}");
        let lines = plan.describe(&["request"], 5, &Known::example());
        assert!(
            lines
                .iter()
                .any(|line| line.starts_with("3 cycles in each round: steady 2.00 s with 64")),
            "{lines:?}"
        );
    }
}
