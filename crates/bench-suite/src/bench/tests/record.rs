use super::super::Figure;
use super::*;

fn record() -> Record {
    Record {
        name: "a".to_owned(),
        date: "2026-01-02".to_owned(),
        members: Vec::new(),
    }
}

/// Goal: the size of a record depends on how many figures it has, not on how often each was measured.
#[test]
fn a_record_of_many_runs_stays_small() {
    let runs: Vec<f64> = (0..100_000).map(|run| f64::from(run) / 3.0).collect();
    let figures: Vec<Value> = (0..10)
        .map(|number| Figure::median(format!("figure_{number}"), runs.clone()).at_most(1.0))
        .map(|figure| figure.to_json())
        .collect();
    let servers = json!([{ "server": "a", "resident_bytes": Spread::thirds(&runs) }]);
    let record = record().with("figures", figures).with("servers", servers);
    let text = record.text();
    assert_eq!(text.lines().count(), 19, "{text}");
    assert!(text.len() < 4_000, "{}", text.len());
    let read: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(read["figures"][9]["count"], 100_000);
    assert_eq!(read["figures"][0]["value"], 16_666.5);
    assert_eq!(
        read["servers"][0]["resident_bytes"]["last_third"]["max"],
        33_333
    );
}

/// Goal: an element is a line that begins with its name, and numbers are short enough to read.
#[test]
fn an_element_is_a_line() {
    let record = record()
        .with("pairs", 9)
        .with(
            "list",
            json!([{ "b": [0.1 + 0.2, 1e-7 / 3.0], "a": 2_511_021.4, "name": "c" }]),
        )
        .with("table", json!({ "key": "value \"quoted\"", "none": null }))
        .with("empty", json!([]));
    let expected = r#"{
  "name": "a",
  "date": "2026-01-02",
  "pairs": 9,
  "list": [
    {"name": "c", "a": 2511021, "b": [0.3, 3.33333e-8]}
  ],
  "table": {
    "key": "value \"quoted\"",
    "none": null
  },
  "empty": []
}
"#;
    assert_eq!(record.text(), expected);
    let read: Value = serde_json::from_str(&record.text()).unwrap();
    assert_eq!(read["table"]["key"], "value \"quoted\"");
}

/// Goal: the order of values does not matter, and of no values nothing is said.
#[test]
fn a_spread_is_of_sorted_values() {
    let spread = Spread::of([3.0, 1.0, 2.0, 10.0]);
    let expected = Spread {
        median: 2.5,
        min: 1.0,
        max: 10.0,
        count: 4,
    };
    assert_eq!(spread, expected);
    let none = Spread::of([]).to_json();
    assert_eq!(
        none,
        json!({"median": null, "min": null, "max": null, "count": 0})
    );
    let thirds = Spread::thirds(&[1.0, 5.0, 7.0]);
    assert_eq!(thirds["middle_third"]["median"], 5.0);
    assert_eq!(thirds["last_third"]["median"], 7.0);
}
