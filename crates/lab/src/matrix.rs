//! Which candidates are compared with which, and in which order.
//!
//! After `allocator`, before `preflight`. Every round contains every candidate once, in a newly
//! drawn order, to spread drift of the machine over all of them; the baseline is in twice (A/A), to
//! expose a comparison that finds a difference where there is none.
//!
//! The baseline is the C library's malloc: what a user gets without doing anything, so that each ratio reads "what if I
//! switched". The effect of pools is a question of its own, within each allocator (`record::PoolsEffect`), so it needs
//! no baseline here.

use std::ffi::OsString;

use fastrand::Rng;

use millpond_measure::record::{CandidateRounds, PoolSetting, Role};

use crate::allocator::{Allocator, NATIVE};
use crate::target::Target;
use crate::variant::Variant;

/// One combination that is measured.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Candidate {
    /// Unique: `mimalloc with pools`.
    pub name: String,
    /// The preloaded object.
    pub allocator: Allocator,
    /// Our pools; `None` for a third-party server.
    pub pools: Option<PoolSetting>,
    /// Baseline, baseline again, or one of the others.
    pub role: Role,
    /// Its changes beside the allocator; `None` for most.
    pub variant: Option<Variant>,
}

impl Candidate {
    /// True for the server as it is, without an allocator, settings or changes of ours.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.variant.is_none() && self.allocator.is_plain()
    }

    /// The server that it starts, where `target` is that of all.
    pub(crate) fn target(&self, target: &Target) -> Target {
        match &self.variant {
            Some(variant) => variant.target(target),
            None => target.clone(),
        }
    }

    /// The variables that it alone is started with, its allocator's settings last.
    pub(crate) fn variables(&self) -> Vec<(OsString, OsString)> {
        let variant = self.variant.iter().flat_map(Variant::variables).cloned();
        variant.chain(self.allocator.variables()).collect()
    }
}

/// All candidates, the baseline first, its second run next. `pools` is empty for a foreign server.
#[must_use]
pub fn candidates(allocators: &[Allocator], pools: &[PoolSetting]) -> Vec<Candidate> {
    let mut settings: Vec<Option<PoolSetting>> = pools.iter().copied().map(Some).collect();
    if settings.is_empty() {
        settings.push(None);
    }
    // On before off, whatever the order on the command line.
    settings.sort();
    settings.dedup();
    let mut list: Vec<Candidate> = Vec::new();
    for &setting in &settings {
        for allocator in allocators {
            list.push(Candidate {
                name: CandidateRounds::standard_name(&allocator.name, setting, Role::Candidate),
                allocator: allocator.clone(),
                pools: setting,
                role: Role::Candidate,
                variant: None,
            });
        }
    }
    let plain = list.iter().position(Candidate::is_plain);
    if list.is_empty() {
        return list;
    }
    let mut baseline = list.remove(plain.unwrap_or(0));
    baseline.role = Role::Baseline;
    let mut again = Candidate {
        role: Role::BaselineAgain,
        ..baseline.clone()
    };
    rename(&mut again, &baseline.allocator.name);
    list.splice(0..0, [baseline, again]);
    list
}

/// What is compared of our own server by default: every allocator with pools off, to compare the allocators, and the
/// baseline's with pools on, to compare the pools.
#[must_use]
pub fn usual_candidates(allocators: &[Allocator]) -> Vec<Candidate> {
    let mut list = candidates(allocators, &[PoolSetting::Off]);
    if let Some(baseline) = list.first().cloned() {
        let pools = Some(PoolSetting::On);
        list.push(Candidate {
            name: CandidateRounds::standard_name(&baseline.allocator.name, pools, Role::Candidate),
            pools,
            role: Role::Candidate,
            ..baseline
        });
    }
    list
}

/// Adds the server in each variant to `list`, which has the baseline first: with what it has by itself, and if
/// `is_crossed` with every other allocator of the list too.
pub fn add_variants(list: &mut Vec<Candidate>, variants: &[Variant], is_crossed: bool) {
    let Some(pools) = list.first().map(|baseline| baseline.pools) else {
        return;
    };
    let crossed: Vec<Candidate> = list
        .iter()
        .filter(|one| is_crossed && one.role != Role::BaselineAgain && !one.allocator.is_plain())
        .cloned()
        .collect();
    for variant in variants {
        let mut add = |allocator: Allocator, pools| {
            list.push(Candidate {
                name: CandidateRounds::standard_name(&allocator.name, pools, Role::Candidate),
                allocator,
                pools,
                role: Role::Candidate,
                variant: Some(variant.clone()),
            });
        };
        add(Allocator::native(&variant.name), pools);
        for one in &crossed {
            let mut allocator = one.allocator.clone();
            allocator.name = format!("{} + {}", variant.name, allocator.name);
            add(allocator, one.pools);
        }
    }
}

/// A name that two candidates have: their results could not be distinguished.
#[must_use]
pub fn name_given_twice(list: &[Candidate]) -> Option<&str> {
    let mut names = list.iter().enumerate();
    names.find_map(|(index, one)| {
        let is_again = list
            .iter()
            .take(index)
            .any(|earlier| earlier.name == one.name);
        is_again.then_some(one.name.as_str())
    })
}

/// Calls the candidates without a preloaded library by what the target brings along.
pub fn name_native(candidates: &mut [Candidate], native: &str) {
    let name = format!("{NATIVE} ({native})");
    for candidate in candidates.iter_mut().filter(|one| one.is_plain()) {
        rename(candidate, &name);
    }
}

fn rename(candidate: &mut Candidate, allocator: &str) {
    candidate.name = CandidateRounds::standard_name(allocator, candidate.pools, candidate.role);
    allocator.clone_into(&mut candidate.allocator.name);
}

/// For each round, the candidates' places in the order in which they run.
#[must_use]
pub fn schedule(candidates: usize, rounds: u32, seed: u64) -> Vec<Vec<usize>> {
    let mut random = Rng::with_seed(seed);
    (0..rounds)
        .map(|_| {
            let mut order: Vec<usize> = (0..candidates).collect();
            random.shuffle(&mut order);
            order
        })
        .collect()
}

/// Row `draw` of a Williams design for `count` candidates: over all rows each stands equally often at each
/// place and follows each other one equally often, so that neither the place nor the candidate before is any one's
/// advantage (E. J. Williams, "Experimental designs balanced for the estimation of residual effects of
/// treatments", Aust. J. Sci. Res. A 2, 1949). An even count has `count` rows, an odd one twice as many.
#[must_use]
pub(crate) fn balanced_order(count: usize, draw: usize) -> Vec<usize> {
    if count == 0 {
        return Vec::new();
    }
    // 0, 1, n-1, 2, n-2, ...: neighbours differ by every distance once.
    let first = (0..count).map(|place| match place % 2 {
        1 => place.div_ceil(2),
        _ => (count - place / 2) % count,
    });
    let shift = draw % count;
    let mut row: Vec<usize> = first.map(|index| (index + shift) % count).collect();
    let is_mirrored = count % 2 == 1 && draw / count % 2 == 1;
    if is_mirrored {
        row.reverse();
    }
    row
}

#[cfg(test)]
#[path = "tests/matrix.rs"]
mod tests;
