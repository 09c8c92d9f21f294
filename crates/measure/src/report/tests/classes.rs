use super::*;
use crate::record::LoadClass;

/// Goal: one row for each class, columns below each other, long names cut at the front.
#[test]
fn classes_are_a_table() {
    assert_eq!(classes_text(&LoadReport::default()), "");
    let class = |name: &str, requests, p50| LoadClass {
        name: name.to_owned(),
        requests,
        response_ns: LatencySummary {
            p50,
            p90: 2 * p50,
            ..LatencySummary::default()
        },
        ..LoadClass::default()
    };
    let long = format!("http://127.0.0.1/{}/end", "x".repeat(60));
    let report = LoadReport {
        classes: vec![class("read", 1_000, 150_000), class(&long, 5, 2_000_000)],
        ..LoadReport::default()
    };
    let text = classes_text(&report);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(
        lines.iter().all(|line| line.len() == lines[0].len()),
        "{text}"
    );
    assert!(
        lines[1].contains("read") && lines[1].contains("150.00us"),
        "{text}"
    );
    assert!(
        lines[2].contains("...") && lines[2].contains("xx/end "),
        "{text}"
    );
}
