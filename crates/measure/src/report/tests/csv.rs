use super::*;

/// Goal: as many values as names, each under its own, and a URL with commas stays one field.
#[test]
fn names_and_values_stand_in_columns() {
    let report = LoadReport {
        url: "http://h/?a=1,2&b=\"x\"".to_owned(),
        requests: 12,
        rate_per_s: Some(0.5),
        shed: 3,
        service_ns: LatencySummary {
            p99: 77,
            ..LatencySummary::default()
        },
        ..LoadReport::default()
    };
    let text = text(&report);
    let (names, values) = text.trim_end().split_once('\n').unwrap();
    let rest = values
        .strip_prefix("\"http://h/?a=1,2&b=\"\"x\"\"\"")
        .unwrap();
    let names: Vec<&str> = names.split(',').skip(1).collect();
    let values: Vec<&str> = rest.split(',').skip(1).collect();
    assert_eq!(names.len(), values.len());
    let value = |name: &str| values[names.iter().position(|&one| one == name).unwrap()];
    assert_eq!(value("requests"), "12");
    assert_eq!(value("rate_per_s"), "0.5");
    assert_eq!(value("shed"), "3");
    assert_eq!(value("service_p99_ns"), "77");
    assert_eq!(value("verdict"), "OK");
    assert!(
        super::text(&LoadReport::default()).contains(",,"),
        "no rate"
    );
}
