use super::*;

#[test]
fn parses_the_first_line() {
    let times = CpuTimes::parse("cpu  100 20 30 400 5 6 7 8 9 10\ncpu0 1 2\n").unwrap();
    let tick = ticks_to_ns(1);
    assert_eq!(times.busy_ns, 150 * tick);
    assert_eq!(times.steal_ns, 8 * tick);
    assert_eq!(times.total_ns, 576 * tick);
    assert!(CpuTimes::parse("cpu  100 20 30 400\n").is_some());
    for bad in ["", "cpu", "cpu 1 2 3", "intr 1 2 3 4", "cpu a b c d"] {
        assert_eq!(CpuTimes::parse(bad), None, "{bad:?}");
    }
}

/// Goal: our own work is never called foreign, and a hog is.
#[test]
fn foreign_share_is_what_is_left() {
    let before = CpuTimes {
        busy_ns: 1_000,
        steal_ns: 0,
        total_ns: 10_000,
    };
    let after = CpuTimes {
        busy_ns: 2_600,
        steal_ns: 100,
        total_ns: 12_000,
    };
    let ours = MachineNoise::between(&before, &after, 1_600);
    assert_eq!((ours.foreign_cpu_share, ours.steal_share), (0.0, 0.05));
    assert_eq!(ours.flags("put").len(), 1);
    let hog = MachineNoise::between(&before, &after, 600);
    assert_eq!(hog.foreign_cpu_share, 0.5);
    assert_eq!(hog.flags("put")[0].kind, NoiseKind::ForeignCpu);
    // Ticks of 10 ms may credit us with a little more than the machine shows.
    assert_eq!(
        MachineNoise::between(&before, &after, 9_999).foreign_cpu_share,
        0.0
    );
    assert_eq!(
        MachineNoise::between(&before, &before, 0),
        MachineNoise::default()
    );
}

#[test]
fn reads_this_machine() {
    let times = CpuTimes::read().unwrap();
    assert!(times.busy_ns > 0 && times.busy_ns < times.total_ns);
}
