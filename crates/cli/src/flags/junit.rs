//! A load run as cases of JUnit: the run itself, whether it can be believed, and each objective.

use millpond_load::{Ended, LoadRecord};
use millpond_measure::record::LoadStatus;
use millpond_measure::report::junit::{Case, Outcome, Suite};
use millpond_measure::slo::SloOutcome;

/// What a build server shows of a run. Objectives of a run that is not to be believed stand as they are,
/// beside the error that says so.
pub(super) fn suite(record: &LoadRecord, objectives: &[SloOutcome]) -> Suite {
    let case = |name: &str, outcome| Case {
        name: name.to_owned(),
        outcome,
    };
    let cases = [
        case("the run is complete", complete(record)),
        case("the measurement can be trusted", trusted(record)),
    ];
    Suite {
        name: "millpond load".to_owned(),
        duration_ns: record.duration_ns,
        cases: cases
            .into_iter()
            .chain(objectives.iter().map(Case::of_objective))
            .collect(),
    }
}

fn complete(record: &LoadRecord) -> Outcome {
    let (answered, failed) = (record.requests, record.errors.total());
    let figures = format!("{answered} requests were answered rightly, {failed} failed");
    match record.ended {
        Ended::Complete if answered == 0 && failed > 0 => Outcome::Failed(figures),
        Ended::Complete => Outcome::Passed(figures),
        Ended::Interrupted => Outcome::Error(format!("interrupted; {figures}")),
        Ended::TargetGone => Outcome::Failed(format!("the target went away; {figures}")),
        Ended::Aborted => {
            let condition = record.aborted.as_deref().unwrap_or_default();
            Outcome::Failed(format!("aborted: {condition}; {figures}"))
        }
    }
}

fn trusted(record: &LoadRecord) -> Outcome {
    let reasons = record.verdict.reasons.join("; ");
    match record.verdict.status {
        LoadStatus::Ok => Outcome::Passed("OK".to_owned()),
        LoadStatus::Suspect => Outcome::Passed(format!("with care: {reasons}")),
        LoadStatus::Invalid => Outcome::Error(reasons),
    }
}
