//! Why a candidate is better: numbers of this record; where those do not tell, the sentence says so.

use super::decomposition::Evidence;
use super::{Advisor, Topic, Winner};
use crate::phases::retained_bytes;
use crate::record::{CostDifference, Quantity, Unit};
use crate::units::format_bytes;

/// Bytes held for a byte that lives, against the baseline's: what is above is within what two counts differ by.
const FRAGMENTATION_TELLS: f64 = 0.95;

impl Advisor<'_, '_> {
    /// The reason of the first winner, and where the cost of a request differs for each of them.
    pub(super) fn reason(&self, winners: &[Winner<'_>]) -> (String, Vec<CostDifference>) {
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
            let text = format!("Why {name}, nothing that was counted tells.");
            return (text, differences);
        };
        let text = match evidence.words(difference) {
            // Who is faster and dearer is not faster because it is dearer.
            Some(words) if difference.change < 0.0 => format!("Why {name}: {words}."),
            Some(words) => format!("{name} is better although {words}."),
            None => format!(
                "Why {name}, the rounds do not tell: the cost of a request is not decided, or the same."
            ),
        };
        (text, differences)
    }

    /// What says that less memory is the allocator's doing; a figure that says the opposite, or next to nothing, is no
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
            Some(_) => format!("Why {name}, nothing that was counted tells."),
            None => format!("Why {name}, was not counted."),
        }
    }
}

/// What a loss is in absolute terms, if that says more than the ratio.
pub(super) fn absolute_price(topic: &Topic<'_>, candidate: &str) -> String {
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
