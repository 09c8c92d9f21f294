use super::*;
use millpond_measure::record::{LoadErrors, LoadSecond};

const MS_NS: u64 = 1_000_000;

fn show(watch: &mut AbortWatch<'_>, part: RunPart, answer_ms: u64, timeouts: u64) {
    let mut clocks = Clocks::default();
    clocks.response.record_many(answer_ms * MS_NS, 100);
    let figures = LoadSecond {
        part,
        requests: 100,
        duration_ns: 1_000 * MS_NS,
        errors: LoadErrors {
            timeout: timeouts,
            ..LoadErrors::default()
        },
        ..LoadSecond::default()
    };
    watch.second(&Second {
        figures: &figures,
        clocks: &clocks,
    });
}

/// Goal: shorter seconds, as at the end of a set of connections, do not make the judgement one of less time.
#[test]
fn shorter_seconds_count_as_what_they_are() {
    let rule = rule("errors>5%", 2);
    let mut watch = AbortWatch::new(Some(&rule), 0);
    let clocks = Clocks::default();
    let figures = LoadSecond {
        part: RunPart::Window,
        requests: 1,
        duration_ns: 700 * MS_NS,
        errors: LoadErrors {
            read: 1,
            ..LoadErrors::default()
        },
        ..LoadSecond::default()
    };
    let mut show = || {
        watch.second(&Second {
            figures: &figures,
            clocks: &clocks,
        });
        watch.reason.is_some()
    };
    assert!(!show() && !show() && show());
}

fn rule(when: &str, seconds: usize) -> AbortRule {
    AbortRule {
        when: when.parse().unwrap(),
        seconds,
    }
}

/// Goal: conditions are judged over the seconds asked for, warm-up included, the drain not.
#[test]
fn a_bad_stretch_is_noticed_and_a_bad_second_is_not() {
    let rule = rule("errors>5%", 3);
    let mut watch = AbortWatch::new(Some(&rule), 0);
    show(&mut watch, RunPart::WarmUp, 1, 0);
    show(&mut watch, RunPart::WarmUp, 1, 0);
    show(&mut watch, RunPart::Window, 1, 10);
    assert_eq!(watch.reason, None, "10 of 310");
    show(&mut watch, RunPart::Drain, 1, 1_000);
    assert_eq!(watch.reason, None);
    show(&mut watch, RunPart::Window, 1, 20);
    let reason = watch.reason.clone().unwrap();
    assert!(reason.starts_with("errors > 5 %: 9.1 %"), "{reason}");
    assert!(reason.ends_with("over 3 s"), "{reason}");
}

/// Goal: a target without any response in time is slow, though no response was: its timeouts count
/// with their age. Without a rule nothing is kept.
#[test]
fn silence_is_slow() {
    let rule = rule("errors>99%,p90>1s", 1);
    let mut watch = AbortWatch::new(Some(&rule), 2_000 * MS_NS);
    show(&mut watch, RunPart::Window, 1, 5);
    assert_eq!(watch.reason, None);
    show(&mut watch, RunPart::Window, 1, 50);
    assert!(watch.reason.clone().unwrap().starts_with("p90 > 1.00 s"));
    let mut nobody = AbortWatch::new(None, 0);
    show(&mut nobody, RunPart::Window, 1, 1_000_000);
    assert!(nobody.reason.is_none() && nobody.kept.is_empty());
}
