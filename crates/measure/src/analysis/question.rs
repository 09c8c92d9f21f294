//! The three questions: most throughput, lowest latency, least memory.
//!
//! "Best" is a set: the candidate with the best estimate and all that cannot be told from it. A
//! candidate leaves the set only if it is certainly worse, by more than the margin, than the best one,
//! corrected for the choice among all, or than the baseline, corrected by Holm. Each test errs against
//! the truly best one in at most 2.5 %, half of its 5 %, so that it is in the set with at least 95 %
//! (after Hsu, "Multiple Comparisons", 1996, chapter 4).

use super::resolution::{self, ROUNDS_WORTH_ADVISING};
use super::{Field, pairing, trust};
use crate::record::{CandidateRounds, Measure, Operation, Quantity, QuestionVerdict, Verdicts};
use crate::statistics::{Comparison, Direction, Looks, Verdict, compare_chosen, smallest_rounds};
use crate::units::format_percent;

/// A question and the quantities that answer it, the best evidence first.
pub(super) struct Question {
    /// As the sentence begins.
    title: &'static str,
    /// What the best one does.
    achievement: &'static str,
    /// The first one measured is used.
    pub(super) quantities: &'static [Quantity],
    /// Evidence that noise does not touch, for when the answer is not to be trusted.
    substitutes: &'static [Quantity],
    /// Why none of the quantities may be there.
    absence: &'static str,
}

pub(super) const THROUGHPUT: Question = Question {
    title: "Throughput",
    achievement: "gives the most",
    quantities: &[Quantity::Throughput],
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
    quantities: &[Quantity::RssAfterWork, Quantity::PeakRss],
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

fn answer(field: &Field<'_>, question: &Question) -> QuestionVerdict {
    let title = question.title;
    let measures = measures_of(field, question.quantities);
    if measures.is_empty() {
        return QuestionVerdict {
            sentence: format!("{title}: not measured{}.", question.absence),
            ..QuestionVerdict::default()
        };
    }
    let comparisons = field.compare(&measures);
    let achievement = if measures[0].quantity == Quantity::ResponseP50 {
        "gives the lowest median (too few requests for a p99)"
    } else {
        question.achievement
    };
    if let Some(reason) = distrust(field, &comparisons) {
        let substitute = substitute_sentence(field, question.substitutes);
        return QuestionVerdict {
            sentence: format!("{title}: not to be trusted: {reason}.{substitute}"),
            measures,
            comparisons,
            ..QuestionVerdict::default()
        };
    }
    let ranking = Ranking::new(field, &measures, &comparisons);
    QuestionVerdict {
        sentence: format!(
            "{title}: {}.",
            ranking.sentence(field, achievement, &comparisons)
        ),
        best: ranking
            .best
            .iter()
            .map(|entrant| entrant.name.clone())
            .collect(),
        measures,
        trusted: true,
        resolution: resolution::sentence(field, &comparisons),
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

/// What work per request says, when time is not to be trusted.
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
        let ranking = Ranking::new(field, &measures, &comparisons);
        let what = format!(
            "needs the least {}",
            quantity.label().replace("/req", " per request")
        );
        return format!(
            " Work per request instead: {}.",
            ranking.sentence(field, &what, &comparisons)
        );
    }
    String::new()
}

/// More names than this make a list nobody reads; the shorter side is named then.
const NAMES_MAX: usize = 3;

/// Entrants in order of their estimates, and how far down "best" reaches.
struct Ranking<'a> {
    /// The best estimate first, then those not separable from it, in order.
    best: Vec<&'a CandidateRounds>,
    /// Those certainly worse than the best, in order.
    worse: Vec<&'a CandidateRounds>,
    /// True if all of `best` are proved equivalent to the first.
    equivalent: bool,
    /// Those of whom the rounds say nothing that can be relied on.
    unplaced: Vec<&'a CandidateRounds>,
}

