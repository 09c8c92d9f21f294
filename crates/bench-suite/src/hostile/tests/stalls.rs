use super::*;

/// Goal: requests under way in a stall or within its length after it are disturbed, and no others.
#[test]
fn a_stall_disturbs_as_long_again() {
    let stall = Stall {
        start_ns: 100,
        end_ns: 110,
    };
    for (start_ns, end_ns, expected) in [
        (90, 100, false),
        (90, 101, true),
        (103, 105, true),
        (112, 130, true),
        (119, 125, true),
        (120, 125, false),
    ] {
        assert_eq!(
            stall.disturbs(start_ns, end_ns),
            expected,
            "{start_ns} {end_ns}"
        );
    }
}

/// Goal: a disturbance no larger beside an attack than alone is the machine's; more of it may be
/// the server's.
#[test]
fn more_stalls_beside_an_attack_are_left_in() {
    let stall = |start_ns| Stall {
        start_ns,
        end_ns: start_ns + 1,
    };
    let stalls = Stalls {
        of_server: vec![stall(1)],
        of_generator: vec![stall(2)],
    };
    let own = Stood {
        seen_ns: TICK_NS + 2,
        stolen_ns: 1,
    };
    let left_out = |shares| stalls.to_leave_out(shares, own);
    assert_eq!(left_out([0.01, 0.014]), [stall(1), stall(2)]);
    assert_eq!(left_out([0.05, 0.0]), [stall(1), stall(2)]);
    assert_eq!(left_out([0.01, 0.016]), [stall(2)]);
    let mut taken = Stood::default();
    taken += own;
    taken.stolen_ns += 1;
    let left_out = stalls.to_leave_out([0.01, 0.9], taken);
    assert_eq!(left_out, [stall(1), stall(2)]);
    assert_eq!([0, 2].map(|from| stalls.of_server_since(from)), [1, 0]);
}

/// Goal: stolen time is a share of all time, guests counted once; less than that is unknown.
#[test]
fn steal_is_a_share_of_a_cpus_time() {
    let read = |text: &str| CpuTicks::parse(text, 1);
    let before = read("cpu  1 2 3\ncpu0 1\ncpu1 10 0 10 60 10 0 0 10 5 0\ncpu10 3\n").unwrap();
    assert_eq!((before.total, before.steal), (100, 10));
    let after = read("cpu1 20 0 20 200 30 0 0 30 5 0\n").unwrap();
    assert!((after.steal_share_since(before) - 0.1).abs() < 1e-9);
    assert_eq!(after.steal_ns_since(before), 200_000_000);
    assert_eq!(before.steal_share_since(before), 0.0);
    for text in [
        "",
        "cpu0 1 2 3 4 5 6 7 8",
        "cpu1 1 2 3 4 5 6 7",
        "cpu1 1 2 3 4 5 6 7 x",
    ] {
        assert_eq!(read(text), None, "{text}");
    }
}

/// Goal: a thread that is told to end stops watching, and lines are read as they are written.
#[test]
fn watchers_end_and_are_read() {
    assert_eq!(watch(&AtomicBool::new(true)), []);
    let stall = Stall {
        start_ns: 5,
        end_ns: 7,
    };
    assert_eq!(parse("5 7"), Some(stall));
    for line in ["", "5", "7 5", "a 7"] {
        assert_eq!(parse(line), None, "{line}");
    }
}
