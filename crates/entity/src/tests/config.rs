use super::*;

/// Goal: printed values parse back, and near misses are refused.
#[test]
fn policies_round_trip_and_others_are_refused() {
    for text in ["always", "interval:250", "off"] {
        assert_eq!(text.parse::<SyncPolicy>().unwrap().to_string(), text);
    }
    for text in [
        "",
        "Always",
        "interval",
        "interval:",
        "interval:0",
        "interval:-1",
        "none",
    ] {
        assert!(text.parse::<SyncPolicy>().is_err(), "{text}");
    }
}
