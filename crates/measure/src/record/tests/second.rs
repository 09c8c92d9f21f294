use super::*;

/// Goal: each line is one JSON object that says what it is.
#[test]
fn lines_say_what_they_are() {
    let second = LoadSecond {
        part: RunPart::WarmUp,
        requests: 3,
        ..LoadSecond::default()
    };
    let text = second.to_line().unwrap();
    assert!(
        text.starts_with(r#"{"type":"second","part":"warm_up","second":0"#),
        "{text}"
    );
    assert!(text.ends_with("}\n") && text.lines().count() == 1);
    let again: LoadSecond = serde_json::from_str(&text).unwrap();
    assert_eq!(again, second);
    let text = LoadReport::default().to_line().unwrap();
    assert!(
        text.starts_with(r#"{"type":"summary","format_version""#),
        "{text}"
    );
}
