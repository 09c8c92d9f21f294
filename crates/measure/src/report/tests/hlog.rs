use super::*;

fn samples(values_us: &[u64]) -> LatencyHistogram {
    let mut histogram = LatencyHistogram::new();
    values_us.iter().for_each(|us| histogram.record(us * 1_000));
    histogram
}

fn figures(part: RunPart, start_ns: u64) -> LoadSecond {
    LoadSecond {
        part,
        start_ns,
        duration_ns: 1_000_000_000,
        ..LoadSecond::default()
    }
}

fn log() -> String {
    let started = UNIX_EPOCH + Duration::from_millis(1_500_000_000_250);
    let mut text = header("1.2.3", started);
    let [one, two, three] = [samples(&[1, 2]), samples(&[1]), samples(&[0, 9])];
    text += &second(&figures(RunPart::WarmUp, 0), [&two, &two, &two]);
    text += &second(
        &figures(RunPart::Window, 1_000_000_000),
        [&one, &two, &three],
    );
    text += &second(&figures(RunPart::Drain, 2_000_000_000), [&two, &two, &two]);
    let report = LoadReport {
        requests: 3,
        ..LoadReport::default()
    };
    text + &remark(&report).unwrap()
}

/// Goal: HdrHistogram's own reader finds every line, its times and its clock.
#[test]
fn the_log_is_one_for_other_tools() {
    let text = log();
    let entries: Vec<LogEntry<'_>> = IntervalLogIterator::new(text.as_bytes())
        .collect::<Result<_, _>>()
        .unwrap();
    let [LogEntry::StartTime(start), LogEntry::BaseTime(base)] = entries[..2] else {
        panic!("{entries:?}");
    };
    assert_eq!(
        (start, base),
        (Duration::from_millis(1_500_000_000_250), start)
    );
    let intervals: Vec<(&str, Duration, f64)> = entries[2..]
        .iter()
        .map(|entry| match entry {
            LogEntry::Interval(one) => (
                one.tag().unwrap().as_str(),
                one.start_timestamp(),
                one.max(),
            ),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(intervals.len(), 9);
    assert_eq!(intervals[0], ("warm_up.response", Duration::ZERO, 0.001));
    assert_eq!(intervals[3], ("response", Duration::from_secs(1), 0.002));
    assert_eq!(intervals[5], ("slip", Duration::from_secs(1), 0.009));
}

/// Goal: counts in a file equal the recorded counts, of the log as of the compressed histograms.
#[test]
fn files_are_read_back() {
    let (report, [response, service, slip]) = read(&log()).unwrap();
    assert_eq!(report.requests, 3);
    assert_eq!(response, samples(&[1, 2, 1]));
    assert_eq!(service, samples(&[1, 1]));
    assert_eq!(slip, samples(&[0, 9, 1]));

    let text = compressed(&report, [&response, &service, &slip]).unwrap();
    assert!(text.starts_with("response HISTFAAA"), "{text}");
    let (again, clocks) = read(&text).unwrap();
    assert_eq!((again, clocks), (report, [response, service, slip]));
}

/// Goal: a file that was cut off is refused, not merged in part.
#[test]
fn cut_files_are_refused() {
    let text = log();
    let cut = &text[..text.find(REMARK).unwrap()];
    assert!(matches!(read(cut), Err(LogError::NoRecord)));
    let damaged = text.replace("HISTFAAA", "HOSTFAAA");
    assert!(matches!(read(&damaged), Err(LogError::Histogram(_))));
    let odd = text.replacen("Tag=slip", "Tug=slip", 1);
    assert!(
        matches!(read(&odd), Err(LogError::Line { .. })),
        "{:?}",
        read(&odd)
    );
}
