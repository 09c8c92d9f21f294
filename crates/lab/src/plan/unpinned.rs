//! In how many rounds memory on all CPUs is measured besides, and whether that is worth what it takes.
//!
//! Processes on all CPUs and bound ones are two samples, so a claim takes few of the former beside all rounds of the
//! latter: where there is no time for every round, there may be for so many.

use millpond_measure::statistics::{Claims, Looks, Sizes, can_claim};

use super::{Known, Plan, REPORT_RESERVE};
use std::time::Duration;

/// Memory on all CPUs is worth this share of the rounds, and none of what a round decides.
const ROUNDS_KEPT: f64 = 0.75;
/// And this share of the slices of a round, of both kinds, for memory in every round and in the fewest: intervals get
/// wider by the root of that at most.
const SLICES_KEPT: [(UnpinnedShare, f64, f64); 2] = [
    (UnpinnedShare::Every, 0.75, 1.0),
    (UnpinnedShare::Fewest, 0.6, 0.5),
];

/// The part of the rounds in which each candidate is started once more and does the work of the memory phase on all CPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum UnpinnedShare {
    None,
    /// As many as a claim takes.
    Fewest,
    Every,
}

impl UnpinnedShare {
    /// Of `rounds`, after which the data are looked at the last of `looks` times.
    pub(super) fn rounds(self, rounds: u32, looks: usize, comparisons: usize) -> u32 {
        match self {
            Self::None => 0,
            Self::Every => rounds,
            Self::Fewest => fewest_rounds(rounds, looks, comparisons),
        }
    }
}

/// The fewest of `rounds` with which a difference between bound and unbound memory can be claimed at all.
fn fewest_rounds(rounds: u32, looks: usize, comparisons: usize) -> u32 {
    let claims = Claims {
        comparisons,
        looks: Looks::planned(looks.max(1)),
        margin: 0.0,
    };
    let can = |count: &u32| can_claim(Sizes::Apart(*count as usize, rounds as usize), claims);
    (1..rounds).find(can).unwrap_or(rounds)
}

impl Plan {
    /// The plan with memory on all CPUs in as many rounds as leave enough to everything else.
    pub(super) fn with_unpinned(known: &Known) -> Self {
        let plan = Self::of_slices(known, UnpinnedShare::None);
        if !known.is_pinned {
            return plan;
        }
        SLICES_KEPT
            .into_iter()
            .map(|(share, cycles, paced)| (Self::of_slices(known, share), cycles, paced))
            .find(|(with, cycles, paced)| with.keeps_enough_of(&plan, *cycles, *paced))
            .map_or(plan, |(with, _, _)| with)
    }

    /// Whether it has enough of the rounds of `plan`, and these shares of its cycles and paced slices. Writes stay as long.
    fn keeps_enough_of(&self, plan: &Self, cycles: f64, paced: f64) -> bool {
        let is_kept = |mine: u32, of: u32, least: f64| f64::from(mine) >= least * f64::from(of);
        let is_whole = self.missed_floor == plan.missed_floor && !self.over_budget;
        is_whole
            && self.write_slice == plan.write_slice
            && is_kept(self.rounds, plan.rounds, ROUNDS_KEPT)
            && is_kept(self.cycles, plan.cycles, cycles)
            && is_kept(self.paced, plan.paced, paced)
    }

    /// Whether memory on all CPUs is measured in this round, counted from 0: spread over those that are never given up.
    pub(crate) fn is_unpinned_round(&self, round: u32) -> bool {
        let certain = self.rounds_min.clamp(1, self.rounds.max(1));
        let count = u64::from(self.unpinned_rounds);
        if count >= u64::from(certain) {
            return u64::from(round) < count;
        }
        let begun = |rounds: u32| u64::from(rounds) * count / u64::from(certain);
        round < certain && begun(round) != begun(round + 1)
    }

    /// What the time budget lacks for the fewest rounds with memory on all CPUs beside all of this plan.
    fn missing_for_unpinned(&self, known: &Known) -> Duration {
        let rounds = self.rounds.max(self.rounds_min);
        let count = fewest_rounds(rounds, self.looks.len(), known.comparisons());
        let left = known.left.saturating_sub(REPORT_RESERVE);
        let (_, warm_up) = Self::warm_up(known, left);
        let candidates = known.candidates.max(1);
        let on_all_cpus = (known.overhead + warm_up + self.work) * count * candidates;
        (self.run * candidates * rounds + on_all_cpus).saturating_sub(left)
    }

