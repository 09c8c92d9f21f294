//! The three questions: most throughput, lowest latency, least memory.
//!
//! Each is answered from the table's one set of comparisons, every candidate against the baseline; nothing is compared
//! a second time. A candidate that is proved better leads, by the best estimate; else the baseline does. "Best" is a
//! set: the leader, and all candidates that its interval does not distinguish from it. The answer says what was proved
//! of the others, too: the same, worse, or undecided.

use super::standing;
use super::standing::{Standing, standing};
use super::{Field, trust};
use crate::record::{Measure, Operation, Quantity, QuestionVerdict, Verdicts};
use crate::statistics::{Comparison, Direction, Verdict, needs_text, smallest_rounds};
use crate::units::format_percent;

/// A question and the quantities that answer it, the best evidence first.
pub(super) struct Question {
    /// As the sentence begins.
    title: &'static str,
    /// The achievement of the best one.
    achievement: &'static str,
    /// The first one measured is used.
    pub(super) quantities: &'static [Quantity],
    /// Evidence without noise, for when the answer is not to be trusted.
    substitutes: &'static [Quantity],
    /// Why none of the quantities may be there.
    absence: &'static str,
}

pub(super) const THROUGHPUT: Question = Question {
    title: "Throughput",
    achievement: "gives the most",
    quantities: &[
        Quantity::Throughput,
        // Of phases whose bursts are at a rate.
        Quantity::CpuTime,
    ],
    substitutes: &[
        Quantity::Cycles,
        Quantity::Instructions,
        Quantity::EmulatedInstructions,
        Quantity::CpuTime,
    ],
    absence: "",
};
pub(super) const LATENCY: Question = Question {
    title: "Latency",
    achievement: "gives the lowest p99",
    quantities: &[Quantity::ResponseP99, Quantity::ResponseP50],
    substitutes: &[],
    absence: " (a run had too few requests for a median, or its load told of none)",
};
pub(super) const MEMORY: Question = Question {
    title: "Memory",
    achievement: "needs the least",
    quantities: &[
        // Of phases.
        Quantity::FloorAfterBurst,
        Quantity::MemoryAfterWork,
        // Of older records without the other measure, and of servers that may not be examined.
        Quantity::RssAfterWork,
        Quantity::PeakRss,
    ],
    substitutes: &[],
    absence: "",
};

pub(super) const CPU: Question = Question {
    title: "CPU per request",
    achievement: "needs the least",
    quantities: &[Quantity::CpuTime],
    substitutes: &[],
    absence: "",
};

pub(super) fn answer_all(field: &Field<'_>) -> Verdicts {
    Verdicts {
        throughput: answer(field, &THROUGHPUT),
        latency: answer(field, &LATENCY),
        memory: answer(field, &MEMORY),
    }
}

/// The measures of the first quantity that the baseline has: one per operation, or one in all.
pub(super) fn measures_of(field: &Field<'_>, quantities: &[Quantity]) -> Vec<Measure> {
    let has = |measure: &Measure| field.baseline.median(*measure).is_some();
    quantities
        .iter()
        .map(|&quantity| {
            let per_operation = Operation::ALL.map(|operation| Measure::of(operation, quantity));
            [Measure::whole(quantity)]
                .into_iter()
                .chain(per_operation)
                .filter(has)
                .collect()
        })
        .find(|measures: &Vec<Measure>| !measures.is_empty())
        .unwrap_or_default()
}

