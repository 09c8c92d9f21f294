//! Every format of `millpond load`, byte for byte, of one made-up run; and the texts of wrk and ab
//! against those programs' own. `MILLPOND_UPDATE_GOLDEN=1` writes the files anew: read the difference.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

use millpond_measure::histogram::LatencyHistogram;
use millpond_measure::record::{
    LoadErrors, LoadHistograms, LoadReport, LoadSecond, LoadStatus, LoadVerdict, RunPart,
};
use millpond_measure::report::{ab, csv, hlog, wrk};
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

fn samples(step_ns: u64) -> LatencyHistogram {
    let mut histogram = LatencyHistogram::new();
    (1..=2_000_u64).for_each(|step| histogram.record(step * step_ns));
    histogram
}

/// 2,000 responses and three failures in two seconds.
fn run() -> (LoadReport, LoadHistograms) {
    let mut thread_rates = LatencyHistogram::new();
    for per_s in [490, 500, 505, 510] {
        thread_rates.record(per_s);
    }
    let mut connect = LatencyHistogram::new();
    connect.record_many(0, 1_996);
    connect.record_many(1_200_000, 4);
    let histograms = LoadHistograms {
        response: samples(1_500),
        service: samples(1_000),
        slip: samples(500),
        connect,
        waiting: samples(900),
        total: samples(1_010),
        thread_rates,
        ..LoadHistograms::default()
    };
    let report = LoadReport {
        format_version: 1,
        version: "1.2.3".to_owned(),
        url: "http://127.0.0.1:8080/plaintext".to_owned(),
        started_unix_ns: 1_500_000_000_250_000_000,
        threads: 2,
        connections: 4,
        pipeline: 1,
        driver: "epoll".to_owned(),
        rate_per_s: Some(1_000.0),
        arrivals: Some("constant".to_owned()),
        offered: Some(2_003),
        sent: 2_003,
        answered_in_window: 1_999,
        requests: 2_000,
        errors: LoadErrors {
            timeout: 1,
            status: 2,
            ..LoadErrors::default()
        },
        duration_ns: 2_000_000_000,
        requests_per_s: 999.5,
        server: "millpond".to_owned(),
        document_bytes: 13,
        body_bytes: 26_034,
        keep_alive_requests: 2_002,
        bytes_received: 314_314,
        response_ns: histograms.response.summary(),
        service_ns: histograms.service.summary(),
        connect_ns: histograms.connect.summary(),
        waiting_ns: histograms.waiting.summary(),
        slip_ns: histograms.slip.summary(),
        statuses: [(200, 2_000), (503, 2)].into(),
        generator_cpu_share: Some(0.25),
        verdict: LoadVerdict {
            status: LoadStatus::Suspect,
            reasons: vec!["3 failures (0.15 %)".to_owned()],
            notes: Vec::new(),
        },
        histograms: Some(histograms.clone()),
        ..LoadReport::default()
    };
    (report, histograms)
}

fn times(histograms: &LoadHistograms) -> ab::Times<'_> {
    ab::Times {
        connect: &histograms.connect,
        processing: &histograms.service,
        waiting: &histograms.waiting,
        total: &histograms.total,
    }
}

fn file(name: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    directory.join("tests/golden").join(name)
}

/// Compressed bytes are the compressor's, and differ from version to version of it.
fn without_blobs(text: &str) -> String {
    let is_blob = |letter: char| letter.is_ascii_alphanumeric() || "+/=".contains(letter);
    let mut parts = text.split("HISTFAAA");
    let mut short = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        short += "HISTFAAA...";
        short += part.trim_start_matches(is_blob);
    }
    short
}

#[track_caller]
fn check(name: &str, text: &str) {
    let text = without_blobs(text);
    if std::env::var_os("MILLPOND_UPDATE_GOLDEN").is_some() {
        std::fs::write(file(name), &text).unwrap();
    }
    let golden = std::fs::read_to_string(file(name)).unwrap();
    assert_eq!(text, golden, "{name}");
}

