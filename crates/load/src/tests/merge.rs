use super::*;
use millpond_measure::record::LoadRateWindow;
use proptest::prelude::*;

const WINDOW_NS: u64 = 2_000_000_000;

/// Responses as (slip, service, status is 200).
type Answers = Vec<(u64, u64, bool)>;

/// The record of a generator with these.
fn record(answers: &[(u64, u64, bool)], threads: usize) -> LoadRecord {
    let mut record = LoadRecord {
        threads,
        connections: 3 * threads,
        pipeline: 1,
        driver: "epoll",
        duration_ns: WINDOW_NS,
        rate_per_s: Some(100.0 * threads as f64),
        arrivals: Some("constant".to_owned()),
        offered: Some(answers.len() as u64),
        sent: answers.len() as u64,
        steal_share: Some(0.0),
        ..LoadRecord::default()
    };
    record.classes = ["read", "update"].map(class).into();
    for &(slip_ns, service_ns, is_right) in answers {
        let class = &mut record.classes[(service_ns % 2) as usize];
        if is_right {
            class.answers += 1;
            class.response.record(slip_ns + service_ns);
            class.service.record(service_ns);
            record.requests += 1;
            record.response.record(slip_ns + service_ns);
            record.service.record(service_ns);
            record.slip.record(slip_ns);
            record.lateness.record(slip_ns / 2);
            record.blocked.record(slip_ns - slip_ns / 2);
            record.wake_delay.record(service_ns / 9);
            record.kernel_service.record(service_ns - service_ns / 9);
            record.waiting.record(service_ns / 3);
            record.opening.record(service_ns / 5);
            record.tls.get_or_insert_default().resumed += 1;
            record.body_bytes += 5;
            *record.statuses.entry(200).or_default() += 1;
        } else {
            class.errors.status += 1;
            record.wrong_answers.status += 1;
            record.errors.status += 1;
            record.unanswered.record(service_ns);
            *record.statuses.entry(503).or_default() += 1;
        }
        record.bytes_received += 7;
    }
    record.answered_in_window = record.requests;
    record.rate_window = LoadRateWindow {
        duration_ns: WINDOW_NS,
        answers: record.requests,
        bytes_received: record.bytes_received,
        ..LoadRateWindow::default()
    };
    record.requests_per_s = record.rate_window.per_s();
    record.judged()
}

fn class(name: &str) -> ClassRecord {
    ClassRecord {
        name: name.to_owned(),
        ..ClassRecord::default()
    }
}

fn through_json(record: &LoadRecord) -> LoadRecord {
    let text = record.to_report().to_json().unwrap();
    let report: LoadReport = serde_json::from_str(&text).unwrap();
    LoadRecord::from_report(&report).unwrap()
}

/// Each case writes dozens of histograms and reads them back: few, unless `PROPTEST_CASES` asks for
/// more.
fn cases() -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(32),
    }
}

proptest! {
    #![proptest_config(cases())]

    /// Goal: the records of parts, written and read back, make the record of the whole: every
    /// count, every bin, the rate and the verdict.
    #[test]
    fn parts_make_the_whole(
        parts in prop::collection::vec(
            prop::collection::vec((0_u64..1 << 30, 1_u64..1 << 33, prop::bool::weighted(0.9)), 0..60),
            1..5,
        ),
    ) {
        let whole: Answers = parts.concat();
        let expected = record(&whole, parts.len());
        let records = parts.iter().map(|part| through_json(&record(part, 1)));
        let merged = LoadRecord::merged(records).unwrap();
        prop_assert_eq!(merged.to_report(), expected.to_report());
    }
}

/// Goal: the longer window is the window, the first start the start, the worst end the end.
#[test]
fn settings_are_those_of_all() {
    let mut one = record(&[(0, 5, true)], 1);
    let mut two = record(&[(0, 5, true); 3], 2);
    (one.driver, one.started_unix_ns) = ("uring", 50);
    (two.duration_ns, two.rate_window.duration_ns) = (WINDOW_NS / 2, WINDOW_NS / 2);
    (two.started_unix_ns, two.ended) = (40, Ended::Interrupted);
    two.arrivals = Some("poisson".to_owned());
    let merged = LoadRecord::merged([one, two]).unwrap();
    assert_eq!((merged.threads, merged.connections), (3, 9));
    assert_eq!((merged.driver, merged.started_unix_ns), ("mixed", 40));
    assert_eq!(
        (merged.duration_ns, merged.requests_per_s),
        (WINDOW_NS, 2.0)
    );
    assert_eq!(merged.rate_per_s, Some(300.0));
    assert_eq!(merged.arrivals.as_deref(), Some("constant and poisson"));
    assert_eq!(merged.ended, Ended::Interrupted);
    assert!(merged.verdict.reasons[0].contains("interrupted"));
}

/// Goal: records that cannot be merged are refused with the reason.
#[test]
fn what_is_not_one_run_is_refused() {
    let merge = |records: Vec<LoadRecord>| LoadRecord::merged(records).map(|_| ());
    assert_eq!(merge(vec![]), Err(MergeError::Nothing));
    let closed = LoadRecord {
        arrivals: None,
        ..record(&[], 1)
    };
    assert_eq!(merge(vec![closed, record(&[], 1)]), Err(MergeError::Loops));
    let bare = LoadReport::default();
    let refused = LoadRecord::from_report(&bare).map(|_| ());
    assert_eq!(refused, Err(MergeError::NoSamples));
}