impl<'a> Ranking<'a> {
    fn new(field: &Field<'a>, measures: &[Measure], comparisons: &[Comparison]) -> Self {
        let rule = pairing::rule(measures, field.looks)
            .expect("answer() has checked that there are measures");
        let sign = match rule.direction {
            Direction::HigherIsBetter => 1.0,
            Direction::LowerIsBetter => -1.0,
        };
        let (mut order, mut unplaced) = (Vec::new(), Vec::new());
        for entrant in field.entrants() {
            match standing(field, entrant, comparisons) {
                Some(ratio) => order.push((entrant, ratio)),
                None => unplaced.push(entrant),
            }
        }
        // Stable: the baseline comes first among equals.
        order.sort_by(|a, b| (b.1 * sign).total_cmp(&(a.1 * sign)));
        let family = order.len().saturating_sub(1);
        let (first, rest) = order
            .split_first()
            .expect("the baseline is always an entrant");
        // Against the baseline, the question's own comparisons have spoken already.
        let is_against_baseline = |entrant: &CandidateRounds, verdict: &Verdict| {
            let mut all = comparisons.iter();
            all.any(|one| one.candidate == entrant.name && one.verdict == *verdict)
        };
        let is_baseline_beaten = order
            .iter()
            .any(|(entrant, _)| is_against_baseline(entrant, &Verdict::Better));
        let (mut best, mut worse, mut equivalent) = (vec![first.0], Vec::new(), true);
        for (entrant, _) in rest {
            let rounds = pairing::pair(first.0, entrant, measures);
            let comparison = compare_chosen(&rounds, family, &rule);
            let is_beaten = match std::ptr::eq(*entrant, field.baseline) {
                true => is_baseline_beaten,
                false => is_against_baseline(entrant, &Verdict::Worse),
            };
            if comparison.verdict == Verdict::Better || is_beaten {
                worse.push(*entrant);
            } else {
                equivalent &= comparison.verdict == Verdict::Equivalent;
                best.push(entrant);
            }
        }
        Self {
            best,
            worse,
            equivalent,
            unplaced,
        }
    }

    /// The answer, and whom it leaves out: "all the same" is not said of somebody who was not judged.
    fn sentence(&self, field: &Field<'_>, what: &str, comparisons: &[Comparison]) -> String {
        let answer = self.answer(field, what, comparisons);
        match self.unplaced.as_slice() {
            [] => answer,
            few if few.len() <= NAMES_MAX => {
                let names: Vec<&str> = few.iter().map(|one| one.name.as_str()).collect();
                format!("{answer}; {} could not be judged", join(&names))
            }
            many => format!("{answer}; {} others could not be judged", many.len()),
        }
    }

    fn answer(&self, field: &Field<'_>, what: &str, comparisons: &[Comparison]) -> String {
        let baseline = &field.baseline.name;
        let figures = |name: &str| {
            let found = comparisons.iter().find(|one| one.candidate == name);
            found.map(Comparison::ratio_text).unwrap_or_default()
        };
        let all = self.worse.is_empty();
        match (self.best.as_slice(), all) {
            ([only], true) if self.unplaced.is_empty() => {
                format!("only {} was measured", only.name)
            }
            ([only], true) => format!("nothing to compare {} with", only.name),
            ([first], false) if first.name == *baseline => {
                format!(
                    "{baseline} {what}: {}",
                    the_others_are_worse(self.worse.len())
                )
            }
            ([first], false) => {
                format!("{} {what}: {} {baseline}", first.name, figures(&first.name))
            }
            (_, true) if self.equivalent => {
                format!("all the same within {}", margin(comparisons))
            }
            ([first, ..], true) if too_few_rounds(comparisons, field.looks) => too_few(
                (&first.name, baseline),
                &figures(&first.name),
                comparisons,
                field.looks,
            ),
            (_, true) => no_difference(comparisons),
            (several, false) => {
                let how = if self.equivalent {
                    "equally good"
                } else {
                    "not separable"
                };
                let plural = what.replace("gives", "give").replace("needs", "need");
                if several.len() > NAMES_MAX && self.worse.len() <= NAMES_MAX {
                    let (count, total) = (several.len(), several.len() + self.worse.len());
                    let worse: Vec<&str> = self.worse.iter().map(|one| one.name.as_str()).collect();
                    let others = join(&worse);
                    return format!("{count} of {total} {plural}, {how}: all but {others}");
                }
                let names: Vec<&str> = several.iter().map(|one| one.name.as_str()).collect();
                let first = names[0];
                let lead = if first == baseline {
                    String::new()
                } else {
                    format!(" ({first}: {} {baseline})", figures(first))
                };
                let others = the_others_are_worse(self.worse.len());
                format!("{} {plural}, {how}{lead}; {others}", join(&names))
            }
        }
    }
}

