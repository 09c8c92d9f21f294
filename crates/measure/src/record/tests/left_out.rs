use super::*;

/// Goal: each cause is written and read back, and says what happened in a few words; a cause of a later version
/// is read as another one.
#[test]
fn causes_are_read_back() {
    let last_lines = vec!["free(): invalid pointer".to_owned()];
    let causes = [
        (
            FailureCause::Crashed {
                signal: Some(11),
                exit_status: None,
                last_lines: last_lines.clone(),
            },
            "crashed (SIGSEGV)",
        ),
        (
            FailureCause::Crashed {
                signal: None,
                exit_status: Some(3),
                last_lines: Vec::new(),
            },
            "ended (exit status 3)",
        ),
        (
            FailureCause::Hung {
                after_requests: 200,
                silent_ns: 10,
            },
            "hung after 200 responses",
        ),
        (
            FailureCause::KilledForMemory {
                limit_bytes: Some(64 << 20),
                is_counted: true,
            },
            "killed for memory (limit 64.0 MiB)",
        ),
        (
            FailureCause::NoAddressSpace {
                limit_bytes: None,
                last_lines: Vec::new(),
            },
            "no address space",
        ),
        (
            FailureCause::FailedRequests {
                failed: 14,
                requests: 140,
                statuses: [("500".to_owned(), 12)].into(),
                timeouts: 2,
                connects: 0,
            },
            "10 % of requests failed (status 500, timeout)",
        ),
        (FailureCause::WrongAnswers, "wrong responses"),
    ];
    for (cause, label) in causes {
        let json = serde_json::to_string(&cause).unwrap();
        assert_eq!(serde_json::from_str::<FailureCause>(&json).unwrap(), cause);
        assert_eq!(cause.label(), label);
    }
    let later = r#"{"kind": "moved_to_mars", "distance": 3}"#;
    let later: FailureCause = serde_json::from_str(later).unwrap();
    assert_eq!(later, FailureCause::Other);
    assert!(!later.is_its_own() && FailureCause::NotInUse.is_its_own());
}

/// Goal: an entry of `left_out` has the fields that are promised.
#[test]
fn an_entry_has_its_fields() {
    let entry = LeftOut {
        candidate: "x".to_owned(),
        cause: FailureCause::NotInUse,
        sentence: "it is not mapped".to_owned(),
        when: LeftOutWhen::Round(3),
        rounds_done: 1,
    };
    let json = serde_json::to_value(&entry).unwrap();
    assert_eq!(json["cause"]["kind"], "not_in_use");
    assert_eq!(json["when"]["round"], 3);
    assert_eq!(serde_json::from_value::<LeftOut>(json).unwrap(), entry);
    let tried = serde_json::to_value(LeftOutWhen::TriedOut).unwrap();
    assert_eq!(tried, "tried_out");
    assert_eq!(entry.label(), "allocator not in use in round 3");
}
