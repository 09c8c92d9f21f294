//! The advice in two sentences: what to use for what and why, and when not to switch.
//!
//! On the path: after the three questions have been answered; it adds no verdict of its own. A
//! candidate is recommended for a question only if it was proved better than the baseline there, and
//! what it costs elsewhere is said in the same breath. Reasons are numbers of this record; where
//! those do not tell, the sentence says so.
//! Absent on purpose: a single score. What a megabyte is worth in requests only the reader knows.

mod decomposition;
mod stay;

use super::Field;
use crate::record::{Advice, Choice, Quantity, QuestionVerdict, Recommendation, Unit, Verdicts};
use crate::statistics::{Comparison, Verdict};
use crate::units::format_percent;
use decomposition::Evidence;

/// Beyond this many more rounds, advice to run them is no help.
const ROUNDS_WORTH_ADVISING: u32 = 500;

/// A question with its name in sentences.
struct Topic<'a> {
    key: &'static str,
    name: &'static str,
    verdict: &'a QuestionVerdict,
}

impl Topic<'_> {
    fn comparison(&self, candidate: &str) -> Option<&Comparison> {
        let all = &self.verdict.comparisons;
        all.iter().find(|one| one.candidate == candidate)
    }

    fn is(&self, candidate: &str, verdict: &Verdict) -> bool {
        self.verdict.trusted
            && self
                .comparison(candidate)
                .is_some_and(|one| one.verdict == *verdict)
    }

    fn rounds_needed(&self, candidate: &str) -> Option<u32> {
        match self.comparison(candidate)?.verdict {
            Verdict::Undecided { rounds_needed } if self.verdict.trusted => Some(rounds_needed),
            _ => None,
        }
    }

    /// Why it must not be believed.
    fn distrust(&self, candidate: &str) -> Option<&str> {
        match &self.comparison(candidate)?.verdict {
            Verdict::NotTrusted { reason } => Some(reason),
            _ if !self.verdict.trusted => Some("the baseline run twice differs from itself"),
            _ => None,
        }
    }

    /// `throughput 1.12x [1.08, 1.15]`
    fn figures(&self, candidate: &str) -> String {
        let figures = self.comparison(candidate).map(Comparison::ratio_text);
        format!("{} {}", self.name, figures.unwrap_or_default())
    }
}

/// Everything that the advice is made from.
struct Advisor<'a, 'b> {
    field: &'a Field<'b>,
    topics: Vec<Topic<'a>>,
    /// All but the baseline and its double.
    others: Vec<&'b str>,
}

/// The advice.
pub(super) fn recommend(field: &Field<'_>, verdicts: &Verdicts) -> Recommendation {
    let latency = if verdicts
        .latency
        .measures
        .first()
        .is_some_and(|measure| measure.quantity == Quantity::ResponseP50)
    {
        "median latency"
    } else {
        "p99 latency"
    };
    let topics = [
        ("throughput", "throughput", &verdicts.throughput),
        ("latency", latency, &verdicts.latency),
        ("memory", "memory", &verdicts.memory),
    ];
    let advisor = Advisor {
        field,
        topics: topics
            .into_iter()
            .filter(|(_, _, verdict)| !verdict.measures.is_empty())
            .map(|(key, name, verdict)| Topic { key, name, verdict })
            .collect(),
        others: field
            .entrants()
            .filter(|one| !std::ptr::eq(*one, field.baseline))
            .map(|one| one.name.as_str())
            .collect(),
    };
    advisor.advise()
}

impl Advisor<'_, '_> {
    fn baseline(&self) -> &str {
        &self.field.baseline.name
    }

    fn advise(&self) -> Recommendation {
        if self.others.is_empty() || self.topics.is_empty() {
            return Recommendation {
                sentence: format!(
                    "No recommendation: nothing was compared with {}.",
                    self.baseline()
                ),
                caution: "Two candidates at least, and one question that was measured, are needed."
                    .to_owned(),
                ..Recommendation::default()
            };
        }
        let gains = self.gains();
        if !gains.is_empty() {
            return self.switch(&gains);
        }
        if let Some(reason) = self.all_distrusted() {
            return self.distrusted(reason);
        }
        self.stay()
    }

