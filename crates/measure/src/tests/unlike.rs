use super::*;

fn candidate(name: &str, runs: &[(f64, f64)]) -> CandidateRounds {
    let run = |(round, &(hz, pressure)): (usize, &(f64, f64))| RoundMeasures {
        round: round as u32,
        cpu_frequency_hz: [("put throughput".to_owned(), hz)].into(),
        cpu_pressure: [("put throughput".to_owned(), pressure)].into(),
        ..RoundMeasures::default()
    };
    CandidateRounds {
        name: name.to_owned(),
        rounds: runs.iter().enumerate().map(run).collect(),
        ..CandidateRounds::default()
    }
}

fn kinds(run: &RoundMeasures) -> Vec<NoiseKind> {
    run.noise.iter().map(|flag| flag.kind).collect()
}

/// Goal: the one slow run is found among all candidates' runs; a candidate that always waits longer
/// is not, one run that waited longer than its fellows is; and a second time changes nothing.
#[test]
fn runs_unlike_their_fellows_are_flagged() {
    let quiet = [(3.0e9, 0.10), (3.01e9, 0.11), (3.0e9, 0.10)];
    let other = [(3.0e9, 0.40), (2.4e9, 0.41), (3.0e9, 0.50)];
    let mut all = [candidate("a", &quiet), candidate("b", &other)];
    flag_unlike_runs(&mut all);
    assert!(all[0].rounds.iter().all(|run| run.noise.is_empty()));
    assert_eq!(kinds(&all[1].rounds[0]), []);
    assert_eq!(kinds(&all[1].rounds[1]), [NoiseKind::Frequency]);
    assert!((all[1].rounds[1].noise[0].value - 0.2).abs() < 1e-9);
    assert_eq!(kinds(&all[1].rounds[2]), [NoiseKind::Pressure]);
    let once = all.clone();
    flag_unlike_runs(&mut all);
    assert_eq!(all, once);
}

/// Goal: without figures, or with too few for a usual value, nothing is said.
#[test]
fn silence_where_nothing_is_known() {
    let mut two = [candidate("a", &[(3.0e9, 0.1), (1.0e9, 0.9)])];
    flag_unlike_runs(&mut two);
    assert!(two[0].rounds.iter().all(|run| run.noise.is_empty()));
    let mut none = [CandidateRounds::default()];
    flag_unlike_runs(&mut none);
    assert_eq!(none[0], CandidateRounds::default());
}
