//! What a comparison with another session needs of one session: the runs of each candidate beside the
//! baseline's, the reasons not to believe them, and whether the baseline differed from itself.

use super::{Design, Field, pairing, trust};
use crate::record::{CandidateRounds, ComparisonRecord, Measure};
use crate::statistics::PairedRounds;

/// The runs of `name` beside those of `against` in the same rounds; `None` if one is not there.
pub(crate) fn rounds_of(
    candidates: &[CandidateRounds],
    name: &str,
    against: &str,
    measures: &[Measure],
) -> Option<PairedRounds> {
    let find = |name: &str| candidates.iter().find(|one| one.name == name);
    Some(pairing::pair(find(name)?, find(against)?, measures))
}

/// The name of the candidate that ratios are against.
pub(crate) fn baseline_of(candidates: &[CandidateRounds]) -> Option<&str> {
    Field::new(candidates, Design::default()).map(|field| field.baseline.name.as_str())
}

/// Why no ratio of this session counts: the baseline run twice differs from itself.
pub(crate) fn self_difference(record: &ComparisonRecord, measures: &[Measure]) -> Option<String> {
    let field = Field::new(&record.candidates, Design::of(&record.settings))?;
    trust::self_difference_reason(&field, &field.compare(measures))
}