    /// For each question in which something was proved better: its number and who to take.
    fn gains(&self) -> Vec<(usize, &str)> {
        let is_better = |topic: &Topic<'_>, name: &str| topic.is(name, &Verdict::Better);
        let leaders: Vec<(usize, Vec<&str>)> = self
            .topics
            .iter()
            .enumerate()
            .map(|(index, topic)| {
                let best = topic.verdict.best.iter().map(String::as_str);
                (index, best.filter(|name| is_better(topic, name)).collect())
            })
            .filter(|(_, best): &(usize, Vec<&str>)| !best.is_empty())
            .collect();
        // One candidate for as many questions as possible; of several, the one that costs the least
        // elsewhere, then the one with the best estimate in the first question.
        let merit = |name: &str| {
            let questions = leaders.iter().filter(|(_, best)| best.contains(&name));
            let losses = self.losses(name).len();
            (questions.count(), self.topics.len() - losses)
        };
        let mut preferred: Option<&str> = None;
        for &name in leaders.iter().flat_map(|(_, best)| best) {
            if preferred.is_none_or(|known| merit(name) > merit(known)) {
                preferred = Some(name);
            }
        }
        leaders
            .iter()
            .filter_map(|(index, best)| {
                let known = preferred.filter(|name| best.contains(name));
                Some((*index, known.or(best.first().copied())?))
            })
            .collect()
    }

