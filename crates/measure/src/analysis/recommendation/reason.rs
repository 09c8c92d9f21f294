//! Why a candidate is better: numbers of this record; where those do not tell, the sentence says so.

use super::decomposition::Evidence;
use super::{Advisor, Topic, Winner};
use crate::record::{CostDifference, Quantity, Unit};

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
            let fragmentation = evidence.comparison(Quantity::Fragmentation);
            let values = fragmentation.and_then(|one| one.candidate_value.zip(one.baseline_value));
            let text = match values {
                Some((own, baseline)) => format!(
                    "Why {name}: each byte that lives takes {}, not {} (counted once).",
                    Unit::Ratio.format(own),
                    Unit::Ratio.format(baseline)
                ),
                None => format!("Why {name}, was not counted."),
            };
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
