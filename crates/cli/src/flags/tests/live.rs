use super::*;

const WIDE: Screen = Screen {
    columns: 80,
    rows: 24,
    has_colour: true,
};

fn live() -> Live {
    let mut live = Live {
        title: "http://h/ 64 connections".to_owned(),
        ..Live::default()
    };
    for rate in 0..100 {
        keep(&mut live.rates, f64::from(rate));
    }
    let clock = LatencySummary {
        p50: 25_000,
        p90: 44_000,
        p99: 252_000,
        max: 13_700_000,
        ..LatencySummary::default()
    };
    keep(&mut live.p99s, 252_000.0);
    live.last = Some((clock, LatencySummary::default()));
    live
}

fn now() -> Progress {
    Progress {
        completed: 3_000,
        rate_per_s: 1_000.0,
        elapsed_ns: 3_000_000_000,
        remaining_ns: Some(9_000_000_000),
        ..Progress::default()
    }
}

fn text(lines: &[(String, Option<Colour>)]) -> String {
    let lines: Vec<&str> = lines.iter().map(|(line, _)| line.as_str()).collect();
    lines.join("\n")
}

/// Goal: rate, percentiles, send delay and errors stand there, and how long it still takes.
#[test]
fn everything_is_shown() {
    let lines = live().lines(&now(), &WIDE);
    let shown = text(&lines);
    for part in [
        "http://h/ 64 connections",
        "measuring, 3 s gone",
        "9 s left (25 %)",
        "p99 252",
        "delay",
        "errors    none",
        "▇█",
    ] {
        assert!(shown.contains(part), "{part}:\n{shown}");
    }
    assert!(lines.iter().all(|(_, tone)| *tone != Some(Colour::Bad)));
}

/// Goal: no line is longer than the terminal is wide, however narrow, and a low one gets two.
#[test]
fn small_terminals_are_not_overdrawn() {
    for columns in [1, 10, 23, 31, 32, 79, 200] {
        let screen = Screen { columns, ..WIDE };
        let lines = live().lines(&now(), &screen);
        assert_eq!(lines.len(), 7);
        let longest = lines.iter().map(|(line, _)| line.chars().count()).max();
        assert!(longest <= Some(columns), "{columns}: {}", text(&lines));
    }
    let drawn = Live {
        drawn: vec![80, 0, 41, 40],
        ..Live::default()
    };
    let narrower = Screen {
        columns: 40,
        ..WIDE
    };
    assert_eq!(drawn.back(&narrower), "\r\x1b[6A", "wrapped lines count");
    let low = Screen { rows: 9, ..WIDE };
    assert_eq!(live().lines(&now(), &low).len(), 2);
}

/// Goal: failures are named and stand out; before the first second nothing is made up.
#[test]
fn failures_stand_out() {
    let mut now = now();
    now.errors.timeout = 3;
    now.errors.validation = 1;
    now.is_warm_up = true;
    let lines = Live::default().lines(&now, &WIDE);
    let (line, tone) = lines.last().unwrap();
    assert_eq!(
        (line.as_str(), *tone),
        ("errors    timeout 3, content 1", Some(Colour::Bad))
    );
    let shown = text(&lines);
    assert!(
        shown.contains("warming up") && shown.contains("response  -"),
        "{shown}"
    );
}
