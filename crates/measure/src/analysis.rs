//! The three answers, from the rounds of all candidates.

use crate::record::{Analysis, CandidateRounds};

/// Judges every measure, answers the three questions, and says what pools change.
#[must_use]
pub fn analyse(_candidates: &[CandidateRounds]) -> Analysis {
    todo!()
}
