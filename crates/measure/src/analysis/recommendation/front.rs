//! The front of memory against CPU per request and throughput, by what was proved.

use super::{Advisor, Topic};
use crate::analysis::standing::Standing;
use crate::record::FrontEntry;
use crate::statistics::Verdict;

/// The axes. Latency rules nobody out, but who is proved better in it is not ruled out by who is not.
const AXES: [&str; 3] = ["throughput", "memory", "cpu"];

impl Advisor<'_, '_> {
    fn axes(&self) -> impl Iterator<Item = &Topic<'_>> {
        self.topics.iter().filter(|topic| AXES.contains(&topic.key))
    }

    /// Whether somebody, the baseline included, is proved as good on every axis and better on one.
    pub(super) fn is_dominated(&self, candidate: &str) -> bool {
        let others = self.others.iter().copied().chain([self.baseline()]);
        others
            .filter(|other| *other != candidate)
            .any(|other| self.dominates(other, candidate))
    }

    fn dominates(&self, one: &str, other: &str) -> bool {
        let all: Vec<Standing> = self
            .axes()
            .map(|topic| topic.standing(one, other))
            .collect();
        let is_no_worse = |it: &Standing| matches!(it, Standing::Better | Standing::Equivalent);
        let latency = self
            .topic("latency")
            .map(|topic| topic.standing(one, other));
        if latency == Some(Standing::Worse) {
            return false;
        }
        all.iter().all(is_no_worse) && all.contains(&Standing::Better)
    }

    /// Of those that gain nothing, only the baseline is of interest.
    pub(super) fn front(&self) -> Vec<FrontEntry> {
        let gains = |name: &&str| {
            let mut topics = self.topics.iter();
            topics.any(|topic| topic.is(name, &Verdict::Better))
        };
        let others = self.others.iter().copied().filter(gains);
        std::iter::once(self.baseline())
            .chain(others)
            .filter(|name| !self.is_dominated(name))
            .map(|name| FrontEntry {
                candidate: name.to_owned(),
                comparisons: self
                    .topics
                    .iter()
                    .filter_map(|it| Some((it.key.to_owned(), it.comparison(name)?.clone())))
                    .collect(),
            })
            .collect()
    }

    /// The candidate with the most gains of those that are proved worse in nothing, and on the front.
    pub(super) fn best_without_loss(&self) -> Option<&str> {
        let gains = |name: &str| {
            let topics = self.topics.iter();
            topics.filter(|it| it.is(name, &Verdict::Better)).count()
        };
        let is_free = |name: &&str| {
            gains(name) > 0 && self.losses(name).is_empty() && !self.is_dominated(name)
        };
        let free = self.others.iter().copied().filter(is_free);
        // The first one of the most: order of candidates.
        free.rev().max_by_key(|name| gains(name))
    }
}
