use super::*;

/// Goal: lines are read as they are written; one that is cut is none.
#[test]
fn lines_are_read() {
    let expected = Exchange {
        written_unix_ns: 1,
        slip_ns: 2,
        service_ns: 5,
        kernel_service_ns: Some(6),
    };
    assert_eq!(parse("1,2,3,4,5,6"), Some(expected));
    let unstamped = Exchange {
        kernel_service_ns: None,
        ..expected
    };
    assert_eq!(parse("1,2,3,4,5,"), Some(unstamped));
    assert_eq!(parse("1,2,3,4,5"), None);
    assert_eq!(parse("1,2,3,4,x,"), None);
}

/// Goal: a stall takes the requests under way with it, however late they left, and no others; the
/// percentile is of the rest.
#[test]
fn what_a_stall_disturbed_is_left_out() {
    let one = |due_ns: u64, slip_ns, service_ns| Exchange {
        written_unix_ns: due_ns + slip_ns,
        slip_ns,
        service_ns,
        kernel_service_ns: Some(service_ns),
    };
    let mut all: Vec<Exchange> = (1..=100)
        .map(|number| one(number * 1000, 0, number))
        .collect();
    let p99 = |all: &[Exchange], stalls: &[Stall]| {
        undisturbed(all, stalls).map(|left| (left.kernel_p99_ns, left.response_p99_ns))
    };
    assert_eq!(p99(&all, &[]), Some((99.0, 99.0)));
    let stall = Stall {
        start_ns: 200_000,
        end_ns: 210_000,
    };
    all.push(one(195_000, 7_000, 9_000));
    all.push(one(205_000, 0, 8_000));
    all.push(one(215_000, 0, 7_000));
    let left = undisturbed(&all, &[stall]).unwrap();
    assert_eq!((left.kernel_p99_ns, left.response_p99_ns), (99.0, 99.0));
    assert!((left.disturbed_share - 3.0 / 103.0).abs() < 1e-9);
    assert!(undisturbed(&all, &[]).unwrap().response_p99_ns > 7_000.0);
    assert!(undisturbed(&[], &[]).is_none());
}
