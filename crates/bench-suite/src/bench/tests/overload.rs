use super::*;
use serde_json::json;

#[test]
fn every_fate_is_counted() {
    let errors = json!({"read": 1, "write": 2, "timeout": 3, "status": 4, "validation": 5});
    let record = json!({
        "offered": 120, "shed": 20, "abandoned": 5, "errors": errors,
        "response_ns": {"count": 79},
    });
    assert_eq!(not_accounted_for(&record), Ok(1.0));
    assert!(not_accounted_for(&json!({})).is_err());
}
