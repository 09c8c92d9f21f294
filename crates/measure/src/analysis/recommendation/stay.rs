//! The advice where nothing was proved better than the baseline: stay, undecided, not trusted; and what was
//! proved all the same.

use super::{Advisor, Topic, join};
use crate::record::{Advice, Recommendation};
use crate::statistics::{Verdict, needs_text};

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
        let count = |of: &dyn Fn(&Topic<'_>, &str) -> bool| {
            let topics = self.topics.iter();
            let pairs = topics.flat_map(|topic| self.others.iter().map(move |name| (topic, *name)));
            pairs.filter(|(topic, name)| of(topic, name)).count()
        };
        let open = count(&is_open);
        // A tail of latency takes the most rounds. Who is no better in all else is no reason to switch meanwhile.
        let decisive = count(&|topic, name| is_open(topic, name) && topic.key != "latency");
        let same = count(&|topic, name| topic.is(name, &Verdict::Equivalent));
        let all = self.topics.len() * self.others.len();
        let sentence = if same == all {
            let whom = match self.others.as_slice() {
                [only] => format!("{only} is"),
                several => format!("all {} others are", several.len()),
            };
            format!(
                "Stay with {baseline}: {whom} the same within {}",
                self.margins()
            )
        } else {
            let lead = match (decisive, open) {
                (0, 0) => format!("Stay with {baseline}: nothing is better than it"),
                (0, _) if open < all => {
                    format!("Stay with {baseline}: nothing is proved better than it")
                }
                (_, open) if open < all => format!("Nothing is proved better than {baseline}"),
                _ => {
                    format!("The evidence does not tell whether anything is better than {baseline}")
                }
            };
            let proved: Vec<String> = self.topics.iter().map(|it| self.proved(it)).collect();
            format!("{lead}. {}", capitalised(&proved.join("; ")))
        };
        Recommendation {
            advice: match decisive {
                0 if open < all => Advice::Stay,
                _ => Advice::Undecided,
            },
            sentence: sentence + ".",
            caution: self.stay_caution(decisive > 0 || open == all) + &self.open_latency(decisive),
            choices: self.choices(&[]),
            ..Recommendation::default()
        }
    }

    /// What is open where nothing else is.
    fn open_latency(&self, decisive: usize) -> String {
        let Some(topic) = self.topic("latency").filter(|_| decisive == 0) else {
            return String::new();
        };
        let others = self.others.iter().copied();
        let open: Vec<String> = others
            .filter(|name| is_open(topic, name))
            .map(|name| match topic.rounds_needed(name) {
                Some(rounds) => format!("{name} ({}; {})", topic.ratio(name), needs_text(rounds)),
                None => format!("{name} (not to be trusted)"),
            })
            .collect();
        if open.is_empty() || self.topics.len() == 1 {
            return String::new();
        }
        format!(" Open is the {} of {}.", topic.name, join(&open))
    }

    /// `throughput: 4 the same within 5 %, 1 worse (slow 0.60x [0.59, 0.61]), 1 undecided`
    fn proved(&self, topic: &Topic<'_>) -> String {
        let of = |is: &dyn Fn(&str) -> bool| -> Vec<&str> {
            let others = self.others.iter().copied();
            others.filter(|name| is(name)).collect()
        };
        let same = of(&|name| topic.is(name, &Verdict::Equivalent));
        let worse = of(&|name| topic.is(name, &Verdict::Worse));
        let open = of(&|name| topic.rounds_needed(name).is_some());
        let distrusted = of(&|name| topic.distrust(name).is_some());
        let worse_words = match worse.as_slice() {
            [one] => format!("worse ({one} {})", topic.ratio(one)),
            _ => "worse".to_owned(),
        };
        let parts: Vec<String> = [
            (same, format!("the same within {}", topic.margin())),
            (worse, worse_words),
            (open, "undecided".to_owned()),
            (distrusted, "not to be trusted".to_owned()),
        ]
        .into_iter()
        .filter(|(names, _)| !names.is_empty())
        .map(|(names, words)| match names.as_slice() {
            all if all.len() == self.others.len() && all.len() > 1 => format!("all {words}"),
            [_] if self.others.len() == 1 => words,
            some => format!("{} {words}", some.len()),
        })
        .collect();
        format!("{}: {}", topic.name, parts.join(", "))
    }

    fn stay_caution(&self, is_open: bool) -> String {
        if is_open {
            let needed = self
                .topics
                .iter()
                .flat_map(|topic| self.others.iter().map(|name| topic.rounds_needed(name)));
            return match needed.flatten().max() {
                Some(rounds) => format!(
                    "Do not switch yet: the hardest case {}.",
                    needs_text(rounds)
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
            few if few.len() < 4 => format!("Do not switch: {}.", join(few)),
            [one, rest @ ..] => format!(
                "Do not switch: {one}, and {} other comparisons are worse as well.",
                rest.len()
            ),
        }
    }
}

/// Whether what `name` gives in a question is neither known nor to be believed.
fn is_open(topic: &Topic<'_>, name: &str) -> bool {
    topic.rounds_needed(name).is_some() || topic.distrust(name).is_some()
}

fn capitalised(text: &str) -> String {
    match text.starts_with("p99") {
        true => text.to_owned(),
        false => crate::units::capitalised(text),
    }
}
