use super::*;
use crate::record::{ClassRecord, Ended};
use millpond_measure::record::{LoadConnectionsOpen, LoadRateWindow, LoadSecond};

const SECOND_NS: u64 = 1_000_000_000;

fn set(answers: u64, end: RateWindowEnd, started_s: u64) -> LoadRecord {
    let mut record = LoadRecord {
        threads: 2,
        connections: 8,
        requests: answers + 1,
        sent: answers + 1,
        duration_ns: 2 * SECOND_NS,
        rate_window: LoadRateWindow {
            duration_ns: SECOND_NS,
            answers,
            bytes_received: 10 * answers,
            end,
            ..LoadRateWindow::default()
        },
        connections_open: Some(LoadConnectionsOpen {
            due_at_start: 8,
            at_start: answers,
            at_end: 8,
        }),
        classes: vec![ClassRecord {
            answers,
            ..ClassRecord::default()
        }],
        seconds: vec![LoadSecond::default()],
        started_unix_ns: started_s * SECOND_NS,
        ..LoadRecord::default()
    };
    record.response.record_many(5, answers + 1);
    record
}

/// Goal: windows and counts add up, settings stay, seconds go on, and the fewest connections are reported.
#[test]
fn sets_make_one_run() {
    let mut run = set(6, RateWindowEnd::NoRequestLeft, 100);
    run.add_sequel(set(4, RateWindowEnd::Time, 107));
    assert_eq!((run.threads, run.connections), (2, 8));
    assert_eq!((run.requests, run.sent, run.response.count()), (12, 12, 12));
    assert_eq!(run.duration_ns, 4 * SECOND_NS);
    assert_eq!((run.requests_per_s, run.answered_in_window), (5.0, 10));
    assert_eq!(run.rate_window.bytes_received, 100);
    assert_eq!(run.classes[0].answers, 10);
    assert_eq!(run.connections_open.unwrap().at_start, 4);
    let second = &run.seconds[1];
    assert_eq!((second.second, second.start_ns), (1, 7 * SECOND_NS));
    assert_eq!(run.ended, Ended::Complete);
}

/// Goal: a rest without a window of its own takes no part in the rate, wherever it stands, but in all else.
#[test]
fn a_small_rest_does_not_decide_the_rate() {
    let whole = set(6, RateWindowEnd::NoRequestLeft, 100);
    let rest = set(1, RateWindowEnd::LastAnswer, 103);
    for [one, other] in [[&whole, &rest], [&rest, &whole]] {
        let mut run = one.clone();
        run.add_sequel(other.clone());
        assert_eq!((run.requests_per_s, run.requests), (6.0, 9));
        assert_eq!(run.classes[0].answers, 6);
        assert_eq!(run.rate_window.end, RateWindowEnd::NoRequestLeft);
    }
    let mut rests = rest.clone();
    rests.add_sequel(rest);
    assert_eq!(rests.requests_per_s, 1.0);
}
