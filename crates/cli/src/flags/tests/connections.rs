use super::*;

/// Goal: a unit of time makes it a time, and what is neither is refused with an example of both.
#[test]
fn a_time_is_told_from_a_number() {
    let time = |ms: u64| Ok(Reconnect::EveryNs(ms * 1_000_000));
    assert_eq!(parse_reconnect("2s"), time(2_000));
    assert_eq!(parse_reconnect("250ms"), time(250));
    assert_eq!(parse_reconnect("5m"), time(300_000));
    assert_eq!(
        parse_reconnect("10000"),
        Ok(Reconnect::EveryRequests(10_000))
    );
    assert_eq!(parse_reconnect("50k"), Ok(Reconnect::EveryRequests(50_000)));
    for bad in ["", "0", "0s", "soon", "-1", "2 weeks"] {
        let problem = parse_reconnect(bad).unwrap_err();
        assert!(problem.contains("as 2s"), "{bad}: {problem}");
    }
}
