//! Memory of servers that may use all CPUs beside that of those bound to some: allocators and runtimes size themselves by
//! the CPUs that they see.

use super::Field;
use crate::record::{Measure, MeasureComparisons, Quantity, QuestionVerdict, UnpinnedMemory};
use crate::units::{format_bytes, format_three_digits};

/// Every candidate whose memory is another without pins, by more than the margin, with its figures; in the order of
/// reports. `memory`: the answer for bound servers. `details`: every measure.
pub(super) fn differences(
    field: &Field<'_>,
    memory: &QuestionVerdict,
    details: &[MeasureComparisons],
) -> Vec<UnpinnedMemory> {
    let Some(&pinned) = memory.measures.first() else {
        return Vec::new();
    };
    let unpinned = Measure::whole(Quantity::UnpinnedMemory);
    let margin = field.design.margins.of(unpinned.quantity);
    let of_all = details.iter().find(|one| one.measure == unpinned);
    let differing = field.entrants().filter_map(|candidate| {
        let pinned_bytes = candidate.median(pinned).filter(|&bytes| bytes > 0.0)?;
        let unpinned_bytes = candidate.median(unpinned).filter(|&bytes| bytes > 0.0)?;
        let ratio = unpinned_bytes / pinned_bytes;
        if ratio.ln().abs() <= margin.ln_1p() {
            return None;
        }
        let mut comparisons = of_all.into_iter().flat_map(|all| &all.comparisons);
        let against = comparisons.find(|one| one.candidate == candidate.name);
        let mut sentence = format!(
            "{} needs {} where it may use all CPUs, {}x the {} of one that is bound to the server's",
            candidate.name,
            format_bytes(unpinned_bytes),
            format_three_digits(ratio),
            format_bytes(pinned_bytes),
        );
        if let Some(against) = against {
            sentence += &format!(
                "; against {} there {} ({})",
                field.baseline.name,
                against.ratio_text(),
                against.verdict.label()
            );
        }
        Some(UnpinnedMemory {
            candidate: candidate.name.clone(),
            pinned_bytes: pinned_bytes as u64,
            unpinned_bytes: unpinned_bytes as u64,
            sentence: sentence + ".",
        })
    });
    differing.collect()
}
