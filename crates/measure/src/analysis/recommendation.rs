//! The advice: which candidate for what, what it costs, and when not to switch.
//!
//! On the path: after the questions have been answered; it adds no verdict of its own, and reads those of
//! the table. What is named lies on the front of memory against CPU and throughput, proved better in
//! something, and its proved costs stand in the same sentence. Where the two ends of the front are different
//! candidates, both are named. Absent on purpose: a single score. What a megabyte is worth in requests only
//! the reader knows.

mod decomposition;
mod front;
mod reason;
mod stay;

use super::Field;
use super::question::{self, CPU};
use super::standing::{Standing, standing};
use crate::record::{Advice, Choice, Quantity, QuestionVerdict, Recommendation, Verdicts};
use crate::statistics::{Comparison, Direction, Verdict, needs_text};
use crate::units::format_percent;

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

    /// Of `one` against `other`, of which the baseline has no comparison.
    fn standing(&self, one: &str, other: &str) -> Standing {
        if !self.verdict.trusted {
            return Standing::Open;
        }
        standing(
            self.comparison(one),
            self.comparison(other),
            self.direction(),
        )
    }

    fn direction(&self) -> Direction {
        let first = self.verdict.measures.first();
        first.map_or(Direction::LowerIsBetter, |measure| {
            measure.quantity.direction()
        })
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

    fn ratio(&self, candidate: &str) -> String {
        let comparison = self.comparison(candidate);
        comparison.map(Comparison::ratio_text).unwrap_or_default()
    }

    /// `throughput 1.12x [1.08, 1.15]`
    fn figures(&self, candidate: &str) -> String {
        format!("{} {}", self.name, self.ratio(candidate))
    }

    fn margin(&self) -> String {
        let first = self.verdict.comparisons.first();
        first.map_or_else(String::new, |one| format_percent(one.margin))
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
    let cpu = question::answer(field, &CPU);
    let latency = verdicts.latency.measures.first();
    let latency = match latency.is_some_and(|one| one.quantity == Quantity::ResponseP50) {
        true => "median latency",
        false => "p99 latency",
    };
    let topics = [
        ("throughput", "throughput", &verdicts.throughput),
        ("latency", latency, &verdicts.latency),
        ("memory", "memory", &verdicts.memory),
        ("cpu", "CPU per request", &cpu),
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
    Recommendation {
        front: advisor.front(),
        ..advisor.advise()
    }
}

/// A candidate that is recommended, and for what.
struct Winner<'a> {
    name: &'a str,
    topics: Vec<&'a Topic<'a>>,
}

impl Advisor<'_, '_> {
    fn baseline(&self) -> &str {
        &self.field.baseline.name
    }

    fn topic(&self, key: &str) -> Option<&Topic<'_>> {
        self.topics.iter().find(|topic| topic.key == key)
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
        let winners = self.winners();
        if !winners.is_empty() {
            return self.switch(&winners);
        }
        if let Some(reason) = self.all_distrusted() {
            return self.distrusted(reason);
        }
        self.stay()
    }

    /// The topics in which something may be gained: CPU per request only where throughput gains nothing.
    fn goals(&self) -> impl Iterator<Item = &Topic<'_>> {
        let throughput = self.topic("throughput");
        let is_faster = throughput.is_some_and(|topic| !self.gaining(topic).is_empty());
        let topics = self.topics.iter();
        topics.filter(move |topic| topic.key != "cpu" || !is_faster)
    }

    /// Everybody that is proved better in a topic.
    fn gaining(&self, topic: &Topic<'_>) -> Vec<&str> {
        let others = self.others.iter().copied();
        others
            .filter(|name| topic.is(name, &Verdict::Better))
            .collect()
    }

    /// Who to take for each topic in which something was proved better: one candidate for as many as
    /// possible; of several, the one that costs the least elsewhere, then the best estimate.
    fn winners(&self) -> Vec<Winner<'_>> {
        let contenders: Vec<(&Topic<'_>, Vec<&str>)> = self
            .goals()
            .map(|topic| {
                let best = topic.verdict.best.iter().map(String::as_str);
                let is_gain =
                    |name: &&str| topic.is(name, &Verdict::Better) && !self.is_dominated(name);
                (topic, best.filter(is_gain).collect())
            })
            .filter(|(_, best): &(_, Vec<&str>)| !best.is_empty())
            .collect();
        let merit = |name: &str| {
            let topics = contenders.iter().filter(|(_, best)| best.contains(&name));
            (topics.count(), self.topics.len() - self.losses(name).len())
        };
        let mut preferred: Option<&str> = None;
        for &name in contenders.iter().flat_map(|(_, best)| best) {
            if preferred.is_none_or(|known| merit(name) > merit(known)) {
                preferred = Some(name);
            }
        }
        let mut winners: Vec<Winner<'_>> = Vec::new();
        for (topic, best) in &contenders {
            let known = preferred.filter(|name| best.contains(name));
            let cheapest = || {
                let all = best.iter().copied().rev();
                all.min_by_key(|name| self.losses(name).len())
            };
            let Some(name) = known.or_else(cheapest) else {
                continue;
            };
            match winners.iter_mut().find(|one| one.name == name) {
                Some(winner) => winner.topics.push(topic),
                None => winners.push(Winner {
                    name,
                    topics: vec![topic],
                }),
            }
        }
        winners
    }

    fn losses(&self, candidate: &str) -> Vec<&Topic<'_>> {
        let topics = self.topics.iter();
        topics
            .filter(|topic| topic.is(candidate, &Verdict::Worse))
            .collect()
    }

    fn switch(&self, winners: &[Winner<'_>]) -> Recommendation {
        let is_costly = |winner: &Winner<'_>| !self.losses(winner.name).is_empty();
        let is_trade_off = winners.len() > 1 || winners.iter().any(is_costly);
        let mut sentences: Vec<String> = winners
            .iter()
            .map(|winner| self.clause(winner, is_trade_off))
            .collect();
        if is_trade_off {
            sentences.extend(self.other_ends(winners));
        }
        let (reason, differences) = self.reason(winners);
        Recommendation {
            advice: match is_trade_off {
                true => Advice::TradeOff,
                false => Advice::Switch,
            },
            sentence: sentences.join(" "),
            reason,
            caution: self.caution(winners),
            choices: self.choices(winners),
            differences,
            front: Vec::new(),
        }
    }

    /// `For memory: jemalloc (0.62x [0.61, 0.63] the memory of glibc), which costs 1.08x [..] CPU per request.`
    fn clause(&self, winner: &Winner<'_>, is_trade_off: bool) -> String {
        let name = winner.name;
        let topics = winner.topics.iter();
        let figures: Vec<String> = topics
            .map(|topic| format!("{} the {}", topic.ratio(name), topic.name))
            .collect();
        let figures = format!("{} of {}", join(&figures), self.baseline());
        let uses: Vec<String> = winner.topics.iter().map(|it| it.name.to_owned()).collect();
        let mut text = match is_trade_off {
            true => format!("For {}: {name} ({figures})", join(&uses)),
            false => format!("Use {name} for {} ({figures})", join(&uses)),
        };
        text += &self.price(name);
        text + "."
    }

    /// What is proved worse, or else what is proved the same.
    fn price(&self, name: &str) -> String {
        let losses: Vec<String> = self
            .losses(name)
            .iter()
            .map(|topic| match topic.direction() {
                Direction::LowerIsBetter => format!("{} {}", topic.ratio(name), topic.name),
                Direction::HigherIsBetter => format!("{} ({})", topic.name, topic.ratio(name)),
            })
            .collect();
        if !losses.is_empty() {
            return format!(", which costs {}", join(&losses));
        }
        let is_same = |topic: &&Topic<'_>| topic.is(name, &Verdict::Equivalent);
        let same: Vec<String> = self
            .topics
            .iter()
            .filter(is_same)
            .map(|topic| format!("{} (within {})", topic.name, topic.margin()))
            .collect();
        match same.as_slice() {
            [] => String::new(),
            same => format!(", with the same {}", join(same)),
        }
    }

    /// What the winners leave open of a trade: a candidate that costs nothing if each of them does, and the
    /// baseline where nothing is better than it.
    fn other_ends(&self, winners: &[Winner<'_>]) -> Vec<String> {
        let mut sentences = Vec::new();
        if winners.iter().all(|one| !self.losses(one.name).is_empty())
            && let Some(free) = self.best_without_loss()
        {
            let gains = self
                .topics
                .iter()
                .filter(|it| it.is(free, &Verdict::Better));
            let gains: Vec<String> = gains.map(|topic| topic.figures(free)).collect();
            sentences.push(format!(
                "With nothing proved worse: {free} ({}).",
                join(&gains)
            ));
        }
        let speed = self.topic("throughput").filter(|it| it.verdict.trusted);
        let speed = speed.or_else(|| self.topic("cpu"));
        for topic in speed.into_iter().chain(self.topic("memory")) {
            let stands_in = |key| {
                winners
                    .iter()
                    .any(|it| it.topics.iter().any(|it| it.key == key))
            };
            let is_won = topic.key == "throughput" && stands_in("cpu");
            if topic.verdict.trusted && self.gaining(topic).is_empty() && !is_won {
                let is_proved = |name: &&str| {
                    topic.is(name, &Verdict::Equivalent) || topic.is(name, &Verdict::Worse)
                };
                let all = self.others.iter().all(is_proved);
                let words = match (topic.key, all) {
                    ("throughput", true) => "is faster",
                    ("throughput", false) => "is proved faster",
                    (_, true) => "needs less",
                    (_, false) => "is proved to need less",
                };
                sentences.push(format!(
                    "For {}: {} itself, no candidate {words}.",
                    topic.name,
                    self.baseline()
                ));
            }
        }
        sentences
    }

    fn choices(&self, winners: &[Winner<'_>]) -> Vec<Choice> {
        let winner_of = |key: &str| {
            let mut all = winners.iter();
            all.find(|winner| winner.topics.iter().any(|topic| topic.key == key))
        };
        self.topics
            .iter()
            .filter(|topic| topic.verdict.trusted)
            .filter(|topic| topic.key != "cpu" || winner_of("cpu").is_some())
            .map(|topic| Choice {
                question: topic.key.to_owned(),
                candidate: winner_of(topic.key)
                    .map_or(self.baseline(), |winner| winner.name)
                    .to_owned(),
            })
            .collect()
    }

    /// When not to switch: what it costs, what is open, what was not to be believed; else how far the
    /// answer reaches.
    fn caution(&self, winners: &[Winner<'_>]) -> String {
        let mut reasons = Vec::new();
        let mut open = Vec::new();
        for winner in winners {
            let name = winner.name;
            reasons.extend(self.losses(name).iter().map(|topic| {
                let price = reason::absolute_price(topic, name);
                format!("where {} counts more{price}", topic.name)
            }));
            for topic in &self.topics {
                if let Some(rounds) = topic.rounds_needed(name) {
                    let figures = topic.ratio(name);
                    let more = needs_text(rounds);
                    open.push(format!(
                        "{} of {name} is undecided ({figures}; {more})",
                        topic.name
                    ));
                } else if let Some(reason) = topic.distrust(name) {
                    open.push(format!(
                        "{} of {name} is not to be trusted ({reason})",
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
        let topics = self.topics.iter();
        let margins: Vec<String> = topics
            .map(|topic| format!("{} ({})", topic.margin(), topic.name))
            .collect();
        join(&margins)
    }
}

fn join(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