pub(super) fn answer(field: &Field<'_>, question: &Question) -> QuestionVerdict {
    let title = question.title;
    let measures = measures_of(field, question.quantities);
    if measures.is_empty() {
        return QuestionVerdict {
            sentence: format!("{title}: not measured{}.", question.absence),
            ..QuestionVerdict::default()
        };
    }
    let comparisons = field.compare(&measures);
    let achievement = match measures[0].quantity {
        Quantity::ResponseP50 => "gives the lowest median (too few requests for a p99)",
        Quantity::CpuTime => CPU.achievement,
        _ => question.achievement,
    };
    // RSS answers another question, so it is named.
    let title = match measures[0].quantity {
        Quantity::FloorAfterBurst => "Memory after the burst",
        Quantity::CpuTime => CPU.title,
        Quantity::RssAfterWork => "Memory (RSS)",
        Quantity::PeakRss => "Memory (peak RSS)",
        _ => title,
    };
    if let Some(reason) = distrust(field, &comparisons) {
        let substitute = substitute_sentence(field, question.substitutes);
        return QuestionVerdict {
            headline: "No answer".to_owned(),
            sentence: format!("{title}: not to be trusted: {reason}.{substitute}"),
            measures,
            comparisons,
            ..QuestionVerdict::default()
        };
    }
    let answer = Answer::new(field, measures[0].quantity.direction(), &comparisons);
    QuestionVerdict {
        headline: answer.headline(),
        sentence: format!("{title}: {}.", answer.sentence(achievement)),
        best: answer.best.iter().map(|&name| name.to_owned()).collect(),
        measures,
        trusted: true,
        resolution: standing::resolution_sentence(field, &comparisons),
        comparisons,
    }
}

/// The reason if the baseline differs from itself, or if no comparison is to be trusted.
fn distrust(field: &Field<'_>, comparisons: &[Comparison]) -> Option<String> {
    if let Some(reason) = trust::self_difference_reason(field, comparisons) {
        return Some(reason);
    }
    let mut reasons = comparisons
        .iter()
        .filter(|one| !field.is_baseline_again(&one.candidate))
        .map(|one| match &one.verdict {
            Verdict::NotTrusted { reason } => Some(reason),
            _ => None,
        });
    let first = reasons.next()??;
    reasons
        .all(|reason| reason.is_some())
        .then(|| first.clone())
}

/// The sentence on work per request, when time is not to be trusted.
fn substitute_sentence(field: &Field<'_>, quantities: &[Quantity]) -> String {
    for &quantity in quantities {
        let measures = measures_of(field, &[quantity]);
        if measures.is_empty() {
            continue;
        }
        let comparisons = field.compare(&measures);
        if distrust(field, &comparisons).is_some() {
            continue;
        }
        let answer = Answer::new(field, quantity.direction(), &comparisons);
        let what = format!(
            "needs the least {}",
            quantity.label().replace("/req", " per request")
        );
        return format!(" Work per request instead: {}.", answer.sentence(&what));
    }
    String::new()
}

/// More names than this make a list too long to read.
const NAMES_MAX: usize = 3;

/// The result of a question's comparisons about its candidates.
struct Answer<'a> {
    baseline: &'a str,
    direction: Direction,
    /// The fewest rounds that can claim anything of so many.
    smallest_rounds: usize,
    /// The leader, then those not distinguished from it.
    best: Vec<&'a str>,
    /// Whether those of `best` that are better than the baseline are the same as the leader within the margin.
    is_equal: bool,
    /// By verdict: the best estimate first.
    better: Vec<&'a Comparison>,
    same: Vec<&'a Comparison>,
    /// The worst estimate first.
    worse: Vec<&'a Comparison>,
    open: Vec<&'a Comparison>,
    /// Those of which nothing can be relied on.
    unjudged: Vec<&'a Comparison>,
}

impl<'a> Answer<'a> {
    fn new(field: &Field<'a>, direction: Direction, comparisons: &'a [Comparison]) -> Self {
        let mut order: Vec<&Comparison> = comparisons
            .iter()
            .filter(|one| !field.is_baseline_again(&one.candidate))
            .collect();
        let merit = |one: &Comparison| match direction {
            Direction::HigherIsBetter => one.ratio.unwrap_or(f64::INFINITY),
            Direction::LowerIsBetter => -one.ratio.unwrap_or(f64::INFINITY),
        };
        order.sort_by(|a, b| merit(b).total_cmp(&merit(a)));
        let of = |label: &str| -> Vec<&Comparison> {
            let all = order.iter().copied();
            all.filter(|one| one.verdict.label() == label).collect()
        };
        let mut answer = Self {
            baseline: &field.baseline.name,
            direction,
            smallest_rounds: smallest_rounds(comparisons.len() * field.design.looks.count()),
            best: Vec::new(),
            is_equal: true,
            better: of("better"),
            same: of("equivalent"),
            worse: of("worse"),
            open: of("undecided"),
            unjudged: of("not trusted"),
        };
        answer.worse.reverse();
        let leader = answer.better.first().copied();
        answer
            .best
            .push(leader.map_or(answer.baseline, |one| &one.candidate));
        let rest = order.into_iter().filter(|one| {
            !matches!(one.verdict, Verdict::NotTrusted { .. })
                && leader.is_none_or(|leader| !std::ptr::eq(leader, *one))
        });
        for one in rest {
            match standing(leader, Some(one), direction) {
                Standing::Better => continue,
                Standing::Equivalent => {}
                Standing::Open | Standing::Worse => {
                    answer.is_equal &= one.verdict != Verdict::Better;
                }
            }
            answer.best.push(&one.candidate);
        }
        answer
    }

