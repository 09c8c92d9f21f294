use super::*;

/// Goal: stamps that were asked for and did not come are missed in one line, for either reason.
#[test]
fn missing_stamps_are_told() {
    let flags = |receive_stamps| AccuracyFlags {
        receive_stamps,
        warm_up: None,
        abort: None,
        abort_over: SECOND_NS,
    };
    let record = |driver| LoadRecord {
        requests: 1,
        driver,
        ..LoadRecord::default()
    };
    let told = |driver| flags(true).missing(&record(driver)).unwrap();
    assert!(
        told("uring").contains("--driver epoll"),
        "{}",
        told("uring")
    );
    assert!(told("epoll").contains("this kernel"), "{}", told("epoll"));
    assert_eq!(flags(false).missing(&record("uring")), None);
    let mut stamped = record("epoll");
    stamped.wake_delay.record(1);
    assert_eq!(flags(true).missing(&stamped), None);
    assert!(parse_switch("maybe").is_err());
}

#[test]
fn warm_ups_last_or_end_by_themselves() {
    let lasting = |duration_ns| Ok(WarmUp::Lasting { duration_ns });
    let until_steady = |limit_ns| Ok(WarmUp::UntilSteady { limit_ns });
    assert_eq!(parse_warm_up("2s"), lasting(2 * SECOND_NS));
    assert_eq!(parse_warm_up("auto"), until_steady(30 * SECOND_NS));
    assert_eq!(parse_warm_up("auto:5s"), until_steady(5 * SECOND_NS));
    for bad in ["", "auto5s", "auto:", "automatic", "soon"] {
        assert!(parse_warm_up(bad).is_err(), "{bad}");
    }
}
