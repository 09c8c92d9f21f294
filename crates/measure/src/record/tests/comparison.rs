use super::*;
use crate::record::RoundMeasures;

/// Goal: half of the mappings that the kernel allows is reported with the limit, less is not, and nothing where the
/// limit is unknown.
#[test]
fn many_mappings_are_told() {
    let candidate = |name: &str, mappings: f64| {
        let mut round = RoundMeasures::default();
        round.set(Measure::whole(Quantity::Mappings), mappings);
        CandidateRounds {
            name: name.to_owned(),
            rounds: vec![round],
            ..CandidateRounds::default()
        }
    };
    let mut record = ComparisonRecord::new("1");
    record.candidates = vec![candidate("few", 499.0), candidate("many", 500.0)];
    assert!(record.mapping_warnings().is_empty());
    record.environment.mappings_max = Some(1_000);
    let found = record.mapping_warnings();
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("many: a process of it had 500 mappings, and the kernel allows 1000"),
        "{found:?}"
    );
}
