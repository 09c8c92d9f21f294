//! Runs under other circumstances than their fellows: another processor frequency, more waiting.
//!
//! On the path: `lab` notes frequency and pressure of each phase as it ends, and asks for the flags once
//! there are runs to compare with: when it looks at the data, and at the end.

use super::{FREQUENCY_CHANGE_LIMIT, PRESSURE_LIMIT};
use crate::record::{CandidateRounds, NoiseFlag, NoiseKind, RoundMeasures};
use crate::statistics::median;

/// Fewer runs do not say what is usual.
const RUNS_MIN: usize = 3;

/// Flags the runs whose frequency differs from the median of all runs in the same phase, and those with
/// more pressure than the median of the same candidate's. Asking again gives the same flags.
pub fn flag_unlike_runs(candidates: &mut [CandidateRounds]) {
    let runs = candidates.iter_mut().flat_map(|one| &mut one.rounds);
    for run in runs {
        run.noise
            .retain(|flag| !matches!(flag.kind, NoiseKind::Frequency | NoiseKind::Pressure));
    }
    let all = candidates.iter().flat_map(|one| &one.rounds);
    let usual = Usual::of(all, |run| &run.cpu_frequency_hz);
    for run in candidates.iter_mut().flat_map(|one| &mut one.rounds) {
        let change = |here: f64, usual: f64| (here / usual - 1.0).abs();
        let flags = usual.flags(&run.cpu_frequency_hz, NoiseKind::Frequency, change);
        run.noise.extend(flags);
    }
    for candidate in candidates {
        let usual = Usual::of(candidate.rounds.iter(), |run| &run.cpu_pressure);
        for run in &mut candidate.rounds {
            let more = |here: f64, usual: f64| here - usual;
            let flags = usual.flags(&run.cpu_pressure, NoiseKind::Pressure, more);
            run.noise.extend(flags);
        }
    }
}

type Phases = std::collections::BTreeMap<String, f64>;

/// The median of each phase that enough runs have.
struct Usual(Phases);

impl Usual {
    fn of<'a>(
        runs: impl Iterator<Item = &'a RoundMeasures>,
        pick: impl Fn(&'a RoundMeasures) -> &'a Phases,
    ) -> Self {
        let mut values: std::collections::BTreeMap<&str, Vec<f64>> = Default::default();
        for (phase, value) in runs.flat_map(pick) {
            values.entry(phase).or_default().push(*value);
        }
        let medians = values.into_iter().filter_map(|(phase, mut values)| {
            let enough = values.len() >= RUNS_MIN;
            Some((phase.to_owned(), median(&mut values).filter(|_| enough)?))
        });
        Self(medians.collect())
    }

    fn flags(
        &self,
        phases: &Phases,
        kind: NoiseKind,
        distance: impl Fn(f64, f64) -> f64,
    ) -> Vec<NoiseFlag> {
        let limit = match kind {
            NoiseKind::Frequency => FREQUENCY_CHANGE_LIMIT,
            _ => PRESSURE_LIMIT,
        };
        phases
            .iter()
            .filter_map(|(phase, here)| {
                let value = distance(*here, *self.0.get(phase)?);
                (value > limit).then(|| NoiseFlag {
                    kind,
                    value,
                    limit,
                    phase: Some(phase.clone()),
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
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

    /// Goal: without figures, or with too few to know what is usual, nothing is said.
    #[test]
    fn silence_where_nothing_is_known() {
        let mut two = [candidate("a", &[(3.0e9, 0.1), (1.0e9, 0.9)])];
        flag_unlike_runs(&mut two);
        assert!(two[0].rounds.iter().all(|run| run.noise.is_empty()));
        let mut none = [CandidateRounds::default()];
        flag_unlike_runs(&mut none);
        assert_eq!(none[0], CandidateRounds::default());
    }
}
