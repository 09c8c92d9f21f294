use super::*;

/// Goal: the idle timeout is a straight line down to its minimum at nine tenths of the
/// connections, and stays there; a minimum above the timeout changes nothing.
#[test]
fn idle_timeout_shrinks_in_a_straight_line() {
    let limits = LimitValues {
        idle_timeout_ns: 75 * SECOND_NS,
        idle_timeout_min_ns: SECOND_NS,
        connections_max: 1000,
        ..LimitValues::default()
    };
    for (open_count, expected_s) in [(0, 75), (450, 38), (900, 1), (901, 1), (1000, 1)] {
        let allowed_ns = limits.idle_timeout_with_ns(open_count);
        assert_eq!(allowed_ns, expected_s * SECOND_NS, "{open_count} open");
    }
    let short = LimitValues {
        idle_timeout_ns: SECOND_NS / 2,
        ..limits
    };
    assert_eq!(short.idle_timeout_with_ns(0), SECOND_NS / 2);
    assert_eq!(short.idle_timeout_with_ns(1000), SECOND_NS / 2);
}

/// Goal: every limit that is counted has a name and a place of its own, and each field is there.
#[test]
fn every_limit_is_named_once() {
    let limits = LimitValues::default();
    let named = limits.named();
    let mut places: Vec<usize> = named.iter().flat_map(|n| n.2).map(|l| l as usize).collect();
    places.sort_unstable();
    assert_eq!(places, (0..Limit::COUNT).collect::<Vec<_>>());
    let debug = format!("{limits:?}");
    for (name, value, _) in named {
        assert!(
            debug.contains(&format!("{name}: {value}")),
            "{name} in {debug}"
        );
    }
    // One field is a rule and no value.
    assert!(debug.contains("counts_loopback_addresses: "));
    assert_eq!(debug.matches(": ").count(), named.len() + 1, "{debug}");
}

/// Goal: connections that are chosen for a number of sockets need no more of them, and hardly fewer.
#[test]
fn connections_fit_their_sockets() {
    for sockets in 0..5_000 {
        let connections_max = LimitValues::connections_within(sockets);
        let limits = LimitValues {
            connections_max,
            ..LimitValues::DEFAULT
        };
        if connections_max > 0 {
            assert!(
                limits.sockets_max() <= sockets,
                "{sockets}: {connections_max}"
            );
            assert!(
                limits.sockets_max() + 64 > sockets,
                "{sockets}: {connections_max}"
            );
        }
    }
    assert_eq!(LimitValues::connections_within(16), 0);
}

/// Goal: the servers' values are valid; each value has its documented range, and one outside is named with the value
/// found.
#[test]
fn values_out_of_range_are_named() {
    assert_eq!(LimitValues::default().checked(), Ok(Limits::default()));
    let check = |change: fn(&mut LimitValues, u64), value| {
        let mut values = LimitValues::default();
        change(&mut values, value);
        values.checked().map_err(|error| error.to_string())
    };
    let fields = |values: &mut LimitValues, value: u64| values.fields_max = value as usize;
    let head = |values: &mut LimitValues, value: u64| values.head_bytes_max = value as usize;
    let line =
        |values: &mut LimitValues, value: u64| values.request_line_bytes_max = value as usize;
    let trailer = |values: &mut LimitValues, value: u64| values.trailer_bytes_max = value as usize;
    let connections =
        |values: &mut LimitValues, value: u64| values.connections_max = value as usize;
    for (name, change, value_max) in [
        ("fields_max", fields as fn(&mut LimitValues, u64), 128),
        ("head_bytes_max", head, 65_535),
        ("request_line_bytes_max", line, 65_535),
        ("trailer_bytes_max", trailer, 65_535),
        ("connections_max", connections, 4_294_967_295),
    ] {
        for value in [1, value_max] {
            assert!(check(change, value).is_ok(), "{name} {value}");
        }
        for value in [0, value_max + 1] {
            let expected = format!("{name} is {value}: use a value from 1 to {value_max}");
            assert_eq!(check(change, value), Err(expected));
        }
    }
    let idle = |values: &mut LimitValues, value: u64| values.idle_timeout_ns = value;
    assert!(check(idle, 0).is_err() && check(idle, u64::MAX).is_ok());
}