/// The estimate against the baseline; 1 for the baseline; `None` if it cannot be placed.
fn standing(
    field: &Field<'_>,
    entrant: &CandidateRounds,
    comparisons: &[Comparison],
) -> Option<f64> {
    if std::ptr::eq(entrant, field.baseline) {
        return Some(1.0);
    }
    let comparison = comparisons
        .iter()
        .find(|one| one.candidate == entrant.name)?;
    match comparison.verdict {
        Verdict::NotTrusted { .. } => None,
        _ => comparison.ratio,
    }
}

fn the_others_are_worse(count: usize) -> String {
    match count {
        1 => "the other one is worse".to_owned(),
        count => format!("the other {count} are worse"),
    }
}

fn margin(comparisons: &[Comparison]) -> String {
    comparisons
        .first()
        .map_or_else(String::new, |one| format_percent(one.margin))
}

/// Whether no comparison has the rounds without which an exact test cannot claim anything.
fn too_few_rounds(comparisons: &[Comparison], looks: Looks) -> bool {
    let smallest = smallest_rounds(comparisons.len() * looks.count());
    comparisons
        .iter()
        .all(|one| (one.rounds as usize) < smallest)
}

/// What a comparison cut short shows: where it leads, and that this is not yet an answer.
fn too_few(
    (first, baseline): (&str, &str),
    figures: &str,
    comparisons: &[Comparison],
    looks: Looks,
) -> String {
    let rounds = comparisons.iter().map(|one| one.rounds).max().unwrap_or(0);
    let words = if rounds == 1 {
        "1 round is".to_owned()
    } else {
        format!("{rounds} rounds are")
    };
    let smallest = smallest_rounds(comparisons.len() * looks.count());
    let lead = if first == baseline {
        format!("so far {baseline} is ahead")
    } else {
        format!("so far {first} is ahead ({figures} {baseline})")
    };
    format!("no answer yet: {words} too few, at least {smallest} are needed; {lead}")
}

/// "No difference" never stands alone: it comes with what would have been seen.
fn no_difference(comparisons: &[Comparison]) -> String {
    let rounds = comparisons.iter().map(|one| one.rounds).max().unwrap_or(0);
    let word = if rounds == 1 { "round" } else { "rounds" };
    let detectable = comparisons
        .iter()
        .filter_map(|one| one.detectable)
        .filter(|share| share.is_finite() && *share > 0.0)
        .fold(None, |worst: Option<f64>, share| {
            Some(worst.map_or(share, |w| w.max(share)))
        });
    let needed = comparisons.iter().filter_map(|one| match one.verdict {
        Verdict::Undecided { rounds_needed } => Some(rounds_needed),
        _ => None,
    });
    let needed = match needed.max() {
        None => String::new(),
        Some(more) if more > ROUNDS_WORTH_ADVISING => {
            "; no sensible number more would decide the hardest case here, a quieter machine may"
                .to_owned()
        }
        Some(more) => format!("; about {more} more would decide the hardest case"),
    };
    match detectable {
        // Past twice as much a percentage is no longer read as a size.
        Some(share) if share > 1.0 => format!(
            "no difference that {rounds} {word} can show (only {:.1}x would have shown){needed}",
            1.0 + share
        ),
        Some(share) => format!(
            "no difference that {rounds} {word} can show (one of {} would have shown){needed}",
            format_percent(share)
        ),
        None => format!("no difference that {rounds} {word} can show{needed}"),
    }
}

fn join(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join("; ")),
    }
}
