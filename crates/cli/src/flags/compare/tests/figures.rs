use super::*;
use crate::flags::compare::phases::Preset;
use millpond_measure::record::RoundMeasures;

/// Goal: every preset has its earlier figures, with what may be compared and what may not; what was
/// measured stands beside them, what was not is not made up.
#[test]
fn every_preset_has_its_figures() {
    let mut round = RoundMeasures::default();
    round.set(RATE, 500_000.0);
    let mut record = ComparisonRecord::new("0");
    record.candidates = vec![CandidateRounds {
        name: "glibc".to_owned(),
        allocator: "glibc".to_owned(),
        rounds: vec![round],
        ..CandidateRounds::default()
    }];
    for name in Preset::all_names() {
        let text = if name == "mempool" {
            beside_pools(&serde_json::Value::Null, 80)
        } else {
            beside(&name, &record, 80)
        };
        for part in ["beside ours", "Comparable: ", "Not comparable: ", "then"] {
            assert!(text.contains(part), "{name}: {text}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
    }
    let text = beside("haywire", &record, 80);
    assert!(
        text.contains("500k/s glibc") && text.contains("tcmalloc was not compared"),
        "{text}"
    );
    assert!(
        text.contains("malloc, memory") && text.contains("not measured"),
        "{text}"
    );
}