    /// Those of the best that are proved better than the baseline.
    fn leaders(&self) -> Vec<&'a str> {
        let better = self.better.iter().map(|one| one.candidate.as_str());
        better.filter(|name| self.best.contains(name)).collect()
    }

    /// The answer in a few words.
    fn headline(&self) -> String {
        let (same, worse, open) = (self.same.len(), self.worse.len(), self.open.len());
        match self.leaders().as_slice() {
            names if !self.better.is_empty() && names.len() <= NAMES_MAX => names.join(" / "),
            [first, others @ ..] if !self.better.is_empty() => {
                format!("{first} and {} not distinguished from it", others.len())
            }
            _ if open == 0 && worse == 0 && same > 0 => {
                format!("All the same within {}", self.margin())
            }
            _ if open == 0 && worse > 0 => format!("{}: nothing is better", self.baseline),
            _ if same > 0 => format!("{same} the same within {}", self.margin()),
            _ if worse > 0 => format!("{worse} worse, the rest undecided"),
            _ if self.is_too_early() => "No answer yet".to_owned(),
            _ => "Undecided".to_owned(),
        }
    }

    /// The answer, and the candidates it leaves out: "all the same" is not said of a candidate that was not judged.
    fn sentence(&self, what: &str) -> String {
        let mut parts = vec![self.lead(what)];
        if !self.better.is_empty() {
            let is_led = |one: &&&Comparison| !self.best.contains(&one.candidate.as_str());
            let also: Vec<_> = self.better.iter().filter(is_led).copied().collect();
            if !also.is_empty() {
                parts.push(format!("better than {}: {}", self.baseline, figures(&also)));
            }
            if !self.same.is_empty() {
                let words = format!("the same as {} within {}", self.baseline, self.margin());
                parts.push(format!("{words}: {}", names(&self.same)));
            }
        }
        // If all others are worse, that is the answer.
        let is_more = !(self.better.is_empty() && self.same.is_empty() && self.open.is_empty());
        if !self.worse.is_empty() && is_more {
            parts.push(format!("worse: {}", figures(&self.worse)));
        }
        if !self.open.is_empty() && self.is_decided() {
            parts.push(format!("undecided: {}", names(&self.open)));
        }
        if !self.unjudged.is_empty() && self.best.len() + self.worse.len() > 1 {
            parts.push(format!("{} could not be judged", names(&self.unjudged)));
        }
        parts.join("; ")
    }

    fn is_decided(&self) -> bool {
        !(self.better.is_empty() && self.same.is_empty() && self.worse.is_empty())
    }

    fn lead(&self, what: &str) -> String {
        let baseline = self.baseline;
        if let [first, ..] = self.better.as_slice() {
            let ratio = first.ratio_text();
            let leaders = self.leaders();
            if let [leader] = leaders.as_slice() {
                return format!("{leader} {what}: {ratio} {baseline}");
            }
            let how = if self.is_equal {
                format!("the same within {}", self.margin())
            } else {
                "not distinguished".to_owned()
            };
            let plural = what.replace("gives", "give").replace("needs", "need");
            let leaders = match leaders.as_slice() {
                few if few.len() <= NAMES_MAX => join(few),
                [first, others @ ..] => format!("{first} and {} others", others.len()),
                [] => String::new(),
            };
            let first = &first.candidate;
            return format!("{leaders} {plural}, {how} ({first}: {ratio} {baseline})");
        }
        match (self.same.len(), self.worse.len(), self.open.len()) {
            (0, 0, 0) if self.unjudged.is_empty() => format!("only {baseline} was measured"),
            (0, 0, 0) => format!("nothing to compare {baseline} with"),
            (0, 0, _) if self.is_too_early() => self.too_early(),
            (0, 0, _) => self.no_difference(),
            (0, 1, 0) => format!("{baseline} {what}: worse is {}", figures(&self.worse)),
            (0, count, 0) => {
                format!(
                    "{baseline} {what}: all {count} others are worse, {}",
                    figures(&self.worse)
                )
            }
            (0, _, _) => format!("nothing is proved better than {baseline}"),
            (_, 0, 0) => format!("all the same within {}", self.margin()),
            (1, ..) => {
                let same = &self.same[0].candidate;
                format!("{same} is the same as {baseline} within {}", self.margin())
            }
            (count, ..) => {
                let all = count + self.worse.len() + self.open.len();
                let names = names(&self.same);
                let margin = self.margin();
                format!("{count} of {all} are the same as {baseline} within {margin}: {names}")
            }
        }
    }

    fn margin(&self) -> String {
        let mut all = [&self.better, &self.same, &self.worse, &self.open]
            .into_iter()
            .flatten();
        all.next()
            .map_or_else(String::new, |one| format_percent(one.margin))
    }

    /// Whether there are not the rounds without which an exact test cannot claim anything.
    fn is_too_early(&self) -> bool {
        self.open.iter().all(|one| one.is_blind())
    }

    /// The result of a comparison cut short: where it leads, and that this is not yet an answer.
    fn too_early(&self) -> String {
        let rounds = self.open.iter().map(|one| one.rounds).max().unwrap_or(0);
        let words = if rounds == 1 {
            "1 round is".to_owned()
        } else {
            format!("{rounds} rounds are")
        };
        let baseline = self.baseline;
        let is_ahead = |one: &&&Comparison| match self.direction {
            Direction::HigherIsBetter => one.ratio.is_some_and(|ratio| ratio > 1.0),
            Direction::LowerIsBetter => one.ratio.is_some_and(|ratio| ratio < 1.0),
        };
        let lead = match self.open.first().filter(is_ahead) {
            Some(first) => {
                let (name, ratio) = (&first.candidate, first.ratio_text());
                format!("so far {name} is ahead ({ratio} {baseline})")
            }
            None => format!("so far {baseline} is ahead"),
        };
        let smallest = self.smallest_rounds;
        format!("no answer yet: {words} too few, at least {smallest} are needed; {lead}")
    }

    /// "No difference" never stands alone: it comes with what would have been seen.
    fn no_difference(&self) -> String {
        let rounds = self.open.iter().map(|one| one.rounds).max().unwrap_or(0);
        let word = if rounds == 1 { "round" } else { "rounds" };
        let detectable = self.open.iter().filter_map(|one| one.detectable);
        let needed = self.open.iter().filter_map(|one| match one.verdict {
            Verdict::Undecided { rounds_needed } => Some(rounds_needed),
            _ => None,
        });
        let needed = needed.max().map_or_else(String::new, |more| {
            format!("; the hardest case {}", needs_text(more))
        });
        let shown = match detectable.reduce(f64::max) {
            // Past twice as much a percentage is no longer read as a size.
            Some(share) if share > 1.0 => {
                format!(" (only {:.1}x would have shown)", 1.0 + share)
            }
            Some(share) => format!(" (one of {} would have shown)", format_percent(share)),
            None => String::new(),
        };
        format!("no difference that {rounds} {word} can show{shown}{needed}")
    }
}

/// `a 1.12x [1.08, 1.15], b 1.05x [1.01, 1.09]`, or how many and how far.
fn figures(comparisons: &[&Comparison]) -> String {
    let words = |one: &Comparison| format!("{} {}", one.candidate, one.ratio_text());
    match comparisons {
        [first, .., last] if comparisons.len() > NAMES_MAX => {
            format!(
                "{} candidates, from {} to {}",
                comparisons.len(),
                words(first),
                words(last)
            )
        }
        few => few
            .iter()
            .map(|one| words(one))
            .collect::<Vec<_>>()
            .join(", "),
    }
}

fn names(comparisons: &[&Comparison]) -> String {
    let names: Vec<&str> = comparisons
        .iter()
        .map(|one| one.candidate.as_str())
        .collect();
    join(&names)
}

fn join(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