/// Goal: no format changes unnoticed.
#[test]
fn formats_are_as_they_were() {
    let (report, histograms) = run();
    let LoadHistograms {
        response,
        service,
        slip,
        thread_rates,
        ..
    } = &histograms;
    let rates = thread_rates.sample_summary();
    let header = wrk::header(&report.url, report.duration_ns, 2, 4);
    let text = wrk::results(&report, response, &rates, true) + &wrk::clocks(&report);
    check("wrk.txt", &format!("{header}{text}"));
    let blocks = wrk::Blocks {
        recorded: true,
        uncorrected: true,
    };
    let text = wrk::wrk2_results(&report, response, service, &rates, blocks);
    check("wrk2.txt", &format!("{header}{text}"));
    check(
        "ab.txt",
        &ab::text(&report, &times(&histograms), ab::Style::default()),
    );
    check("ab.csv", &ab::csv(&histograms.total));
    check("run.csv", &csv::text(&report));
    check("run.hgrm", &wrk::spectrum_text(response));
    check("run.json", &report.to_json().unwrap());
    check(
        "run.v2",
        &hlog::compressed(&report, [response, service, slip]).unwrap(),
    );
    let seconds = [RunPart::WarmUp, RunPart::Window].map(|part| LoadSecond {
        part,
        second: u64::from(part == RunPart::Window),
        duration_ns: 1_000_000_000,
        requests: response.count(),
        response_ns: response.summary(),
        ..LoadSecond::default()
    });
    let mut lines: String = seconds.iter().map(|one| one.to_line().unwrap()).collect();
    lines += &report.to_line().unwrap();
    check("run.ndjson", &lines);
    let started = UNIX_EPOCH + Duration::from_nanos(report.started_unix_ns);
    let mut log = hlog::header(&report.version, started);
    for second in &seconds {
        log += &hlog::second(second, [response, service, slip]);
    }
    check("run.hlog", &(log + &hlog::remark(&report).unwrap()));
}

/// Lines with numbers and their units made equal, and blanks of any width one.
fn structure(text: &str) -> Vec<String> {
    let word = |word: &str| {
        let digits = word.trim_start_matches(['(', '[']);
        if digits.starts_with(|letter: char| letter.is_ascii_digit()) {
            let percent = if word.ends_with('%') { "%" } else { "" };
            format!("N{percent}")
        } else {
            word.to_owned()
        }
    };
    let line = |line: &str| {
        line.split_whitespace()
            .map(word)
            .collect::<Vec<_>>()
            .join(" ")
    };
    text.lines().map(line).collect()
}

/// Goal: scripts that read wrk's and ab's texts find each line where those programs print it. The
/// files are what wrk 4.1 and ab 2.3 printed of runs against `millpond serve plaintext`.
#[test]
fn texts_are_those_of_the_programs() {
    let (mut report, histograms) = run();
    report.errors = LoadErrors::default();
    report.statuses.remove(&503);
    let real = std::fs::read_to_string(file("wrk.real.txt")).unwrap();
    let rates = histograms.thread_rates.sample_summary();
    let header = wrk::header(&report.url, report.duration_ns, 2, 4);
    let ours = header + &wrk::results(&report, &histograms.response, &rates, true);
    assert_eq!(
        structure(&ours.replace(&report.url, "URL"))[1..],
        structure(&real)[1..]
    );

    let real = std::fs::read_to_string(file("ab.real.txt")).unwrap();
    let ours = ab::text(&report, &times(&histograms), ab::Style::default());
    let results = |text: &str| {
        let start = text.find("Server Software:").unwrap();
        structure(&text[start..])
    };
    assert_eq!(results(&ours), results(&real));
    // The columns too, where numbers begin and end.
    let line = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.len()
    };
    for name in [
        "Connect:",
        "Processing:",
        "Waiting:",
        "Total:",
        "  50%",
        " 100%",
    ] {
        assert_eq!(line(&ours, name), line(&real, name), "{name}");
    }
}

/// Goal: HdrHistogram's plotter takes each row of a file for a point, by its own rule: four words,
/// no `#` in front, the first and the last of them numbers.
#[test]
fn the_plotter_accepts_the_files() {
    let (_, histograms) = run();
    let text = wrk::spectrum_text(&histograms.response);
    let mut points = 0;
    for line in text
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with('#'))
    {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_point = words.len() == 4
            && words[0].parse::<f64>().is_ok()
            && words[3].parse::<f64>().is_ok_and(f64::is_finite);
        let is_known = is_point || words.is_empty() || line.ends_with("inf") || words[0] == "Value";
        assert!(is_known, "{line}");
        points += usize::from(is_point);
    }
    assert!(points > 30, "{points}");
}
