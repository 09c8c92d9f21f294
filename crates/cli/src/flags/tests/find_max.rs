use super::*;

fn report(ended: SearchEnd, requests: u64) -> SearchReport {
    let step = SearchStep {
        requests,
        ..SearchStep::default()
    };
    SearchReport {
        ended,
        steps: vec![step],
        ..SearchReport::default()
    }
}

/// Goal: the exit status distinguishes a found rate from every other end.
#[test]
fn every_end_has_its_status() {
    for (ended, exit) in [
        (SearchEnd::Found, Exit::Success),
        (SearchEnd::NoneHolds, Exit::SloMissed),
        (SearchEnd::GeneratorLimit, Exit::NotTrusted),
        (SearchEnd::Unsteady, Exit::NotTrusted),
        (SearchEnd::Interrupted, Exit::Interrupted),
        (SearchEnd::TargetGone, Exit::Failed),
        (SearchEnd::Failed, Exit::Failed),
    ] {
        assert_eq!(exit_of(&report(ended, 1)), exit, "{ended:?}");
    }
    assert_eq!(exit_of(&report(SearchEnd::NoneHolds, 0)), Exit::Failed);
}

#[test]
fn precisions_are_shares() {
    assert_eq!(parse_precision("2%"), Ok(0.02));
    for text in ["", "0", "0.01%", "60%", "2ms"] {
        assert!(parse_precision(text).is_err(), "{text}");
    }
}
