//! The three answers, from the rounds of all candidates.
//!
//! `lab` fills [`CandidateRounds`] and calls [`analyse`] (or
//! [`ComparisonRecord::analyse`](crate::record::ComparisonRecord::analyse)); the reports show what
//! comes out. Pure: the same rounds always give the same words. A missing measure, a failed run, or
//! a comparison cut short by Ctrl-C is ordinary input: it makes the answer weaker, never wrong.

mod trust;
mod standing;
mod question;
mod recommendation;
mod settings_front;

pub(crate) use trust::{across_self_difference as self_difference, baseline_of, rounds_of};

pub use standing::{ExpectedWidth, OpenVerdict, expected_widths, open_verdicts};

use std::collections::BTreeSet;

use crate::record::{
    Analysis, CandidateRounds, Margins, Measure, MeasureComparisons, Role, Settings,
};
use crate::statistics::{Comparison, InterimAnalyses, smallest_rounds};

/// What was fixed before the first round: how often the data are analysed, and what counts as the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Design {
    /// How often these rounds are analysed in all.
    pub looks: InterimAnalyses,
    /// Up to which difference two candidates count as the same.
    pub margins: Margins,
}

impl Default for Design {
    /// The number of rounds is fixed, and the margins are the usual ones.
    fn default() -> Self {
        Self {
            looks: InterimAnalyses::ONE,
            margins: Margins::default(),
        }
    }
}

impl Design {
    /// That of a record.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        Self {
            looks: settings.looks.looks(),
            margins: settings.margins,
        }
    }
}

/// Judges every measure, answers the three questions, and says what pools change: of rounds whose
/// number was fixed beforehand, by the usual margins.
#[must_use]
pub fn analyse(candidates: &[CandidateRounds]) -> Analysis {
    analyse_by(candidates, Design::default())
}

/// The same by another design.
#[must_use]
pub fn analyse_by(candidates: &[CandidateRounds], design: Design) -> Analysis {
    let Some(field) = Field::new(candidates, design) else {
        return Analysis {
            warnings: vec!["there is no baseline: nothing can be compared".to_owned()],
            ..Analysis::default()
        };
    };
    let mut warnings = trust::warnings_of_runs(&field);
    let mut details = Vec::new();
    for measure in field.measures() {
        let comparisons = match measure.quantity.is_judged() {
            true => field.compare(&[measure]),
            false => Vec::new(),
        };
        warnings.extend(trust::self_difference_warning(
            &field,
            &measure.label(),
            &comparisons,
        ));
        details.push(MeasureComparisons {
            measure,
            comparisons,
        });
    }
    warnings.extend(few_rounds_warning(&field));
    warnings.extend(crate::slices::warnings(candidates));
    warnings.extend(trust::idle_server_warnings(&field));
    warnings.extend(trust::own_disturbance_warnings(&field));
    let verdicts = question::answer_all(&field);
    Analysis {
        self_check: trust::self_check(&field, &verdicts),
        recommendation: recommendation::recommend(&field, &verdicts),
        settings_front: settings_front::of(&field, &verdicts.memory),
        unpinned: trust::differences(&field, &verdicts.memory, &details),
        verdicts,
        pools_effect: standing::effects(&field),
        growth: crate::growth::of_all(candidates),
        // Of a record that has them.
        phases: Vec::new(),
        details,
        warnings,
    }
}

/// The candidates, with the one all ratios are against.
struct Field<'a> {
    baseline: &'a CandidateRounds,
    /// All but the baseline; the baseline again is among them.
    others: Vec<&'a CandidateRounds>,
    design: Design,
}

impl<'a> Field<'a> {
    /// `None` without candidates. Without a declared baseline the first one is it.
    fn new(candidates: &'a [CandidateRounds], design: Design) -> Option<Self> {
        let place = candidates
            .iter()
            .position(|candidate| candidate.role == Role::Baseline);
        let place = place.unwrap_or(0);
        let baseline = candidates.get(place)?;
        let others = candidates
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != place);
        Some(Self {
            baseline,
            others: others.map(|(_, candidate)| candidate).collect(),
            design,
        })
    }

    /// Baseline and others, in that order.
    fn all(&self) -> impl Iterator<Item = &'a CandidateRounds> + '_ {
        std::iter::once(self.baseline).chain(self.others.iter().copied())
    }

    /// Those that can be best: all but the baseline's double.
    fn all_candidates(&self) -> impl Iterator<Item = &'a CandidateRounds> + '_ {
        self.all()
            .filter(|candidate| candidate.role != Role::BaselineAgain)
    }

    /// Every measure that any run has, in the order of reports.
    fn measures(&self) -> BTreeSet<Measure> {
        let rounds = self.all().flat_map(|candidate| &candidate.rounds);
        rounds
            .flat_map(|round| round.measures.keys().copied())
            .collect()
    }

    /// Every other candidate against the baseline in the geometric mean of `measures`, all of one
    /// quantity. If the baseline differs from itself, no difference is trusted.
    fn compare(&self, measures: &[Measure]) -> Vec<Comparison> {
        let Some(rule) = trust::rule(measures, self.design) else {
            return Vec::new();
        };
        let rounds: Vec<_> = self
            .others
            .iter()
            .map(|other| trust::pair(other, self.baseline, measures))
            .collect();
        let mut comparisons = crate::statistics::compare_all(&rounds, &rule);
        trust::distrust_if_baseline_differs_from_itself(self, &mut comparisons, &rule);
        comparisons
    }

    /// True if `name` is the baseline run a second time.
    fn is_baseline_again(&self, name: &str) -> bool {
        self.others
            .iter()
            .any(|other| other.name == name && other.role == Role::BaselineAgain)
    }
}

fn few_rounds_warning(field: &Field<'_>) -> Option<String> {
    let complete = |candidate: &CandidateRounds| {
        candidate
            .rounds
            .iter()
            .filter(|round| !round.measures.is_empty())
            .count()
    };
    // The most that any comparison has: a candidate that died early is not judged, and costs the others nothing.
    let others = field.others.iter().map(|one| complete(one)).max()?;
    let rounds = others.min(complete(field.baseline));
    let smallest = smallest_rounds(field.others.len() * field.design.looks.count());
    (rounds < smallest).then(|| {
        let word = if rounds == 1 { "round" } else { "rounds" };
        format!(
            "{rounds} {word} of {} candidates: no difference can be claimed below {smallest} rounds",
            field.all().count()
        )
    })
}
