//! The advice where nothing was proved better than the baseline: stay, undecided, not trusted.

use super::{Advisor, Topic, join, more_rounds};
use crate::record::{Advice, Recommendation};
use crate::statistics::Verdict;
use crate::units::format_percent;

impl Advisor<'_, '_> {
    /// A reason if nothing at all can be believed.
    pub(super) fn all_distrusted(&self) -> Option<&str> {
        let mut reasons = self
            .topics
            .iter()
            .flat_map(|topic| self.others.iter().map(|name| topic.distrust(name)));
        let first = reasons.next()??;
        reasons.all(|reason| reason.is_some()).then_some(first)
    }

    pub(super) fn distrusted(&self, reason: &str) -> Recommendation {
        let baseline = self.baseline();
        Recommendation {
            advice: Advice::NotTrusted,
            sentence: format!(
                "No recommendation: no answer of this comparison is to be trusted, because {reason}."
            ),
            caution: format!(
                "Do not switch on these numbers: stay with {baseline} and measure again on a quiet \
                 machine."
            ),
            ..Recommendation::default()
        }
    }

    /// Nothing was proved better.
    pub(super) fn stay(&self) -> Recommendation {
        let baseline = self.baseline();
        let of_all = |of: &dyn Fn(&Topic<'_>, &str) -> bool| {
            self.topics
                .iter()
                .flat_map(|topic| self.others.iter().map(move |name| (topic, *name)))
                .filter(|(topic, name)| of(topic, name))
                .count()
        };
        let open = of_all(&|topic, name| topic.rounds_needed(name).is_some());
        let distrusted = of_all(&|topic, name| topic.distrust(name).is_some());
        let same = of_all(&|topic, name| topic.is(name, &Verdict::Equivalent));
        let pairs = self.topics.len() * self.others.len();
        let (advice, sentence) = if open + distrusted > 0 {
            (
                Advice::Undecided,
                format!(
                    "The evidence does not tell whether anything is better than {baseline}: of {pairs} \
                     comparisons {}{}",
                    unanswered(open, distrusted),
                    self.answered()
                ),
            )
        } else if same == pairs {
            let whom = if self.others.len() == 1 {
                format!("{} is", self.others[0])
            } else {
                format!("all {} others are", self.others.len())
            };
            (
                Advice::Stay,
                format!(
                    "Stay with {baseline}: {whom} the same within {}",
                    self.margins()
                ),
            )
        } else {
            (
                Advice::Stay,
                format!(
                    "Stay with {baseline}: nothing is better than it in {}",
                    join(&self.names())
                ),
            )
        };
        Recommendation {
            advice,
            sentence: sentence + ".",
            caution: self.stay_caution(advice),
            choices: self.choices(&[]),
            differences: Vec::new(),
        }
    }

    /// What is known all the same: the questions in which everybody is equivalent.
    fn answered(&self) -> String {
        let is_same = |topic: &&Topic<'_>| {
            self.others
                .iter()
                .all(|name| topic.is(name, &Verdict::Equivalent))
        };
        let same = self.topics.iter().filter(is_same).map(|topic| {
            let margin = topic
                .verdict
                .comparisons
                .first()
                .map_or(0.0, |one| one.margin);
            format!(
                "; {} is the same within {}",
                topic.name,
                format_percent(margin)
            )
        });
        same.collect()
    }

    fn stay_caution(&self, advice: Advice) -> String {
        if advice == Advice::Undecided {
            let needed = self
                .topics
                .iter()
                .flat_map(|topic| self.others.iter().map(|name| topic.rounds_needed(name)));
            return match needed.flatten().max() {
                Some(rounds) => format!(
                    "Do not switch yet: the hardest case needs {}.",
                    more_rounds(rounds)
                ),
                None => {
                    "Do not switch on these numbers: measure again on a quiet machine.".to_owned()
                }
            };
        }
        let worse: Vec<String> = self
            .others
            .iter()
            .flat_map(|name| {
                let losses = self.losses(name);
                losses
                    .into_iter()
                    .map(|topic| format!("{name} has {}", topic.figures(name)))
                    .collect::<Vec<_>>()
            })
            .collect();
        match worse.as_slice() {
            [] => format!(
                "Do not switch: what differs by less than {} is not worth a change.",
                self.margins()
            ),
            [one, rest @ ..] if rest.len() < 3 => {
                let all: Vec<String> = std::iter::once(one).chain(rest).cloned().collect();
                format!("Do not switch: {}.", join(&all))
            }
            [one, rest @ ..] => format!(
                "Do not switch: {one}, and {} other comparisons are worse as well.",
                rest.len()
            ),
        }
    }

    fn names(&self) -> Vec<String> {
        let names = self.topics.iter().map(|topic| topic.name.to_owned());
        names.collect()
    }
}

/// `3 are undecided and 4 not to be trusted`
fn unanswered(open: usize, distrusted: usize) -> String {
    let verb = |count| if count == 1 { "is" } else { "are" };
    match (open, distrusted) {
        (open, 0) => format!("{open} {} undecided", verb(open)),
        (0, distrusted) => format!("{distrusted} {} not to be trusted", verb(distrusted)),
        _ => format!(
            "{open} {} undecided and {distrusted} not to be trusted",
            verb(open)
        ),
    }
}