    /// What a reader has to know of it.
    pub(super) fn describe_unpinned(&self, known: &Known) -> Option<String> {
        // Phases measure it bound, whatever the budget.
        let has_no_such_work = known.load_command.is_some() || self.phased.is_some();
        if !known.is_pinned || has_no_such_work || self.unpinned_rounds >= self.rounds {
            return None;
        }
        Some(match self.unpinned_rounds {
            0 => format!(
                "memory is measured bound to the server's CPUs alone: there is no time to measure it on all CPUs too \
                 (a --time-budget that is {} s longer has)",
                self.missing_for_unpinned(known).as_secs() + 1
            ),
            count => format!(
                "memory is measured on all CPUs too in {count} of the {} rounds: there is no time for more",
                self.rounds
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory on all CPUs was measured in every round or in none, and in the default comparison it was none.
    ///
    /// Goal: where there is no time for every round, as many as a claim takes have it, spread over those that are
    /// certain; the plan stays within its time and says it.
    #[test]
    fn memory_on_all_cpus_takes_part_of_the_rounds() {
        let known = |left| Known {
            is_pinned: true,
            left: Duration::from_secs(left),
            ..Known::example()
        };
        let counts: Vec<(u32, u32)> = [200, 260, 270, 900]
            .iter()
            .map(|&left| {
                let known = known(left);
                let plan = Plan::make(&known);
                assert!(
                    !plan.over_budget && plan.duration(7) <= known.left,
                    "{plan:?}"
                );
                let chosen = (0..plan.rounds).filter(|&round| plan.is_unpinned_round(round));
                assert_eq!(chosen.count(), plan.unpinned_rounds as usize, "{plan:?}");
                let says = |part: &str| {
                    let lines = plan.describe(&["PUT", "GET"], 7, &known);
                    lines.iter().any(|line| line.contains(part))
                };
                let is_partial = plan.unpinned_rounds > 0 && plan.unpinned_rounds < plan.rounds;
                assert_eq!(says("on all CPUs too in"), is_partial, "{plan:?}");
                assert_eq!(
                    says("no time to measure it on all"),
                    plan.unpinned_rounds == 0
                );
                (plan.unpinned_rounds, plan.rounds)
            })
            .collect();
        assert!(
            counts.iter().any(|&(some, all)| some > 0 && some < all),
            "{counts:?}"
        );
        assert!(counts.iter().any(|&(some, all)| some == all), "{counts:?}");
    }

    /// "There is no time" said nothing of how much there would have to be.
    ///
    /// Goal: a budget that is as much longer as the line says has memory on all CPUs, in a plan that fitted and in one
    /// that did not.
    #[test]
    fn a_budget_that_lacks_time_says_how_much() {
        for seconds in (20..=260).step_by(20) {
            let mut known = Known {
                is_pinned: true,
                left: Duration::from_secs(seconds),
                ..Known::example()
            };
            let plan = Plan::make(&known);
            if plan.unpinned_rounds > 0 {
                continue;
            }
            let line = plan.describe_unpinned(&known).unwrap();
            let (_, rest) = line.split_once("--time-budget that is ").unwrap();
            let longer: u64 = rest.split_once(" s longer").unwrap().0.parse().unwrap();
            known.left += Duration::from_secs(longer);
            let longer_plan = Plan::make(&known);
            assert!(
                longer_plan.unpinned_rounds > 0,
                "{seconds}: {line}, {longer_plan:?}"
            );
        }
    }

    /// Goal: so few processes on all CPUs as are planned can be claimed from, and no fewer can.
    #[test]
    fn a_claim_takes_few_processes_on_all_cpus() {
        assert_eq!(fewest_rounds(8, 1, 6), 4);
        assert_eq!(fewest_rounds(10, 1, 5), 3);
        assert_eq!(fewest_rounds(3, 1, 6), 3);
    }
}
