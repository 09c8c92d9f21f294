use super::*;
use millpond_measure::record::{CandidateRounds, Choice, QuestionVerdict};

fn record(names: &[&str]) -> ComparisonRecord {
    let mut record = ComparisonRecord::new("0");
    let roles = [Role::Baseline, Role::BaselineAgain]
        .into_iter()
        .chain(std::iter::repeat(Role::Candidate));
    for (name, role) in names.iter().zip(roles) {
        record.candidates.push(CandidateRounds {
            name: (*name).to_owned(),
            role,
            ..CandidateRounds::default()
        });
    }
    record
}

/// Goal: the baseline first, then what is recommended, then the best; never the baseline's double,
/// no candidate twice, and one even where nothing is best.
#[test]
fn who_is_looked_at() {
    let mut record = record(&["glibc", "glibc (again)", "a", "b", "c"]);
    assert_eq!(of_interest(&record), ["glibc", "a"]);
    let best = |name: &str| QuestionVerdict {
        best: vec![name.to_owned()],
        ..QuestionVerdict::default()
    };
    record.analysis.verdicts.throughput = best("b");
    record.analysis.verdicts.latency = best("glibc (again)");
    record.analysis.verdicts.memory = best("glibc");
    assert_eq!(of_interest(&record), ["glibc", "b"]);
    record.analysis.recommendation.choices = vec![Choice {
        question: "memory".to_owned(),
        candidate: "c".to_owned(),
    }];
    record.analysis.verdicts.latency = best("c");
    assert_eq!(of_interest(&record), ["glibc", "c", "b"]);
    record.analysis.verdicts.memory = best("a");
    assert_eq!(of_interest(&record), ["glibc", "c", "b"]);
    assert!(of_interest(&ComparisonRecord::new("0")).is_empty());
}

/// Goal: all runs together stay within what they may take, and a run is never without load.
#[test]
fn runs_share_the_time() {
    let (record, stop) = (record(&[]), AtomicBool::new(false));
    let commission = |seconds| ProfileRequest {
        candidates: &[],
        record: &record,
        slowest_per_s: &[],
        load_command: None,
        overhead: Duration::from_millis(400),
        allowance: Duration::from_secs(seconds),
        stop: &stop,
    };
    for seconds in [20, 54, 600] {
        let wanted = commission(seconds);
        let load = wanted.load_duration(wanted.allowance, 6);
        assert!(wanted.guess(load) * 6 <= wanted.allowance, "{load:?}");
    }
    let load = |seconds| commission(seconds).load_duration(Duration::from_secs(seconds), 6);
    assert_eq!(load(1), LOAD_MIN);
    assert_eq!(load(600), LOAD_MAX);
}
