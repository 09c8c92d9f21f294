//! The advice: which candidate for what, what it costs, and when not to switch.
//!
//! After the questions have been answered; it adds no verdict of its own, and reads those of the
//! table. The named candidates lie on the front of memory against CPU and throughput, proved better
//! in something, and its proved costs stand in the same sentence. Where the two ends of the front
//! are different candidates, both are named. Only the reader knows how many requests a megabyte is
//! worth.

mod decomposition;

use decomposition::Evidence;

use crate::phases::retained_bytes;
use crate::record::{
    Advice, Choice, CostDifference, FrontEntry, Quantity, QuestionVerdict, Recommendation, Unit,
    Verdicts,
};
use crate::statistics::{Comparison, Direction, Verdict, needs_text};
use crate::units::{format_bytes, format_percent};

use super::question::CPU;
use super::standing::{Standing, standing};
use super::{Field, question};

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

    /// Why it must not be trusted.
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
            .all_candidates()
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

    /// All candidates that are proved better in a topic.
    fn gaining(&self, topic: &Topic<'_>) -> Vec<&str> {
        let others = self.others.iter().copied();
        others
            .filter(|name| topic.is(name, &Verdict::Better))
            .collect()
    }

    /// Which candidate to take for each topic in which something was proved better: one candidate for as many as
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

    /// The proved losses, or else the proved equalities.
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

    /// The open part of a trade between the winners: a candidate that costs nothing if each of them does, and the
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

    /// When not to switch: what it costs, what is open, what was not trusted; otherwise the scope of the answer.
    fn caution(&self, winners: &[Winner<'_>]) -> String {
        let mut reasons = Vec::new();
        let mut open = Vec::new();
        for winner in winners {
            let name = winner.name;
            reasons.extend(self.losses(name).iter().map(|topic| {
                let price = absolute_price(topic, name);
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

// The front of memory against CPU per request and throughput, by what was proved.

/// The axes. Latency rules no candidate out, but one that is proved better in it is not ruled out by one that is not.
const AXES: [&str; 3] = ["throughput", "memory", "cpu"];

impl Advisor<'_, '_> {
    fn axes(&self) -> impl Iterator<Item = &Topic<'_>> {
        self.topics.iter().filter(|topic| AXES.contains(&topic.key))
    }

    /// Whether another candidate, the baseline included, is proved as good on every axis and better on one.
    fn is_dominated(&self, candidate: &str) -> bool {
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
    fn front(&self) -> Vec<FrontEntry> {
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
    fn best_without_loss(&self) -> Option<&str> {
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

// Why a candidate is better: numbers of this record; where they do not show it, the sentence says so.

/// Bytes held for a byte that lives, against the baseline's: what is above is within what two counts differ by.
const FRAGMENTATION_TELLS: f64 = 0.95;

impl Advisor<'_, '_> {
    /// The reason of the first winner, and where the cost of a request differs for each of them.
    fn reason(&self, winners: &[Winner<'_>]) -> (String, Vec<CostDifference>) {
        let of = |winner: &Winner<'_>| Evidence::new(self.field, winner.name).difference();
        let differences: Vec<CostDifference> = winners.iter().filter_map(of).collect();
        let Some(first) = winners.first() else {
            return (String::new(), differences);
        };
        let name = first.name;
        let evidence = Evidence::new(self.field, name);
        if first.topics.iter().all(|topic| topic.key == "memory") {
            let text = self.memory_reason(&evidence, name);
            return (text, differences);
        }
        let Some(difference) = differences.iter().find(|one| one.candidate == name) else {
            let text = format!("Why {name}: no measure explains it.");
            return (text, differences);
        };
        let text = match evidence.words(difference) {
            // A candidate that is faster and dearer is not faster because it is dearer.
            Some(words) if difference.change < 0.0 => format!("Why {name}: {words}."),
            Some(words) => format!("{name} is better although {words}."),
            None => format!("Why {name}: unknown, the cost of a request is undecided or the same."),
        };
        (text, differences)
    }

    /// The evidence that less memory is the allocator's doing; a figure with the opposite, or almost no, effect is no
    /// reason.
    fn memory_reason(&self, evidence: &Evidence<'_, '_>, name: &str) -> String {
        let own = self.field.others.iter().find(|one| one.name == name);
        let own = own.and_then(|one| retained_bytes(one));
        let retained = own.zip(retained_bytes(self.field.baseline));
        if let Some((own, baseline)) = retained.filter(|(own, baseline)| own < baseline) {
            return format!(
                "Why {name}: after the last cycle it keeps {} that the program has given back, not {} (traced once).",
                format_bytes(own as f64),
                format_bytes(baseline as f64)
            );
        }
        let fragmentation = evidence.comparison(Quantity::Fragmentation);
        let values = fragmentation.and_then(|one| one.candidate_value.zip(one.baseline_value));
        match values {
            Some((own, baseline)) if own < baseline * FRAGMENTATION_TELLS => format!(
                "Why {name}: each byte that lives takes {}, not {} (counted once).",
                Unit::Ratio.format(own),
                Unit::Ratio.format(baseline)
            ),
            Some(_) => format!("Why {name}: no measure explains it."),
            None => format!("Why {name}: not measured."),
        }
    }
}

/// A loss in absolute terms, if that says more than the ratio.
fn absolute_price(topic: &Topic<'_>, candidate: &str) -> String {
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

// The advice where nothing was proved better than the baseline: stay, undecided, not trusted; and what was proved
// anyway.

impl Advisor<'_, '_> {
    /// A reason if nothing at all can be trusted.
    fn all_distrusted(&self) -> Option<&str> {
        let mut reasons = self
            .topics
            .iter()
            .flat_map(|topic| self.others.iter().map(|name| topic.distrust(name)));
        let first = reasons.next()??;
        reasons.all(|reason| reason.is_some()).then_some(first)
    }

    fn distrusted(&self, reason: &str) -> Recommendation {
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
    fn stay(&self) -> Recommendation {
        let baseline = self.baseline();
        let count = |of: &dyn Fn(&Topic<'_>, &str) -> bool| {
            let topics = self.topics.iter();
            let pairs = topics.flat_map(|topic| self.others.iter().map(move |name| (topic, *name)));
            pairs.filter(|(topic, name)| of(topic, name)).count()
        };
        let open = count(&is_open);
        // A tail of latency takes the most rounds. A candidate that is no better in all else is no reason to switch meanwhile.
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
                    format!("The evidence does not show whether anything is better than {baseline}")
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

    /// The open questions where nothing else is.
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

/// Whether the value of `name` in a question is neither known nor trusted.
fn is_open(topic: &Topic<'_>, name: &str) -> bool {
    topic.rounds_needed(name).is_some() || topic.distrust(name).is_some()
}

fn capitalised(text: &str) -> String {
    match text.starts_with("p99") {
        true => text.to_owned(),
        false => crate::units::capitalised(text),
    }
}