    fn losses(&self, candidate: &str) -> Vec<&Topic<'_>> {
        self.topics
            .iter()
            .filter(|topic| topic.is(candidate, &Verdict::Worse))
            .collect()
    }

    fn switch(&self, gains: &[(usize, &str)]) -> Recommendation {
        let mut winners: Vec<&str> = Vec::new();
        for (_, name) in gains {
            if !winners.contains(name) {
                winners.push(name);
            }
        }
        let costly = winners.iter().any(|name| !self.losses(name).is_empty());
        let uses: Vec<String> = winners
            .iter()
            .map(|winner| self.use_words(winner, gains))
            .collect();
        let mut sentence = format!("Use {}", uses.join("; "));
        let mut differences = Vec::new();
        for winner in &winners {
            let evidence = Evidence::new(self.field, winner);
            let Some(difference) = evidence.difference() else {
                continue;
            };
            if winners.first() == Some(winner) {
                let words = evidence.words(&difference);
                // Who is faster and dearer is not faster because it is dearer.
                let link = match difference.change < 0.0 {
                    true => "because",
                    false => "although",
                };
                let words = words.map(|words| format!("{link} {words}"));
                sentence += &self.why(&evidence, &words, gains);
            }
            differences.push(difference);
        }
        if differences.is_empty() {
            sentence += "; why, nothing that was counted tells";
        }
        Recommendation {
            advice: if costly || winners.len() > 1 {
                Advice::TradeOff
            } else {
                Advice::Switch
            },
            sentence: sentence + ".",
            caution: self.caution(&winners),
            choices: self.choices(gains),
            differences,
        }
    }

    /// `mimalloc for throughput (1.12x [..]) and p99 latency (..), at the price of memory 1.12x [..]`
    fn use_words(&self, winner: &str, gains: &[(usize, &str)]) -> String {
        let won: Vec<String> = gains
            .iter()
            .filter(|(_, name)| *name == winner)
            .filter_map(|(index, _)| self.topics.get(*index))
            .map(|topic| topic.figures(winner))
            .collect();
        let lost: Vec<String> = self
            .losses(winner)
            .iter()
            .map(|topic| topic.figures(winner))
            .collect();
        let mut words = format!("{winner} for {}", join(&won));
        if !lost.is_empty() {
            words += &format!(", at the price of {}", join(&lost));
        }
        words
    }

    /// The reason, or that there is none; memory has reasons of its own.
    fn why(
        &self,
        evidence: &Evidence<'_, '_>,
        words: &Option<String>,
        gains: &[(usize, &str)],
    ) -> String {
        let wins_time = gains.iter().any(|(index, _)| {
            self.topics
                .get(*index)
                .is_some_and(|topic| topic.key != "memory")
        });
        if wins_time {
            return match words {
                Some(words) => format!(", {words}"),
                None => {
                    "; why, the rounds do not tell: the cost of a request is not decided, or the \
                         same"
                        .to_owned()
                }
            };
        }
        match evidence
            .comparison(Quantity::Fragmentation)
            .and_then(|one| one.candidate_value.zip(one.baseline_value))
        {
            Some((own, baseline)) => format!(
                ", where each byte that lives takes {}, not {} (counted once)",
                Unit::Ratio.format(own),
                Unit::Ratio.format(baseline)
            ),
            None => "; why, was not counted".to_owned(),
        }
    }

    fn choices(&self, gains: &[(usize, &str)]) -> Vec<Choice> {
        self.topics
            .iter()
            .enumerate()
            .filter(|(_, topic)| topic.verdict.trusted)
            .map(|(index, topic)| {
                let gain = gains.iter().find(|(other, _)| *other == index);
                Choice {
                    question: topic.key.to_owned(),
                    candidate: gain.map_or(self.baseline(), |(_, name)| name).to_owned(),
                }
            })
            .collect()
    }

    /// When not to switch: what it costs, what is open, what was not to be believed; else how far the
    /// answer reaches.
    fn caution(&self, winners: &[&str]) -> String {
        let mut reasons = Vec::new();
        for winner in winners {
            for topic in self.losses(winner) {
                reasons.push(format!(
                    "where {} counts more{}",
                    topic.name,
                    price(topic, winner)
                ));
            }
        }
        let mut open = Vec::new();
        for topic in &self.topics {
            for winner in winners {
                if let Some(rounds) = topic.rounds_needed(winner) {
                    open.push(format!(
                        "{} of {winner} is undecided ({})",
                        topic.name,
                        more_rounds(rounds)
                    ));
                } else if let Some(reason) = topic.distrust(winner) {
                    open.push(format!(
                        "{} of {winner} is not to be trusted ({reason})",
                        topic.name
                    ));
                }
            }
        }
        let mut text = if reasons.is_empty() {
            format!(
                "Do not switch for another load or machine than this one without measuring it, nor \
                 where a gain within {} would not pay for the change",
                self.margins()
            )
        } else {
            format!("Stay with {} {}", self.baseline(), reasons.join(", and "))
        };
        if !open.is_empty() {
            text += &format!("; {}", open.join("; "));
        }
        text + "."
    }

    /// `2 % (throughput), 10 % (p99 latency)`
    fn margins(&self) -> String {
        let margins: Vec<String> = self
            .topics
            .iter()
            .filter_map(|topic| {
                let margin = topic.verdict.comparisons.first()?.margin;
                Some(format!("{} ({})", format_percent(margin), topic.name))
            })
            .collect();
        join(&margins)
    }
}

/// What a loss is in absolute terms, if that says more than the ratio.
fn price(topic: &Topic<'_>, candidate: &str) -> String {
    let Some((comparison, measure)) = topic
        .comparison(candidate)
        .zip(topic.verdict.measures.first())
    else {
        return String::new();
    };
    match comparison.candidate_value.zip(comparison.baseline_value) {
        Some((own, baseline)) => {
            let unit = measure.quantity.unit();
            format!(
                " ({} with {candidate}, not {})",
                unit.format(own),
                unit.format(baseline)
            )
        }
        None => String::new(),
    }
}

fn more_rounds(rounds: u32) -> String {
    match rounds {
        1 => "about 1 more round".to_owned(),
        rounds if rounds > ROUNDS_WORTH_ADVISING => {
            "more rounds than are sensible here; a quieter machine may do".to_owned()
        }
        rounds => format!("about {rounds} more rounds"),
    }
}

fn join(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
